"""Fetches the trained model the way anybody would, and tries it on data it never saw."""

from pathlib import Path

import msgspec
import numpy as np

from allotment.client import Client
from allotment.demo.train import HELD_OUT_SAMPLES, Net, spirals
from allotment.model.ids import JobId

FILES = ("model.npz", "metrics.json")
SEED, HELD_OUT = 0, 1
"""As `train.py` draws its held-out samples when nobody names another seed."""


class Metrics(msgspec.Struct, frozen=True):
    """What a training job wrote down when it was done."""

    held_out_accuracy: float
    steps: int
    resumed_from_step: int


class Trained(msgspec.Struct, frozen=True):
    """A fetched model, and how well it does here."""

    path: Path
    size: int
    weights: int
    accuracy: float
    metrics: Metrics


def fetch(client: Client, job: JobId, folder: Path) -> Trained:
    """Copy a job's outputs to this folder, load the model, and measure it.

    Raises KeyError when the job left no model.
    """
    found = {file.path: file for file in client.outputs(job)}
    model, metrics = (client.fetch(job, found[name], folder) for name in FILES)
    with np.load(model, allow_pickle=False) as file:
        weights = np.asarray(file["weights"], dtype=np.float64)
    return Trained(
        path=model,
        size=model.stat().st_size,
        weights=len(weights),
        accuracy=_accuracy(weights),
        metrics=msgspec.json.decode(metrics.read_bytes(), type=Metrics),
    )


def _accuracy(weights: "np.ndarray[tuple[int], np.dtype[np.float64]]") -> float:
    """Count how many of the held-out points the net tells right."""
    net = Net(_hidden(len(weights)))
    points, arms = spirals(HELD_OUT_SAMPLES, np.random.default_rng([SEED, HELD_OUT]))
    return float(net.gradient(weights, points, arms)[-1]) / len(arms)


def _hidden(length: int) -> int:
    """Find the width of the net that has so many weights."""
    return next(width for width in range(1, length) if Net(width).length == length)
