"""Histories full of elastic gangs over cells: whatever happens, the books add up."""

import os
import random
from collections import Counter

from allotment.model import events as e
from allotment.model.tenancy import Preempt, QueueOrder
from tests.property.cells_moves import MOVES, WAYS, WHERE, Moves
from tests.property.cells_world import TENANTS, Plan

SUBMIT: dict[str, tuple[object, ...]] = {
    "tenant": TENANTS,
    "gpus": (1, 1, 1, 2),
    "cpus": (1, 1, 4),
    "memory": (1, 1, 64),
    "tasks": (1, 2, 4),
    "most": (0, 9, 9),
    "second": (0,),
    "priority": (50, 100, 200, 900),
    "kind": ("", "", "", "opportunistic", "retry", "saves", *WAYS),
    "where": (("", ""), ("", ""), *WHERE),
    "types": ((), (), (), ("V100",), ("A100", "V100")),
    "cycle": (True,),
}
WEIGHTS = {
    **{name: weight for name, (weight, _) in MOVES.items()},
    "run": 40,
    "leave": 12,
    "configure": 1,
    "end": 12,
}


def history(seed: int) -> Counter[type[e.Event]]:
    """Make one history, looked at all the way; give what happened in it."""
    rng = random.Random(f"elastic/{seed}")
    plan = Plan(preempt=Preempt.EVICT, order=rng.choice(list(QueueOrder)))
    moves = Moves(plan, every=3)
    for name in rng.choices(list(WEIGHTS), list(WEIGHTS.values()), k=150):
        choices = SUBMIT if name == "submit" else MOVES[name][1]
        getattr(moves, name)(**{key: rng.choice(some) for key, some in choices.items()})
    moves.finish()
    assert moves.world.engine.refusals == 0
    return Counter(type(record.event) for record in moves.world.log)


def test_elastic_gangs_shrink_and_nothing_is_lost() -> None:
    seeds = int(os.environ.get("ALLOT_ELASTIC", "8"))
    happened = sum((history(seed) for seed in range(seeds)), Counter[type[e.Event]]())
    assert happened[e.ShrinkRequested] > seeds, "gangs have to shrink, or nothing is tried"
    assert happened[e.AttemptShrunk]
