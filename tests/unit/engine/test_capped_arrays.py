"""Members of a capped array that were promised a place keep what they need to take it."""

import msgspec

from allotment.engine.engine import Engine
from allotment.engine.state import Image, State
from allotment.model import commands as c
from allotment.model.diagnosis import Diagnosis
from allotment.model.ids import JobId
from allotment.model.lifecycle import JobState
from allotment.model.spec import GiveWay
from tests.support.builders import POLICIES, a_config, a_job, a_node, a_tenant
from tests.support.world import PLATFORM, World


def two_types() -> World:
    """One device of each type; vision is guaranteed one, and nlp borrows."""
    config = a_config(a_tenant("vision", 1), a_tenant("nlp"))
    nodes = (a_node(0, 1, "A100"), a_node(1, 1, "V100"))
    return World(msgspec.structs.replace(config, nodes=nodes))


def restarted(world: World) -> None:
    """Take the state through a snapshot, as a new service does."""
    data = msgspec.msgpack.encode(world.state.image())
    state = State.from_image(msgspec.msgpack.decode(data, type=Image), POLICIES)
    assert msgspec.msgpack.encode(state.image()) == data
    world.engine = Engine(state)
    world.collect()


def migrating(world: World) -> JobId:
    """Let a member of an array of two, one at a time, be told to go on elsewhere."""
    member = world.submit(
        a_job().of("nlp").gpus(1).giving_way(GiveWay.MIGRATE), copies=2, max_running=1
    )
    world.cycle()
    world.runs(member)
    kind = world.state.cluster.nodes[world.job(member).attempts[-1].slots[0].node].devices[0]
    world.submit(a_job().gpus(1).types(kind.type))
    world.cycle()
    assert world.state.cluster.reserved[member].victims == (member,)
    return member


def test_a_member_that_moves_keeps_its_place_in_the_array() -> None:
    world = two_types()
    member = migrating(world)
    world.ends(member, 143)
    world.cycle()
    assert world.is_(member) is JobState.STARTING
    assert world.is_(JobId(member + 1)) is JobState.QUEUED


def test_it_does_so_after_a_restart_too() -> None:
    world = two_types()
    member = migrating(world)
    restarted(world)
    world.ends(member, 143)
    restarted(world)
    world.cycle()
    assert world.is_(member) is JobState.STARTING
    assert world.is_(JobId(member + 1)) is JobState.QUEUED


def test_the_next_member_comes_when_it_is_over_on_the_way() -> None:
    world = two_types()
    member = migrating(world)
    world.ends(member, 1, Diagnosis("x", "It failed.", PLATFORM.owner, PLATFORM.retry))
    world.cycle()
    assert JobState.STARTING in (world.is_(member), world.is_(JobId(member + 1)))


def test_a_member_that_was_let_in_stays_in_after_a_restart() -> None:
    """The first waits out a back-off; the second was promised a place meanwhile."""
    world = World(a_config(a_tenant("vision", 1), a_tenant("nlp"), devices=1))
    first = world.submit(a_job().gpus(1), copies=2, max_running=1)
    second = JobId(first + 1)
    world.do(c.HoldJob(second))
    world.cycle()
    world.runs(first)
    world.ends(first, 3, PLATFORM)
    borrower = world.submit(a_job().of("nlp").gpus(1))
    world.cycle()
    world.runs(borrower)
    world.do(c.ReleaseJob(second))
    world.cycle()
    world.wait(60_000)
    world.submit(a_job().of("nlp"))
    assert set(world.state.cluster.reserved) == {second}
    restarted(world)
    world.ends(borrower, 143)
    world.cycle()
    assert world.is_(second) is JobState.STARTING
    assert world.is_(first) is JobState.QUEUED
