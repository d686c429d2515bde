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
    "fifo": "d2e23c5d9f93ad05e45afbb1d3cf8f8fbf3b7a18dc07e59e13fe308b8dce3bbf",
    "backfill": "a6ff782991eaa571c63e115db3f5c925c2b610cf6b5eb813ac51f078aef9c329",
    "easy": "dc8d87d2b2aabdc840eb01ae8323337847c76ebd2733b5821e3d5e5fc03a78e6",
    "srtf": "6d295b9d128e71478d233fee03983a54b3342bbc32c6a7e8829535a790b5de73",
    "las2d": "b89eb802061d628a7f368f8257be9d7ed51edbeab933fb9a9c9f600d4c18e39e",
    "maxmin": "bfba0923b669528334e850df23cae2c23b957f48af07fab126e6186346a9aceb",
    "gavel": "08208d3de3d2502fb11c64cfc4516375f87c66d0c0049d3c638d7e77176d1527",
    "gandiva": "944ebbd93b40c1d3f4b91a22e5bffd672dc2008fccb4c91166565f14ade96ef8",
    "gavel-pack": "ff21747ed7909221c35f2ecc11acc54f066a4fa22f682c639a32d0c58b328c6d",
}
POLICIES = tuple(PINNED)
HASH_SEEDS = ("0", "random")


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
    """Return the digest of each policy's log in a process with that hash seed."""
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
