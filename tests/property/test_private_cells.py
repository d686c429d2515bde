"""What happens in a tenant's cells is what happens on a cluster of its own, job for job."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allotment.model.cells import CellShare, CellType, RootCell, Topology
from allotment.model.quantity import DEVICE, Resources
from allotment.model.tenancy import Tenant
from allotment.sim.cluster import cluster_of
from allotment.sim.run import simulate
from allotment.sim.scenario import Owners, Scenario
from allotment.sim.settings import Settings
from allotment.sim.trace import Trace, TraceJob

LEVELS = (
    CellType("switch", "gpu", 2),
    CellType("node", "switch", 2, is_node=True),
    CellType("rack", "node", 2),
)
SHARES = {"a": ("node", 3), "b": ("node", 2), "c": ("switch", 3), "d": ("rack", 1)}
NODES = {"a": 3, "b": 2, "c": 2, "d": 2}
SHORT = Settings(queues=(20_000, 90_000))
SIZES = {1: (1, 1), 2: (1, 2), 4: (1, 4), 6: (2, 3), 8: (2, 4)}

Times = tuple[str, int, int, int]

jobs = st.lists(
    st.tuples(
        st.integers(0, 40), st.integers(1, 60), st.sampled_from(sorted(SIZES)),
        st.sampled_from(sorted(SHARES)),
    ),
    min_size=1,
    max_size=60,
)  # fmt: skip


def a_trace(rows: Sequence[tuple[int, int, int, str]]) -> Trace:
    found: list[TraceJob] = []
    for number, (at, run, size, tenant) in enumerate(sorted(rows)):
        tasks, each = SIZES[size]
        need = Resources(gpu_milli=each * DEVICE)
        found.append(TraceJob(str(number), at * 1000, run * 1000, tasks, need, tenant))
    return Trace("drawn", "simple", "", tuple(found))


def played(trace: Trace, nodes: int, tenants: Sequence[str], policy: str) -> list[Times]:
    machines = cluster_of(f"{nodes}x4")
    roots = tuple(
        RootCell("rack", f"r{at}", (machines[at].id, machines[at + 1].id))
        for at in range(0, nodes - 1, 2)
    )
    alone = tuple(RootCell("node", m.name, (m.id,)) for m in machines[2 * len(roots) :])
    owners = Owners(
        tuple(
            Tenant(name, Resources(gpu_milli=1 << 40), borrow=False,
                   cells=(CellShare(*SHARES[name], chain="rack"),))
            for name in tenants
        ),
        Topology(LEVELS, (*roots, *alone)),
    )  # fmt: skip
    done = simulate(Scenario(trace, machines, policy, SHORT, owners=owners)).jobs
    return [(job.id, job.start_ms, job.end_ms, job.preemptions) for job in done]


@pytest.mark.parametrize("policy", ["fifo", "backfill", "las2d", "srtf", "maxmin"])
@given(rows=jobs)
def test_others_make_no_difference(policy: str, rows: list[tuple[int, int, int, str]]) -> None:
    trace = a_trace(rows)
    together = played(trace, 10, list(SHARES), policy)
    for tenant in SHARES:
        own = tuple(job for job in trace.jobs if job.tenant == tenant)
        if own:
            apart = Trace("drawn", "simple", "", own)
            nodes = NODES[tenant] + NODES[tenant] % 2
            alone = played(apart, nodes, [tenant], policy)
            mine = {job.id for job in own}
            assert [times for times in together if times[0] in mine] == alone
