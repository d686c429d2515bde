"""Packing: two gangs that take turns on the same devices run there at once, if that is more.

Rule: of a queue that packs, a gang that is suspended for its turn goes on beside the one that
has its devices, once both were measured alone, the other in its present turn. So it happens
under overload only, and in memory that both had anyway: what a suspended gang keeps was held
for it. Pairs that were found to gain come first, then those whose devices are least busy; a
pair that cannot gain by how busy these were is left to its turns. So is one that was tried and
did not gain, or did not tell enough.
One gang at most goes beside another, within the caps of its user and queue, and only while
the CPUs that it asks for are free. Both are of one priority: by turns, a gang gives way to
none that is less urgent; and of one weight: else turns would not give each a half. Where more
than two take turns, two that gain go beside each other alone: else one could be in the way of
each of the others at its turn, and they in the way of none.
What the two do at once is compared with their turns (`engine/packing.py`).

Source: Xiao et al., Gandiva, OSDI 2018, section 3.3: packing under overload, by utilisation
and memory, kept if it beats time-slicing and undone else. That neither of the two may lose
against its turns is ours: there the sum alone counts.

Bad at: more than two at once; jobs whose phases differ much; jobs that tell of no steps.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set

from allotment.core.caps import resumes_beyond
from allotment.core.cluster import Cluster
from allotment.core.gang import Gang
from allotment.core.plan import Pack
from allotment.core.slices import line_of
from allotment.model.gains import Gauge, expected_together, is_more_than_turns
from allotment.model.ids import JobId, NodeId
from allotment.model.ledger import Slot
from allotment.model.quantity import Instant
from allotment.model.tenancy import Tenant
from allotment.policies.rescheduling.stints import Line

GangsAt = Mapping[tuple[Slot, ...], Mapping[JobId, Gang]]


def packing_lines(tenants: Iterable[Tenant]) -> frozenset[Line]:
    """Return the queues whose gangs may run at once on the same devices."""
    return frozenset(
        (tenant.name, queue.name)
        for tenant in tenants
        for queue in tenant.queues
        if queue.packs and queue.time_slice_ms
    )


def packings(cluster: Cluster, places: GangsAt, now: Instant) -> Iterator[Pack]:
    """Propose the best gang to go beside each that has its devices.

    O(p log p) in the places that gangs share, and O(suspended gangs) if any could go.
    """
    # Not in the order in which gangs came there: after a restart that is another.
    yield from _packings(cluster, sorted(_shared(cluster, places), key=min), now)


def may_pack(cluster: Cluster, places: GangsAt, now: Instant) -> bool:
    """Whether any gang could go beside another now.

    O(p) in the places that gangs share, and O(suspended gangs) if any could go.
    """
    return any(True for _ in _packings(cluster, _shared(cluster, places), now))


def _shared(cluster: Cluster, places: GangsAt) -> list[Mapping[JobId, Gang]]:
    """Return the gangs of each place that several share, if any waits for its turn."""
    if not cluster.placed.resuming:
        return []
    return [each for each in places.values() if len(each) > 1]


def _packings(
    cluster: Cluster, shared: Iterable[Mapping[JobId, Gang]], now: Instant
) -> Iterator[Pack]:
    """Propose which gangs go beside others, place by place in the order given."""
    wanted: Counter[NodeId] | None = None
    for there in [list(each.values()) for each in shared]:
        runs = [gang for gang in there if gang.standing.runs and not gang.leaving]
        if len(runs) != 1 or any(gang.beside is not None for gang in there):
            continue
        (other,) = runs
        able = [gang for gang in there if _suits(gang, other, there)]
        if not able:
            continue
        wanted = _wanted(cluster) if wanted is None else wanted
        able = [gang for gang in able if _may(cluster, gang, wanted, now)]
        if able:
            best = min(able, key=lambda gang: _rank(gang, other))
            yield Pack(best.id, other.id)
            if best.beside is not None:
                wanted.update(_cpus(best))


def _suits(gang: Gang, other: Gang, there: Sequence[Gang]) -> bool:
    """Whether two gangs may gain by running at once, as far as is known."""
    one, two = gang.gauge, other.gauge
    alike = gang.standing.weight == other.standing.weight and gang.priority == other.priority
    if gang is other or not alike:
        return False
    if line_of(gang.standing.shape) != line_of(other.standing.shape):
        return False
    if one is None or two is None or one.pace is None or two.pace is None:
        return False
    if not (one.pace.rate and two.pace.rate) or other.id in one.apart:
        return False
    ids = {each.id for each in there if each.wants_resume or each.standing.runs}
    mates = _mate(one, ids), _mate(two, ids)
    if mates == (other.id, gang.id):
        return True
    if mates != (None, None):
        return False
    if two.pace.at < (other.standing.since or 0):
        return False  # It was measured in an earlier turn: much may be different now.
    expected = expected_together(one.pace.busy_milli, two.pace.busy_milli)
    return not expected or is_more_than_turns(expected)


def _mate(gauge: Gauge, there: Set[JobId]) -> JobId | None:
    """Return beside which of the gangs in a place one was found to gain, the first of them."""
    return next((job for job in gauge.together if job in there), None)


def _wanted(cluster: Cluster) -> Counter[NodeId]:
    """Return how much CPU gangs that run beside others ask for on each node."""
    wanted = Counter[NodeId]()
    for gang in cluster.placed.resuming.values():
        if gang.beside is not None:
            wanted.update(_cpus(gang))
    return wanted


def _cpus(gang: Gang) -> Counter[NodeId]:
    """Return how much CPU a gang asks for on each of its nodes."""
    asked = Counter[NodeId]()
    for slot, need in zip(gang.slots, gang.needs, strict=True):
        asked[slot.node] += need.cpu_milli
    return asked


def _may(cluster: Cluster, gang: Gang, wanted: Counter[NodeId], now: Instant) -> bool:
    """Whether a gang waits for its turn, and may run beside another now.

    `wanted` is how much CPU is asked for by those that run beside others.
    """
    waits = gang.wants_resume and not gang.leaving and gang.id not in cluster.reserved
    if not waits or not cluster.slots_open(gang.slots) or resumes_beyond(cluster, gang):
        return False
    books, asked = cluster.ledger.books, _cpus(gang)
    spare = all(wanted[node] + asked[node] <= max(0, books[node].cpu) for node in asked)
    return spare and not cluster.barred(gang.id, gang.slots, now)


def _rank(gang: Gang, other: Gang) -> tuple[bool, int, JobId]:
    """Return the place of a gang among those that could go beside another: first ones first."""
    assert gang.gauge is not None, "it was measured"
    pace = gang.gauge.pace
    busy = pace.busy_milli if pace is not None else 0
    return other.id not in gang.gauge.together, busy, gang.id
