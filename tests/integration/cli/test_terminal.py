"""What jobs print and are called, on a terminal of somebody else: it steers nothing."""

import os
import pty
import select
import subprocess
import sys
from pathlib import Path

import pytest

from allotment.cli.steering import Shown, words_shown
from allotment.model.diagnosis import Diagnosis, Owner, RetryClass
from allotment.model.lifecycle import JobState
from tests.integration.cli.canned import (
    Answer,
    Service,
    a_job,
    a_row,
    a_task,
    an_attempt,
    an_event,
    json,
    stream,
)
from tests.support.patience import PATIENCE_S

ALLOT = (sys.executable, "-m", "allotment.cli")
WINDOW = "\x1b]0;owned\x07"
"""Renames the window."""
ANSWER = '\x1b[6n\x9b5n\x1bP$q"p\x1b\\'
"""Makes a terminal answer, as if its user typed."""
UP = "\x1b[2A\x1b[2K\rjob 1 succeeded"
"""Writes over what was said before."""
BACK = "\u202etxt.exe"
HOSTILE = WINDOW + ANSWER + UP + BACK
RED = "\x1b[1;31mred\x1b[0m"


def on_terminal(state: Path, *words: str) -> bytes:
    """Run `allot` with a terminal; give all that it sent there."""
    ours, theirs = pty.openpty()
    env = {**os.environ, "ALLOT_STATE": str(state), "TERM": "xterm", "COLUMNS": "80"}
    with subprocess.Popen(
        [*ALLOT, *words], stdin=theirs, stdout=theirs, stderr=theirs, env=env
    ):
        os.close(theirs)
        seen = b""
        while select.select([ours], [], [], PATIENCE_S)[0]:
            try:
                data = os.read(ours, 1 << 16)
            except OSError:
                break
            seen += data
    os.close(ours)
    return seen


def steers(seen: bytes) -> bool:
    """Whether anything but text, ends of lines and colours got through."""
    text = seen.decode()
    return words_shown(text.replace("\r\n", "\n").replace("\r", "")) != text.replace(
        "\r\n", "\n"
    ).replace("\r", "")


def logs(service: Service, text: str) -> None:
    service.routes["GET /v1/jobs/last"] = json(a_job())
    service.routes["GET /v1/jobs/12"] = json(a_job())
    service.routes["GET /v1/jobs/12/logs"] = [
        Answer(text.encode(), 200, "text/plain"),
        Answer(b"", 200, "text/plain"),
    ]


def test_output_of_a_job_does_not_steer_a_terminal(state: Path, service: Service) -> None:
    logs(service, f"before\n{HOSTILE}\n{RED}\r50 %\n")
    seen = on_terminal(state, "logs", "last")
    assert not steers(seen)
    assert b"\\x1b]0;owned\\x07" in seen
    assert b"\\u009b5n" in seen
    assert b"\\u202etxt.exe" in seen
    assert RED.encode() in seen
    assert b"\r50 %" in seen


def test_output_asked_for_raw_is_passed_on(state: Path, service: Service) -> None:
    logs(service, f"{HOSTILE}\n")
    seen = on_terminal(state, "logs", "last", "--raw")
    assert HOSTILE.encode() in seen


def test_where_no_terminal_is_output_is_unchanged(state: Path, service: Service) -> None:
    logs(service, f"{HOSTILE}\n")
    env = {**os.environ, "ALLOT_STATE": str(state)}
    ran = subprocess.run([*ALLOT, "logs", "last"], env=env, capture_output=True, check=True)
    assert ran.stdout == f"{HOSTILE}\n".encode()


def test_a_line_of_one_task_cannot_pass_for_anothers(state: Path, service: Service) -> None:
    logs(service, "me\rworker.1| I failed\n")
    two = a_job(attempts=(an_attempt(1, a_task(0), a_task(1)),))
    service.routes["GET /v1/jobs/last"] = service.routes["GET /v1/jobs/12"] = json(two)
    seen = on_terminal(state, "logs", "last", "--task", "")
    assert b"\rworker.1| I" not in seen.replace(b"\r\n", b"\n")


def test_words_of_jobs_and_people_do_not_steer_a_terminal(
    state: Path, service: Service
) -> None:
    found = Diagnosis(
        "error", f"bad{HOSTILE}", Owner.USER, RetryClass.UNKNOWN, HOSTILE, evidence=HOSTILE
    )
    row = a_row(state=JobState.FAILED, name=f"n{HOSTILE}", user=f"u{WINDOW}", reason=HOSTILE)
    job = a_job(
        row, diagnosis=found, warnings=(HOSTILE,), output_dir=f"/out/{HOSTILE}",
        spec={"roles": {"worker": {"count": 1, "command": HOSTILE}}, "image": HOSTILE},
    )  # fmt: skip
    event = an_event(7, text=f"drained: {HOSTILE}")
    service.routes["GET /v1/jobs"] = json({"items": [row], "next": None})
    service.routes["GET /v1/jobs/12"] = json(job)
    service.routes["GET /v1/jobs/12/wait"] = json(job)
    service.routes["GET /v1/jobs/12/events"] = [json([event]), stream(("", "end", {}))]
    for words in (("ps",), ("show", "12"), ("events", "12"), ("wait", "12")):
        seen = on_terminal(state, *words)
        assert b"owned" in seen, words
        assert not steers(seen), (words, seen)


# ── piece by piece ──────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("cut", range(len(HOSTILE + RED) + 1))
def test_where_output_is_cut_into_pieces_makes_no_difference(cut: int) -> None:
    text = RED + HOSTILE
    whole, parts = Shown(), Shown()
    expected = whole.take(text) + whole.rest()
    assert parts.take(text[:cut]) + parts.take(text[cut:]) + parts.rest() == expected
    assert RED in expected


def test_what_may_become_a_colour_is_not_waited_for_without_end() -> None:
    shown = Shown()
    assert shown.take("\x1b[" + "1;" * 5) == ""
    assert shown.rest() == "\\x1b[" + "1;" * 5
    long = "\x1b[" + "1" * 100
    assert shown.take(long) == "\\x1b[" + "1" * 100


def test_plain_text_of_every_script_is_left_alone() -> None:
    text = "loss\t0,3 — größer, 損失 🙂\n" + "\u200d".join("👩🚀")
    assert words_shown(text) == text
