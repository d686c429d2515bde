"""What a run gives: one line for each job, and the cluster over time."""

import msgspec

from allotment.metrics.curve import Sample as Sample
from allotment.metrics.jobs import JobOutcome as JobOutcome
from allotment.metrics.summary import Summary


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
    summary: Summary | None = None
