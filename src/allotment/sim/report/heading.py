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
    return f"{len(views)} policies{on}: a comparison"


def heading(views: Sequence[View]) -> str:
    """Write the title, the facts of the runs and their warnings."""
    names = [view.name for view in views]
    facts = (
        ("Policies" if len(views) > 1 else "Policy", listed(names)),
        ("Trace", _each(views, _trace)),
        ("Jobs", _each(views, lambda run: counted(len(run.jobs), "job"))),
        ("Left out", _each(views, _dropped)),
        ("Cluster", _each(views, _cluster)),
        ("Settings", _each(views, _settings)),
        ("Seed", _each(views, lambda run: str(run.seed))),
        ("Version", _each(views, lambda run: run.version)),
    )
    shown = "".join(
        f"<dt>{safe(name)}</dt><dd>{safe(words)}</dd>" for name, words in facts if words
    )
    return f'<h1>{safe(title(views))}</h1><dl class="facts">{shown}</dl>{_warnings(views)}'


def footer(views: Sequence[View]) -> str:
    """Say what the simulations cost."""
    said = "; ".join(
        f"{view.name}: {number(view.run.events)} events in {view.run.wall_s:.1f} s"
        for view in views
        if view.run.events
    )
    return f"<footer><p>Made by the simulator of Allotment. {safe(said)}</p></footer>"


def _each(views: Sequence[View], words: Callable[[Run], str]) -> str:
    """Say once what holds for all runs, else for each."""
    said = [words(view.run) for view in views]
    if len(set(said)) < 2:
        return "".join(said[:1])
    return "; ".join(f"{view.name}: {w or '–'}" for view, w in zip(views, said, strict=True))


def _trace(run: Run) -> str:
    digest = f"SHA-256 {run.trace_digest}" if run.trace_digest else ""
    return ", ".join(part for part in (run.trace, digest) if part)


def _cluster(run: Run) -> str:
    nodes = f"{counted(run.nodes, 'node')}, {devices(run.capacity_milli)} in all"
    return f"{run.cluster} ({nodes})" if run.cluster else nodes


def _settings(run: Run) -> str:
    return ", ".join(f"{key} = {value}" for key, value in run.settings)


def _dropped(run: Run) -> str:
    total = sum(count for _, count in run.dropped)
    if not total:
        return ""
    reasons = "; ".join(f"{reason}: {count:,}" for reason, count in run.dropped)
    return f"{counted(total, 'row')} ({reasons})"


def _warnings(views: Sequence[View]) -> str:
    said: list[str] = []
    for view in views:
        said += [words for words in view.run.warnings if words not in said]
    said += [words for words in (_told(views), *_never(views), *_open(views)) if words]
    if not said:
        return ""
    items = "".join(f"<li>{safe(words)}</li>" for words in said)
    return f'<div class="warn"><p><strong>Mind this</strong></p><ul>{items}</ul></div>'


def _told(views: Sequence[View]) -> str:
    told = [view.name for view in views if view.run.clairvoyant]
    if not told:
        return ""
    were = "was" if len(told) == 1 else "were"
    return (
        f"{listed(told)} {were} told run times that nobody can know beforehand: what comes "
        "out is a bound, not a promise."
    )


def _never(views: Sequence[View]) -> list[str]:
    """Say which jobs can never run, once if they are the same in all runs."""
    return _grouped(views, _never_words)


def _never_words(view: View) -> str:
    jobs = [job for job in view.run.jobs if job.never]
    if not jobs:
        return ""
    reasons: dict[str, list[str]] = {}
    for job in jobs:
        reasons.setdefault(job.never, []).append(short(job.id, 24))
    said = "; ".join(
        f"{short(reason, 160)} ({'jobs' if len(ids) > 1 else 'job'} {_some(ids)})"
        for reason, ids in list(reasons.items())[:MOST_LISTED]
    )
    more = len(reasons) - MOST_LISTED
    rest = f"; and {counted(more, 'other reason')}" if more > 0 else ""
    return f"{counted(len(jobs), 'job')} can never run on this cluster: {said}{rest}."


def _some(ids: Sequence[str]) -> str:
    shown = ", ".join(ids[:MOST_LISTED])
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
    if s.unfinished:
        parts.append(f"{counted(s.unfinished, 'job')} did not complete in the simulation")
    return f"{'; '.join(parts)}." if parts else ""


def _grouped(views: Sequence[View], words: Callable[[View], str]) -> list[str]:
    said = {view.name: words(view) for view in views}
    kinds = set(said.values())
    if len(kinds) < 2:
        return [kind for kind in kinds if kind]
    return [f"Under {name}: {w}" for name, w in said.items() if w]
