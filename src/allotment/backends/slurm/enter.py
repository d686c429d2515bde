"""A command inside a running task → the host command that does it. Pure.

It is a step of the task's own job, so Slurm puts it on the node, within the job's limits and
with its devices. It goes as the task's user from the first moment: Slurm lets root do
anything to any job.
"""

from collections.abc import Sequence

from allotment.backends.slurm.request import PYTHON
from allotment.service.ports import Identity

STEP = (
    "--overlap", "--mpi=none", "--nodes=1", "--ntasks=1", "--export=NIL", "--chdir=/",
    "--job-name=allot-exec", "--quiet",
)  # fmt: skip
STEP_AND_CODE = """\
code="$1"; shift
if [ -t 0 ]; then srun --pty "$@"; else srun "$@"; fi
end=$?
[ -f "$code" ] && end=$(cat "$code") && rm -f "$code"
exit "$end"
"""
"""srun would say of every code but 0 that something is wrong: so it comes in a file."""


def enter_argv(
    job: str,
    identity: Identity | None,
    surroundings: Sequence[str],
    code: str,
    inside: Sequence[str],
    node: str = "",
) -> list[str]:
    """Return the command; `surroundings` are `NAME=value` for Slurm's commands.

    `node` says where, if the job has several.

    `inside` runs on the node, and leaves its exit code in the file `code`.
    """
    return [
        "/usr/bin/env", "-i", *surroundings,
        *_become(identity),
        "/bin/sh", "-c", STEP_AND_CODE, "srun", code, f"--jobid={job}",
        *([f"--nodelist={node}"] if node else []), *STEP, *inside,
    ]  # fmt: skip


def inside_argv(runner: str, folder: str, code: str, argv: Sequence[str]) -> list[str]:
    """Return the command that runs another on the node, with the environment of a task."""
    return [PYTHON, "-I", "-S", runner, "enter", folder, code, *argv]


def _become(identity: Identity | None) -> list[str]:
    if identity is None:
        return []
    groups = ",".join(map(str, identity.groups))
    return [
        "setpriv", f"--reuid={identity.uid}", f"--regid={identity.gid}",
        f"--groups={groups}" if groups else "--clear-groups",
    ]  # fmt: skip
