"""The command that goes into a task on a node: a step of the pilot's own job, then `enter`."""

import os
from collections.abc import Sequence
from secrets import token_hex

from allotment.backends.local.backend import task_name
from allotment.backends.local.runner import layout
from allotment.backends.pilot.hold import Hold
from allotment.model.ids import TaskKey
from allotment.service.isolated import isolated

ENTER = "allotment.backends.pilot.enter"
STEP = (
    "--overlap", "--mpi=none", "--nodes=1", "--ntasks=1", "--export=NIL", "--chdir=/",
    "--job-name=allot-exec", "--quiet",
)  # fmt: skip
ON_TERMINAL = """\
file=$1; shift
if [ -t 0 ]; then srun --pty "$@"; else srun "$@"; fi
code=$?
if [ -f "$file" ]; then read -r code < "$file"; rm -f "$file"; fi
exit "$code"
"""
"""The code of the command goes by a file: srun would add words of its own to what it prints."""
UNSEEN_ON_TERMINAL = """\
said=$1; shift
if [ -t 0 ]; then srun --pty "$@" 2> "$said"
else srun --error=/dev/fd/3 "$@" 3>&2 2> "$said"; fi
code=$?
grep -v '^srun: error: .*: task 0: Exited with exit code ' "$said" >&2; rm -f "$said"
exit "$code"
"""
"""The same where no file of the node's is seen: what srun adds is left out."""


def enter_argv(hold: Hold, key: TaskKey, argv: Sequence[str]) -> list[str]:
    """Return a command line that runs another inside a task of a node that is held."""
    folder = f"{hold.there}/{layout.task_dir(task_name(key))}"
    code = f"{hold.folder}/code.{token_hex(8)}"
    on_node = "" if hold.has_own_disk else code
    inside = isolated(ENTER, hold.there, on_node, folder, "--", *argv, bare=True)
    script = UNSEEN_ON_TERMINAL if hold.has_own_disk else ON_TERMINAL
    conf = os.environ.get("SLURM_CONF", "")
    return [
        "/usr/bin/env", *([f"SLURM_CONF={conf}"] if conf else []),
        "/bin/sh", "-c", script, "srun", code, f"--jobid={hold.kept.job}", *STEP,
        *inside,
    ]  # fmt: skip
