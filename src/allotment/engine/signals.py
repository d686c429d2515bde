"""What a task ended by a signal most likely died of. Data, as exit_codes.

Numbers are those of Linux on x86-64 and arm64, given here so that a log reads the same
everywhere.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from allotment.model.diagnosis import Diagnosis, Owner, RetryClass

USER, PLATFORM = Owner.USER, Owner.PLATFORM
UNKNOWN = RetryClass.UNKNOWN

CRASH: Final = (
    "Set PYTHONFAULTHANDLER=1 to see where; look for a mismatch of compiled packages."
)
OUTSIDE: Final = "See who or what on that node sent it: another program, or a person."


class Signal(msgspec.Struct, frozen=True):
    """A signal's name, and what it says about the task that it ended."""

    name: str
    diagnosis: Diagnosis


def _ended(name: str, code: str, cause: str, owner: Owner, advice: str) -> Signal:
    return Signal(name, Diagnosis(code, cause, owner, UNKNOWN, advice))


BY_SIGNAL: Final[Mapping[int, Signal]] = {
    1: _ended("SIGHUP", "hangup", "Its terminal or session went away.", PLATFORM, OUTSIDE),
    2: _ended(
        "SIGINT", "interrupted", "Something interrupted it, as Ctrl-C does.", USER, OUTSIDE
    ),
    3: _ended("SIGQUIT", "quit", "Something told it to quit and dump core.", USER, OUTSIDE),
    4: _ended(
        "SIGILL",
        "illegal_instruction",
        "It ran an instruction that this processor does not have.",
        USER,
        "It was built for another processor: rebuild it, or ask for the right arch or node.",
    ),
    5: _ended("SIGTRAP", "trapped", "It hit a breakpoint or a trap.", USER, CRASH),
    6: _ended(
        "SIGABRT",
        "aborted",
        "It aborted: an assertion, an uncaught C++ exception or a corrupted heap.",
        USER,
        CRASH,
    ),
    7: _ended(
        "SIGBUS",
        "bus_error",
        "It touched memory that could not be provided; often /dev/shm is full.",
        USER,
        "Use fewer loader workers or less shared memory; check that mapped files are whole.",
    ),
    8: _ended(
        "SIGFPE", "arithmetic_error", "It divided an integer by zero, or the like.", USER, CRASH
    ),
    9: _ended(
        "SIGKILL",
        "killed",
        "It was killed from outside, and not for its own memory limit.",
        PLATFORM,
        "The node may have run out of memory as a whole; or a person killed it.",
    ),
    10: _ended("SIGUSR1", "user_signal", "SIGUSR1, which it does not handle.", USER, OUTSIDE),
    11: _ended(
        "SIGSEGV",
        "segmentation_fault",
        "It touched memory that is not its own.",
        USER,
        CRASH,
    ),
    12: _ended("SIGUSR2", "user_signal", "SIGUSR2, which it does not handle.", USER, OUTSIDE),
    13: _ended(
        "SIGPIPE",
        "broken_pipe",
        "It wrote to a pipe or socket that nobody reads any more.",
        USER,
        "See whether another process of the job ended first.",
    ),
    14: _ended("SIGALRM", "alarm", "A timer of its own ended it.", USER, "Handle SIGALRM."),
    15: _ended(
        "SIGTERM",
        "terminated",
        "Something other than Allotment told it to end.",
        PLATFORM,
        OUTSIDE,
    ),
    16: _ended("SIGSTKFLT", "stack_fault", "A stack fault.", USER, CRASH),
    24: _ended(
        "SIGXCPU",
        "cpu_time_limit",
        "It used up the CPU time that a limit (ulimit -t) allows.",
        USER,
        "Raise the limit in its command, or take it out.",
    ),
    25: _ended(
        "SIGXFSZ",
        "file_size_limit",
        "It wrote a file larger than a limit (ulimit -f) allows.",
        USER,
        "Write smaller files, or ask for more in resources.disk.",
    ),
    26: _ended("SIGVTALRM", "alarm", "A timer of its own ended it.", USER, "Handle SIGVTALRM."),
    27: _ended("SIGPROF", "alarm", "A profiling timer ended it.", USER, "Handle SIGPROF."),
    29: _ended("SIGIO", "io_signal", "SIGIO, which it does not handle.", USER, OUTSIDE),
    30: _ended("SIGPWR", "power_failure", "The machine is losing power.", PLATFORM, OUTSIDE),
    31: _ended(
        "SIGSYS",
        "bad_system_call",
        "It made a system call that its isolation forbids.",
        USER,
        "See `allot doctor` for the isolation in force.",
    ),
}
