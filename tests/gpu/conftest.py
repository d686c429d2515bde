"""What the tests on a real GPU share: a service, jobs on PyTorch, and a report of figures.

`ALLOT_GPU_REPORT` names a file that gets a line of JSON for each figure.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.cluster import RealCluster, a_real_cluster, until

HERE = Path(__file__).parent
CONFIG = """
tenants:
  own:
    guaranteed: {gpu: 1}
    queues:
      default: {order: skip}
      turns: {order: skip, time_slice: 8s, pack: true}
      slices: {order: skip, time_slice: 4s}
"""
Report = Callable[..., None]


@pytest.fixture(scope="session", autouse=True)
def torch() -> None:
    """Skip where there is no PyTorch: it is large, and in no lock of ours."""
    if not Path("/dev/nvidiactl").exists():
        return
    words = [sys.executable, "-c", "import importlib.util as u; exit(not u.find_spec('torch'))"]
    if subprocess.run(words, check=False).returncode:
        pytest.skip("a GPU, and no PyTorch: pip install torch")


@pytest.fixture(scope="session")
def report() -> Report:
    """Note figures; they are printed, too."""
    path = os.environ.get("ALLOT_GPU_REPORT")

    def note(what: str, **figures: object) -> None:
        line = json.dumps({"what": what, **figures})
        print(line)
        if path:
            with Path(path).open("a") as file:
                file.write(line + "\n")

    return note


class Trainer:
    """A training job, and what it wrote."""

    def __init__(
        self, cluster: RealCluster, name: str, program: str = "trainer.py", **fields: object
    ) -> None:
        self.cluster, self.program = cluster, program
        self.out = cluster.state.parent / "out" / name
        self.name = name
        self.fields = fields
        self.job = 0

    def submit(self, steps: int, mebibytes: int, pause_ms: int = 5, *words: str) -> "Trainer":
        argv = [*argv_of(self.out, steps, mebibytes, pause_ms, self.program), *words]
        need = {"gpu": 1, "cpu": 2, "memory": "24GiB", "gpu_memory": f"{mebibytes + 2048}MiB"}
        spec: dict[str, object] = {"name": self.name, "tenant": "own", "command": argv}
        env = {"PYTHONPATH": str(HERE.parent.parent / "src")}
        self.job = self.cluster.submit({**spec, "resources": need, "env": env, **self.fields})
        return self

    def lines(self) -> list[str]:
        return self.out.read_text().splitlines() if self.out.exists() else []

    def steps(self) -> int:
        return sum(not line.startswith("end") for line in self.lines())

    def until_step(self, step: int) -> None:
        until(lambda: self.steps() >= step, f"{self.name} to make {step} steps")

    def digest(self) -> str:
        last = self.lines()[-1]
        assert last.startswith("end "), last
        return last

    def events(self, kind: str) -> list[dict[str, Any]]:
        found = self.cluster.get(f"/v1/jobs/{self.job}/events")
        return [each for each in found if each["kind"] == kind]


def argv_of(
    out: Path, steps: int, mebibytes: int, pause_ms: int, program: str = "trainer.py"
) -> list[str]:
    """Return the command of a trainer."""
    words = str(out), str(steps), str(mebibytes), str(pause_ms)
    return [sys.executable, str(HERE / program), *words]


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[], str]]:
    """Run the trainer by itself, meanwhile; return how it ended."""
    out = tmp_path_factory.mktemp("undisturbed") / "out"
    env = {**os.environ, "PYTHONPATH": str(HERE.parent.parent / "src")}
    with subprocess.Popen(argv_of(out, *RUN), env=env) as process:

        def ended() -> str:
            assert process.wait(120) == 0
            return out.read_text().splitlines()[-1]

        yield ended
        process.kill()


RUN = (1600, 2048, 5)
"""Steps, MiB and pause of a run that is compared."""


@pytest.fixture(scope="session")
def cluster() -> Iterator[RealCluster]:
    """A service on this machine's own GPU; root's, as the driver wants it."""
    with tempfile.TemporaryDirectory(prefix="allot-gpu-") as folder:
        out = Path(folder) / "out"
        out.mkdir()
        # Else a task has this folder of /tmp only to look at.
        with a_real_cluster(Path(folder), CONFIG) as made:
            yield made


def hog(cluster: RealCluster, mebibytes: int) -> int:
    """Submit a job that wants nearly all memory of the device."""
    need = {"gpu": 1, "cpu": 1, "memory": "2GiB", "gpu_memory": f"{mebibytes + 600}MiB"}
    argv = [sys.executable, str(HERE / "hog.py"), str(mebibytes)]
    return cluster.submit({"name": "hog", "tenant": "own", "command": argv, "resources": need})


def seconds_since(began: float) -> float:
    return round(time.monotonic() - began, 3)
