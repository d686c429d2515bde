"""Events in words."""

from allotment.engine.state import State
from allotment.model import events as e
from allotment.model.ids import JobId
from allotment.model.quantity import HOUR, MINUTE, Instant
from allotment.service.words import in_words
from tests.support.builders import NOW, POLICIES


def test_an_estimate_is_told_as_of_when_it_was_given() -> None:
    state = State(POLICIES)
    state.at = Instant(NOW + 5 * HOUR)
    start = Instant(NOW + 2 * MINUTE)
    said = in_words(e.StartEstimated(JobId(1), start, start, start), NOW, state)
    assert said == "estimated to start in 2 min 0 s"
    unknown = in_words(e.StartEstimated(JobId(1), None, None, None), NOW, state)
    assert unknown == "start was asked for"
