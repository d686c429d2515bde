"""Folders that do not answer hold up the jobs that named them, and nobody else."""

import asyncio
from pathlib import Path

import pytest

from allotment.model import commands as c
from allotment.model.errors import Code, Rejected
from allotment.model.lifecycle import JobState as S
from allotment.model.spec import Checkpoint
from allotment.service import folders, host_workspace, job_files
from allotment.service.service import Service
from tests.integration.service.test_service import ME, a_report, a_script, running, until
from tests.support.patience import PATIENCE_S
from tests.support.silent import silenced

pytestmark = pytest.mark.may_skip("needs root and FUSE, to have a file system of that kind")


def state_of(folder: Path) -> Path:
    state = folder / "state"
    state.mkdir()
    return state


async def all_goes_on(service: Service) -> None:
    """Another job comes, runs and ends, as quickly as ever."""
    async with asyncio.timeout(PATIENCE_S):
        made = await service.submit(c.SubmitJob(a_script("fake", tenant="nlp")), ME)
        await until(lambda: service.job(made.id, ME).state is S.SUCCEEDED)


def test_a_job_whose_data_do_not_answer_is_refused_in_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folders, "PATIENCE_S", 1.0)
    data = tmp_path / "data"
    data.mkdir()

    async def story() -> None:
        async with running(state_of(tmp_path)) as service:
            with silenced(data):
                spec = a_script("fake", data_dir=str(data / "train"))
                asked = asyncio.create_task(service.submit(c.SubmitJob(spec), ME))
                await all_goes_on(service)
                with pytest.raises(Rejected, match="did not answer within 1 s") as refused:
                    await asked
                assert refused.value.code is Code.PATH_UNUSABLE

    asyncio.run(story())


def test_a_key_makes_one_job_however_long_paths_are_looked_at(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()

    async def story() -> None:
        async with running(state_of(tmp_path)) as service:
            spec = a_script("fake", data_dir=str(data))
            made = await asyncio.gather(
                *(service.submit(c.SubmitJob(spec, key="k"), ME) for _ in range(4))
            )
            assert len({each.id for each in made}) == 1
            assert sum(not each.repeated for each in made) == 1

    asyncio.run(story())


def test_a_job_whose_output_folder_falls_silent_does_not_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host_workspace, "MAKE_S", 1.0)
    out = tmp_path / "out"
    out.mkdir()

    async def story() -> None:
        async with running(state_of(tmp_path)) as service:
            spec = a_script("fake", output_dir=str(out))
            made = await service.submit(c.SubmitJob(spec, held=True), ME)
            with silenced(out):
                await service.act(c.ReleaseJob(made.id), ME)
                job = service.state.jobs[made.id]
                await until(lambda: bool(job.attempts))
                await all_goes_on(service)
                await until(lambda: bool(job.attempts[0].ended_at))
                diagnosis = job.attempts[0].diagnosis
                assert diagnosis is not None
                assert f"{out} does not answer" in diagnosis.evidence

    asyncio.run(story())


def test_a_checkpoint_folder_that_falls_silent_delays_its_own_job_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host_workspace, "LAST_S", 1.0)
    monkeypatch.setattr(job_files, "LOOK_S", 0.1)
    mine, other = tmp_path / "mine", tmp_path / "other"
    mine.mkdir()
    other.mkdir()
    monkeypatch.setattr(job_files, "_place_of", lambda file: str(Path(file).parent))

    async def story() -> None:
        async with running(state_of(tmp_path)) as service:
            jobs = [
                service.state.jobs[
                    (
                        await service.submit(
                            c.SubmitJob(
                                a_script(script, checkpoint=Checkpoint(dir=str(folder)))
                            ),
                            ME,
                        )
                    ).id
                ]
                for script, folder in (("fake 2", mine), ("fake forever", other))
            ]
            await until(lambda: all(job.state is S.RUNNING for job in jobs))
            with silenced(mine):
                await all_goes_on(service)
                (other / ".allot-checkpoint.json").write_bytes(a_report(step=3))
                await until(lambda: jobs[1].checkpoint is not None)
                await until(lambda: jobs[0].state is S.SUCCEEDED)
                assert jobs[0].checkpoint is None

    asyncio.run(story())
