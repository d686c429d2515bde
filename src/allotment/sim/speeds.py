"""How fast a job runs where it was put, against where its run time was measured.

Speeds are millionths: 1,000,000 is the speed of the trace. Each factor is 1 unless set:

* by device type: rates of (model, devices) on each type, as Gavel publishes them, against
  a reference type (Narayanan et al., OSDI 2020);
* by locality: what is left of it when a gang spans nodes, switches or racks. Who spans
  racks spans switches and nodes too: the least of the factors counts. Jeon et al.,
  "Analysis of Large-Scale Multi-Tenant GPU Clusters", ATC 2019, measured 0.85 for two
  devices on two nodes against one;
* by packing: what two jobs that share devices have of them, from the same tables. Where
  nothing is known of them, or they cannot run together, they take turns, and each has half
  (Xiao et al., Gandiva, OSDI 2018);
* by interference: what is left of it beside another job on one of its nodes; the same
  paper measured 0.66 for a node shared with communicating jobs.
"""

from collections.abc import Mapping, Sequence

import msgspec

from allotment.model.cluster import Node
from allotment.model.ids import NodeId
from allotment.model.ledger import Slot
from allotment.model.quantity import DEVICE
from allotment.sim.trace import TraceJob
from allotment.sim.work import FULL_SPEED

TypeRates = Mapping[tuple[str, int], float]
"""Steps a second of (model, devices) on one type."""

Rates = Mapping[str, TypeRates]
"""The same, by device type."""

Pairs = Mapping[str, Mapping[tuple[tuple[str, int], tuple[str, int]], float]]
"""Steps a second of the first when it is packed with the second, by device type."""

REFERENCE = "v100"
"""The type of device that run times are told for."""


class Factors(msgspec.Struct, frozen=True):
    """What is left of the speed, each from 0 (exclusive) to 1."""

    across_nodes: float = 1.0
    across_switches: float = 1.0
    across_racks: float = 1.0
    interference: float = 1.0


PLAIN = Factors()
TAKING_TURNS = 0.5


class Speeds:
    """Knows every factor. Pure."""

    def __init__(
        self,
        nodes: Sequence[Node],
        factors: Factors = PLAIN,
        rates: Rates | None = None,
        pairs: Pairs | None = None,
    ) -> None:
        self._nodes = {node.id: node for node in nodes}
        self._labels = {node.id: dict(node.labels) for node in nodes}
        self._kinds = tuple(
            dict.fromkeys(device.type for node in nodes for device in node.devices)
        )
        self._factors = factors
        self._rates = rates or {}
        self._pairs = pairs or {}
        self.constant = factors == PLAIN and not self._rates
        """Whether every job runs at the speed of the trace everywhere."""
        self.disturbed = factors.interference != 1.0
        """Whether neighbours matter."""

    def of(
        self,
        job: TraceJob,
        slots: Sequence[Slot],
        neighbours: int = 0,
        partners: Sequence[TraceJob] = (),
    ) -> int:
        """Return the speed of a gang on its slots; at least 1.

        `neighbours` counts other jobs on its nodes; `partners` are those that share devices.
        """
        speed = self._by_type(job, slots) * self._by_distance(slots)
        if neighbours:
            speed *= self._factors.interference
        if partners:
            kind = self._nodes[slots[0].node].devices[slots[0].devices[0]].type
            speed *= min(self._packed(kind, job, partner) for partner in partners)
        return max(1, round(speed * FULL_SPEED))

    def together(self, job: TraceJob, other: TraceJob) -> float:
        """Return what two jobs have together of the speeds each has alone: 2 at best.

        The mean over the types of the cluster, for a job that runs on all of them in turn; 0
        if there is a type on which they cannot run together.
        """
        shares = [
            self._left(kind, job, other) + self._left(kind, other, job) for kind in self._kinds
        ]
        return sum(shares) / len(shares) if shares and min(shares) > 0 else 0.0

    def _packed(self, kind: str, job: TraceJob, partner: TraceJob) -> float:
        """Return what is left of a job's speed on devices it shares with another."""
        return self._left(kind, job, partner) or TAKING_TURNS

    def _left(self, kind: str, job: TraceJob, partner: TraceJob) -> float:
        """The same; 0 for both if one of them cannot run beside the other."""
        rates, pairs = self._rates.get(kind, {}), self._pairs.get(kind, {})
        mine, theirs = _key(job), _key(partner)
        alone, other = rates.get(mine), rates.get(theirs)
        if not alone or not other:
            return TAKING_TURNS
        return pairs.get((mine, theirs), 0.0) / alone if pairs.get((theirs, mine)) else 0.0

    def _by_type(self, job: TraceJob, slots: Sequence[Slot]) -> float:
        """The slowest type of a gang sets its pace. 1 where no rate is known."""
        reference = self._rates.get(REFERENCE)
        if reference is None:
            return 1.0
        key = _key(job)
        base = reference.get(key)
        if not base:
            return 1.0
        types = {self._nodes[s.node].devices[i].type for s in slots for i in s.devices}
        return min(
            (self._rates.get(kind, reference).get(key, base) / base for kind in types),
            default=1.0,
        )

    def _by_distance(self, slots: Sequence[Slot]) -> float:
        nodes = {slot.node for slot in slots}
        if len(nodes) < 2:
            return 1.0
        least, racks = self._factors.across_nodes, self._apart(nodes, "rack")
        if racks or self._apart(nodes, "switch"):
            least = min(least, self._factors.across_switches)
        return min(least, self._factors.across_racks) if racks else least

    def _apart(self, nodes: set[NodeId], level: str) -> bool:
        return len({self._labels[node].get(level, "") for node in nodes}) > 1


def _key(job: TraceJob) -> tuple[str, int]:
    return job.model, job.gpu_milli // DEVICE
