"""Which version a job's checkpoint is kept as."""

from allotment.model import commands as c
from tests.support.builders import a_config, a_job, a_tenant
from tests.support.world import World


def test_a_checkpoint_that_cannot_be_kept_takes_no_version_from_the_one_before() -> None:
    world = World(a_config(a_tenant("vision", 4)))
    job = world.submit(a_job())
    world.do(c.NoteKept(job, "/ckpt/a", 10, kept="weights@1"))
    assert (world.job(job).kept, world.job(job).unkept) == ("weights@1", "")
    world.do(c.NoteKept(job, "/ckpt/b", 20, why="the bucket is full"))
    assert (world.job(job).kept, world.job(job).unkept) == ("weights@1", "the bucket is full")
    assert world.job(job).kept_of == ("/ckpt/b", 20)
    world.do(c.NoteKept(job, "/ckpt/c", 30, kept="weights@2"))
    assert (world.job(job).kept, world.job(job).unkept) == ("weights@2", "")
