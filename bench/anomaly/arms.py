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
from allotment.sim.trace import Trace
from bench.anomaly.workload import WIDTH, Workload, one_task_each

Kind = Literal[
    "private",
    "plain",
    "loose",
    "owned",
    "quota",
    "counted",
    "spread",
    "cells",
    "flat",
    "static",
]
"""Alone, every tenant on a cluster of its own: `private`, nodes that it owns as cells; `plain`,
nodes, and nobody knows of owners, as `allot sim run --cluster 9x8` has it; `loose`, all its
devices in one machine, so that only their number matters; `owned`, plain nodes of which it is
guaranteed the devices by number.

Together on one cluster: `quota`, it is guaranteed so many devices, each a cell, wherever they
are; `counted`, the same by number; `spread`, so too, but jobs go to the emptiest nodes and
not to the fullest; `cells`, so many whole nodes, of four levels; `flat`, the same of two
levels, device and node; `static`, as `cells`, and its nodes never change.

Where shares are numbers a job beyond its tenant's holds up nobody (docs/adr/0006), where they
are cells it does. So those are compared with each other only: see `ALONE`.
"""

ALONE: dict[Kind, Kind] = {
    "quota": "private", "cells": "private", "flat": "private", "static": "private",
    "plain": "private", "loose": "private", "counted": "owned", "spread": "owned",
}  # fmt: skip
"""With which way to be alone another is compared: the one of the same order within a tenant."""

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
    """Return the simulations of an arm: one cluster, or one for each tenant."""
    placing = "spread" if arm.kind == "spread" else "pack"
    settings = Settings(tasks="node", placing=placing, resume_ms=arm.resume_ms)
    policy = SCHEDULERS[arm.scheduler]
    if arm.kind in ("private", "plain", "loose", "owned"):
        for tenant, share in workload.shares.items():
            trace = workload.of(tenant)
            if trace.jobs:
                yield _alone(arm, trace, share, tenant, settings, seed)
        return
    nodes = cluster_of(f"{workload.nodes}x{WIDTH}")
    share_out = {
        "quota": _anywhere, "counted": _counted, "spread": _counted,
        "flat": _flat, "static": _static,
    }.get(arm.kind, _in_cells)  # fmt: skip
    owners = share_out(nodes, workload.shares, arm.borrow)
    yield Scenario(workload.trace, nodes, policy, settings, seed, owners=owners)


def _alone(
    arm: Arm, trace: Trace, share: int, tenant: str, settings: Settings, seed: int
) -> Scenario:
    """Return the simulation of one tenant on its own cluster."""
    nodes = cluster_of(f"1x{share * WIDTH}" if arm.kind == "loose" else f"{share}x{WIDTH}")
    owners: Owners | None = None
    match arm.kind:
        case "private":
            owners = _in_cells(nodes, {tenant: share}, arm.borrow)
        case "loose":
            trace, owners = one_task_each(trace), _one(nodes, tenant)
        case "owned":
            owners = _counted(nodes, {tenant: share}, arm.borrow)
        case _:
            pass
    policy = SCHEDULERS[arm.scheduler]
    return Scenario(trace, nodes, policy, settings, seed, owners=owners)


Shares = Mapping[str, int]


def _owners(
    nodes: Sequence[Node],
    shares: Shares,
    borrow: bool,
    levels: Sequence[CellType],
    guaranteed: tuple[str, int],
) -> Owners:
    """Owe every tenant so many cells of a type for each node of its share."""
    kind, each = guaranteed
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
    """Owe devices: cells of one device each, wherever they are.

    Their nodes have all levels: so what is free is split as little as can be.
    """
    return _owners(nodes, shares, borrow, LEVELS, (GPU, WIDTH))


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
    """Return what so many alike nodes have."""
    return sum((node.total() for node in nodes[:count]), start=NOTHING)
