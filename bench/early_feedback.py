"""`python -m bench.early_feedback`: time to first results, by turns and first-come.

Gandiva's first cluster experiment (Xiao et al., OSDI 2018, section 6.3), rebuilt from what the
paper says of it: 45 nodes of 4 devices, 1,000 jobs that come evenly over two hours and run for
30 to 45 minutes each. Measured is the time from a job's submission to its 100th mini-batch.
Prints a Markdown table; docs/experiments/early-feedback.md is made of it.
"""

import argparse
import sys
from collections.abc import Sequence
from random import Random
from typing import NamedTuple

from allotment.metrics.numbers import mean
from allotment.model import events as e
from allotment.model.ids import JobId
from allotment.model.quantity import DAY, DEVICE, HOUR, MINUTE, SECOND, Instant, Resources
from allotment.sim.cluster import cluster_of
from allotment.sim.scenario import Scenario
from allotment.sim.settings import Settings
from allotment.sim.simulation import Simulation
from allotment.sim.trace import Trace, TraceJob
from bench.anomaly.tables import table

CLUSTER = "45x4"
JOBS = 1_000
OVER_MS = 2 * HOUR
RUN_MS = 30 * MINUTE, 45 * MINUTE
BATCHES = 100


class Model(NamedTuple):
    """How much of the mix a model is, its mini-batches a second (Table 1), its devices."""

    name: str
    weight: float
    rate: float
    devices: tuple[int, ...] = (1,)


MODELS = (
    Model("VAE", 0.15, 81.8),
    Model("SuperRes", 0.15, 40.3),
    Model("RHN", 0.25 / 3, 10.1),
    Model("SCRNN", 0.25 / 3, 16.7),
    Model("MI-LSTM", 0.25 / 3, 22.2),
    Model("LSTM", 0.15, 63.8),
    Model("ResNet-50", 0.15, 10.3, (2, 4)),
    Model("ResNext-50", 0.15, 83.6, (2, 4)),
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
                str(number), DAY + at, rng.randint(*RUN_MS), devices, need, name=model.name
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


def play(jobs: Sequence[TraceJob], first_ms: Sequence[int], policy: str) -> FirstBatches:
    """Play the jobs under a policy."""
    trace = Trace("early.csv", "simple", "0" * 16, tuple(jobs))
    seen = FirstBatches(first_ms)
    scenario = Scenario(trace, cluster_of(CLUSTER), policy, Settings(round_ms=60 * SECOND))
    for _ in Simulation(scenario, seen.look).run(trace.jobs):
        pass
    return seen


POLICIES = ("fifo", "backfill", "round_robin")


def main(words: Sequence[str]) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m bench.early_feedback")
    parser.add_argument("--seeds", type=int, nargs="*", default=[0, 1, 2])
    parser.add_argument("--jobs", type=int, default=JOBS)
    chosen = parser.parse_args(words)
    rows: list[list[str]] = []
    for seed in chosen.seeds:
        jobs, first_ms = workload(seed, chosen.jobs)
        usual = 0.0
        for policy in POLICIES:
            seen = play(jobs, first_ms, policy)
            spent = sorted(seen.after_ms.values())
            average = mean(spent) / SECOND
            usual = usual or average
            rows.append(
                [
                    str(seed),
                    policy,
                    f"{average:,.0f}",
                    f"{spent[len(spent) // 2] / SECOND:,.0f}",
                    f"{spent[-1] / SECOND:,.0f}",
                    f"{100 * (average / usual - 1):+.0f} %",
                    f"{(seen.ended - DAY) / MINUTE:,.0f}",
                    f"{seen.switches:,}",
                ]
            )
    heads = (
        "seed", "policy", "mean, s", "median, s", "longest, s", "mean against fifo",
        "all ended, min", "suspensions",
    )  # fmt: skip
    print(table(heads, rows))


if __name__ == "__main__":
    main(sys.argv[1:])
