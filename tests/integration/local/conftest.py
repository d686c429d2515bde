"""Launchers for the tests of the local runner."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.local.harness import (
    Runner,
    a_runner,
    an_unprivileged_runner,
    groups_of,
    until,
)
from tests.support.registry import Registry, WithUsers, a_registry, a_service


@pytest.fixture(scope="module")
def shared_runner() -> Iterator[Runner]:
    with a_runner() as made:
        yield made


@pytest.fixture
def runner(shared_runner: Runner) -> Iterator[Runner]:
    """The file's launcher, with the rights of whoever runs the tests, and nothing to do.

    To start one takes as long as twenty tasks.
    """
    yield shared_runner
    shared_runner.clear()
    until(lambda: not groups_of(shared_runner.state), "the groups of tasks to be gone")


@pytest.fixture
def own_runner() -> Iterator[Runner]:
    """A launcher for a test that finds fault with what others leave, or leaves such itself."""
    with a_runner() as made:
        yield made


@pytest.fixture(scope="module")
def shared_user_runner() -> Iterator[Runner]:
    with an_unprivileged_runner() as made:
        yield made


@pytest.fixture
def user_runner(shared_user_runner: Runner) -> Iterator[Runner]:
    """The file's launcher that is not root, and nothing to do."""
    yield shared_user_runner
    shared_user_runner.clear()


@pytest.fixture
def service(reachable: Path) -> Iterator[WithUsers]:
    with a_service(reachable) as made:
        yield made


@pytest.fixture
def private(reachable: Path) -> Iterator[Registry]:
    """A registry that wants a password, and of which ann has one."""
    with a_registry(reachable / "registry", users=["ann"]) as made:
        yield made


OWN = pytest.param("own", marks=pytest.mark.needs_root)
BWRAP = pytest.param("bwrap", marks=pytest.mark.needs_tool("bwrap"))


@pytest.fixture(params=[OWN, BWRAP, "none"])
def kind(request: pytest.FixtureRequest) -> str:
    """Each means by which namespaces are made."""
    return request.param
