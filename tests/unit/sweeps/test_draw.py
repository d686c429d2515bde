"""Which trials a sweep has: the same for everybody, none twice, none out of bounds."""

import pytest

from allotment.model.sweeps import Range, Scale, Sweep
from allotment.sweeps.draw import combinations_of, trials

CHOICES = (("lr", ("0.1", "0.01")), ("opt", ("sgd", "adam", "lamb")))
SPANS = (
    ("lr", Range(Scale.LOG, 1e-5, 0.1)),
    ("width", Range(Scale.INT, 2, 4)),
    ("drop", Range(Scale.UNIFORM, 0.0, 0.5)),
    ("opt", ("sgd", "adam")),
)


def test_without_draws_each_combination_is_a_trial() -> None:
    made = trials(Sweep(CHOICES))
    assert len(set(made)) == len(made) == combinations_of(CHOICES) == 6
    assert made[0] == (("lr", "0.1"), ("opt", "sgd"))
    assert made[1] == (("lr", "0.1"), ("opt", "adam"))


def test_draws_of_what_can_be_listed_never_come_twice() -> None:
    for seed in range(50):
        made = trials(Sweep(CHOICES, draws=5, seed=seed))
        assert len(set(made)) == 5
    every = {tuple(trials(Sweep(CHOICES, draws=6, seed=seed))) for seed in range(20)}
    assert len(every) > 10
    assert {frozenset(made) for made in every} == {frozenset(trials(Sweep(CHOICES)))}


@pytest.mark.parametrize(("parameters", "values"), [(64, 2), (18, 10), (1_100, 2)])
def test_of_more_combinations_than_a_float_counts_each_parameter_is_drawn(
    parameters: int, values: int
) -> None:
    choices = tuple(str(value) for value in range(values))
    space = tuple((f"p{at}", choices) for at in range(parameters))
    drawn = trials(Sweep(space, draws=200, seed=1))
    assert all({made[at][1] for made in drawn} == set(choices) for at in range(parameters))


def test_a_seed_gives_the_same_trials_for_ever() -> None:
    made = trials(Sweep(SPANS, draws=3, seed=7))
    assert made == trials(Sweep(SPANS, draws=3, seed=7))
    assert made != trials(Sweep(SPANS, draws=3, seed=8))
    assert made[:2] == trials(Sweep(SPANS, draws=2, seed=7))
    assert [name for name, _ in made[0]] == ["lr", "width", "drop", "opt"]


def test_what_is_drawn_lies_between_the_ends_and_fills_them() -> None:
    made = [dict(each) for each in trials(Sweep(SPANS, draws=2_000, seed=1))]
    rates = sorted(float(each["lr"]) for each in made)
    assert rates[0] >= 1e-5
    assert rates[-1] <= 0.1
    tens = [sum(10.0**-n <= rate < 10.0 ** (1 - n) for rate in rates) for n in (5, 4, 3, 2)]
    assert min(tens) > 400
    widths = [int(each["width"]) for each in made]
    assert {width: widths.count(width) > 500 for width in (2, 3, 4)} == dict.fromkeys(
        (2, 3, 4), True
    )
    assert all(0 <= float(each["drop"]) <= 0.5 for each in made)


@pytest.mark.parametrize("end", [0.12345678, 1e-300, 98765432.1])
def test_a_number_that_is_rounded_stays_between_the_ends(end: float) -> None:
    for space in ((("x", Range(Scale.LOG, end, end * 1.0000001)),),):
        for ((_, text),) in trials(Sweep(space, draws=200, seed=0)):
            assert end <= float(text) <= end * 1.0000001
