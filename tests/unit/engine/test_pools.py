"""Pools that could have more nodes."""

from msgspec.structs import replace

from allotment.engine.pools import growable
from allotment.model.engines import Ability
from allotment.model.ids import NodeId
from allotment.model.pools import Pool
from allotment.model.tenancy import Config
from tests.support.builders import a_node


def test_a_node_of_an_empty_pool_lacks_what_others_of_its_engine_lack() -> None:
    here = replace(a_node(0), engine="here", lacks=(Ability.IMAGES,))
    there = replace(a_node(1), engine="there", lacks=(Ability.DATASETS,))
    pool = Pool("spot", node=replace(a_node(2), id=NodeId(2), engine="there"))
    (found,) = growable(Config(nodes=(here, there), tenants=(), pools=(pool,)))
    assert found.node.lacks == (Ability.DATASETS,)
