"""Goes into the fence of a node, and there into a task: as a step of the pilot's own job.

    enter FOLDER CODE_FILE TASK_DIR -- COMMAND…

Slurm starts it on the node, outside of the fence. The exit code is written to CODE_FILE.
An ordinary user's goes into the fence's user namespace first, which gives it the right.
"""

import os
import sys
from typing import NoReturn

from allotment.backends.local.runner import enter, libc, procfs
from allotment.backends.pilot.fence import LOCK

_SPACES = ("user", "pid", "mnt")


def main() -> NoReturn:
    """Become a process inside the fence, and that of the task there."""
    folder, file = sys.argv.pop(1), sys.argv.pop(1)
    try:
        inside = _inside(folder)
        spaces = [os.open(f"/proc/{inside}/ns/{name}", os.O_RDONLY) for name in _SPACES]
        for name, space in zip(_SPACES, spaces, strict=True):
            if not os.path.sameopenfile(space, os.open(f"/proc/self/ns/{name}", os.O_RDONLY)):
                libc.setns(space)
    except (OSError, ValueError, IndexError) as error:
        print(f"allotment: the node's runner is not there: {error}", file=sys.stderr)
        sys.exit(enter.CANNOT_ENTER)
    pid = os.fork()
    if pid == 0:
        enter.main()
    _, status = os.waitpid(pid, 0)
    code = os.waitstatus_to_exitcode(status)
    code = code if code >= 0 else 128 - code
    if not file:  # The service does not see this disk: srun hands the code on.
        sys.exit(code)
    part = f"{file}.part"
    with open(part, "w", encoding="ascii") as said:
        said.write(f"{code}\n")
    os.rename(part, file)
    sys.exit(0)


def _inside(folder: str) -> int:
    """Return process 1 of the fence, by its number outside."""
    fence, start, _ = procfs.read(f"{folder}/{LOCK}").split()
    if str(procfs.start_time(int(fence))) != start:
        raise ValueError("it is over")
    return procfs.children(int(fence))[0]
