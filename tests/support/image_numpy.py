"""An image with the machine's Python and the tests' numpy, in a registry of a test's own."""

import os
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.support.image_python import host_python, with_libraries
from tests.support.registry import Registry, busybox, layer

WHY = "needs numpy for the machine's own Python"


def push_numpy(registry: Registry) -> str:
    """Push the image; return its name. Skips where numpy is for another Python."""
    python, version = host_python()
    if version != f"3.{sys.version_info.minor}":
        pytest.skip(f"{WHY}, which is {version}")
    package = Path(np.__file__).parent
    files = [
        Path(folder) / name
        for top in (package, package.parent / "numpy.libs")
        for folder, _, names in os.walk(top)
        for name in names
        if "/tests" not in folder and not name.endswith(".pyc")
    ]
    numpy = layer(*with_libraries(files, [file for file in files if ".so" in file.name]))
    config = {"Env": [f"PYTHONPATH={package.parent}", "PATH=/usr/bin:/bin"]}
    registry.push("numpy", [busybox(), python, numpy], config=config)
    return f"{registry.host}/numpy:1"
