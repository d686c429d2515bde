"""How long it takes to read a job: the body of a submission, and a file."""

import time
from collections.abc import Callable
from contextlib import suppress

from allotment.model.errors import BadInput
from allotment.wire.job import job_to_json, read_job, read_job_json
from allotment.wire.text import MOST_BYTES
from bench.figures import Figure

ONE_ROLE = b"""{"name": "train", "tenant": "vision", "priority": "high",
 "env": {"LR": "0.1", "EPOCHS": 10}, "command": ["python", "train.py"],
 "resources": {"cpu": 4, "memory": "8GiB", "gpu": 1, "gpu_type": ["H100"]},
 "output": "/out", "retry": 2, "max_run_time": "2h30m", "checkpoint": {"every": "10m"}}"""

FILE = b"""\
name: train
tenant: vision
priority: high
env:
  LR: 0.1
  EPOCHS: 10
roles:
  ps:
    command: [python, ps.py]
    resources: {cpu: 2, memory: 4GiB}
    ports: {rpc: 1}
  worker:
    count: 4
    command: |
      set -e
      cd "$ALLOT_CODE_DIR"
      python train.py --epochs "$EPOCHS" \\
        --data "$ALLOT_DATA_DIR" --out "$ALLOT_OUTPUT_DIR"
    resources:
      cpu: 4
      memory: 8GiB
      gpu: 1
      gpu_type: [H100, A100-80G]
    completion: {min_failed: 1, min_succeeded: 4}
data: /data/imagenet
code: /home/alice/resnet
output: /results/resnet
retry: 3
max_run_time: 2h30m
max_queue_time: 1d
checkpoint: {dir: checkpoints, every: 10m, keep: 3, signal: USR1, grace: 30s}
depends_on: [12, {job: 13, end: any}]
"""

HOSTILE = b"- a\n" * (MOST_BYTES // 4)


def _best_us(work: Callable[[], object], times: int, rounds: int = 7) -> float:
    """Time one call in microseconds, in the best of several rounds."""
    best = float("inf")
    for _ in range(rounds):
        start = time.perf_counter()
        for _ in range(times):
            work()
        best = min(best, time.perf_counter() - start)
    return best / times * 1e6


def _hostile() -> None:
    with suppress(BadInput):
        read_job(HOSTILE, source="job.yaml")


def main() -> list[Figure]:
    spec = read_job(FILE, source="job.yaml").spec
    body = job_to_json(spec)
    fast = _best_us(lambda: read_job_json(ONE_ROLE), 500)
    two = _best_us(lambda: read_job_json(body), 500)
    write = _best_us(lambda: job_to_json(spec), 500)
    yaml = _best_us(lambda: read_job(FILE, source="job.yaml"), 10) / 1000
    hostile = _best_us(_hostile, 1, rounds=2) / 1e6
    return [
        Figure("one-role job as JSON, read", fast, "us", "lower", 150),
        Figure("two-role job as JSON, read", two, "us", "lower"),
        Figure("two-role job as JSON, written", write, "us", "lower"),
        Figure("1 KiB job as YAML, read", yaml, "ms", "lower", 10),
        Figure("worst 256 KiB of YAML, refused", hostile, "s", "lower", 2),
    ]
