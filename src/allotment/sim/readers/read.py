"""From a file to a trace: find its format, read its rows, put them in order, say doubts."""

from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from operator import attrgetter
from pathlib import Path

from allotment.sim.readers import pai
from allotment.sim.readers.catalogue import format_named, format_of
from allotment.sim.readers.formats import Format, Options
from allotment.sim.readers.gavel import NO_RATE
from allotment.sim.readers.pai import NO_TASKS
from allotment.sim.readers.plausible import censored_note, doubts
from allotment.sim.readers.sacct import A_STEP
from allotment.sim.readers.shape import NEVER_RAN, NO_DEVICES
from allotment.sim.readers.source import digest_of, name_of, open_stored, open_text
from allotment.sim.readers.table import Row
from allotment.sim.trace import BadTrace, Trace, TraceJob, most_first

Rates = Mapping[tuple[str, int], float]
"""Steps a second of (model, devices)."""

TOLD = 5
"""Reasons for leaving rows out that are told with a row; all are counted."""

NOTHING_WRONG = frozenset((NEVER_RAN, NO_DEVICES, NO_TASKS, NO_RATE, A_STEP))
"""Reasons that say nothing against the file."""


TOO_EARLY = "submission is negative, or before 1970"
"""Times are counted from 0 on, and what is before it is no time."""


def read_trace(
    path: Path, format: str = "", tasks: str = "", *, rates: Rates | None = None
) -> Trace:
    """Read a trace, plain or compressed, in any known format.

    `format` forces one instead of telling it by the first lines. `tasks="node"` makes tasks
    of up to 8 devices where the source has none. `rates` turns steps into run times (`gavel`).
    Raises BadTrace for a file that cannot be used, and says what to do.
    """
    if tasks not in ("", "node"):
        raise BadTrace(f"unknown tasks {tasks!r}: 'node' or nothing")
    forced = format_named(format) if format else None
    options = Options(whole_nodes=tasks == "node", rates=rates)
    with ExitStack() as opened:
        if path.is_dir():
            return _from_folder(path, forced, opened)
        handle = opened.enter_context(open_stored(path))
        digest = digest_of([handle])
        text = open_text(handle, path.name)
        known = forced or format_of(text)
        rows = list(known.read(text, options))
    guessed = [known.guessed] if known.guessed and not forced else []
    return _trace(path.name, known, digest, rows, guessed)


def _from_folder(folder: Path, forced: Format | None, opened: ExitStack) -> Trace:
    if forced not in (None, pai.FORMAT):
        raise BadTrace(f"{name_of(folder)}: is a folder; {forced.name} is read from a file")
    handles = [opened.enter_context(open_stored(path)) for path in pai.tables_in(folder)]
    digest = digest_of(handles)
    jobs, tasks = (open_text(handle, Path(handle.name).name) for handle in handles)
    rows = list(pai.read_tables(jobs, tasks))
    return _trace(name_of(folder), pai.FORMAT, digest, rows, [])


def _trace(
    source: str, known: Format, digest: str, rows: list[Row], warnings: list[str]
) -> Trace:
    jobs = [row for row in rows if isinstance(row, TraceJob)]
    if jobs and min(job.submit_ms for job in jobs) < 0:
        rows = [TOO_EARLY if _is_too_early(row) else row for row in rows]
        jobs = [row for row in rows if isinstance(row, TraceJob)]
    dropped = most_first(Counter(row for row in rows if isinstance(row, str)))
    left_out = [_left_out(reason, count, rows) for reason, count in dropped[:TOLD]]
    if not jobs:
        why = "; ".join(left_out) or "it has no rows"
        raise BadTrace(f"{source}: no job could be read as {known.name}: {why}")
    broken = [
        f"left out: {told}"
        for told, (reason, _) in zip(left_out, dropped, strict=False)
        if reason not in NOTHING_WRONG
    ]
    _check_ids(source, jobs, rows)
    late = _out_of_order(jobs)
    if late:
        jobs.sort(key=attrgetter("submit_ms"))
        warnings = [
            *warnings,
            f"the file is not in order of submission, and was sorted: {late:,} of "
            f"{len(jobs):,} jobs stand below a later one",
        ]
    warnings = [*warnings, *broken, *censored_note(jobs), *doubts(jobs)]
    return Trace(source, known.name, digest, tuple(jobs), dropped, tuple(warnings))


def _is_too_early(row: Row) -> bool:
    return isinstance(row, TraceJob) and row.submit_ms < 0


def _left_out(reason: str, count: int, rows: list[Row]) -> str:
    """Return which rows have no job, and why; the first of them by its number."""
    others = f" and {count - 1:,} more" if count > 1 else ""
    return f"row {rows.index(reason) + 1}{others}: {reason}"


def _check_ids(source: str, jobs: list[TraceJob], rows: Iterable[Row]) -> None:
    """Refuse a trace that calls two jobs the same."""
    if len({job.id for job in jobs}) == len(jobs):
        return
    seen: dict[str, int] = {}
    for number, row in enumerate(rows, 1):
        if isinstance(row, TraceJob) and seen.setdefault(row.id, number) != number:
            raise BadTrace(
                f"{source}: rows {seen[row.id]} and {number} (the header not counted) are "
                f"both called {row.id[:80]!r}; give each job an id of its own, or leave the "
                "column out"
            )


def _out_of_order(jobs: list[TraceJob]) -> int:
    """Count the jobs submitted before a job that stands above them."""
    late, latest = 0, jobs[0].submit_ms
    for job in jobs:
        if job.submit_ms < latest:
            late += 1
        else:
            latest = job.submit_ms
    return late
