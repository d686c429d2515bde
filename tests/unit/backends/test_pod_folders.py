"""The files of jobs on Kubernetes: of pods without volumes the service makes and sees none."""

import asyncio
from pathlib import Path

import pytest

from allotment.backends.kubernetes import client as client_of
from allotment.model import commands as c
from allotment.model.ids import Actor, JobId
from allotment.service.host_workspace import HostWorkspace
from allotment.service.job_files import JobFiles
from allotment.service.job_folders import wanted_for
from allotment.service.launch import Account
from allotment.service.workspaces import Workspaces
from allotment.wire.config import read_config
from tests.support.builders import a_job
from tests.support.kube_world import World
from tests.support.world import World as Service

CONFIG = b"""\
nodes: [{name: n1, cpu: 64, memory: 512GiB, gpu: {type: V100, count: 8}}]
tenants: {lab: {guaranteed: {gpu: 8}}}
"""


@pytest.mark.parametrize("volumes", [(), (("/shared", "host"),)])
def test_only_pods_with_volumes_have_folders_that_the_service_makes_and_looks_into(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, volumes: tuple[tuple[str, str], ...]
) -> None:
    """Of each task that begins, and again and again of each that runs, a disk was asked."""
    root = tmp_path / "state"
    root.mkdir()
    world = World(tmp_path, volumes=volumes)
    monkeypatch.setattr(client_of, "Http", world.api.opened)
    service = Service(read_config(CONFIG, source="c.yaml", machine=None)[0])
    service.do(c.SubmitJob(a_job().gpus(1).of("lab").spec()), Actor("root", 0))
    service.cycle()
    service.runs(JobId(1))
    job = service.state.jobs[JobId(1)]
    own = HostWorkspace(str(root))

    async def story() -> int:
        async with world.service() as backend:
            workspaces = Workspaces(service.state, backend, own)
            workspace = workspaces.of(job)
            nodes = service.state.cluster.nodes
            wanted = wanted_for(job, workspace.folders, Account("root", "/root"), nodes)
            await workspace.prepare(["n1"], wanted)
            for folders in (own.folders, workspace.folders):
                file = Path(folders.progress_file(job.id, job.spec))
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text('{"step": 1}')
            files = JobFiles(
                workspaces,
                lambda folders, job: folders.progress_file(job.id, job.spec),
                100,
                service.state.wall,
            )
            assert workspaces.node_of(job) == ("" if volumes else "n1")
            assert bool(workspaces.spread_of(job.attempts[-1]))
            return len(await files.look(service.state))

    assert asyncio.run(story()) == len(volumes)
    assert (root / "outputs").exists() is bool(volumes)
