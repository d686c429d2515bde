"""The part of `allot show` about attempts: tasks, phases, how each ended and why."""

import re
import signal
from collections.abc import Sequence

from allotment.cli.output import paint
from allotment.cli.table import Column, aligned
from allotment.cli.words import (
    NOTHING_THERE,
    STATE_STYLES,
    harmless,
    plain,
    show_age,
    show_span,
)
from allotment.model.diagnosis import Diagnosis, Exit, Usage
from allotment.model.events import Phase
from allotment.model.gains import MoveFor
from allotment.model.ledger import Entitlement
from allotment.model.quantity import SECOND, show_bytes, show_millis
from allotment.service.gain_words import beside_words, gained_words, tells_why
from allotment.service.suspension_words import all_suspended_words
from allotment.service.views import AttemptView, JobView, TaskView
from allotment.service.words import there_words

MOST_TASKS = 32
"""More tasks are counted, not listed; `--json` has them all."""

TASK_COLUMNS = (
    Column("TASK"), Column("STATE"), Column("NODE"), Column("GPUS"), Column("RAN", right=True),
    Column("EXIT"), Column("CPU TIME", right=True), Column("PEAK MEMORY", right=True),
)  # fmt: skip
GPU_COLUMNS = (Column("GPU PEAK", right=True), Column("GPU MEMORY", right=True))
ENGINE_JOB = Column("JOB THERE", right=True)
"""Its number in another system, where that runs it."""


MOVED = "moved to another place"
LEFT = {
    MoveFor.TASKS: "left to grow",
    MoveFor.NEARER: "moved closer together",
    MoveFor.ROOM: "left a nearly empty node to others",
    MoveFor.IDLE: "moved to idle devices",
    MoveFor.BACK: "moved back to where it was faster",
}


def attempt_lines(
    attempt: AttemptView, job: int, now: int, told: Diagnosis | None = None
) -> list[str]:
    """Return one attempt as lines; a finding `told` elsewhere on the page is left out."""
    word = plain(attempt.outcome or attempt.state)
    style = STATE_STYLES.get(attempt.outcome or attempt.state, "")
    number = paint(f"Attempt {attempt.no}", "bold")
    lines = [
        f"{number}  {paint(word, style)}{_grounds(attempt, job)}",
        f"  {_times(attempt, now)}",
    ]
    if attempt.gained is not None:
        since = attempt.gained
        words = gained_words(since.rate, since.before, since.expected, kept=since.kept)
        lines.append(f"  {words}")
    if attempt.packing is not None:
        lines.append(f"  {beside_words(attempt.packing)}")
    lines += [f"  {line}" for line in suspension_lines(attempt)]
    lines += [f"  {line}" for line in _tasks(attempt.tasks, now)]
    lines += [f"  {line}" for line in phase_lines(attempt.tasks)]
    found = attempt.diagnosis or _first_diagnosis(attempt.tasks)
    if found is not None and found != told:
        lines += diagnosis_lines(found, job)
    return lines


MOST_HELD_UP = 8


def held_up_lines(job: JobView) -> list[str]:
    """Return what its tasks wait for to begin, or to be over."""
    more = len(job.held_up) - MOST_HELD_UP
    rest = [f"… and {more} more; --json lists them all"] if more > 0 else []
    return [*map(harmless, job.held_up[:MOST_HELD_UP]), *rest]


def suspension_lines(attempt: AttemptView) -> list[str]:
    """Return how its tasks are suspended, and what they keep, as far as that is known."""
    hows = [
        (task.suspension, len(task.devices))
        for task in attempt.tasks
        if task.suspension is not None
    ]
    return [] if attempt.ended_at else all_suspended_words(hows)


def _grounds(attempt: AttemptView, job: int) -> str:
    # In cells what is guaranteed borrows while it leaves for other cells of its tenant.
    lent = attempt.entitlement is Entitlement.OPPORTUNISTIC and attempt.wanted_by != job
    parts = ["borrowed"] if lent else []
    if attempt.stop_cause and not attempt.ended_at:
        parts.append(f"told to stop: {plain(attempt.stop_cause)}")
    if attempt.wanted_by == job:
        gain = attempt.gain
        parts.append(LEFT[gain.why] if gain is not None and tells_why(gain) else MOVED)
    elif attempt.wanted_by is not None:
        parts.append(f"its place went to job {attempt.wanted_by}")
    return f"  ({'; '.join(parts)})" if parts else ""


def _times(attempt: AttemptView, now: int) -> str:
    there = there_words(attempt, len({task.node for task in attempt.tasks}))
    parts = [f"placed {show_age(attempt.placed_at, now)} ago{there}"]
    if attempt.started_at:
        parts.append(f"up after {show_millis(attempt.started_at - attempt.placed_at)}")
        parts.append(f"ran {show_millis(attempt.ran_ms)}")
    if attempt.lost_ms >= SECOND:
        parts.append(f"{show_span(attempt.lost_ms)} of work lost")
    return ", ".join(parts)


def _tasks(tasks: Sequence[TaskView], now: int) -> list[str]:
    columns, rows = list(TASK_COLUMNS), [_task(task, now) for task in tasks[:MOST_TASKS]]
    if any(task.exit is not None and task.exit.usage.gpu for task in tasks):
        columns += GPU_COLUMNS
        rows = [[*row, *_gpu(task)] for row, task in zip(rows, tasks, strict=False)]
    if any(task.engine_job for task in tasks):
        columns.append(ENGINE_JOB)
        rows = [
            [*row, task.engine_job or NOTHING_THERE]
            for row, task in zip(rows, tasks, strict=False)
        ]
    lines = aligned([[column.header for column in columns], *rows], columns)
    if len(tasks) > MOST_TASKS:
        lines.append(f"… and {len(tasks) - MOST_TASKS} more; --json lists them all")
    return lines


def _task(task: TaskView, now: int) -> list[str]:
    ran = (task.ended_at or now) - task.started_at if task.started_at else -1
    used = task.exit.usage if task.exit else Usage()
    cpu = used.cpu_user_ms + used.cpu_system_ms
    return [
        task.name,
        plain(task.state),
        task.node,
        ",".join(str(device) for device in task.devices) or NOTHING_THERE,
        show_span(ran),
        exit_word(task.exit),
        show_millis(cpu) if cpu else NOTHING_THERE,
        show_bytes(used.max_rss) if used.max_rss else NOTHING_THERE,
    ]


def _gpu(task: TaskView) -> list[str]:
    """Return the highest use seen of all its devices together: `170%`, `61.2GiB`."""
    gpu = task.exit.usage.gpu if task.exit is not None else None
    if gpu is None:
        return [NOTHING_THERE, NOTHING_THERE]
    return [f"{gpu.busy_milli / 10:.0f}%", show_bytes(gpu.memory)]


def exit_word(ended: Exit | None) -> str:
    """Return how a process ended: `0`, `1`, `SIGKILL`, `out of memory`, `lost`."""
    if ended is None:
        return NOTHING_THERE
    named = [
        word
        for held, word in (
            (ended.oom, "out of memory"),
            (ended.pids_limit_hit, "too many processes"),
            (ended.disk_limit_hit, "disk limit"),
            (bool(ended.platform_error), "not run"),
            (ended.lost, "lost"),
        )
        if held
    ]
    if named:
        return named[0]
    if ended.signal is not None:
        return signal_name(ended.signal)
    return NOTHING_THERE if ended.code is None else str(ended.code)


def signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def phase_lines(tasks: Sequence[TaskView]) -> list[str]:
    """Write how long each phase of starting took, the slowest task of each."""
    slowest: dict[str, tuple[int, str]] = {}
    for task in tasks:
        for phase in task.phases:
            slowest[phase.name] = max(slowest.get(phase.name, (-1, "")), (phase.ms, task.name))
    if not slowest:
        return []
    several = len(tasks) > 1
    parts = [
        f"{name} {show_millis(ms)}" + (f" ({task})" if several and ms else "")
        for name, (ms, task) in slowest.items()
    ]
    return ["starting: " + ", ".join(parts)]


def _first_diagnosis(tasks: Sequence[TaskView]) -> Diagnosis | None:
    ended = sorted(
        (task for task in tasks if task.diagnosis is not None), key=lambda task: task.ended_at
    )
    return ended[0].diagnosis if ended else None


def diagnosis_lines(found: Diagnosis, job: int) -> list[str]:
    """Return a finding as lines: cause, responsible side, evidence, advice."""
    lines = [f"  {paint('cause', 'dim')}    {harmless(found.cause)} [{found.code}]"]
    lines.append(f"  {paint('owner', 'dim')}    {found.owner}")
    if found.evidence:
        lines.append(f"  {paint('seen', 'dim')}     {harmless(found.evidence.strip())}")
    if found.advice:
        lines.append(f"  {paint('advice', 'dim')}   {advice_for(found, job)}")
    return lines


def advice_for(found: Diagnosis, job: int) -> str:
    """Return the advice with the job's own id where it says JOB."""
    return re.sub(r"\bJOB\b", str(job), harmless(found.advice))


__all__ = ["Phase", "attempt_lines", "diagnosis_lines", "exit_word", "phase_lines"]
