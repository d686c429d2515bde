"""Views in the wall clock's time."""

from collections.abc import Iterator
from typing import Any, get_args, get_type_hints

import msgspec
import pytest

from allotment.model.events import AnyEvent, JobRequeued, Phase, Record, ReservationSet
from allotment.model.ids import SYSTEM, JobId, Seq
from allotment.model.quantity import Instant, Millis, WallTime
from allotment.model.reasons import Blocked, Reason
from allotment.model.reservations import Reservation
from allotment.service import views as v
from allotment.service.wall import moved

BLOCKED = Blocked(Reason.PENDING, "soon", until=Instant(500))


def test_instants_move_and_nothing_else() -> None:
    record = Record(Seq(7), Instant(100), SYSTEM, JobRequeued(JobId(3), "retry", Instant(900)))
    after = moved(record, -60)
    assert (after.seq, after.at) == (7, 40)
    assert after.event == JobRequeued(JobId(3), "retry", Instant(840))


def test_what_never_came_and_dates_that_people_wrote_stay() -> None:
    assert moved(JobRequeued(JobId(3), "retry"), 60).not_before == 0  # type: ignore[attr-defined]
    event = ReservationSet(Reservation("w", WallTime(100), WallTime(200), ()))
    assert moved(event, 60) == event


def test_lists_options_and_what_is_in_them_move() -> None:
    assert moved([BLOCKED, None], 60)[0].until == 560  # type: ignore[union-attr]
    assert moved({"a": BLOCKED}, 60)["a"].until == 560
    phases = (Phase("spawn", Instant(100), Millis(5)),)
    task = v.TaskView(0, "main.0", "running", "n0", (), 1, Instant(100), Instant(0), phases)  # type: ignore[arg-type]
    after = moved(task, 60)
    assert (after.started_at, after.ended_at) == (160, 0)
    assert after.phases == (Phase("spawn", Instant(160), Millis(5)),)


def test_nothing_is_made_anew_while_the_clock_is_right() -> None:
    assert moved(BLOCKED, 0) is BLOCKED


def _times(kind: Any) -> Iterator[str]:
    """Name the fields of a view that sound like a moment."""
    for name, hint in get_type_hints(kind, include_extras=True).items():
        is_moment = name.endswith("_at") or name in {"at", "since", "until"}
        if is_moment and hint in (int, int | None):
            yield f"{kind.__name__}.{name}"


@pytest.mark.parametrize("kind", [v.JobRow, v.TaskView, v.AttemptView, v.EventView, v.Health])
def test_moments_in_views_say_what_they_are(kind: type[msgspec.Struct]) -> None:
    assert list(_times(kind)) == []


@pytest.mark.parametrize("kind", get_args(AnyEvent))
def test_moments_in_events_say_what_they_are(kind: type[msgspec.Struct]) -> None:
    assert list(_times(kind)) == []
