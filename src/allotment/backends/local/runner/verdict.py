"""How a task ended, from what init said and what its groups counted, as status fields."""

import errno
import json
import os
from typing import Final

from allotment.backends.local.runner.cgroup import Group
from allotment.backends.local.runner.schema import Request, Status

NOT_FOUND: Final = 127
NOT_EXECUTABLE: Final = 126
_TRANSIENT: Final = (errno.EAGAIN, errno.ENOMEM)
_SIGNALS_IN_CODES: Final = range(129, 129 + 64)


def ended(status: Status, words: list[str], *, in_bwrap: bool) -> None:
    """Note init's `ended how value user_ms system_ms max_rss`."""
    how, value, user_ms, system_ms, max_rss = words
    if status["exit_code"] is None:
        set_exit(status, how, int(value), may_hide_signal=in_bwrap)
    usage = status["usage"]
    usage["cpu_user_ms"], usage["cpu_system_ms"] = int(user_ms), int(system_ms)
    usage["max_rss_bytes"] = int(max_rss)


def set_exit(status: Status, how: str, value: int, *, may_hide_signal: bool) -> None:
    """bubblewrap and shells tell a signal as 128 + number; nobody else's code is touched."""
    if may_hide_signal and how == "code" and value in _SIGNALS_IN_CODES:
        how, value = "signal", value - 128
    status["exit_code"] = value if how == "code" else None
    status["signal"] = value if how == "signal" else None


def failed(status: Status, request: Request, words: list[str]) -> str:
    """Note init's `failed stage errno text`; give the line for the task's stderr.

    A command that cannot be run, or a folder that cannot be entered, is the job's own
    fault and looks as it would in a shell. All else is ours: a platform error.
    """
    stage, number, text = words[0], int(words[1]), words[2]
    if stage == "cwd":
        status["exit_code"] = NOT_EXECUTABLE
        status["cause"] = f"cannot enter the working directory {request['cwd']}: {text}"
    elif stage == "exec" and number not in _TRANSIENT:
        missing = number in (errno.ENOENT, errno.ENOTDIR)
        status["exit_code"] = NOT_FOUND if missing else NOT_EXECUTABLE
        status["cause"] = f"cannot run {_program(request)}: {text}"
    else:
        status["platform_error"] = f"{stage}: {text}"
        return ""
    return f"allotment: {status['cause']}\n"


def _program(request: Request) -> str:
    argv = request["argv"]
    return "/bin/sh" if isinstance(argv, str) else argv[0]


def vanished(status: Status, ended_by: str, signum: int) -> None:
    """Note that init is gone without a word: somebody killed it, most often we."""
    if status["exit_code"] is None and status["signal"] is None and not status["platform_error"]:
        status["signal"] = signum
        if not ended_by:
            status["cause"] = "the task's first process was killed from outside"


def bwrap_failed(status_lines: str) -> bool:
    """Tell a set-up that failed from a command that did: then there is no exit code."""
    for line in status_lines.splitlines():
        try:
            if "exit-code" in json.loads(line):
                return False
        except ValueError:
            continue
    return True


def count(status: Status, group: Group, *, has_ceiling: bool) -> None:
    """Note what the groups counted. Out of memory is a failure with a kill to show for it.

    A task that lost a process to the limit, coped and succeeded is not out of memory.
    """
    counts = group.count()
    status["oom_kills"] = counts.oom_kills
    status["oom"] = status["oom"] or (counts.oom_kills > 0 and status["exit_code"] != 0)
    status["pids_limit_hit"] = status["pids_limit_hit"] or counts.pids_limit_hit
    status["usage"]["peak_memory_bytes"] = counts.peak_memory_bytes
    if has_ceiling:
        status["usage"]["cpu_throttled_ms"] = group.count_throttled()


def text_of(error: BaseException) -> str:
    """Say in a line what failed, with the name of the file where there is one."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror}: {os.fsdecode(error.filename)}" if error.filename else error.strerror
    return f"{type(error).__name__}: {error}"
