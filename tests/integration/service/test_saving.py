"""Outputs and checkpoints of jobs become versions of datasets, as a whole or not at all."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.service.test_data import as_user, job_of
from tests.support.cluster import RealCluster, until
from tests.support.registry import CONFIG, Job, WithUsers, a_service

pytestmark = [
    pytest.mark.needs_root,
    pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning"),
]


@pytest.fixture(scope="module")
def service(reachable_once: Path) -> Iterator[WithUsers]:
    # A job leaves memory as soon as it may: not before its outputs are saved.
    config = CONFIG.replace("limits: {", "limits: {keep_finished: 1, ")
    with a_service(reachable_once, config) as made:
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


def is_settled(service: RealCluster, job: int) -> bool:
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
        ("touch a; touch $(printf 'b\\377')", r"The name of 'b\udcff' is not UTF-8."),
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


# ── checkpoints ─────────────────────────────────────────────────────────────────────────

REPORT = (
    "cd $ALLOT_CHECKPOINT_DIR; report() { "
    'printf \'{"path": "%s", "step": %s, "progress": 0.5}\' $PWD/$1 $2 >.new; '
    "mv .new $ALLOT_CHECKPOINT_FILE; }; "
)


def wait_for_file(path: str) -> str:
    return f"until test -e {path}; do sleep 0.05; done"


def training(service: WithUsers, name: str, script: str, **more: Any) -> int:
    as_user(service, "ann", "create", name)
    small = {"cpu": 0.1, "memory": "64MiB"}
    spec: dict[str, Any] = {
        "name": "t", "tenant": "ann", "command": REPORT + script, "resources": small,
        "checkpoint": {"save": name, "keep": 2}, **more,
    }  # fmt: skip
    status, answer = service.ask_as("ann", "POST", "/v1/jobs", spec)
    assert status == 201, answer
    return answer["id"]


def is_kept(service: RealCluster, job: int, version: str) -> bool:
    return service.get(f"/v1/jobs/{job}")["kept"] == version


def test_checkpoints_become_versions_while_their_job_runs(service: WithUsers) -> None:
    home = service.home("ann")
    steps = "; ".join(
        f"mkdir c{n}; echo {n} >c{n}/model; report c{n} {n}; {wait_for_file(f'{home}/kept{n}')}"
        for n in (1, 2, 3)
    )
    job = training(service, "weights", steps)
    for n in (1, 2, 3):
        until(lambda n=n: is_kept(service, job, f"ann/weights@{n}"), "the checkpoint")
        assert service.get(f"/v1/jobs/{job}")["row"]["state"] == "running"
        found = job_of(service, "ann", {"weights": "/data/w"}, "cd /data/w; cat */model")
        assert found.output.split() == [str(n)]
        Path(home, f"kept{n}").touch()
    service.wait_for(job, "succeeded")
    shown = as_user(service, "ann", "show", "weights")
    assert f"checkpoint of job {job} at step 3" in shown
    assert "@1 " not in shown, "as many stay as the job keeps"
    assert "kept       ann/weights@3" in service.allot("show", str(job)).stdout
    told = service.allot("events", str(job)).stdout
    assert "its checkpoint at step 2 is kept as ann/weights@2" in told


def test_a_retry_goes_on_from_the_newest_that_is_whole(service: WithUsers) -> None:
    go = f"{service.home('ann')}/lost"
    script = (
        'if test -n "$ALLOT_RESUME_FROM"; then echo from $ALLOT_RESUME_FROM; '
        "cat $ALLOT_RESUME_FROM/deep/model; ls -A | tr '\\n' ' '; exit 0; fi; "
        "mkdir -p c1/deep; echo one >c1/deep/model; echo x >c1/run; chmod +x c1/run; "
        f"report c1 1; {wait_for_file(f'{go}1')}; mkdir c2; report c2 2; "
        f"{wait_for_file(f'{go}2')}; rm -r c1 c2; exit 3"
    )
    job = training(service, "lost", script, retry=1)
    until(lambda: is_kept(service, job, "ann/lost@1"), "the checkpoint")
    Path(f"{go}1").touch()
    until(lambda: bool(service.get(f"/v1/jobs/{job}")["unkept"]), "what became of the next")
    Path(f"{go}2").touch()
    service.wait_for(job, "succeeded", "failed")
    done = Job(service, job)
    assert done.state == "succeeded", done.output
    assert "/c1\none\n" in done.output
    assert ".allot-restored" not in done.output
    told = service.allot("events", str(job)).stdout
    assert "continues from step 1: its checkpoint in ann/lost@1" in told
    assert "its checkpoint at step 2 cannot be kept" in told


def test_a_killed_service_keeps_the_old_one_and_then_the_new(service: WithUsers) -> None:
    home = service.home("ann")
    script = (
        f"echo one >a; report a 1; {wait_for_file(f'{home}/more')}; "
        "head -c 150000000 /dev/urandom >b; sha256sum b; report b 2; "
        f"{wait_for_file(f'{home}/end')}"
    )
    job = training(service, "killed", script)
    until(lambda: is_kept(service, job, "ann/killed@1"), "the first")
    Path(home, "more").touch()
    until(lambda: service.get(f"/v1/jobs/{job}")["checkpoint"]["step"] == 2, "the second")
    service.kill()
    service.up()
    found = job_of(service, "ann", {"killed@1": "/data/k"}, "cat /data/k/a")
    assert found.output.split() == ["one"]
    until(lambda: is_kept(service, job, "ann/killed@2"), "the second version")
    Path(home, "end").touch()
    service.wait_for(job, "succeeded")
    digest = Job(service, job).output.split()[0]
    found = job_of(service, "ann", {"killed": "/data/k"}, "sha256sum /data/k/b")
    assert found.output.split()[0] == digest
    assert as_user(service, "ann", "show", "killed").count("checkpoint of job") == 2


def test_a_checkpoint_elsewhere_is_told_of(service: WithUsers) -> None:
    job = training(service, "elsewhere", "report ../../etc 1; sleep 1")
    until(lambda: bool(service.get(f"/v1/jobs/{job}")["unkept"]), "what became of it")
    assert "is not in ALLOT_CHECKPOINT_DIR" in service.allot("show", str(job)).stdout


def test_where_checkpoints_may_go_is_looked_at_once_submitted(service: WithUsers) -> None:
    small = {"cpu": 0.1, "memory": "64MiB"}
    spec = {"name": "t", "tenant": "ben", "command": "true", "resources": small}
    for name, code in (("ann/weights", "data_missing"), ("nowhere", "data_missing")):
        asked = spec | {"checkpoint": {"save": name}}
        assert service.ask_as("ben", "POST", "/v1/jobs", asked)[1]["code"] == code
    asked = spec | {"tenant": "ann", "checkpoint": {"save": "weights@1"}}
    assert service.ask_as("ann", "POST", "/v1/jobs", asked)[1]["code"] == "bad_spec"
