"""What a run gives: one line for each job, and the cluster over time."""

import msgspec

from allotment.model.quantity import Millis


class JobOutcome(msgspec.Struct, gc=False):
    """One job of a run. Instants are on the trace's clock; -1 where it never came to that.

    `attained_ms` is device-time: milliseconds times devices, over all its attempts.
    """

    id: str
    tenant: str
    gpu_milli: int
    submit_ms: int
    run_ms: Millis
    """Its run time in the trace."""
    start_ms: int = -1
    """Its first start."""
    end_ms: int = -1
    attained_ms: int = 0
    preemptions: int = 0
    never: str = ""
    """Why it was refused: it can never run on this cluster. Empty for all others."""
    censored: bool = False


class Sample(msgspec.Struct, frozen=True, gc=False):
    """The cluster at one instant (from then on until the next sample)."""

    at_ms: int
    busy_milli: int
    """Devices in use, in thousandths."""
    running: int
    waiting: int
    """Jobs."""
    waiting_milli: int
    """Devices that waiting jobs ask for, in thousandths."""


class Span(msgspec.Struct, frozen=True, gc=False):
    """A stretch of time that a job spent on devices of a node, for a Gantt chart."""

    job: int
    """The place of the job in `Run.jobs`."""
    node: int
    devices: int
    from_ms: int
    to_ms: int


class Run(msgspec.Struct, frozen=True):
    """One simulation, complete: what reports and tables are made from."""

    policy: str
    clairvoyant: bool
    """Whether the policy was told run times it could not know in life."""
    cluster: str
    """In words: "64 nodes × 8 A100"."""
    nodes: int
    capacity_milli: int
    """Devices of the whole cluster, in thousandths."""
    jobs: tuple[JobOutcome, ...]
    """In order of submission."""
    samples: tuple[Sample, ...]
    spans: tuple[Span, ...] = ()
    """Empty when the run was too long to draw every span."""
    settings: tuple[tuple[str, str], ...] = ()
    trace: str = ""
    trace_digest: str = ""
    dropped: tuple[tuple[str, int], ...] = ()
    warnings: tuple[str, ...] = ()
    seed: int = 0
    version: str = ""
    wall_s: float = 0.0
    events: int = 0
