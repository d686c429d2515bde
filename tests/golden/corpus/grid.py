"""What a cluster and its tenants may be like: one point of the grid for each seed.

Each side of the grid is drawn on its own, so any two choices meet in some of the histories.
"""

import random
from enum import StrEnum

import msgspec

from allotment.model.amounts import NO_AMOUNTS, Amounts, amounts, of_type
from allotment.model.budget import GPU_HOUR, Budget, Every
from allotment.model.cells import CellShare, CellType, PinnedCell, RootCell, Topology
from allotment.model.cluster import Device, Node
from allotment.model.ids import DeviceIndex, NodeId
from allotment.model.quantity import DEVICE, GIB, MINUTE, SECOND, Millis, Resources
from allotment.model.spec import GiveWay
from allotment.model.tenancy import (
    Config,
    Limits,
    Preempt,
    PreemptRules,
    Queue,
    QueueOrder,
    RankBy,
    ShareBy,
    Tenant,
    Terms,
)

TENANTS = ("vision", "speech", "nlp")
QUEUES = ("default", "research.train", "research.tune")
USERS = ("ann", "bob", "cleo")
NODES = 8
"""Four of 8 devices in two racks, two of 4 of another type, two without any."""


class Shape(StrEnum):
    """In what form shares are guaranteed."""

    COUNTED = "counted"
    CELLS = "cells"


RULES = (
    PreemptRules(),
    PreemptRules(),
    PreemptRules(min_run_ms=Millis(20 * SECOND)),
    PreemptRules(evictions=2, per_ms=Millis(5 * MINUTE)),
    PreemptRules(lost_device_ms=4 * MINUTE, per_ms=Millis(10 * MINUTE)),
    PreemptRules(starved_ms=Millis(60 * SECOND), short_ms=Millis(30 * SECOND)),
)
WAYS = (GiveWay.REQUEUE, GiveWay.REQUEUE, GiveWay.SUSPEND, GiveWay.CANCEL, GiveWay.MIGRATE)
RANKS = (
    RankBy.SUBMITTED,
    RankBy.SUBMITTED,
    RankBy.SHORTEST,
    RankBy.LEAST_ATTAINED,
    RankBy.DEADLINE,
)
"""Not whose turn it is: tests/property/test_time_slicing.py plays such histories."""
BOTH = (True, False)


class More(msgspec.Struct, frozen=True):
    """What else the later histories have."""

    slices: bool
    """Whether the gangs of the first queue of each tenant take turns."""
    migrates: bool
    """Whether those of the queues inside go to better places."""
    soft: bool
    """Whether queues have soft limits."""
    kept: bool
    """Whether a queue keeps devices of one type for itself, where shares are counted."""
    pinned: bool
    """Whether a tenant has a pinned cell, where shares are cells."""
    uneven: bool
    """Whether machines alike in devices differ in all else."""


class Point(msgspec.Struct, frozen=True):
    """One point of the grid."""

    shape: Shape
    preempt: Preempt
    order: QueueOrder
    rank: RankBy
    share: ShareBy
    among: ShareBy
    """By which rule the queues of a tenant, and the users of a queue, share."""
    borrow: bool
    lend: bool
    quotas: bool
    """Whether queues have guarantees and limits, and users caps."""
    rules: PreemptRules
    way: GiveWay
    budgets: bool
    overtaken: int
    elastic: bool
    reservations: bool
    cut: int = 0
    """Devices by which every guarantee is smaller."""
    more: More | None = None


def point(rng: random.Random) -> Point:
    """Draw a point."""
    pick = rng.choice
    return Point(
        pick(list(Shape)),
        pick(list(Preempt)),
        pick(list(QueueOrder)),
        pick(RANKS),
        pick(list(ShareBy)),
        pick((ShareBy.FIRST_COME, *ShareBy)),
        pick((True, True, False)),
        pick(BOTH),
        pick(BOTH),
        pick(RULES),
        pick(WAYS),
        pick((False, False, True)),
        pick((0, 0, 3)),
        pick(BOTH),
        pick((False, False, True)),
    )


def more(rng: random.Random) -> More:
    """Draw what later histories have beside."""
    return More(*(rng.choice(BOTH) for _ in range(6)))


def config(at: Point) -> Config:
    """Return the configuration of a point."""
    return Config(
        tuple(_node(number, at) for number in range(NODES)),
        tuple(_tenant(place, name, at) for place, name in enumerate(TENANTS)),
        Limits(backoff_first_ms=500, half_life_ms=10 * MINUTE),
        topology=_topology(at) if at.shape is Shape.CELLS else Topology(),
        share=at.share,
    )


def _node(number: int, at: Point) -> Node:
    devices, kind, rack = (8, "V100", number // 2) if number < 4 else (4, "A100", 2)
    if number >= 6:
        devices, rack = 0, 3
    small = at.more is not None and at.more.uneven and number % 2 == 1
    return Node(
        NodeId(number),
        f"n{number}",
        cpu_milli=32_000 if small else 64_000,
        memory=(256 if small else 512) * GIB,
        disk=(400 if small else 1000) * GIB,
        devices=tuple(
            Device(DeviceIndex(d), kind, (24 if small else 16) * GIB) for d in range(devices)
        ),
        labels=(("rack", f"r{rack}"),),
    )


_TOPOLOGY = Topology(
    (
        CellType("pair", "V100", 2),
        CellType("socket", "pair", 2),
        CellType("node", "socket", 2, is_node=True),
        CellType("rack", "node", 2),
        CellType("a100-node", "A100", 4, is_node=True),
        CellType("cpu-node", "cpu", 4, is_node=True),
    ),
    (
        RootCell("rack", "r0", (NodeId(0), NodeId(1))),
        RootCell("rack", "r1", (NodeId(2), NodeId(3))),
        RootCell("a100-node", "a0", (NodeId(4),)),
        RootCell("a100-node", "a1", (NodeId(5),)),
        RootCell("cpu-node", "c0", (NodeId(6),)),
        RootCell("cpu-node", "c1", (NodeId(7),)),
    ),
)

_PIN = PinnedCell("own", "socket", NodeId(3), 4)


def _topology(at: Point) -> Topology:
    pinned = at.more is not None and at.more.pinned
    return msgspec.structs.replace(_TOPOLOGY, pins=(_PIN,)) if pinned else _TOPOLOGY


_CELLS = (
    (CellShare("node", 2), CellShare("a100-node", 1), CellShare("cpu", 2)),
    (CellShare("socket", 1), CellShare("pair", 2), CellShare("cpu-node", 1)),
    (CellShare("V100", 3), CellShare("A100", 2)),
)
_DEVICES = (20, 8, 5)


def _tenant(place: int, name: str, at: Point) -> Tenant:
    devices = max(0, _DEVICES[place] - at.cut)
    owed = Resources(
        devices * DEVICE, devices * 8000, devices * 64 * GIB, devices * 100 * GIB,
        devices * 16 * GIB,
    )  # fmt: skip
    cells = _CELLS[place] if at.shape is Shape.CELLS else ()
    return Tenant(
        name,
        owed,
        tuple(_with_more(queue, devices, at) for queue in _queues(devices, at)),
        borrow=at.borrow,
        cells=tuple(cells[at.cut // 4 :]),
        pins=(_PIN.id,) if place == 1 and _topology(at).pins and cells else (),
        preempt=at.preempt,
        per_user=Resources(gpu_milli=12 * DEVICE) if at.quotas and place == 0 else Resources(),
        share=at.among,
        weight_milli=1000 * (place + 1),
        budgets=(Budget(Every.DAY, GPU_HOUR, 4 * GPU_HOUR),) if at.budgets else (),
        preempt_rules=at.rules,
        on_eviction=at.way,
    )


def _queues(devices: int, at: Point) -> list[Queue]:
    def queue(name: str, owed: int, limit: int, parent: str = "") -> Queue:
        terms = Terms(_of(owed, at), NO_AMOUNTS, at.lend, overtaken=at.overtaken)
        return Queue(
            name, at.order, at.rank, at.among, 1000 + 500 * len(parent), parent,
            terms=terms, limit=_of(limit, at),
        )  # fmt: skip

    return [
        queue("default", devices // 3, 3 * devices),
        queue("research", devices // 2, 2 * devices),
        queue("research.train", devices // 4, 0, "research"),
        queue("research.tune", 0, devices, "research"),
    ]


def _with_more(queue: Queue, devices: int, at: Point) -> Queue:
    """Return a queue with what later histories have beside."""
    if at.more is None:
        return queue
    terms, first = queue.terms, queue.name == QUEUES[0]
    if at.more.soft and not first:
        soft = amounts({"gpu": max(1, devices // 4) * DEVICE})
        terms = msgspec.structs.replace(terms, soft_limit=soft, guaranteed=NO_AMOUNTS)
    if at.more.kept and queue.name == QUEUES[2] and at.shape is Shape.COUNTED:
        own = amounts({of_type("A100"): min(2, devices // 3) * DEVICE})
        terms = msgspec.structs.replace(terms, guaranteed=own, lend=False)
    turns = at.more.slices and first
    return msgspec.structs.replace(
        queue,
        terms=terms,
        rank=RankBy.ROUND_ROBIN if turns else queue.rank,
        time_slice_ms=Millis(30 * SECOND if turns else 0),
        migrates=at.more.migrates and "." in queue.name,
        per_group=_of(max(8, devices // 2), at) if first else NO_AMOUNTS,
    )


def _of(devices: int, at: Point) -> Amounts:
    return amounts({"gpu": devices * DEVICE}) if at.quotas and devices else NO_AMOUNTS
