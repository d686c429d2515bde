"""A gang that its tenant's cells cover only together: a machine, and a socket of another."""

import msgspec
import pytest

from allotment.engine.foresee import foresee
from allotment.model import commands as c
from allotment.model.ids import JobId
from allotment.model.ledger import Entitlement
from allotment.model.tenancy import Config
from allotment.wire.config import read_config
from tests.support.builders import a_job
from tests.support.world import World

TEXT = """\
nodes:
  - {names: [a1, a2], cpu: 40, memory: 512GiB, gpu: {type: V100, count: 8}}
cells:
  types:
    socket: {of: V100, count: 4}
    v: {of: socket, count: 2, node: true}
  roots: [{type: v, nodes: [a1]}, {type: v, nodes: [a2]}]
tenants:
  t: {cells: {%s}}
  u: {cells: {}, weight: %d}
"""
BOTH = "v: 1, socket: 1"


def config(guaranteed: str = BOTH, weight: int = 1) -> Config:
    return read_config((TEXT % (guaranteed, weight)).encode(), source="test", machine=None)[0]


@pytest.fixture
def world() -> World:
    return World(config())


@pytest.fixture
def job(world: World) -> JobId:
    made = world.submit(a_job().of("t").tasks(12).gpus(1).not_preemptible())
    world.cycle()
    world.runs(made)
    assert owns(world, made)
    return made


def owns(world: World, job: JobId) -> bool:
    return world.state.cluster.gangs[job].entitlement is Entitlement.GUARANTEED


def test_what_changes_for_others_costs_it_nothing(world: World, job: JobId) -> None:
    other = config(weight=3)
    image = msgspec.msgpack.encode(world.state.image())
    assert not foresee(image, other, world.state, world.now).demoted
    world.do(c.ApplyConfig(other))
    world.cycle()
    assert owns(world, job)


def test_it_is_promoted_when_both_are_guaranteed_again(world: World, job: JobId) -> None:
    world.do(c.ApplyConfig(config("v: 1")))
    world.cycle()
    assert not owns(world, job)
    world.do(c.ApplyConfig(config()))
    world.cycle()
    assert owns(world, job)


def test_it_goes_on_after_it_was_suspended(world: World, job: JobId) -> None:
    world.do(c.SuspendJob(job))
    world.cycle()
    world.do(c.ResumeJob(job))
    world.cycle()
    gang = world.state.cluster.gangs[job]
    assert not gang.suspended
    assert owns(world, job)
