"""One instant of a simulated world: the engine decides, and the machines do what it wants."""

from allotment.engine.engine import Engine
from allotment.model.quantity import Instant
from allotment.sim.machines import Machines

BUDGET = 256
"""Decisions in one cycle."""


def settle(engine: Engine, machines: Machines, now: Instant, budget: int = BUDGET) -> None:
    """Let the engine decide until it comes to rest, and carry out what it wants."""
    engine.tick(now)
    while engine.cycle(now, budget) or engine.effects:
        effects, engine.effects = engine.effects, []
        for effect in effects:
            machines.carry_out(effect, now)
