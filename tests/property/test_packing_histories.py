"""Histories of gangs that run at once on devices where they take turns, against the audit.

As in `test_growing_histories.py`: what jobs tell is wild, and anything happens at any moment.
"""

import os
import random
from collections import Counter

from msgspec.structs import replace

from allotment.model import commands as c
from allotment.model import events as e
from allotment.model.gains import MOST_RATE
from allotment.model.lifecycle import JobState
from allotment.model.quantity import SECOND, Millis
from allotment.model.reports import PairReport
from allotment.model.tenancy import Config, RankBy
from tests.property.test_growing_histories import Grown
from tests.property.test_histories import TENANTS
from tests.support.builders import a_job

WEIGHTS = {
    "submitted": 12,
    "fixed": 2,
    "progressed": 24,
    "left": 4,
    "ended": 2,
    "steered": 1,
    "reconfigured": 1,
    "faulty": 1,
    "restarted": 2,
}
RATES = 0, 1, 400, 900, 1000, 2000, MOST_RATE


class Packing(Grown):
    """One history of queues whose gangs take turns, and may run at once."""

    def config(self, grow_ms: int) -> Config:
        config, rng = super().config(grow_ms), self.rng
        grows, slice_ms = rng.random() < 0.3, rng.choice((SECOND, 60 * SECOND))
        tenants = tuple(
            replace(
                tenant,
                queues=tuple(
                    replace(
                        queue,
                        rank=RankBy.ROUND_ROBIN,
                        time_slice_ms=Millis(slice_ms),
                        packs=rng.random() < 0.9,
                        grow_ms=queue.grow_ms if grows else Millis(0),
                    )
                    for queue in tenant.queues
                ),
            )
            for tenant in config.tenants
        )
        return replace(config, tenants=tenants)

    def progressed(self) -> None:
        super().progressed()
        world, rng = self.world, self.rng
        world.cycle()
        for job, beside in sorted(world.state.packed.items()):
            if rng.random() < 0.6 and job in world.state.packed:
                no = world.job(job).attempts[-1].no
                world.tell(PairReport(job, no, beside, rng.choice(RATES), rng.choice(RATES)))

    def submitted(self) -> None:
        job = a_job().of(self.rng.choice(TENANTS)).gpus(1).cpus(self.rng.choice((0, 1, 8)))
        self.attempt(c.SubmitJob(job.spec()))

    def fixed(self) -> None:
        """Some jobs that use many CPUs, and no device."""
        job = a_job().of(self.rng.choice(TENANTS)).gpus(0).cpus(self.rng.choice((20, 40)))
        self.attempt(c.SubmitJob(job.spec()))

    def ended(self) -> None:
        super().ended()
        for job in self.jobs(JobState.SUSPENDED):
            if job in self.world.state.packed and self.rng.random() < 0.3:
                self.world.ends(job, self.rng.choice((0, 0, 1)))


def history(seed: int) -> Counter[str]:
    """Make one history, looked at all the way; give what happened in it."""
    rng = random.Random(f"packing/{seed}")
    packing = Packing(rng)
    for name in rng.choices(list(WEIGHTS), list(WEIGHTS.values()), k=120):
        getattr(packing, name)()
        if rng.random() < 0.8:
            packing.world.cycle()
        for job in packing.jobs(JobState.STARTING):
            if rng.random() < 0.9:
                packing.world.runs(job)
        packing.no_refusals()
        packing.sums_and_places_in_line_are_those_of_a_count()
    packing.teardown()
    return Counter(what_of(record.event) for record in packing.world.log)


def what_of(event: e.AnyEvent) -> str:
    match event:
        case e.Packed(proven=True):
            return "again"
        case e.PackingMeasured(kept=kept):
            return "kept" if kept else "lost"
        case e.Unpacked(cause=cause):
            return cause.value
    return type(event).__name__


def test_gangs_run_at_once_and_part_and_the_books_add_up() -> None:
    seeds = int(os.environ.get("ALLOT_PACKING", "8"))
    happened = sum((history(seed) for seed in range(seeds)), Counter[str]())
    wanted = "Packed", "again", "kept", "lost", *(cause.value for cause in e.Parted)
    assert not [what for what in wanted if not happened[what]], happened
