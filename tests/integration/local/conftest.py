"""Launchers for the tests of the local runner."""

from collections.abc import Iterator

import pytest

from tests.integration.local.harness import Runner, a_runner, an_unprivileged_runner


@pytest.fixture
def runner() -> Iterator[Runner]:
    """A launcher with the rights of whoever runs the tests."""
    with a_runner() as made:
        yield made


@pytest.fixture
def user_runner() -> Iterator[Runner]:
    """A launcher that is not root."""
    with an_unprivileged_runner() as made:
        yield made


OWN = pytest.param("own", marks=pytest.mark.needs_root)
BWRAP = pytest.param("bwrap", marks=pytest.mark.needs_tool("bwrap"))


@pytest.fixture(params=[OWN, BWRAP, "none"])
def kind(request: pytest.FixtureRequest) -> str:
    """Each means by which namespaces are made."""
    return request.param
