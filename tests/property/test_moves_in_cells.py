"""Histories over cells in which gangs move, grow and take turns: the guarantees stay safe.

The moves of `cells_moves.py`, in queues that migrate, grow and are sliced, and what jobs tell
of their steps, which is wild. Each is audited; at the end the log is folded anew, and every
decision is asked whether a tenant lacks more of its cells for it.
"""

import os
import random
from collections import Counter

import pytest
from msgspec.structs import replace

from allotment.model import commands as c
from allotment.model import events as e
from allotment.model.ids import JobId
from allotment.model.lifecycle import JobState
from allotment.model.quantity import SECOND, Millis
from allotment.model.reports import PaceReport
from allotment.model.tenancy import Config, Preempt, QueueOrder, RankBy
from tests.property.cells_moves import ALL_MOVES, Moves, Table
from tests.property.cells_world import Plan
from tests.support.builders import a_job

RATES = 0, 500, 1000, 1000, 1000, 3000
TABLE: Table = {
    **ALL_MOVES,
    "wide": (8, {"tenant": ("vision", "speech", "nlp"), "tasks": (2, 2, 3, 4, 6)}),
    "elastic": (12, {"tenant": ("vision", "speech", "nlp"), "gpus": (1, 1, 2)}),
    "start": (14, {}),
    "progress": (24, {"ms": (SECOND, 11 * SECOND, 100 * SECOND, 400 * SECOND)}),
    "leave": (14, {}),
}


class Moving(Moves):
    """One history of queues whose gangs go elsewhere."""

    def __init__(self, plan: Plan, rng: random.Random) -> None:
        self.rng, self.told = rng, 0
        self.slice_ms = rng.choice((0, 0, SECOND, 60 * SECOND))
        self.grow_ms = rng.choice((0, SECOND, SECOND))
        self.migrates = rng.random() < 0.8
        super().__init__(plan)

    def planned(self, plan: Plan) -> Config | None:
        found = super().planned(plan)
        if found is None:
            return None
        tenants = tuple(
            replace(
                tenant,
                queues=tuple(
                    replace(
                        queue,
                        rank=RankBy.ROUND_ROBIN if self.slice_ms else queue.rank,
                        time_slice_ms=Millis(self.slice_ms),
                        grow_ms=Millis(self.grow_ms),
                        migrates=self.migrates,
                    )
                    for queue in tenant.queues
                ),
            )
            for tenant in found.tenants
        )
        return replace(found, tenants=tenants)

    def wide(self, tenant: str, tasks: int) -> None:
        """Submit a gang that may have to be apart."""
        self._ask(c.SubmitJob(a_job().of(tenant).tasks(tasks).gpus(1).checkpointing().spec()))
        self.after()

    def elastic(self, tenant: str, gpus: int) -> None:
        job = (
            a_job().of(tenant).gpus(gpus).between(1, self.rng.choice((4, 8, 12)), elastic=True)
        )
        self._ask(c.SubmitJob(job.checkpointing().spec()))
        self.after()

    def start(self) -> None:
        """All that were placed come up."""
        for job in self.jobs(JobState.STARTING):
            self.world.runs(job)
        self.after()

    def progress(self, ms: int) -> None:
        """All that runs tells of its steps, goes on for a while, and most of it saves."""
        world, rng = self.world, self.rng
        for job in self.jobs(JobState.RUNNING):
            attempt = world.job(job).attempts[-1]
            rate = rng.choice(RATES) * attempt.staying
            world.tell(PaceReport(job, attempt.no, attempt.staying, rate, 10**9))
        world.wait(ms)
        for job in self.jobs(JobState.RUNNING):
            if rng.random() < 0.8:
                self.told += 1
                world.saves(job, self.told)
        self.after()

    def jobs(self, state: JobState) -> list[JobId]:
        return sorted(job.id for job in self.world.state.jobs.values() if job.state is state)


def history(seed: int) -> Counter[str]:
    """Make one history, looked at all the way; give what happened in it."""
    rng = random.Random(f"moves in cells/{seed}")
    plan = Plan(
        preempt=rng.choice(list(Preempt)),
        borrow=rng.random() < 0.8,
        order=rng.choice(list(QueueOrder)),
    )
    moves = Moving(plan, rng)
    for name in rng.choices(list(TABLE), [weight for weight, _ in TABLE.values()], k=120):
        choices = TABLE[name][1]
        getattr(moves, name)(**{key: rng.choice(some) for key, some in choices.items()})
    moves.finish()
    return Counter(what_of(record.event) for record in moves.world.log)


def what_of(event: e.AnyEvent) -> str:
    match event:
        case e.StopRequested(job=job, wanted_by=other, gain=gain) if job == other:
            return "grows" if gain is not None and gain.expected else "moves"
        case e.AttemptDemoted(job=job, wanted_by=other) if job == other:
            return "as its tenant's own"
    return type(event).__name__


def test_gangs_move_and_grow_in_cells_and_no_tenant_lacks_what_it_is_guaranteed() -> None:
    seeds = int(os.environ.get("ALLOT_MOVES_IN_CELLS", "12"))
    happened = sum((history(seed) for seed in range(seeds)), Counter[str]())
    wanted = "grows", "moves", "as its tenant's own", "AttemptShrunk", "AttemptSuspended"
    assert not [what for what in wanted if not happened[what]], happened


@pytest.mark.parametrize("seed", [5007, 5073])
def test_a_gang_on_machines_of_several_kinds_is_brought_into_no_cell(seed: int) -> None:
    """The cells were cut anew under a gang; or the only place was on a machine in no rack."""
    history(seed)
