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

POLICIES = ("fifo", "backfill", "easy", "srtf", "las2d", "maxmin", "gavel", "gavel-pack")
PINNED = {
    "fifo": "f4ab43621053449b8e4cd88cd9f37b371a71158722f838f251b8f763ff65903c",
    "backfill": "e766c095f4643dcaa65aab696d3b2ceb35358cdbf0bcd6975908b014b86198ab",
    "easy": "6d4547f5be663f64b6110560a1ef3aea348cf87cc29d3f6a848371142d0d0243",
    "srtf": "3fa7a6852ca78736eb8e2b3f824c2c95053699c31304a411c5ff7d581eeb1424",
    "las2d": "9a67976c58a60911087c95f5c574b1dce80eae53d7743ccec8c87e9dc128a7e9",
    "maxmin": "0186bd4fb568e379cefc476cb881d310b4355a3a291044fdb3ee3401a44c2920",
    "gavel": "9832d022544f047d1ace517486e997666c06074399d79b7b57f2ce40ca7d6cb2",
}
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


@pytest.mark.parametrize("policy", PINNED)
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
