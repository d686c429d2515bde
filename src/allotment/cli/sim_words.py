"""What came out of a simulation: for people, and for programs."""

import sys
from collections.abc import Mapping, Sequence
from typing import cast

import msgspec

from allotment.cli.output import paint, say
from allotment.cli.table import Column, print_table
from allotment.cli.words import count, harmless, some
from allotment.metrics.summary import Summary, TenantBlock, is_of_completed
from allotment.model.quantity import show_millis
from allotment.sim.idle import nothing_waits
from allotment.sim.nothing import rows_of
from allotment.sim.outcome import Run

CLAIRVOYANT = " *"

BOUND = "it knew every run time beforehand: a bound, not a practical choice"
"""What that mark means."""


def in_words(run: Run) -> list[str]:
    """Describe one run in a few lines."""
    s = run.summary
    told = ", which knew every run time beforehand" if run.clairvoyant else ""
    lines = [
        paint(f"{run.policy} on {run.cluster}{told}", "bold", sys.stdout),
        f"  jobs          {completed_of(s)}",
        *(f"  never here    {reason}" for reason in never_words(run)),
        f"  completion    {_spread(s, 'jct')}",
        f"  waiting       {_spread(s, 'queue_delay')}",
        f"  makespan      {_length(s.makespan_s)}, {s.throughput_jobs_per_h:,.1f} jobs/h",
        f"  utilization   {s.utilization:.1%} of {run.capacity_milli // 1000:,} devices; "
        f"{s.fragmentation:.1%} of the idle time was wanted",
        f"  preemptions   {s.preemptions:,}",
        f"  fairness      {_fairness(s)}",
        f"  simulated     {run.events:,} events in {run.wall_s:.2f} s",
    ]
    lines += [f"  left out      {rows_of(number)}: {why}" for why, number in run.dropped]
    return lines


def nothing_ran(runs: Sequence[Run]) -> str:
    """Return why no job could run in any of some runs; empty where one could."""
    why = [run.summary.nothing_ran for run in runs]
    return why[0] if all(why) else ""


OTHERWISE = {
    "failed": "failed",
    "timed_out": "timed out",
    "cancelled": "cancelled",
    "never_schedulable": "can never run here",
    "censored": "censored",
    "unfinished": "unfinished",
}


def completed_of(s: Summary) -> str:
    """Count the jobs that completed, and the others by what became of them."""
    counts = ((getattr(s, name), said) for name, said in OTHERWISE.items())
    others = "".join(f", {number:,} {said}" for number, said in counts if number)
    return f"{s.completed:,} of {s.jobs:,} completed{others}"


NONE_COMPLETED = "–"
"""Instead of what is over completed jobs when there is none."""


MOST_REASONS = 3


def never_words(run: Run) -> list[str]:
    """Return why jobs can never run, a line for each of the commonest reasons."""
    reasons = list(run.never().items())
    lines = [
        harmless(f"{count(len(ids), 'job')} ({some(ids)}): {reason}")
        for reason, ids in reasons[:MOST_REASONS]
    ]
    rest = sum(len(ids) for _, ids in reasons[MOST_REASONS:])
    return [*lines, f"{count(rest, 'job')} for other reasons"] if rest else lines


def _fairness(s: Summary) -> str:
    if not s.completed:
        return NONE_COMPLETED
    return (
        f"Jain {s.fairness.jain:.3f} over {len(s.tenants)} tenants; "
        f"finish-time rho: mean {s.fairness.mean_rho:.2f}, worst {s.fairness.worst_rho:.2f}"
    )


def _spread(s: Summary, what: str) -> str:
    if not s.completed:
        return NONE_COMPLETED
    values = {part: getattr(s, f"{part}_{what}_s") for part in ("avg", "p50", "p90", "p99")}
    return ", ".join(
        f"{'mean' if part == 'avg' else part} {_length(value)}"
        for part, value in values.items()
    )


COLUMNS = (
    Column("policy"),
    Column("mean JCT", right=True),
    Column("median", rank=3, right=True),
    Column("p99", rank=2, right=True),
    Column("mean wait", right=True),
    Column("p90 wait", rank=1, right=True),
    Column("makespan", rank=4, right=True),
    Column("util.", rank=2, right=True),
    Column("preempted", rank=1, right=True),
    Column("Jain", rank=3, right=True),
    Column("worst rho", rank=5, right=True),
    Column("wall", rank=6, right=True),
)


COMPLETED = Column("completed", right=True)


def compared(runs: Sequence[Run]) -> None:
    """Print runs side by side."""
    if any(s.completed < s.jobs for s in (run.summary for run in runs)):
        # Means are over completed jobs: not over the same ones in each row, then.
        print_table((*COLUMNS[:1], COMPLETED, *COLUMNS[1:]), [_with_done(run) for run in runs])
    else:
        print_table(COLUMNS, [_row(run) for run in runs])
    if any(run.clairvoyant for run in runs):
        say(f"* clairvoyant: {BOUND}.")
    if len(runs) > 1 and (said := nothing_waits([run.summary for run in runs])):
        say(said)


def marked(run: Run) -> str:
    """Name its policy, with the mark of a clairvoyant one."""
    return run.policy + (CLAIRVOYANT if run.clairvoyant else "")


def _with_done(run: Run) -> list[str]:
    name, *rest = _row(run)
    return [name, f"{run.summary.completed:,}", *rest]


def _row(run: Run) -> list[str]:
    s = run.summary
    times = (
        s.avg_jct_s, s.p50_jct_s, s.p99_jct_s, s.avg_queue_delay_s, s.p90_queue_delay_s,
    )  # fmt: skip
    return [
        marked(run),
        *(_length(time) if s.completed else NONE_COMPLETED for time in times),
        _length(s.makespan_s),
        f"{s.utilization:.1%}",
        f"{s.preemptions:,}",
        f"{s.fairness.jain:.3f}" if s.completed else NONE_COMPLETED,
        f"{s.fairness.worst_rho:.1f}" if s.completed else NONE_COMPLETED,
        f"{run.wall_s:.1f} s",
    ]


def machine_form(run: Run) -> dict[str, object]:
    """Return what `--json` prints: the summary, and what it was made from."""
    return {
        "policy": run.policy,
        "clairvoyant": run.clairvoyant,
        "cluster": run.cluster,
        "settings": dict(run.settings),
        "trace": run.trace,
        "trace_digest": run.trace_digest,
        "dropped": dict(run.dropped),
        "never_why": {reason: len(ids) for reason, ids in run.never().items()},
        "warnings": run.warnings,
        "seed": run.seed,
        "version": run.version,
        "events": run.events,
        "wall_s": run.wall_s,
        **_numbers(run.summary),
    }


def _numbers(block: Summary | TenantBlock) -> dict[str, object]:
    """Return its numbers; null for those over completed jobs where there is none."""
    found: dict[str, object] = msgspec.to_builtins(block)
    if isinstance(block, Summary):
        found["tenants"] = [_numbers(tenant) for tenant in block.tenants]
    return found if block.completed else _without_value(found)


def _without_value(numbers: Mapping[str, object], above: str = "") -> dict[str, object]:
    found: dict[str, object] = {}
    for name, value in numbers.items():
        if isinstance(value, Mapping):
            found[name] = _without_value(cast("Mapping[str, object]", value), f"{name}.")
        else:
            found[name] = None if is_of_completed(f"{above}{name}") else value
    return found


def _length(seconds: float) -> str:
    return show_millis(round(seconds * 1000))
