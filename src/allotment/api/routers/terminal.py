"""WebSocket /v1/jobs/{ref}/exec: a command inside a running task, at a distance."""

import asyncio
import contextlib
import re
from collections.abc import Callable
from typing import Annotated

import msgspec
from fastapi import Query, WebSocket
from starlette.types import Message

from allotment.api.fair_use import FairUse
from allotment.api.openapi import a_router
from allotment.api.render import ENCODER, Caller, Job, TheService
from allotment.api.shapes import Control, Exited, Greeting
from allotment.api.terminal import Terminal
from allotment.model.errors import AllotmentError, Rejected
from allotment.model.ids import Actor, JobId
from allotment.service.service import Service

router = a_router()

GREETING_S = 10.0
DRAIN_S = 0.5
"""After the command has ended: something it left behind may hold its terminal open."""

GONE_S = 1.0
"""Between looks whether the client is still there."""

MOST_SIZE = 1000
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
REFUSED, MISUSED, BROKEN = 1008, 1007, 1011
"""Why we hang up, in WebSocket's numbers."""

LONGEST_REASON = 120
"""In bytes; a close frame holds no more."""


@router.websocket("/v1/jobs/{ref}/exec")
async def exec_in_task(
    job: Job,
    websocket: WebSocket,
    service: TheService,
    caller: Caller,
    task: Annotated[str, Query(max_length=200)] = "",
) -> None:
    """Run a command in a task; see the description of the API for the frames."""
    fair_use: FairUse = websocket.app.state.fair_use
    with fair_use.hold("execs", caller):
        await _exec(job, websocket, service, caller, task)


async def _exec(
    job: JobId, websocket: WebSocket, service: Service, caller: Actor, task: str
) -> None:
    _, index = service.output.task_index(job, None, task or "0")
    service.output.enter_argv(job, index, ["true"], caller)  # refuses before anything is opened
    await websocket.accept()
    greeting = await _greeting(websocket)
    if greeting is None:
        return
    try:
        argv = service.output.enter_argv(job, index, _argv(greeting), caller)
        terminal = await Terminal.start(
            argv, tty=greeting.tty, rows=greeting.rows, cols=greeting.cols
        )
    except (AllotmentError, OSError) as error:
        words = error.message if isinstance(error, Rejected) else f"It cannot start: {error}"
        await _hang_up(websocket, REFUSED, words)
        return
    await relay(websocket, terminal)


def _argv(greeting: Greeting) -> list[str]:
    """Return the command, with the variables that its client wants set."""
    variables = [f"{name}={value}" for name, value in greeting.env.items()]
    return ["env", *variables, *greeting.argv] if variables else list(greeting.argv)


async def _greeting(websocket: WebSocket) -> Greeting | None:
    """Read the first frame; hang up and return None when it is not one."""
    try:
        async with asyncio.timeout(GREETING_S):
            message = await websocket.receive()
    except TimeoutError:
        await _hang_up(websocket, MISUSED, "No first frame came.")
        return None
    if message["type"] == "websocket.disconnect":
        return None
    try:
        greeting = msgspec.json.decode(message.get("text") or "", type=Greeting)
        trouble = _trouble(greeting)
    except (msgspec.MsgspecError, RecursionError) as error:
        greeting, trouble = None, f"The first frame cannot be read: {error}"
    if trouble:
        await _hang_up(websocket, MISUSED, trouble)
        return None
    return greeting


def _trouble(greeting: Greeting) -> str:
    words = (*greeting.argv, *greeting.env.values())
    if not greeting.argv or not greeting.argv[0]:
        return "There is no command."
    if any("\0" in word for word in words):
        return "An argument has a NUL character in it."
    if not all(VARIABLE.fullmatch(name) for name in greeting.env):
        return "That is not the name of a variable."
    if not _is_size(greeting.rows, greeting.cols):
        return "That is not the size of a terminal."
    return ""


def _is_size(rows: int, cols: int) -> bool:
    return 0 < rows <= MOST_SIZE and 0 < cols <= MOST_SIZE


async def _hang_up(websocket: WebSocket, code: int, words: str) -> None:
    reason = words.encode()[:LONGEST_REASON].decode(errors="ignore")
    with contextlib.suppress(RuntimeError, OSError):
        await websocket.close(code, reason)


# ── relaying ────────────────────────────────────────────────────────────────────────────


async def relay(websocket: WebSocket, terminal: Terminal) -> None:
    """Pass bytes both ways until the command ends or the client leaves; end all tasks then."""
    out = asyncio.ensure_future(_output(websocket, terminal))
    in_ = asyncio.ensure_future(_input(websocket, terminal))
    end = asyncio.ensure_future(terminal.wait())
    gone = asyncio.ensure_future(_gone(websocket.scope["state"]["hung_up"]))
    code: int | None = None
    try:
        await asyncio.wait({in_, end, gone}, return_when=asyncio.FIRST_COMPLETED)
        if end.done():
            await asyncio.wait({out, in_}, timeout=DRAIN_S, return_when=asyncio.FIRST_COMPLETED)
            code = None if in_.done() else end.result()
    finally:
        for task in (out, in_, end, gone):
            task.cancel()
        await asyncio.wait({out, in_, end, gone})
        await terminal.close()
    if code is not None:
        with contextlib.suppress(RuntimeError, OSError):
            await websocket.send_text(ENCODER.encode(Exited(code)).decode())
            await websocket.close()


async def _output(websocket: WebSocket, terminal: Terminal) -> None:
    with contextlib.suppress(RuntimeError, OSError):  # the client hung up
        while data := await terminal.read():
            await websocket.send_bytes(data)


async def _input(websocket: WebSocket, terminal: Terminal) -> None:
    """Take what the client sends. Returns when it hangs up, or talks nonsense."""
    while True:
        message = await websocket.receive()
        if message["type"] == "websocket.disconnect":
            return
        if data := message.get("bytes"):
            await terminal.write(data)
        elif not await _control(message, terminal):
            await _hang_up(websocket, MISUSED, "That text frame cannot be read.")
            return


async def _gone(hung_up: Callable[[], bool]) -> None:
    """Return once the client is gone, also while nothing of what it sent is taken."""
    while not hung_up():
        await asyncio.sleep(GONE_S)


async def _control(message: Message, terminal: Terminal) -> bool:
    try:
        control = msgspec.json.decode(message.get("text") or "{}", type=Control)
    except (msgspec.MsgspecError, RecursionError):
        return False
    if control.resize is not None:
        if not _is_size(*control.resize):
            return False
        terminal.resize(*control.resize)
    if control.eof:
        await terminal.end_input()
    return True
