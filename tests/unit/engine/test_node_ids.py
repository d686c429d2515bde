"""The id of a node that left is given to no other one, whatever becomes of the log."""

import msgspec

from allotment.engine.state import Image, State
from allotment.model import commands as c
from allotment.model.cluster import Node
from allotment.model.ids import NodeId
from allotment.model.tenancy import Config
from tests.support.builders import POLICIES, a_config, a_node, a_tenant
from tests.support.world import World

WHOLE = a_config(a_tenant("vision", 8), nodes=1)


def named(*names: str) -> Config:
    """Number nodes as the reading of a file does."""
    nodes = (msgspec.structs.replace(a_node(at), name=name) for at, name in enumerate(names))
    return msgspec.structs.replace(WHOLE, nodes=tuple(nodes))


def ids(nodes: tuple[Node, ...]) -> dict[str, NodeId]:
    return {node.name: node.id for node in nodes}


def test_a_node_that_comes_has_an_id_that_none_had_before() -> None:
    world = World(named("a", "b"))
    world.do(c.ApplyConfig(named("a")))
    world.do(c.ApplyConfig(named("a", "c")))
    assert ids(world.state.config.nodes) == {"a": NodeId(0), "c": NodeId(2)}
    world.do(c.FindNodes("gpus", named("a")))
    world.do(c.FindNodes("gpus", named("a", "b")))
    assert ids(world.state.config.nodes) == {"a": NodeId(0), "b": NodeId(3)}


def test_a_snapshot_remembers_the_ids_of_nodes_that_left() -> None:
    world = World(named("a", "b"))
    world.do(c.ApplyConfig(named("a")))
    image = msgspec.msgpack.decode(msgspec.msgpack.encode(world.state.image()), type=Image)
    assert State.from_image(image, POLICIES).next_node == NodeId(2)


def test_a_snapshot_of_an_older_version_begins_behind_the_nodes_there_are() -> None:
    image = World(named("a", "b")).state.image()
    image.next_node = NodeId(0)
    assert State.from_image(image, POLICIES).next_node == NodeId(2)
