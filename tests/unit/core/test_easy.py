"""EASY backfilling: when the first that is blocked can start."""

from msgspec.structs import replace

from allotment.core.backfill import Easy
from allotment.core.gang import ReservedPlace
from allotment.model.ids import JobId, NodeId
from allotment.model.ledger import Entitlement
from allotment.model.quantity import Instant
from allotment.model.tenancy import QueueOrder
from allotment.policies.estimates.known import Known
from tests.unit.core.books import POLICIES, a_cluster, a_standing, place

NOW = Instant(50)


def test_a_gang_that_moves_ends_where_it_is_to_go_on() -> None:
    """Job 1 leaves its machine for the other one, where it runs for as long again."""
    policies = replace(POLICIES, estimates=Known({1: 500}.get))
    cluster = a_cluster("2x2", policies, QueueOrder.EASY)
    gang = place(cluster, a_standing(1, 2))
    cluster.mark_leaving(JobId(1))
    other = NodeId(1 - gang.slots[0].node)
    slots = tuple(replace(slot, node=other) for slot in gang.slots)
    cluster.reserve(
        ReservedPlace(JobId(1), slots, gang.needs, Entitlement.GUARANTEED, (JobId(1),))
    )
    first = a_standing(2, 4)
    cluster.pending.add(first, NOW)
    assert Easy(cluster, first, NOW, Entitlement.GUARANTEED).at == NOW + 500
