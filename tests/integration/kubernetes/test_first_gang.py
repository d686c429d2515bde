"""The commands of the page on Kubernetes, from a cluster to the end of the first gang."""

import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

from tests.support.kubernetes import IMAGE, KUBECTL, MARKS, Kubernetes

pytestmark = MARKS

PAGE = Path(__file__).parents[3] / "docs" / "operate" / "kubernetes.md"
TITLE = "## From a cluster to the first gang"
HERE = {
    "pytorch/pytorch:2.6.0": IMAGE,
    "nvidia-smi -L": "sh -c 'echo a first pod'",
    "gpu: 8, cpu: 16, memory: 64GiB": "gpu: 4, cpu: 0.5, memory: 64MiB",
    "torchrun": "echo torchrun",
}
"""What the page says, and what these nodes have."""
LIMIT_S = 180


def test_the_commands_of_the_page_lead_to_a_first_gang(
    kubernetes: Kubernetes, folder: Path
) -> None:
    text = PAGE.read_text().partition(TITLE)[2]
    for said, here in HERE.items():
        assert said in text, said
        text = text.replace(said, here)
    commands = next(each for each in re.findall(r"(?:^    .+\n)+", text, re.M))
    (folder / "gang.yaml").write_text(re.findall(r"```yaml\n(.*?)```", text, re.S)[0])
    (folder / "bin").mkdir()
    for name, program in (
        ("kubectl", KUBECTL),
        ("allot", Path(sys.executable).with_name("allot")),
    ):
        (folder / "bin" / name).symlink_to(shutil.which(program) or program)
    shutil.copy(kubernetes.admin, folder / "kubeconfig")
    env = {
        **os.environ, "KUBECONFIG": str(folder / "kubeconfig"),
        "ALLOT_STATE": str(folder / "state"), "PATH": f"{folder}/bin:{os.environ['PATH']}",
    }  # fmt: skip
    began = time.monotonic()
    try:
        done = subprocess.run(
            ["bash", "-e", "-x", "-o", "pipefail", "-c", commands], cwd=folder, env=env,
            capture_output=True, text=True, timeout=LIMIT_S, check=False,
        )  # fmt: skip
        took = time.monotonic() - began
    finally:
        subprocess.run(["allot", "down", "--cancel-jobs"], env=env, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "a first pod" in done.stdout
    assert "main.1| torchrun --nnodes 2 --node-rank 1" in done.stdout, done.stdout
    print(f"from the first command to the end of the gang: {took:.1f} s")
