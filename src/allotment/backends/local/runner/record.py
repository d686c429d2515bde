"""Writes status.json and tells the service that it changed. The file is the truth."""

import contextlib
import errno
import json
import os
import socket
import sys
import time
from typing import Final

from allotment.backends.local.runner import layout
from allotment.backends.local.runner.claim import RESERVED_BYTES
from allotment.backends.local.runner.schema import STATUS_VERSION, Request, Status

_LOG: Final = 2
_MOST_LINES: Final = 40
_BUSY: Final = (errno.EAGAIN, errno.ENOBUFS)


def note_fault() -> None:
    """Write the exception at hand to the launcher's log: what it is, and through what lines.

    Not the lines themselves: the root may be an image's, and so its sources.
    """
    kind, _, trace = sys.exc_info()
    if kind is None:
        return
    lines: list[str] = []
    while trace is not None:
        lines.append(f"  {trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}\n")
        trace = trace.tb_next
    text = "".join((f"{kind.__name__}, through\n", *lines[-_MOST_LINES:]))
    with contextlib.suppress(OSError):  # to have no log is no reason to stop
        os.write(_LOG, text.encode(errors="replace"))


def now_ms() -> int:
    """Return the time in milliseconds since the epoch."""
    return time.time_ns() // 1_000_000


def new_status(request: Request, boot_id: str) -> Status:
    """Return the status of a task of which nothing is known yet."""
    return {
        "version": STATUS_VERSION,
        "key": request["key"],
        "phase": "starting",
        "boot_id": boot_id,
        "supervisor_pid": 0,
        "supervisor_start_time": 0,
        "pid": 0,
        "start_time": 0,
        "uid": request.get("uid", os.geteuid()),
        "gid": request.get("gid", os.getegid()),
        "groups": request.get("groups", []),
        "cwd": request["cwd"],
        "scratch": "",
        "isolation": {"namespaces": "none", "cgroup": "none", "controllers": [], "groups": []},
        "phases": [*request.get("phases", ())],
        "frozen": False,
        "exit_code": None,
        "signal": None,
        "oom": False,
        "oom_kills": 0,
        "pids_limit_hit": False,
        "disk_limit_hit": False,
        "platform_error": "",
        "cause": "",
        "ended_by": "",
        "lost": False,
        "usage": {
            "wall_ms": 0,
            "cpu_user_ms": 0,
            "cpu_system_ms": 0,
            "cpu_throttled_ms": 0,
            "max_rss_bytes": 0,
            "peak_memory_bytes": 0,
        },
        "log_dropped": {},
        "log_error": "",
        "started_ms": 0,
        "ended_ms": 0,
        "hold_until_ms": 0,
    }


def write_status(status: Status) -> None:
    """Replace status.json. Raises OSError, with the old one intact.

    Not synced: a status must survive the death of any process, which the page cache does.
    After a power failure nothing runs, and the boot id says so.
    """
    path = f"{layout.task_dir(status['key'])}/{layout.STATUS}"
    fd = os.open(f"{path}.tmp", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        os.write(fd, json.dumps(status).encode())
    finally:
        os.close(fd)
    os.rename(f"{path}.tmp", path)


def write_final(status: Status, claim: int) -> bool:
    """Write the last status, into the claim's reserved space if the disk is full."""
    try:
        write_status(status)
    except OSError as error:
        data = json.dumps(status).encode().ljust(RESERVED_BYTES)
        if len(data) > RESERVED_BYTES:
            status["cause"] = status["platform_error"] = str(error)
            data = json.dumps(status).encode().ljust(RESERVED_BYTES)
        try:
            os.pwrite(claim, data, 0)
        except OSError:
            return False
    return True


class Reporter:
    """Tells the service's datagram socket, if it listens, which task changed."""

    def __init__(self, key: str) -> None:
        self._key = key.encode()
        self._socket: socket.socket | None = None

    def send(self) -> bool:
        """Send the key. False when the service's queue is full: try again soon."""
        if self._socket is None:
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            self._socket.setblocking(False)
        try:
            self._socket.sendto(self._key, layout.REPORT)
        except OSError as error:
            return error.errno not in _BUSY
        return True
