"""What others use of nodes beside Allotment, in counted shares and in cells."""

import msgspec
import pytest

from allotment.engine.apply import apply
from allotment.engine.state import Image, State
from allotment.model import commands as c
from allotment.model import events as e
from allotment.model.ids import NodeId
from allotment.model.lifecycle import JobState as S
from allotment.model.others import NOBODY, Others
from allotment.model.quantity import GIB, Resources
from allotment.model.reasons import Reason
from allotment.model.reports import OthersReport
from allotment.model.tenancy import Config
from tests.support.builders import POLICIES, a_config, a_job, a_tenant
from tests.support.cells import cell_config
from tests.support.world import World

NODE = NodeId(0)
CELLS = """
nodes:
- {name: n0, cpu: 64, memory: 512GiB, disk: 1TiB, gpu: {type: A100, count: 8}}
- {name: n1, cpu: 64, memory: 512GiB, disk: 1TiB, gpu: {type: A100, count: 8}}
cells:
  types: {host: {of: A100, count: 8, node: true}}
  roots: [{type: host, nodes: [n0]}, {type: host, nodes: [n1]}]
tenants:
  vision: {cells: {host: 2}}
"""
COUNTED = a_config(a_tenant("vision", 16), nodes=2)


def in_cells() -> Config:
    return cell_config(CELLS)


BOTH = pytest.mark.parametrize("config", [COUNTED, in_cells()], ids=["counted", "cells"])


def seen(world: World, use: Others, node: int = 0) -> None:
    world.tell(OthersReport(NodeId(node), use))


def free(world: World, node: int = 0) -> Resources:
    return world.state.cluster.ledger.books[NodeId(node)].free()


@BOTH
def test_what_others_use_is_not_free_until_they_are_gone(config: Config) -> None:
    world = World(config)
    all_free = free(world)
    seen(world, Others((("A100", 3),), 2_000, GIB, "Slurm"))
    now = free(world)
    assert now.gpu_milli == all_free.gpu_milli - 3_000
    assert now.cpu_milli == all_free.cpu_milli - 2_000
    assert now.memory == all_free.memory - GIB
    seen(world, NOBODY)
    assert free(world) == all_free


def test_telling_it_again_is_no_event() -> None:
    world = World(COUNTED)
    use = Others((("A100", 1),))
    for _ in range(3):
        seen(world, use)
    seen(world, NOBODY, node=1)
    told = [record.event for record in world.log if isinstance(record.event, e.OthersSeen)]
    assert told == [e.OthersSeen(NODE, use)]


@BOTH
def test_a_job_waits_for_others_with_the_true_reason_and_starts_when_they_end(
    config: Config,
) -> None:
    world = World(config)
    seen(world, Others((("A100", 1),), 1_000, GIB, "Slurm"))
    first, second = (world.submit(a_job().gpus(8)) for _ in range(2))
    world.cycle()
    assert {slot.node for slot in world.job(first).attempts[-1].slots} == {NodeId(1)}
    assert world.is_(second) is S.QUEUED
    why = world.why(second)
    assert why.reason is Reason.OTHERS
    assert "(1 GPU, 1 CPU, 1 GiB memory)" in why.message
    seen(world, NOBODY)
    world.cycle()
    assert world.is_(second) is S.STARTING


@BOTH
def test_jobs_of_ours_stay_where_others_are_counted_on_their_devices(config: Config) -> None:
    """As where a job of theirs was quicker: ours waits in their queue, and is taken back."""
    world = World(config)
    jobs = [world.submit(a_job().gpus(8)) for _ in range(2)]
    world.cycle()
    for job in jobs:
        world.runs(job)
    seen(world, Others((("A100", 2),)))
    world.cycle()
    assert [world.is_(job) for job in jobs] == [S.RUNNING, S.RUNNING]
    (there,) = (j for j in jobs if world.job(j).attempts[-1].slots[0].node == NODE)
    world.ends(there)
    assert free(world).gpu_milli == 6_000


def test_devices_that_nobody_of_ours_has_are_taken_first() -> None:
    world = World(COUNTED)
    job = world.submit(a_job().gpus(2))
    world.cycle()
    (slot,) = world.job(job).attempts[-1].slots
    seen(world, Others((("A100", 6),)), node=slot.node)
    assert world.state.taken[slot.node].isdisjoint(slot.devices)
    assert free(world, slot.node).gpu_milli == 0


@BOTH
def test_devices_that_an_engine_names_are_not_given_to_jobs_of_ours(config: Config) -> None:
    world = World(config)
    for node in (0, 1):
        seen(world, Others((("A100", 1),), indexes=(0, 5)), node=node)
    assert {0, 5} < world.state.taken[NODE]
    assert free(world).gpu_milli == 5_000
    job = world.submit(a_job().gpus(5))
    world.cycle()
    if config is COUNTED:  # a cell of eight is not free
        (slot,) = world.job(job).attempts[-1].slots
        assert not {0, 5} & set(slot.devices)
    seen(world, Others(indexes=(0,), where="Kubernetes"))
    said = world.state.others[NODE].words()
    assert said == "1 GPU used by others or not offered on Kubernetes"
    seen(world, Others(indexes=(0, 9)))
    assert world.state.taken[NODE] == {0}, "one that the node does not have"


def test_devices_of_a_type_that_is_not_there_are_any_of_the_node() -> None:
    """An engine may call a type otherwise than the configuration does."""
    world = World(COUNTED)
    seen(world, Others((("a100_80gb", 2),)))
    assert free(world).gpu_milli == 6_000


def test_a_job_waits_for_cpus_that_others_use_without_devices() -> None:
    world = World(a_config(a_tenant("vision", 8)))
    seen(world, Others(cpu_milli=10_000, where="Slurm"))
    job = world.submit(a_job().gpus(1).cpus(60))
    world.cycle()
    assert world.is_(job) is S.QUEUED
    assert world.why(job).reason is Reason.OTHERS
    assert "(10 CPU)" in world.why(job).message


def test_in_cells_the_host_that_others_use_takes_as_many_smallest_cells() -> None:
    """Else a cell would be given whose share of the host is not there."""
    world = World(in_cells())
    seen(world, Others(cpu_milli=9_000))  # Eight CPUs go with each of eight GPUs.
    assert free(world).gpu_milli == 6_000
    first, second = (world.submit(a_job().gpus(8).cpus(64)) for _ in range(2))
    world.cycle()
    assert [world.is_(first), world.is_(second)] == [S.STARTING, S.QUEUED]
    assert world.why(second).reason is Reason.OTHERS


@BOTH
def test_it_is_the_same_after_a_restart_and_a_replay(config: Config) -> None:
    world = World(config)
    world.submit(a_job().gpus(4))
    world.cycle()
    seen(world, Others((("A100", 5),), 3_000))
    world.do(c.ApplyConfig(config))
    data = msgspec.msgpack.encode(world.state.image())
    again = State.from_image(msgspec.msgpack.decode(data, type=Image), POLICIES)
    replayed = State(POLICIES)
    for record in world.log:
        apply(replayed, record)
    for other in (again, replayed):
        assert msgspec.msgpack.encode(other.image()) == data
        for node, book in world.state.cluster.ledger.books.items():
            found = other.cluster.ledger.books[node]
            assert (found.bad, found.taken, found.cpu) == (book.bad, book.taken, book.cpu)


def test_others_of_a_node_that_left_are_forgotten() -> None:
    world = World(COUNTED)
    seen(world, Others((("A100", 1),)), node=1)
    world.do(c.ApplyConfig(a_config(a_tenant("vision", 8), nodes=1)))
    assert not world.state.others
    assert not world.state.taken
