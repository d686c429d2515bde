"""Autoscalers and operators of other projects that tests run on a Kubernetes of their own.

They are found in PLACE; nothing of them is installed.
"""

import contextlib
import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

PLACE = "~/.cache/allotment-operators"
BIN = Path(PLACE).expanduser() / "bin"
WHY = f"needs programs of other projects in {PLACE}/bin"


def skip_without(*programs: str) -> None:
    """Skip a test where programs are missing, and name them."""
    missing = [name for name in programs if not (BIN / name).exists()]
    if missing:
        pytest.skip(f"{WHY}; missing: {', '.join(missing)}")


@contextlib.contextmanager
def running(
    folder: Path, program: str, options: Sequence[str], env: Mapping[str, str]
) -> Iterator[Path]:
    """Run a program; return where what it says is."""
    said = folder / f"{program}.log"
    with said.open("wb") as log:
        process = subprocess.Popen(
            [str(BIN / program), *options], stdout=log, stderr=log, cwd=folder,
            env={**os.environ, **env},
        )  # fmt: skip
    try:
        yield said
    except BaseException as error:
        error.add_note("\n".join(said.read_text(errors="replace").splitlines()[-40:]))
        raise
    finally:
        process.kill()
        process.wait()


def shared(program: str, name: str) -> Path:
    """Return a file that came with a program; skip a test where it is missing."""
    path = BIN.parent / "share" / program / name
    if not path.exists():
        pytest.skip(f"needs {PLACE}/share/{program}/{name}, a file of that project")
    return path
