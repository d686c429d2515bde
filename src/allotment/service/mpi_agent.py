#!/usr/bin/python3 -IS
"""Run a command in another task of the same gang, as `ssh HOST COMMAND` would.

mpirun starts its daemons by this where nothing else of ours can put a process into a task from
another node. The first task on each node but mpirun's own runs it with `serve`, and starts what
it is asked to among its own processes: so that has the task's devices and limits, and ends with
it. It listens at the port that the gang has for its rendezvous, which mpirun's node alone uses.

Where each task is a host of its own, a file (ALLOT_MPI_TASKS) has a line `NAME ADDRESS PORT`
for each that serves, and each of these knows its name (ALLOT_MPI_HOST).

Both sides prove that they know the key of the gang before anything is run. Anybody may connect:
who does not prove it soon is hung up on, the oldest first where there are many. Standard
library only: it is a program by itself, and imports nothing of ours.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import ipaddress
import os
import secrets
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping

KEY, TASKS, HOST = "ALLOT_MPI_KEY", "ALLOT_MPI_TASKS", "ALLOT_MPI_HOST"
VALUED = frozenset("BbcDEeFIiJLlmOoPpQRSWw")
"""The options of ssh that have a value, which mpirun may be told to give (plm_rsh_args)."""
MOST_COMMAND = 1 << 20
"""mpirun's are some hundred bytes long."""
MOST_PROOF = 64
MOST_STRANGERS = 32
"""Of callers that have not shown that they know the key."""
HANDSHAKE_S = 10.0
CONNECT_S = 60.0
"""How long a task is waited for that is about to come up."""
PULLED_S = 1800.0
"""The same for one that may be waiting for its image: where it fails, its gang does."""
END_S = 5.0
ENDING = (
    signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1,
    signal.SIGUSR2, signal.SIGALRM,
)  # fmt: skip
"""All by which a job may want to be warned."""
LOST = 255
"""As of ssh: the connection broke."""


def main(words: list[str]) -> int:
    """Serve, or be the command on another node; return an exit code."""
    serves = words == ["serve"]
    try:
        key, (tasks, here) = bytes.fromhex(os.environ[KEY]), tasks_in(os.environ)
        address, port = tasks[here] if serves else ("", 0)
    except (KeyError, ValueError, IndexError, OSError) as error:
        return _fail(f"is for tasks of Allotment that mpirun starts ranks in: {error!r}", 2)
    if serves:
        if TASKS not in os.environ and os.environ.get("LOCAL_RANK") != "0":
            signal.pause()
        try:
            return serve(key, address, port)
        except OSError as error:
            return _fail(f"mpirun cannot get here by port {port}: {error}", 1)
    while words and words[0].startswith("-"):
        del words[: 2 if words[0][1:] in VALUED else 1]
    if len(words) < 2:
        return _fail("mpi-agent HOST COMMAND", 2)
    host, command = words[0], " ".join(words[1:])
    known = [name for name in tasks if host in (name, name.partition(".")[0])]
    if not known:
        return _fail(f"no task of this job is on {host}; there are {', '.join(tasks)}", 1)
    if known[0] == here:
        os.execv("/bin/sh", ["/bin/sh", "-c", command])
    wait_s = PULLED_S if TASKS in os.environ else CONNECT_S
    return call(key, *tasks[known[0]], command, wait_s)


def _fail(why: str, code: int) -> int:
    sys.stderr.write(f"mpi-agent: {why}\n")
    return code


def tasks_in(env: Mapping[str, str]) -> tuple[dict[str, tuple[str, int]], str]:
    """Return where each task listens, by the name of its host, and the name of this one's host;
    '' for one that mpirun starts no ranks in. Raises KeyError, ValueError, IndexError, OSError.
    """
    if TASKS in env:
        with open(env[TASKS], encoding="utf-8") as file:  # noqa: PTH123 - as below
            lines = [line.split() for line in file]
        return {name: (at, int(port)) for name, at, port in lines}, env.get(HOST, "")
    hosts, port = hosts_in(env["ALLOT_HOSTFILE"]), int(env["MASTER_PORT"])
    return {host: (host, port) for host in hosts}, hosts[int(env["NODE_RANK"])]


def hosts_in(path: str) -> list[str]:
    """Return the addresses of the nodes in a host file, in the order of the nodes."""
    with open(path, encoding="utf-8") as file:  # noqa: PTH123 - nothing more is imported
        return [line.split()[0] for line in file if line.split()]


def proof(key: bytes, side: str, *parts: bytes) -> bytes:
    """Return what shows that a side knows the key, for this conversation."""
    return hmac.new(key, b"\0".join((side.encode(), *parts)), hashlib.sha256).digest()


def key_at(key: bytes, address: str, port: int) -> bytes:
    """Return what one task of a gang is known by.

    A neighbour may listen at its place before it does, and cannot pass on what is said there.
    """
    return hmac.new(key, f"{address} {port}".encode(), hashlib.sha256).digest()


class AgentLine:
    """A connection on which each message goes behind its length.

    All that is read, but for a last message, has to come within HANDSHAKE_S.
    """

    def __init__(self, link: socket.socket) -> None:
        self.link = link
        self._until = time.monotonic() + HANDSHAKE_S

    def put(self, message: bytes) -> None:
        """Send one message."""
        self.link.sendall(len(message).to_bytes(4, "big") + message)

    def get(self, most: int) -> bytes:
        """Return the next message. Raises OSError: it is too long, late, or will never come."""
        size = int.from_bytes(self._exactly(4), "big")
        if size > most:
            raise ConnectionError("a message is too long")
        return self._exactly(size)

    def last(self, most: int) -> bytes:
        """Return the next message, whenever it comes. Raises OSError."""
        self._until = float("inf")
        self.link.settimeout(None)
        return self.get(most)

    def _exactly(self, size: int) -> bytes:
        found = bytearray()
        while len(found) < size:
            if self._until != float("inf"):
                left = self._until - time.monotonic()
                if left <= 0:
                    raise TimeoutError("the other side is too slow")
                self.link.settimeout(left)
            piece = self.link.recv(min(size - len(found), 1 << 16))
            if not piece:
                raise ConnectionError("the other side is gone")
            found += piece
        return bytes(found)


# ── the task that mpirun's daemon runs in ───────────────────────────────────────────────


class Commands:
    """How many commands run. One that is told to end stays until they have.

    mpirun passes the signal on to its ranks, which may need all their grace.
    """

    def __init__(self) -> None:
        self._running = 0
        self._told = 0
        self._lock = threading.RLock()
        for number in ENDING:
            signal.signal(number, self._end)

    def _end(self, number: int, _frame: object) -> None:
        with self._lock:
            self._told = number
            self._end_if_idle()

    def _end_if_idle(self) -> None:
        if self._told and not self._running:
            os._exit(128 + self._told)

    def __enter__(self) -> None:
        with self._lock:
            self._running += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._running -= 1
            self._end_if_idle()


class Strangers:
    """Callers that have not shown that they know the key: a crowd of them pushes itself out."""

    def __init__(self) -> None:
        self._links: dict[socket.socket, None] = {}
        self._lock = threading.Lock()

    def add(self, link: socket.socket) -> None:
        """Let one try, in place of the oldest where there are many."""
        with self._lock:
            self._links[link] = None
            if len(self._links) > MOST_STRANGERS:
                oldest = next(iter(self._links))
                del self._links[oldest]
                with contextlib.suppress(OSError):
                    oldest.shutdown(socket.SHUT_RDWR)

    def remove(self, link: socket.socket) -> None:
        """Note that one is a stranger no more, or gone."""
        with self._lock:
            self._links.pop(link, None)


def serve(key: bytes, address: str, port: int) -> int:
    """Run what is asked for with the key, until the task is told to end."""
    listening, key = _listening(address, port), key_at(key, address, port)
    strangers, commands = Strangers(), Commands()
    # A signal that comes to another thread wakes this one, which alone handles it.
    woken, waking = socket.socketpair()
    waking.setblocking(False)
    signal.set_wakeup_fd(waking.fileno(), warn_on_full_buffer=False)
    while True:
        ready, _, _ = select.select([listening, woken], [], [])
        if woken in ready:
            woken.recv(64)
        if listening not in ready:
            continue
        link, _ = listening.accept()
        strangers.add(link)
        told = (key, link, strangers, commands)
        try:
            threading.Thread(target=_answer, args=told, daemon=True).start()
        except RuntimeError:  # The task may have no more processes.
            strangers.remove(link)
            link.close()


def _listening(address: str, port: int) -> socket.socket:
    """Listen at an address, or at all of this machine for a name: that may mean something else
    on its own machine."""
    try:
        version = ipaddress.ip_address(address).version
    except ValueError:
        both = socket.has_dualstack_ipv6()
        family = socket.AF_INET6 if both else socket.AF_INET
        return socket.create_server(("", port), family=family, backlog=128, dualstack_ipv6=both)
    family = socket.AF_INET6 if version == 6 else socket.AF_INET
    return socket.create_server((address, port), family=family, backlog=128)


def _answer(key: bytes, link: socket.socket, strangers: Strangers, commands: Commands) -> None:
    with link:
        try:
            command = _wish(key, AgentLine(link), strangers)
            link.settimeout(None)
            with commands:
                _run(command, link)
        except (OSError, ValueError):
            pass  # Nobody who knows the key, or nobody any more.
        finally:
            strangers.remove(link)


def _wish(key: bytes, line: AgentLine, strangers: Strangers) -> str:
    """Return the command of one who knows the key. Raises OSError."""
    theirs, mine = line.get(MOST_PROOF), secrets.token_bytes(32)
    line.put(mine)
    line.put(proof(key, "task", theirs, mine))
    _check(line.get(MOST_PROOF), proof(key, "caller", theirs, mine))
    strangers.remove(line.link)
    line.put(b"")
    told, command = line.get(MOST_PROOF), line.get(MOST_COMMAND)
    _check(told, proof(key, "mpirun", theirs, mine, command))
    return command.decode()


def _check(told: bytes, right: bytes) -> None:
    if not hmac.compare_digest(told, right):
        raise ConnectionError("a wrong key")


def _run(command: str, link: socket.socket) -> None:
    """Run a command for as long as the caller is there; tell its exit code."""
    process = subprocess.Popen(
        ["/bin/sh", "-c", command], stdin=subprocess.DEVNULL, start_new_session=True
    )
    watching = threading.Thread(target=_end_with, args=(link, process), daemon=True)
    watching.start()
    code = process.wait()
    AgentLine(link).put(str(code if code >= 0 else 128 - code).encode())


def _end_with(link: socket.socket, process: subprocess.Popen[bytes]) -> None:
    """End a command whose caller is gone: it says nothing more while it is there."""
    with contextlib.suppress(OSError):
        link.recv(1)
    for how in (signal.SIGTERM, signal.SIGKILL):
        if process.poll() is not None:
            return
        try:
            os.killpg(process.pid, how)
            process.wait(END_S)
        except (OSError, subprocess.TimeoutExpired):
            continue


# ── the task that mpirun runs in ────────────────────────────────────────────────────────


class Impostor(Exception):
    """What listens does not know the key."""


def call(key: bytes, address: str, port: int, command: str, wait_s: float) -> int:
    """Have a command run in the task at an address, once it is up; return its exit code."""
    try:
        key = key_at(key, address, port)
        line, known = _met(key, address, port, wait_s)
        with line.link:
            wish = command.encode()
            line.put(proof(key, "mpirun", *known, wish))
            line.put(wish)
            return int(line.last(16))
    except Impostor:
        return _fail(f"what listens at {address}:{port} is not a task of this job", LOST)
    except OSError as error:
        return _fail(f"{address}:{port}: {error}", LOST)


def _met(
    key: bytes, address: str, port: int, wait_s: float
) -> tuple[AgentLine, tuple[bytes, bytes]]:
    """Connect to a task, as soon as it has come up and takes us for what we are.

    Returns what both sides said, too. Raises OSError, Impostor.
    """
    until, notice = time.monotonic() + wait_s, time.monotonic() + CONNECT_S
    while True:
        try:
            link = socket.create_connection((address, port), timeout=HANDSHAKE_S)
            try:
                link.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
                line = AgentLine(link)
                return line, _greeted(key, line)
            except BaseException:
                link.close()
                raise
        except (ConnectionError, TimeoutError) as error:  # Not up yet, or pushed out.
            if time.monotonic() > until:
                raise
            if time.monotonic() > notice:
                _fail(f"{address}:{port} is waited for: {error}", 0)
                notice = float("inf")
            time.sleep(0.1)


def _greeted(key: bytes, line: AgentLine) -> tuple[bytes, bytes]:
    """Show a task that we know the key, and have it show that. Raises OSError, Impostor."""
    mine = secrets.token_bytes(32)
    line.put(mine)
    theirs = line.get(MOST_PROOF)
    if not hmac.compare_digest(line.get(MOST_PROOF), proof(key, "task", mine, theirs)):
        raise Impostor
    line.put(proof(key, "caller", mine, theirs))
    line.get(MOST_PROOF)
    return mine, theirs


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
