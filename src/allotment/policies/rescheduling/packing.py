"""Packing: two gangs that take turns on the same devices run there at once, if that is more.

Rule: of a queue that packs, a gang that is suspended for its turn goes on beside the one that
has its devices, once both were measured alone, the other in its present turn. So it happens
under overload only, and in memory that both had anyway: what a suspended gang keeps was held
for it. Pairs that were found to gain come first, then those whose devices are least busy; a
pair that cannot gain by how busy these were, or was found to do worse, is left to its turns.
One gang at most goes beside another, within the caps of its user and queue, and only while
nobody holds the CPUs that it asks for. What the two do at once is compared with their turns
(`engine/packing.py`).

Source: Xiao et al., Gandiva, OSDI 2018, section 3.3: packing under overload, by utilisation
and memory, kept if it beats time-slicing and undone else. That neither of the two may lose
against its turns is ours: there the sum alone counts.

Bad at: more than two at once; jobs whose phases differ much; jobs that tell of no steps.
"""

from collections.abc import Iterable, Iterator, Mapping

from allotment.core.caps import resumes_beyond
from allotment.core.cluster import Cluster
from allotment.core.gang import Gang
from allotment.core.plan import Pack
from allotment.core.slices import cpus_are_spare, line_of
from allotment.model.gains import BY_TURNS, LEAST_KEPT, OF_RATE, expected_together
from allotment.model.ids import JobId
from allotment.model.ledger import Slot
from allotment.model.quantity import Instant
from allotment.model.tenancy import Tenant
from allotment.policies.rescheduling.stints import Line

Places = Mapping[tuple[Slot, ...], Mapping[JobId, Gang]]


def packing_lines(tenants: Iterable[Tenant]) -> frozenset[Line]:
    """Return the queues whose gangs may run at once on the same devices."""
    return frozenset(
        (tenant.name, queue.name)
        for tenant in tenants
        for queue in tenant.queues
        if queue.packs and queue.time_slice_ms
    )


def packings(cluster: Cluster, places: Places, now: Instant) -> Iterator[Pack]:
    """Propose the best gang to go beside each that has its devices. O(gangs of such queues)."""
    for there in [list(each.values()) for each in places.values() if len(each) > 1]:
        runs = [gang for gang in there if gang.standing.runs and not gang.leaving]
        if len(runs) != 1 or any(gang.beside is not None for gang in there):
            continue
        (other,) = runs
        able = [gang for gang in there if _suits(gang, other) and _may(cluster, gang, now)]
        if able:
            yield Pack(min(able, key=lambda gang: _rank(gang, other)).id, other.id)


def _suits(gang: Gang, other: Gang) -> bool:
    """Whether two gangs may gain by running at once, as far as is known."""
    one, two = gang.gauge, other.gauge
    if gang is other or line_of(gang.standing.shape) != line_of(other.standing.shape):
        return False
    if one is None or two is None or one.pace is None or two.pace is None:
        return False
    if not (one.pace.rate and two.pace.rate) or other.id in one.apart:
        return False
    if other.id in one.together:
        return True
    if two.pace.at < (other.standing.since or 0):
        return False  # It was measured in an earlier turn: much may be different now.
    expected = expected_together(one.pace.busy_milli, two.pace.busy_milli)
    return not expected or expected * LEAST_KEPT >= BY_TURNS * OF_RATE


def _may(cluster: Cluster, gang: Gang, now: Instant) -> bool:
    """Whether a gang waits for its turn, and may go on beside another now."""
    waits = gang.wants_resume and not gang.leaving and gang.id not in cluster.reserved
    if not waits or not cluster.slots_open(gang.slots) or resumes_beyond(cluster, gang):
        return False
    there = [each for each in cluster.placed.resuming.values() if each.beside is not None]
    spare = cpus_are_spare(cluster.ledger.books, [*there, gang])
    return spare and not cluster.barred(gang.id, gang.slots, now)


def _rank(gang: Gang, other: Gang) -> tuple[bool, int, JobId]:
    """Return the place of a gang among those that could go beside another: first ones first."""
    assert gang.gauge is not None, "it was measured"
    pace = gang.gauge.pace
    busy = pace.busy_milli if pace is not None else 0
    return other.id not in gang.gauge.together, busy, gang.id
