"""A small real training: a line fitted by gradient descent, well or badly by its rate."""

import sys
from pathlib import Path

import allotment

SRC = Path(allotment.__file__).parents[1]
PROGRAM = f"""
import random, sys, time
sys.path.insert(0, {str(SRC)!r})
import allotment
rate, steps, pause = float(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
rng = random.Random(1)
truth = [rng.uniform(-1, 1) for _ in range(8)]
weights = [0.0] * 8
for step in range(1, steps + 1):
    x = [rng.gauss(0, 1) for _ in range(8)]
    error = sum((w - t) * v for w, t, v in zip(weights, truth, x))
    weights = [w - rate * 2 * error * v for w, v in zip(weights, x)]
    loss = sum((w - t) * (w - t) for w, t in zip(weights, truth))
    allotment.progress(step, steps, loss=loss)
    time.sleep(pause)
print(loss)
"""


def training(steps: int, pause_s: float = 0.01) -> dict[str, object]:
    """Return a job that trains with the rate `{lr}`, on one device."""
    return {
        "name": "tune",
        "command": [sys.executable, "-c", PROGRAM, "{lr}", str(steps), str(pause_s)],
        "resources": {"gpu": 1, "cpu": 0.1, "memory": "64MiB"},
    }


def loss_of(rate: float, steps: int) -> float:
    """Return what that program's loss is at a step, trained in this process."""
    import random

    rng = random.Random(1)
    truth = [rng.uniform(-1, 1) for _ in range(8)]
    weights = [0.0] * 8
    for _ in range(steps):
        x = [rng.gauss(0, 1) for _ in range(8)]
        error = sum((w - t) * v for w, t, v in zip(weights, truth, x, strict=True))
        weights = [w - rate * 2 * error * v for w, v in zip(weights, x, strict=True)]
    return sum((w - t) * (w - t) for w, t in zip(weights, truth, strict=True))
