"""What happens in a tenant's cells is what happens on a cluster of its own, job for job."""

from collections.abc import Sequence
from random import Random

import pytest

from allotment.model.cells import CellShare, CellType, RootCell, Topology
from allotment.model.quantity import DAY, DEVICE, Resources
from allotment.model.tenancy import Tenant
from allotment.sim.cluster import cluster_of
from allotment.sim.run import simulate
from allotment.sim.scenario import Owners, Scenario
from allotment.sim.settings import Settings
from allotment.sim.simulation import BEYOND_ALL
from allotment.sim.trace import Trace, TraceJob

LEVELS = (CellType("switch", "gpu", 2), CellType("node", "switch", 2, is_node=True))
SHARES = {"a": 6, "b": 4, "c": 3, "d": 1}
"""Nodes that each tenant is guaranteed. Racks would matter: a gang likes to lie in one."""
SIZES = {1: (1, 1), 2: (1, 2), 4: (1, 4), 6: (2, 3), 8: (2, 4), 12: (3, 4)}
"""Tasks, and devices of each."""
SHORT = Settings(queues=(20_000, 90_000))

Times = tuple[str, int, int, int]


def rows_of(seed: int, weights: Sequence[int]) -> list[tuple[int, int, int, str]]:
    """Draw jobs: when they come, how long they run, in seconds; devices; and whose they are."""
    chance = Random(seed)
    sizes, tenants = sorted(SIZES), sorted(SHARES)
    return [
        (
            chance.randrange(600),
            round(chance.expovariate(1 / 40)) + 1,
            chance.choices(sizes, weights)[0],
            chance.choices(tenants, (6, 4, 3, 1))[0],
        )
        for _ in range(200)
    ]


def a_trace(rows: Sequence[tuple[int, int, int, str]]) -> Trace:
    found: list[TraceJob] = []
    for number, (at, run, size, tenant) in enumerate(sorted(rows)):
        tasks, each = SIZES[size]
        need = Resources(gpu_milli=each * DEVICE)
        found.append(TraceJob(str(number), DAY + at * 1000, run * 1000, tasks, need, tenant))
    return Trace("drawn", "simple", "", tuple(found))


def played(trace: Trace, shares: dict[str, int], policy: str) -> list[Times]:
    machines = cluster_of(f"{sum(shares.values())}x4")
    tenants = tuple(
        Tenant(name, BEYOND_ALL, borrow=False, cells=(CellShare("node", count),))
        for name, count in shares.items()
    )
    roots = tuple(RootCell("node", machine.name, (machine.id,)) for machine in machines)
    owners = Owners(tenants, Topology(LEVELS, roots))
    done = simulate(Scenario(trace, machines, policy, SHORT, owners=owners)).jobs
    return [(job.id, job.start_ms, job.end_ms, job.preemptions) for job in done]


ANY_GANG, ONE_TASK = (5, 3, 3, 1, 1, 1), (5, 3, 3, 0, 0, 0)
"""How often each size comes. Gangs of several tasks that send others away are left out: a few
in a thousand of those are placed otherwise."""


@pytest.mark.parametrize(
    ("policy", "weights"),
    [
        ("fifo", ANY_GANG),
        ("backfill", ANY_GANG),
        ("maxmin", ANY_GANG),
        ("las2d", ONE_TASK),
        ("srtf", ONE_TASK),
    ],
)
@pytest.mark.parametrize("seed", range(3))
def test_others_make_no_difference(policy: str, weights: Sequence[int], seed: int) -> None:
    trace = a_trace(rows_of(seed, weights))
    together = played(trace, SHARES, policy)
    for tenant, nodes in SHARES.items():
        own = tuple(job for job in trace.jobs if job.tenant == tenant)
        mine = {job.id for job in own}
        alone = played(Trace("drawn", "simple", "", own), {tenant: nodes}, policy)
        assert [times for times in together if times[0] in mine] == alone
