"""What a run gives: one line for each job, and the cluster over time."""

import msgspec

from allotment.metrics.curve import Sample as Sample
from allotment.metrics.jobs import JobOutcome as JobOutcome
from allotment.metrics.summary import Summary
from allotment.sim.chart import Chart


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
    summary: Summary
    chart: Chart | None = None
    """What pictures of nodes and single jobs are drawn from; None where that was not kept."""
    rule: str = ""
    """What the policy does, in a line."""
    settings: tuple[tuple[str, str], ...] = ()
    """Those that were chosen, as they would be written."""
    defaults: tuple[tuple[str, str], ...] = ()
    """All others."""
    trace: str = ""
    trace_digest: str = ""
    dropped: tuple[tuple[str, int], ...] = ()
    warnings: tuple[str, ...] = ()
    seed: int = 0
    version: str = ""
    wall_s: float = 0.0
    events: int = 0

    def never(self) -> dict[str, list[str]]:
        """List the jobs that can never run by the reason, most first."""
        found: dict[str, list[str]] = {}
        for job in self.jobs:
            if job.never:
                found.setdefault(job.never, []).append(job.id)
        return dict(sorted(found.items(), key=lambda one: -len(one[1])))
