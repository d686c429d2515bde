"""Changes of owner and of user that do nothing, and do not fail."""

import os
import subprocess
import sys
from pathlib import Path

from allotment.building.pretending import CALLS

PROGRAM = """
import os, sys
from allotment.building.pretending import pretend
pretend()
os.chown(sys.argv[1], 12345, 12345)
os.setgroups([12345])
os.setresuid(12345, 12345, 12345)
print(os.stat(sys.argv[1]).st_uid, os.getuid(), flush=True)
os.execvp("sh", ["sh", "-c", "chown 12345 $0 && echo well", sys.argv[1]])
"""


def test_nothing_changes_and_nothing_fails_here_and_in_what_is_started(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.stdout == f"{os.getuid()} {os.getuid()}\nwell\n", done.stderr
    assert tmp_path.stat().st_uid == os.getuid()


def test_each_call_is_named_once() -> None:
    assert len(set(CALLS)) == len(CALLS)
