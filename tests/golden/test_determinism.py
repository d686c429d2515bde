"""The same scenario gives the same event log, byte for byte, in every process.

Sets and dictionaries of strings are walked in another order under each PYTHONHASHSEED: a
decision that hangs on it shows here. The digests are pinned, so that a change of what a
policy decides, or of how events are written, is noticed and meant: whoever means it prints
the new ones with `python -m tests.support.event_log`, and tells users in the changelog.
"""

import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.support import event_log

PINNED = {
    "fifo": "2a3555ceb7241c409bbdc7934a8463d7ed130b0e843a8e0b1c4fa4e0eec8f88b",
    "backfill": "fe3a2ada3f54fd8aea1207f24e583f87a62b7f97ab4dd947ece17328559c4e6b",
    "easy": "a7d1b648562f3a3efb88fdd66f565fd7fa21fc2b0115602b2c86151dc8c6b0a4",
    "srtf": "6bb5793ab4aba5d8a29d86e446b7b34c4e9237cf566b97d9886a3a791e1a1a64",
    "las2d": "27826c42496b05378eaaeecd87caa261dec2fd343ba23c4c61266ed74c8232c0",
    "maxmin": "526af333c13f88faeb48b597fc4b6d3ef53a9eba3c560df9b020620ec3182adc",
    "gavel": "5d48ee46cf6d990fb482922a5077281644f22435adba6d2889f369aeb01b9565",
    "gavel-pack": "580703a27652e0e2bfe621cbb461c380def27b36f8daaeee5f275719b2aea925",
}
POLICIES = tuple(PINNED)
HASH_SEEDS = ("0", "1", "random")


def run(*words: str, hash_seed: str) -> str:
    """Run Python in a process of its own; give what it prints."""
    environment = os.environ | {"PYTHONHASHSEED": hash_seed}
    done = subprocess.run(
        [sys.executable, *words],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


@cache
def digests(hash_seed: str) -> dict[str, str]:
    """Give the digest of each policy's log in a process with that hash seed."""
    printed = run("-m", "tests.support.event_log", *POLICIES, hash_seed=hash_seed)
    lines = [line.split() for line in printed.splitlines()]
    return {policy: digest for policy, digest, _ in lines}


@pytest.mark.parametrize("policy", POLICIES)
def test_a_log_is_the_same_in_every_process(policy: str) -> None:
    assert len({digests(hash_seed)[policy] for hash_seed in HASH_SEEDS}) == 1


@pytest.mark.parametrize("policy", POLICIES)
def test_a_log_is_the_same_again_in_one_process(policy: str) -> None:
    scenario = event_log.scenario(policy)
    again, events = event_log.digest(scenario)
    assert again == digests("0")[policy]
    assert events > 6 * len(scenario.trace.jobs), "something was evicted, or failed"


@pytest.mark.parametrize("policy", POLICIES)
def test_a_log_is_what_it_was(policy: str) -> None:
    assert digests("0")[policy] == PINNED[policy]


@pytest.mark.parametrize("policy", ["easy", "las2d"])
def test_what_the_command_writes_is_the_same_under_every_hash_seed(
    policy: str, tmp_path: Path
) -> None:
    trace = tmp_path / "trace.csv"
    rows = [
        f"{job.id},{job.submit_ms // 1000},{job.tasks},{job.run_ms // 1000}"
        for job in event_log.jobs()
    ]
    trace.write_text("\n".join(["job_id,submit_time,num_gpus,duration", *rows, ""]))
    written: set[bytes] = set()
    for number, hash_seed in enumerate(HASH_SEEDS):
        out = tmp_path / f"{number}.csv"
        run(
            "-m", "allotment.cli", "sim", "run", "--trace", str(trace), "--cluster", "4x4",
            "--policy", policy, "--set", "start=20s", "--set", "stop=10s",
            "--set", "mtbf=30h", "--set", "job_failure=0.1", "--set", "queues=10min,1h",
            "--jobs-out", str(out), hash_seed=hash_seed,
        )  # fmt: skip
        written.add(out.read_bytes())
    assert len(written) == 1
