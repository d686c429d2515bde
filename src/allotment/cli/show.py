"""`allot show`: everything about one job."""

import time
from datetime import datetime
from typing import Annotated, cast

import typer

from allotment.cli.job_json import as_object
from allotment.cli.options import AsJson, OptionalJob, State
from allotment.cli.output import paint, say, say_json
from allotment.cli.show_attempts import attempt_lines, diagnosis_lines, held_up_lines
from allotment.cli.why import reason_lines
from allotment.cli.words import (
    STATE_STYLES,
    borrows,
    count,
    harmless,
    not_heard,
    pairs,
    plain,
    show_age,
    show_span,
)
from allotment.client import Client
from allotment.model.lifecycle import JobState
from allotment.model.quantity import SECOND, show_milli, show_millis, show_resources
from allotment.service.views import CheckpointView, JobView, ProgressView, RunView

PRIVATE = "only its owner and the administrator may see what it runs and writes"
SHORT = 12
"""Digits of a digest."""
MOST_RUNS = 5
"""Runs in MLflow that are shown; `--json` has them all."""
WIDEST_COMMAND = 300
"""A longer command is cut; `--json` has it whole."""


def show(
    job: OptionalJob = "",
    key: Annotated[
        str,
        typer.Option("--key", metavar="TEXT", help="The job of the submission with this key."),
    ] = "",
    state: State = "",
    as_json: AsJson = False,
) -> None:
    """Show a job: its attempts, tasks, phases of starting, how it ended and what to do.

    With --key, if the answer to a submission was lost or uncertain: whether it was accepted.

    Examples:
      allot show 12
      allot show last --json
      allot show --key nightly-2026-11-21
    """
    if bool(job) == bool(key):
        raise typer.BadParameter("name one: a job, or --key with the key of a submission")
    with Client(state=state) as client:
        found = client.job(client.submission(key).id if key else job)
    if as_json:
        say_json(as_object(found))
        return
    for line in job_lines(found, int(time.time() * 1000)):
        say(line)


def job_lines(job: JobView, now: int) -> list[str]:
    """Write the whole page."""
    lines = [_title(job), *_summary(job, now)]
    lines += [_fact("warning", paint(harmless(word), "yellow")) for word in job.warnings]
    if job.why is not None:
        lines += [
            "",
            paint(f"Waits: {plain(job.why.reason)}", "bold"),
            *reason_lines(job.why, now),
        ]
    finally_told = job.diagnosis if job.state.finished else None
    for attempt in job.attempts:
        told = finally_told if attempt is job.attempts[-1] else None
        lines += ["", *attempt_lines(attempt, job.id, now, told)]
    lines += _kept(job, now)
    if job.progress is not None:
        lines += ["", *progress_lines(job.progress, now)]
    if job.checkpoint is not None:
        lines += ["", *_checkpoint(job.checkpoint, now)]
    if job.diagnosis is not None and job.state.finished:
        title = paint(f"Why it {plain(job.state)}", "bold")
        lines += ["", title, *diagnosis_lines(job.diagnosis, job.id)]
    return [*lines, "", *_next(job)]


def _title(job: JobView) -> str:
    word = plain(job.state) + ("?" if job.row.unheard else "")
    return (
        f"{paint(f'Job {job.id}', 'bold')}  {job.row.name}  "
        f"{paint(word, STATE_STYLES[job.state])}" + ("  (archived)" if job.archived else "")
    )


def _fact(name: str, text: str) -> str:
    return f"  {paint(name.ljust(10), 'dim')} {text}"


def _saved(job: JobView) -> list[str]:
    """Write what became of outputs and checkpoints that were to be versions of datasets."""
    lines: list[str] = []
    if job.saved or job.unsaved:
        lines.append(_fact("saved", job.saved or f"no: {harmless(job.unsaved)}"))
    elif job.state is JobState.SUCCEEDED and not job.private and job.spec.get("save"):
        lines.append(_fact("saved", f"not yet: its outputs go to {job.spec['save']}"))
    if job.kept or job.unkept:
        but = f"the newest checkpoint not: {harmless(job.unkept)}" if job.unkept else ""
        lines.append(_fact("kept", "; ".join(filter(None, (job.kept, but)))))
    return lines


def _summary(job: JobView, now: int) -> list[str]:
    row = job.row
    weight = f", weight {row.weight}" if row.weight > 1 else ""
    lines = [
        _fact("tenant", f"{row.tenant}, queue {row.queue}, priority {row.priority}{weight}"),
        _fact("user", row.user),
        _fact("asks for", f"{count(row.tasks, 'task')}: {show_resources(row.total)}"),
        _fact("times", _times(job, now)),
    ]
    if row.unheard:
        words = f"{not_heard(row.unheard)}; running tasks continue"
        lines.append(_fact("unknown", paint(words, "yellow")))
    lines += [_fact("waits", paint(words, "yellow")) for words in held_up_lines(job)]
    if row.borrowed:
        until = "until another tenant reclaims it"
        lines.append(_fact("borrows", f"{borrows(row.borrowed).partition(' ')[2]}: {until}"))
    if row.array is not None:
        values = harmless(pairs(row.array.params))
        place = f"number {row.array.index} of array {row.array.id}"
        lines.append(_fact("array", place + (f": {values}" if values else "")))
    if job.lost:
        lines.append(_fact("stopped", f"by its sweep: only {job.lost}"))
    if row.labels:
        lines.append(_fact("labels", pairs(row.labels)))
    if job.note:
        who = f" ({job.noted_by}, {show_age(job.noted_at, now)} ago)"
        lines.append(_fact("note", harmless(job.note).replace("\n", " ⏎ ") + who))
    if job.private:
        lines.append(_fact("private", PRIVATE))
    else:
        lines += [_fact("command", text) for text in commands(job)]
    lines += _world(job)
    if job.evictions or job.used_retries or job.platform_retries or job.lost_ms >= SECOND:
        lines.append(_fact("setbacks", _setbacks(job)))
    lines += [_fact("mlflow", _run(run)) for run in job.runs[:MOST_RUNS]]
    if job.attempts and job.output_dir:
        lines.append(_fact("outputs", job.output_dir))
    return lines + _saved(job)


def _run(run: RunView) -> str:
    """Write a run in MLflow: its page, and what of it is not as usual."""
    return f"{harmless(run.url)} (attempt {run.attempt}, {plain(run.status.lower())})"


def _times(job: JobView, now: int) -> str:
    row = job.row
    parts = [f"submitted {show_age(row.submitted_at, now)} ago"]
    if row.started_at:
        parts.append(f"waited {show_millis(row.started_at - row.submitted_at)}")
        parts.append(f"ran {show_millis(row.ran_ms)}")
    elif not row.state.finished:
        parts.append(f"waiting for {show_age(row.submitted_at, now)}")
    if row.finished_at:
        parts.append(f"ended {show_age(row.finished_at, now)} ago")
    return ", ".join(parts)


def _setbacks(job: JobView) -> str:
    parts: list[str] = []
    if job.evictions:
        parts.append(count(job.evictions, "eviction"))
    if job.used_retries:
        parts.append("1 retry" if job.used_retries == 1 else f"{job.used_retries} retries")
    if job.platform_retries:
        parts.append(f"{job.platform_retries} more for faults of the platform")
    if job.lost_ms >= SECOND:
        parts.append(f"{show_span(job.lost_ms)} of work lost")
    return ", ".join(parts)


def commands(job: JobView) -> list[str]:
    """Write the command of each role: `worker ×4: python train.py`."""
    roles = cast("dict[str, dict[str, object]]", job.spec.get("roles") or {})
    lines: list[str] = []
    for name, role in roles.items():
        command = role.get("command", "")
        if isinstance(command, list):
            import shlex  # noqa: PLC0415 - only where a command is shown

            command = shlex.join(str(word) for word in cast("list[object]", command))
        number = role.get("count", 1)
        text = harmless(str(command)).replace("\n", " ⏎ ")
        if len(text) > WIDEST_COMMAND:
            text = text[:WIDEST_COMMAND] + "…"
        label = "" if len(roles) == 1 and number == 1 else f"{name} ×{number}: "
        lines.append(label + text)
    return lines


def _world(job: JobView) -> list[str]:
    """Write what a job brings along."""
    told = {
        "code": code_words(job),
        "packages": packages_words(job),
        "data": data_words(job),
        "image": str(job.spec.get("image") or ""),
    }
    return [_fact(name, words) for name, words in told.items() if words]


def packages_words(job: JobView) -> str:
    """Write which packages a job asked for; '' where it asked for none."""
    asked = job.spec.get("environment")
    if not isinstance(asked, dict):
        return ""
    told = cast("dict[str, object]", asked)
    lines = cast("list[str]", told.get("requirements") or [])
    words = ", ".join(lines) if len(lines) <= SHORT else f"{len(lines)} requirements"
    if told.get("lock"):
        words = f"locked, {words}"
    return harmless(f"Python {told.get('python', '')}: {words} ({told.get('key', '')})")


def data_words(job: JobView) -> str:
    """Write which data a job uses, with versions, and where it finds them."""
    data = job.spec.get("data")
    if not isinstance(data, dict):
        return harmless(str(data or ""))
    parts: list[str] = []
    for name, given in cast("dict[str, object]", data).items():
        told = cast("dict[str, object]", given) if isinstance(given, dict) else {"at": given}
        rights = " (writes too)" if told.get("write") else ""
        parts.append(f"{name} at {told.get('at', '')}{rights}")
    return harmless(", ".join(parts))


def code_words(job: JobView) -> str:
    """Write which code a job took along; '' where it took none."""
    code = job.spec.get("code")
    if not isinstance(code, dict):
        return ""
    told = cast("dict[str, object]", code)
    text = f"{str(told.get('bundle', ''))[:SHORT]} of {harmless(str(told.get('take', '')))}"
    if commit := told.get("commit"):
        branch = f" ({harmless(str(told['branch']))})" if told.get("branch") else ""
        text += f", commit {harmless(str(commit))[:SHORT]}{branch}"
        changed = told.get("changed", 0)
        text += f" with {count(int(str(changed)), 'changed file')}" if changed else ""
    return text + (f": allot code diff {job.id}" if told.get("difference") else "")


def _kept(job: JobView, now: int) -> list[str]:
    """Return words that failed tasks are kept, and their job's place with them, until when."""
    tasks = job.attempts[-1].tasks if job.attempts else ()
    kept = [task for task in tasks if task.held_until]
    if not kept:
        return []
    until = max(task.held_until for task in kept)
    at = datetime.fromtimestamp(until / SECOND).astimezone()
    named = kept[0].name
    return [
        "",
        f"{paint('Kept for a look', 'bold')}  {', '.join(task.name for task in kept)} failed; "
        "the job keeps its place",
        f"  until {at:%m-%d %H:%M:%S}, that is for {show_span(max(0, until - now))}, "
        "unless it is cancelled",
        f"  look inside: allot exec {job.id} --task {named}    end it: allot cancel {job.id}",
    ]


def progress_lines(told: ProgressView, now: int) -> list[str]:
    """Return as lines what a job reported of its progress."""
    of = f" of {told.total}" if told.total else ""
    done = min(1000, told.step * 1000 // told.total) if told.total else 0
    parts = [f"step {told.step}{of}" + (f" ({done // 10} %)" if done else "")]
    if told.steps_per_hour is not None:
        parts.append(f"{told.steps_per_hour:,} steps an hour")
    if told.left_ms is not None:
        parts.append(f"{show_span(told.left_ms)} left")
    parts.append(f"{show_age(told.at, now)} ago")
    lines = [f"{paint('Progress', 'bold')}  {', '.join(parts)}"]
    if told.metrics:
        named = [f"{name} {value:.6g}" for name, value in told.metrics.items()]
        lines.append(f"  {harmless(', '.join(named))}")
    return lines


def _checkpoint(checkpoint: CheckpointView, now: int) -> list[str]:
    done = (
        f", {show_milli(checkpoint.progress_milli * 100)} % done"
        if checkpoint.progress_milli
        else ""
    )
    head = paint("Checkpoint", "bold")
    return [
        f"{head}  step {checkpoint.step}{done}, {show_age(checkpoint.at, now)} ago, "
        f"by attempt {checkpoint.attempt}",
        *([f"  {checkpoint.path}"] if checkpoint.path else []),
    ]


def _next(job: JobView) -> list[str]:
    """Return what one may want to do now."""
    if job.private:
        return [f"allot why {job.id}    allot events {job.id}"]
    if not job.attempts:
        return [f"allot why {job.id}" if job.why else f"allot events {job.id}"]
    if job.state.finished:
        return [f"allot logs {job.id}    allot outputs {job.id}    allot clone {job.id}"]
    return [f"allot logs -f {job.id}    allot cancel {job.id}"]
