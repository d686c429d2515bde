"""The measured figures as Markdown."""

from collections.abc import Iterable, Sequence

from allotment.model.quantity import HOUR, MINUTE
from bench.anomaly.arms import Kind
from bench.anomaly.measure import Result
from bench.anomaly.verdict import alone, excesses, find
from bench.anomaly.workload import WIDTH, Workload, devices_of, time_of_large, work_of

NAMES = {
    "private": "private", "plain": "private, no cells", "loose": "private, one machine",
    "owned": "private, counted", "quota": "quota", "counted": "quota, counted",
    "spread": "quota, counted, spread", "cells": "cells",
    "flat": "cells, two levels", "static": "cells, static",
}  # fmt: skip


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Write a table; all but the first column are set to the right."""
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def minutes(milliseconds: float) -> str:
    """Write a delay in minutes: two digits where it is short."""
    value = milliseconds / MINUTE
    return (
        f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"
    )


def hours(device_ms: float) -> str:
    return f"{device_ms / HOUR:,.0f}"


def shares(workload: Workload) -> str:
    """Return who is guaranteed what, and asks for what."""
    jobs = workload.trace.jobs
    span = jobs[-1].submit_ms - jobs[0].submit_ms
    rows: list[list[str]] = []
    for tenant, nodes in sorted(workload.shares.items(), key=lambda item: -item[1]):
        own = [job for job in jobs if job.tenant == tenant]
        load = sum(map(work_of, own)) / span / 1000
        rows.append([
            tenant, f"{nodes} ({nodes * WIDTH})", f"{len(own):,}", f"{load:.1f}",
            f"{load / (nodes * WIDTH):.2f}", str(max(map(devices_of, own), default=0)),
            f"{time_of_large(own):.0%}",
        ])  # fmt: skip
    return table(
        ["tenant", "nodes (devices)", "jobs", "devices asked for, mean", "load",
         "largest job", "time in jobs of ≥ 8"], rows,
    )  # fmt: skip


def means(results: list[Result], load: str) -> str:
    """Compare mean delays by tenant under all schedulers."""
    merged = [
        (f"{scheduler}: {name}", result)
        for scheduler in dict.fromkeys(result.arm.scheduler for result in results)
        for name, result in _merged(results, load, scheduler)
    ]
    return _by_tenant(merged, ("mean",), [name for name, _ in merged])


def delays(results: list[Result], load: str, scheduler: str) -> str:
    """Compare a scheduler's delays by tenant."""
    merged = _merged(results, load, scheduler)
    head = [word for name, _ in merged for word in (f"{name}: mean", "p50", "p90", "p99")]
    return _by_tenant(merged, ("mean", "p50", "p90", "p99"), head)


SHOWN: tuple[Kind, ...] = ("private", "cells", "quota", "owned", "counted", "spread")


def _merged(results: list[Result], load: str, scheduler: str) -> list[tuple[str, Result]]:
    """Return the arms without borrowing; those that came to the very same stand as one."""
    merged: list[tuple[str, Result]] = []
    for kind in SHOWN:
        if (result := find(results, load, kind, scheduler)) is None:
            continue
        if merged and merged[-1][1].delays == result.delays:
            merged[-1] = (f"{merged[-1][0]} and {NAMES[kind]}", merged[-1][1])
        else:
            merged.append((NAMES[kind], result))
    return merged


def _by_tenant(
    merged: Sequence[tuple[str, Result]], fields: Sequence[str], head: Sequence[str]
) -> str:
    names = sorted({name for _, result in merged for name in result.delays if name})
    rows = [
        [name or "all", *(_delay(r, name, field) for _, r in merged for field in fields)]
        for name in [*names, ""]
    ]
    return table(["tenant", *head], rows)


def _delay(result: Result, tenant: str, field: str) -> str:
    delay = result.delays.get(tenant)
    return minutes(getattr(delay, field)) if delay else ""


def beside_private(results: list[Result]) -> str:
    """Return, for each way to share, who waits longer than on a private cluster."""
    rows: list[list[str]] = []
    for result in results:
        arm = result.arm
        private = alone(results, arm)
        if arm.borrow or private is None:
            continue
        ranked = excesses(result, private)
        worst = ranked[0]
        times = max(ranked, key=lambda each: each.times if each.is_more else 0)
        rows.append([
            f"{arm.load} {arm.scheduler}", NAMES[arm.kind], NAMES[private.arm.kind],
            str(sum(1 for each in ranked if each.is_more)),
            f"{(worst.shared_ms - worst.private_ms) / MINUTE:+,.1f} ({worst.tenant})",
            f"{times.times:.2f} ({times.tenant})",
            minutes(private.delays[""].mean), minutes(result.delays[""].mean),
        ])  # fmt: skip
    return table(
        ["workload, scheduler", "shared by", "compared with", "tenants worse off by > 1 %",
         "worst: minutes more", "worst: times", "all jobs, alone", "all jobs, shared"], rows,
    )  # fmt: skip


def why(results: list[Result], load: str) -> str:
    """Return what a tenant's own nodes cost it, and what others' jobs on shared nodes do.

    First come, first served; empty where an arm is missing.
    """
    kinds = ("private", "loose", "quota", "cells")
    found = [result for kind in kinds if (result := find(results, load, kind, "FIFO"))]
    if len(found) < len(kinds):
        return ""
    private, loose, quota, _ = found
    rows: list[list[str]] = []
    for name in sorted(private.idle):
        if name not in private.delays:
            continue
        means = [result.delays[name].mean for result in (private, loose, quota)]
        rows.append([
            name, *map(minutes, means),
            *(f"{(mean - means[1]) / MINUTE:+,.0f}" for mean in (means[0], means[2])),
            *(hours(result.idle[name].shape_ms) for result in (private, quota)),
            *(hours(result.idle[name].few_ms) for result in (private, quota)),
            "/".join(str(result.idle[name].overtakers) for result in found),
        ])  # fmt: skip
    return table(
        ["tenant", "mean delay: private", "one machine", "quota", "own nodes cost",
         "others' jobs cost", "idle for shape: private", "quota", "idle for number: private",
         "quota", "overtakers: private/one machine/quota/cells"], rows,
    )  # fmt: skip


def borrowing(results: list[Result]) -> str:
    """Return what borrowing brings, and what it costs."""
    rows: list[list[str]] = []
    for result in results:
        arm = result.arm
        without = find(results, arm.load, arm.kind, arm.scheduler)
        if not arm.borrow:
            continue
        rows.append([
            f"{arm.load} {arm.scheduler}", NAMES[arm.kind],
            minutes(without.delays[""].mean) if without else "",
            minutes(result.delays[""].mean),
            f"{without.utilisation:.1%}" if without else "", f"{result.utilisation:.1%}",
            hours(result.borrowed_ms), f"{result.evictions:,}",
            f"{hours(result.lost_ms)} ({result.lost_ms / max(1, result.borrowed_ms):.1%})",
            f"{hours(result.lost_hourly_ms)} "
            f"({result.lost_hourly_ms / max(1, result.borrowed_ms):.1%})",
        ])  # fmt: skip
    return table(
        ["workload, scheduler", "shared by", "mean delay without", "with borrowing",
         "in use without", "with", "device-hours borrowed", "evictions",
         "device-hours run in vain if nothing is saved", "if saved hourly"], rows,
    )  # fmt: skip


def by_borrowing_tenant(results: list[Result], load: str) -> str:
    """Compare tenants' mean delays with and without borrowing."""
    found = [r for r in results if r.arm.load == load and r.arm.kind == "cells"]
    pairs = [
        (without, result)
        for result in found
        if result.arm.borrow and (without := find(found, load, "cells", result.arm.scheduler))
    ]
    head = ["tenant"]
    for _, result in pairs:
        head += [f"{result.arm.scheduler} without", "with"]
    names = sorted({name for _, result in pairs for name in result.delays if name})
    rows = [
        [name, *(minutes(r.delays[name].mean) for pair in pairs for r in pair)]
        for name in names
    ]
    return table(head, rows)


def distance(results: list[Result]) -> str:
    """Return how often devices that belong together are apart."""
    rows = [
        [f"{r.arm.load} {r.arm.scheduler}", NAMES[r.arm.kind], hours(r.small_ms),
         f"{r.apart:.1%}"]
        for r in results
        if r.arm.kind in ("flat", "cells", "quota") and not r.arm.borrow
    ]  # fmt: skip
    return table(
        ["workload, scheduler", "shared by", "device-hours of tasks of 2 and 4 devices",
         "of them apart"], rows,
    )  # fmt: skip
