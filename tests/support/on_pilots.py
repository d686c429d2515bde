"""A service that holds the nodes of a test's own Slurm, with the local runner on them."""

import contextlib
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from allotment.backends.pilot.fence import find_places, groups_of
from tests.support.cluster import RealCluster, until
from tests.support.slurm import Slurm

NODES = """\
nodes:
- {names: [n1, n2], cpu: 4, memory: 2000MiB, disk: 1TiB, gpu: {type: a100, count: 4}}
"""
CONFIG = f"""\
{NODES}tenants: {{lab: {{}}}}
"""


class Piloted(RealCluster):
    """A service that holds the nodes of a partition."""

    def __init__(self, state: Path, slurm: Slurm, config: str = CONFIG) -> None:
        super().__init__(state, config)
        self.slurm = slurm

    def allot(self, *words: str, **kwargs: Any) -> subprocess.CompletedProcess[str]:
        """Run the command line as a user would, among whose variables is SLURM_CONF."""
        env = {"SLURM_CONF": str(self.slurm.conf), **kwargs.pop("env", {})}
        return super().allot(*words, env=env, **kwargs)

    def up(self) -> None:
        self.until_up(
            self.allot("up", "--slurm", "main", "--pilot", "--config", str(self.config))
        )

    def nodes(self) -> dict[str, str]:
        return {node["name"]: node["state"] for node in self.get("/v1/nodes")}

    def until_held(self) -> None:
        def is_held() -> bool:
            return set(self.nodes().values()) == {"ready"} and len(self.pilots()) == 2

        try:
            until(is_held, "the nodes to be held")
        except AssertionError as error:
            told = f"{error}\n{self.nodes()}\n{self.slurm.standing()}\n{self.last_words()}"
            raise AssertionError(told) from None

    def last_words(self) -> str:
        """Return what the service and its pilots logged last: for failures."""
        logs = (self.state / "service.log", *sorted(self.state.glob("pilot/nodes/*/pilot.log")))
        return "\n".join(
            f"{log.relative_to(self.state)}: {log.read_text(errors='replace')[-2000:]}"
            for log in logs
            if log.exists()
        )

    def pilots(self) -> dict[str, str]:
        """Return the numbers of what holds nodes, by node."""
        rows = self.slurm.say("squeue", "-h", "-t", "R", "-o", "%N %i").splitlines()
        return dict(row.split() for row in rows)

    def node_of(self, job: int) -> str:
        return self.job(job)["attempts"][-1]["tasks"][0]["node"]

    @contextlib.contextmanager
    def drained(self, job: int) -> Iterator[str]:
        """Have Slurm drain the node of a job meanwhile, once the service knows."""
        node = self.node_of(job)
        update = ("scontrol", "update", f"nodename={node}", "reason=test")
        self.slurm.say(*update, "state=drain")
        try:
            until(lambda: self.nodes()[node] != "ready", "the service to know")
            yield node
        finally:
            self.slurm.say(*update, "state=resume")

    def clear(self) -> None:
        """End all jobs."""
        self.allot("cancel", "--all", "--yes")
        ended = {"succeeded", "failed", "cancelled"}

        def are_over() -> bool:
            return {row["state"] for row in self.get("/v1/jobs")["items"]} <= ended

        until(are_over, "jobs to be over")

    def output(self, job: int) -> str:
        return self.allot("logs", str(job)).stdout

    def job(self, job: int) -> dict[str, Any]:
        return self.get(f"/v1/jobs/{job}")


def processes(text: str) -> list[int]:
    """Return the processes that have a text in their command line, other than ps."""
    said = subprocess.run(["ps", "-ww", "-eo", "pid,stat,args"], capture_output=True, text=True)
    rows = [line.split(None, 2) for line in said.stdout.splitlines()]
    return [
        int(row[0]) for row in rows if len(row) == 3 and text in row[2] and row[1][0] != "Z"
    ]


def runners(folder: Path) -> list[int]:
    """Return the runners of nodes whose folders are below this one.

    Other tests of the same run have runners of their own on this machine.
    """
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with contextlib.suppress(OSError):
                words = (entry / "cmdline").read_bytes()
                is_runner = b"pilot.agent" in words and b"pilot.fence" not in words
                if is_runner and f"{folder}/".encode() in words:
                    found.append(int(entry.name))
    return found


def groups(state: Path) -> list[str]:
    """Return the control groups of the nodes of a state folder."""
    folders = [str(state / "pilot/nodes" / name) for name in ("n1", "n2")]
    made = [path for folder in folders for path in groups_of(find_places(), folder)]
    assert made
    return [path for path in made if Path(path).exists()]


def gated(gate: Path) -> str:
    """Return a command that goes on when a file is there."""
    return f"until [ -e {gate} ]; do sleep 0.1; done"


USER, USER_GROUP = "nobody", "nogroup"


class OfAUser(Piloted):
    """The same of an ordinary user: all of it, pilots and tasks, is that user's."""

    def __init__(self, state: Path, slurm: Slurm, config: str = CONFIG) -> None:
        super().__init__(state, slurm, config)
        shutil.chown(state, USER, USER_GROUP)

    def allot(self, *words: str, **kwargs: Any) -> subprocess.CompletedProcess[str]:
        who = {"user": USER, "group": USER_GROUP, "extra_groups": [], "cwd": "/"}
        env = {"HOME": str(self.state), **kwargs.pop("env", {})}
        return super().allot(*words, env=env, **{**who, **kwargs})
