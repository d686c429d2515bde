"""How a task ended, from what init said and what its groups counted, as status fields."""

import errno
import json
import os
import signal
from typing import Final

from allotment.backends.local.runner.cgroup import Group
from allotment.backends.local.runner.schema import Request, Status
from allotment.backends.local.runner.spawn import NOT_EXECUTABLE, NOT_FOUND

_TRANSIENT: Final = (errno.EAGAIN, errno.ENOMEM)
_SIGNALS_IN_CODES: Final = range(129, 129 + 64)


def set_exit(status: Status, how: str, value: int, *, may_hide_signal: bool = False) -> None:
    """Note how the command ended: by `code` or `signal`.

    bubblewrap and shells tell a signal as 128 + number; nobody else's code is touched.
    """
    if may_hide_signal and how == "code" and value in _SIGNALS_IN_CODES:
        how, value = "signal", value - 128
    status["exit_code"] = value if how == "code" else None
    status["signal"] = value if how == "signal" else None


def is_terminated(status: Status) -> bool:
    """Whether the command ended by SIGTERM, itself or below a shell."""
    by_shell = status["exit_code"] == 128 + signal.SIGTERM
    return by_shell or status["signal"] == signal.SIGTERM


def lose(status: Status) -> None:
    """Count a task as lost with all that ran on its machine."""
    status["lost"] = True
    status["cause"] = status["platform_error"] = "all that runs on its machine was told to end"


def not_started(status: Status, request: Request, stage: str, error: OSError) -> str:
    """Note why the command was not started; give the line for the task's stderr.

    A command that cannot be run, or a folder that cannot be entered, is the job's own
    fault and looks as it would in a shell. All else is ours: a platform error.
    """
    text = error.strerror or str(error)
    if stage == "cwd":
        status["exit_code"] = NOT_EXECUTABLE
        status["cause"] = f"cannot enter the working directory {request['cwd']}: {text}"
    elif stage == "exec" and error.errno not in _TRANSIENT:
        missing = error.errno in (errno.ENOENT, errno.ENOTDIR)
        status["exit_code"] = NOT_FOUND if missing else NOT_EXECUTABLE
        status["cause"] = f"cannot run {_program(request)}: {text}"
    else:
        status["platform_error"] = f"{stage}: {text}"
        return ""
    return f"allotment: {status['cause']}\n"


def _program(request: Request) -> str:
    argv = request["argv"]
    return "/bin/sh" if isinstance(argv, str) else argv[0]


def judge_bwrap(status: Status, told: bytes) -> None:
    """Distinguish bubblewrap's own failure from its command's."""
    ran = status["exit_code"] is not None or status["signal"] is not None
    if ran and not status["cause"] and bwrap_failed(told.decode(errors="replace")):
        status["exit_code"] = status["signal"] = None
        status["platform_error"] = "bubblewrap could not set up the isolation; see stderr"


def bwrap_failed(status_lines: str) -> bool:
    """Distinguish a set-up that failed from a command that did: then there is no exit code."""
    for line in status_lines.splitlines():
        try:
            if "exit-code" in json.loads(line):
                return False
        except ValueError:
            continue
    return True


def note_usage(status: Status, user_s: float, system_s: float, max_rss_kib: int) -> None:
    """Note what all the processes that were reaped have used."""
    usage = status["usage"]
    usage["cpu_user_ms"], usage["cpu_system_ms"] = round(user_s * 1000), round(system_s * 1000)
    usage["max_rss_bytes"] = max_rss_kib * 1024
    if status["started_ms"]:
        usage["wall_ms"] = status["ended_ms"] - status["started_ms"]


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
    """Return in a line what failed, with the name of the file where there is one."""
    if isinstance(error, OSError) and error.strerror:
        return (
            f"{error.strerror}: {os.fsdecode(error.filename)}"
            if error.filename
            else error.strerror
        )
    return f"{type(error).__name__}: {error}"
