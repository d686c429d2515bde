"""A full cluster, and a long line before it: made once, looked at by several benchmarks.

Gangs of one node's devices or fewer, of many queues in all three orders; 70 in 100 say how
long they run at most. Who is told to go is gone at once, and stands in line again.
"""

from random import Random

import msgspec

from allotment.engine.engine import Engine
from allotment.engine.state import State
from allotment.model import commands as c
from allotment.model import events as e
from allotment.model.cells import CellShare, CellType, RootCell, Topology
from allotment.model.cluster import Device, Node
from allotment.model.diagnosis import Exit
from allotment.model.ids import SYSTEM, DeviceIndex, JobId, NodeId
from allotment.model.quantity import GIB, HOUR, Instant, Millis, Resources
from allotment.model.reports import GangReport, Seen
from allotment.model.spec import NEVER, JobSpec, TaskRole
from allotment.model.tenancy import Config, Preempt, Queue, QueueOrder, Tenant
from allotment.wiring.policies import policies

NOW = Instant(1_790_000_000_000)
NAMES = 200
IN_RACK = 10
TYPES = (
    CellType("socket", "A100", 4),
    CellType("node", "socket", 2, is_node=True),
    CellType("rack", "node", IN_RACK),
)
SIZES = (1, 1, 1, 1, 2, 4, 8)
"""Devices of a gang, by chance."""


class Scale(msgspec.Struct, frozen=True):
    """How large a crowd is, and by which rules it lives."""

    waiting: int
    nodes: int
    tenants: int
    queues: int
    """Of each tenant."""
    orders: tuple[QueueOrder, ...] = (QueueOrder.SKIP,)
    """Queues take turns with them."""
    guaranteed: float = 1.0
    """The part of the cluster that is somebody's; the rest is there to be borrowed."""
    preempt: Preempt = Preempt.NONE
    cells: bool = False
    """Tenants are guaranteed whole nodes."""
    types: tuple[str, ...] = ("A100",)
    """Of devices: nodes take turns with them."""


class Crowd:
    """An engine at such a moment, and a way to let time pass. Everything is seeded."""

    def __init__(self, scale: Scale) -> None:
        self.scale = scale
        self.chance = Random(1)
        self.now = NOW
        self.engine = Engine(State(policies()))
        self.engine.command(c.ApplyConfig(self._config()), SYSTEM, NOW)
        pending = self.engine.state.cluster.pending
        while len(pending) < scale.waiting:
            for _ in range(256):
                self.submit()
            self.settle()

    def _config(self) -> Config:
        scale = self.scale
        devices = [
            tuple(Device(DeviceIndex(index), kind) for index in range(8))
            for kind in scale.types
        ]
        every = int(scale.guaranteed * scale.nodes) // scale.tenants
        guaranteed = Resources(8_000 * every, 64_000 * every, 512 * GIB * every)
        queues = tuple(
            Queue(f"q{n}", scale.orders[n % len(scale.orders)]) for n in range(scale.queues)
        )
        machines = tuple(
            Node(NodeId(n), f"n{n}", 64_000, 512 * GIB, 1_000 * GIB, devices[n % len(devices)])
            for n in range(scale.nodes)
        )
        share = (CellShare("node", every),) if scale.cells else ()
        roots = tuple(
            RootCell("rack", f"r{at // IN_RACK}", tuple(NodeId(at + n) for n in range(IN_RACK)))
            for at in range(0, scale.nodes, IN_RACK)
        )
        return Config(
            machines,
            tuple(
                Tenant(f"t{n}", guaranteed, queues, cells=share, preempt=scale.preempt)
                for n in range(scale.tenants)
            ),
            topology=Topology(TYPES, roots) if scale.cells else Topology(),
        )

    def spec(self) -> JobSpec:
        """Make up a job."""
        chance = self.chance
        gpus = chance.choice(SIZES)
        need = Resources(gpu_milli=1_000 * gpus, cpu_milli=4_000 * gpus, memory=GIB)
        limit = Millis(chance.randrange(HOUR, 20 * HOUR)) if chance.random() < 0.7 else NEVER
        return JobSpec(
            f"job{chance.randrange(NAMES)}",
            f"t{chance.randrange(self.scale.tenants)}",
            (TaskRole("main", 1, "true", need),),
            queue=f"q{chance.randrange(self.scale.queues)}",
            max_run_ms=limit,
            priority=chance.choice((100, 100, 100, 200)),
        )

    def submit(self, spec: JobSpec | None = None) -> None:
        """Let a job come: this one, or one that is made up."""
        self.engine.command(c.SubmitJob(spec or self.spec()), SYSTEM, self.now)

    def cancel(self, job: JobId) -> None:
        """Let a job that waits be given up."""
        self.engine.command(c.CancelJob(job), SYSTEM, self.now)

    def end(self, job: JobId) -> None:
        """Let a gang end well."""
        self._told(job, Seen.ENDED, Exit(code=0))

    def _told(self, job: JobId, seen: Seen, exit_: Exit | None = None) -> None:
        attempt = self.engine.state.jobs[job].attempts[-1].no
        self.engine.report(GangReport(job, attempt, seen, exit_), self.now)

    def settle(self) -> int:
        """Let the engine decide until it rests, and do at once what it wants; count gangs.

        All who were placed run, and all who were told to go are gone.
        """
        engine, placed = self.engine, 0
        engine.tick(self.now)
        while engine.cycle(self.now):
            placed += self._obey()
        return placed + self._obey()

    def _obey(self) -> int:
        cluster = self.engine.state.cluster
        for job in list(cluster.placed.leaving):
            self._told(job, Seen.ENDED, Exit(signal=15))
        records, _ = self.engine.take()
        placed = [r.event.job for r in records if isinstance(r.event, e.AttemptPlaced)]
        for job in placed:
            if job in cluster.gangs:
                self._told(job, Seen.RUNNING)
        return len(placed)
