"""`python -m bench.automl`: how soon a sweep finds its one good configuration.

Gandiva's experiment with AutoML (Xiao et al., OSDI 2018, section 6.2), rebuilt from what the
paper says of it: 374 configurations of a small image model, of which the 365th is the first to
come to 84 % accuracy, on 4 and on 16 devices. Played are the sweeps of the live service, first
all trials to their end, then with halving, on simulated machines. Learning curves are made up:
see docs/experiments/automl.md, which is made of the table that this prints.
"""

import argparse
import sys
from collections import Counter
from collections.abc import Sequence
from math import exp
from random import Random
from statistics import median
from typing import NamedTuple

from allotment.engine.engine import Engine
from allotment.engine.state import State
from allotment.model import commands as c
from allotment.model import events as e
from allotment.model.ids import SYSTEM, Actor, JobId
from allotment.model.quantity import DEVICE, MINUTE, Instant, Resources, earlier
from allotment.model.reports import TrialReport
from allotment.model.spec import NEVER, JobSpec, TaskRole
from allotment.model.sweeps import Goal, Halving, Sweep
from allotment.model.tenancy import Config, Limits, Queue, QueueOrder, Tenant
from allotment.policies.estimates.time_limit import TimeLimit
from allotment.sim.catalogue import policies, recipe
from allotment.sim.cluster import cluster_of
from allotment.sim.machines import Machines
from allotment.sim.settings import Settings
from allotment.sim.settle import settle
from allotment.sim.simulation import ALL, BEYOND_ALL
from allotment.sim.speeds import Speeds
from allotment.sim.trace import TraceJob
from allotment.sim.work import Work
from bench.anomaly.tables import table

TRIALS, GOOD_ONE = 374, 365
TARGET = 0.84
STEP_MS = 70
STEPS = 30_000
EVERY = 1_000
"""Accuracy is known at each so many mini-batches."""
RUNGS = (1_000, 3_000, 9_000)
CHANCE = 0.1
"""The accuracy of one that has learned nothing: ten classes."""
USER = Actor("ada", 1)


class Curve(NamedTuple):
    """How the accuracy of a configuration rises: to `best`, most of it within `slow` steps."""

    best: float
    slow: float
    seed: int

    def at(self, steps: int) -> float:
        """Return the accuracy after so many mini-batches."""
        return CHANCE + (self.best - CHANCE) * (1 - exp(-steps / self.slow))

    def measured(self, steps: int, noise: float) -> float:
        """Return what is measured of it, by which trials are compared."""
        return self.at(steps) + Random(f"{self.seed}/{steps}").gauss(0, noise)


def curves(seed: int, trials: int = TRIALS, good: int = GOOD_ONE) -> list[Curve]:
    """Draw the configurations: all but the `good`-th end below the target."""
    rng = Random(seed)
    made: list[Curve] = []
    for number in range(1, trials + 1):
        best = rng.uniform(CHANCE, TARGET - 0.03)
        slow = STEPS * 2 ** rng.uniform(-6, -2)
        made.append(Curve(TARGET + 0.02 if number == good else best, slow, rng.getrandbits(32)))
    return made


class Found(NamedTuple):
    """What came of a sweep."""

    after_ms: int | None
    """When the target was reached; None if it never was."""
    begun: int
    """How many configurations had begun by then."""


class Trials:
    """A sweep on simulated machines: trials report their accuracy as they go on."""

    def __init__(
        self, devices: int, made: Sequence[Curve], halving: Halving | None, noise: float
    ) -> None:
        self._curves, self._noise = made, noise
        nodes, settings = cluster_of(f"{devices // 4}x4"), Settings()
        chosen = policies(recipe("backfill"), settings, TimeLimit(), Counter())
        self.engine = Engine(State(chosen))
        self.machines = Machines(self.engine, nodes, settings, Speeds(nodes), 0)
        owner = Tenant(ALL, BEYOND_ALL, (Queue("default", QueueOrder.SKIP),))
        config = Config(nodes, (owner,), Limits(ports=(0, 0), phase_ms=NEVER), ALL)
        self.engine.command(c.ApplyConfig(config), SYSTEM, Instant(0))
        axis = ("configuration", tuple(map(str, range(len(made)))))
        sweep = Sweep((axis,), metric="accuracy", goal=Goal.MAXIMIZE, halving=halving)
        role = TaskRole("task", 1, "", Resources(gpu_milli=DEVICE))
        spec = JobSpec("automl", ALL, (role,), max_run_ms=NEVER)
        asked = c.SubmitJob(spec, copies=len(made), sweep=sweep)
        for record in self.engine.command(asked, USER, Instant(0)):
            if isinstance(record.event, e.JobSubmitted):
                self._comes(record.event.job)

    def _comes(self, job: JobId) -> None:
        place = len(self.machines.works)
        run_ms = STEPS * STEP_MS
        self.machines.works[job] = Work(TraceJob(str(place), 0, run_ms), place, run_ms)

    def search(self) -> Found:
        """Play until a trial comes to the target, or all are over."""
        engine, machines, now = self.engine, self.machines, Instant(0)
        begun = set[JobId]()
        while True:
            settle(engine, machines, now)
            for job in engine.archive(now, 0):
                engine.emit(e.JobArchived(job), SYSTEM, now)
                del machines.works[job]
            engine.take()
            begun |= {job for job, work in machines.works.items() if work.begun}
            due = earlier(
                earlier(machines.agenda.next(), engine.next_due(now)), self._next(now)
            )
            if due is None or not machines.works:
                return Found(None, len(begun))
            now = due
            reached = [job for job in sorted(machines.works) if self._measured(job, now)]
            if reached:
                return Found(now, len(begun))
            machines.play_until(now)

    def _next(self, now: Instant) -> Instant | None:
        """Return when a trial is measured next."""
        each = EVERY * STEP_MS
        done = (_done_ms(work, now) for work in self.machines.works.values() if work.since >= 0)
        return min((Instant(now + each - ms % each) for ms in done), default=None)

    def _measured(self, job: JobId, now: Instant) -> bool:
        """Report the accuracy of a trial if it is known now; return whether it is enough."""
        work = self.machines.works[job]
        done = _done_ms(work, now)
        if work.since < 0 or not done or done % (EVERY * STEP_MS):
            return False
        steps = done // STEP_MS
        curve = self._curves[work.place]
        measured = curve.measured(steps, self._noise)
        report = TrialReport(job, work.attempt, steps, measured, known=True)
        self.engine.report(report, now)
        return curve.at(steps) >= TARGET


def _done_ms(work: Work, now: Instant) -> int:
    return work.job.run_ms - work.left_ms + work.done_by(now)


def row(devices: int, halving: Halving, noise: float, seeds: Sequence[int]) -> list[str]:
    """Compare a sweep that halves with one that does not, over some draws."""
    to_the_end: list[int] = []
    halved: list[int] = []
    for seed in seeds:
        made = curves(seed)
        plain = Trials(devices, made, None, noise).search().after_ms
        assert plain is not None, "all are trained to their end"
        after = Trials(devices, made, halving, noise).search().after_ms
        to_the_end.append(plain)
        if after is not None:
            halved.append(after)
    usual = median(to_the_end)
    found = f"{len(halved)} of {len(seeds)}"
    rungs = ", ".join(f"{rung:,}" for rung in halving.rungs)
    cells = [str(devices), rungs, f"1 in {halving.eta}", f"{noise:g}"]
    if not halved:
        return [*cells, f"{usual / MINUTE:,.0f}", "", "", found]
    soon = median(halved)
    return [
        *cells,
        f"{usual / MINUTE:,.0f}",
        f"{soon / MINUTE:,.0f}",
        f"{usual / soon:.1f}×",
        found,
    ]


def main(words: Sequence[str]) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m bench.automl")
    parser.add_argument("--seeds", type=int, default=8)
    chosen = parser.parse_args(words)
    seeds = range(chosen.seeds)
    heads = (
        "devices", "rungs", "goes on", "noise", "all to the end, min", "with halving, min",
        "faster", "found",
    )  # fmt: skip
    plain = Halving(RUNGS)
    arms = [
        (plain, 0.01),
        (plain, 0.05),
        (plain, 0.2),
        (Halving(RUNGS[1:]), 0.01),
        (Halving(RUNGS, eta=2), 0.01),
    ]
    rows = [
        row(devices, halving, noise, seeds) for devices in (4, 16) for halving, noise in arms
    ]
    print(table(heads, rows))


if __name__ == "__main__":
    main(sys.argv[1:])
