"""Synthetic workloads: from a trace or a kept model to a file."""

from itertools import tee
from pathlib import Path

import msgspec

from allotment.model.quantity import DEVICE
from allotment.sim.bad import BadScenario
from allotment.sim.generate import (
    BadModel,
    FitReport,
    Model,
    Reached,
    Written,
    compare,
    default_model,
    drawn,
    fit,
    model_from_json,
    model_to_json,
    planned,
    write_csv,
)
from allotment.sim.trace import Trace
from allotment.wiring.outputs import Outputs
from allotment.wiring.sim import open_cluster, open_trace

LONGEST_MODEL = 16 << 20
MOST_COMPARED = 1_000_000


class Wish(msgspec.Struct, frozen=True):
    """What is to be made. Empty texts are not given; `like` and `model` exclude each other."""

    out: str
    jobs: int
    seed: int = 0
    like: str = ""
    """A trace to be like."""
    format: str = ""
    model: str = ""
    """A file with a model kept before."""
    keep_model: str = ""
    load: float | None = None
    cluster: str = ""


class Made(msgspec.Struct, frozen=True):
    """What was made, and how it compares with what it is like, if that is a trace."""

    written: Written
    fit: FitReport | None
    reached: Reached | None = None
    """The load they come to; null where none was asked for."""
    span_ms: int = 0
    """From the first submission to the last."""


def make(wish: Wish) -> Made:
    """Make and write a workload. Raises BadScenario or Unwritten; then no file was touched."""
    if wish.like and wish.model:
        raise BadScenario("--like and --model: give one of them.")
    if wish.load is not None and not wish.cluster:
        raise BadScenario("--load needs --cluster: load is a share of its devices.")
    outputs = Outputs(
        {"--out": wish.out, "--keep-model": wish.keep_model},
        reads=(wish.like, wish.model, wish.cluster),
    )
    real = open_trace(Path(wish.like), wish.format) if wish.like else None
    model = _model(wish, real)
    nodes = open_cluster(wish.cluster) if wish.cluster else ()
    capacity = DEVICE * sum(len(node.devices) for node in nodes)
    span, reached = planned(model, wish.jobs, wish.seed, wish.load, capacity)
    jobs = drawn(model, wish.jobs, wish.seed, span)
    compared = None
    if real is not None and wish.jobs <= MOST_COMPARED:
        jobs, again = tee(jobs)
        compared = compare(real, tuple(again), rate_scaled=wish.load is not None)
    written: list[Written] = []
    outputs.write(
        {
            "--out": lambda file: written.append(write_csv(jobs, file)),
            "--keep-model": lambda file: file.write(model_to_json(model).decode()),
        }
    )
    return Made(written[0], compared, reached, span.length_ms)


def _model(wish: Wish, real: Trace | None) -> Model:
    if real is not None:
        return fit(real)
    if not wish.model:
        return default_model()
    try:
        with Path(wish.model).open("rb") as file:
            data = file.read(LONGEST_MODEL)
    except OSError as error:
        why = (error.strerror or "it cannot be read").lower()
        raise BadScenario(
            f"{wish.model}: {why}. Name a model kept with --keep-model."
        ) from error
    try:
        return model_from_json(data)
    except BadModel as error:
        raise BadModel(f"{wish.model}: {error}") from error
