"""Files that running jobs write: whose are looked at."""

import asyncio
from pathlib import Path

import msgspec

from allotment.model import commands as c
from allotment.model.ids import Actor, JobId
from allotment.model.quantity import Instant
from allotment.model.spec import Offered
from allotment.service.host_workspace import HostWorkspace
from allotment.service.job_files import JobFiles
from allotment.service.workspaces import Workspaces
from allotment.wire.config import read_config
from tests.support.builders import a_job
from tests.support.fake_backend import FakeBackend
from tests.support.world import World

CONFIG = b"""\
nodes: [{name: n1, cpu: 64, memory: 512GiB, gpu: {type: V100, count: 8}}]
tenants: {lab: {guaranteed: {gpu: 8}}}
"""
POD = Offered("team-a/p", "uid-1")


def progress_files(world: World, own: HostWorkspace) -> JobFiles:
    return JobFiles(
        Workspaces(world.state, FakeBackend(), own),
        lambda folders, job: folders.progress_file(job.id, job.spec),
        100,
        world.state.wall,
    )


def test_what_others_made_writes_no_file_of_ours(tmp_path: Path) -> None:
    world = World(read_config(CONFIG, source="c.yaml", machine=None)[0])
    spec = a_job().gpus(1).of("lab").spec()
    offered = msgspec.structs.replace(spec, offered=(POD,))
    world.do(c.SubmitJob(offered), Actor("kubernetes/team-a"))
    world.do(c.SubmitJob(spec), Actor("root", 0))
    world.cycle()
    own = HostWorkspace(str(tmp_path))
    for job in world.state.jobs.values():
        world.runs(job.id)
        file = Path(own.folders.progress_file(job.id, job.spec))
        file.parent.mkdir(parents=True)
        file.write_text('{"step": 1}')
    files = progress_files(world, own)
    found = asyncio.run(files.look(world.state))
    assert [each.key.job for each in found] == [JobId(2)]
    assert files.look_now(world.state.jobs[JobId(1)]) == ()


def test_what_stood_still_is_looked_at_as_new(tmp_path: Path) -> None:
    """What was read of it is known no more, so it is told again; until then nothing is."""
    world = World(read_config(CONFIG, source="c.yaml", machine=None)[0])
    world.do(c.SubmitJob(a_job().gpus(1).of("lab").spec()), Actor("root", 0))
    world.cycle()
    (job,) = world.state.jobs.values()
    own = HostWorkspace(str(tmp_path))
    file = Path(own.folders.progress_file(job.id, job.spec))
    file.parent.mkdir(parents=True)
    file.write_text('{"step": 1}')
    files = progress_files(world, own)

    def found() -> list[JobId]:
        return [each.key.job for each in asyncio.run(files.look(world.state))]

    assert found() == []  # It starts.
    world.runs(job.id)
    assert (found(), found()) == ([job.id], [])
    world.state.cluster.gangs[job.id].suspended_at = Instant(1)
    files.forget(job.id)
    assert found() == []
    world.state.cluster.gangs[job.id].suspended_at = None
    assert (found(), found()) == ([job.id], [])
