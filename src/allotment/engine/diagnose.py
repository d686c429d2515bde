"""Return why a task failed, whose matter it is, whether another try may help, and what to do.

The more certain witness wins: first what its limits and its machine say, then our own order
to stop, then an exit code that no retry can change, then its output, then its exit code or
signal.
"""

from msgspec.structs import replace

from allotment.engine.exit_codes import (
    BY_CODE,
    BY_STOP,
    CHECKPOINT_STOP,
    DISK_LIMIT,
    LOST,
    OUT_OF_MEMORY,
    PERMANENT,
    PIDS_LIMIT,
    PLATFORM_ERROR,
    SEE_LOG,
    SHELL_SIGNAL_BASE,
    UNSEEN,
)
from allotment.engine.log_patterns import (
    MEMORY_REFUSED,
    PYTHON_EXCEPTION,
    RAISED,
    STRONG,
    WEAK,
)
from allotment.engine.log_scan import last_exception, last_line, prepare, printable
from allotment.engine.signals import BY_SIGNAL
from allotment.model.diagnosis import Diagnosis, Exit, Owner, RetryClass
from allotment.model.quantity import show_bytes
from allotment.model.reasons import StopCause

LAST_SIGNAL = 64


def diagnose(
    exit: Exit,
    log_tail: str,
    *,
    memory_limit: int,
    disk_limit: int,
    pids_limit: int,
    stopped_by: StopCause | None,
) -> Diagnosis | None:
    """Read a task's end; None when all is well.

    Limits are in bytes and processes, 0 for none. Only the last 64 KiB of the log are
    looked at. Never raises.
    """
    if exit.ok:
        return None
    return (
        _by_machine(exit)
        or _by_limit(exit, memory_limit, disk_limit, pids_limit)
        or _by_stop(exit, stopped_by)
        or _by_witness(exit, prepare(log_tail), memory_limit)
    )


def _by_machine(exit: Exit) -> Diagnosis | None:
    if exit.platform_error:
        return replace(PLATFORM_ERROR, evidence=printable(exit.platform_error))
    return replace(LOST, evidence="no exit status was recorded") if exit.lost else None


def _by_limit(
    exit: Exit,
    memory_limit: int,
    disk_limit: int,
    pids_limit: int,
) -> Diagnosis | None:
    if exit.oom:
        peak = exit.usage.max_rss
        shown = [f"limit {show_bytes(memory_limit)}"] if memory_limit > 0 else []
        shown += [f"largest process {show_bytes(peak)}"] if peak > 0 else []
        return replace(OUT_OF_MEMORY, evidence=", ".join(shown))
    if exit.disk_limit_hit:
        shown = [f"limit {show_bytes(disk_limit)}"] if disk_limit > 0 else []
        return replace(DISK_LIMIT, evidence=", ".join(shown))
    if exit.pids_limit_hit:
        shown = [f"limit {pids_limit} processes and threads"] if pids_limit > 0 else []
        return replace(PIDS_LIMIT, evidence=", ".join(shown))
    return None


def _by_stop(exit: Exit, cause: StopCause | None) -> Diagnosis | None:
    """After our order to stop, however it ended, it ended because of that."""
    if cause is None:
        return None
    how = _how(exit)
    if exit.code == CHECKPOINT_STOP:
        how = f"it saved a checkpoint and ended ({how})"
    elif _signal_of(exit) == 9:
        how = f"it had not ended within its grace and was ended by force ({how})"
    return replace(BY_STOP[cause], evidence=how)


def _by_witness(exit: Exit, text: str, memory_limit: int) -> Diagnosis:
    in_log = _by_log(text)
    permanent = PERMANENT.get(exit.code) if exit.code is not None else None
    if permanent:
        if in_log and in_log.retry is RetryClass.NEVER:
            return in_log
        same = in_log is not None and in_log.code == permanent.code
        return replace(permanent, evidence=in_log.evidence if in_log and same else _how(exit))
    if in_log and in_log.code == MEMORY_REFUSED.code and memory_limit > 0:
        return replace(
            in_log,
            cause=f"{in_log.cause} Its limit is {show_bytes(memory_limit)}.",
            retry=RetryClass.NEVER,
        )
    return in_log or _by_status(exit)


def _by_log(text: str) -> Diagnosis | None:
    for pattern in STRONG:
        line = last_line(text, pattern)
        if line is not None:
            return replace(pattern.diagnosis, evidence=line)
    raised = last_exception(text)
    if raised is None:
        return _by_weak(text)
    for pattern in RAISED:
        if pattern.regex.match(raised.line):
            return replace(pattern.diagnosis, evidence=raised.line)
    return replace(_by_weak(raised.message) or PYTHON_EXCEPTION, evidence=raised.line)


def _by_weak(text: str) -> Diagnosis | None:
    for pattern in WEAK:
        line = last_line(text, pattern)
        if line is not None:
            return replace(pattern.diagnosis, evidence=line)
    return None


def _by_status(exit: Exit) -> Diagnosis:
    number = _signal_of(exit)
    if number is not None:
        return replace(_by_signal(number), evidence=_how(exit))
    if exit.code is None:
        return UNSEEN
    return replace(BY_CODE.get(exit.code, BY_CODE[1]), evidence=_how(exit))


def _by_signal(number: int) -> Diagnosis:
    known = BY_SIGNAL.get(number)
    if known:
        return known.diagnosis
    cause = f"It was ended by signal {number}."
    return Diagnosis("signalled", cause, Owner.USER, RetryClass.UNKNOWN, SEE_LOG)


def _signal_of(exit: Exit) -> int | None:
    """Find the signal, also where a shell reports it as 128 + n, or Python as -n."""
    if exit.signal is not None:
        return exit.signal
    code = exit.code
    if code is None:
        return None
    if -LAST_SIGNAL <= code < 0:
        return -code
    return code - SHELL_SIGNAL_BASE if 0 < code - SHELL_SIGNAL_BASE <= LAST_SIGNAL else None


def _how(exit: Exit) -> str:
    """Write the bare facts: exit code 3; SIGKILL; exit code 137, that is SIGKILL."""
    number = _signal_of(exit)
    known = BY_SIGNAL.get(number) if number is not None else None
    name = known.name if known else f"signal {number}"
    if exit.signal is not None:
        return name
    if number is not None:
        return f"exit code {exit.code}, that is {name}"
    return "no exit code" if exit.code is None else f"exit code {exit.code}"
