"""Who is named to a job that waits: those who hold what there is too little of."""

import msgspec
import pytest

from allotment.model import commands as c
from allotment.model.ids import JobId
from allotment.model.quantity import GIB, Resources
from allotment.model.reasons import Reason
from allotment.model.tenancy import Config, QueueOrder
from tests.support.builders import JobBuilder, a_config, a_job, a_tenant, gpus
from tests.support.world import World
from tests.unit.core.test_disruption import start
from tests.unit.engine.test_queue_lending import read

KEEPS = """
nodes: [{name: n1, cpu: 640, memory: 5120GiB, disk: 1000GiB, gpu: {type: V100, count: 12}}]
tenants:
  lab:
    guaranteed: {gpu: 6, disk: 400GiB}
    queues:
      a: {guaranteed: {disk: 200GiB}, lend: false}
      b: {guaranteed: {cpu: 8}}
      c: {}
  other: {guaranteed: {gpu: 6, disk: 600GiB}}
"""


def one(share: Resources, *, borrow: bool = False, **terms: object) -> Config:
    """Let one tenant have this of a machine of 8 devices of 80 GiB, and 1000 GiB of disk."""
    tenant = a_tenant("vision", borrow=borrow, order=QueueOrder.SKIP)
    return a_config(msgspec.structs.replace(tenant, guaranteed=share, **terms))


def share(devices: int = 20, disk: int = 2000, gpu_memory: int = 2000) -> Resources:
    return msgspec.structs.replace(gpus(devices), disk=disk * GIB, gpu_memory=gpu_memory * GIB)


def named(world: World, job: JobId, reason: Reason) -> list[int]:
    blocked = world.why(job)
    assert blocked.reason is reason, blocked.message
    return [holder.job for holder in blocked.holders]


def test_who_holds_the_disk_of_a_share_is_named_and_nobody_else() -> None:
    world = World(one(share(disk=200)))
    large = start(world, a_job().disk(150 * GIB))
    small = start(world, a_job().gpus(1).disk(50 * GIB))
    start(world, a_job().gpus(2))
    waits = start(world, a_job().gpus(1).disk(180 * GIB))
    assert named(world, waits, Reason.QUOTA) == [large, small]


def test_what_a_suspended_job_keeps_of_a_share_is_named() -> None:
    world = World(one(share(gpu_memory=320)))
    keeps = start(world, a_job().gpus(3).gpu_memory(80 * GIB))
    world.runs(keeps)
    world.do(c.SuspendJob(keeps))
    start(world, a_job().gpus(2))
    waits = start(world, a_job().gpus(2).gpu_memory(80 * GIB))
    assert named(world, waits, Reason.QUOTA) == [keeps]


def test_who_borrows_holds_nothing_of_the_guarantee() -> None:
    world = World(one(share(devices=2), borrow=True))
    own = start(world, a_job().gpus(1))
    start(world, a_job().gpus(4))
    waits = start(world, a_job().gpus(2).not_preemptible())
    assert named(world, waits, Reason.QUOTA) == [own]


def test_nobodys_leaving_lets_in_who_may_only_borrow() -> None:
    world = World(one(share(), borrow=True))
    start(world, a_job().gpus(1))
    waits = world.submit(a_job().gpus(1).opportunistic())
    world.do(c.ApplyConfig(one(share())))
    assert not named(world, waits, Reason.QUOTA)


def test_the_cap_of_a_user_names_a_suspended_job_that_keeps_of_it() -> None:
    cap = Resources(gpu_memory=200 * GIB)
    world = World(one(share(), per_user=cap))
    keeps = start(world, a_job().gpus(2).gpu_memory(60 * GIB))
    world.runs(keeps)
    world.do(c.SuspendJob(keeps))
    runs = start(world, a_job().gpus(1).gpu_memory(40 * GIB))
    start(world, a_job().gpus(2))
    waits = start(world, a_job().gpus(1).gpu_memory(80 * GIB))
    assert named(world, waits, Reason.USER_CAP) == [keeps, runs]


def test_the_cap_of_a_user_is_explained_to_who_is_suspended() -> None:
    world = World(one(share(), per_user=Resources(gpu_milli=4000)))
    first = start(world, a_job().gpus(4))
    world.runs(first)
    world.do(c.SuspendJob(first))
    large, small = start(world, a_job().gpus(3)), start(world, a_job().gpus(1))
    start(world, a_job().cpus(2))
    world.do(c.ResumeJob(first))
    world.cycle()
    assert named(world, first, Reason.USER_CAP) == [large, small]


@pytest.mark.parametrize(
    ("jobs", "waits"),
    [
        (
            (a_job().disk(700 * GIB), a_job().gpus(1).disk(200 * GIB), a_job().gpus(2)),
            a_job().gpus(1).disk(200 * GIB),
        ),
        (
            (a_job().memory(400 * GIB), a_job().gpus(1).memory(100 * GIB), a_job().gpus(2)),
            a_job().gpus(1).memory(200 * GIB),
        ),
        (
            (a_job().cpus(50), a_job().gpus(1).cpus(8), a_job().gpus(2).cpus(0)),
            a_job().gpus(1).cpus(32),
        ),
        (
            (a_job().gpus(6).gpu_memory(80 * GIB), a_job().gpus(1), a_job().cpus(20)),
            a_job().gpus(2).gpu_memory(80 * GIB),
        ),
    ],
)
def test_who_holds_what_is_lacking_is_named(
    jobs: tuple[JobBuilder, ...], waits: JobBuilder
) -> None:
    world = World(one(share()))
    first, second, beside = (start(world, job) for job in jobs)
    told = named(world, start(world, waits), Reason.CAPACITY)
    assert told[:2] == [first, second]
    assert beside not in told[:2]


def test_who_leaves_too_little_disk_on_every_machine_is_named() -> None:
    world = World(a_config(*one(share()).tenants, nodes=2))
    first, second = (start(world, a_job().cpus(40).disk(600 * GIB)) for _ in range(2))
    start(world, a_job().gpus(1))
    waits = start(world, a_job().gpus(1).disk(500 * GIB))
    assert named(world, waits, Reason.FRAGMENTED) == [first, second]


def test_whose_jobs_hold_what_is_idle_but_for_what_a_queue_keeps_is_named() -> None:
    world = World(read(KEEPS))
    disk = start(world, a_job().of("other").disk(600 * GIB))
    start(world, a_job().of("other").gpus(6))
    mine = start(world, a_job().of("lab", "c").disk(150 * GIB))
    waits = start(world, a_job().of("lab", "c").gpus(1).disk(100 * GIB))
    assert named(world, waits, Reason.QUEUE_SHARE) == [disk, mine]
    assert (
        world.why(waits).hint == "It starts when enough more is idle, no matter which jobs end."
    )


def test_who_holds_what_a_queue_keeps_of_its_tenants_share_is_named() -> None:
    world = World(read(KEEPS.replace("  lab:\n", "  lab:\n    borrow: false\n")))
    start(world, a_job().of("other").disk(600 * GIB))
    start(world, a_job().of("lab", "c").gpus(2))
    mine = start(world, a_job().of("lab", "c").disk(150 * GIB))
    waits = start(world, a_job().of("lab", "c").gpus(1).disk(100 * GIB))
    assert named(world, waits, Reason.QUEUE_SHARE) == [mine]
    assert world.why(waits).hint == "It starts when jobs of its tenant end."


def test_who_holds_the_part_that_a_queue_is_guaranteed_too_little_of_is_named() -> None:
    world = World(read(KEEPS))
    start(world, a_job().of("lab", "b").gpus(2).cpus(0))
    mine = start(world, a_job().of("lab", "b").gpus(0).cpus(6))
    waits = start(world, a_job().of("lab", "b").gpus(1).cpus(4).not_preemptible())
    assert named(world, waits, Reason.QUEUE_SHARE) == [mine]
