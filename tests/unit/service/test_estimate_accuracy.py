"""How good estimates were, judged by the second in which jobs started."""

import pytest

from allotment.model import events as e
from allotment.model.ids import SYSTEM, AttemptNo, JobId, Seq
from allotment.model.ledger import Entitlement
from allotment.model.quantity import Instant
from allotment.service.estimate_accuracy import accuracy_of
from tests.support.builders import NOW

TOLD = Instant(NOW // 1000 * 1000 + 300)
JOB = JobId(1)


@pytest.mark.parametrize(
    ("late_ms", "within"), [(0, 1), (-300, 1), (-301, 0), (699, 1), (1_699, 1), (1_700, 0)]
)
def test_a_start_in_the_second_told_or_the_next_is_no_miss(late_ms: int, within: int) -> None:
    placed = e.AttemptPlaced(JOB, AttemptNo(1), (), Entitlement.GUARANTEED)
    events = [
        (Instant(TOLD - 5_000), e.StartEstimated(JOB, TOLD, TOLD, TOLD)),
        (Instant(TOLD + late_ms), placed),
    ]
    records = [e.Record(Seq(seq), at, SYSTEM, event) for seq, (at, event) in enumerate(events)]
    found = accuracy_of(records, Instant(0))
    assert (found.judged, found.ranges, found.within) == (1, 1, within)
    assert found.median_error_ms == abs(late_ms)
