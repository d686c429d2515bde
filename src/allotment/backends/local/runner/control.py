"""The control FIFO of a task: lines of text, so that any version understands any other.

go                 start, if held at the barrier
signal NAME        send a signal to the task's main program: USR1, TERM, 10 …
stop NAME MS       send it, and kill everything after the grace
kill               kill everything now; also ends a hold
freeze, thaw       stop every process where it is, and let it go on, also from a step boundary
ask N              say what its ranks say of themselves; N comes back in the status, as below
suspend N          the same if they can stop at a step boundary, else freeze
stand N STEP       let all ranks stop after that step; after the next one where it is 0
free N             let those that stand give back what memory they have on devices
"""

import contextlib
import os
import signal
from typing import Final, NamedTuple

_READ_BYTES: Final = 65536
_LONGEST_LINE_BYTES: Final = 4096
_LARGEST: Final = 2**62
_LONGEST_GRACE_MS: Final = 7 * 24 * 3600 * 1000


class Instruction(NamedTuple):
    """One line, understood. What does not apply is 0."""

    verb: str
    signum: int = 0
    grace_ms: int = 0
    number: int = 0
    step: int = 0


def open_fifo(path: str) -> int:
    """Make the FIFO, if need be, and open it for reading and writing: so it never ends."""
    with contextlib.suppress(FileExistsError):
        os.mkfifo(path, 0o600)
    return os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)


def take(fd: int, pending: bytes) -> tuple[list[Instruction], bytes]:
    """Read what is there; give the whole commands and the rest. Nonsense is skipped."""
    try:
        pending += os.read(fd, _READ_BYTES)
    except BlockingIOError:
        return [], pending
    *lines, rest = pending.split(b"\n")
    if len(rest) > _LONGEST_LINE_BYTES:
        rest = b""
    found = [parse(line.decode(errors="replace")) for line in lines]
    return [command for command in found if command is not None], rest


def parse(line: str) -> Instruction | None:
    """Understand one line; None for what is no command."""
    match line.split():
        case ["go" | "kill" | "freeze" | "thaw" as verb]:
            return Instruction(verb)
        case ["ask" | "suspend" | "free" as verb, number] if number.isdecimal():
            return Instruction(verb, number=min(int(number), _LARGEST))
        case ["stand", number, step] if number.isdecimal() and step.isdecimal():
            at = min(int(step), _LARGEST)
            return Instruction("stand", number=min(int(number), _LARGEST), step=at)
        case ["signal", name]:
            signum = signal_number(name)
            return Instruction("signal", signum) if signum else None
        case ["stop", name, grace] if grace.isdecimal():
            signum = signal_number(name)
            grace_ms = min(int(grace), _LONGEST_GRACE_MS)
            return Instruction("stop", signum, grace_ms) if signum else None
        case _:
            return None


def signal_number(name: str) -> int:
    """Return the number of TERM, SIGTERM or 15; 0 for what is no signal."""
    if name.isdecimal():
        number = int(name)
        return number if number in signal.valid_signals() else 0
    full = name if name.startswith("SIG") else f"SIG{name}"
    found = signal.Signals.__members__.get(full)
    return 0 if found is None else int(found)
