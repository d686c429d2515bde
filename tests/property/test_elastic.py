"""Histories full of elastic gangs over cells: whatever happens, the books add up."""

import os
import random
from collections import Counter

import pytest

from allotment.model import events as e
from allotment.model.ids import TaskIndex, TaskKey
from allotment.model.lifecycle import JobState
from allotment.model.tenancy import Preempt, QueueOrder
from tests.property.cells_moves import MOVES, WAYS, WHERE, Moves
from tests.property.cells_world import TENANTS, Plan
from tests.support.builders import JobBuilder, a_job
from tests.support.cells import a_cell_world
from tests.support.world import World
from tests.unit.engine.test_queue_shares import tree

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


# ── queues, and shares that are counted ─────────────────────────────────────────────────

QUEUES = """
  a: {order: skip, guaranteed: {gpu: 3}, limit: {gpu: 6}},
  b: {guaranteed: {gpu: 5}, queues: {
    x: {order: skip, guaranteed: {gpu: 2}},
    y: {order: skip, guaranteed: {gpu: 1}, limit: {gpu: 4}}}},
  c: {order: skip}""".replace("\n", " ")
CELLS = """\
hardware: [2 x dgx-v100]
tenants:
  lab: {cells: {dgx-v100-node: 1}, preempt: %s, queues: {%s}}
  other: {cells: {dgx-v100-node: 1}, preempt: evict, queues: {d: {}}}
"""
OTHERS = "  other: {guaranteed: {gpu: 6}, preempt: evict, queues: {d: {}}}\n"


def queued(rng: random.Random) -> JobBuilder:
    queue = rng.choice(("a", "b.x", "b.y", "c", "d"))
    job = a_job().of("other" if queue == "d" else "lab", queue)
    job.gpus(rng.choice((1, 1, 2))).priority(rng.choice((10, 100, 900)))
    return job.between(1, rng.choice((4, 8)), elastic=True) if rng.random() < 0.6 else job


def queue_history(seed: int, *, cells: bool) -> Counter[type[e.Event]]:
    """Let queues reclaim, and urgent jobs outrank, elastic gangs and others."""
    rng = random.Random(f"queues/{seed}")
    preempt = rng.choice(("none", "evict", "demote"))
    if cells:
        world = a_cell_world(CELLS % (preempt, QUEUES))
    else:
        world = World(tree(QUEUES, 10, f"    preempt: {preempt}\n{OTHERS}", nodes=2))
    for _ in range(60):
        what = rng.choice(("submit", "submit", "run", "surplus", "leave", "end"))
        if what == "submit":
            world.submit(queued(rng))
        jobs = [job for job in world.state.jobs.values() if job.attempt is not None]
        for job in jobs:
            attempt = job.attempts[-1]
            if what == "run" and job.state is JobState.STARTING:
                world.runs(job.id)
            elif what == "surplus" and attempt.shrink is not None:
                for index in range(attempt.staying, len(attempt.slots)):
                    world.task_ends(TaskKey(job.id, attempt.no, TaskIndex(index)), 143)
            elif what == "leave" and job.state is JobState.STOPPING:
                world.ends(job.id, 143)
            elif what == "end" and job.state is JobState.RUNNING and rng.random() < 0.3:
                world.ends(job.id)
        world.cycle()
    return Counter(type(record.event) for record in world.log)


@pytest.mark.parametrize("cells", [False, True], ids=["counted", "cells"])
def test_queues_reclaim_surplus_and_come_to_rest(*, cells: bool) -> None:
    seeds = range(int(os.environ.get("ALLOT_ELASTIC", "8")))
    histories = (queue_history(seed, cells=cells) for seed in seeds)
    happened = sum(histories, Counter[type[e.Event]]())
    assert happened[e.ShrinkRequested] > len(seeds)
    assert happened[e.AttemptShrunk]
