"""A service that asks Slurm over REST, and what may be away or wrong there: all of it real."""

import asyncio
import contextlib
import json
import select
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from allotment.backends.slurm.rest import Rest
from allotment.model.engines import RestSetup
from allotment.model.errors import BackendError, EngineAway
from tests.integration.slurm.test_engines import Mixed
from tests.support.cluster import until
from tests.support.on_slurm import a_shared_folder, as_nobody, shell
from tests.support.slurm import REST_TOOLS, Slurm, a_slurm

pytestmark = [pytest.mark.needs_root, pytest.mark.needs_tool(*REST_TOOLS)]

CONFIG = """\
engines:
  gpus: {{type: slurm, partition: main, rest: {{url: "{url}", token: {token}}}}}
tenants: {{lab: {{}}}}
"""


@pytest.fixture(scope="module")
def slurm() -> Iterator[Slurm]:
    with a_slurm(rest=True) as running:
        yield running


@pytest.fixture(scope="module")
def service(slurm: Slurm) -> Iterator[Mixed]:
    with a_shared_folder() as made:
        url = f"http://127.0.0.1:{slurm.rest_port}"
        running = Mixed(made / "state", slurm, CONFIG.format(url=url, token=slurm.token))
        running.up()
        try:
            yield running
        finally:
            running.down()


@pytest.fixture
def cluster(service: Mixed) -> Iterator[Mixed]:
    yield service
    service.slurm.renew_token()
    until(lambda: not trouble(service), "Slurm to answer")
    service.clear()


def trouble(cluster: Mixed) -> str:
    """Return why Slurm is not heard; '' where it is."""
    told = cluster.get("/v1/nodes")[0]["unheard"]
    return told["why"] if told else ""


def submissions(cluster: Mixed, job: int) -> int:
    """Count the jobs that Slurm ever had of a task."""
    own = (cluster.state / "engines/gpus/slurm/name").read_text()
    names = cluster.slurm.say("squeue", "-h", "-t", "all", "-o", "%j").split()
    return names.count(f"{own}-{job}.1.0")


def doctor(cluster: Mixed) -> dict[str, str]:
    told = json.loads(cluster.allot("doctor", "--json").stdout)
    return {
        each["subject"]: f"{each['level']} {each['text']} {each['advice']}" for each in told
    }


def test_jobs_of_users_run_as_they_and_the_token_is_in_no_file(cluster: Mixed) -> None:
    done = as_nobody(
        cluster, "run", "--gpus", "2", "--", "sh", "-c", "id -un; echo $SLURMD_NODENAME"
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[0] == "nobody"
    found = doctor(cluster)
    assert found["partition"].startswith("ok main: 2 nodes"), found
    secret = cluster.slurm.token.read_text().strip().removeprefix("SLURM_JWT=")
    for path in cluster.state.rglob("*"):
        if path.is_file():
            assert secret.encode() not in path.read_bytes(), path


def test_jobs_go_on_while_slurmrestd_and_slurmctld_are_away(cluster: Mixed) -> None:
    job = cluster.submit(shell("sleep 3; echo done"))
    cluster.wait_for(job, "running")
    cluster.slurm.until_saved()
    cluster.slurm.kill("slurmrestd")
    until(lambda: "refused" in trouble(cluster), "slurmrestd to be missed")
    waits = cluster.submit(shell("echo later"))
    cluster.wait_for(job, "succeeded")
    cluster.slurm.kill("slurmctld")
    cluster.slurm.start_rest()
    until(lambda: "slurmctld does not answer" in trouble(cluster), "slurmctld to be missed")
    cluster.slurm.start_controller()
    cluster.wait_for(waits, "succeeded")
    assert len(cluster.job(job)["attempts"]) == 1
    assert (submissions(cluster, job), submissions(cluster, waits)) == (1, 1)


def test_a_token_that_ends_or_is_wrong_is_named_and_a_new_one_is_taken(cluster: Mixed) -> None:
    slurm = cluster.slurm
    slurm.renew_token(2)
    job = cluster.submit(shell("sleep 1000"))
    until(lambda: "which ended" in trouble(cluster), "its end")
    assert f"the token of root from {slurm.token}" in trouble(cluster)
    found = doctor(cluster)["slurm"]
    assert found.startswith("bad engine gpus: slurmctld does not accept the token of root")
    assert "scontrol token" in found
    waits = cluster.submit(shell("true"))
    slurm.renew_token()
    cluster.wait_for(waits, "succeeded")
    assert submissions(cluster, waits) == 1
    slurm.token.write_text("SLURM_JWT=no.such.token")
    slurm.token.chmod(0o644)
    until(lambda: "does not accept" in trouble(cluster), "a wrong token to be named")
    assert "others than its owner may read" in doctor(cluster)["token"]
    theirs = slurm.say("scontrol", "token", "username=nobody", "lifespan=600")
    slurm.token.write_text(theirs)
    assert "it is nobody's: unless that is SlurmUser" in doctor(cluster)["token"]
    slurm.token.unlink()
    until(lambda: "no such file" in trouble(cluster), "no token to be named")
    assert cluster.state_of(job) in ("queued", "starting", "running")


def test_a_first_start_with_a_wrong_token_says_what_is_needed(
    slurm: Slurm, tmp_path: Path
) -> None:
    token = tmp_path / "token"
    token.write_text("SLURM_JWT=no.such.token")
    url = f"http://127.0.0.1:{slurm.rest_port}"
    with a_shared_folder() as made:
        cluster = Mixed(made / "state", slurm, CONFIG.format(url=url, token=token))
        done = cluster.start("--config", str(cluster.config))
    assert done.returncode != 0
    assert f"slurmctld does not accept the token of root from {token}" in done.stderr
    assert "scontrol token username=root" in done.stderr


def test_jobs_go_on_while_munge_is_away(cluster: Mixed) -> None:
    job = cluster.submit(shell("sleep 3; echo done"))
    cluster.wait_for(job, "running")
    cluster.slurm.stop("munged")
    cluster.wait_for(job, "succeeded")
    waits = cluster.submit(shell("echo later"))
    cluster.slurm.start_munge()
    cluster.wait_for(waits, "succeeded")
    assert len(cluster.job(job)["attempts"]) == 1
    assert submissions(cluster, waits) == 1


class Dropping:
    """Stands before slurmrestd, and passes on all but the answers to submissions."""

    def __init__(self, port: int) -> None:
        self._behind = port
        self.is_dropping = True
        self.dropped = 0
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._server.getsockname()[1]
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                taken, _ = self._server.accept()
                threading.Thread(target=self._pass_on, args=(taken,), daemon=True).start()

    def _pass_on(self, ours: socket.socket) -> None:
        with (
            contextlib.suppress(OSError),
            ours,
            socket.create_connection(("127.0.0.1", self._behind)) as theirs,
        ):
            is_dropped = False
            while ready := select.select([ours, theirs], [], [])[0]:
                said = ready[0].recv(1 << 20)
                if not said:
                    return
                if ready[0] is ours:
                    is_dropped = self.is_dropping and b"/job/submit " in said
                    theirs.sendall(said)
                elif is_dropped:
                    self.dropped += 1
                    return
                else:
                    ours.sendall(said)

    def close(self) -> None:
        self._server.close()


def test_a_submission_whose_answer_is_lost_is_not_sent_twice(slurm: Slurm) -> None:
    proxy = Dropping(slurm.rest_port)
    with contextlib.closing(proxy), a_shared_folder() as made:
        url = f"http://127.0.0.1:{proxy.port}"
        cluster = Mixed(made / "state", slurm, CONFIG.format(url=url, token=slurm.token))
        cluster.up()
        try:
            runs = made / "runs"
            runs.touch()
            runs.chmod(0o666)
            gang = cluster.submit(shell(f"echo $RANK >>{runs}; sleep 2", count=3))
            cluster.wait_for(gang, "succeeded")
            assert proxy.dropped == 3
            assert sorted(runs.read_text().split()) == ["0", "1", "2"]
            names = slurm.say("squeue", "-h", "-t", "all", "-o", "%j").split()
            own = (cluster.state / "engines/gpus/slurm/name").read_text()
            assert len([name for name in names if name.startswith(own)]) == 3
            assert len(cluster.job(gang)["attempts"]) == 1
        finally:
            cluster.down()
            slurm.clear()


OPTIONS = {
    "job-name": "x", "partition": "main", "nodelist": "n1", "nodes": "1", "ntasks": "1",
    "cpus-per-task": "1", "mem": "64M", "no-requeue": "", "export": "NIL", "chdir": "/",
    "output": "/dev/null", "open-mode": "append",
}  # fmt: skip


@pytest.mark.parametrize(
    ("user", "wrong", "said"),
    [
        ("root", {"partition": "none"}, "Invalid partition name specified"),
        ("root", {"nodelist": "n9"}, "Invalid node name specified"),
        ("root", {"gres": "gpu:a100:9"}, "Requested node configuration is not available"),
        ("root", {"open-mode": "x"}, "cannot read what it is asked: Invalid open mode"),
        ("root", {"uid": "54321"}, "slurmctld does not know user 54321"),
        ("nobody", {}, "does not let nobody act for user 0: the token must be root's"),
    ],
)
def test_a_submission_that_slurm_refuses_says_why(
    slurm: Slurm, tmp_path: Path, user: str, wrong: dict[str, str], said: str
) -> None:
    script = tmp_path / "x.sh"
    script.write_text("#!/bin/sh\n")
    options = [f"--{name}={value}" for name, value in {**OPTIONS, **wrong}.items()]
    command = ("scontrol", "token", f"username={user}", "lifespan=600")
    server = f"http://127.0.0.1:{slurm.rest_port}"

    async def story() -> None:
        rest = Rest(
            RestSetup(server, token_command=("env", f"SLURM_CONF={slurm.conf}", *command))
        )
        try:
            await rest.submit(options, str(script))
        finally:
            rest.close()

    with pytest.raises(BackendError, match=said) as caught:
        asyncio.run(story())
    assert not isinstance(caught.value, EngineAway), "it would be tried for ever"
    assert not slurm.say("squeue", "-h", "-n", "x")


def test_a_document_that_is_not_read_is_refused(slurm: Slurm) -> None:
    async def story() -> None:
        command = ("scontrol", "token", "username=root", "lifespan=600")
        rest = Rest(
            RestSetup(
                f"http://127.0.0.1:{slurm.rest_port}",
                token_command=("env", f"SLURM_CONF={slurm.conf}", *command),
            )
        )
        with contextlib.closing(rest):
            await rest._ask("POST", "job/submit", b"{")  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]

    with pytest.raises(BackendError, match="what it is asked: Unable to parse") as caught:
        asyncio.run(story())
    assert not isinstance(caught.value, EngineAway), "it would be tried for ever"
