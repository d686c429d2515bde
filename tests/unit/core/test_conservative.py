"""Conservative backfilling beside places that are promised."""

import pytest
from msgspec.structs import replace

from allotment.core.cluster import Cluster
from allotment.core.conservative import Conservative
from allotment.core.gang import ReservedPlace
from allotment.core.request import needs_of
from allotment.model.ids import JobId
from allotment.model.ledger import Entitlement
from allotment.model.quantity import Instant
from allotment.policies.estimates.known import Known
from tests.unit.core.books import POLICIES, a_cluster, a_shape, a_standing, place

RUNS_MS = {1: 500, 2: 100, 3: 1_000, 4: 10}
NOW = Instant(50)
GUARANTEED = Entitlement.GUARANTEED


def promised(*, still_there: bool) -> Cluster:
    """Two devices: one is promised to job 2, and job 1 has left it or is about to."""
    policies = replace(POLICIES, estimates=Known(RUNS_MS.get))
    cluster = a_cluster("1x2", policies)
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
def test_a_promised_device_counts_once(still_there: bool) -> None:
    cluster = promised(still_there=still_there)
    made = Conservative(cluster, a_shape(1), NOW, GUARANTEED)
    assert made.may_start(a_standing(3))
    place(cluster, a_standing(3))
    made.started(a_standing(3))
    assert not made.may_start(a_standing(4))
    assert made.promise(a_standing(4)) == NOW + RUNS_MS[2]


@pytest.mark.parametrize("still_there", [True, False])
def test_who_needs_it_too_waits_for_its_end(still_there: bool) -> None:
    cluster = promised(still_there=still_there)
    made = Conservative(cluster, a_shape(2), NOW, GUARANTEED)
    assert not made.may_start(a_standing(4, 2))
    assert made.promise(a_standing(4, 2)) == NOW + RUNS_MS[2]


def test_who_is_promised_a_place_for_nobody_knows_how_long_has_it_for_good() -> None:
    cluster = promised(still_there=False)
    cluster.policies = replace(POLICIES, estimates=Known({3: 5, 4: 5}.get))
    made = Conservative(cluster, a_shape(2), NOW, GUARANTEED)
    assert made.may_start(a_standing(3))
    assert made.promise(a_standing(4, 2)) is None
