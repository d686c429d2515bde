"""`python -m bench.early_feedback`: time to first results, by turns and first-come.

Gandiva's first cluster experiment (Xiao et al., OSDI 2018, section 6.3), rebuilt from what the
paper says of it: 45 nodes of 4 devices, 1,000 jobs that come evenly over two hours and run for
30 to 45 minutes each. Measured is the time from a job's submission to its 100th mini-batch.
Prints a Markdown table; docs/experiments/early-feedback.md is made of it.
"""

import argparse
import sys
from collections.abc import Iterable, Sequence
from itertools import pairwise
from random import Random
from typing import NamedTuple

from msgspec.structs import replace

from allotment.core.gang import Standing
from allotment.core.rank import Rank, moving
from allotment.metrics.numbers import mean
from allotment.model import events as e
from allotment.model.ids import JobId
from allotment.model.quantity import DAY, DEVICE, HOUR, MINUTE, SECOND, Instant, Resources
from allotment.policies.ordering.ran import ran_ms
from allotment.policies.turns.rounds import Rounds
from allotment.sim.catalogue import Recipe
from allotment.sim.cluster import cluster_of
from allotment.sim.scenario import Scenario
from allotment.sim.settings import Settings
from allotment.sim.simulation import Simulation
from allotment.sim.speeds import REFERENCE, Pairs, Rates
from allotment.sim.trace import Trace, TraceJob
from allotment.sim.work import Work
from bench.anomaly.tables import table

NODES, EACH = 45, 4
JOBS = 1_000
OVER_MS = 2 * HOUR
RUN_MS = 30 * MINUTE, 45 * MINUTE
BATCHES = 100
ROUND_MS = 60 * SECOND
WINDOW = Instant(DAY + 20 * MINUTE), Instant(DAY + 200 * MINUTE)
"""When the use of devices is measured, as in the paper."""


class Model(NamedTuple):
    """How much of the mix a model is, its mini-batches a second and device use (Table 1)."""

    name: str
    weight: float
    rate: float
    used: float
    """In a hundred of a device, by itself."""
    packed: float
    """What several do together on one device, of what one does alone."""
    devices: tuple[int, ...] = (1,)


MODELS = (
    Model("VAE", 0.15, 81.8, 8.7, 5.12),
    Model("SuperRes", 0.15, 40.3, 14.1, 3.60),
    Model("RHN", 0.25 / 3, 10.1, 61.6, 1.46),
    Model("SCRNN", 0.25 / 3, 16.7, 66.8, 1.39),
    Model("MI-LSTM", 0.25 / 3, 22.2, 76.2, 1.17),
    Model("LSTM", 0.15, 63.8, 87.2, 0.84),
    Model("ResNet-50", 0.15, 10.3, 94.0, 0.87, (2, 4)),
    Model("ResNext-50", 0.15, 83.6, 98.9, 0.89, (2, 4)),
)
USED = {model.name: model.used for model in MODELS}


def together(one: Model, other: Model) -> float:
    """Return what two models do on one device, of what each does alone: 2 at best.

    Published is what several of one model do together. Of two models it is that of one with
    the same use, on the line between those two that are nearest.
    """
    asked = one.used + other.used
    points = [(2 * model.used, min(2.0, model.packed)) for model in MODELS]
    if asked <= points[0][0]:
        return points[0][1]
    for (low, left), (high, right) in pairwise(points):
        if asked <= high:
            return left + (right - left) * (asked - low) / (high - low)
    return points[-1][1]


def most_use(most: float) -> float:
    """Return the part of devices in use if each was always busy with its best pack.

    No more than `most` times as much as one job alone is done on a device: 1 is without
    packs, 2 with pairs, more with as many jobs as Table 1 has.
    """
    work = time = 0.0
    for model in MODELS:
        asked = model.weight * mean(model.devices)
        work += asked * model.used / 100
        time += asked / max(1.0, min(most, model.packed))
    return work / time


def rates() -> tuple[Rates, Pairs]:
    """Return the speeds of models alone and in pairs, as tables of throughputs."""
    alone = {(model.name, count): 1.0 for model in MODELS for count in model.devices}
    both = {
        ((one.name, count), (other.name, count)): together(one, other) / 2
        for one in MODELS
        for other in MODELS
        for count in set(one.devices) & set(other.devices)
    }
    return {REFERENCE: alone}, {REFERENCE: both}


class Arm(NamedTuple):
    """A policy of the comparison."""

    name: str
    recipe: Recipe | None = None

    def scenario(self, trace: Trace, nodes: int) -> Scenario:
        """Return the run of it on so many nodes."""
        alone, both = rates()
        packs = self.recipe is not None and self.recipe.packs
        return Scenario(
            trace,
            cluster_of(f"{nodes}x{EACH}x{REFERENCE}"),
            self.name,
            Settings(round_ms=ROUND_MS),
            rates=alone if packs else None,
            pairs=both if packs else None,
            used={model.name: round(model.used) for model in MODELS},
            custom=self.recipe,
        )


class LeastRun:
    """Order by run time so far, by whatever many devices; a waiting job stands back a round."""

    def rank(self, job: Standing, now: Instant) -> Rank:
        ran = ran_ms(job, now)
        if job.since is None:
            return Rank((ran + ROUND_MS, job.submitted_at))
        return moving((), ran, 1 if job.runs else 0, now)


IN_ROUNDS = Recipe(
    "least run time first, in rounds",
    lambda settings, _: LeastRun(),  # noqa: ARG005
    turns=lambda settings: Rounds(settings.round_ms),
)
PACKING = replace(IN_ROUNDS, packs=True, by_use=True)

ARMS = (
    Arm("fifo"),
    Arm("backfill"),
    Arm("round_robin"),
    Arm("gandiva"),
    Arm("rounds", IN_ROUNDS),
    Arm("rounds, packing", PACKING),
)


def workload(seed: int, jobs: int = JOBS) -> tuple[list[TraceJob], list[int]]:
    """Draw the jobs of a seed, and how long each takes for its first mini-batches, in ms."""
    rng = Random(seed)
    comes = sorted(rng.randrange(OVER_MS) for _ in range(jobs))
    made: list[TraceJob] = []
    first: list[int] = []
    for number, at in enumerate(comes):
        (model,) = rng.choices(MODELS, [model.weight for model in MODELS])
        devices = rng.choice(model.devices)
        need = Resources(gpu_milli=DEVICE)
        made.append(
            TraceJob(
                str(number), DAY + at, rng.randint(*RUN_MS), devices, need, model=model.name
            )
        )
        first.append(round(BATCHES * SECOND / model.rate))
    return made, first


class FirstBatches:
    """When jobs had their first mini-batches, told by the events of a run."""

    def __init__(self, first_ms: Sequence[int]) -> None:
        self._left = {JobId(n): ms for n, ms in enumerate(first_ms, start=1)}
        self._since: dict[JobId, Instant] = {}
        self._came: dict[JobId, Instant] = {}
        self.after_ms: dict[JobId, int] = {}
        """How long after its submission each had them."""
        self.switches = 0
        self.ended = Instant(0)

    def look(self, records: Sequence[e.Record]) -> None:
        """Take note of what happened."""
        for record in records:
            match record.event:
                case e.JobSubmitted(job=job):
                    self._came[job] = record.at
                case e.AttemptStarted(job=job) | e.AttemptResumed(job=job):
                    self._since[job] = record.at
                case e.AttemptSuspended(job=job):
                    self.switches += 1
                    self._stop(job, record.at)
                case e.StopRequested():
                    self.switches += 1
                case e.AttemptEnded(job=job):
                    self._stop(job, record.at)
                    self.ended = record.at
                case _:
                    pass

    def _stop(self, job: JobId, now: Instant) -> None:
        since = self._since.pop(job, None)
        if since is None or job in self.after_ms:
            return
        if now - since >= self._left[job]:
            self.after_ms[job] = since + self._left[job] - self._came[job]
        self._left[job] -= now - since


class Used:
    """How much of the devices was used in a window of time, told by the work that was done."""

    def __init__(self, jobs: Sequence[TraceJob], window: tuple[Instant, Instant]) -> None:
        self._all = sum(map(_work, jobs))
        self._window, self._done = list(window), list[float]()
        self._span_ms = window[1] - window[0]

    def look(self, works: Iterable[Work], now: Instant, to_come: Iterable[TraceJob]) -> None:
        """Take note of what is done by now, if it is time: `works` are those not over."""
        while self._window and now >= self._window[0]:
            at = self._window.pop(0)
            left = sum((work.left_ms - work.done_by(at)) * _rate(work.job) for work in works)
            self._done.append(self._all - left - sum(map(_work, to_come)))

    def part(self, devices: int) -> float:
        """Return what was used, as a part of all devices."""
        first, last = self._done
        return (last - first) / (self._span_ms * devices)


def _work(job: TraceJob) -> float:
    return job.run_ms * _rate(job)


def _rate(job: TraceJob) -> float:
    """Return how many devices a job uses when it runs by itself."""
    return job.gpu_milli / DEVICE * USED[job.model] / 100


def play(
    jobs: Sequence[TraceJob], first_ms: Sequence[int], arm: Arm, nodes: int = NODES
) -> tuple[FirstBatches, float]:
    """Play the jobs under a policy; return when they had their first results, and the use."""
    trace = Trace("early.csv", "simple", "0" * 16, tuple(jobs))
    seen, used = FirstBatches(first_ms), Used(jobs, WINDOW)

    def look(records: Sequence[e.Record]) -> None:
        seen.look(records)
        now = records[-1].at
        to_come = (job for job in jobs if job.submit_ms > now)
        used.look(simulation.machines.works.values(), now, to_come)

    simulation = Simulation(arm.scenario(trace, nodes), look)
    for _ in simulation.run(trace.jobs):
        pass
    return seen, used.part(nodes * EACH)


def main(words: Sequence[str]) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m bench.early_feedback")
    parser.add_argument("--seeds", type=int, nargs="*", default=[0, 1, 2])
    parser.add_argument("--jobs", type=int, default=JOBS, help="on as much of the cluster")
    parser.add_argument("--bounds", action="store_true", help="of what packing could give")
    chosen = parser.parse_args(words)
    if chosen.bounds:
        alone = most_use(1)
        told = [
            (
                name,
                f"{100 * most_use(most):.1f} %",
                f"{100 * (most_use(most) / alone - 1):+.0f} %",
            )
            for name, most in (("one", 1), ("two", 2), ("three", 3), ("any number", 99))
        ]
        print(table(("on a device", "device use", "against one"), told))
        return
    rows: list[list[str]] = []
    for seed in chosen.seeds:
        jobs, first_ms = workload(seed, chosen.jobs)
        usual, idle = 0.0, 0.0
        for arm in ARMS:
            seen, used = play(jobs, first_ms, arm, max(1, NODES * chosen.jobs // JOBS))
            spent = sorted(seen.after_ms.values())
            average = mean(spent) / SECOND
            usual, idle = usual or average, idle or used
            rows.append(
                [
                    str(seed),
                    arm.name,
                    f"{average:,.0f}",
                    f"{spent[len(spent) // 2] / SECOND:,.0f}",
                    f"{spent[-1] / SECOND:,.0f}",
                    f"{100 * (average / usual - 1):+.0f} %",
                    f"{100 * used:.1f} %",
                    f"{100 * (used / idle - 1):+.0f} %",
                    f"{(seen.ended - DAY) / MINUTE:,.0f}",
                    f"{seen.switches:,}",
                ]
            )
    heads = (
        "seed", "policy", "mean, s", "median, s", "longest, s", "mean against fifo",
        "device use", "use against fifo", "all ended, min", "switches",
    )  # fmt: skip
    print(table(heads, rows))


if __name__ == "__main__":
    main(sys.argv[1:])
