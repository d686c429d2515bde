"""One Kubernetes for all tests of a run, and one service on it for the tests of a file."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.kubernetes import Kubernetes, a_kubernetes
from tests.support.on_kubernetes import OnKubernetes


@pytest.fixture(scope="session")
def kubernetes() -> Iterator[Kubernetes]:
    with a_kubernetes() as running:
        yield running


@pytest.fixture
def folder() -> Iterator[Path]:
    made = Path(tempfile.mkdtemp(prefix="allot-test-", dir="/var/tmp"))
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)


@pytest.fixture(scope="module")
def service(kubernetes: Kubernetes) -> Iterator[OnKubernetes]:
    made = Path(tempfile.mkdtemp(prefix="allot-test-", dir="/var/tmp"))
    (made / "state").mkdir()
    running = OnKubernetes(made / "state", kubernetes)
    running.up()
    try:
        yield running
    finally:
        running.down()
        kubernetes.clear()
        shutil.rmtree(made, ignore_errors=True)


@pytest.fixture
def cluster(service: OnKubernetes) -> Iterator[OnKubernetes]:
    """The service, with no jobs left of other tests."""
    yield service
    service.clear()
