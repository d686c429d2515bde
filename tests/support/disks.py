"""File systems of a test's own."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def mounted(folder: Path, *words: str | Path) -> Iterator[None]:
    """Have on a folder what `mount` is told to put there."""
    subprocess.run(["mount", *words, folder], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", folder], check=True)
