"""`allot demo --engine slurm` on a real Slurm; by `make nightly` with pilots, too."""

import os
import re
import subprocess
import sys

import pytest

from tests.support.cluster import until
from tests.support.on_slurm import a_shared_folder
from tests.support.slurm import TOOLS, a_slurm

pytest.importorskip("numpy")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.alone,
    pytest.mark.needs_root,
    pytest.mark.needs_tool(*TOOLS),
]

LIMIT_S = 500
MODES = ["--native", *([""] if os.environ.get("ALLOT_PILOTS") else [])]


@pytest.mark.parametrize("mode", MODES)
def test_the_demo_shows_on_slurm_what_it_promises(mode: str) -> None:
    words = [sys.executable, "-m", "allotment.cli", "demo", "--engine", "slurm"]
    with a_slurm() as slurm, a_shared_folder() as folder:
        env = {**os.environ, "SLURM_CONF": str(slurm.conf), "NO_COLOR": "1"}
        done = subprocess.run(
            [*words, *filter(None, [mode]), "--folder", str(folder)], env=env,
            capture_output=True, text=True, timeout=LIMIT_S, check=False,
        )  # fmt: skip
        # A node that was held goes back when its runner has ended: some seconds later.
        until(lambda: not slurm.say("squeue", "-h", "-o", "%j"), "Slurm to have no job of it")
        kept = sorted(path.name for path in folder.iterdir())
    marks = re.findall(r"^([✓✗]) (.+?) —", done.stdout, re.M)
    assert all(mark == "✓" for mark, _ in marks), done.stdout + done.stderr
    assert "13 of 13 checks hold" in done.stdout
    assert "three teams share partition main" in done.stdout
    assert "6 GPUs (a100) on 2 nodes" in done.stdout
    assert done.returncode == 0, done.stdout + done.stderr
    assert kept == ["state"], f"it left its folder: {done.stdout}"
    assert "Traceback" not in done.stdout + done.stderr
