"""Elsewhere: a suspended gang continues where devices are idle, while others have its own.

Rule: once each waiting job had its chance, what is free goes to gangs that are suspended for
their turn, and whose devices are in use. Such a gang leaves as if it were evicted: it is let
go on for its grace time, saves, ends, and starts anew on devices of the same types. So it goes
only if it loses next to nothing.

For its grace time it runs beside the gang that has its devices: in memory that it kept, and on
CPUs that it does not hold.

Source: Xiao et al., Gandiva, OSDI 2018, section 3.3 (migration to idle devices elsewhere).

Bad at: jobs that take long to save: the one beside them is slower for that time.
"""

from collections.abc import Callable, Iterable, Iterator

from allotment.core.cluster import Cluster
from allotment.core.entitle import may_go_on
from allotment.core.gang import Gang
from allotment.core.plan import Evict
from allotment.core.slices import line_of
from allotment.model.ids import JobId
from allotment.model.quantity import Instant
from allotment.model.spec import GiveWay
from allotment.policies.rescheduling.moves import BetterPlace, move_to
from allotment.policies.rescheduling.predicting import by_leaving_turns
from allotment.policies.rescheduling.stints import Line, Worth

Key = Callable[[Gang], tuple[int, Instant, JobId]]


def stuck(
    cluster: Cluster, lines: frozenset[Line], worth: Worth, now: Instant
) -> Iterator[Gang]:
    """Yield the suspended gangs of some queues that may go elsewhere, if a device is free.

    O(suspended gangs).
    """
    for gang in cluster.placed.resuming.values() if cluster.ledger.whole_free else ():
        here = line_of(gang.standing.shape) in lines and _is_free_to_go(cluster, gang)
        if here and worth(gang, now) and may_go_on(cluster, gang, now):
            yield gang


def _is_free_to_go(cluster: Cluster, gang: Gang) -> bool:
    """Whether a suspended gang may be sent away for a better place, by what it is."""
    return (
        gang.preemptible
        and gang.beside is None
        and gang.on_eviction is not GiveWay.CANCEL
        and not (gang.gauge is not None and gang.gauge.stays)
        and not (gang.leaving or gang.id in cluster.reserved)
    )


def elsewhere(
    cluster: Cluster, gangs: Iterable[Gang], key: Key, place_for: BetterPlace, now: Instant
) -> Iterator[Evict]:
    """Propose which suspended gangs go to devices that are free, in the order of a key."""
    for gang in sorted(gangs, key=key):
        with cluster.fenced(gang.standing.shape, now):
            found = place_for(gang)
        if found is not None and not cluster.barred(gang.id, found[0], now):
            yield move_to(cluster, gang, found, by_leaving_turns(cluster, gang, now))
