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
    "fifo": "e365c2ad2ab299d26be649a534432304a4d7ddd1a23e3495691502cfbea6cf60",
    "backfill": "a173fcd8a86db4d41678b1b26cf129b5997a2c719749efb5e4add43cc84612ac",
    "easy": "0545e31fc56fda61a6f7297a4e6df332b1532ad9011b44c892e8930ff1489985",
    "srtf": "e3280493a0c61acbd2d8b7734758e115a3ac68a5560c44acaabfba9a90da2ee4",
    "las2d": "e899b9cfdff04d200104055a2876cb6d5e7ac62ed49f306b0eb1448b8783abbc",
    "maxmin": "e6026ad90bbd85edfd9d54a9851229f018d7f9c72c3d39b4d975fc58e0337e02",
    "gavel": "a3b34608369345fc2b75dd35bb191d76e039b4f083d1d37867489f6d601974e0",
    "gavel-pack": "15e71ed317bf9fea0755a09b7dabc82b176cb9093cb95bfe5a122baa4989c495",
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
