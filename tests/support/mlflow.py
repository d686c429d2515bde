"""A real MLflow for tests: found where `scripts/mlflow` puts it, never installed by a test."""

import contextlib
import os
import urllib.request
from pathlib import Path

import pytest

WHY = "needs MLflow, which `scripts/mlflow` installs in a folder of its own"
MARKS = [pytest.mark.may_skip(WHY), pytest.mark.slow]


def folder() -> Path:
    """Return where it is, or would be."""
    usual = "/var/cache" if os.geteuid() == 0 else "~/.cache"
    found = os.environ.get("ALLOT_TEST_MLFLOW") or f"{usual}/allotment-mlflow"
    return Path(found).expanduser()


def program() -> Path:
    """Return MLflow's program; skip the test where there is none."""
    found = folder()
    if not (found / "whole").exists():
        pytest.skip(f"{WHY}; missing: {found}")
    return found / "bin" / "mlflow"


def answers(address: str) -> bool:
    with contextlib.suppress(OSError), urllib.request.urlopen(f"{address}/health") as said:
        return said.status == 200
    return False
