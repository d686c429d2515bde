"""`allot demo --engine kubernetes` on real kubelets; by `make nightly` without GPUs, too."""

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cluster import until
from tests.support.image_numpy import WHY, push_numpy
from tests.support.kubernetes import (
    GPUS,
    IMAGE,
    MARKS,
    NAMED,
    NAMESPACE,
    Kubernetes,
    a_kubernetes,
)
from tests.support.night import AT_NIGHT, at_night
from tests.support.registry import a_registry

pytest.importorskip("numpy")
LIMIT_S = 400
ELSEWHERE = "nodes elsewhere do not reach a registry here"
pytestmark = [
    *MARKS,
    pytest.mark.alone,
    pytest.mark.may_skip(f"{WHY}; {ELSEWHERE}; {AT_NIGHT}"),
    pytest.mark.needs_tool("docker-registry", "busybox"),
    pytest.mark.skipif(bool(NAMED), reason=ELSEWHERE),
]

DEMO = [sys.executable, "-m", "allotment.cli", "demo", "--engine", "kubernetes"]


@pytest.fixture(scope="module")
def kubernetes() -> Iterator[Kubernetes]:
    with a_kubernetes() as running:
        yield running


@pytest.fixture(scope="module")
def image(kubernetes: Kubernetes) -> Iterator[str]:
    with a_registry(kubernetes.folder / "registry") as registry:
        yield push_numpy(registry)


def played(kubernetes: Kubernetes, image: str, *words: str) -> str:
    """Play the demo; return what it said, all of whose checks hold."""
    with tempfile.TemporaryDirectory(prefix="allot-demo-", dir="/var/tmp") as folder:
        env = {**os.environ, "NO_COLOR": "1", "TMPDIR": folder}
        words = ("--kubeconfig", str(kubernetes.kubeconfig), "--image", image, *words)
        done = subprocess.run(
            [*DEMO, *words], env=env, capture_output=True, text=True, timeout=LIMIT_S,
            check=False,
        )  # fmt: skip
        assert not list(Path(folder).iterdir()), done.stdout
    assert done.returncode == 0, done.stdout + done.stderr
    marks = re.findall(r"^([✓✗]) (.+?) —", done.stdout, re.M)
    assert all(mark == "✓" for mark, _ in marks), done.stdout
    assert "Traceback" not in done.stdout + done.stderr
    until(lambda: not kubernetes.get("pods", "-n", NAMESPACE)["items"], "its pods to be gone")
    return done.stdout


def test_the_demo_shows_on_kubelets_what_it_promises(
    kubernetes: Kubernetes, image: str
) -> None:
    with tempfile.TemporaryDirectory(prefix="allot-shared-", dir="/var/tmp") as shared:
        said = played(kubernetes, image, "--volume", f"{shared}=host")
        assert not list(Path(shared).iterdir())
    assert "12 of 12 checks hold" in said
    assert "6 GPUs (gpu) on 2 nodes" in said
    assert "✓ the borrower finishes from its checkpoint" in said
    assert "no model is fetched" in said


def test_an_image_that_cannot_run_it_is_told_before_it_begins(kubernetes: Kubernetes) -> None:
    words = ("--kubeconfig", str(kubernetes.kubeconfig), "--image", IMAGE)
    done = subprocess.run(
        [*DEMO, *words], capture_output=True, text=True, timeout=LIMIT_S, check=False
    )
    assert done.returncode == 1
    assert "The command, or a library it needs, was not found" in done.stdout
    assert "It left nothing behind" in done.stdout


@at_night
def test_a_cluster_without_gpus_and_without_a_volume_has_virtual_ones(
    kubernetes: Kubernetes, image: str
) -> None:
    for node in kubernetes.nodes:
        kubernetes.offer(node, 0)
    try:
        said = played(kubernetes, image)
    finally:
        for node in kubernetes.nodes:
            kubernetes.offer(node, GPUS)
    assert "12 of 12 checks hold" in said
    assert "6 virtual GPUs" in said
    assert "✓ the borrower starts again" in said
