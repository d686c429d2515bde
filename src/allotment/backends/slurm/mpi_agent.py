#!/usr/bin/python3 -IS
"""Run a command on the node of another task of the same gang, as `ssh HOST COMMAND` would.

mpirun starts its daemons by this, so that no task needs ssh. The command is a step of the
Slurm job of a task there: it has that task's limits and devices, and ends with it.
"""

from __future__ import annotations

import json
import os
import sys
from itertools import count, takewhile
from pathlib import Path


def main(words: list[str]) -> int:
    """Become the step; return an exit code where that is not possible."""
    while words and words[0].startswith("-"):
        del words[0]
    folder, hostfile = os.environ.get("ALLOT_TASK_FOLDER"), os.environ.get("ALLOT_HOSTFILE")
    if not folder or not hostfile or len(words) < 2:
        sys.stderr.write(
            "mpi-agent: run by mpirun in a task of Allotment: mpi-agent HOST COMMAND\n"
        )
        return 2
    jobs = jobs_of(Path(folder).parent, Path(hostfile))
    host = words[0]
    if host not in jobs:
        there = ", ".join(sorted(jobs)) or "none"
        sys.stderr.write(f"mpi-agent: no task of this job is on {host}; there are {there}\n")
        return 1
    env = {name: value for name, value in os.environ.items() if not is_of_job(name)}
    return os.execvpe(
        "srun",
        [
            "srun", f"--jobid={jobs[host]}", "--overlap", "--mpi=none", "--nodes=1",
            "--ntasks=1", "--export=ALL", "--chdir=/", "--job-name=allot-mpi", "--quiet",
            "/bin/sh", "-c", " ".join(words[1:]),
        ],
        env,
    )  # fmt: skip


def jobs_of(tasks: Path, hostfile: Path) -> dict[str, str]:
    """Return the Slurm job of the first task on each node, by its name and its address.

    Users may pass through the folder of all tasks, not list it: so it goes by number.
    """
    jobs: dict[str, str] = {}
    for folder in takewhile(Path.is_dir, (tasks / str(index) for index in count())):
        status = folder / "status.json"
        if status.exists():
            told = json.loads(status.read_bytes())
            jobs.setdefault(told["node"], told["engine_job"])
    addresses = [line.split()[0] for line in hostfile.read_text().splitlines() if line.split()]
    if len(addresses) == len(jobs):  # both in the order of the tasks
        jobs.update(zip(addresses, tuple(jobs.values()), strict=True))
    return jobs


def is_of_job(name: str) -> bool:
    """Whether a variable is about the job that mpirun runs in, which srun would keep to."""
    return name.startswith(("SLURM_", "SLURMD_", "SBATCH_", "SRUN_")) and name != "SLURM_CONF"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
