"""What a job borrows is told by its parts, wherever a loan is told of."""

import pytest

from allotment.cli.words import borrows
from allotment.model import commands as c
from allotment.model.events import JobSubmitted
from allotment.model.ids import JobId
from allotment.model.quantity import GIB, Resources
from allotment.model.tenancy import Queue, QueueOrder, Tenant
from allotment.service.estimating import in_words
from allotment.service.queries import job_row
from tests.support.builders import JobBuilder, a_config, a_job
from tests.support.world import World
from tests.unit.service.test_estimating import asked

LAB = Resources(2000, 2000, 8 * GIB, 100 * GIB, 160 * GIB)


def world() -> World:
    tenant = Tenant("vision", LAB, (Queue("default", QueueOrder.SKIP),))
    return World(a_config(tenant))


def started(world: World, job: JobBuilder) -> JobId:
    found = world.submit(job)
    world.cycle()
    return found


@pytest.mark.parametrize(
    ("job", "parts"),
    [
        (a_job().gpus(1).cpus(3), ("cpu",)),
        (a_job().gpus(1).memory(9 * GIB), ("memory",)),
        (a_job().gpus(3), ("gpu",)),
        (a_job().gpus(1).disk(101 * GIB), ("disk",)),
        (a_job().gpus(1).tasks(2).gpu_memory(80 * GIB).cpus(2), ("cpu",)),
        (a_job().gpus(3).cpus(3), ("gpu", "cpu")),
        (a_job().gpus(1).cpus(1).opportunistic(), ("gpu", "cpu", "memory")),
        (a_job().gpus(1).cpus(1), ()),
    ],
)
def test_the_parts_are_those_beyond_the_guarantee(
    job: JobBuilder, parts: tuple[str, ...]
) -> None:
    here = world()
    submit = c.SubmitJob(job.spec())
    would = in_words(asked(here, submit=submit), here.state, here.now, None, "job")
    assert would.borrowed == parts
    record = here.job(started(here, job))
    assert job_row(here.state, record, here.now).borrowed == parts
    events = [each.event for each in here.log if isinstance(each.event, JobSubmitted)]
    warned = "".join(events[0].warnings)
    assert bool(warned) is (bool(parts) and not job.spec().opportunistic)


def test_what_others_of_the_tenant_use_counts() -> None:
    here = world()
    started(here, a_job().gpus(1).cpus(2))
    second = here.job(started(here, a_job().gpus(1).cpus(1)))
    assert job_row(here.state, second, here.now).borrowed == ("cpu",)
    waits = started(here, a_job().gpus(7))
    holders = {each.job: each.borrowed for each in here.why(waits).holders}
    assert holders == {JobId(1): (), JobId(2): ("cpu",)}


def test_a_submission_is_told_what_its_guarantee_never_covers() -> None:
    here = world()
    here.submit(a_job().gpus(3).cpus(4))
    event = next(each.event for each in here.log if isinstance(each.event, JobSubmitted))
    assert event.warnings == (
        "it can only borrow, and may be evicted at any time: it needs 3 GPUs and 4 CPUs, and "
        "tenant vision is guaranteed 2 GPUs and 2 CPUs",
    )


def test_the_words() -> None:
    assert borrows(("gpu", "cpu", "memory", "disk", "gpu_memory")) == (
        "borrows GPU, CPU, memory, disk, GPU memory"
    )
