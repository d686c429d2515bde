"""The head of the page: what was simulated, on what, and what was left out."""

from collections.abc import Callable, Sequence

from allotment.sim.outcome import Run
from allotment.sim.report.view import View
from allotment.sim.report.words import counted, devices, listed, number, safe, short

MOST_LISTED = 8
"""How many jobs of a kind are named one by one."""


def title(views: Sequence[View]) -> str:
    """Name the page."""
    traces = {view.run.trace for view in views}
    trace = traces.pop() if len(traces) == 1 else ""
    on = f" on {trace}" if trace else ""
    if len(views) == 1:
        return f"{views[0].name}{on}: a simulation"
    if views and len({view.run.policy for view in views}) == 1:
        return f"{short(views[0].run.policy, 40)}{on}: {len(views)} runs compared"
    return f"{len(views)} policies{on}: a comparison"


def heading(views: Sequence[View]) -> str:
    """Write the title, the facts of the runs and their warnings."""
    facts = (
        ("Policies" if len(_policies(views)) > 1 else "Policy", _policies(views)),
        ("Trace", [_each(views, _trace)]),
        ("Jobs", [_each(views, _jobs)]),
        ("Left out", [_each(views, _dropped)]),
        ("Cluster", [_each(views, _cluster)]),
        ("Settings", [_each(views, _settings)]),
        ("Seed", [_each(views, lambda run: str(run.seed))]),
        ("Version", [_each(views, lambda run: run.version and f"Allotment {run.version}")]),
    )
    shown = "".join(
        f"<dt>{safe(name)}</dt>{''.join(f'<dd>{safe(words)}</dd>' for words in lines)}"
        for name, lines in facts
        if any(lines)
    )
    return (
        f'<h1>{safe(title(views))}</h1><dl class="facts">{shown}</dl>'
        f"{_defaults(views)}{_warnings(views)}"
    )


def _policies(views: Sequence[View]) -> list[str]:
    """Return what each policy does, and which were told what nobody can know."""
    alike = len({view.run.policy for view in views}) == 1
    said: dict[str, None] = {}
    for view in views:
        told = " (clairvoyant)" if view.run.clairvoyant else ""
        name = f"{short(view.run.policy)}{told}" if alike else view.name
        said[f"{name}: {view.run.rule}" if view.run.rule else name] = None
    return list(said)


def _jobs(run: Run) -> str:
    rows = len(run.jobs) + sum(count for _, count in run.dropped)
    said = counted(len(run.jobs), "job")
    if rows > len(run.jobs):
        said += f" of {counted(rows, 'row')}"
    tenants = len({job.tenant for job in run.jobs})
    return f"{said}, of {counted(tenants, 'tenant')}" if tenants > 1 else said


def _defaults(views: Sequence[View]) -> str:
    """List the settings that nobody chose, folded away."""
    kinds = {view.run.defaults for view in views if view.run.defaults}
    if not kinds:
        return ""
    common = [pair for pair in min(kinds, key=len) if all(pair in kind for kind in kinds)]
    items = ", ".join(f"{key} = {value}" for key, value in common)
    return (
        '<details class="set"><summary>Settings at their defaults</summary>'
        f'<p class="notes">{safe(items)}. The guide to the simulator says what each means.</p>'
        "</details>"
    )


def footer(views: Sequence[View]) -> str:
    """Return what the simulations cost."""
    said = "; ".join(
        f"{view.name}: {number(view.run.events)} events in {view.run.wall_s:.1f} s"
        for view in views
        if view.run.events
    )
    return f"<footer><p>Made by the simulator of Allotment. {safe(said)}</p></footer>"


def _each(views: Sequence[View], words: Callable[[Run], str]) -> str:
    """Return once what holds for all runs, else for each."""
    said = [words(view.run) for view in views]
    if len(set(said)) < 2:
        return "".join(said[:1])
    return "; ".join(f"{view.name}: {w or '–'}" for view, w in zip(views, said, strict=True))


def _trace(run: Run) -> str:
    digest = f"SHA-256 of the file begins {run.trace_digest}" if run.trace_digest else ""
    return ", ".join(part for part in (run.trace, digest) if part)


def _cluster(run: Run) -> str:
    if not run.cluster:
        return f"{counted(run.nodes, 'node')}, {devices(run.capacity_milli)} in all"
    return f"{run.cluster}: {devices(run.capacity_milli)} in all"


def _settings(run: Run) -> str:
    said = ", ".join(f"{key} = {value}" for key, value in run.settings)
    return said or "none chosen: all are at their defaults"


def _dropped(run: Run) -> str:
    total = sum(count for _, count in run.dropped)
    if not total:
        return "no row of the trace"
    reasons = "; ".join(f"{reason}: {count:,}" for reason, count in run.dropped)
    return f"{counted(total, 'row')} ({reasons})"


def _warnings(views: Sequence[View]) -> str:
    said: list[str] = []
    for view in views:
        said += [words for words in view.run.warnings if words not in said]
    said += [
        words
        for words in (_told(views), _unlike(views), *_never(views), *_open(views))
        if words
    ]
    if not said:
        return ""
    items = "".join(f"<li>{safe(words)}</li>" for words in said)
    return f'<div class="warn"><p><strong>Note</strong></p><ul>{items}</ul></div>'


def _told(views: Sequence[View]) -> str:
    told = [view.name for view in views if view.run.clairvoyant]
    if not told:
        return ""
    return (
        f"{listed(told)} knew run times that cannot be known beforehand: the results are "
        "bounds, not what can be expected in practice."
    )


def _unlike(views: Sequence[View]) -> str:
    """Warn of means over unlike sets of jobs."""
    done = {view.summary.completed for view in views}
    if len(done) < 2:
        return ""
    said = listed([f"{view.summary.completed:,} under {view.name}" for view in views])
    return (
        f"Not all policies completed as many jobs ({said}), and means are over completed jobs: "
        "what looks better may only have left more undone."
    )


def _never(views: Sequence[View]) -> list[str]:
    """Return which jobs can never run, once if they are the same in all runs."""
    return _grouped(views, _never_words)


def _never_words(view: View) -> str:
    reasons = view.run.never()
    if not reasons:
        return ""
    count = sum(map(len, reasons.values()))
    said = "; ".join(
        f"{short(reason, 160)} ({'jobs' if len(ids) > 1 else 'job'} {_some(ids)})"
        for reason, ids in list(reasons.items())[:MOST_LISTED]
    )
    more = len(reasons) - MOST_LISTED
    rest = f"; and {counted(more, 'other reason')}" if more > 0 else ""
    return f"{counted(count, 'job')} can never run on this cluster: {said}{rest}."


def _some(ids: Sequence[str]) -> str:
    shown = ", ".join(short(name, 24) for name in ids[:MOST_LISTED])
    more = len(ids) - MOST_LISTED
    return f"{shown} and {more:,} more" if more > 0 else shown


def _open(views: Sequence[View]) -> list[str]:
    return _grouped(views, _open_words)


def _open_words(view: View) -> str:
    s = view.summary
    parts: list[str] = []
    if s.censored:
        parts.append(
            f"{counted(s.censored, 'job')} had not ended where the trace does (censored): "
            "they take up devices but count in no mean"
        )
    for count, what in (
        (s.failed, "failed and was not tried again"),
        (s.timed_out, "ran into a limit of its own"),
        (s.cancelled, "was cancelled"),
    ):
        if count:
            words = (
                what if count == 1 else what.replace("was ", "were ").replace("its", "their")
            )
            parts.append(f"{counted(count, 'job')} {words}")
    if s.unfinished:
        parts.append(f"{counted(s.unfinished, 'job')} did not complete in the simulation")
    return f"{'; '.join(parts)}." if parts else ""


def _grouped(views: Sequence[View], words: Callable[[View], str]) -> list[str]:
    said = {view.name: words(view) for view in views}
    kinds = set(said.values())
    if len(kinds) < 2:
        return [kind for kind in kinds if kind]
    return [f"Under {name}: {w}" for name, w in said.items() if w]
