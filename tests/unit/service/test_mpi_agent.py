"""The program by which mpirun gets to other tasks: run as they would, over real sockets."""

import contextlib
import os
import secrets
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from time import monotonic
from typing import NamedTuple

import pytest

from allotment.service import mpi_agent
from allotment.service.mpi_agent import (
    HOST,
    KEY,
    MOST_STRANGERS,
    TASKS,
    AgentLine,
    hosts_in,
    key_at,
    proof,
)
from allotment.wire.words import SIGNALS
from tests.support.cluster import until

HERE, THERE = "127.0.0.1", "127.0.0.2"


class Gang(NamedTuple):
    """Two tasks on two nodes, of which the second serves."""

    env: dict[str, str]
    server: subprocess.Popen[bytes]

    def run(self, *words: str, **env: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-I", "-S", mpi_agent.__file__, *words],
            env={**self.env, **env}, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip

    def said(self, *words: str, **env: str) -> tuple[int, str, str]:
        process = self.run(*words, **env)
        out, wrong = process.communicate(timeout=30)
        return process.returncode, out, wrong

    @property
    def port(self) -> int:
        return int(self.env["MASTER_PORT"])


def a_free_port() -> int:
    with socket.socket() as found:
        found.bind((THERE, 0))
        return found.getsockname()[1]


def listens(port: int, address: str = THERE) -> Callable[[], bool]:
    def check() -> bool:
        with contextlib.suppress(OSError), socket.create_connection((address, port), 5):
            return True
        return False

    return check


def say_to_the_end(line: AgentLine, *messages: bytes) -> None:
    with contextlib.suppress(OSError):  # It hangs up sooner or later.
        for message in messages:
            line.put(message)
        while True:
            line.get(64)


def said_in(path: Path) -> str:
    return path.read_text().strip() if path.exists() else ""


@pytest.fixture
def gang(tmp_path: Path) -> Iterator[Gang]:
    with a_gang(tmp_path, THERE) as made:
        yield made


@contextlib.contextmanager
def a_gang(tmp_path: Path, there: str) -> Iterator[Gang]:
    hosts = tmp_path / "hosts"
    hosts.write_text(f"{HERE} slots=1\n{there} slots=1\n")
    env = {
        "PATH": os.environ["PATH"], "ALLOT_HOSTFILE": str(hosts), KEY: secrets.token_hex(32),
        "MASTER_PORT": str(a_free_port()), "NODE_RANK": "0", "LOCAL_RANK": "0",
    }  # fmt: skip
    server = subprocess.Popen(
        [sys.executable, "-I", "-S", mpi_agent.__file__, "serve"],
        env={**env, "NODE_RANK": "1", "WHERE": "there"}, stdout=subprocess.PIPE,
    )  # fmt: skip
    made = Gang(env, server)
    try:
        until(listens(made.port, there), "the task to listen")
        yield made
    finally:
        server.kill()
        server.wait()
        assert server.stdout is not None
        server.stdout.close()


def test_a_command_runs_in_the_other_task_and_its_exit_code_comes_back(
    gang: Gang, tmp_path: Path
) -> None:
    where = tmp_path / "where"
    assert gang.said(THERE, "echo", "$WHERE", f">{where};", "exit 7")[0] == 7
    assert where.read_text() == "there\n"
    assert gang.said(THERE, "kill -9 $$")[0] == 128 + 9


@pytest.mark.parametrize("there", ["::1", "localhost"])
def test_a_node_may_have_a_name_or_an_address_of_ipv6(tmp_path: Path, there: str) -> None:
    with a_gang(tmp_path, there) as gang:
        assert gang.said(there, "exit 7")[0] == 7


def test_tasks_that_share_a_node_are_told_apart_by_a_table(tmp_path: Path) -> None:
    table = tmp_path / "tasks"
    table.write_text("")
    env = {"PATH": os.environ["PATH"], TASKS: str(table), KEY: secrets.token_hex(32)}
    names = ("a.x", "b.x")
    ports = {name: a_free_port() for name in names}
    table.write_text("".join(f"{name} {THERE} {port}\n" for name, port in ports.items()))
    serve = [sys.executable, "-I", "-S", mpi_agent.__file__, "serve"]
    servers = [subprocess.Popen(serve, env={**env, HOST: name}) for name in names]
    try:
        told = Gang(env, servers[0])
        for code, name in enumerate(names, 1):
            where = tmp_path / name
            words = ("-o", "ConnectionAttempts=10", "-x", name)  # as mpirun calls ssh
            run = f"echo ${HOST} >{where}; exit {code}"
            assert told.said(*words, run) == (code, "", "")
            assert where.read_text() == f"{name}\n"
        assert "no task of this job is on c; there are a.x, b.x" in told.said("c", "true")[2]
    finally:
        for server in servers:
            server.kill()
            server.wait()


def test_a_task_whose_port_another_has_says_so(gang: Gang) -> None:
    code, _, wrong = gang.said("serve", NODE_RANK="1")
    assert code == 1
    assert f"mpi-agent: mpirun cannot get here by port {gang.port}: " in wrong
    assert "Address already in use" in wrong  # by which the cause is known as port_in_use


def test_mpiruns_own_node_needs_nobody(gang: Gang) -> None:
    assert gang.said(HERE, "echo own; exit 3") == (3, "own\n", "")


def test_without_the_key_nothing_is_run_and_no_task_is_taken_for_one(
    gang: Gang, tmp_path: Path
) -> None:
    touched = tmp_path / "touched"
    code, _, wrong = gang.said(THERE, f"touch {touched}", **{KEY: secrets.token_hex(32)})
    assert (code, "is not a task of this job" in wrong) == (255, True)
    with socket.create_connection((THERE, gang.port), 5) as link:
        line, mine = AgentLine(link), b"m" * 32
        line.put(mine)
        theirs = line.get(64)
        line.get(64)
        command = f"touch {touched}".encode()
        proofs = [
            proof(b"another", "caller", mine, theirs),
            proof(b"another", "mpirun", mine, theirs, command),
        ]
        say_to_the_end(line, *proofs, command)
    assert gang.said(THERE, "true")[0] == 0
    assert not touched.exists()


def test_who_listens_in_place_of_a_task_cannot_pass_on_what_is_said(
    gang: Gang, tmp_path: Path
) -> None:
    touched, table = tmp_path / "touched", tmp_path / "tasks"
    with socket.create_server((HERE, 0)) as squatter:
        at = squatter.getsockname()[1]
        table.write_text(f"a {HERE} {at}\nb {THERE} {gang.port}\n")
        asking = gang.run("a", f"touch {touched}", **{TASKS: str(table)})
        mine, _ = squatter.accept()
        with mine, socket.create_connection((THERE, gang.port), 5) as other:
            passing = [
                threading.Thread(target=pass_on, args=each)
                for each in ((mine, other), (other, mine))
            ]
            for each in passing:
                each.start()
            _, wrong = asking.communicate(timeout=30)
            for each in passing:
                each.join(30)
    assert (asking.returncode, "is not a task of this job" in wrong) == (255, True)
    assert not touched.exists()


def pass_on(source: socket.socket, to: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while piece := source.recv(4096):
            to.sendall(piece)
        to.shutdown(socket.SHUT_WR)


@pytest.mark.parametrize("knows", ["nothing", "the key, and who sits between changes the wish"])
def test_a_proof_that_was_overheard_is_worth_nothing(
    gang: Gang, tmp_path: Path, knows: str
) -> None:
    key = key_at(bytes.fromhex(gang.env[KEY]), THERE, gang.port)
    touched = tmp_path / "touched"
    with socket.create_connection((THERE, gang.port), 5) as link:
        line, mine = AgentLine(link), b"m" * 32
        line.put(mine)
        theirs = line.get(64)
        line.get(64)
        of_now = theirs if knows != "nothing" else b"t" * 32
        proofs = proof(key, "caller", mine, of_now), proof(key, "mpirun", mine, of_now, b"true")
        say_to_the_end(line, *proofs, f"touch {touched}".encode())
    assert not touched.exists()


def test_a_crowd_that_says_nothing_keeps_mpirun_from_no_task(gang: Gang) -> None:
    with contextlib.ExitStack() as stack:
        crowd = [
            stack.enter_context(socket.create_connection((THERE, gang.port), 5))
            for _ in range(2 * MOST_STRANGERS)
        ]
        assert gang.said(THERE, "exit 4")[0] == 4
        assert crowd[0].recv(1) == b"", "the oldest was not hung up on"


def test_who_sends_a_little_now_and_then_is_hung_up_on() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        line = AgentLine(ours)
        line._until = monotonic() + 0.2  # pyright: ignore[reportPrivateUsage]
        theirs.sendall(b"\0")
        with pytest.raises(TimeoutError):
            line.get(64)
        theirs.sendall(b"\0")
        with pytest.raises(TimeoutError):
            line.get(64)


@pytest.mark.parametrize("sent", [b"\xff" * 8, b"", b"\0\0\0\x20short"])
def test_what_is_no_wish_keeps_nobody_from_another(gang: Gang, sent: bytes) -> None:
    with socket.create_connection((THERE, gang.port), 5) as link:
        link.sendall(sent)
        assert gang.said(THERE, "exit 4")[0] == 4


def test_what_runs_ends_with_the_one_who_asked_for_it(gang: Gang, tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    asking = gang.run(THERE, f"echo $$ >{pid}; sleep 1000")
    until(lambda: bool(said_in(pid)), "the command to run")
    asking.kill()
    asking.communicate()
    until(lambda: not Path(f"/proc/{pid.read_text().strip()}").exists(), "it to end")


@pytest.mark.parametrize("name", SIGNALS)
def test_a_task_that_is_told_to_end_stays_until_its_commands_have(
    gang: Gang, tmp_path: Path, name: str
) -> None:
    how = signal.Signals[f"SIG{name}"]
    pid, done = tmp_path / "pid", tmp_path / "done"
    words = (
        f"trap 'echo saved >{done}; kill $!; exit 5' {name}; echo $$ >{pid}; sleep 1000 & wait"
    )
    asking = gang.run(THERE, words)
    until(lambda: bool(said_in(pid)), "the command to run")
    gang.server.send_signal(how)
    with pytest.raises(subprocess.TimeoutExpired):
        gang.server.wait(0.2)
    os.kill(int(pid.read_text()), how)
    asking.communicate()
    assert asking.returncode == 5
    assert done.read_text() == "saved\n"
    assert gang.server.wait(10) == 128 + how


def test_a_task_without_commands_ends_at_once(gang: Gang) -> None:
    gang.server.terminate()
    assert gang.server.wait(10) == 128 + signal.SIGTERM


@pytest.mark.parametrize(
    ("words", "env", "code", "told"),
    [
        (("elsewhere", "true"), {}, 1, f"there are {HERE}, {THERE}"),
        ((THERE,), {}, 2, "mpi-agent HOST COMMAND"),
        ((THERE, "true"), {"MASTER_PORT": "x"}, 2, "is for tasks of Allotment"),
        ((THERE, "true"), {"ALLOT_HOSTFILE": "/none"}, 2, "is for tasks of Allotment"),
    ],
)
def test_what_is_wrong_is_said(
    gang: Gang, words: tuple[str, ...], env: dict[str, str], code: int, told: str
) -> None:
    found, _, wrong = gang.said(*words, **env)
    assert (found, told in wrong) == (code, True), wrong


def test_a_host_file_is_read_by_its_first_words(tmp_path: Path) -> None:
    path = tmp_path / "hosts"
    path.write_text("n1.cluster slots=2\n\n10.0.0.2 slots=1\n")
    assert hosts_in(str(path)) == ["n1.cluster", "10.0.0.2"]
