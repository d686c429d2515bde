"""The entries of the cluster's books, as the decision sees them."""

from collections.abc import Mapping

import msgspec

from allotment.core.rank import Rank
from allotment.core.request import Request, Shape, demand_of, lease_part, sum_of, total_of
from allotment.model.amounts import vector_of
from allotment.model.gains import Gauge
from allotment.model.ids import JobId
from allotment.model.ledger import OPPORTUNISTIC, Entitlement, Quota, Slot
from allotment.model.quantity import Instant, Millis, Resources
from allotment.model.spec import GiveWay


class Standing(msgspec.Struct, frozen=True, gc=False):
    """A job as an ordering policy sees it: what it needs, and what it has had so far.

    `served_ms` is run time, not device-time, of its attempts before the present one;
    `lost_ms` of it will have to be done again. `since` is when it began to run on the devices
    it holds; while it is `starting`, when it got them: that is no service, and does not count.
    """

    id: JobId
    shape: Shape
    priority: int
    submitted_at: Instant
    queued_at: Instant = Instant(0)
    served_ms: Millis = Millis(0)
    lost_ms: Millis = Millis(0)
    limit_ms: Millis = Millis(-1)
    """Its time limit; -1 where it has none."""
    since: Instant | None = None
    starting: bool = False
    due_at: Instant | None = None
    """When it should have ended; None if that was not said."""
    predicted_ms: Millis = Millis(-1)
    """The run time that is predicted where there is no limit; -1 where nothing is known."""
    switch_ms: Millis = Millis(0)
    """How long it took from being placed to running, in its present attempt."""
    weight: int = 1
    """How many time slices its turn is long, in a queue that has them."""
    pause_ms: Millis = Millis(0)
    """How long its suspension took, where slices are to be worth that."""

    @property
    def runs(self) -> bool:
        """Whether it is being served: it holds devices, and got to run on them."""
        return self.since is not None and not self.starting

    @property
    def gpu_milli(self) -> int:
        """Return the devices of the whole gang, in thousandths."""
        return total_of(self.shape.requests).gpu_milli

    def asking(self, shape: Shape) -> "Standing":
        """Return the same job asking for that."""
        return self if shape == self.shape else msgspec.structs.replace(self, shape=shape)

    def left_of(self, run_ms: int) -> int:
        """Return how long an attempt takes of a job that runs for so long in all.

        What earlier attempts did counts, unless it was lost.
        """
        return run_ms - self.served_ms + self.lost_ms

    def end_of(self, run_ms: int, placed_at: Instant, now: Instant) -> int:
        """Return when it will be gone that was placed then, and runs for so long in all.

        A gang that runs for longer than its limit ends any moment; than was predicted, for
        as long again, and so on: a prediction that came true too late must not come true again.
        """
        length = self.left_of(run_ms)
        end = placed_at + length
        if end > now:
            return end
        if self.predicted_ms < 0 or self.limit_ms >= 0:
            return now + 1
        return placed_at + doubled(length, now + 1 - placed_at)


def doubled(length: int, least: int) -> int:
    """Double a length until it is no less than that."""
    length = max(1, length)
    while length < least:
        length *= 2
    return length


class Gang(msgspec.Struct):
    """A placed gang: what it holds, by which entitlement, and whether it is leaving."""

    id: JobId
    tenant: str
    priority: int
    requests: tuple[Request, ...]
    slots: tuple[Slot, ...]
    needs: tuple[Resources, ...]
    entitlement: Entitlement
    placed_at: Instant
    standing: Standing
    preemptible: bool = True
    saved_at: Instant = Instant(0)
    """When its progress was last safe: its newest checkpoint, or its start."""
    quota: Quota = ()
    """The types of the cells out of which its tenant is guaranteed what it holds."""
    pin: str = ""
    opportunistic: bool = False
    """Never counts as its tenant's own use."""
    user: str = ""
    """Whose job it is."""
    on_eviction: GiveWay = GiveWay.AS_TENANT
    leaving: bool = False
    suspended_at: Instant | None = None
    """Since when it has given its devices up, and keeps its memory; None while it has both."""
    wants_resume: bool = False
    rank: Rank | None = None
    """Its place in the job order of its queue, kept while it holds."""
    least: int = 0
    """The tasks with which an elastic gang can continue; 0 for one that needs all it has."""
    step: int = 1
    """By how many tasks it shrinks at least: groups stay whole."""
    shrinking: bool = False
    """Its surplus tasks were told to go, and are not gone yet."""
    is_surplus: bool = False
    """Whether this is no gang but the tasks that one gives up, apart from it."""
    gauge: Gauge | None = None
    """How fast it was measured to be, in a queue that asks for it (grow, migrate, pack)."""
    beside: JobId | None = None
    """The gang that has its devices, where it runs beside that though it is suspended."""
    keeps: tuple[int, ...] = ()
    """How much memory each task keeps of each of its devices while the gang is suspended, in
    bytes; empty where none gave any back: each keeps what it asked for."""

    @property
    def suspended(self) -> bool:
        """Whether it has given its devices up, and keeps its memory."""
        return self.suspended_at is not None

    def of_size(self, tasks: int) -> "Gang":
        """Return the same gang with its first so many tasks only."""
        last = self.requests[-1]
        count = last.count - (len(self.slots) - tasks)
        return msgspec.structs.replace(
            self,
            requests=(*self.requests[:-1], msgspec.structs.replace(last, count=count)),
            slots=self.slots[:tasks],
            needs=self.needs[:tasks],
            quota=self.quota[:tasks] if len(self.quota) > 1 else self.quota,
        )

    def surplus(self, tasks: int) -> "Gang":
        """Return what it gives up when it goes on with so many tasks: that is borrowed."""
        last = msgspec.structs.replace(self.requests[-1], count=len(self.slots) - tasks)
        return msgspec.structs.replace(
            self,
            requests=(last,),
            slots=self.slots[tasks:],
            needs=self.needs[tasks:],
            entitlement=OPPORTUNISTIC,
            quota=(),
            leaving=True,
            suspended_at=None,
            wants_resume=False,
            is_surplus=True,
        )

    def kept(self) -> tuple[Resources, ...]:
        """Return what each task holds now: all of its need, or what suspension keeps."""
        return self.needs if self.suspended_at is None else self.memory()

    def memory(self) -> tuple[Resources, ...]:
        """Return what each task keeps while the gang is suspended."""
        return tuple(map(Resources.__sub__, self.needs, self.leases()))

    def leases(self) -> tuple[Resources, ...]:
        """Return what each task gives up while the gang is suspended."""
        keeps = self.keeps or [need.gpu_memory for need in self.needs]
        return tuple(map(lease_part, self.needs, keeps))

    def held(self) -> Resources:
        """Sum up what the gang holds now."""
        total = total_of(self.requests)
        return total if self.suspended_at is None else total - sum_of(self.leases())


def held_vector(gang: Gang) -> Mapping[str, int]:
    """Return what a gang holds now, as a vector."""
    if gang.suspended_at is None:
        return demand_of(gang.requests)
    return vector_of(gang.held())


class ReservedPlace(msgspec.Struct, frozen=True):
    """A place reserved for a job while its present holders leave."""

    job: JobId
    slots: tuple[Slot, ...]
    needs: tuple[Resources, ...]
    entitlement: Entitlement
    victims: tuple[JobId, ...]
    quota: Quota = ()
    pin: str = ""
