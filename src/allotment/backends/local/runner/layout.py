"""Where things lie inside a state folder. The runner's processes have it as their cwd.

    run/launcher.sock   where the launcher listens          (0600, in a 0700 folder)
    run/launcher.lock   held by the one launcher that serves this folder
    run/launcher.log    what it had to say
    run/report.sock     the service's datagram socket: told a task key after each change
    run/scratch         where scratch folders lie, if their usual place was taken
    run/live/KEY        one file per task that may still run; its supervisor holds its lock
    tasks/J/A/R.I/      claim, status.json, stdout.log, stderr.log, control of one task;
                        `control` stays when it is over: nobody reads from it then

Paths are relative because a socket's path may have at most 107 bytes, and state folders
can lie deep.
"""

import re
from typing import Final

RUN: Final = "run"
SOCKET: Final = "run/launcher.sock"
LOCK: Final = "run/launcher.lock"
LOG: Final = "run/launcher.log"
REPORT: Final = "run/report.sock"
LIVE: Final = "run/live"
TASKS: Final = "tasks"
SCRATCH: Final = "scratch"
SCRATCH_PLACE: Final = "run/scratch"

CLAIM: Final = "claim"
STATUS: Final = "status.json"
CONTROL: Final = "control"
ENVIRON: Final = "environ"
STREAMS: Final = ("stdout", "stderr")

KEY: Final = re.compile(
    r"([1-9]\d{0,18})\.(\d{1,18})\.([A-Za-z0-9][A-Za-z0-9_.-]{0,127}\.\d{1,9})"
)


def task_dir(key: str) -> str:
    """Return the folder of the task `job.attempt.role.index`, relative to the state folder.

    Raises ValueError for anything that is no such key: a key becomes a path here, and a
    cgroup's name.
    """
    match = KEY.fullmatch(key)
    if match is None:
        raise ValueError(f"not a task key (job.attempt.role.index): {key[:200]!r}")
    return f"{TASKS}/{match[1]}/{match[2]}/{match[3]}"


def live_file(key: str) -> str:
    """Return the file that tells that a task may still run."""
    return f"{LIVE}/{key}"
