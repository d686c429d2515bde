"""The demo never believes a row that is ahead of the events it has seen."""

from typing import Any, cast

import pytest

from allotment.client import Client
from allotment.demo.watch import Watch
from allotment.model import events as e
from allotment.model.ids import JobId
from allotment.model.lifecycle import JobState
from allotment.service.views import EventView, JobRow

JOB = JobId(1)


def event(seq: int, detail: dict[str, object]) -> EventView:
    return EventView(seq, cast("Any", 0), str(detail["event"]), JOB, "u", (), "", detail)


HISTORY = [
    event(1, {"event": "JobSubmitted", "job": 1, "spec": {"name": "a", "tenant": "t"}}),
    event(2, {"event": "JobSucceeded", "job": 1}),
]


class Racing:
    """A service whose job ends before its n-th request, and tells so `late` requests on."""

    def __init__(self, ends_before: int, late: int) -> None:
        self._to_end = ends_before
        self._to_event = ends_before + late

    def _tick(self) -> None:
        self._to_end -= 1
        self._to_event -= 1

    def events(self, *, after: int) -> list[EventView]:
        self._tick()
        there = HISTORY if self._to_event <= 0 else HISTORY[:1]
        return [view for view in there if view.seq > after]

    def jobs(self, *, limit: int) -> list[JobRow]:
        self._tick()
        state = JobState.SUCCEEDED if self._to_end <= 0 else JobState.QUEUED
        row = dict.fromkeys(JobRow.__struct_fields__)
        return [JobRow(**{**row, "id": JOB, "name": "a", "state": state})]  # pyright: ignore

    def nodes(self) -> list[object]:
        return []


@pytest.mark.parametrize("ends_before", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("late", [0, 1, 2, 3])
def test_what_a_row_says_has_its_event(ends_before: int, late: int) -> None:
    watch = Watch(cast("Client", Racing(ends_before, late)), deadline=1e12)
    for _ in range(5):
        watch.look()
        is_seen = watch.facts.first(e.JobSucceeded, "a") is not None
        assert is_seen or watch.state("a") is not JobState.SUCCEEDED
    assert watch.state("a") is JobState.SUCCEEDED
