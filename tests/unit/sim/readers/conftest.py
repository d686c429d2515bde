"""Traces written by hand."""

from collections.abc import Callable
from pathlib import Path

import pytest

WriteTrace = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> WriteTrace:
    """Write a trace of these lines, or bytes; give its path."""

    def written(*lines: str, name: str = "trace.csv", stored: bytes | None = None) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(
            "".join(f"{line}\n" for line in lines).encode() if stored is None else stored
        )
        return path

    return written
