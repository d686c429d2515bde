"""The ways to share that are compared, as clusters with tenants."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

import msgspec

from allotment.model.cells import CellShare, CellType, RootCell, Topology
from allotment.model.cluster import Node
from allotment.model.quantity import NOTHING, Resources
from allotment.model.tenancy import Tenant
from allotment.sim.cluster import cluster_of
from allotment.sim.scenario import Owners, Scenario
from allotment.sim.settings import Settings
from bench.anomaly.workload import WIDTH, Workload, one_task_each

Kind = Literal["private", "plain", "loose", "quota", "counted", "cells", "flat", "static"]
"""`private`: every tenant is alone, and owns all nodes of its cluster. `plain`: the same, and
nobody knows of cells, as `allot sim run --cluster 9x8` has it. `loose`: it is alone, and
its devices are one machine: only their number matters. `quota`: it is owed so many devices of
one cluster, wherever they are. `cells`: so many whole nodes, of four levels. `flat`: the same
of two levels, device and node. `static`: as `cells`, and its nodes never change.

`counted`: as `quota`, but without cells. There a job beyond its tenant's share holds up nobody
(docs/adr/0006), which on a private cluster it would: it is compared with `quota` only."""

GPU, SWITCH, SOCKET, NODE = "gpu", "switch", "socket", "node"
LEVELS = (
    CellType(SWITCH, GPU, 2),
    CellType(SOCKET, SWITCH, 2),
    CellType(NODE, SOCKET, 2, is_node=True),
)
FLAT = (CellType(NODE, GPU, WIDTH, is_node=True),)

SCHEDULERS = {"FIFO": "fifo", "2D-LAS": "las2d", "packing": "backfill"}
"""What decides within a tenant, and the simulator's name of it."""


class Arm(msgspec.Struct, frozen=True):
    """One way to share, with one scheduler within a tenant."""

    kind: Kind
    scheduler: str
    borrow: bool = False
    resume_ms: int = 0
    """From placing a gang that was sent away to its running again."""
    load: str = ""
    """Which of the workloads."""

    def __str__(self) -> str:
        borrows = ", borrowing" if self.borrow else ""
        return f"{self.load} {self.kind}{borrows}, {self.scheduler}"


def worlds(arm: Arm, workload: Workload, seed: int) -> Iterator[Scenario]:
    """Give the simulations of an arm: one cluster, or one for each tenant."""
    settings = Settings(tasks="node", resume_ms=arm.resume_ms)
    policy = SCHEDULERS[arm.scheduler]
    if arm.kind in ("private", "plain"):
        for tenant, share in workload.shares.items():
            trace, nodes = workload.of(tenant), cluster_of(f"{share}x{WIDTH}")
            own = (
                _in_cells(nodes, {tenant: share}, arm.borrow) if arm.kind == "private" else None
            )
            if trace.jobs:
                yield Scenario(trace, nodes, policy, settings, seed, owners=own)
        return
    if arm.kind == "loose":
        for tenant, share in workload.shares.items():
            trace, nodes = one_task_each(workload.of(tenant)), cluster_of(f"1x{share * WIDTH}")
            if trace.jobs:
                yield Scenario(trace, nodes, policy, settings, seed, owners=_one(nodes, tenant))
        return
    nodes = cluster_of(f"{workload.nodes}x{WIDTH}")
    share_out = {
        "quota": _anywhere, "counted": _counted, "flat": _flat, "static": _static,
    }.get(arm.kind, _in_cells)  # fmt: skip
    owners = share_out(nodes, workload.shares, arm.borrow)
    yield Scenario(workload.trace, nodes, policy, settings, seed, owners=owners)


Shares = Mapping[str, int]


def _owners(
    nodes: Sequence[Node],
    shares: Shares,
    borrow: bool,
    levels: Sequence[CellType],
    owed: tuple[str, int],
) -> Owners:
    """Owe every tenant so many cells of a type for each node of its share."""
    kind, each = owed
    tenants = tuple(
        Tenant(
            name, _total(nodes, count), borrow=borrow, cells=(CellShare(kind, each * count),)
        )
        for name, count in shares.items()
    )
    roots = tuple(RootCell(NODE, node.name, (node.id,)) for node in nodes)
    return Owners(tuple(tenants), Topology(tuple(levels), roots))


def _counted(nodes: Sequence[Node], shares: Shares, borrow: bool) -> Owners:
    """Owe a number of devices, and no cells."""
    return Owners(
        tuple(
            Tenant(name, _total(nodes, count), borrow=borrow) for name, count in shares.items()
        )
    )


def _anywhere(nodes: Sequence[Node], shares: Shares, borrow: bool) -> Owners:
    """Owe devices: cells of one device each, wherever they are."""
    return _owners(nodes, shares, borrow, FLAT, (GPU, WIDTH))


def _one(nodes: Sequence[Node], tenant: str) -> Owners:
    """Owe a tenant all devices of one large node."""
    devices = len(nodes[0].devices)
    levels = (CellType(NODE, GPU, devices, is_node=True),)
    return _owners(nodes, {tenant: 1}, False, levels, (GPU, devices))


def _flat(nodes: Sequence[Node], shares: Shares, borrow: bool) -> Owners:
    return _owners(nodes, shares, borrow, FLAT, (NODE, 1))


def _in_cells(nodes: Sequence[Node], shares: Shares, borrow: bool) -> Owners:
    return _owners(nodes, shares, borrow, LEVELS, (NODE, 1))


def _static(nodes: Sequence[Node], shares: Shares, borrow: bool) -> Owners:
    """Make every tenant's nodes a chain of their own: no other cell can serve its share."""
    types, roots = list(LEVELS[:-1]), list[RootCell]()
    tenants: list[Tenant] = []
    first = 0
    for name, count in shares.items():
        kind, mine = f"{NODE}-{name}", nodes[first : first + count]
        first += count
        types.append(CellType(kind, SOCKET, 2, is_node=True))
        roots += [RootCell(kind, node.name, (node.id,)) for node in mine]
        share = CellShare(kind, count)
        tenants.append(Tenant(name, _total(nodes, count), borrow=borrow, cells=(share,)))
    return Owners(tuple(tenants), Topology(tuple(types), tuple(roots)))


def _total(nodes: Sequence[Node], count: int) -> Resources:
    """Give what so many alike nodes have."""
    return sum((node.total() for node in nodes[:count]), start=NOTHING)
