"""How long `allot eta` takes: three runs of a copy of the state, in a child process.

Asked is the last job in line, so that all that wait are placed in each run. The service's
own part, which holds up its event loop, is to make an image of the state.
"""

import asyncio
from random import Random
from time import perf_counter

import msgspec

from allotment.engine.engine import Engine
from allotment.engine.records import JobRecord
from allotment.engine.state import State
from allotment.model import commands as c
from allotment.model.cluster import Device, Node
from allotment.model.forecast import Question
from allotment.model.ids import SYSTEM, AttemptNo, DeviceIndex, JobId, NodeId
from allotment.model.lifecycle import JobState
from allotment.model.quantity import GIB, HOUR, Instant, Millis, Resources
from allotment.model.reports import GangReport, Seen
from allotment.model.spec import NEVER, JobSpec, TaskRole
from allotment.model.tenancy import Config, Queue, QueueOrder, Tenant
from allotment.service.estimating import HORIZON_MS
from allotment.wiring.forecast import ChildForecast
from allotment.wiring.policies import policies
from bench.figures import Figure

NOW = Instant(1_790_000_000_000)
NAMES = 200
PAST = 2_000
PATIENCE_MS = Millis(60_000)
ROUNDS = 3


def main() -> list[Figure]:
    small = Line(waiting=2_000, nodes=64, tenants=4, queues=1)
    large = Line(waiting=10_000, nodes=1_250, tenants=10, queues=100)
    return [
        *small.figures("2,000 waiting, 64 × 8 GPUs"),
        *large.figures("10,000 waiting in 1,000 queues, 1,250 × 8 GPUs"),
    ]


class Line:
    """A full cluster, and a line before it."""

    def __init__(self, *, waiting: int, nodes: int, tenants: int, queues: int) -> None:
        self._chance = Random(1)
        self._tenants, self._queues = tenants, queues
        self.engine = Engine(State(policies()))
        self.engine.command(c.ApplyConfig(self._config(nodes)), SYSTEM, NOW)
        state = self.engine.state
        while len(state.cluster.pending) < waiting:
            for _ in range(256):
                self.engine.command(c.SubmitJob(self._spec()), SYSTEM, NOW)
            self._settle()

    def _config(self, nodes: int) -> Config:
        devices = tuple(Device(DeviceIndex(index), "A100") for index in range(8))
        share = nodes * 8_000 // self._tenants
        owed = Resources(gpu_milli=share, cpu_milli=10**9, memory=10**15)
        queues = tuple(Queue(f"q{n}", QueueOrder.SKIP) for n in range(self._queues))
        return Config(
            tuple(
                Node(NodeId(n), f"n{n}", 64_000, 512 * GIB, 1_000 * GIB, devices)
                for n in range(nodes)
            ),
            tuple(Tenant(f"t{n}", owed, queues) for n in range(self._tenants)),
        )

    def _spec(self) -> JobSpec:
        chance = self._chance
        need = Resources(gpu_milli=1_000 * chance.choice((1, 1, 1, 1, 2, 4, 8)), memory=GIB)
        limit = Millis(chance.randrange(HOUR, 20 * HOUR)) if chance.random() < 0.7 else NEVER
        return JobSpec(
            f"job{chance.randrange(NAMES)}",
            f"t{chance.randrange(self._tenants)}",
            (TaskRole("main", 1, "true", need),),
            queue=f"q{chance.randrange(self._queues)}",
            max_run_ms=limit,
        )

    def _settle(self) -> None:
        while self.engine.cycle(NOW):
            pass
        for job in list(self.engine.state.cluster.gangs):
            self.engine.report(GangReport(job, AttemptNo(1), Seen.RUNNING), NOW)
        self.engine.take()

    def _past(self) -> tuple[bytes, ...]:
        return tuple(
            msgspec.msgpack.encode(
                JobRecord(
                    JobId(10**9 + number), self._spec(), SYSTEM, NOW, JobState.SUCCEEDED, NOW,
                    served_ms=Millis(round(HOUR * self._chance.lognormvariate(0, 1))),
                )
            )
            for number in range(PAST)
        )  # fmt: skip

    def figures(self, what: str) -> list[Figure]:
        """Take an image, ask, and measure both; the best of some rounds."""
        past, last = (
            self._past(),
            max(job.id for job in self.engine.state.cluster.pending.all()),
        )
        images: list[float] = []
        answers: list[float] = []
        for _ in range(ROUNDS):
            began = perf_counter()
            image = msgspec.msgpack.encode(self.engine.state.image())
            images.append((perf_counter() - began) * 1e3)
            question = Question(NOW, image, past, HORIZON_MS, PATIENCE_MS, last)
            began = perf_counter()
            found = asyncio.run(ChildForecast().starts(question))
            answers.append(perf_counter() - began)
            assert found.expected.starts_at is not None
        return [
            Figure(f"eta, {what}", min(answers), "s", "lower", 2.0),
            Figure(f"image for it, {what}", min(images), "ms", "lower", 100.0),
        ]
