"""A service whose jobs run in a partition of a test's own Slurm."""

import pwd
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.cluster import RealCluster, until
from tests.support.patience import PATIENCE_S
from tests.support.slurm import Slurm

CONFIG = """\
nodes:
- {name: n1, cpu: 4, memory: 2000MiB, disk: 1TiB, gpu: {type: a100, count: 4}}
- {name: n2, cpu: 4, memory: 2000MiB, disk: 1TiB, gpu: {type: a100, count: 4}}
tenants: {lab: {}}
"""


class OnSlurm(RealCluster):
    """A service whose jobs run in a partition."""

    def __init__(self, state: Path, slurm: Slurm) -> None:
        super().__init__(state, CONFIG)
        self.slurm = slurm

    def start(self, *words: str) -> subprocess.CompletedProcess[str]:
        return self.allot("up", *words, env={"SLURM_CONF": str(self.slurm.conf)})

    def up(self) -> None:
        self.until_up(self.start("--slurm", "main", "--config", str(self.config)))

    def wait_for(self, job: int, *states: str, seconds: float = PATIENCE_S) -> None:
        with self.told_of_slurm():
            super().wait_for(job, *states, seconds=seconds)

    @contextmanager
    def told_of_slurm(self) -> Iterator[None]:
        """Add how Slurm stood to a failure."""
        try:
            yield
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.slurm.standing()}") from None

    def clear(self) -> None:
        """End all jobs, ours and Slurm's, and have every node take jobs."""
        self.allot("cancel", "--all", "--yes")
        self.slurm.clear()
        ended = {"succeeded", "failed", "cancelled"}
        until(lambda: {row["state"] for row in self.jobs()} <= ended, "jobs to be over")

    def jobs(self) -> list[dict[str, Any]]:
        return self.get("/v1/jobs")["items"]

    def output(self, job: int) -> str:
        return self.allot("logs", str(job)).stdout

    def job(self, job: int) -> dict[str, Any]:
        return self.get(f"/v1/jobs/{job}")

    def slurm_jobs(self) -> list[str]:
        """Return the numbers of what runs or waits in Slurm."""
        return self.slurm.say("squeue", "-h", "-o", "%i").split()


def shell(script: str, **more: object) -> dict[str, object]:
    """Describe a job of one shell line and little else."""
    need = {"cpu": 1, "memory": "64MiB", **dict(more.pop("resources", {}))}  # pyright: ignore
    return {"name": "test", "command": script, "resources": need, **more}


@contextmanager
def a_shared_folder() -> Iterator[Path]:
    """Make a folder that every user may pass through, as one on a shared disk."""
    made = Path(tempfile.mkdtemp(prefix="allot-test-", dir="/var/tmp"))
    made.chmod(0o755)
    (made / "state").mkdir()
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)


def as_nobody(cluster: RealCluster, *words: str) -> subprocess.CompletedProcess[str]:
    """Run `allot` as a user without rights of its own."""
    return as_user("nobody", cluster, *words)


def as_user(name: str, cluster: RealCluster, *words: str) -> subprocess.CompletedProcess[str]:
    """Run `allot` as some user of this machine."""
    return subprocess.run(
        [sys.executable, "-m", "allotment.cli", *words],
        env={"ALLOT_STATE": str(cluster.state), "PATH": "/usr/bin:/bin"},
        cwd="/", user=name, group=pwd.getpwnam(name).pw_gid, extra_groups=[], text=True,
        capture_output=True, check=False, timeout=60,
    )  # fmt: skip
