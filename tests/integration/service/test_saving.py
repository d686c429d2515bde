"""Outputs of jobs that succeeded become versions of datasets, as a whole or not at all."""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.service.test_data import as_user, job_of
from tests.support.cluster import until
from tests.support.registry import CONFIG, Job, WithUsers, a_service

pytestmark = [
    pytest.mark.needs_root,
    pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning"),
]


@pytest.fixture(scope="module")
def service() -> Iterator[WithUsers]:
    with tempfile.TemporaryDirectory(prefix="allot-") as name:
        Path(name).chmod(0o755)
        # A job leaves memory as soon as it may: not before its outputs are saved.
        with a_service(
            Path(name), CONFIG.replace("limits: {", "limits: {keep_finished: 1, ")
        ) as made:
            made.allot("ps")  # The users' homes are made.
            yield made


def submitted(service: WithUsers, save: str, command: str, user: str = "ann") -> int:
    status, answer = asked(service, save, command, user)
    assert status == 201, answer
    return answer["id"]


def asked(
    service: WithUsers, save: str, command: str = "true", user: str = "ann"
) -> tuple[int, Any]:
    small = {"cpu": 0.1, "memory": "64MiB"}
    spec = {"name": "s", "tenant": user, "command": command, "resources": small, "save": save}
    return service.ask_as(user, "POST", "/v1/jobs", spec)


def is_settled(service: WithUsers, job: int) -> bool:
    view = service.get(f"/v1/jobs/{job}")
    return bool(view["saved"] or view["unsaved"])


def settled(service: WithUsers, job: int) -> Job:
    """Wait until it is known what became of a job's outputs."""
    service.wait_for(job, "succeeded", "failed")
    until(lambda: is_settled(service, job), "what became of the outputs")
    return Job(service, job)


def test_outputs_are_the_next_version(service: WithUsers) -> None:
    as_user(service, "ann", "create", "results")
    script = (
        "cd $ALLOT_OUTPUT_DIR; mkdir -p sub; echo one >sub/a; "
        "printf '#!/bin/sh\necho ran' >run; chmod +x run; ln -s /etc/shadow link; "
        "mkfifo pipe; : >empty"
    )
    job = settled(service, submitted(service, "results", script))
    assert job.view["saved"] == "ann/results@1", job.view["unsaved"]
    shown = service.allot("show", str(job.id)).stdout
    assert "ann/results@1" in shown
    assert (
        "its outputs are saved as ann/results@1" in service.allot("events", str(job.id)).stdout
    )
    found = job_of(service, "ann", {"results": "/data/r"}, "cd /data/r; ls; cat sub/a; ./run")
    assert found.output.split() == ["empty", "run", "sub", "one", "ran"]
    more = settled(service, submitted(service, "results", "echo 2 >$ALLOT_OUTPUT_DIR/b"))
    assert more.view["saved"] == "ann/results@2"


def test_jobs_that_leave_memory_soon_are_saved(service: WithUsers) -> None:
    as_user(service, "ann", "create", "many")
    jobs = [submitted(service, "many", f"echo {n} >$ALLOT_OUTPUT_DIR/a") for n in range(3)]
    saved = {settled(service, job).view["saved"] for job in jobs}
    assert saved == {"ann/many@1", "ann/many@2", "ann/many@3"}


def test_only_what_succeeded_is_saved(service: WithUsers) -> None:
    as_user(service, "ann", "create", "failures")
    job = submitted(service, "failures", "echo 1 >$ALLOT_OUTPUT_DIR/a; false")
    service.wait_for(job, "failed")
    other = settled(service, submitted(service, "failures", "true"))
    assert other.view["unsaved"] == "There is no file in its output folder."
    assert not is_settled(service, job)
    shown = as_user(service, "ann", "show", "failures")
    assert "@1" not in shown


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("touch a; touch $(printf 'b\\377')", r"The name of 'b\udcff' is no UTF-8."),
        ("touch a; mkdir -p b/c; touch b/c/d; chmod 0 b/c", "not all folders can be read"),
        ("d=.; for n in $(seq 70); do d=$d/d; done; mkdir -p $d; touch $d/a",
         "They cannot all be files"),
    ],
)  # fmt: skip
def test_what_cannot_be_saved_as_a_whole_is_not_saved(
    service: WithUsers, script: str, said: str
) -> None:
    as_user(service, "ann", "create", f"odd{len(said)}")
    job = submitted(service, f"odd{len(said)}", f"cd $ALLOT_OUTPUT_DIR; {script}")
    assert said in settled(service, job).view["unsaved"]


def test_who_may_not_add_a_version_is_refused_at_once(service: WithUsers) -> None:
    as_user(service, "ann", "create", "hers")
    status, answer = asked(service, "ann/hers", user="ben")
    assert (status, answer["code"]) == (404, "data_missing")
    as_user(service, "ann", "grant", "hers", "user:ben")
    status, answer = asked(service, "ann/hers", user="ben")
    assert (status, answer["code"]) == (403, "forbidden")
    assert asked(service, "hers@1")[1]["code"] == "bad_spec"
    as_user(service, "ann", "grant", "hers", "user:ben", "--write")
    job = submitted(service, "ann/hers", "echo 1 >$ALLOT_OUTPUT_DIR/a", "ben")
    assert settled(service, job).view["saved"] == "ann/hers@1"


def test_what_cannot_be_saved_any_more_is_told(service: WithUsers) -> None:
    as_user(service, "ann", "create", "gone")
    wait = f"{service.home('ann')}/go"
    script = f"echo 1 >$ALLOT_OUTPUT_DIR/a; until test -e {wait}; do sleep 0.05; done"
    job = submitted(service, "gone", script)
    service.wait_for(job, "running")
    as_user(service, "ann", "rm", "gone")
    Path(wait).touch()
    found = settled(service, job)
    assert found.state == "succeeded"
    assert "There is no dataset ann/gone" in found.view["unsaved"]
    assert "saved" in service.allot("show", str(job)).stdout


def test_a_killed_service_saves_once(service: WithUsers) -> None:
    as_user(service, "ann", "create", "once")
    script = "head -c 20000000 /dev/urandom >$ALLOT_OUTPUT_DIR/a; sha256sum $ALLOT_OUTPUT_DIR/a"
    job = submitted(service, "once", script)
    service.wait_for(job, "succeeded")
    service.kill()
    service.up()
    digest = settled(service, job).output.split()[0]
    shown = as_user(service, "ann", "show", "once")
    assert shown.count("1 file") == 1
    found = job_of(service, "ann", {"once": "/data/o"}, "sha256sum /data/o/a")
    assert found.output.split()[0] == digest
