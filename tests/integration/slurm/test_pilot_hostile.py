"""Another user of a node that a pilot holds: its door, its secrets, its processes, its folder.

Everything is tried as a real second user, against pilots of root's and of an ordinary user's.
"""

import os
import re
import socket
import ssl
import subprocess
from collections.abc import Iterator

import msgspec
import pytest

from allotment.backends.local.runner import procfs
from allotment.backends.pilot import messages as m
from tests.support.cluster import until
from tests.support.on_pilots import OfAUser, Piloted, groups, processes, runners
from tests.support.on_slurm import a_shared_folder, shell
from tests.support.slurm import TOOLS, Slurm

pytestmark = [pytest.mark.needs_root, pytest.mark.needs_tool(*TOOLS, "openssl", "bwrap")]

OTHER = "games"


WHOSE = [Piloted, pytest.param(OfAUser, marks=pytest.mark.slow)]


@pytest.fixture(scope="module", params=WHOSE, ids=["root's", "a user's"])
def cluster(request: pytest.FixtureRequest, slurm: Slurm) -> Iterator[Piloted]:
    with a_shared_folder() as made:
        running = request.param(made / "state", slurm)
        running.up()
        try:
            running.until_held()
            yield running
        finally:
            running.down()
            slurm.clear()
        until(lambda: not processes(str(running.state)), "nothing to be left")


def as_other(script: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a shell script as the second user."""
    return subprocess.run(
        ["/bin/sh", "-c", script, "sh", *words], user=OTHER, group=OTHER, extra_groups=[],
        cwd="/", env={"PATH": "/usr/bin:/bin"}, text=True, capture_output=True, check=False,
    )  # fmt: skip


def of_pilots(cluster: Piloted) -> list[int]:
    """Return every process of the pilots: fences, what is inside, agents, launchers."""
    fences = [
        int(lock.read_text().split()[0])
        for lock in (cluster.state / "pilot/nodes").glob("*/pilot.lock")
    ]
    return [*fences, *(pid for fence in fences for pid in procfs.descendants(fence))]


def secrets_of(cluster: Piloted) -> set[str]:
    """Return all that lets a runner in: secrets and sessions."""
    kept = [path.read_text() for path in (cluster.state / "pilot/nodes").glob("*/pilot.json")]
    found = {secret for text in kept for secret in re.findall(r"[0-9a-f]{64}", text)}
    assert len(found) == 4
    return found


def test_no_secret_can_be_read_by_another_user(cluster: Piloted) -> None:
    look = """
    for pid in "$@"; do cat /proc/$pid/cmdline /proc/$pid/environ /proc/$pid/fd/* \
        /proc/$pid/mem /proc/$pid/maps; done
    cat /proc/[0-9]*/cmdline
    """
    known = secrets_of(cluster)
    everything = as_other(look, *map(str, of_pilots(cluster))).stdout
    assert "fence" in everything, "command lines are shown to all"
    assert not any(secret in everything for secret in known)
    numbers = " ".join(cluster.pilots().values())
    ask = f"""
    find {cluster.state} {cluster.state}/pilot -type f -exec cat {{}} +
    for job in {numbers}; do
        scontrol show job $job; scontrol write batch_script $job -; squeue -j $job -O ALL
    done
    """
    env = f"export SLURM_CONF={cluster.slurm.conf};"
    told = as_other(env + ask).stdout
    assert "JobId=" in told, "jobs are shown to all"
    assert not any(secret in told for secret in known)
    spool = f"find {cluster.slurm.folder} -type f -exec cat {{}} + 2>/dev/null"
    assert not any(secret in as_other(spool).stdout for secret in known)


def test_no_process_of_a_pilot_can_be_signalled_or_traced(cluster: Piloted) -> None:
    mark = f"sleep 6000.{os.getpid()}"
    job = cluster.submit(shell(mark, resources={"gpu": 1}))
    cluster.wait_for(job, "running")
    until(lambda: bool(processes(mark)), "its process")
    before = of_pilots(cluster)
    assert set(processes(mark)) & set(before)
    try_all = """
    for pid in "$@"; do for signal in STOP TERM KILL; do kill -$signal $pid && echo $pid; done
        readlink /proc/$pid/cwd /proc/$pid/root /proc/$pid/ns/pid
        echo 0 > /proc/$pid/oom_score_adj && echo 1000 > /proc/$pid/oom_score_adj && echo $pid
        nsenter --target $pid --pid --mount echo $pid
    done
    """
    done = as_other(try_all, *map(str, before))
    assert done.stdout == ""
    states = [found.state for pid in before if (found := procfs.stat(pid))]
    assert len(states) == len(before)
    assert "T" not in states
    assert cluster.state_of(job) == "running"
    cluster.allot("cancel", str(job))
    cluster.wait_for(job, "cancelled")


def test_no_group_of_a_pilot_can_be_frozen_joined_or_removed(cluster: Piloted) -> None:
    if isinstance(cluster, OfAUser):
        assert not groups(cluster.state), "this Slurm gives a user none"
        return
    job = cluster.submit(shell("sleep 1000", resources={"gpu": 1}))
    cluster.wait_for(job, "running")
    made = groups(cluster.state)
    assert made
    try_all = """
    for group in "$@"; do for folder in $group $group/*/; do
        for file in freezer.state cgroup.freeze; do
            [ -e $folder/$file ] && echo FROZEN > $folder/$file && echo $folder
        done
        echo $$ > $folder/cgroup.procs && echo $folder
        mkdir $folder/mine && echo $folder
        rmdir $folder && echo $folder
    done; done
    """
    assert as_other(try_all, *made).stdout == ""
    cluster.allot("cancel", str(job))
    cluster.wait_for(job, "cancelled")


def test_nothing_can_be_put_into_a_pilots_folder(cluster: Piloted) -> None:
    nodes = cluster.state / "pilot/nodes"
    paths = [nodes.parent, nodes, nodes / "n1", nodes / "n1/tasks", nodes / "n1/run"]
    assert all(path.is_dir() for path in paths)
    put = 'for path in "$@"; do touch $path/junk && echo $path; ls $path; done'
    assert as_other(put, *map(str, paths)).stdout == ""
    sockets = [path for path in nodes.rglob("*") if path.is_socket() or path.is_fifo()]
    assert sockets
    knock = 'for path in "$@"; do echo kill > $path && echo $path; done'
    assert as_other(knock, *map(str, sockets)).stdout == ""


class Caller:
    """One who dials the door and says what it likes."""

    def __init__(self, cluster: Piloted) -> None:
        host, port = (cluster.state / "pilot/address").read_text().split()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        self.socket = context.wrap_socket(socket.create_connection((host, int(port)), 10))

    def answer(self, data: bytes) -> bytes:
        """Send bytes; return what comes until the other side hangs up."""
        self.socket.sendall(data)
        said = b""
        try:
            while part := self.socket.recv(4096):
                said += part
        except (TimeoutError, OSError):
            pass
        self.socket.close()
        return said


def test_nobody_is_let_in_without_the_secret(cluster: Piloted) -> None:
    epoch = msgspec.json.decode((cluster.state / "pilot/nodes/n1/pilot.json").read_bytes())
    number = cluster.pilots()["n1"]
    before = cluster.pilots()

    def hello(**more: object) -> bytes:
        right = {"protocol": m.PROTOCOL, "node": "n1", "epoch": epoch["epoch"], "job": number}
        wrong = {"secret": "", "session": "", **more}
        return m.framed(m.Hello(**{**right, **wrong}))  # pyright: ignore

    tries = [
        hello(),
        hello(secret="0" * 64),
        hello(session="0" * 64),
        hello(secret="é" * 64),
        hello(node="n9"),
        hello(epoch=-1),
        hello(epoch=2**63),
        m.framed(m.Answer(1)),
        b"\x00\x00\x00\x01\xc1",
        b"\xff\xff\xff\xff" + b"x" * 100,
        b"\x00\x00\x3f\xff" + b"\x91" * 16383,
        b"GET / HTTP/1.1\r\n\r\n",
    ]
    for data in tries:
        said = Caller(cluster).answer(data)
        assert b"welcome" not in said, (data[:80], said)
    job = cluster.submit(shell("echo fine"))
    cluster.wait_for(job, "succeeded")
    assert cluster.pilots() == before, "no pilot was given up for it"


def test_a_stolen_secret_lets_nobody_in_a_second_time(cluster: Piloted) -> None:
    kept = msgspec.json.decode((cluster.state / "pilot/nodes/n1/pilot.json").read_bytes())
    stolen = m.Hello(m.PROTOCOL, "n1", kept["epoch"], kept["job"], kept["secret"], "0" * 64)
    said = Caller(cluster).answer(m.framed(stolen))
    assert b"another runner was let in" in said


def is_hung_up(caller: Caller) -> bool:
    caller.socket.settimeout(0)
    try:
        return caller.socket.recv(1) == b""
    except (ssl.SSLWantReadError, BlockingIOError):
        return False
    except OSError:
        return True


def test_a_crowd_that_says_nothing_keeps_no_runner_out(cluster: Piloted) -> None:
    crowd = [Caller(cluster) for _ in range(300)]
    try:
        until(lambda: any(map(is_hung_up, crowd)), "the first to be pushed out")
        assert not is_hung_up(crowd[-1])
        for pid in runners(cluster.state):
            os.kill(pid, 9)  # So that it dials again.
        job = cluster.submit(shell("echo fine", count=2, resources={"gpu": 4}))
        cluster.wait_for(job, "succeeded")
    finally:
        for caller in crowd:
            caller.socket.close()


def test_pilots_of_another_user_with_our_names_are_no_pilots_of_ours(
    cluster: Piloted,
) -> None:
    own = (cluster.state / "pilot/name").read_text()
    before = cluster.pilots()
    names = [f"{own}-n1.{epoch}" for epoch in range(1, 9)]
    for name in names:
        cluster.slurm.say(
            "sbatch", f"--uid={OTHER}", "--chdir=/", "--output=/dev/null", "--hold",
            "--wrap=true", "--job-name", name,
        )  # fmt: skip
    job = cluster.submit(shell("echo fine"))
    cluster.wait_for(job, "succeeded")
    theirs = cluster.slurm.say("squeue", "-h", f"--user={OTHER}", "-o", "%i").split()
    assert len(theirs) == len(names), "none of them was cancelled as a stray of ours"
    assert cluster.pilots() == before
    cluster.slurm.say("scancel", f"--user={OTHER}")
