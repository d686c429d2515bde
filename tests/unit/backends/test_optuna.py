"""Trials that Optuna proposes: the same for the same history, in their space, and better."""

import math
import warnings

import pytest

from allotment.backends.optuna import OptunaProposer
from allotment.model.grid import Parameters
from allotment.model.sweeps import Axis, Came, Goal, Range, Sampler, Scale, Sweep, Tried

SPACE = (
    ("lr", Range(Scale.LOG, 1e-5, 1e-1)),
    ("width", Range(Scale.INT, 2, 8)),
    ("drop", Range(Scale.UNIFORM, 0.0, 0.5)),
    ("opt", ("sgd", "adam")),
)
STUDY = Sweep(SPACE, draws=40, seed=7, sampler=Sampler.OPTUNA, metric="loss")


def loss(params: Parameters) -> float:
    """Return what is least near lr = 1e-3 and width 6, with adam."""
    values = dict(params)
    off = abs(math.log10(float(values["lr"])) + 3) + abs(int(values["width"]) - 6) / 3
    return off + (values["opt"] != "adam")


def studied(count: int, sweep: Sweep = STUDY) -> list[Tried]:
    tried: list[Tried] = []
    sign = -1 if sweep.goal is Goal.MAXIMIZE else 1
    for _ in range(count):
        params = OptunaProposer().propose(sweep, tried)
        tried.append(Tried(params, Came.TO_ITS_END, ((9, sign * loss(params)),)))
    return tried


def test_the_same_history_gives_the_same_trials() -> None:
    first, again = studied(14), studied(14)
    assert first == again
    other = Sweep(SPACE, draws=40, seed=8, sampler=Sampler.OPTUNA, metric="loss")
    assert studied(3, other) != first[:3]


def test_what_is_proposed_lies_in_its_space_and_reads_back() -> None:
    for each in studied(14):
        values = dict(each.params)
        assert list(values) == ["lr", "width", "drop", "opt"]
        assert 1e-5 <= float(values["lr"]) <= 1e-1
        assert 2 <= int(values["width"]) <= 8
        assert 0 <= float(values["drop"]) <= 0.5
        assert values["opt"] in ("sgd", "adam")


@pytest.mark.parametrize("goal", list(Goal))
def test_later_trials_are_better_than_the_first_ones(goal: Goal) -> None:
    sweep = Sweep(SPACE, draws=40, seed=7, sampler=Sampler.OPTUNA, metric="loss", goal=goal)
    values = [loss(each.params) for each in studied(40, sweep)]
    assert sum(values[-10:]) < sum(values[:10]) / 2


def test_trials_that_tell_no_number_are_avoided_and_harm_nothing() -> None:
    """Rates above 1e-3 diverge: half of the space."""
    tried: list[Tried] = []
    for _ in range(40):
        params = OptunaProposer().propose(STUDY, tried)
        diverges = float(dict(params)["lr"]) > 1e-3
        value = None if diverges else loss(params)
        came = Came.NOT_SO_FAR if diverges else Came.TO_ITS_END
        tried.append(Tried(params, came, ((9, value),)))
    bad = [each.came is Came.NOT_SO_FAR for each in tried]
    assert sum(bad[:10]) >= 3
    assert sum(bad[-10:]) <= 2


def test_every_kind_of_history_is_taken() -> None:
    at = (("lr", "0.001"), ("width", "3"), ("drop", "0.2"), ("opt", "sgd"))
    kinds = [
        Tried(at, came, values)
        for came in Came
        for values in (
            (),
            ((3, 0.5),),
            ((3, None),),
            ((3, 0.5), (9, None)),
            ((3, None), (9, 1.0)),
        )
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert OptunaProposer().propose(STUDY, [*kinds, *kinds])


def test_trials_under_way_keep_the_next_one_away_from_where_they_are() -> None:
    space = (("x", Range(Scale.UNIFORM, 0.0, 1.0)),)
    tried = [
        Tried((("x", str(at / 10)),), Came.TO_ITS_END, ((1, abs(at / 10 - 0.5)),))
        for at in range(11)
    ]
    busy = [Tried((("x", "0.5"),), Came.UNDER_WAY) for _ in range(20)]

    def near(history: list[Tried]) -> int:
        found = 0
        for seed in range(20):
            sweep = Sweep(space, draws=50, seed=seed, sampler=Sampler.OPTUNA, metric="m")
            (x,) = dict(OptunaProposer().propose(sweep, history)).values()
            found += abs(float(x) - 0.5) < 0.05
        return found

    assert near(tried) >= 10
    assert near([*tried, *busy]) <= near(tried) // 2


@pytest.mark.parametrize(
    "axis",
    [
        ("x",),
        Range(Scale.INT, 1 - 2.0**53, 2.0**53 - 1),
        Range(Scale.LOG, 5e-324, 1.7e308),
        Range(Scale.UNIFORM, 1.0, 1.0000000000000002),
        Range(Scale.UNIFORM, 0.0, 1.7e308),
    ],
)
def test_a_parameter_of_one_value_and_the_widest_ranges_are_taken(axis: Axis) -> None:
    sweep = Sweep((("x", axis),), draws=20, seed=1, sampler=Sampler.OPTUNA, metric="m")
    tried: list[Tried] = []
    for at in range(15):  # The first ten are drawn.
        params = OptunaProposer().propose(sweep, tried)
        tried.append(Tried(params, Came.TO_ITS_END, ((1, 1e308 / (at + 1)),)))
    for ((_, text),) in (each.params for each in tried):
        assert text in axis if isinstance(axis, tuple) else axis.low <= float(text) <= axis.high
