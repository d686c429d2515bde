"""A cluster of cells with everything in it, and a book of it that can be compared."""

from collections.abc import Mapping

import msgspec

from allotment.core.cells.book import Cells
from allotment.core.cells.chain import chains_of
from allotment.engine.apply import apply
from allotment.engine.state import State
from allotment.model import events as e
from allotment.model.cell_quota import shortages
from allotment.model.cells import CellShare, CellType, PinnedCell, RootCell, Topology
from allotment.model.cluster import Device, Node
from allotment.model.ids import DeviceIndex, NodeId
from allotment.model.quantity import DEVICE, GIB, NOTHING, Resources
from allotment.model.tenancy import Config, Limits, Preempt, Queue, QueueOrder, Tenant
from tests.support.audit import audit
from tests.support.audit_cells import lacking, worse
from tests.support.builders import POLICIES
from tests.support.world import World

TENANTS = ("vision", "speech", "nlp")
RACKS, NODES_IN_RACK, OTHERS = 3, 3, 4
NODES = RACKS * NODES_IN_RACK + OTHERS
"""Nine of 8 devices in racks, two of 4, and two without any."""


class Plan(msgspec.Struct, frozen=True):
    """What an administrator may change while jobs run."""

    cut: int = 0
    """Whole nodes fewer for the first tenant."""
    racks: int = RACKS
    preempt: Preempt = Preempt.NONE
    borrow: bool = True
    order: QueueOrder = QueueOrder.STRICT
    flat: bool = False
    """Sockets of 4 devices, without pairs between."""
    without: str = ""
    """A tenant that owns no cells any more."""
    pinned: bool = True
    bare: str = ""
    """A root cell whose nodes stay, in no cell: `r1`; all that begin so: `a`."""
    a100: str = ""
    """How the last node of 4 is cut: `turned` the other way round, `half` of it in no cell,
    of another `type`."""


def config(plan: Plan) -> Config | None:
    """Return a configuration; None if more is promised in it than there is."""
    nodes, topology = _nodes(plan), _topology(plan)
    tenants = tuple(_tenant(name, plan, topology, nodes) for name in TENANTS)
    if shortages(topology, tenants):
        return None
    return Config(nodes, tenants, Limits(backoff_first_ms=500), topology=topology)


def _nodes(plan: Plan) -> tuple[Node, ...]:
    racked = [_node(i, 8, "V100", f"r{i // NODES_IN_RACK}") for i in range(9)]
    kinds = ("A100", "T4" if plan.a100 == "type" else "A100")
    small = [_node(9 + i, 4, kinds[i], "a") for i in range(2)]
    plain = [_node(11 + i, 0, "", "c") for i in range(2)]
    return (*racked[: plan.racks * NODES_IN_RACK], *small, *plain)


def _node(number: int, devices: int, kind: str, rack: str) -> Node:
    return Node(
        NodeId(number),
        f"n{number}",
        cpu_milli=64_000,
        memory=512 * GIB,
        disk=1000 * GIB,
        devices=tuple(Device(DeviceIndex(d), kind, 16 * GIB) for d in range(devices)),
        labels=(("rack", rack),),
    )


def _topology(plan: Plan) -> Topology:
    within = (
        (CellType("socket", "V100", 4),)
        if plan.flat
        else (CellType("pair", "V100", 2), CellType("socket", "pair", 2))
    )
    types = (
        *within,
        CellType("node", "socket", 2, is_node=True),
        CellType("rack", "node", NODES_IN_RACK),
        CellType("a100-node", "A100", 4, is_node=True),
        CellType("a100-half", "A100", 2, is_node=True),
        CellType("t4-node", "T4", 4, is_node=True),
        CellType("cpu-node", "cpu", 4, is_node=True),
    )
    roots = (
        *(
            RootCell("rack", f"r{r}", tuple(NodeId(r * NODES_IN_RACK + k) for k in range(3)))
            for r in range(plan.racks)
        ),
        RootCell("a100-node", "a0", (NodeId(9),)),
        RootCell(*A100S[plan.a100][0], (NodeId(10),), A100S[plan.a100][1]),
        *(RootCell("cpu-node", f"c{i}", (NodeId(11 + i),)) for i in range(2)),
    )
    if plan.bare:
        roots = tuple(root for root in roots if not root.name.startswith(plan.bare))
    pins = (PinnedCell("p", "socket", NodeId(0), 0),) if plan.pinned else ()
    return Topology(types, roots, pins)


A100S: dict[str, tuple[tuple[str, str], tuple[tuple[int, ...], ...]]] = {
    "": (("a100-node", "a1"), ()),
    "turned": (("a100-node", "a1"), ((3, 2, 1, 0),)),
    "half": (("a100-half", "a1"), ((1, 3),)),
    "type": (("t4-node", "a1"), ()),
}
"""The root of the last node of 4 devices, and the devices in it."""


def _guaranteed(name: str, plan: Plan, topology: Topology) -> tuple[CellShare, ...]:
    """Return what a tenant is guaranteed, of machines of 4 as far as there are any."""
    tops = [root.type for root in topology.roots]
    small = {
        "speech": (CellShare("a100-node", 1),) if "a100-node" in tops else (),
        "nlp": (CellShare("A100", 2),)
        if tops.count("a100-node") > 1
        else tuple(NLPS[top] for top in tops if top in NLPS),
    }
    pair = CellShare("V100", 4) if plan.flat else CellShare("pair", 2)
    return {
        "vision": (
            CellShare("node", max(0, 3 - plan.cut)),
            CellShare("socket", 1),
            CellShare("cpu", 1),
        ),
        "speech": (CellShare("rack", 1), pair, CellShare("cpu", 2), *small["speech"]),
        "nlp": (CellShare("V100", 4), CellShare("cpu-node", 1), *small["nlp"]),
    }[name]


NLPS = {
    "a100-half": CellShare("a100-half", 1),
    "t4-node": CellShare("T4", 2),
}
"""What the last tenant is guaranteed of other machines of 4."""


def _tenant(name: str, plan: Plan, topology: Topology, nodes: tuple[Node, ...]) -> Tenant:
    cells = () if name == plan.without else _guaranteed(name, plan, topology)
    pins = ("p",) if name == "vision" and plan.pinned else ()
    return Tenant(
        name,
        guaranteed(cells, pins, topology, nodes),
        (Queue("default", plan.order),),
        borrow=plan.borrow,
        cells=cells,
        pins=pins,
        preempt=plan.preempt,
    )


def guaranteed(
    cells: tuple[CellShare, ...],
    pins: tuple[str, ...],
    topology: Topology,
    nodes: tuple[Node, ...],
) -> Resources:
    """Sum up what cells hold, of their hosts too."""
    wanted = [share.type for share in cells for _ in range(share.count)]
    wanted += [pin.type for pin in topology.pins if pin.id in pins]
    total = NOTHING
    for kind in wanted:
        chain = next(c for c in chains_of(topology, nodes) if kind in c.names)
        leaves = chain.size[chain.names.index(kind)]
        devices = DEVICE * leaves if chain.devices[0] else 0
        total += chain.share * leaves + Resources(devices, gpu_memory=chain.memory * leaves)
    return total


class CellsWorld(World):
    """An engine over cells, audited where a test says so."""

    def collect(self) -> None:
        records, effects = self.engine.take()
        self.log += records
        self.effects += effects

    def check(self) -> None:
        audit(self.state)

    def reload(self) -> None:
        """Through bytes and back: nothing may be lost on the way."""
        state = self.state
        data = msgspec.msgpack.encode(state.image())
        image = msgspec.msgpack.decode(data, type=type(state.image()))
        again = State.from_image(image, POLICIES)
        assert msgspec.msgpack.encode(again.image()) == data
        assert pages(again.cluster.cells) == pages(state.cluster.cells)
        self.engine = type(self.engine)(again)

    def replay(self) -> None:
        """Fold the whole log anew: the same state comes of it, and no decision did harm."""
        state = State(POLICIES)
        held: list[tuple[int, ...]] = []
        """What was lacking before those of its own gave way to the next job."""
        for record in self.log:
            before = _lacking(state)
            apply(state, record)
            if isinstance(record.event, GIVES):
                after = _lacking(state)
                # It may go where those who gave way were, or where it could go without them.
                harm = worse(before, after) and (not held or worse(held, after))
                assert not harm, record
            event = record.event
            taken = isinstance(event, e.ReservedPlaceDropped) and event.taken_by is not None
            gave_way = taken or isinstance(event, (e.AttemptDemoted, e.ShrinkRequested))
            held = (held or before) if gave_way else []
        known = msgspec.msgpack.encode(self.state.image())
        assert msgspec.msgpack.encode(state.image()) == known
        assert pages(state.cluster.cells) == pages(self.state.cluster.cells)


GIVES = (e.AttemptPlaced, e.Reserved, e.AttemptPromoted, e.AttemptResumed)
"""Events by which a gang gets cells."""


def _lacking(state: State) -> list[tuple[int, ...]]:
    cells = state.cluster.cells
    return [lacking(space) for space in cells.spaces] if cells else []


def pages(cells: Cells | None) -> list[object]:
    """Return all that a book of cells says, in a form that can be compared."""
    assert cells is not None
    spaces = [
        (s.held, s.shut, s.broken, s.lent, s.unbound, s.count, s.whole, s.buckets())
        for s in cells.spaces
    ]
    holdings = {
        (tenant, pin, at): (
            h.guaranteed, h.unbound, h.pinned,
            h.bound, _some(h.mine), h.used, h.claims, h.parts,
            _some(h.rooms),
        )
        for (tenant, pin), held in cells.holdings.items()
        for at, h in held.items()
    }  # fmt: skip
    idle = [use.idle.leaves for use in cells.uses]
    used = [(use.taken, use.borrowers) for use in cells.uses]
    return [spaces, holdings, idle, used]


def _some(by_level: Mapping[int, object]) -> dict[int, object]:
    """Leave out levels of which nothing is left."""
    return {level: what for level, what in by_level.items() if what}
