"""A server for each test that asks for one."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.api.live import Live


@pytest.fixture
def live(tmp_path: Path) -> Iterator[Live]:
    with Live(tmp_path / "state") as server:
        yield server
