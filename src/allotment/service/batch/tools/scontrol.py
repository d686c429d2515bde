"""`scontrol` inside a batch script: host names, and to be queued again. All else is refused."""

import os
import re
import signal
import sys
from collections.abc import Iterator
from typing import NoReturn

from allotment.service.batch.tools.options import Misused

ELSEWHERE = "is not done in a job; see allot show, allot hold and allot cancel"


def hostnames(nodes: str) -> Iterator[str]:
    """Return the names that a list such as `n[1-3,7],m` stands for."""
    for part in re.findall(r"(?:[^,\[]|\[[^\]]*\])+", nodes):
        found = re.fullmatch(r"([^\[]*)\[([^\]]*)\](.*)", part)
        if found is None:
            yield part
            continue
        for span in found[2].split(","):
            first, _, last = span.partition("-")
            for number in range(int(first), int(last or first) + 1):
                yield f"{found[1]}{number:0{len(first)}d}{found[3]}"


def _own_numbers() -> set[str]:
    mine = {os.environ.get("SLURM_JOB_ID", "")}
    if "SLURM_ARRAY_JOB_ID" in os.environ:
        mine.add(f"{os.environ['SLURM_ARRAY_JOB_ID']}_{os.environ['SLURM_ARRAY_TASK_ID']}")
    return mine


def requeue(jobs: list[str]) -> None:
    """Ask for this job to be queued again, and its processes to be ended. Raises Misused."""
    if not jobs or set(jobs) - _own_numbers():
        raise Misused("requeue: a job can requeue itself, by its number")
    scratch = os.environ.get("ALLOT_SCRATCH_DIR", "/tmp")
    with open(os.path.join(scratch, ".allot-requeue"), "w", encoding="utf-8"):
        pass
    with open(os.path.join(scratch, ".allot-run"), encoding="utf-8") as file:
        os.kill(int(file.read()), signal.SIGURG)


def job_line() -> str:
    """Return what the script knows of its job, in the form of `scontrol show job`."""
    env = os.environ
    told = {
        "JobId": env.get("SLURM_JOB_ID", ""),
        "ArrayJobId": env.get("SLURM_ARRAY_JOB_ID", ""),
        "ArrayTaskId": env.get("SLURM_ARRAY_TASK_ID", ""),
        "JobName": env.get("SLURM_JOB_NAME", ""),
        "UserId": f"{env.get('SLURM_JOB_USER', '')}({os.getuid()})",
        "Account": env.get("SLURM_JOB_ACCOUNT", ""),
        "Partition": env.get("SLURM_JOB_PARTITION", ""),
        "JobState": "RUNNING",
        "Restarts": env.get("SLURM_RESTART_COUNT", "0"),
        "NodeList": env.get("SLURM_JOB_NODELIST", ""),
        "NumNodes": "1",
        "NumCPUs": env.get("SLURM_CPUS_ON_NODE", ""),
        "WorkDir": env.get("SLURM_SUBMIT_DIR", ""),
    }
    return " ".join(f"{name}={value}" for name, value in told.items() if value)


def run(words: list[str]) -> None:
    """Carry out one command. Raises Misused."""
    verb, rest = (words[0], words[1:]) if words else ("", [])
    if verb == "show" and rest[:1] and "hostnames".startswith(rest[0]) and len(rest[0]) > 4:
        given = rest[1] if len(rest) > 1 else os.environ.get("SLURM_JOB_NODELIST", "")
        for name in hostnames(given):
            sys.stdout.write(f"{name}\n")
    elif verb == "show" and rest[:1] == ["job"] and set(rest[1:]) <= _own_numbers():
        sys.stdout.write(f"{job_line()}\n")
    elif verb == "requeue":
        requeue(rest)
    else:
        raise Misused(f"{' '.join(words)}: {ELSEWHERE}")


def main() -> NoReturn:
    """Carry out the command line."""
    try:
        run(sys.argv[1:])
    except (Misused, ValueError) as error:
        sys.stderr.write(f"scontrol: error: {error}\n")
        sys.exit(1)
    sys.exit(0)
