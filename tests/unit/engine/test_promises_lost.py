"""Promises when hardware is taken out of the configuration."""

from msgspec.structs import replace

from allotment.model import commands as c
from allotment.model.lifecycle import JobState
from tests.support.builders import a_config, a_job, a_tenant
from tests.support.world import World


def test_a_node_that_is_only_promised_can_go_and_the_promise_with_it() -> None:
    config = a_config(a_tenant("own", 8), a_tenant("guest"), nodes=2, devices=4)
    world = World(config)
    borrower = world.submit(a_job().of("guest").gpus(4))
    world.cycle()
    world.runs(borrower)
    owner = world.submit(a_job().of("own").tasks(2).gpus(4))
    world.cycle()
    promise = world.state.cluster.reserved[owner]
    assert {slot.node for slot in promise.slots} == {0, 1}
    assert world.is_(borrower) is JobState.STOPPING
    there = world.state.cluster.gangs[borrower].slots[0].node
    kept = tuple(node for node in config.nodes if node.id == there)
    smaller = (a_tenant("own", 4), a_tenant("guest"))
    world.do(c.ApplyConfig(replace(config, nodes=kept, tenants=smaller)))
    world.cycle()
    assert owner not in world.state.cluster.reserved
    assert world.is_(owner) is JobState.QUEUED
