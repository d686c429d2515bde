"""Conservative backfilling beside reserved places."""

import pytest
from msgspec.structs import replace

from allotment.core.backfill import Conservative
from allotment.core.cluster import Cluster
from allotment.core.gang import ReservedPlace
from allotment.core.request import needs_of
from allotment.core.reservations import Reservations
from allotment.model.ids import JobId, NodeId
from allotment.model.ledger import Entitlement
from allotment.model.quantity import Instant, WallTime
from allotment.model.reservations import Reservation
from allotment.model.tenancy import QueueOrder
from allotment.policies.estimates.known import Known
from tests.unit.core.books import POLICIES, a_cluster, a_shape, a_standing, place

RUNS_MS = {1: 500, 2: 100, 3: 1_000, 4: 10}
NOW = Instant(50)
GUARANTEED = Entitlement.GUARANTEED


def reserved(*, still_there: bool) -> Cluster:
    """Two devices: one is reserved for job 2, and job 1 has left it or is about to."""
    policies = replace(POLICIES, estimates=Known(RUNS_MS.get))
    cluster = a_cluster("1x2", policies, QueueOrder.CONSERVATIVE)
    gang = place(cluster, a_standing(1))
    waiting = a_standing(2)
    cluster.pending.add(waiting, NOW)
    cluster.mark_leaving(JobId(1))
    needs = needs_of(waiting.shape.requests)
    cluster.reserve(
        ReservedPlace(JobId(2), gang.slots, needs, Entitlement.GUARANTEED, (JobId(1),))
    )
    if not still_there:
        cluster.drop(JobId(1))
    return cluster


@pytest.mark.parametrize("still_there", [True, False])
def test_a_reserved_device_counts_once(still_there: bool) -> None:
    cluster = reserved(still_there=still_there)
    made = Conservative(cluster, a_shape(1), NOW, GUARANTEED)
    assert made.may_start(a_standing(3))
    place(cluster, a_standing(3))
    made.started(a_standing(3))
    assert not made.may_start(a_standing(4))
    assert made._plan_start(a_standing(4)) == NOW + RUNS_MS[2]


@pytest.mark.parametrize("still_there", [True, False])
def test_a_job_that_needs_it_too_waits_for_its_end(still_there: bool) -> None:
    cluster = reserved(still_there=still_there)
    made = Conservative(cluster, a_shape(2), NOW, GUARANTEED)
    assert not made.may_start(a_standing(4, 2))
    assert made._plan_start(a_standing(4, 2)) == NOW + RUNS_MS[2]


def test_a_job_that_is_promised_a_place_for_nobody_knows_how_long_has_it_for_good() -> None:
    cluster = reserved(still_there=False)
    cluster.policies = replace(POLICIES, estimates=Known({3: 5, 4: 5}.get))
    made = Conservative(cluster, a_shape(2), NOW, GUARANTEED)
    assert made.may_start(a_standing(3))
    assert made._plan_start(a_standing(4, 2)) is None


def test_a_reserved_place_on_a_node_of_a_reservation_counts_once() -> None:
    policies = replace(POLICIES, estimates=Known({3: 1_000}.get))
    cluster = a_cluster("2x2", policies, QueueOrder.CONSERVATIVE)
    gang = place(cluster, a_standing(1, 2))
    node = gang.slots[0].node
    cluster.drop(JobId(1))
    cluster.pending.add(a_standing(2, 2), NOW)
    cluster.reserve(ReservedPlace(JobId(2), gang.slots, gang.needs, GUARANTEED, ()))
    cluster.reservations = Reservations(
        [Reservation("w", WallTime(100), WallTime(200), (node,))]
    )
    assert Conservative(cluster, a_shape(2), NOW, GUARANTEED).may_start(a_standing(3, 2))


def test_cpus_of_a_reservation_count_as_in_use_while_it_lasts() -> None:
    policies = replace(POLICIES, estimates=Known({3: 1_000, 4: 10}.get))
    cluster = a_cluster("2x2", policies, QueueOrder.CONSERVATIVE)
    reservation = Reservation("w", WallTime(100), WallTime(200), (NodeId(0),))
    cluster.reservations = Reservations([reservation])
    request = a_shape(1).requests[0]
    whole = replace(request.need, gpu_milli=0, cpu_milli=cluster.nodes[NodeId(0)].cpu_milli)
    shape = replace(a_shape(1), requests=(replace(request, need=whole, count=2),))
    made = Conservative(cluster, shape, NOW, GUARANTEED)
    assert made.may_start(replace(a_standing(3), shape=shape)) is None
    assert made.may_start(replace(a_standing(4), shape=shape)) is not None
