"""The exit code a finished job stands for."""

import io
from contextlib import redirect_stdout

import msgspec

from allotment.cli.logprint import LogPrinter
from allotment.cli.outcome import ending, exit_code
from allotment.client import LogLine
from allotment.model.diagnosis import Exit
from allotment.model.lifecycle import JobState, TaskState
from allotment.service.views import JobView
from tests.integration.cli.canned import THEN, a_failed_job, a_job, a_row, a_task, an_attempt


def failed(*exits: tuple[int, Exit]) -> JobView:
    tasks = [
        a_task(at, state=TaskState.ENDED, exit=ended, ended_at=THEN + when)
        for at, (when, ended) in enumerate(exits)
    ]
    return a_job(a_row(state=JobState.FAILED), attempts=(an_attempt(1, *tasks),))


def test_the_task_that_failed_first_decides() -> None:
    first = failed((9, Exit(signal=15)), (5, Exit(code=4)), (1, Exit(code=0)))
    assert exit_code(first) == 4


def test_a_task_without_an_exit_code_counts_as_1() -> None:
    assert exit_code(failed((1, Exit(lost=True)))) == 1
    assert exit_code(failed((1, Exit(code=0, platform_error="no mounts")))) == 1


def test_a_job_that_never_ran_counts_as_1() -> None:
    assert exit_code(a_job(a_row(state=JobState.FAILED), attempts=())) == 1


def test_only_the_last_attempt_counts() -> None:
    job = failed((1, Exit(code=3)))
    before = an_attempt(1, a_task(state=TaskState.ENDED, exit=Exit(code=9), ended_at=THEN))
    job = msgspec.structs.replace(job, attempts=(before, *job.attempts))
    assert exit_code(job) == 3


def test_the_ending_tells_of_outputs_that_become_a_version() -> None:
    spec: dict[str, object] = {"command": "true", "save": "vision/results"}
    job = msgspec.structs.replace(a_job(a_row(state=JobState.SUCCEEDED)), spec=spec)
    assert ending(job)[1:] == [
        "its outputs become a version of vision/results now: allot show 12"
    ]
    job = msgspec.structs.replace(job, saved="vision/results@3")
    assert ending(job)[1:] == ["saved vision/results@3"]
    job = msgspec.structs.replace(job, saved="", unsaved="There is no room.")
    assert ending(job)[1:] == ["its outputs are not saved: There is no room."]
    job = msgspec.structs.replace(job, spec={"command": "true"}, unsaved="")
    assert len(ending(job)) == 1


def test_the_ending_names_the_cause_and_where_to_read_on() -> None:
    head, *_, last = ending(a_failed_job(Exit(code=1)))
    assert head == "job 12 (train) failed after 1 min 0 s: The program reported an error."
    assert last == "More: allot show 12"


def test_a_line_in_pieces_is_printed_once_it_is_complete() -> None:
    with redirect_stdout(io.StringIO()) as out:
        printer = LogPrinter(("ps.0", "worker.10"))
        for task, text in (
            ("ps.0", "a"),
            ("worker.10", "x\ny"),
            ("ps.0", "b\r\n"),
            ("ps.0", ""),
        ):
            printer.write(LogLine(task, "stdout", text))
        assert out.getvalue() == "worker.10| x\nps.0     | ab\r\n"
        printer.finish()
    assert out.getvalue().endswith("worker.10| y\n")
