"""Knots through values, and draws from them."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as some

from allotment.sim.generate.curve import ALL_PPM, MOST_KNOTS, Curve, curve_of, drawer
from allotment.sim.generate.distance import kolmogorov_smirnov


@given(some.lists(some.integers(0, 10**12), min_size=1, max_size=300))
def test_draws_stay_between_the_least_and_the_greatest(values: list[int]):
    curve = curve_of(values)
    assert curve.fault() == ""
    assert len(curve.values) <= MOST_KNOTS
    draw = drawer(curve, Random(1).getrandbits)
    drawn = [draw() for _ in range(50)]
    assert min(values) <= min(drawn)
    assert max(drawn) <= max(values)


def test_the_ends_of_chance_are_the_least_and_nearly_the_greatest():
    curve = Curve((0, 500_000, ALL_PPM), (10, 20, 1_000_020))
    assert drawer(curve, lambda bits: 0)() == 10
    assert drawer(curve, lambda bits: (1 << bits) - 1)() == 1_000_019
    assert drawer(curve, lambda bits: 1 << (bits - 1))() == 20


def test_a_heavy_tail_keeps_its_mean_and_its_shape():
    rng = Random(7)
    values = [round(1000 * (1 - rng.random()) ** -0.7) for _ in range(50_000)]
    curve = curve_of(values)
    assert curve.mean() == pytest.approx(sum(values) / len(values), rel=0.01)
    draw = drawer(curve, rng.getrandbits)
    drawn = sorted(draw() for _ in range(50_000))
    assert kolmogorov_smirnov(sorted(values), drawn) < 0.02


def test_of_many_values_few_become_knots():
    curve = curve_of([number * number for number in range(76)])
    assert len(curve.values) < 76 / 3


@pytest.mark.parametrize(
    ("curve", "fault"),
    [
        (Curve((0, ALL_PPM), (1,)), "2 shares"),
        (Curve((0,), (1,)), "from 0 to"),
        (Curve((0, 999), (1, 2)), "from 0 to"),
        (Curve((0, 5, 5, ALL_PPM), (1, 2, 3, 4)), "must rise"),
        (Curve((0, ALL_PPM), (-1, 2)), "negative"),
        (Curve((0, ALL_PPM), (2, 1)), "fall"),
    ],
)
def test_faults_are_named(curve: Curve, fault: str):
    assert fault in curve.fault()
