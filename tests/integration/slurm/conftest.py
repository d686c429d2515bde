"""One Slurm for all tests of a run, and one service on it for the tests of a file."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.on_pilots import Piloted
from tests.support.on_slurm import OnSlurm, a_shared_folder
from tests.support.slurm import Slurm, a_slurm


@pytest.fixture(scope="session")
def slurm() -> Iterator[Slurm]:
    with a_slurm() as running:
        yield running


@pytest.fixture
def folder() -> Iterator[Path]:
    with a_shared_folder() as made:
        yield made


@pytest.fixture(scope="module")
def service(slurm: Slurm) -> Iterator[OnSlurm]:
    with a_shared_folder() as made:
        running = OnSlurm(made / "state", slurm)
        running.up()
        try:
            yield running
        finally:
            running.down()
            slurm.clear()


@pytest.fixture
def cluster(service: OnSlurm | Piloted) -> Iterator[OnSlurm | Piloted]:
    """The service, with no jobs left of other tests, and with all nodes held if it does."""
    if isinstance(service, Piloted):
        service.until_held()
    yield service
    service.clear()
