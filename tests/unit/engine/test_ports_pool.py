"""Ranges of ports, each to one attempt at a time."""

from allotment.engine.ports_pool import PortPool, nobody_else


def a_pool(first: int = 100, end: int = 110) -> PortPool:
    pool = PortPool()
    pool.configure((first, end))
    return pool


def test_next_fit_goes_round_and_skips_what_is_taken() -> None:
    pool = a_pool()
    for expected in (100, 104):
        found = pool.find(4, nobody_else)
        assert found == expected
        pool.take(found, 4)
    pool.give(100, 4)
    assert pool.find(4, nobody_else) == 100
    assert pool.find(2, nobody_else) == 108


def test_ports_of_others_on_the_host_are_left_alone() -> None:
    pool = a_pool()
    assert pool.find(3, lambda port: port not in {100, 101, 104}) == 105
    assert pool.find(3, lambda port: False) == 0


def test_a_full_or_empty_range_gives_none() -> None:
    pool = a_pool()
    pool.take(100, 10)
    assert pool.find(1, nobody_else) == 0
    assert a_pool(0, 0).find(1, nobody_else) == 0
    assert a_pool().find(11, nobody_else) == 0


def test_services_of_one_host_begin_in_different_places() -> None:
    pool = a_pool()
    pool.begin_at(123)
    assert pool.find(2, nobody_else) == 103
    pool.begin_at(9)
    assert pool.find(2, nobody_else) == 100


def test_ports_beyond_the_range_do_not_count_as_taken_from_it() -> None:
    pool = a_pool(100, 104)
    pool.take(100, 4)
    pool.configure((102, 108))
    assert pool.find(4, nobody_else) == 104
    pool.give(100, 4)
    assert pool.find(6, nobody_else) == 102
    pool.take(102, 6)
    pool.configure((100, 108))
    pool.give(102, 6)
    assert pool.find(8, nobody_else) == 100


def test_a_range_that_reaches_out_of_ours_takes_what_is_inside_only() -> None:
    pool = a_pool(100, 110)
    pool.take(96, 8)
    assert pool.find(6, nobody_else) == 104
    pool.give(96, 8)
    pool.take(108, 4)
    pool.give(108, 4)
    assert pool.find(10, nobody_else) == 100
