"""Jobs of work that others made: placed like every other, and not changed or repeated here."""

import msgspec
import pytest

from allotment.model import commands as c
from allotment.model.errors import Code, Rejected
from allotment.model.ids import Actor, JobId
from allotment.model.lifecycle import JobState
from allotment.model.spec import JobSpec, Offered
from allotment.wire.config import read_config
from tests.support.builders import a_job
from tests.support.world import World

NAMESPACE = Actor("kubernetes/team-a")
CONFIG = b"""\
nodes: [{name: n1, cpu: 64, memory: 512GiB, gpu: {type: V100, count: 8}}]
tenants:
  lab: {users: [alice], guaranteed: {gpu: 8}}
"""
POD = Offered("team-a/p", "uid-1")


def a_world() -> World:
    config, _ = read_config(CONFIG, source="c.yaml", machine=None)
    return World(config)


def offered() -> JobSpec:
    return msgspec.structs.replace(a_job().gpus(8).of("lab").spec(), offered=(POD,))


def test_whose_it_is_the_engine_says_and_no_list_of_members() -> None:
    world = a_world()
    world.do(c.SubmitJob(offered(), "key"), NAMESPACE)
    world.cycle()
    assert world.is_(JobId(1)) is JobState.STARTING
    with pytest.raises(Rejected) as refusal:
        world.do(c.SubmitJob(a_job().gpus(1).of("lab").spec()), NAMESPACE)
    assert refusal.value.code is Code.FORBIDDEN


def test_it_is_neither_edited_nor_submitted_again() -> None:
    world = a_world()
    world.do(c.SubmitJob(offered(), "one"), NAMESPACE)
    world.cycle()
    world.do(c.SubmitJob(offered(), "two"), NAMESPACE)
    for command in (c.EditJob(JobId(2), offered()), c.SubmitAgain((offered(),))):
        with pytest.raises(Rejected) as refusal:
            world.do(command, NAMESPACE)
        assert "team-a/p was not made here" in refusal.value.message
    world.do(c.CancelJob(JobId(2)), NAMESPACE)
    assert world.is_(JobId(2)) is JobState.CANCELLED


def test_it_takes_no_ports_from_jobs_that_are_told_theirs() -> None:
    world = a_world()
    before = world.state.ports.free
    world.do(c.SubmitJob(offered(), "one"), NAMESPACE)
    world.cycle()
    assert (world.job(JobId(1)).attempts[-1].port, world.state.ports.free) == (0, before)
    world.do(c.CancelJob(JobId(1)), NAMESPACE)
    assert world.state.ports.free == before > 0
