"""The archive that is the first process of tasks on Slurm."""

import os
import subprocess
import sys
from importlib.util import MAGIC_NUMBER
from pathlib import Path

import pytest

from allotment.backends.slurm.packed import packed

TASK = "def start(words):\n    print(start.__code__.co_filename, *words)\n    return 3\n"
MODULE = "allotment.backends.slurm.task"
INSIDE = "allotment/backends/slurm/task.py"
NAME = """\
from allotment.backends.slurm.backend import _source_of
from allotment.backends.slurm.packed import MODULES, packed
print(packed({module: _source_of(module) for module in MODULES})[0])
"""


def run(archive: Path) -> tuple[int, str]:
    command = (sys.executable, "-I", "-S", str(archive), "a", "b")
    done = subprocess.run(command, capture_output=True, text=True)
    return done.returncode, done.stdout.strip()


def test_it_runs_as_compiled(tmp_path: Path) -> None:
    name, content = packed({MODULE: TASK})
    (tmp_path / name).write_bytes(content)
    assert run(tmp_path / name) == (3, f"{INSIDE} a b")


def test_a_python_of_another_version_reads_the_source(tmp_path: Path) -> None:
    name, content = packed({MODULE: TASK})
    archive = tmp_path / name
    archive.write_bytes(content.replace(MAGIC_NUMBER, b"\x01\x02\r\n"))
    assert run(archive) == (3, f"{archive}/{INSIDE} a b")


@pytest.mark.parametrize("seed", ["1", "2"])
def test_it_has_the_same_name_at_every_start(seed: str) -> None:
    def name(seed: str) -> str:
        env = {**os.environ, "PYTHONHASHSEED": seed}
        done = subprocess.run((sys.executable, "-c", NAME), env=env, capture_output=True)
        return done.stdout.decode()

    assert name(seed).startswith("task-")
    assert name(seed) == name("0")
