"""The one search for preemption victims, and its candidates in their order.

Candidates are preempted in the order of their source, the cheapest first, until there is a
place. Then each of them is reprieved, the dearest first, if the place stands without its
preemption, or if there is another place then. So no smaller part of the victims would do, as
long as `fits` finds a place wherever there is one. An elastic gang keeps as many tasks as it
can. Where gangs take turns, they go whole, and one that pauses keeps its memory. (Kubernetes
and Kueue choose preemption targets in the same two steps.)

A reserved place is lost like a place that is held, but that costs no work: of one priority
reserved places go before gangs. The gangs that were told to go for it go all the same, and
count for the job that takes it over. No two jobs can take a reserved place from each other for
ever: it goes up in priority within a tenant, or from borrowed to guaranteed use, and never
back.
"""

from collections.abc import Callable, Container, Iterable, Iterator, Sequence

import msgspec

from allotment.core.cluster import Cluster
from allotment.core.disruption import may_lose
from allotment.core.gang import Gang, ReservedPlace, Standing
from allotment.core.plan import PreemptionPlan
from allotment.core.trial import Trial
from allotment.model.ids import JobId
from allotment.model.ledger import GUARANTEED, OPPORTUNISTIC, Slot
from allotment.model.quantity import Instant

Preemptible = Gang | ReservedPlace
"""What has a place, or a place reserved for it."""

Candidate = tuple[Preemptible, int]
"""A gang, or a reserved place, that may be preempted, and how many tasks it keeps: mostly 0."""


Fits = Callable[[], PreemptionPlan | None]
"""Returns the place there is in the trial as it is, with what else must go; changes nothing."""


Stands = Callable[[PreemptionPlan], bool]
"""Whether a place is still had by the same entitlement."""


def search(
    trial: Trial,
    candidates: Iterable[Candidate],
    fits: Fits,
    stands: Stands = lambda _: True,
    going: Iterable[Candidate] = (),
    pausing: Container[JobId] | None = None,
) -> PreemptionPlan | None:
    """Find a place that preempting some candidates makes, the first ones first; or None.

    What is `going` in any case is gone before the first look. Gangs that take turns say which
    of them are `pausing`. The trial is left as it was.
    O(candidates · fits).
    """
    start = trial.mark()
    preempted, plan = _Preempted(trial, pausing), None
    for holder, tasks in going:
        preempted.preempt(holder, tasks)
    for holder, tasks in candidates:
        preempted.preempt(holder, tasks)
        plan = fits()
        if plan is not None:
            plan = preempted.reprieve(plan, fits, stands)
            break
    trial.rollback(start)
    return plan


class _Preempted:
    """What was preempted in a trial so far."""

    def __init__(self, trial: Trial, pausing: Container[JobId] | None) -> None:
        self._trial, self._pausing = trial, pausing
        self._moves: list[tuple[Preemptible, int, int]] = []
        """Each holder with the number of its tasks before and after."""
        self._now: dict[tuple[type[Preemptible], JobId], Candidate] = {}
        """How many tasks each has now."""

    def preempt(self, holder: Preemptible, tasks: int) -> None:
        """Let a gang or a reserved place keep so many tasks."""
        self._moves.append((holder, self._size(holder), tasks))
        self._resize(holder, tasks)

    def reprieve(self, plan: PreemptionPlan, fits: Fits, stands: Stands) -> PreemptionPlan:
        """Reprieve, the dearest first, all that need not go; return the plan that is left."""

        def with_tasks(holder: Preemptible, tasks: int) -> PreemptionPlan | None:
            self._resize(holder, tasks)
            if self._holds(plan, stands):
                return plan
            other = fits()
            return (
                other if other is not None and other.entitlement is plan.entitlement else None
            )

        for holder, before, after in reversed(self._moves):
            if self._size(holder) != after:
                continue  # More of it went later, and stays gone.
            sizes = self._sizes(holder, before, after)
            least, most = 0, len(sizes) - 1
            while least < most:
                middle = (least + most + 1) // 2
                found = with_tasks(holder, sizes[middle])
                if found is None:
                    most = middle - 1
                else:
                    least, plan = middle, found
            self._resize(holder, sizes[least])
        return self._added_to(plan)

    def _sizes(self, holder: Preemptible, before: int, after: int) -> tuple[int, ...]:
        """Return how many tasks it may have, from those it keeps to those it had."""
        if not isinstance(holder, Gang) or self._pausing is not None:
            return after, before
        if not may_scale_down(self._trial.cluster, holder):
            return after, before
        sizes = range(after or holder.least, before, holder.step)
        return (*sizes, before) if after else (0, *sizes, before)

    def _holds(self, plan: PreemptionPlan, stands: Stands) -> bool:
        """Whether a place is still had in the trial, once what must go for it has."""
        trial, mark = self._trial, self._trial.mark()
        trial.carry_out(plan.evict, plan.revoke, plan.shrink)
        trial.hold(plan.slots, plan.needs)
        holds = trial.cluster.ledger.settled(plan.slots) and stands(plan)
        trial.rollback(mark)
        return holds

    def _added_to(self, plan: PreemptionPlan) -> PreemptionPlan:
        """Add to a plan what is preempted still."""
        evict, revoke, shrink = list[JobId](), list[JobId](), list[tuple[JobId, int]]()
        for holder, tasks in self._now.values():
            if tasks == len(holder.slots):
                continue
            if isinstance(holder, ReservedPlace):
                revoke.append(holder.job)
            elif tasks:
                shrink.append((holder.id, tasks))
            else:
                evict.append(holder.id)
        return msgspec.structs.replace(
            plan,
            evict=(*evict, *plan.evict),
            revoke=(*revoke, *plan.revoke),
            shrink=(*shrink, *plan.shrink),
        )

    def _size(self, holder: Preemptible) -> int:
        return self._now.get(_key(holder), (holder, len(holder.slots)))[1]

    def _resize(self, holder: Preemptible, tasks: int) -> None:
        """Let a gang, or a reserved place, have another number of tasks in the trial."""
        holder, before = self._now.get(_key(holder), (holder, len(holder.slots)))
        if before == tasks:
            return
        self._now[_key(holder)] = (holder, tasks)
        if isinstance(holder, ReservedPlace):
            if tasks:
                self._trial.reserve(holder)
            else:
                self._trial.unreserve(holder.job)
            return
        if self._pausing is not None and holder.id in self._pausing:
            (self._trial.wake if tasks else self._trial.suspend)(holder)
            return
        if before:
            self._trial.drop(holder.id)
        if tasks:
            whole = tasks == len(holder.slots)
            self._trial.restore(holder if whole else holder.of_size(tasks))


def _key(holder: Preemptible) -> tuple[type[Preemptible], JobId]:
    return type(holder), holder.id if isinstance(holder, Gang) else holder.job


# ── candidates ────────────────────────────────────────────────────────────────────────────


def whole(holders: Iterable[Preemptible]) -> list[Candidate]:
    """Return holders as candidates that keep nothing."""
    return [(holder, 0) for holder in holders]


def surplus_of(cluster: Cluster, holders: Iterable[Preemptible]) -> list[Candidate]:
    """Return the elastic gangs among some holders as candidates that scale down."""
    if not cluster.placed.elastic:
        return []
    gangs = (each for each in holders if isinstance(each, Gang) and each.least)
    return [(gang, gang.least) for gang in gangs if may_scale_down(cluster, gang)]


def leaving(cluster: Cluster) -> list[Candidate]:
    """Return the gangs that were told to go: they do so in any case."""
    return [(gang, 0) for _, gang in sorted(cluster.placed.leaving.items())]


# ── borrowers ───────────────────────────────────────────────────────────────────────────


def borrowers(cluster: Cluster, now: Instant) -> Iterator[Candidate]:
    """Return what is leaving, what is reserved for borrowers, then borrowers.

    These come cheapest first; ties: newest first.
    """
    going = awaited(cluster)
    yield from leaving(cluster)
    yield from whole(borrowed_places(cluster))
    key = cluster.policies.victims.key
    gangs = [
        gang
        for gangs in cluster.placed.borrowers.values()
        for gang in gangs.values()
        if not gang.leaving and gang.id not in going
    ]
    gangs.sort(key=lambda gang: (key(gang, now), -gang.id))
    yield from whole(gangs)


def borrowed_surplus(cluster: Cluster, now: Instant) -> list[Candidate]:
    """Return what is leaving, then elastic borrowers, which only scale down."""
    key = cluster.policies.victims.key
    elastic = [
        gang for gang in cluster.placed.elastic.values() if gang.entitlement is OPPORTUNISTIC
    ]
    elastic.sort(key=lambda gang: (key(gang, now), -gang.id))
    return [*leaving(cluster), *surplus_of(cluster, elastic)]


def borrowed_places(
    cluster: Cluster, slots: Sequence[Slot] | None = None
) -> list[ReservedPlace]:
    """Return what is reserved beyond any share: on the nodes of a place, or wherever."""
    if not cluster.reserved:
        return []
    nodes = None if slots is None else {slot.node for slot in slots}
    return [
        reserved
        for _, reserved in sorted(cluster.reserved.items())
        if reserved.entitlement is OPPORTUNISTIC
        and (nodes is None or any(slot.node in nodes for slot in reserved.slots))
    ]


# ── a tenant's own ──────────────────────────────────────────────────────────────────────


def lower_priority(cluster: Cluster, waiting: Standing, now: Instant) -> list[Preemptible]:
    """Return the less urgent gangs and reserved places of a job's tenant, cheapest first.

    Lowest priority first; of one priority reserved places, then gangs as the victims policy
    has it. Gangs that its rules protect now are left out.
    """
    key, budget = cluster.policies.victims.key, cluster.disruption
    tenant = waiting.shape.tenant
    spared = budget is not None and budget.exhausted(tenant, now)
    gangs = [
        ((gang.priority, 1, *key(gang, now), -gang.id), gang)
        for gang in (cluster.gangs.values() if not spared else ())
        if may_lose(waiting, gang)
        and (
            gang.priority < waiting.priority
            if budget is None
            else budget.gives_way(waiting, gang, now)
        )
    ]
    places = [
        ((priority, 0, -reserved.job), reserved)
        for priority, reserved in _lesser_places(cluster, waiting)
    ]
    return [holder for _, holder in sorted([*gangs, *places], key=lambda pair: pair[0])]


def _lesser_places(cluster: Cluster, waiting: Standing) -> Iterator[tuple[int, ReservedPlace]]:
    """Return what is reserved for less urgent jobs out of their tenant's share, by priority.

    A gang that moves keeps what it is on the way to.
    """
    for job, reserved in cluster.reserved.items():
        if reserved.entitlement is not GUARANTEED or job in cluster.placed.leaving:
            continue
        standing = cluster.standing_of(job)
        if (
            standing is not None
            and standing.priority < waiting.priority
            and standing.shape.tenant == waiting.shape.tenant
        ):
            yield standing.priority, reserved


def awaited(cluster: Cluster) -> set[JobId]:
    """Return the gangs whose leaving some reserved place waits for."""
    return {job for reserved in cluster.reserved.values() for job in reserved.victims}


# ── surplus tasks ───────────────────────────────────────────────────────────────────────
#
# Surplus tasks are those with the highest numbers, never below the least that a job can go on
# with: they may be given up one by one. A gang that has not got to run yet, or is scaling down
# already, is left as it is.


def may_scale_down(cluster: Cluster, gang: Gang) -> bool:
    """Whether a gang has tasks without which it can continue."""
    if not gang.least or len(gang.slots) <= gang.least:
        return False
    if gang.leaving or gang.suspended or gang.shrinking or gang.standing.starting:
        return False
    return cluster.guarantee.may_hold_in_part(gang.needs[-1])


def size_off(cluster: Cluster, gang: Gang, slots: Iterable[Slot]) -> int:
    """Return with how many tasks a gang is off these devices; 0 if it has to go whole."""
    if not may_scale_down(cluster, gang):
        return 0
    wanted = {(slot.node, index) for slot in slots for index in slot.devices}
    for number, slot in enumerate(gang.slots):
        if any((slot.node, index) in wanted for index in slot.devices):
            beyond = number - gang.least
            return gang.least + beyond // gang.step * gang.step if beyond >= 0 else 0
    return len(gang.slots)
