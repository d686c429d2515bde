"""Nodes that labels put into other cells while gangs run there, and a place is reserved."""

from msgspec.structs import replace

from allotment.model import commands as c
from allotment.model.cells import CellShare, CellType, RootCell, Topology
from allotment.model.ids import NodeId
from allotment.model.ledger import GUARANTEED, OPPORTUNISTIC
from allotment.model.lifecycle import JobState as S
from allotment.model.tenancy import Config, Preempt
from tests.support.builders import JobBuilder, a_job, a_node, a_tenant
from tests.support.world import World

TYPES = (
    CellType("host", "A100", 8, is_node=True),
    CellType("rack", "host", 2, label="rack"),
)


def in_racks(*racks: tuple[int, int]) -> Config:
    """Four nodes in two racks, one for each of two tenants."""
    rack = CellShare("rack", 1)
    tenants = tuple(
        replace(a_tenant(name, 16), cells=(rack,), preempt=Preempt.EVICT)
        for name in ("vision", "nlp")
    )
    roots = tuple(
        RootCell("rack", f"r{at}", tuple(map(NodeId, nodes))) for at, nodes in enumerate(racks)
    )
    return Config(tuple(map(a_node, range(4))), tenants, topology=Topology(TYPES, roots))


def a_rack() -> JobBuilder:
    return a_job().tasks(2).gpus(8).within_one("rack")


def test_a_gang_whose_nodes_change_places_borrows_and_a_reserved_place_is_in_one_rack() -> None:
    world = World(in_racks((0, 1), (2, 3)))
    own, borrows = world.submit(a_rack().of("vision")), world.submit(a_rack().of("vision"))
    world.cycle()
    world.runs(own)
    world.runs(borrows)
    assert world.job(own).attempts[-1].entitlement is GUARANTEED
    waits = world.submit(a_rack().of("nlp"))
    world.cycle()
    assert {slot.node for slot in world.state.cluster.reserved[waits].slots} == {2, 3}

    world.do(c.FindNodes("", in_racks((0, 2), (1, 3))))
    assert world.job(own).attempts[-1].entitlement is OPPORTUNISTIC
    world.cycle()
    nodes = {slot.node for slot in world.state.cluster.reserved[waits].slots}
    assert nodes in ({0, 2}, {1, 3})
    world.ends(own)
    world.ends(borrows)
    world.cycle()
    assert world.is_(waits) is S.STARTING
    assert {slot.node for slot in world.job(waits).attempts[-1].slots} == nodes
