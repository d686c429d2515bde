"""What jobs tell of their progress: any file is harmless, and rates are true."""

import pytest

from allotment.model.ids import AttemptNo, JobId, TaskIndex, TaskKey
from allotment.model.quantity import HOUR, SECOND
from allotment.service.progress import (
    MOST,
    MOST_METRICS,
    SURE_NS,
    Steps,
    metrics_of,
    rates_of,
    read,
)
from allotment.service.workspace import Changed

KEY = TaskKey(JobId(1), AttemptNo(1), TaskIndex(0))


def changed(data: bytes, at_ms: int = 1) -> Changed:
    return Changed(KEY, at_ms * 1_000_000, data)


def steps_of(*told: tuple[int, bytes]) -> Steps:
    steps = Steps(1, 1)
    for at_ms, data in told:
        found = read(changed(data))
        assert found is not None
        steps.add(at_ms * 1_000_000, found)
    return steps


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\n\n",
        b'{"step": -1}',
        b'{"step": NaN}',
        b'{"step": 1e400}',
        b'{"step": 9223372036854775808}',
        b'{"total": 5}',
        b'{"step": 1, "total": "many"}',
        b'{"step": 1, "metrics": {"loss": "low"}}',
        b"[" * 8000,
        b'{"step": ' + b"1" * 8000,
        b"caf\xe9",
        bytes(8000),
    ],
)
def test_what_is_no_progress_is_none(data: bytes) -> None:
    assert read(changed(data)) is None


@pytest.mark.parametrize("value", ["NaN", "Infinity", "-Infinity", "1e999", "null"])
def test_a_metric_that_diverged_is_told_of_and_not_shown(value: str) -> None:
    found = read(changed(f'{{"step": 7, "metrics": {{"loss": {value}, "lr": 0.5}}}}'.encode()))
    assert found is not None
    assert (found.step, set(found.metrics)) == (7, {"loss", "lr"})
    assert metrics_of(found) == {"lr": 0.5}


def test_the_last_whole_line_holds() -> None:
    found = read(changed(b'alf a line\n{"step": 1}\n{"step": 2, "total": 9}   \n{"step": '))
    assert found is not None
    assert (found.step, found.total) == (2, 9)


def test_rate_and_time_left_come_from_the_first_and_the_last_of_some_minutes() -> None:
    ten_a_second = [
        (n * 1000, b'{"step": %d, "total": 5000}' % (n * 10)) for n in range(1, 100)
    ]
    view = steps_of(*ten_a_second).view()
    assert view is not None
    assert (view.step, view.total, view.steps_per_hour) == (990, 5000, 36_000)
    assert view.left_ms == (5000 - 990) * HOUR // 36_000
    assert view.at == 99 * SECOND


def test_one_line_has_no_rate_and_a_job_that_is_through_has_no_time_left() -> None:
    view = steps_of((1000, b'{"step": 7, "total": 9}')).view()
    assert view is not None
    assert (view.steps_per_hour, view.left_ms) == (None, None)
    view = steps_of((1000, b'{"step": 7}'), (2000, b'{"step": 9, "total": 9}')).view()
    assert view is not None
    assert view.left_ms == 0
    stuck = steps_of((1000, b'{"step": 7, "total": 9}'), (2000, b'{"step": 7, "total": 9}'))
    view = stuck.view()
    assert view is not None
    assert (view.steps_per_hour, view.left_ms) == (0, None)


def test_steps_that_go_back_begin_anew() -> None:
    steps = steps_of((1000, b'{"step": 50}'), (2000, b'{"step": 60}'), (3000, b'{"step": 2}'))
    view = steps.view()
    assert view is not None
    assert (view.step, view.steps_per_hour) == (2, None)


def test_lies_give_numbers_that_every_reader_keeps_whole() -> None:
    steps = steps_of((1, b'{"step": 0}'))
    found = read(changed(b'{"step": 9223372036854775000, "total": 9223372036854775807}'))
    assert found is not None
    steps.add(1 << 90, found)
    steps.add((1 << 90) + 1, found)
    view = steps.view()
    assert view is not None
    assert view.steps_per_hour is not None
    assert view.left_ms is not None
    assert max(view.steps_per_hour, view.left_ms, view.at) <= MOST


def test_metrics_are_finite_few_and_printable() -> None:
    many = b",".join(b'"m%d": %d' % (n, n) for n in range(100))
    found = read(changed(b'{"step": 1, "metrics": {"a\\nb": 1, "none": null, %s}}' % many))
    assert found is not None
    assert metrics_of(found) == {f"m{n}": n for n in range(MOST_METRICS)}


def test_a_rate_that_is_compared_rests_on_what_was_told_since_only() -> None:
    steps = Steps(1, 1, is_later=True)
    told = [(0, 1), (60_000, 1_000), (62_000, 1_010), (64_000, 1_020), (66_000, 1_030)]
    for at_ms, step in told:
        assert not steps.is_sure(3 * SECOND * 1_000_000)
        found = read(changed(b'{"step": %d}' % step))
        assert found is not None
        steps.add(at_ms * 1_000_000, found)
    assert steps.is_sure(3 * SECOND * 1_000_000)
    assert not steps.is_sure(), "elsewhere it rests on ten seconds"
    rate = steps.rate_by(steps.told_ns)
    assert rate == 5 * HOUR // SECOND, "the first was of before"


def test_a_pair_of_which_one_tells_nothing_is_told_of_after_a_while() -> None:
    mine, other = Steps(1, 1), Steps(1, 1)
    found: list[tuple[int, int] | None] = []
    for second in range(0, 25, 5):
        told = read(changed(b'{"step": %d}' % (10 * second)))
        assert told is not None
        mine.add(second * SECOND * 1_000_000, told)
        found.append(rates_of(mine, None, SURE_NS))
    assert found == [None] * 4 + [(10 * HOUR // SECOND, 0)]
    assert rates_of(mine, other, SURE_NS) is None, "nothing is new"


def test_a_pair_is_told_of_once_both_are_sure() -> None:
    mine, other = Steps(1, 1), Steps(1, 1)
    for second in range(0, 20, 5):
        told = read(changed(b'{"step": %d}' % (10 * second)))
        assert told is not None
        for steps in (mine, other):
            steps.add(second * SECOND * 1_000_000, told)
    assert rates_of(mine, other, SURE_NS) == (10 * HOUR // SECOND,) * 2


def test_one_of_a_pair_that_comes_to_tell_nothing_gets_slower_and_slower() -> None:
    mine, other = Steps(1, 1), Steps(1, 1)
    found: list[int] = []
    for second in range(0, 100, 5):
        told = read(changed(b'{"step": %d}' % (10 * second)))
        assert told is not None
        mine.add(second * SECOND * 1_000_000, told)
        if second <= 20:
            other.add(second * SECOND * 1_000_000, told)
        rates = rates_of(mine, other, SURE_NS)
        if rates is not None:
            assert rates[0] == 10 * HOUR // SECOND
            found.append(rates[1])
    patient = [10 * HOUR // SECOND] * 6  # Until it has told nothing for 20 s.
    assert found[:6] == patient
    assert found[6:] == sorted(found[6:], reverse=True)
    assert found[6] == 250 * HOUR // (45 * SECOND), "a look's worth of steps may be under way"
    assert 2 * found[-1] < patient[0], "less than by turns"


def test_how_busy_devices_are_is_the_mean_of_the_looks() -> None:
    steps = Steps(1, 1)
    assert steps.busy_milli == 0
    for busy in (200, 400):
        steps.add_busy(busy)
    assert steps.busy_milli == 300
