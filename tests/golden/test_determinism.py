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
    "fifo": "911c8bb5b837dbd9a2fa05fd6a54d58bfa140d38301a2ea11ff1fb46e7bb9f70",
    "backfill": "1bfca15522f6d420bd35ef51e4c5f229ce7795b582debb3bf467e91fda869a46",
    "easy": "07f78d547d40625e6cfda08b393e911013d0439d26ead03af45cedead5d9a82e",
    "srtf": "9f9e57db7f008a9204e6d24034bd2175f3f069277e492fffdde5ade76134e71a",
    "las2d": "43c8af299a424db9301e56b5b7382acdc01fc9cf38aa58c6c6b73d230c22ad11",
    "maxmin": "a438db71befc34008ccdcd0eeba0fe6795666051e44697f4b95595fa612447a0",
    "gavel": "c241b9aa5f03846748b82455e84745617a901b1782297b8072177b6f95422c89",
    "gavel-pack": "6cf9742e58bd4737e725de98e0be4c91f5c59145b7abd538c2d1a6c29c7d06e9",
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
