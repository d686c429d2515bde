"""How often a task on Slurm is looked at."""

from itertools import pairwise

from allotment.backends.slurm.pace import MOST_S, Pace
from allotment.model.ids import AttemptNo, JobId, TaskIndex, TaskKey

KEY = TaskKey(JobId(1), AttemptNo(1), TaskIndex(0))
EVERY_S = 0.5


def looks(pace: Pace, since: float, until: float) -> list[float]:
    """Return when it is looked at, by a loop that may look every half second."""
    found: list[float] = []
    for now in (since + EVERY_S * step for step in range(int((until - since) / EVERY_S))):
        if pace.is_due(KEY, now):
            pace.looked(KEY, now)
            found.append(now)
    return found


def test_what_is_new_is_looked_at_every_time() -> None:
    assert len(looks(Pace(), 100, 108)) == 16


def test_what_ran_long_is_looked_at_seldom_and_never_less_than_that() -> None:
    found = looks(Pace(), 0, 1000)
    late = [(at, then - at) for at, then in pairwise(found)]
    assert all(pause <= max(EVERY_S, at / 16 + EVERY_S) for at, pause in late)
    assert max(pause for _, pause in late) == MOST_S
    assert len(found) < 300


def test_news_has_it_looked_at_often_again() -> None:
    pace = Pace()
    looks(pace, 0, 1000)
    pace.news(KEY, 1000.1)
    assert len(looks(pace, 1000.5, 1004.5)) == 8


def test_what_is_new_after_another_ended_is_looked_at_at_once() -> None:
    pace = Pace()
    looks(pace, 0, 1000)
    pace.part(KEY)
    assert pace.is_due(KEY, 1000)
    assert len(looks(pace, 1000, 1004)) == 8
