#!/usr/bin/python3 -IS
"""Run a command in another task of the same gang, as `ssh HOST COMMAND` would.

mpirun starts its daemons by this where nothing else of ours can put a process into a task from
another node. The first task on each node but mpirun's own runs it with `serve`, and starts what
it is asked to among its own processes: so that has the task's devices and limits, and ends with
it. It listens at the port that the gang has for its rendezvous, which mpirun's node alone uses.

Both sides prove that they know the key of the gang before anything is run. Standard library
only: it is a program by itself, and imports nothing of ours.
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

KEY = "ALLOT_MPI_KEY"
MOST_COMMAND = 1 << 20
"""mpirun's are some hundred bytes long."""
MOST_CALLERS = 32
HANDSHAKE_S = 10.0
CONNECT_S = 60.0
"""How long a task is waited for that is about to come up."""
END_S = 5.0
ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
LOST = 255
"""As of ssh: the connection broke."""


def main(words: list[str]) -> int:
    """Serve, or be the command on another node; return an exit code."""
    try:
        key, hosts = bytes.fromhex(os.environ[KEY]), hosts_in(os.environ["ALLOT_HOSTFILE"])
        port, here = int(os.environ["MASTER_PORT"]), int(os.environ["NODE_RANK"])
    except (KeyError, ValueError, OSError) as error:
        return _fail(f"is for tasks of Allotment with `mpi: mpirun`: {error!r}", 2)
    if words == ["serve"]:
        if os.environ.get("LOCAL_RANK") != "0":
            signal.pause()
        return serve(key, hosts[here], port)
    while words and words[0].startswith("-"):
        del words[0]
    if len(words) < 2:
        return _fail("mpi-agent HOST COMMAND", 2)
    host, command = words[0], " ".join(words[1:])
    known = [name for name in hosts if host in (name, name.partition(".")[0])]
    if not known:
        return _fail(f"no task of this job is on {host}; there are {', '.join(hosts)}", 1)
    if known[0] == hosts[here]:
        os.execv("/bin/sh", ["/bin/sh", "-c", command])
    return call(key, known[0], port, command)


def _fail(why: str, code: int) -> int:
    sys.stderr.write(f"mpi-agent: {why}\n")
    return code


def hosts_in(path: str) -> list[str]:
    """Return the addresses of the nodes in a host file, in the order of the nodes."""
    with open(path, encoding="utf-8") as file:  # noqa: PTH123 - nothing more is imported
        return [line.split()[0] for line in file if line.split()]


def proof(key: bytes, side: str, *parts: bytes) -> bytes:
    """Return what shows that a side knows the key, for this conversation."""
    return hmac.new(key, b"\0".join((side.encode(), *parts)), hashlib.sha256).digest()


class AgentLine:
    """A connection on which each message goes behind its length."""

    def __init__(self, link: socket.socket) -> None:
        self.link = link

    def put(self, message: bytes) -> None:
        """Send one message."""
        self.link.sendall(len(message).to_bytes(4, "big") + message)

    def get(self, most: int) -> bytes:
        """Return the next message. Raises ConnectionError."""
        size = int.from_bytes(self._exactly(4), "big")
        if size > most:
            raise ConnectionError("a message is too long")
        return self._exactly(size)

    def _exactly(self, size: int) -> bytes:
        found = b""
        while len(found) < size:
            piece = self.link.recv(min(size - len(found), 1 << 16))
            if not piece:
                raise ConnectionError("the other side is gone")
            found += piece
        return found


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


def serve(key: bytes, address: str, port: int) -> int:
    """Run what is asked for with the key, until the task is told to end."""
    listening = socket.create_server((_bind_to(address), port), backlog=MOST_CALLERS)
    room, commands = threading.BoundedSemaphore(MOST_CALLERS), Commands()
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
        if not room.acquire(blocking=False):
            link.close()
            continue
        caller = threading.Thread(target=_answer, args=(key, link, room, commands), daemon=True)
        caller.start()


def _bind_to(address: str) -> str:
    """Return where to listen: a name may mean something else on its own machine."""
    try:
        return str(ipaddress.IPv4Address(address))
    except ValueError:
        return ""


def _answer(
    key: bytes, link: socket.socket, room: threading.BoundedSemaphore, commands: Commands
) -> None:
    with link:
        try:
            link.settimeout(HANDSHAKE_S)
            command = _wish(key, AgentLine(link))
            link.settimeout(None)
            with commands:
                _run(command, link)
        except (OSError, ValueError):
            pass  # Nobody who knows the key, or nobody any more.
        finally:
            room.release()


def _wish(key: bytes, line: AgentLine) -> str:
    """Return the command of one who knows the key. Raises ConnectionError."""
    theirs, mine = line.get(64), secrets.token_bytes(32)
    line.put(mine)
    line.put(proof(key, "task", theirs, mine))
    told, command = line.get(64), line.get(MOST_COMMAND)
    if not hmac.compare_digest(told, proof(key, "mpirun", theirs, mine, command)):
        raise ConnectionError("a wrong key")
    return command.decode()


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


def call(key: bytes, address: str, port: int, command: str) -> int:
    """Have a command run in the task at an address; return its exit code."""
    try:
        with _connected(address, port) as link:
            line, mine = AgentLine(link), secrets.token_bytes(32)
            line.put(mine)
            theirs = line.get(64)
            if not hmac.compare_digest(line.get(64), proof(key, "task", mine, theirs)):
                return _fail(f"what listens at {address}:{port} is no task of this job", LOST)
            wish = command.encode()
            line.put(proof(key, "mpirun", mine, theirs, wish))
            line.put(wish)
            link.settimeout(None)
            return int(line.get(16))
    except OSError as error:
        return _fail(f"{address}:{port}: {error}", LOST)


def _connected(address: str, port: int) -> socket.socket:
    """Connect, as soon as the task has come up. Raises OSError."""
    until = time.monotonic() + CONNECT_S
    while True:
        try:
            link = socket.create_connection((address, port), timeout=HANDSHAKE_S)
        except ConnectionRefusedError:
            if time.monotonic() > until:
                raise
            time.sleep(0.1)
        else:
            link.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            return link


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
