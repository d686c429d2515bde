"""Every verb against a canned service: what is sent, printed and returned."""

import json as json_module
import os
import re
import subprocess
import sys
import time
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec
import pytest

from allotment.cli import doctor_checks
from allotment.metrics.reasons import LifePhase, Stretch
from allotment.model.cluster import NodeState
from allotment.model.diagnosis import Diagnosis, Exit, GpuUse, Owner, RetryClass, Usage
from allotment.model.events import Outcome, Phase
from allotment.model.ids import JobId
from allotment.model.ledger import Entitlement
from allotment.model.lifecycle import AttemptState, JobState, TaskState
from allotment.model.quantity import DAY, GIB, HOUR, Instant, Millis, Resources
from allotment.model.reasons import Blocked, Holder, Reason
from allotment.service import views as v
from allotment.service.content.manifest import FileEntry
from allotment.service.data.view import DataFiles, DataVersionView
from allotment.service.reservation_view import ReservationView
from allotment.service.selector import Chosen, Steered, Verb
from allotment.service.wait_view import WaitHistory, waited_for
from tests.integration.cli.canned import (
    THEN,
    Answer,
    Request,
    Service,
    a_failed_job,
    a_job,
    a_row,
    a_task,
    an_attempt,
    an_event,
    json,
    problem,
    stream,
)
from tests.support.invoke import Ran, allot

EMPTY = Answer(b"", 200, "text/plain")


@pytest.fixture(autouse=True)
def _here(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Point every verb to the canned service, whatever surrounds these tests."""
    monkeypatch.setenv("ALLOT_STATE", str(state))
    for name in ("ALLOT_URL", "ALLOT_TOKEN", "NO_COLOR", "COMP_WORDS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")


def sent(service: Service, method: str = "POST") -> Any:
    return json_module.loads(service.asked(method)[-1].body)


# ── exit codes and errors ───────────────────────────────────────────────────────────────


def test_no_service_is_exit_code_3_with_the_next_command() -> None:
    ran = allot("ps")
    assert (ran.code, ran.out) == (3, "")
    assert "error: No Allotment service answers at" in ran.err
    assert " next: Start one with `allot up`" in ran.err


def test_a_refusal_is_exit_code_1_with_what_why_and_next(service: Service) -> None:
    service.routes["GET /v1/jobs/x"] = problem(
        404, "no_such_job", "There is no job x.", "See ps."
    )
    ran = allot("show", "x")
    assert (ran.code, ran.out) == (1, "")
    assert ran.err == "error: There is no job x.\n next: See ps.\n"


def test_with_json_a_refusal_is_an_object_on_stderr(service: Service) -> None:
    service.routes["GET /v1/jobs/x"] = problem(
        404, "no_such_job", "There is no job x.", "See ps."
    )
    ran = allot("show", "x", "--json")
    error = json_module.loads(ran.err)["error"]
    assert (error["code"], error["hint"]) == ("no_such_job", "See ps.")


@pytest.mark.parametrize(
    "words", [("nosuch",), ("show",), ("ps", "--nosuch"), ("ps", "--limit", "x")]
)
def test_a_wrong_call_is_exit_code_2(words: tuple[str, ...]) -> None:
    ran = allot(*words)
    assert (ran.code, ran.out) == (2, "")
    assert "Error:" in ran.err


def test_a_misspelt_verb_is_recognised() -> None:
    assert "Did you mean 'submit'" in allot("sumbit").err


# ── help ────────────────────────────────────────────────────────────────────────────────


def test_help_lists_every_verb_with_its_heading() -> None:
    ran = allot("--help")
    assert ran.code == 0
    for word in ("Jobs:", "The cluster:", "The service:", "  doctor ", "  outputs ", "  demo "):
        assert word in ran.out
    assert ran == allot() == allot("-h")


VERBS = re.findall(r"^  (?!allot)(\S+)", allot("--help").out, re.MULTILINE)
GROUPS = {"code", "config", "data", "env", "image", "kubernetes", "sim", "sweep"}
"""Verbs of verbs: each of theirs has its own examples."""


@pytest.mark.parametrize("verb", VERBS)
def test_each_verb_has_a_summary_and_examples(verb: str) -> None:
    ran = allot(verb, "--help")
    assert ran.code == 0
    assert ran.out.startswith(f"Usage: allot {verb} ")
    assert verb in GROUPS or "Examples:\n    allot" in ran.out
    assert max(len(line) for line in ran.out.splitlines()) <= 80


# ── ps ──────────────────────────────────────────────────────────────────────────────────

ROWS = [
    a_row(14, JobState.QUEUED, name="eval", started_at=0, ran_ms=0, nodes=(), entitlement=None,
          reason="waiting_for_victims", total=Resources(2000, 4000, GIB)),
    a_row(13, name="a-very-long-name-of-a-training-job", entitlement=Entitlement.OPPORTUNISTIC,
          nodes=("n1", "n2"), borrowed=("gpu", "cpu")),
    a_row(12, JobState.FAILED, reason="out_of_memory", total=Resources(0, 500)),
]  # fmt: skip


def test_ps_prints_a_table_without_cutting_when_nobody_looks(service: Service) -> None:
    service.routes["GET /v1/jobs"] = json({"items": ROWS, "next": None})
    header, queued, lent, failed = allot("ps").out.splitlines()
    assert header.split() == [
        "ID", "NAME", "TENANT", "USER", "STATE", "GPU", "AGE", "RAN", "NODE", "WHY",
    ]  # fmt: skip
    assert queued.endswith("waiting for victims")
    assert "a-very-long-name-of-a-training-job" in lent
    assert lent.endswith("n1 +1  borrows GPU, CPU")
    assert failed.split()[4:6] == ["failed", "-"]
    assert failed.endswith("out of memory")


def test_ps_json_has_the_same_columns(service: Service) -> None:
    service.routes["GET /v1/jobs"] = json({"items": ROWS, "next": None})
    rows = json_module.loads(allot("ps", "--json").out)
    assert [row["id"] for row in rows] == [14, 13, 12]
    assert rows[0]["reason"] == "waiting_for_victims"


def test_ps_asks_for_what_was_asked(service: Service) -> None:
    service.routes["GET /v1/jobs"] = json({"items": [], "next": None})
    ran = allot("ps", "--in", "Timed-Out", "--tenant", "vision", "--name", "t*", "--limit", 7)
    assert ran.code == 0
    assert service.requests[0].path == (
        "/v1/jobs?tenant=vision&pattern=t%2A&state=timed_out&finished=true&arrays=true&limit=7"
    )
    allot("ps", "8[failed]", "--mine")
    assert service.requests[1].path == "/v1/jobs?ref=8%5Bfailed%5D&mine=true&limit=100"
    assert "There is no state lost" in allot("ps", "--state", "lost").err


@pytest.mark.parametrize("width", [40, 60, 79, 120])
def test_ps_fits_the_screen(
    service: Service, monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("NO_COLOR", "1")
    service.routes["GET /v1/jobs"] = json({"items": ROWS, "next": None})
    lines = allot("ps", terminal=True).out.splitlines()
    assert len(lines) == 4
    assert all(len(line) <= width for line in lines)
    assert {"ID", "NAME", "STATE", "WHY"} <= set(lines[0].split())
    assert "queued" in lines[1]


# ── show and why ────────────────────────────────────────────────────────────────────────

BLOCKED = Blocked(
    Reason.WAITING_FOR_VICTIMS,
    "Its place is reserved; job 9 is on its way out.",
    need=Resources(4000, 8000, 16 * GIB),
    free=Resources(1000, 32_000, 64 * GIB),
    holders=(
        Holder(
            JobId(9), "sweep", "nlp", "bob", Entitlement.OPPORTUNISTIC, Resources(3000, 3000)
        ),
    ),
    position=2,
    ahead=JobId(11),
    until=Instant(THEN),
    hint="To go first: `allot edit 12 --set priority=high`.",
)
WAITING = a_job(a_row(state=JobState.QUEUED, started_at=0, ran_ms=0), attempts=(), why=BLOCKED)
EVICTED = an_attempt(
    1,
    a_task(state=TaskState.ENDED, ended_at=THEN + 9000, exit=Exit(signal=15)),
    state=AttemptState.ENDED, outcome=Outcome.EVICTED, ended_at=THEN + 9000, ran_ms=7000,
    entitlement=Entitlement.OPPORTUNISTIC, wanted_by=JobId(20), lost_ms=3000,
)  # fmt: skip
PHASES = (
    Phase("image", Instant(THEN), Millis(2)), Phase("launch", Instant(THEN), Millis(7))
)  # fmt: skip
FAILED = an_attempt(
    2,
    a_task(
        0, state=TaskState.ENDED, ended_at=THEN + 20_000,
        exit=Exit(code=1, usage=Usage(max_rss=GIB, gpu=GpuUse(1700, 61 * GIB))),
        phases=PHASES,
        diagnosis=Diagnosis(
            "import_error", "A Python package is missing or broken.", Owner.USER,
            RetryClass.NEVER, "Install it where the task runs.",
            "ModuleNotFoundError: No module named 'dee\x1b[31mp'",
        ),
    ),
    a_task(1, state=TaskState.ENDED, ended_at=THEN + 21_000, exit=Exit(signal=9, oom=True)),
    state=AttemptState.ENDED, outcome=Outcome.FAILED, ended_at=THEN + 21_000,
)  # fmt: skip
OVER = a_job(
    a_row(state=JobState.FAILED, attempt=2, tasks=2),
    attempts=(EVICTED, FAILED),
    evictions=1,
    used_retries=1,
    lost_ms=3000,
    checkpoint=v.CheckpointView("/ckpt/12/step-600", THEN, 1, 600, 600),
    diagnosis=FAILED.tasks[0].diagnosis,
    warnings=("image: pytorch cannot be used yet",),
)


def test_show_tells_the_whole_story(service: Service) -> None:
    service.routes["GET /v1/jobs/12"] = json(OVER)
    out = allot("show", "12").out
    for words in (
        "Job 12  train  failed",
        "tenant     vision, queue default, priority 100",
        "asks for   2 tasks: 1 GPU, 1 CPU, 1 GiB memory",
        "command    python train.py",
        "warning    image: pytorch cannot be used yet",
        "setbacks   1 eviction, 1 retry, 3s of work lost",
        "Attempt 1  evicted  (borrowed; its place went to job 20)",
        "Attempt 2  failed",
        "SIGTERM",
        "out of memory",
        "GPU PEAK",
        "170%",
        "61 GiB",
        "starting: image 2 ms (worker.0), launch 7 ms (worker.0)",
        "Checkpoint  step 600, 60 % done",
        "cause    A Python package is missing or broken. [import_error]",
        "owner    user",
        "advice   Install it where the task runs.",
        "allot logs 12",
    ):
        assert words in out
    assert "\x1b" not in out, "a job's own words cannot steer the terminal"
    assert r"dee\x1b[31mp" in out


def test_show_json_has_id_and_state_at_the_top(service: Service) -> None:
    service.routes["GET /v1/jobs/12"] = json(OVER)
    shown = json_module.loads(allot("show", "12", "--json").out)
    assert (shown["id"], shown["state"]) == (12, "failed")
    assert shown["attempts"][1]["tasks"][0]["exit"]["code"] == 1
    assert "row" not in shown


def test_why_tells_reason_amounts_holders_and_place_in_line(service: Service) -> None:
    service.routes["GET /v1/jobs/12"] = json(WAITING)
    service.routes["GET /v1/jobs/12/waits"] = json(a_past(JobState.QUEUED))
    lines = allot("why", "12").out.splitlines()
    assert lines[0] == "Job 12 (train) waits: waiting for victims."
    table = "\n".join(lines)
    for words in (
        "          NEEDS    FREE",
        "  GPU         4       1  too little",
        "  MEMORY  16 GiB  64 GiB",
        "  9        sweep  nlp     bob   borrowed  3 GPU, 3 CPU",
        "It is number 2 in its queue, behind job 11.",
        "To go first: `allot edit 12 --set priority=high`.",
    ):
        assert " ".join(words.split()) in " ".join(table.split())


def test_why_of_a_running_job_says_so(service: Service) -> None:
    service.routes["GET /v1/jobs/12"] = json(a_job())
    service.routes["GET /v1/jobs/12/waits"] = json(a_past(JobState.RUNNING))
    assert "is not waiting: it is running" in allot("why", "12").out
    shown = json_module.loads(allot("why", "12", "--json").out)
    assert (shown["why"], shown["stretches"]) == (None, [])


def a_past(state: JobState, *stretches: Stretch) -> WaitHistory:
    sums = waited_for(stretches)
    return WaitHistory(JobId(12), "train", state, None, sum(sums.values()), sums, stretches)


def test_why_tells_the_past_too(service: Service) -> None:
    at = THEN
    life: list[Stretch] = []
    for ms, phase, reason, attempt, cause, merged in (
        (7_500_000, LifePhase.WAITING, Reason.HELD, 0, "", 0),
        (400, LifePhase.WAITING, None, 0, "", 0),
        (3_000, LifePhase.BARRIER, None, 1, "", 0),
        (60_000, LifePhase.RUNNING, None, 1, "", 0),
        (90_000, LifePhase.WAITING, Reason.WAITING_FOR_VICTIMS, 1, "evicted", 2),
        (5_000, LifePhase.SUSPENDED, Reason.RESUMING, 2, "", 0),
        (1_000, LifePhase.RUNNING, None, 2, "", 0),
    ):
        life.append(Stretch(Instant(at), ms, phase, reason, attempt, cause, merged))
        at += ms
    service.routes["GET /v1/jobs/12"] = json(OVER)
    service.routes["GET /v1/jobs/12/waits"] = json(a_past(JobState.FAILED, *life))
    lines = [line.strip() for line in allot("why", "12").out.splitlines()]
    past = lines[lines.index("") + 2 :]
    assert [line.split("  ", 1)[1].strip() for line in past[:7]] == [
        "2h5m  held",
        "0s  waiting",
        "3s  starting: waits for its other tasks",
        "1m  running",
        "1m30s  waiting for victims (queued again: evicted); 2 shorter in between",
        "5s  suspended: resuming",
        "1s  running, attempt 2",
    ]
    assert past[-1] == "It waited 2h6m in all: held 2h5m, waiting for victims 1m30s."
    service.routes["GET /v1/jobs/12/waits"] = json(a_past(JobState.FAILED, *life * 4))
    assert "… and 8 before that; --json lists them all." in allot("why", "12").out


# ── submit ──────────────────────────────────────────────────────────────────────────────

SUBMITTED = json(v.Submitted(JobId(12), (JobId(12),), "train", JobState.QUEUED), 201)


def test_submit_prints_the_id_and_json_an_object_with_it(
    service: Service, tmp_path: Path
) -> None:
    service.routes["POST /v1/jobs"] = SUBMITTED
    file = tmp_path / "job.yaml"
    file.write_text("name: train\ncommand: python train.py\n")
    ran = allot("submit", file)
    assert ran == Ran(0, "12\n", "job 12 (train) queued\n")
    assert json_module.loads(allot("submit", file, "--json").out)["id"] == 12


def test_submit_shows_what_is_wrong_with_its_line_and_sends_nothing(
    service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("good.yaml").write_text("name: good\ncommand: 'true'\n")
    Path("job.yaml").write_text(
        "name: train\nroles:\n  worker:\n    command: python train.py\n    resources:\n"
        "      cpu: 1\n      gpus: 1\n"
    )
    ran = allot("submit", "good.yaml", "job.yaml")
    assert ran.code == 1
    assert ran.err == (
        "job.yaml:7: roles.worker.resources.gpus: there is no key `gpus` here "
        "(did you mean `gpu`?)\n"
    )
    assert service.requests == []


def test_submit_takes_relative_paths_from_the_files_folder(
    service: Service, tmp_path: Path
) -> None:
    service.routes["POST /v1/jobs"] = SUBMITTED
    file = tmp_path / "job.yaml"
    file.write_text("name: a\ncommand: 'true'\ndata: sets/mnist\ncode: .\noutput: /out\n")
    assert allot("submit", file, "--set", "env.LR=0.1", "--set", "priority=high").code == 0
    body = sent(service)
    assert (body["data"], body["output"]) == (f"{tmp_path}/sets/mnist", "/out")
    assert body["code"] == str(tmp_path)
    assert (body["env"], body["priority"]) == ({"LR": "0.1"}, 500)


def test_submit_resolves_secrets_from_the_environment(
    service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    service.routes["POST /v1/jobs"] = SUBMITTED
    monkeypatch.setenv("TOKEN", "s3cret")
    file = tmp_path / "job.yaml"
    file.write_text("name: a\ncommand: 'true'\nsecrets: {HF: {from_env: TOKEN}}\n")
    ran = allot("submit", file)
    assert sent(service)["secrets"] == {"HF": "s3cret"}
    assert "s3cret" not in ran.out + ran.err


def test_submit_reads_standard_input_and_the_classic_form(service: Service) -> None:
    service.routes["POST /v1/jobs"] = SUBMITTED
    classic = b"""{jobName: "old", image: "x", taskRoles: [
        {name: "main", taskNumber: 2, cpuNumber: 1, memoryMB: 100, gpuNumber: 0,
         command: "true"},]}"""
    assert allot("submit", "-", "--form", "classic", "--held", stdin=classic).code == 0
    assert "held=true" in service.requests[-1].path
    body = service.asked("POST")[-1].body
    assert b"old" in body


def test_submit_keeps_an_array(service: Service, tmp_path: Path) -> None:
    service.routes["POST /v1/jobs"] = json(
        v.Submitted(JobId(12), (JobId(12), JobId(13)), "a", JobState.QUEUED), 201
    )
    file = tmp_path / "job.yaml"
    file.write_text("name: a\ncommand: 'true'\ncode: .\narray: {count: 2, max_running: 1}\n")
    ran = allot("submit", file)
    assert sent(service)["array"] == {"count": 2, "max_running": 1}
    assert ran.out == "12\n13\n"
    assert "an array of 2 jobs" in ran.err


def test_submit_of_a_file_that_is_not_there(service: Service) -> None:
    ran = allot("submit", "nosuch.yaml")
    assert ran.code == 1
    assert "nosuch.yaml cannot be read: no such file or directory." in ran.err


# ── following: run, submit -f, logs -f, wait ────────────────────────────────────────────


def follow_routes(service: Service, *jobs: v.JobView, log: Answer = EMPTY) -> None:
    """A job that is started, writes, and then is as the last of `jobs`."""
    service.routes["POST /v1/jobs"] = SUBMITTED
    service.routes["GET /v1/jobs/12"] = [json(job) for job in jobs]
    service.routes["GET /v1/jobs/12/why"] = json(None)
    service.routes["GET /v1/jobs/12/logs"] = log
    service.routes["GET /v1/jobs/12/events"] = stream(
        ("1", "event", an_event(1, "JobSubmitted", "submitted")),
        ("2", "event", an_event(2, "AttemptPlaced", "attempt 1 placed on n1", attempt=1)),
        ("3", "end", {"state": "succeeded"}),
    )


def piece(at: int, text: str, task: str = "worker.0", where: str = "stdout") -> Any:
    return (str(at), "log", {"task": task, "stream": where, "text": text})


END = ("", "end", {"state": "succeeded"})
DONE = a_job(a_row(state=JobState.SUCCEEDED))


def test_run_streams_output_and_returns_the_jobs_exit_code(service: Service) -> None:
    log = stream(piece(1, "hel"), piece(2, "lo\n"), piece(3, "oops\n", where="stderr"), END)
    follow_routes(service, a_failed_job(Exit(code=7)), log=log)
    ran = allot("run", "--", "python", "train.py")
    assert ran.code == 7
    assert ran.out == "hello\n"
    assert "oops\n" in ran.err
    assert "job 12 (train) failed after 60s: The program reported an error." not in ran.out
    assert "allot show 12" in ran.err


@pytest.mark.parametrize(
    ("job", "code"),
    [
        (DONE, 0),
        (a_failed_job(Exit(code=3)), 3),
        (a_failed_job(Exit(signal=9)), 137),
        (a_failed_job(Exit(platform_error="no image")), 1),
        (a_job(a_row(state=JobState.CANCELLED)), 1),
        (a_job(a_row(state=JobState.TIMED_OUT)), 1),
    ],
)
def test_wait_returns_the_jobs_exit_code(service: Service, job: v.JobView, code: int) -> None:
    service.routes["GET /v1/jobs/last"] = json(job)
    service.routes["GET /v1/jobs/12"] = json(job)
    assert allot("wait", "last").code == code


def test_wait_with_a_timeout_that_strikes_is_124(service: Service) -> None:
    service.routes["GET /v1/jobs/12"] = json(a_job())
    service.routes["GET /v1/jobs/12/events"] = stream()
    these = ((JobId(12), JobId(12)),)
    service.routes["POST /v1/jobs:choose"] = json(Chosen(1, {"running": 1}, these, these))
    ran = allot("wait", "12", "--timeout", "0.1")
    assert ran.code == 124
    assert "Job 12 has not finished within 0.1 s; it goes on." in ran.err


def test_run_writes_the_command_as_a_job(
    service: Service, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", "/venv/bin:/usr/bin")
    monkeypatch.setenv("LANG", "C.UTF-8")
    monkeypatch.setenv("SHELL", "/bin/zsh")
    monkeypatch.setenv("HF_HOME", "/hf")
    for name in ("VIRTUAL_ENV", "CONDA_PREFIX", "PYTHONPATH"):
        monkeypatch.delenv(name, raising=False)
    service.routes["POST /v1/jobs"] = SUBMITTED
    ran = allot(
        "run", "--gpus", "0.5", "--memory", "8GiB", "--tasks", 2, "--time", "4h", "-e", "A=1",
        "-e", "HF_HOME", "--output", "out", "--hold-on-failure", "--detach", "--",
        "python", "-m", "train", "--lr", "1",
    )  # fmt: skip
    assert (ran.code, ran.out) == (0, "12\n")
    assert sent(service) == {
        "name": "train",
        "command": ["python", "-m", "train", "--lr", "1"],
        "workdir": str(tmp_path),
        "env": {"PATH": "/venv/bin:/usr/bin", "LANG": "C.UTF-8", "A": "1", "HF_HOME": "/hf"},
        "count": 2,
        "resources": {"gpu": "0.5", "memory": "8GiB"},
        "max_run_time": "4h",
        "output": str(tmp_path / "out"),
        "hold_on_failure": True,
    }


def test_run_has_what_a_job_file_has(
    service: Service, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "corpus").mkdir()
    monkeypatch.setenv("TOKEN", "hunter22")
    service.routes["POST /v1/jobs"] = SUBMITTED
    ran = allot(
        "run", "-d", "--data", "corpus", "--retry", 2, "--priority", "500", "--secret", "TOKEN",
        "--checkpoint", "signal=USR1,grace=60s", "--", "true",
    )  # fmt: skip
    assert ran.code == 0, ran.err
    job = sent(service)
    assert job["data"] == str(tmp_path / "corpus")
    assert (job["retry"], job["priority"]) == (2, 500)
    assert job["secrets"] == {"TOKEN": "hunter22"}
    assert "TOKEN" not in job["env"]
    assert job["checkpoint"] == {"signal": "USR1", "grace": "60s"}


def test_what_run_refuses_is_told_of_its_options(service: Service) -> None:
    problems = [
        {"message": "the unit `g` could be taken in two ways", "path": "resources.memory",
         "line": 1, "hint": "write 8GiB"},
        {"message": "is reserved", "path": "env.ALLOT_X", "line": 1},
    ]  # fmt: skip
    body = {"detail": "line 1: …", "code": "bad_spec", "problems": problems}
    service.routes["POST /v1/jobs"] = Answer(
        msgspec.json.encode(body), 422, "application/problem+json"
    )
    ran = allot("run", "--memory", "8g", "--", "true")
    assert ran.code == 1
    assert ran.err == (
        "error: --memory: the unit `g` could be taken in two ways; --env ALLOT_X: is reserved\n"
        " next: write 8GiB\n"
    )


def test_run_with_an_image_of_no_name_runs_nothing_on_the_machine(service: Service) -> None:
    """As a script has it whose variable is not set."""
    ran = allot("run", "--image", "", "--", "true")
    assert (ran.code, service.requests) == (1, [])
    assert "--image is empty" in ran.err


@pytest.mark.parametrize("length", ["100ms", "0.1", "0.1s"])
def test_wait_takes_lengths_of_time_as_every_verb(service: Service, length: str) -> None:
    service.routes["GET /v1/jobs/12"] = json(a_job())
    service.routes["GET /v1/jobs/12/events"] = stream()
    these = ((JobId(12), JobId(12)),)
    service.routes["POST /v1/jobs:choose"] = json(Chosen(1, {"running": 1}, these, these))
    assert allot("wait", "12", "--timeout", length).code == 124


def test_wait_with_no_length_of_time_says_how_one_is_written(service: Service) -> None:
    ran = allot("wait", "12", "--timeout", "soon")
    assert ran.code == 1
    assert "--timeout: must be a length of time, not 'soon'" in ran.err
    assert "90s" in ran.err
    assert service.requests == []


def test_a_job_of_somebody_else_is_shown_without_what_is_private(service: Service) -> None:
    spec = {"roles": {"main": {"count": 1, "command": "***"}}}
    theirs = a_job(spec=spec, output_dir="", private=True)
    service.routes["GET /v1/jobs/12"] = json(theirs)
    out = allot("show", "12").out
    assert "only its owner and the administrator may see what it runs and writes" in out
    assert "command" not in out
    assert "allot logs" not in out


def test_run_with_a_variable_that_is_not_set(service: Service) -> None:
    ran = allot("run", "-e", "NO_SUCH_VARIABLE", "--", "true")
    assert ran.code == 1
    assert "--env NO_SUCH_VARIABLE=VALUE" in ran.err
    assert service.requests == []


def test_lines_of_several_tasks_begin_with_their_task(service: Service) -> None:
    two = a_job(
        a_row(state=JobState.SUCCEEDED), attempts=(an_attempt(1, a_task(0), a_task(1)),)
    )
    log = stream(
        piece(1, "a"), piece(2, "one\ntw", "worker.1"), piece(3, "b\n"),
        piece(4, "o", "worker.1"), END,
    )  # fmt: skip
    follow_routes(service, two, log=log)
    assert allot("logs", "-f", "12").out == "worker.1| one\nworker.0| ab\nworker.1| two\n"


def test_logs_follow_goes_from_attempt_to_attempt(service: Service) -> None:
    """The first attempt is evicted; the output of the second follows."""
    first, second = an_attempt(1), an_attempt(2)
    running = a_job(attempts=(first,))
    done = a_job(a_row(state=JobState.SUCCEEDED), attempts=(EVICTED, second))

    def log(request: Request) -> Answer:
        return stream(piece(1, f"{request.path.partition('attempt=')[2][0]}\n"), END)

    follow_routes(service, running, running, running, running, done)
    service.routes["GET /v1/jobs/12/logs"] = log
    service.routes["GET /v1/jobs/12/events"] = stream(
        ("1", "event", an_event(1, "AttemptPlaced", "attempt 1 placed on n1", attempt=1)),
        ("2", "event", an_event(2, "StopRequested", "is evicted", attempt=1)),
        ("3", "event", an_event(3, "AttemptPlaced", "attempt 2 placed on n2", attempt=2)),
        END,
    )
    ran = allot("logs", "-f", "12")
    assert ran.out == "1\n2\n"


def test_who_follows_a_job_is_told_why_it_is_queued_again(service: Service) -> None:
    diagnosis = {"code": "platform_error", "cause": "It was not run.", "evidence": "no\x1b[2J"}
    follow_routes(service, a_job(), a_job(a_row(state=JobState.SUCCEEDED)))
    service.routes["GET /v1/jobs/12/events"] = stream(
        ("1", "event", an_event(1, "AttemptEnded", "attempt 1 failed", diagnosis=diagnosis)),
        ("2", "event", an_event(2, "JobRequeued", "queued again (platform)")),
        ("3", "event", an_event(3, "AttemptEnded", "attempt 2 evicted", diagnosis=None)),
        ("4", "event", an_event(4, "JobRequeued", "queued again (evicted)")),
        END,
    )
    told = allot("run", "--", "true").err
    assert "queued again (platform)\n  no\\x1b[2J\n" in told
    assert "queued again (evicted)\njob 12 (train) succeeded" in told


def test_ctrl_c_detaches_and_says_how_to_come_back(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    from allotment.cli.logprint import LogPrinter

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    follow_routes(service, a_job(), log=stream(piece(1, "x")))
    monkeypatch.setattr(LogPrinter, "write", interrupted)
    ran = allot("run", "--", "sleep", "100")
    assert ran.code == 130
    assert "Detached; job 12 continues." in ran.err
    assert "allot logs -f 12" in ran.err
    assert not any("cancel" in request.path for request in service.requests)


def test_submit_follow_gives_the_exit_code(service: Service, tmp_path: Path) -> None:
    follow_routes(service, a_failed_job(Exit(signal=15)), log=stream(piece(1, "hi\n"), END))
    file = tmp_path / "job.yaml"
    file.write_text("name: train\ncommand: python train.py\n")
    ran = allot("submit", file, "--follow")
    assert (ran.code, ran.out) == (143, "hi\n")


def test_logs_without_following(service: Service) -> None:
    def text(request: Request) -> Answer:
        return Answer(b"" if "stderr" in request.path else b"all\n", 200, "text/plain")

    service.routes["GET /v1/jobs/12"] = json(a_job())
    service.routes["GET /v1/jobs/12/logs"] = text
    assert allot("logs", "12", "--tail", "4KiB") == Ran(0, "all\n", "")
    assert "tail=4096" in service.requests[-1].path
    assert "Write it like 4KiB" in allot("logs", "12", "--tail", "much").err


# ── the rest ────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("verb", ["cancel", "hold", "release", "suspend", "resume"])
def test_steering_verbs_act_and_say_where_the_job_stands(service: Service, verb: str) -> None:
    service.routes[f"POST /v1/jobs:{verb}"] = json(Steered(Verb(verb), 1, jobs=(a_job(),)))
    assert allot(verb, "12") == Ran(0, "", "job 12 (train): running\n")
    assert sent(service) == {"jobs": {"refs": ["12"]}}
    assert json_module.loads(allot(verb, "12", "--json").out)["state"] == "running"


def test_one_refusal_does_not_keep_the_other_jobs(service: Service) -> None:
    service.routes["POST /v1/jobs:cancel"] = [
        problem(404, "no_such_job", "There is no job x."),
        json(Steered(Verb.CANCEL, 1, jobs=(a_job(),))),
    ]
    ran = allot("cancel", "x", "12")
    assert ran.code == 1
    assert "job 12 (train): running" in ran.err
    assert "There is no job x." in ran.err


MANY = Steered(Verb.CANCEL, 37, ((JobId(8), JobId(44)),), {"succeeded": 3})


def test_many_jobs_are_counted_and_asked_for_first(service: Service) -> None:
    service.routes["POST /v1/jobs:cancel"] = json(MANY)
    chosen = ("--mine", "--name", "sweep-*", "--state", "queued")
    ran = allot("cancel", *chosen)
    assert (ran.code, len(service.asked("POST"))) == (1, 1)
    assert sent(service) == {
        "jobs": {"mine": True, "name": "sweep-*", "states": ["queued"]},
        "only_count": True,
    }
    assert (
        "This would cancel 37 jobs of yours (8-44), and there is no terminal to ask you."
        in ran.err
    )
    assert allot("cancel", *chosen, "--yes").err == (
        "cancelled: 37 jobs (8-44)\nleft unchanged: 3 succeeded\n"
    )
    assert len(service.asked("POST")) == 2


def test_on_a_terminal_just_the_counted_jobs_are_acted_on(service: Service) -> None:
    service.routes["POST /v1/jobs:cancel"] = json(MANY)
    assert allot("cancel", "--all", stdin=b"n\n", asked=True).code == 1
    assert len(service.asked("POST")) == 1
    ran = allot("cancel", "--all", stdin=b"y\n", asked=True)
    assert "Cancel 37 jobs (8-44)? [y/N]" in ran.err
    assert sent(service) == {"jobs": {"ids": [[8, 44]]}}


def test_retry_prints_the_new_ids(service: Service) -> None:
    made = ((JobId(50), JobId(52)),)
    ids = ((JobId(9), JobId(10)), (JobId(14), JobId(14)))
    service.routes["POST /v1/jobs:retry"] = json(Steered(Verb.RETRY, 3, ids, made=made))
    assert allot("retry", "8[failed]") == Ran(
        0, "50\n51\n52\n", "retried: 3 jobs (9-10, 14) as 50-52\n"
    )


def test_a_verb_without_any_job_is_a_wrong_call() -> None:
    ran = allot("cancel")
    assert ran.code == 2
    assert "Name jobs, or choose them: --mine" in ran.err


def test_ps_shows_an_array_in_one_line_with_a_bar(service: Service) -> None:
    array = v.ArrayPlace(JobId(8), -1, 1000)
    counts = {"succeeded": 480, "failed": 5, "running": 8, "queued": 507}
    row = a_row(8, name="sweep", array=array, counts=counts, started_at=0)
    service.routes["GET /v1/jobs"] = json({"items": [row], "next": None})
    line = allot("ps").out.splitlines()[1]
    assert "sweep ×1,000" in line
    assert line.endswith("[=====x>.....] 507 queued, 8 running, 480 succeeded, 5 failed")


def test_edit_and_clone_send_changes(service: Service) -> None:
    service.routes["PATCH /v1/jobs/12"] = json(WAITING)
    service.routes["POST /v1/jobs/12:clone"] = SUBMITTED
    assert allot("edit", "12", "--set", "priority=high").code == 0
    assert sent(service, "PATCH") == {"set": ["priority=high"]}
    assert allot("clone", "12", "-s", "env.LR=1").out == "12\n"
    assert sent(service) == {"set": ["env.LR=1"]}
    assert allot("edit", "12").code == 1


def test_a_hint_that_the_message_has_is_told_once(service: Service) -> None:
    wrong = {"message": "no such key", "path": "nop", "hint": "known keys: name, command"}
    body = {
        "detail": "nop: no such key (known keys: name, command)", "code": "bad_spec",
        "hint": wrong["hint"], "problems": [wrong],
    }  # fmt: skip
    service.routes["POST /v1/jobs/12:clone"] = Answer(
        msgspec.json.encode(body), 422, "application/problem+json"
    )
    told = allot("clone", "12", "--set", "nop=1").err
    assert told == "error: nop: no such key (known keys: name, command)\n"


def test_events_are_lines_and_with_json_objects(service: Service) -> None:
    service.routes["GET /v1/service"] = json(HEALTH)
    service.routes["GET /v1/events"] = json([an_event(1, text="runs\x1b[2J"), an_event(2)])
    first, _ = allot("events").out.splitlines()
    assert first.split()[2:] == ["job", "12", r"runs\x1b[2J"]
    assert "after=4611" in service.requests[-1].path, "the newest hundred"
    lines = allot("events", "--json", "--after", 5).out.splitlines()
    assert [json_module.loads(line)["seq"] for line in lines] == [1, 2]
    assert "after=5" in service.requests[-1].path


FILES = [
    v.OutputFile(1, "old.npz", 3, THEN), v.OutputFile(2, "model.npz", 5, THEN),
    v.OutputFile(2, "log/x.txt", 2, THEN),
]  # fmt: skip


def test_outputs_are_listed_and_those_of_the_newest_attempt_fetched(
    service: Service, tmp_path: Path
) -> None:
    service.routes["GET /v1/jobs/12/outputs"] = json(v.OutputPage(tuple(FILES), True))
    service.routes["GET /v1/jobs/12/outputs/2/model.npz"] = Answer(b"12345")
    service.routes["GET /v1/jobs/12/outputs/2/log/x.txt"] = Answer(b"12")
    assert len(allot("outputs", "12").out.splitlines()) == 4
    ran = allot("outputs", "12", "--fetch", tmp_path)
    assert ran.out == f"{tmp_path}/model.npz\n{tmp_path}/log/x.txt\n"
    assert (tmp_path / "model.npz").read_bytes() == b"12345"
    assert "2 files of attempt 2, 7 B" in ran.err
    assert allot("outputs", "12", "--only", "*.pt", "--fetch", tmp_path).code == 1


def test_hostile_names_of_outputs_reach_neither_the_terminal_nor_other_files(
    service: Service, tmp_path: Path
) -> None:
    names = ["\x1b[2Jx", "two\nlines", "../out", "good"]
    files = tuple(v.OutputFile(1, name, 1, THEN) for name in names)
    service.routes["GET /v1/jobs/12/outputs"] = json(v.OutputPage(files, False))
    for name in names:
        service.routes[f"GET /v1/jobs/12/outputs/1/{quote(name)}"] = Answer(b"1")
    listed = allot("outputs", "12")
    assert "\\x1b[2Jx" in listed.out
    assert "two\\nlines" in listed.out
    assert "only 10,000 were listed" in listed.err
    ran = allot("outputs", "12", "--fetch", tmp_path / "in")
    assert ran.code == 1
    assert "\x1b" not in ran.out + ran.err
    assert "../out: The service named an output file outside its folder" in ran.err
    assert "1 file could not be fetched" in ran.err
    assert (tmp_path / "in" / "good").read_bytes() == b"1"
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


@pytest.mark.parametrize(
    "file",
    [
        FileEntry("../out", "f", 1, "0" * 64),
        FileEntry("a/../../out", "f", 1, "0" * 64),
        FileEntry("/out", "f", 1, "0" * 64),
        FileEntry("link", "l", 0, "../../out"),
    ],
)
def test_hostile_names_of_data_lead_to_no_other_files(
    service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: FileEntry
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    version = DataVersionView(1, "d", 1, file.size, THEN, "ann")
    service.routes["GET /v1/data/-/words/files"] = json(
        DataFiles("vision", "words", version, (file,), sha256=False)
    )
    service.routes[f"GET /v1/data/vision/words@1/files/{file.of}"] = Answer(b"1")
    ran = allot("data", "get", "words", tmp_path / "in")
    assert ran.code == 1
    assert "leads elsewhere" in ran.err or "outside its folder" in ran.err
    assert {path.name for path in tmp_path.rglob("*") if not path.is_dir()} <= {
        path.name for path in (tmp_path / "cache").rglob("*")
    }


NODE = v.NodeView(
    0, "n1", NodeState.READY, "", "x86_64", Resources(4000, 8000, 32 * GIB, 0),
    Resources(1500, 4000, 16 * GIB, 0),
    tuple(v.DeviceView(at, "A100" if at else "T4", 0, bool(at), 0, ()) for at in range(4)), 3,
)  # fmt: skip


def test_nodes_say_what_is_free_and_that_virtual_devices_are(service: Service) -> None:
    service.routes["GET /v1/nodes"] = json([NODE])
    service.routes["GET /v1/reservations"] = json([])
    line = allot("nodes").out.splitlines()[1]
    assert line.split() == [
        "n1", "ready", "1.5/4", "1×T4,", "3×A100", "(virtual)", "4/8", "16GiB/32GiB", "-",
        "x86_64", "3",
    ]  # fmt: skip


def test_drain_says_what_still_runs_there(service: Service) -> None:
    service.routes["POST /v1/nodes/n1:drain"] = json(None)
    service.routes["GET /v1/nodes"] = json([NODE])
    ran = allot("drain", "n1", "--reason", "new driver")
    assert sent(service) == {"reason": "new driver"}
    assert "3 tasks still there" in ran.err


FANS = ReservationView(
    "fans", THEN, THEN + 4 * HOUR, True, ("n1",), 4, (), ("nlp",), (), True, 0, "new fans", "",
    (JobId(7),),
)  # fmt: skip


def test_reserve_says_who_is_there_now(service: Service) -> None:
    service.routes["POST /v1/reservations"] = json([FANS])
    ran = allot(
        "reserve", "fans", "--node", "n1", "--from", "2h", "--for", "4h", "--tenant", "nlp",
        "--evict", "--notice", "1d",
    )  # fmt: skip
    asked = sent(service)
    assert asked["end"] - asked["begin"] == 4 * HOUR
    assert asked["nodes"] == ["n1"]
    assert asked["notice_ms"] == 24 * HOUR
    assert "set aside for nlp" in ran.err
    assert "are evicted when it begins: 7" in ran.err
    assert allot("reserve", "fans", "--node", "n1").code == 2
    assert allot("reserve", "x", "--node", "n1", "--from", "soon", "--for", "4h").code == 2


def test_reservations(service: Service) -> None:
    service.routes["GET /v1/reservations"] = json([FANS])
    service.routes["POST /v1/reservations/fans:end"] = json(None)
    line = allot("reservations").out.splitlines()[1]
    assert line.split()[:3] == ["fans", "nlp", "now,"]
    assert "new fans" in line
    assert "is over" in allot("unreserve", "fans").err


def test_what_is_set_aside_is_told_beside_nodes_and_tenants(service: Service) -> None:
    later = msgspec.structs.replace(FANS, name="later", begun=False)
    begin, end = (
        datetime.fromtimestamp(at / 1000).astimezone() for at in (FANS.begin, FANS.end)
    )
    until = f"until {end:%H:%M}"
    service.routes["GET /v1/nodes"] = json([NODE])
    service.routes["GET /v1/tenants"] = json([])
    service.routes["GET /v1/reservations"] = json([FANS, later])
    note = " ".join(allot("nodes").out.split())
    assert f"set aside: fans for nlp, {until}" in note
    assert f"from {begin:%H:%M}: later for nlp, {until}" in note
    assert f"set aside: n1 (fans for nlp, {until})" in allot("tenants").err


def test_tenants(service: Service) -> None:
    one = v.TenantView(
        "vision", Resources(4000), Resources(5000), Resources(4000), Resources(1000),
        Resources(0), 2, 1, ("default", "night"), "@vision",
    )  # fmt: skip
    service.routes["GET /v1/tenants"] = json([one])
    service.routes["GET /v1/reservations"] = json([])
    assert allot("tenants").out.splitlines()[1].split() == [
        "vision", "4", "4", "1", "0", "2", "1", "default,", "night", "@vision",
    ]  # fmt: skip


HEALTH = v.Health("0.1.0", os.getpid(), "/s", "local", True, "", 3, 4711, THEN)


def test_up_where_it_is_up_already_says_so(service: Service, state: Path) -> None:
    service.routes["GET /v1/service"] = json(HEALTH)
    ran = allot("up")
    assert ran.code == 0
    assert ran.out == f"{state}/allot.sock\n"
    assert f"It is up already: pid {os.getpid()}" in ran.err


@pytest.mark.parametrize(("by_ms", "way"), [(-3_599_999, "back"), (3_600_001, "forward")])
def test_the_doctor_tells_for_a_day_that_the_clock_was_set(
    service: Service, state: Path, by_ms: int, way: str
) -> None:
    now = round(time.time() * 1000)
    for ago_ms, told in ((60_000, True), (2 * DAY, False)):
        health = msgspec.structs.replace(HEALTH, clock_set_at=now - ago_ms, clock_set_ms=by_ms)
        service.routes["GET /v1/service"] = json(health)
        found = {one.subject: one for one in doctor_checks.service(state)}
        assert ("clock" in found) is told
        if told:
            assert f"was set {way} by 1 h 0 min" in found["clock"].text


def test_up_says_where_other_gpus_are_there_than_asked_for(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("allotment.cli.up.health_of", lambda _: None)
    monkeypatch.setattr("allotment.cli.up.start", lambda _: HEALTH)
    service.routes["GET /v1/nodes"] = json([NODE])
    words = (
        "--gpus 8 changes nothing: there are 4 GPUs, by the configuration or in this machine"
    )
    assert words in " ".join(allot("up", "--gpus", "8").err.split())
    assert "changes nothing" not in allot("up", "--gpus", "4").err
    assert "changes nothing" not in allot("up").err


def test_down_without_a_service_is_done_already() -> None:
    ran = allot("down")
    assert ran.code == 0
    assert "No service is running." in ran.err


def test_backup_of_a_stopped_service_says_what_to_copy() -> None:
    ran = allot("backup", "/tmp/x.db")
    assert ran.code == 3
    assert "allot.db" in ran.err


def test_restore_is_refused_while_a_service_runs(service: Service) -> None:
    service.routes["GET /v1/service"] = json(HEALTH)
    ran = allot("restore", "/tmp/x.db")
    assert ran.code == 1
    assert "allot down" in ran.err


# ── as a process ────────────────────────────────────────────────────────────────────────

IMPORTED = """
import sys
import time
sys.argv = ["allot", "ps"]
from allotment.cli import main
try:
    main()
finally:
    print(*sorted(name.partition(".")[0] for name in sys.modules))
"""


def test_ps_imports_nothing_heavy(service: Service) -> None:
    service.routes["GET /v1/jobs"] = json({"items": ROWS, "next": None})
    ran = subprocess.run(
        [sys.executable, "-c", IMPORTED], capture_output=True, text=True, check=True
    )
    found = set(ran.stdout.splitlines()[-1].split())
    heavy = {"pydantic", "rich", "websockets", "fastapi", "sqlalchemy", "ruamel", "asyncio"}
    assert not found & heavy


def test_a_reader_that_leaves_early_is_no_trouble(service: Service) -> None:
    many = [a_row(at) for at in range(400)]
    service.routes["GET /v1/jobs"] = json({"items": many, "next": None})
    command = f"{sys.executable} -m allotment.cli ps --limit 500 | head -1"
    ran = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
    assert ran.stderr == ""
    assert ran.stdout.split()[0] == "ID"


ALLOT = (sys.executable, "-m", "allotment.cli")


@pytest.mark.parametrize("rows", [3, 400])
def test_a_reader_that_is_gone_is_no_trouble(service: Service, rows: int) -> None:
    service.routes["GET /v1/jobs"] = json({"items": [a_row(at) for at in range(rows)],
                                           "next": None})  # fmt: skip
    reader, writer = os.pipe()
    os.close(reader)
    try:
        ran = subprocess.run([*ALLOT, "ps"], stdout=writer, stderr=-1, check=False)
    finally:
        os.close(writer)
    assert (ran.returncode, ran.stderr) == (1, b"")


@pytest.mark.parametrize("rows", [3, 400])
def test_output_that_does_not_fit_is_told(service: Service, rows: int) -> None:
    service.routes["GET /v1/jobs"] = json({"items": [a_row(at) for at in range(rows)],
                                           "next": None})  # fmt: skip
    with Path("/dev/full").open("wb") as full:
        ran = subprocess.run([*ALLOT, "ps"], stdout=full, stderr=-1, check=False)
    assert (ran.returncode, ran.stderr) == (1, b"error: No space left on device\n")


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&-", "<&- >&- 2>&-"])
def test_streams_that_are_closed_are_no_trouble(service: Service, closed: str) -> None:
    service.routes["GET /v1/jobs"] = json({"items": ROWS, "next": None})
    command = f"{sys.executable} -m allotment.cli ps {closed}"
    ran = subprocess.run(command, shell=True, capture_output=True, check=False)
    assert (ran.returncode, ran.stderr) == (0, b"")


def test_the_shell_completes_verbs_and_jobs(service: Service) -> None:
    service.routes["GET /v1/jobs"] = json({"items": ROWS, "next": None})

    def complete(words: str, at: int) -> list[str]:
        env = os.environ | {
            "_ALLOT_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(at),
        }  # fmt: skip
        ran = subprocess.run(
            [sys.executable, "-c", "from allotment.cli import main; main()"],
            env=env, capture_output=True, text=True, check=False,
        )  # fmt: skip
        return ran.stdout.split()

    assert complete("allot su", 1) == ["submit", "suspend"]
    assert complete("allot show a-very", 2) == ["a-very-long-name-of-a-training-job"]
    assert complete("allot show 1", 2) == ["14", "13", "12"]


def test_labels_are_sent_and_shown(service: Service, tmp_path: Path) -> None:
    service.routes["POST /v1/jobs"] = SUBMITTED
    assert allot("run", "-d", "--label", "team=a", "--", "true").code == 0
    assert sent(service)["labels"] == {"team": "a"}
    file = tmp_path / "job.yaml"
    file.write_text("name: x\ncommand: 'true'\nlabels: {stage: 1.10}\n")
    assert allot("submit", file, "--label", "team=b").code == 0
    assert sent(service)["labels"] == {"stage": "1.10", "team": "b"}
    rows = [a_row(12, labels={"team": "a", "run": "7"}), a_row(11)]
    service.routes["GET /v1/jobs"] = json({"items": rows, "next": None})
    header, first, second = allot("ps", "--label", "team").out.splitlines()
    assert header.split()[-2:] == ["LABELS", "WHY"]
    assert "team=a run=7" in first
    assert service.asked("GET")[-1].path.startswith("/v1/jobs?label=team&arrays=true")
    assert second.rstrip().endswith("-")


def test_a_note_is_sent_and_shown(service: Service) -> None:
    noted = a_job(note="see \x1b[31mW&B", noted_by="ada", noted_at=THEN)
    service.routes["POST /v1/jobs/12:note"] = json(noted)
    service.routes["GET /v1/jobs/12"] = json(noted)
    assert allot("note", "12", "see W&B") == Ran(0, "", "job 12 (train): noted\n")
    assert sent(service) == {"text": "see W&B"}
    assert "see \\x1b[31mW&B (ada, " in allot("show", "12").out


def test_grids_are_sent_and_shown(service: Service, tmp_path: Path) -> None:
    service.routes["POST /v1/jobs"] = SUBMITTED
    ran = allot("run", "--grid", "lr=0.1,0.01", "--grid", "seed=1..5", "--", "t", "{lr}")
    assert (ran.code, ran.out) == (0, "12\n")
    assert sent(service)["grid"] == {"lr": ["0.1", "0.01"], "seed": "1..5"}
    file = tmp_path / "job.yaml"
    file.write_text(
        "name: x\ncommand: 'true'\ngrid: {a: [1.0], lr: [3]}\narray: {max_running: 2}\n"
    )
    assert allot("submit", file, "--grid", "lr=0.1").code == 0
    assert sent(service)["grid"] == {"a": ["1.0"], "lr": ["0.1"]}
    assert sent(service)["array"] == {"max_running": 2}
    assert "--grid lr: it is NAME=VALUES" in allot("submit", file, "--grid", "lr").err
    place = v.ArrayPlace(JobId(12), 0, 2, {"lr": "0.1"})
    service.routes["GET /v1/jobs"] = json({"items": [a_row(12, array=place)], "next": None})
    header, line = allot("ps", "12").out.splitlines()
    assert header.split()[-2:] == ["PARAMS", "WHY"]
    assert line.rstrip().endswith("lr=0.1")


def test_why_of_many_jobs_counts_what_they_wait_for(service: Service) -> None:
    rows = [
        a_row(14, JobState.QUEUED, reason="quota"),
        a_row(13, JobState.QUEUED, reason="quota"),
        a_row(12, JobState.HELD, reason="held"),
        a_row(11),
    ]
    service.routes["POST /v1/jobs:choose"] = json(Chosen(4))
    service.routes["GET /v1/jobs"] = json({"items": rows, "next": None})
    service.routes["GET /v1/jobs/13/why"] = json(Blocked(Reason.QUOTA, "Its share is used."))
    service.routes["GET /v1/jobs/12/why"] = json(Blocked(Reason.HELD, "It is held."))
    assert allot("why", "--name", "t*").out == (
        "3 of 4 jobs wait.\n"
        "  2 quota, such as 13: Its share is used.\n"
        "  1 held, such as 12: It is held.\n"
    )
    assert "mine=true&" in service.asked("GET")[0].path + "&"
