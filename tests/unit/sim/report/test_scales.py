"""Axes: round values, far enough apart, inside the picture."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allotment.model.quantity import DAY, HOUR, MINUTE, SECOND
from allotment.sim.report.scales import (
    Scale,
    count_ticks,
    exact,
    length_scale,
    length_ticks,
    moment_ticks,
    power_ticks,
    span_ticks,
)

START = 1_506_816_000_000
"""1 October 2017."""


@given(st.integers(1, 10**13), st.floats(1, 10**9))
def test_labels_of_lengths_stand_apart_and_inside(least: int, factor: float) -> None:
    scale = length_scale(least, least * factor, 50, 550)
    ticks = length_ticks(scale)
    assert ticks
    places = [scale.at(value) for value, _ in ticks]
    assert all(b - a >= 58 for a, b in pairwise(places))
    assert all(50 <= place <= 550 for place in places)
    assert scale.high >= least * factor


def test_lengths_have_names_people_use() -> None:
    ticks = length_ticks(length_scale(SECOND, 10 * DAY, 50, 550))
    assert [words for _, words in ticks] == [
        "1 s",
        "10 s",
        "1 min",
        "10 min",
        "1 h",
        "1 day",
        "1 week",
    ]


def test_a_scale_of_nothing_is_still_a_scale() -> None:
    scale = length_scale(0, 0, 0, 100)
    assert (scale.at(0), scale.at(HOUR)) == (0, 100)


@pytest.mark.parametrize("log", [False, True])
def test_values_and_pixels(log: bool) -> None:
    scale = Scale(1, 10_000, 100, 500, log=log)
    for part in (0, 0.25, 0.5, 1):
        assert scale.at(scale.value(part)) == pytest.approx(100 + 400 * part)
    assert (scale.at(-5), scale.at(1e9)) == (100, 500)


@given(st.integers(0, 4 * 10**12), st.integers(1, 10**13))
def test_labels_of_instants_are_few_and_inside(low: int, length: int) -> None:
    ticks = moment_ticks(low, low + length)
    assert len(ticks) <= 7
    assert all(low <= at <= low + length for at, _ in ticks)


def test_dates_and_lengths() -> None:
    assert [words for _, words in moment_ticks(START, START + 5 * DAY)] == [
        "1 Oct",
        "2 Oct",
        "3 Oct",
        "4 Oct",
        "5 Oct",
        "6 Oct",
    ]
    assert [words for _, words in moment_ticks(START, START + 12 * HOUR)][:3] == [
        "1 Oct",
        "02:00",
        "04:00",
    ]
    assert [words for _, words in moment_ticks(500, 500 + 10 * MINUTE)][:2] == ["0", "2 min"]


@given(st.floats(0.5, 1e9))
def test_counts_are_whole_and_few(high: float) -> None:
    ticks = count_ticks(high)
    assert 1 <= len(ticks) <= 6
    assert all(value == int(value) <= high for value, _ in ticks)
    assert len({words for _, words in ticks}) == len(ticks)


def test_powers_and_spans() -> None:
    assert [words for _, words in power_ticks(12_906)] == ["1", "10", "100", "1,000", "10,000"]
    assert [words for _, words in span_ticks(6.5 * DAY)] == ["0", "2 days", "4 days", "6 days"]


@pytest.mark.parametrize(
    ("length", "words"),
    [
        (0, "0"),
        (30 * HOUR, "30 h"),
        (36 * HOUR, "1.5 days"),
        (24 * HOUR, "1 day"),
        (75 * MINUTE, "75 min"),
        (90 * MINUTE, "1.5 h"),
        (20, "20 ms"),
    ],
)
def test_labels_of_an_axis_are_not_rounded(length: int, words: str) -> None:
    assert exact(length) == words
