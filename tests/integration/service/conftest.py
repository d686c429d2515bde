"""What the tests with object stores start once for each file."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.object_stores import Moto, Rclone, Store, a_store, log_in
from tests.support.registry import CONFIG, WithUsers, a_service


@pytest.fixture(scope="module")
def service(reachable_once: Path) -> Iterator[WithUsers]:
    """A service of root's, with a user who has the key of the stores."""
    with a_service(reachable_once, CONFIG) as made:
        made.allot("ps")  # The users' homes are made.
        log_in(made, "ann")
        yield made


@pytest.fixture(scope="module")
def rclone(reachable_once: Path) -> Iterator[Rclone]:
    with a_store(Rclone, reachable_once / "rclone") as made:
        yield made


@pytest.fixture(scope="module")
def moto(reachable_once: Path) -> Iterator[Moto]:
    with a_store(Moto, reachable_once / "moto") as made:
        yield made


@pytest.fixture(params=["rclone", "moto"])
def store(request: pytest.FixtureRequest) -> Store:
    """Each of the two, one after the other."""
    return request.getfixturevalue(request.param)
