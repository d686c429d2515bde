"""A server for each test that asks for one."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

from tests.integration.api.live import Live


@pytest.fixture(autouse=True)
def terse_logging() -> Iterator[None]:
    """By default structlog draws pictures of tracebacks, which takes seconds."""
    structlog.configure(
        processors=[
            structlog.processors.format_exc_info,
            structlog.processors.KeyValueRenderer(),
        ]
    )
    yield
    structlog.reset_defaults()


@pytest.fixture
def live(tmp_path: Path) -> Iterator[Live]:
    with Live(tmp_path / "state") as server:
        yield server
