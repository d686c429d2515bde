"""Draining a node reaches its engine, and what the engine closed is opened there."""

import msgspec
import pytest

from allotment.engine.react import pending_effects
from allotment.engine.state import Image, State
from allotment.model import commands as c
from allotment.model import effects as f
from allotment.model.cluster import NodeState
from allotment.model.errors import Rejected
from allotment.model.ids import NodeId
from allotment.model.reports import NodeReport
from tests.support.builders import POLICIES, a_config, a_tenant
from tests.support.world import World

N0, N1 = NodeId(0), NodeId(1)
BY_SLURM = NodeReport(N0, alive=True, closed="drained in Slurm: fan")


@pytest.fixture
def world() -> World:
    return World(a_config(a_tenant("vision", 8), nodes=2))


def test_a_drain_and_its_end_are_told_to_the_engine(world: World) -> None:
    world.do(c.DrainNode(N0, "fan"))
    world.do(c.DrainNode(N0, "again"))
    world.do(c.UndrainNode(N0))
    assert world.effects == [f.CloseNode(N0, "fan"), f.OpenNode(N0)]


def test_after_a_restart_both_are_told_again(world: World) -> None:
    world.do(c.DrainNode(N0, "fan"))
    world.do(c.DrainNode(N1))
    world.do(c.UndrainNode(N1))
    missing = list(pending_effects(world.state, world.now))
    assert missing == [f.CloseNode(N0, "fan"), f.OpenNode(N1)]


def test_what_the_engine_closed_it_is_not_told(world: World) -> None:
    world.tell(BY_SLURM)
    assert world.effects == []


def test_a_drain_of_ours_that_the_engine_tells_of_first_is_ended_after_a_restart(
    world: World,
) -> None:
    """The service ended before the engine heard of the end, and is told of the drain now."""
    world.do(c.DrainNode(N0, "x"))
    world.do(c.UndrainNode(N0))
    world.tell(NodeReport(N0, alive=True, closed="drained in Slurm: allotment: x"))
    assert list(pending_effects(world.state, world.now)) == [f.OpenNode(N0)]


def test_what_the_engine_closed_is_opened_there(world: World) -> None:
    world.tell(BY_SLURM)
    with pytest.raises(Rejected, match="drained in Slurm: fan: not by Allotment"):
        world.do(c.UndrainNode(N0))
    world.tell(NodeReport(N0, alive=True))
    assert world.state.nodes[N0][0] is NodeState.READY


def test_a_drain_of_ours_outlives_that_of_the_engine(world: World) -> None:
    world.tell(BY_SLURM)
    world.do(c.DrainNode(N0, "new fan"))
    world.tell(NodeReport(N0, alive=True))
    assert world.state.nodes[N0] == (NodeState.DRAINED, "new fan")


LOST, BACK = NodeReport(N0, alive=False, reason="gone"), NodeReport(N0, alive=True)


@pytest.mark.parametrize("order", ["before", "while"])
def test_a_drain_of_ours_outlives_the_loss_of_its_node(world: World, order: str) -> None:
    if order == "before":
        world.do(c.DrainNode(N0, "fan"))
    world.tell(LOST)
    if order == "while":
        world.do(c.DrainNode(N0, "fan"))
    assert world.state.nodes[N0][0] is NodeState.LOST
    image = msgspec.msgpack.decode(msgspec.msgpack.encode(world.state.image()), type=Image)
    assert State.from_image(image, POLICIES).drains_kept == {N0: "fan"}
    world.tell(BACK)
    assert world.state.nodes[N0] == (NodeState.DRAINED, "fan")
    assert world.effects[-1] == f.CloseNode(N0, "fan")
    world.do(c.UndrainNode(N0))
    assert world.state.nodes[N0][0] is NodeState.READY


def test_a_drain_that_ends_while_its_node_is_lost_is_over(world: World) -> None:
    world.do(c.DrainNode(N0, "fan"))
    world.tell(LOST)
    world.do(c.UndrainNode(N0))
    assert world.state.nodes[N0][0] is NodeState.LOST
    world.tell(BACK)
    assert world.state.nodes[N0][0] is NodeState.READY


def test_a_drain_of_the_engine_is_not_kept_while_its_node_is_lost(world: World) -> None:
    world.tell(BY_SLURM)
    world.tell(LOST)
    world.tell(BACK)
    assert world.state.nodes[N0][0] is NodeState.READY
