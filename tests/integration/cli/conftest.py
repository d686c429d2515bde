"""A state folder with a short path, and a canned service in it."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.cli.canned import Service


@pytest.fixture
def state() -> Iterator[Path]:
    """A state folder whose socket path is short enough for the kernel."""
    folder = Path(tempfile.mkdtemp(prefix="allot-"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def service(state: Path) -> Iterator[Service]:
    with Service(state) as running:
        yield running
