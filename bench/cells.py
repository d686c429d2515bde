"""Gangs in cells: one decision on clusters of 279 and of 4,000 nodes with 8 devices each.

A decision is planned, checked again, committed and applied as events: one call of
`Engine.cycle` after a job came, until nothing more is to be done. Submission, encoding and
HTTP are outside. 11 tenants own all nodes; their jobs come in turn until everything is in use,
each case in a process of its own. HiveD's figures on the same clusters stand in brackets:
the p50 of its `Schedule` and `AddAllocatedPod`, which read the pod's annotation too.
"""

import gc
import resource
import statistics
import time
from multiprocessing import get_context

import msgspec

from allotment.core.policies import Policies
from allotment.engine.engine import Engine
from allotment.engine.state import State
from allotment.model import commands as c
from allotment.model.cells import CellShare, CellType, RootCell, Topology
from allotment.model.cluster import Device, Node
from allotment.model.content import Content, ContentKind
from allotment.model.diagnosis import Exit
from allotment.model.ids import Actor, AttemptNo, DeviceIndex, JobId, NodeId
from allotment.model.node_runs import runs_of
from allotment.model.quantity import GIB, Instant, Resources
from allotment.model.reports import ContentReport, GangReport, Seen
from allotment.model.spec import JobSpec, TaskRole
from allotment.model.tenancy import Config, Limits, Queue, QueueOrder, Tenant
from allotment.policies.ordering.fifo import Fifo
from allotment.policies.placing.pack import Pack
from allotment.policies.sharing.borrow_and_return import BorrowAndReturn
from allotment.policies.victims.least_lost import LeastLost
from bench.figures import Figure

TENANTS = 11
WAITING, BATCHES = 100, 20
"""Jobs that come when everything is in use, in batches. All cost alike: the best batch was the
least disturbed by neighbours."""
GANG = 363
"""Tasks of 8 devices: all that a tenant of the large cluster owns."""
ADMIN, NOW = Actor("bench", 0), Instant(1_000_000)


class Case(msgspec.Struct, frozen=True):
    """A cluster, and the jobs that fill it."""

    nodes: int
    in_rack: int
    gpus: int
    borrows: bool = False
    """Opportunistic jobs, which are nobody's own."""
    images: bool = False
    """They ask for an image that a quarter of the nodes of each rack has."""


class Measured(msgspec.Struct, frozen=True):
    """Times in microseconds, medians; memory of the whole process."""

    decision: float
    wait: float
    gang: float
    start_s: float
    started_mib: float
    full_mib: float


BORROWED = Case(279, 9, 8, borrows=True), Case(4_000, 16, 8, borrows=True)
SMALL_8, SMALL_1 = Case(279, 9, 8), Case(279, 9, 1)
LARGE_8, LARGE_1 = Case(4_000, 16, 8), Case(4_000, 16, 1)
IN_IMAGE = Case(4_000, 16, 8, images=True)
IMAGE = "registry.example.org/vision/torch:2.9"


def main() -> list[Figure]:
    done = {
        case: _alone(case) for case in (SMALL_8, SMALL_1, LARGE_8, LARGE_1, IN_IMAGE, *BORROWED)
    }
    decision = {case: measured.decision for case, measured in done.items()}
    waits = max(measured.wait for measured in done.values())
    full = max(measured.full_mib for measured in done.values())
    return [
        _us("279×8 filled with 8-GPU gangs (HiveD 193), p50", decision[SMALL_8], 190),
        _us("279×8 filled with 1-GPU jobs (HiveD 109), p50", decision[SMALL_1], 100),
        _us("4,000×8 filled with 8-GPU gangs (HiveD 1,474), p50", decision[LARGE_8], 95),
        _us("4,000×8 filled with 1-GPU jobs (HiveD 722), p50", decision[LARGE_1], 150),
        _us("4,000×8, 8-GPU gangs, whose image is on a quarter, p50", decision[IN_IMAGE]),
        _times("  8-GPU gangs: growth", decision[LARGE_8] / decision[SMALL_8]),
        _times("  1-GPU jobs: growth", decision[LARGE_1] / decision[SMALL_1]),
        _us("279×8, opportunistic 8-GPU gangs (HiveD 146), p50", decision[BORROWED[0]]),
        _us("4,000×8, opportunistic 8-GPU gangs (HiveD 1,302), p50", decision[BORROWED[1]]),
        _us("must wait when full, mean of 100 jobs (HiveD 850)", waits, 20),
        _lower("gang of 363 × 8 GPUs (HiveD 6.7), best", done[LARGE_8].gang / 1e3, "ms", 25),
        _lower("start with 4,000 nodes (HiveD 6.8)", done[LARGE_8].start_s, "s", 2),
        _lower("memory with 4,000 nodes", done[LARGE_8].started_mib, "MiB", 350),
        _lower("memory with 32,000 jobs on them", full, "MiB"),
    ]


def _us(name: str, value: float, target: float | None = None) -> Figure:
    return _lower(name, value, "us", target)


def _times(name: str, value: float) -> Figure:
    return _lower(name, value, "×", 1.5)


def _lower(name: str, value: float, unit: str, target: float | None = None) -> Figure:
    return Figure(name, value, unit, "lower", target)


def _alone(case: Case) -> Measured:
    """Measure in a fresh process: its memory is its own."""
    with get_context("spawn").Pool(1) as pool:
        return pool.apply(measure, (case,))


def measure(case: Case) -> Measured:
    """Start a cluster, let one tenant's largest gang in and out, then fill it."""
    config = _config(case)
    gc.collect()
    began = time.perf_counter()
    engine = Engine(State(Policies(Fifo(), BorrowAndReturn(), Pack(), LeastLost())))
    engine.command(c.ApplyConfig(config), ADMIN, NOW)
    _decide(engine)
    start, started = time.perf_counter() - began, _mib()
    gang = _gang(engine, case)
    if case.images:
        asking = msgspec.structs.replace(_job(1, 8), tenant="t0", image=IMAGE)
        engine.command(c.SubmitJob(asking, held=True), ADMIN, NOW)
        having = (
            node
            for node in engine.state.cluster.nodes
            if node % case.in_rack < case.in_rack // 4
        )
        engine.report(ContentReport(Content(ContentKind.IMAGE, IMAGE), runs_of(having)), NOW)
    placed: list[float] = []
    count = case.nodes * 8 // case.gpus
    for tenant in _turns(case):
        job = _job(1, case.gpus, case.borrows)
        if case.images:
            job = msgspec.structs.replace(job, image=IMAGE)
        _submit(engine, tenant, job)
        placed.append(_decide(engine))
    assert len(engine.state.cluster.gangs) == count, "all of it is in use"
    full = _mib()
    waits = [_wait(engine, case) for _ in range(BATCHES)]
    assert len(engine.state.cluster.gangs) == count
    return Measured(statistics.median(placed), min(waits), gang, start, started, full)


def _wait(engine: Engine, case: Case) -> float:
    """Return the mean of what it costs to see that a job must wait."""
    took = 0.0
    for number in range(WAITING):
        _submit(engine, f"t{number % TENANTS}", _job(1, case.gpus, case.borrows))
        took += _decide(engine)
    return took / WAITING


def _mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _gang(engine: Engine, case: Case) -> float:
    """Return the best of seven placements of a gang as large as a tenant."""
    took: list[float] = []
    for _ in range(7):
        tasks = min(GANG, case.nodes // TENANTS)
        job = _submit(engine, "t0", _job(tasks, 8))
        took.append(_decide(engine))
        assert job in engine.state.cluster.gangs
        ended = GangReport(job, AttemptNo(1), Seen.ENDED, Exit(code=0))
        engine.report(ended, NOW)
        engine.take()
    return min(took)


def _decide(engine: Engine) -> float:
    """Let the engine come to rest; give the microseconds it took."""
    began = time.perf_counter_ns()
    while engine.cycle(NOW):
        pass
    took = time.perf_counter_ns() - began
    engine.take()
    return took / 1e3


def _submit(engine: Engine, tenant: str, job: JobSpec) -> JobId:
    spec = msgspec.structs.replace(job, tenant=tenant)
    engine.command(c.SubmitJob(spec), Actor(tenant, 0), NOW)
    return JobId(engine.state.next_job - 1)


def _job(tasks: int, gpus: int, borrows: bool = False) -> JobSpec:
    need = Resources(gpus * 1000, 4000, GIB)
    role = TaskRole("main", tasks, "true", need)
    return JobSpec("bench", "", (role,), opportunistic=borrows)


def _shares(case: Case) -> list[int]:
    """Return the whole nodes of each tenant: equal shares, the first ones get the rest."""
    each, more = divmod(case.nodes, TENANTS)
    return [each + (tenant < more) for tenant in range(TENANTS)]


def _turns(case: Case) -> list[str]:
    """Let tenants take turns; at the end only those who own a node more."""
    left = [share * 8 // case.gpus for share in _shares(case)]
    turns: list[str] = []
    while any(left):
        for tenant in range(TENANTS):
            if left[tenant]:
                left[tenant] -= 1
                turns.append(f"t{tenant}")
    return turns


def _config(case: Case) -> Config:
    nodes = tuple(_node(NodeId(number)) for number in range(case.nodes))
    types = (
        CellType("pair", "V100", 2),
        CellType("socket", "pair", 2),
        CellType("node", "socket", 2, is_node=True),
        CellType("rack", "node", case.in_rack),
    )
    roots = tuple(
        RootCell("rack", f"r{rack}", tuple(nodes[n].id for n in range(first, end)))
        for rack in range(case.nodes // case.in_rack)
        for first, end in ((rack * case.in_rack, (rack + 1) * case.in_rack),)
    )
    tenants = tuple(
        Tenant(
            f"t{tenant}",
            Resources(8000 * share, 64_000 * share, 512 * GIB * share, 0, 256 * GIB * share),
            (Queue("default", QueueOrder.SKIP),),
            cells=(CellShare("node", share),),
        )
        for tenant, share in enumerate(_shares(case))
    )
    limits = Limits(ports=(20_000, 60_000))  # One for each of 32,000 jobs.
    return Config(nodes, tenants, limits, topology=Topology(types, roots))


def _node(number: NodeId) -> Node:
    devices = tuple(Device(DeviceIndex(d), "V100", 32 * GIB) for d in range(8))
    return Node(number, f"n{number}", 64_000, 512 * GIB, 0, devices)
