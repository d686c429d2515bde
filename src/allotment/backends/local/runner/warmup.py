"""Runs a few tasks inside the launcher itself, so that supervisors start warm.

CPython specialises code that it has run some ten times, by writing into it. A supervisor
forked from a launcher that never ran a supervisor's code would do all of that again, in
memory that it must first copy page by page. A handful of rounds here halve the cost of
every task.
"""

import os
import signal
from typing import Final

from allotment.backends.local.runner import claim, layout, supervisor
from allotment.backends.local.runner.host import Host
from allotment.backends.local.runner.schema import Request, request_from
from allotment.rights import removing

FOLDER: Final = "run/warm-up"
_OPEN_FILES: Final = "/proc/self/fd"
_ROUNDS: Final = 12


def warm_up(host: Host) -> None:
    """Run `true` without namespaces, which would stay with this process. About 60 ms."""
    home = os.getcwd()
    before = set(os.listdir(_OPEN_FILES))
    removing.remove(None, FOLDER)
    for folder in (layout.LIVE, layout.TASKS):
        os.makedirs(f"{FOLDER}/{folder}", mode=0o700)
    os.chdir(FOLDER)
    state_folder, host.home = host.home, os.open(".", os.O_RDONLY | os.O_CLOEXEC)
    try:
        for number in range(1, _ROUNDS + 1):
            _run_one(number, host)
    finally:
        os.close(host.home)
        host.home = state_folder
        # A supervisor leaves its files to the end of its process, which here goes on.
        signal.set_wakeup_fd(-1)
        for name in set(os.listdir(_OPEN_FILES)) - before:
            _close(int(name))
        os.chdir(home)
        removing.remove(None, FOLDER)


def _close(fd: int) -> None:
    try:
        os.close(fd)
    except OSError:  # the descriptor with which the list was read
        return


def _run_one(number: int, host: Host) -> None:
    request: Request = request_from(
        {
            "key": f"{number}.0.warm-up.0",
            "argv": ["/bin/true"],
            "env": {"PATH": "/usr/bin:/bin"},
            "cwd": "/",
            "namespaces": "none",
            "memory_bytes": 1 << 30,
            "pids": 16,
        }
    )
    held = claim.take(request["key"])
    if held is not None:
        supervisor.run(request, host, held, lambda: False)
        held.close()
        # It looked for its scratch folder in the state folder, where we are not now.
        removing.remove(host.scratch, request["key"])
