"""A command inside a running task → the host command that does it, and that program.

It speaks to the API server over a WebSocket, as `kubectl exec` does: each message begins with
the number of its channel.
"""

import asyncio
import contextlib
import fcntl
import os
import signal
import struct
import sys
import termios
import tty
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlencode, urlsplit, urlunsplit

import msgspec

from allotment.backends.kubernetes.kubeconfig import IN_CLUSTER, Credentials, access_of
from allotment.backends.kubernetes.request import CONTAINER
from allotment.model.errors import BackendError
from allotment.service.isolated import isolated

STDIN, STDOUT, STDERR, ERROR, RESIZE, CLOSE = range(6)
CLOSE_STDIN = bytes((255, STDIN))
PROTOCOLS = ("v5.channel.k8s.io", "v4.channel.k8s.io")
"""Only the newer one can say that no more input comes; before Kubernetes 1.30 there is none."""
PIECE = 32 * 1024
FAILED = 255
OURS = ("KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT", "HOME", "PATH")
"""What a service account's address, or a login program, is found by."""


def enter_argv(
    kubeconfig: str, context: str, namespace: str, pod: str, argv: Sequence[str]
) -> list[str]:
    """Return the command; it uses the terminal it is started on."""
    known = [f"{name}={os.environ[name]}" for name in OURS if name in os.environ]
    program = isolated(
        "allotment.backends.kubernetes.enter", kubeconfig, context, namespace, pod
    )
    return ["/usr/bin/env", *known, *program, *argv]


def exit_code(said: bytes) -> int:
    """Read how the command ended, as the server says it at the end."""
    try:
        told = msgspec.json.decode(said, type=_Ending)
    except msgspec.DecodeError:
        return FAILED
    if told.status == "Success":
        return 0
    for cause in told.details.causes or ():
        if cause.reason == "ExitCode" and cause.message.isdecimal():
            return int(cause.message)
    print(f"allot: Kubernetes: {told.message}", file=sys.stderr)
    return FAILED


class _Cause(msgspec.Struct, frozen=True):
    reason: str = ""
    message: str = ""


class _Details(msgspec.Struct, frozen=True):
    causes: tuple[_Cause, ...] | None = None


class _Ending(msgspec.Struct, frozen=True):
    status: str = ""
    message: str = ""
    details: _Details = _Details()


def main() -> None:
    """Run a command in a pod; end with its exit code."""
    kubeconfig, context, namespace, pod, *argv = sys.argv[1:]
    is_tty = sys.stdin.isatty()
    before = termios.tcgetattr(0) if is_tty else None
    try:
        if is_tty:
            tty.setraw(0)
        # Not asyncio.run, which waits for a thread that waits for input.
        loop = asyncio.new_event_loop()
        told = _enter(kubeconfig, context, namespace, pod, argv, is_tty=is_tty)
        code = loop.run_until_complete(told)
    except (BackendError, OSError) as error:
        print(f"allot: {error}", file=sys.stderr)
        code = FAILED
    finally:
        if before is not None:
            termios.tcsetattr(0, termios.TCSADRAIN, before)
    os._exit(code)


async def _enter(
    kubeconfig: str,
    context: str,
    namespace: str,
    pod: str,
    argv: Sequence[str],
    *,
    is_tty: bool,
) -> int:
    from websockets.asyncio.client import connect
    from websockets.exceptions import WebSocketException

    access = access_of(kubeconfig, context)
    credentials = Credentials(access)
    token = await credentials.token()
    tls = await credentials.tls()
    words = [
        ("container", CONTAINER), ("stdin", "true"), ("stdout", "true"),
        ("stderr", "false" if is_tty else "true"), ("tty", str(is_tty).lower()),
        *(("command", word) for word in argv),
    ]  # fmt: skip
    place = urlsplit(access.server)
    scheme = "wss" if tls is not None else "ws"
    path = f"{place.path}/api/v1/namespaces/{namespace}/pods/{pod}/exec"
    url = urlunsplit((scheme, place.netloc, path, urlencode(words), ""))
    more: dict[str, Any] = {}
    if tls is not None:
        more = {"ssl": tls, "server_hostname": access.server_name or place.hostname}
    try:
        async with connect(
            url, subprotocols=PROTOCOLS, max_size=None, proxy=None,  # pyright: ignore[reportArgumentType]
            additional_headers={"Authorization": f"Bearer {token}"} if token else None, **more,
        ) as socket:  # fmt: skip
            return await _talk(socket, is_tty=is_tty)
    except WebSocketException as error:
        raise BackendError(f"Kubernetes does not let a command into {pod}: {error}") from error


async def _talk(socket: Any, *, is_tty: bool) -> int:
    loop = asyncio.get_running_loop()
    sends = [asyncio.create_task(_send(socket))]
    if is_tty:
        resized = asyncio.Event()
        resized.set()
        loop.add_signal_handler(signal.SIGWINCH, resized.set)
        sends.append(asyncio.create_task(_resize(socket, resized)))
    code = FAILED
    try:
        async for message in socket:
            channel, data = message[0], bytes(message[1:])
            if channel in (STDOUT, STDERR):
                await loop.run_in_executor(None, _write, channel, data)
            elif channel == ERROR:
                code = exit_code(data)
                break
    finally:
        for task in sends:
            task.cancel()
    return code


def _write(fd: int, data: bytes) -> None:
    with contextlib.suppress(BrokenPipeError):
        while data:
            data = data[os.write(fd, data) :]


async def _send(socket: Any) -> None:
    loop = asyncio.get_running_loop()
    while data := await loop.run_in_executor(None, _read):
        await socket.send(bytes((STDIN,)) + data)
    if socket.subprotocol == PROTOCOLS[0]:
        await socket.send(CLOSE_STDIN)


def _read() -> bytes:
    try:
        return os.read(0, PIECE)
    except OSError:
        return b""


async def _resize(socket: Any, resized: asyncio.Event) -> None:
    while True:
        await resized.wait()
        resized.clear()
        rows, cols, _, _ = struct.unpack("HHHH", fcntl.ioctl(1, termios.TIOCGWINSZ, bytes(8)))
        await socket.send(bytes((RESIZE,)) + b'{"Width":%d,"Height":%d}' % (cols, rows))


__all__ = ["IN_CLUSTER", "enter_argv", "exit_code", "main"]
