"""Growth: elastic gangs take up idle devices, and give them back when a job waits.

Rule: in a queue that grows, an elastic gang with fewer tasks than it may have starts anew from
its checkpoint with more, once devices have been idle for as long as the queue says, and no job
waits for more than is free. What it gains is predicted from how fast it was with the tasks
that it had; it grows only if that is three times what the restart costs, at most once in six
such lengths of time, and one gang at a time. It keeps its place, and nothing is reserved
beside: a job that comes meanwhile has what it needs.

When a job finds no place, such gangs give up surplus tasks at once, those placed last first:
to jobs of their tenant, or among borrowers to any. So what idles is used, and costs such jobs
that come later no more than the grace time.

Source: Xiao et al., Gandiva, OSDI 2018, section 3.3 (grow-shrink, for jobs that opt in).

Bad at: jobs that ask for a fixed number of tasks; a gang whose first minutes are not like the
rest.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence

from msgspec.structs import replace

from allotment.core.book import Book, Holder
from allotment.core.cluster import Cluster
from allotment.core.gang import Gang, ReservedPlace, Standing
from allotment.core.molding import as_large
from allotment.core.plan import Decision, Evict, PreemptionPlan, Proposals
from allotment.core.preemption.search import may_scale_down
from allotment.core.rank import Key
from allotment.core.request import devices_of
from allotment.core.slices import line_of
from allotment.core.trial import Trial
from allotment.model.gains import Gain, Gauge
from allotment.model.ids import JobId
from allotment.model.ledger import Placement
from allotment.model.quantity import DEVICE, Instant, Millis, earlier
from allotment.policies.rescheduling.by_affinity import by_affinity
from allotment.policies.rescheduling.giving_up import given_up
from allotment.policies.rescheduling.idle import Idle
from allotment.policies.rescheduling.in_slices import InSlices, Line
from allotment.policies.rescheduling.moves import move_to
from allotment.policies.rescheduling.predicting import WORTH, time_saved
from allotment.policies.rescheduling.stints import Worth, may_start_anew, restart_from

LENGTHS_APART = 6
"""A gang grows at most once in so many times the length for which devices are to be idle."""


class Growers(Book):
    """Gangs of queues that grow, beside the book of another rescheduler."""

    def __init__(self, inner: Book) -> None:
        self._inner = inner
        self.gangs: dict[JobId, Gang] = {}
        self.changed = True
        """Whether any came, went or was measured since it was last looked at."""

    def enter(self, gang: Gang) -> None:
        self._inner.enter(gang)
        if gang.gauge is not None and gang.gauge.most and not gang.is_surplus:
            self.gangs[gang.id], self.changed = gang, True

    def leave(self, gang: Gang) -> None:
        self._inner.leave(gang)
        if not gang.is_surplus and self.gangs.pop(gang.id, None) is not None:
            self.changed = True

    def reserve(self, place: ReservedPlace, holder: Holder) -> None:
        self._inner.reserve(place, holder)

    def release(self, place: ReservedPlace) -> None:
        self._inner.release(place)


class Growing:
    """The rescheduler of a cluster with queues that grow; others may migrate or take turns."""

    def __init__(
        self,
        cluster: Cluster,
        inner: InSlices,
        after: Mapping[Line, Millis],
        worth: Worth,
        *,
        save_when_told: bool,
    ) -> None:
        """`after` says how long devices must be idle; `worth`, which may start anew at all.

        Where jobs `save_when_told`, a restart costs them no work that is not saved.
        """
        self.cluster, self.inner = cluster, inner
        self.order: Growers = Growers(inner.order)
        self._after, self._may_restart = after, worth
        self._save_when_told = save_when_told
        self._idle = Idle()
        self._due: Instant | None = None
        """When a gang may grow next."""
        self._in_vain: dict[JobId, tuple[Gauge | None, Instant, int]] = {}
        """As what gangs were found to gain too little: gauge, checkpoint, free devices."""
        self._vain: tuple[int, int] | None = None
        """The books as they were when no surplus was of use to any job that waits."""

    # ── when ────────────────────────────────────────────────────────────────────────────

    def looks(self, now: Instant) -> bool:
        return self.inner.looks(now) or self._lends() or self._is_due(now)

    def next_look(self, now: Instant) -> Instant | None:
        first = self.inner.next_look(now)
        if not self.order.gangs or self._may_not():
            return first
        due = self._next_due()
        return first if due is None else earlier(first, Instant(max(now + 1, due)))

    def rerank(self, now: Instant) -> bool:
        return self.inner.rerank(now)

    def _is_due(self, now: Instant) -> bool:
        due = self._next_due()
        return due is not None and now >= due and not self._may_not()

    def _next_due(self) -> Instant | None:
        """Return when a gang may grow next; O(gangs of queues that grow) after a change."""
        if self._idle.since(1) is None:
            return None
        if self.order.changed:
            ripe = (self._ripe(gang) for gang in self._candidates())
            self._due = min((at for at in ripe if at is not None), default=None)
            self.order.changed = False
        return self._due

    def _ripe(self, gang: Gang) -> Instant | None:
        """Return when a gang may grow, if all stays as it is."""
        after, gauge = self._after[line_of(gang.standing.shape)], gang.gauge
        since = self._idle.since(_step(gang))
        if since is None or self._in_vain.get(gang.id) == self._seen(gang):
            return None
        at = max(restart_from(gang), since + after)
        if gauge is not None and gauge.moved_at:
            at = max(at, gauge.moved_at + LENGTHS_APART * after)
        return Instant(at)

    def _seen(self, gang: Gang) -> tuple[Gauge | None, Instant, int]:
        return gang.gauge, gang.saved_at, self.cluster.ledger.whole_free

    def _may_not(self) -> bool:
        """Whether no gang may grow now: one does, or a job may wait for what is free.

        A job that asks for no more than is free, and did not take it, has no use for it.
        """
        cluster = self.cluster
        free = cluster.ledger.whole_free
        return (
            bool(cluster.reservations.all)
            or any(place.job in place.victims for place in cluster.reserved.values())
            or any(shape.devices > free for shape in cluster.pending.shapes())
        )

    def _lends(self) -> bool:
        """Whether a job waits to which surplus may be given up, as far as is known."""
        cluster = self.cluster
        if not len(cluster.pending) or self._vain == self._version():
            return False
        return any(may_scale_down(cluster, gang) for gang in self.order.gangs.values())

    def _version(self) -> tuple[int, int]:
        return self.cluster.ledger.version, self.cluster.pending.arrivals

    # ── what ────────────────────────────────────────────────────────────────────────────

    def around(self, decisions: Proposals, now: Instant) -> Proposals:
        self._note(now)
        if self._lends():
            self.cluster.memos.blocked.clear()
        for decision in self.inner.around(decisions, now):
            yield decision
            self._note(now)
        if self._is_due(now):
            yield from self._grow(now)
        self._vain = self._version()

    def _note(self, now: Instant) -> None:
        """Note how many devices are idle."""
        if self._idle.note(self.cluster.ledger.whole_free, now):
            self.order.changed = True

    def reach(self, now: Instant) -> Callable[[Key], bool]:
        return (lambda _: True) if self._lends() else self.inner.reach(now)

    def deals(self, gang: Gang) -> bool:
        return self.inner.deals(gang)

    def suspended(self, now: Instant) -> Sequence[tuple[Key, Gang]]:
        return self.inner.suspended(now)

    def plan(self, job: Standing, now: Instant) -> PreemptionPlan | None:
        plan = self.inner.plan(job, now)
        if plan is not None or job.id in self.cluster.gangs:
            return plan
        return given_up(self.cluster, self.order.gangs.values(), job, now)

    # ── growing ─────────────────────────────────────────────────────────────────────────

    def _candidates(self) -> Iterator[Gang]:
        """Yield the gangs that could do with more tasks, and whose pace is known."""
        cluster = self.cluster
        for gang in self.order.gangs.values():
            gauge = gang.gauge
            if (
                gauge is not None
                and not gauge.is_grown
                and len(gang.slots) < gauge.most
                and gauge.pace is not None
                and gauge.pace.tasks == len(gang.slots)
                and gauge.pace.rate
                and gang.preemptible
                and gang.standing.runs
                and not (gang.leaving or gang.suspended or gang.shrinking)
                and gang.id not in cluster.reserved
                and cluster.slots_open(gang.slots)
                and cluster.guarantee.regrows(self._in_its_place(gang).place)
            ):
                yield gang

    def _grow(self, now: Instant) -> Iterator[Decision]:
        """Propose which gang grows: first the one with the least part of what it may have."""
        ripe = [gang for gang in self._candidates() if (self._ripe(gang) or now + 1) <= now]
        for gang in sorted(ripe, key=_part_of_most):
            gain = self._gain(gang, now)
            if gain is not None:
                yield self._in_its_place(gang, gain)
            self._in_vain[gang.id], self.order.changed = self._seen(gang), True
        for gone in self._in_vain.keys() - self.order.gangs.keys():
            del self._in_vain[gone]

    def _in_its_place(self, gang: Gang, gain: Gain | None = None) -> Evict:
        """Return the decision that a gang starts anew where it is."""
        return move_to(self.cluster, gang, (gang.slots, gang.quota), gain)

    def _gain(self, gang: Gang, now: Instant) -> Gain | None:
        """Return what a gang would gain by growing now; None if that is not worth its cost."""
        gauge, pace = gang.gauge, gang.gauge.pace if gang.gauge is not None else None
        if gauge is None or pace is None or not self._may_restart(gang, now):
            return None
        tasks = self._tasks_then(gang, gauge.most)
        expected = gauge.rate_with(tasks)
        if tasks <= len(gang.slots) or expected <= pace.rate:
            return None
        unsaved = 0 if self._save_when_told else max(0, now - gang.saved_at)
        cost = gang.standing.switch_ms + unsaved
        gain = Gain(tasks, pace.rate, expected, Millis(cost))
        return gain if time_saved(gang, pace.rate, expected, now) >= WORTH * cost else None

    def _tasks_then(self, gang: Gang, most: int) -> int:
        """Return with how many tasks a gang would start anew in its place, as things are."""
        last, cluster = gang.requests[-1], self.cluster
        shape = replace(gang.standing.shape, most=last.count + most - len(gang.slots))
        place = Placement(gang.id, gang.slots, gang.entitlement, gang.quota)
        with Trial(cluster) as trial:
            trial.drop(gang.id)
            return len(as_large(cluster, shape, place).slots)


def growing(
    cluster: Cluster, worth: Worth = may_start_anew, *, save_when_told: bool = False
) -> "Growing | InSlices | None":
    """Make the rescheduler of a cluster with queues that grow, are sliced, migrate or go by
    affinity; None where there are none of these.
    """
    inner = by_affinity(cluster, worth, save_when_told=save_when_told)
    after = {
        (tenant.name, queue.name): queue.grow_ms
        for tenant in cluster.tenants.values()
        for queue in tenant.queues
        if queue.grow_ms
    }
    if after:
        inner = inner or InSlices(cluster)
        return Growing(cluster, inner, after, worth, save_when_told=save_when_told)
    return inner


def _step(gang: Gang) -> int:
    """Return how many devices a gang needs at least to grow."""
    one = replace(gang.requests[-1], count=gang.step)
    return max(1, devices_of((one,)))


def _part_of_most(gang: Gang) -> tuple[int, JobId]:
    most = gang.gauge.most if gang.gauge is not None else 1
    return len(gang.slots) * DEVICE // most, gang.id
