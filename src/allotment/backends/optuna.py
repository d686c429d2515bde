"""Trials as Optuna proposes them: its TPE sampler, asked afresh each time.

Rule: what was tried is told to a new study, and its sampler is seeded with the sweep's seed and
the number of the trial. So the next parameters depend on nothing but the sweep and what is
recorded of its trials. Trials that came to their end count with their last value. Those that
were stopped by comparison, were cancelled or failed count as pruned, with what they reported.
One whose last value is no number is the worst of all, and one that ended without any value
teaches nothing. Trials under way are told, too, so that the next is not tried just beside them.

Source: Bergstra et al., Algorithms for Hyper-Parameter Optimization, NIPS 2011; Optuna's
TPESampler. Nothing of Optuna is imported before it is needed.

Bad at: many trials at a time, which learn little from each other; the first ten are drawn.
"""

import random
import warnings
from collections.abc import Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from allotment.model.grid import Parameters
from allotment.model.sweeps import Axis, Came, Range, Scale, Sweep, Tried
from allotment.sweeps.draw import written

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution
    from optuna.trial import FrozenTrial

    Space = dict[str, BaseDistribution]

Value = str | int | float


class OptunaProposer:
    """Optuna in this process, where it is installed."""

    def missing(self) -> str:
        """Return why it can propose nothing here; '' where it can."""
        return "" if find_spec("optuna") else "Optuna is not installed where the service is."

    def propose(self, sweep: Sweep, tried: Sequence[Tried]) -> Parameters:
        """Return parameters for the next trial."""
        import optuna  # noqa: PLC0415

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        space = {name: _distribution(axis) for name, axis in sweep.space}
        seed = random.Random(f"{sweep.seed} {len(tried)}").getrandbits(32)  # noqa: S311
        with warnings.catch_warnings():
            # Each time it tells that both are experimental, and numpy of very wide ranges.
            warnings.simplefilter("ignore")
            sampler = optuna.samplers.TPESampler(
                seed=seed, multivariate=True, constant_liar=True
            )
            study = optuna.create_study(sampler=sampler, direction=sweep.goal.value)
            study.add_trials(_told(each, sweep, space) for each in tried if _teaches(each))
            values = study.ask(space).params
        return tuple((name, _written(values[name], axis)) for name, axis in sweep.space)


def _teaches(tried: Tried) -> bool:
    return bool(tried.values) or tried.came is Came.UNDER_WAY


def _told(tried: Tried, sweep: Sweep, space: "Space") -> "FrozenTrial":
    """Return a trial as Optuna knows them."""
    from optuna.trial import TrialState, create_trial  # noqa: PLC0415

    params, last = dict(tried.params), tried.values[-1][1] if tried.values else None
    numbers = {step: value for step, value in tried.values if value is not None}
    given: dict[str, Any] = {
        "params": {name: _read(params[name], axis) for name, axis in sweep.space},
        "distributions": space,
        "intermediate_values": numbers if last is not None else {},
    }
    if tried.came is Came.UNDER_WAY:
        return create_trial(state=TrialState.RUNNING, **given)
    if tried.came is Came.TO_ITS_END and last is not None:
        return create_trial(state=TrialState.COMPLETE, value=last, **given)
    return create_trial(state=TrialState.PRUNED, **given)


def _distribution(axis: Axis) -> "BaseDistribution":
    from optuna.distributions import (  # noqa: PLC0415
        CategoricalDistribution,
        FloatDistribution,
        IntDistribution,
    )

    if not isinstance(axis, Range):
        return CategoricalDistribution(axis)
    if axis.scale is Scale.INT:
        return IntDistribution(int(axis.low), int(axis.high))
    return FloatDistribution(axis.low, axis.high, log=axis.scale is Scale.LOG)


def _read(text: str, axis: Axis) -> Value:
    if not isinstance(axis, Range):
        return text
    return int(text) if axis.scale is Scale.INT else float(text)


def _written(value: Value, axis: Axis) -> str:
    if isinstance(axis, Range) and axis.scale is not Scale.INT:
        return written(float(value), axis)
    return str(value)
