"""Clears up after a supervisor that died without a final status: kills, removes, tells.

Done in a child of the launcher, since killing may take a while.
"""

import json
import os
import signal
from typing import cast

from allotment.backends.local.runner import (
    claim,
    image_root,
    layout,
    procfs,
    record,
    tree,
)
from allotment.backends.local.runner.host import Host
from allotment.backends.local.runner.schema import Request, Status
from allotment.rights import removing


def salvage(key: str, host: Host, cause: str = "") -> None:
    """Clear up one task, if nobody holds its claim. Its final status says `lost`, and why,
    unless it had ended, and only what did not die was waited for.

    There is none while a process is left that does not end: it has the task's devices. The
    watchdog has it tried again.
    """
    live = layout.live_file(key)
    try:
        held = claim.hold(live)
    except FileNotFoundError:
        return
    if held is None:
        return
    folder = layout.task_dir(key)
    if not os.path.lexists(f"{folder}/{layout.CLAIM}"):
        os.unlink(live)  # never claimed: the launcher died between two steps
        return
    status = _last_status(key, host)
    if status["phase"] != "ended":
        if not _end(status, host):
            return
        status["platform_error"] = cause if status["lost"] else ""
        _remove(f"{folder}/{layout.ENVIRON}")
        record.write_final(status, held)
    os.unlink(live)
    record.Reporter(key).send()


def _last_status(key: str, host: Host) -> Status:
    for name in (layout.CLAIM, layout.STATUS):
        try:
            found = json.loads(procfs.read(f"{layout.task_dir(key)}/{name}"))
        except (OSError, ValueError):
            continue
        return cast("Status", found)
    request: Request = {"key": key, "argv": "", "env": {}, "cwd": "/"}
    return record.new_status(request, host.boot_id)


def _end(status: Status, host: Host) -> bool:
    """Kill what the supervisor left behind, and remove what it had made. False where one lives.

    The memory of a device may take the kernel longer than we wait.
    """
    if status["boot_id"] == host.boot_id:
        # With any device: then the groups named for the task include one for devices.
        group = host.hierarchy.group(status["key"], ["any"])
        group.kill()
        if status["pid"] and procfs.start_time(status["pid"]) == status["start_time"]:
            tree.kill_below(status["pid"])
            tree.send(status["pid"], signal.SIGKILL)
        if any(map(procfs.holds, group.pids())):
            return False
        # As the first process of a PID namespace it goes with the last one there.
        supervisor, start = status["supervisor_pid"], status["supervisor_start_time"]
        if procfs.start_time(supervisor) == start != 0 and procfs.holds(supervisor):
            return False
        group.remove()
    removing.remove(host.scratch, status["key"])
    image_root.remove(host.scratch, status["key"])
    status["phase"] = "ended"
    status["frozen"] = False
    if not (status.pop("lingering", "") and status["ended_ms"]):
        status["lost"] = True
        status["cause"] = "its supervisor was killed, or the machine went down"
        status["ended_ms"] = record.now_ms()
    return True


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        return
