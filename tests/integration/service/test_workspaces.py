"""Files of a job are where its engine has them: the service asks there, and nowhere else."""

import asyncio
from pathlib import Path

from allotment.model import commands as c
from allotment.model.lifecycle import JobState as S
from allotment.service.host_workspace import HostWorkspace
from allotment.service.workspace import Workspace
from tests.integration.service.test_service import ME, a_report, a_script, running, until
from tests.support.fake_backend import FakeBackend


class Apart(FakeBackend):
    """An engine whose nodes have a disk that is not the service's."""

    def __init__(self, disk: Path) -> None:
        super().__init__()
        self.disk = HostWorkspace(str(disk))

    def workspace_of(self, node: str) -> Workspace:  # noqa: ARG002 - all have the same
        return self.disk


def test_what_a_job_leaves_and_reports_is_asked_of_its_engine(tmp_path: Path) -> None:
    disk, state = tmp_path / "disk", tmp_path / "state"
    disk.mkdir()
    state.mkdir()

    async def story() -> None:
        async with running(state, Apart(disk)) as service:
            made = await service.submit(c.SubmitJob(a_script("fake forever")), ME)
            job = service.state.jobs[made.id]
            await until(lambda: job.state is S.RUNNING)
            assert service.job(job.id, ME).output_dir == f"{disk}/outputs/{job.id}"
            (disk / f"outputs/{job.id}/attempt-1/model.pt").write_text("weights")
            reports = disk / f"checkpoints/{job.id}"
            (reports / f".allot-progress-{job.id}.json").write_text('{"step": 7}\n')
            (reports / ".allot-checkpoint.json").write_bytes(a_report(step=5))
            await until(lambda: job.checkpoint is not None and job.checkpoint.step == 5)
            await service.pipeline.progress.look(service.state)
            progress = service.job(job.id, ME).progress
            assert progress is not None
            assert progress.step == 7
            page = await service.output.files(job.id, ME, 0, 10)
            assert [file.path for file in page.items] == ["model.pt"]
            file = await service.output.open_file(job.id, 1, "model.pt", ME)
            assert await file.read(100) == b"weights"
            await file.close()
        assert not list(state.glob("outputs/*")), "the service's own disk was used"
        assert not list(state.glob("checkpoints/*"))

    asyncio.run(story())


def test_a_path_on_a_disk_that_only_nodes_see_is_not_looked_for_here(tmp_path: Path) -> None:
    async def story() -> None:
        async with running(tmp_path, Apart(tmp_path)) as service:
            spec = a_script("fake", data_dir="/nowhere/here/data")
            made = await service.submit(c.SubmitJob(spec), ME)
            await until(lambda: service.job(made.id, ME).state is S.SUCCEEDED)

    asyncio.run(story())
