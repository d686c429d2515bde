"""How often a task or a job's file is looked at."""

from itertools import pairwise

from allotment.service.looks import MOST_S, Looks

KEY = 1
EVERY_S = 0.5


def looks(kept: Looks[int], since: float, until: float) -> list[float]:
    """Return when it is looked at, by a loop that may look every half second."""
    kept.begin(KEY, since)
    times = (since + EVERY_S * step for step in range(int((until - since) / EVERY_S)))
    return [now for now in times if KEY in kept.due(now)]


def test_what_is_new_is_looked_at_every_time() -> None:
    assert len(looks(Looks[int](), 100, 108)) == 16


def test_what_ran_long_is_looked_at_seldom_and_never_less_than_that() -> None:
    found = looks(Looks[int](), 0, 1000)
    late = [(at, then - at) for at, then in pairwise(found)]
    assert all(pause <= max(EVERY_S, at / 16 + EVERY_S) for at, pause in late)
    assert max(pause for _, pause in late) == MOST_S
    assert len(found) < 300


def test_news_has_it_looked_at_often_again() -> None:
    kept = Looks[int]()
    looks(kept, 0, 1000)
    kept.news(KEY, 1000.1)
    assert len(looks(kept, 1000.5, 1004.5)) == 8


def test_what_is_new_after_another_ended_is_looked_at_at_once() -> None:
    kept = Looks[int]()
    looks(kept, 0, 1000)
    kept.part(KEY)
    assert kept.due(1000 + MOST_S) == []
    assert len(looks(kept, 1010, 1014)) == 8


def test_what_could_not_be_looked_at_is_looked_at_again_and_no_oftener_after_that() -> None:
    kept = Looks[int]()
    looks(kept, 0, 1000)
    kept.again(KEY, 1000)
    kept.again(KEY, 1000)
    assert kept.due(1000) == [KEY]
    assert kept.due(1000 + MOST_S - EVERY_S) == []
    assert kept.due(1000 + MOST_S) == [KEY]
    kept.again(2, 1001)
    assert kept.due(1001) == [], "it was never begun"


def test_only_those_that_are_there_are_looked_at() -> None:
    kept = Looks[int]()
    kept.only({1, 2}, 0)
    assert kept.due(0) == [1, 2]
    kept.only({2, 3}, 1)
    assert kept.due(100) == [2, 3]


def test_few_things_are_looked_at_often_however_old_they_are() -> None:
    few, many = Looks[int](a_second=4), Looks[int](a_second=4)
    found = looks(few, 0, 1000)
    assert max(then - at for at, then in pairwise(found)) == EVERY_S
    many.only({*range(1, 1000)}, 0)
    assert looks(many, 0, 1000) == looks(Looks[int](), 0, 1000)
