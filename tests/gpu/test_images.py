"""Jobs in images on a real GPU: its driver comes in by what the vendor's own tool says (CDI).

The image has a shell, a C library and a program that loads the driver; nothing of CUDA.
"""

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from allotment.backends.local.driver.self_test import kept_test
from tests.gpu.conftest import Report, hog
from tests.gpu.test_gpu import device, nearly_all
from tests.support.cluster import RealCluster, until
from tests.support.registry import Registry, a_file, a_registry, busybox, layer

pytestmark = [
    pytest.mark.needs_gpu("a real driver in an image, by the vendor's specification"),
    pytest.mark.needs_root,
    pytest.mark.needs_tool("docker-registry", "busybox", "nvidia-ctk", "gcc"),
    pytest.mark.slow,
]
SPECIFICATION = Path("/etc/cdi/allot-test.yaml")
STEPS, MEBIBYTES = 3000, 64
FACTOR, ADDEND, MODULUS = 1664525, 1013904223, 1 << 32
"""Of the generator in in_image.c."""


@pytest.fixture(scope="module", autouse=True)
def specified() -> Iterator[None]:
    """Have the vendor's tool write down this machine's devices and drivers."""
    SPECIFICATION.parent.mkdir(mode=0o755, exist_ok=True)
    words = ["nvidia-ctk", "cdi", "generate", f"--output={SPECIFICATION}"]
    subprocess.run(words, check=True, timeout=60)
    yield
    SPECIFICATION.unlink()


@pytest.fixture(scope="module")
def image() -> Iterator[str]:
    """Return the name of the image, in a registry on this machine."""
    with tempfile.TemporaryDirectory(prefix="allot-gpu-") as name:
        folder = Path(name)
        program = folder / "in_image"
        source = Path(__file__).with_name("in_image.c")
        subprocess.run(["gcc", "-O1", "-o", program, source, "-ldl"], check=True)
        needed = sorted({*_libraries(program), *_libraries(_smi())})
        with a_registry(folder / "registry") as registry:
            yield _push(registry, program, needed)


def _push(registry: Registry, program: Path, libraries: list[str]) -> str:
    files = [a_file(path.lstrip("/"), Path(path).read_bytes(), 0o755) for path in libraries]
    own = a_file("usr/bin/in_image", program.read_bytes(), 0o755)
    settings = {"Env": ["PATH=/usr/bin:/bin"]}
    registry.push("cuda", [busybox(), layer(own, *files)], config=settings)
    return f"{registry.host}/cuda:1"


def _smi() -> str:
    """Return where the driver's tool is, here and in an image."""
    found = shutil.which("nvidia-smi")
    assert found is not None, "there is a device, and nvidia-smi is not in PATH"
    return found


def _libraries(program: Path | str) -> list[str]:
    """Return where a program's libraries are, the driver's own left out."""
    said = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
    words = [word for line in said.splitlines() for word in line.split()]
    return [word for word in words if word.startswith("/") and "nvidia" not in word]


def _submit(cluster: RealCluster, image: str, command: str, gpus: int = 1, **more: Any) -> int:
    need = {"gpu": gpus, "cpu": 1, "memory": "8GiB"}
    if gpus:
        need["gpu_memory"] = "4GiB"
    spec = {"name": "in-image", "tenant": "own", "image": image, "command": command}
    return cluster.submit({**spec, "resources": need, **more})


def _until_ended(cluster: RealCluster, job: int) -> None:
    """Wait until it has ended well; fail with what is told of it."""

    def is_over() -> bool:
        view = cluster.get(f"/v1/jobs/{job}")
        ended = [attempt for attempt in view["attempts"] if attempt["diagnosis"]]
        assert not ended, cluster.allot("show", str(job)).stdout
        return view["row"]["state"] == "succeeded"

    until(is_over, f"job {job} to end")


def _lines(cluster: RealCluster, job: int) -> list[str]:
    return cluster.allot("logs", str(job)).stdout.splitlines()


def _step(cluster: RealCluster, job: int) -> int:
    """Return how far a job is."""
    found = [line for line in _lines(cluster, job) if line.startswith("step ")]
    return int(found[-1].split()[1]) if found else 0


def _sum(steps: int, count: int) -> int:
    """Return what the program has to say, by whole numbers alone."""
    factor, addend = 1, 0
    for _ in range(steps):
        factor, addend = factor * FACTOR % MODULUS, (addend * FACTOR + ADDEND) % MODULUS
    return (factor * (count * (count - 1) // 2) + addend * count) % MODULUS


def test_a_job_in_an_image_computes_on_the_gpu(
    cluster: RealCluster, image: str, report: Report
) -> None:
    doctor = cluster.allot("doctor").stdout
    assert "of drivers for images, by CDI" in doctor
    job = _submit(cluster, image, f"{_smi()} -L; in_image 100 0 {MEBIBYTES}")
    without = _submit(cluster, image, "ls /dev; in_image 1 0 1; echo rc=$?", gpus=0)
    for each in (job, without):
        _until_ended(cluster, each)
    lines = _lines(cluster, job)
    none = _lines(cluster, without)
    first = cluster.get(f"/v1/jobs/{job}")["attempts"][-1]["tasks"][0]["phases"]
    report("in an image", lines=lines, without=none[-2:], phases=first)
    assert lines[-1] == f"end {_sum(100, MEBIBYTES << 18)}"
    assert lines[0].startswith("GPU 0: NVIDIA")
    assert "nvidia0" not in none
    assert "libcuda.so.1: cannot open shared object file" in "\n".join(none)
    assert none[-1] == "rc=3"


def test_the_memory_of_a_job_in_an_image_is_handed_over_and_taken_back(
    cluster: RealCluster, image: str, report: Report
) -> None:
    job = _submit(
        cluster, image, f"in_image {STEPS} 3 {MEBIBYTES}", checkpoint={"driver": True}
    )
    until(lambda: _step(cluster, job) >= 100, "the job to make steps")
    until(lambda: kept_test(cluster.state) is not None, "the node's test of the driver")
    before = device().used
    assert cluster.allot("suspend", str(job)).returncode == 0

    def suspended() -> list[dict[str, Any]]:
        events = cluster.get(f"/v1/jobs/{job}/events")
        return [each for each in events if each["kind"] == "TaskSuspended"]

    until(lambda: bool(suspended()), "how it is suspended")
    grade = suspended()[-1]["detail"]["how"]["grade"]
    assert grade == "driver_checkpoint", cluster.allot("show", str(job)).stdout
    freed = before - device().used
    wanted = hog(cluster, nearly_all())
    cluster.wait_for(wanted, "succeeded", "failed")
    had = "had" in cluster.allot("logs", str(wanted)).stdout
    assert cluster.allot("resume", str(job)).returncode == 0
    _until_ended(cluster, job)
    lines = _lines(cluster, job)
    report("handed over in an image", grade=grade, freed_mib=freed >> 20, had=had)
    assert had
    assert lines[-1] == f"end {_sum(STEPS, MEBIBYTES << 18)}"
