"""The policies by name: the order, which jobs overtake, when turns come, what is foretold."""

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from functools import partial

import msgspec

from allotment.core.cluster import Cluster
from allotment.core.ledger import Placing
from allotment.core.policies import Policies, Rescheduler
from allotment.core.ports import Estimates, Ordering
from allotment.model.tenancy import QueueOrder
from allotment.policies.moving.preferred import ToPreferred
from allotment.policies.named import FAIRNESS, ranking
from allotment.policies.ordering.fifo import Fifo
from allotment.policies.ordering.finish_time_fair import FinishTimeFair
from allotment.policies.ordering.las import LeastAttained, LeastAttainedInSteps, doubling
from allotment.policies.ordering.priority import ByPriority
from allotment.policies.ordering.remaining import LeastRemaining
from allotment.policies.ordering.round_robin import RoundRobin
from allotment.policies.ordering.since import LeastSinceChange
from allotment.policies.ordering.sjf import ShortestFirst
from allotment.policies.placing.fgd import LeastFragmentation
from allotment.policies.placing.pack import Pack
from allotment.policies.placing.spread import Spread
from allotment.policies.rescheduling.growing import growing
from allotment.policies.rescheduling.in_pairs import InPairs
from allotment.policies.rescheduling.migrating import ran_for_long
from allotment.policies.rescheduling.ports import Packing, Turns
from allotment.policies.rescheduling.taking_turns import TakingTurns
from allotment.policies.sharing.borrow_and_return import BorrowAndReturn
from allotment.policies.turns.at_once import AtOnce
from allotment.policies.turns.rounds import Rounds
from allotment.policies.victims.least_lost import LeastLost
from allotment.sim.bad import BadScenario
from allotment.sim.settings import Settings
from allotment.sim.settings import chosen as chosen_settings


class UnknownPolicy(BadScenario):
    """There is no policy of that name. Names the nearest."""


class Recipe(msgspec.Struct, frozen=True):
    """How one named policy is put together."""

    says: str
    """Its rule in a line, but for which jobs may overtake."""
    ordering: Callable[[Settings, Estimates], Ordering]
    passing: QueueOrder = QueueOrder.SKIP
    turns: Callable[[Settings], Turns | None] = lambda _: None
    by_type: bool = False
    """Jobs that take any device type try the one they run fastest on first."""
    moves: bool = False
    """Running jobs go to a type they prefer, and out of shared devices, when these are free."""
    packs: bool = False
    """Two jobs may share devices: each asks for half of one where it would for a whole, and
    shares it with the partner that chance gave it or with none."""
    by_use: bool = False
    """`packs`: jobs that use their devices least become partners."""
    slices: bool = False
    """Jobs of one queue take turns of a round each, and are suspended meanwhile."""
    by_affinity: bool = False
    """`slices`: jobs share nodes with jobs of their own size, and go from crowded to idle ones
    while they are suspended."""
    told: bool = False
    """Its order goes by run times: with exact ones it is clairvoyant."""


def _fifo(settings: Settings, estimates: Estimates) -> Ordering:  # noqa: ARG001
    return Fifo()


def _by_priority(settings: Settings, estimates: Estimates) -> Ordering:  # noqa: ARG001
    return ByPriority()


def _attained(settings: Settings, estimates: Estimates) -> Ordering:  # noqa: ARG001
    return LeastAttained(settings.lead_ms)


def _since_change(settings: Settings, estimates: Estimates) -> Ordering:  # noqa: ARG001
    return LeastSinceChange(settings.round_ms)


def _round_robin(settings: Settings, estimates: Estimates) -> Ordering:  # noqa: ARG001
    return RoundRobin()


def _at_once(settings: Settings) -> Turns:  # noqa: ARG001
    return AtOnce()


def _rounds(settings: Settings) -> Turns:
    return Rounds(settings.round_ms)


FIRST_COME = "by priority, then first come, first served"

RECIPES: dict[str, Recipe] = {
    "fifo": Recipe(FIRST_COME, _fifo, QueueOrder.STRICT),
    "backfill": Recipe(FIRST_COME, _fifo),
    "easy": Recipe(FIRST_COME, _fifo, QueueOrder.EASY),
    "conservative": Recipe(FIRST_COME, _fifo, QueueOrder.CONSERVATIVE),
    "priority": Recipe(
        "higher priority first, and takes the place of lower",
        _by_priority,
        turns=_at_once,
    ),
    "sjf": Recipe("shortest job first", lambda _, told: ShortestFirst(told), told=True),
    "srtf": Recipe(
        "shortest remaining time first",
        lambda _, told: LeastRemaining(told),
        turns=_at_once,
        told=True,
    ),
    "srsf": Recipe(
        "shortest remaining device-time first",
        lambda _, told: LeastRemaining(told, by_service=True),
        turns=_at_once,
        told=True,
    ),
    "las": Recipe(
        "least attained device-time first, compared up to a factor of two",
        lambda settings, _: LeastAttainedInSteps(doubling(settings.first_ms)),
        turns=_at_once,
    ),
    "las2d": Recipe(
        "least attained device-time first, in steps (Tiresias)",
        lambda settings, _: LeastAttainedInSteps(settings.queues, settings.promote),
        turns=_at_once,
    ),
    "ftf": Recipe(
        "worst finish-time fairness first, in rounds (Themis)",
        lambda settings, told: FinishTimeFair(told, settings.round_ms),
        turns=_rounds,
        told=True,
    ),
    "maxmin": Recipe(
        "least attained device-time first, in rounds: max-min fair shares",
        _attained,
        turns=_rounds,
        moves=True,
    ),
    "gavel": Recipe(
        "the same, and each job tries first the device type it runs fastest on",
        _attained,
        turns=_rounds,
        moves=True,
        by_type=True,
    ),
    "round_robin": Recipe(
        "by turns: suspended after a round, if an equal waits; longest without a turn first",
        _round_robin,
        slices=True,
    ),
    "gandiva": Recipe(
        "by turns on nodes with jobs of the same size; suspended ones go where it is idle",
        _round_robin,
        slices=True,
        by_affinity=True,
    ),
    "gavel-pack": Recipe(
        "max-min, and jobs that do not all fit share devices in pairs that chance makes",
        _since_change,
        turns=_rounds,
        moves=True,
        packs=True,
    ),
}


def recipe(name: str) -> Recipe:
    """Find a policy. Raises UnknownPolicy."""
    if name not in RECIPES:
        near = get_close_matches(name.lower(), RECIPES, 3, 0.4)
        hint = f"Did you mean {' or '.join(near)}? " if near else ""
        raise UnknownPolicy(
            f"There is no policy {name!r}. {hint}There are: {', '.join(RECIPES)}."
        )
    return RECIPES[name]


def passing(chosen: Recipe, settings: Settings) -> QueueOrder:
    """Return what may pass a blocked job."""
    return QueueOrder(settings.order) if settings.order else chosen.passing


PASSES: Mapping[QueueOrder, str] = {
    QueueOrder.STRICT: "no job overtakes",
    QueueOrder.SKIP: "any job that fits overtakes",
    QueueOrder.EASY: "jobs overtake if the first is not delayed",
    QueueOrder.CONSERVATIVE: "jobs overtake if no job before them is delayed",
}

BY_RUN_TIMES = (QueueOrder.EASY, QueueOrder.CONSERVATIVE)
"""Orders in which run times decide which jobs may overtake."""


def rule(chosen: Recipe, settings: Settings) -> str:
    """Return in a line which job comes first, and which may overtake."""
    return f"{chosen.says}; {PASSES[passing(chosen, settings)]}"


def goes_by_run_times(chosen: Recipe, settings: Settings) -> bool:
    """Whether it needs run times, for its order or for which jobs may overtake."""
    return chosen.told or passing(chosen, settings) in BY_RUN_TIMES


def policies(
    chosen: Recipe,
    settings: Settings,
    estimates: Estimates,
    popularity: Mapping[int, int],
    *,
    types: int = 1,
    packing: Packing | None = None,
) -> Policies:
    """Put a policy together. `popularity` counts tasks by their devices.

    Where all devices are of one of the `types` that differ in speed, and no jobs share one,
    there is nowhere better to move to. `packing` is for policies that pack.
    """
    placings: dict[str, Placing] = {
        "pack": Pack(),
        "spread": Spread(),
        "fgd": LeastFragmentation(popularity),
    }
    ordering = chosen.ordering(settings, estimates)
    ordering = ordering.on(types) if isinstance(ordering, LeastSinceChange) else ordering
    packing = packing if chosen.packs else None
    return Policies(
        ordering=ordering,
        sharing=BorrowAndReturn(),
        placing=placings[settings.placing],
        victims=LeastLost(),
        rescheduler=_rescheduler(chosen, settings, ordering, packing, moves=types > 1),
        exclusive=packing is not None,
        estimates=estimates,
        predicts=settings.estimates == "predicted",
        fairness=FAIRNESS,
        ranking=ranking(estimates),
    )


def _rescheduler(
    chosen: Recipe,
    settings: Settings,
    ordering: Ordering,
    packing: Packing | None,
    *,
    moves: bool,
) -> Callable[[Cluster], Rescheduler | None] | None:
    """Return what makes the rescheduler of a policy; `moves` where types differ in speed."""
    turns = None if chosen.slices else _turns(chosen, settings)
    asked = [key for key in ("migrate", "grow") if key in dict(chosen_settings(settings))]
    if asked and (turns is not None or packing is not None):
        raise BadScenario(
            f"--set {asked[0]}: jobs of this policy go where its turns put them. Take "
            f"{asked[0]} out, or choose fifo, backfill, easy, conservative, sjf, round_robin "
            "or gandiva."
        )
    if chosen.slices or asked:
        return partial(growing, worth=ran_for_long, save_when_told=settings.warned == "save")
    if turns is None:
        return None
    moving = ToPreferred() if chosen.moves and (packing is not None or moves) else None
    recounting = ordering if isinstance(ordering, LeastSinceChange) else None
    if packing is None:
        return partial(TakingTurns, turns=turns, moving=moving, recounting=recounting)
    return partial(InPairs, turns=turns, packing=packing, moving=moving, recounting=recounting)


def _turns(chosen: Recipe, settings: Settings) -> Turns | None:
    match settings.turns:
        case "never":
            return None
        case "at_once":
            return AtOnce()
        case "rounds":
            return Rounds(settings.round_ms)
        case _:
            return chosen.turns(settings)
