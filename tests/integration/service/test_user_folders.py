"""A service of the superuser makes the folders a job names with its user's rights alone."""

import asyncio
import os
import stat
from pathlib import Path

import pytest

from allotment.model import commands as c
from allotment.model.errors import Rejected
from allotment.model.ids import Actor
from allotment.model.lifecycle import JobState as S
from allotment.model.spec import Checkpoint, JobSpec
from tests.integration.service.test_service import a_script, running, until

NOBODY = Actor("nobody", 65534)

pytestmark = pytest.mark.needs_root


@pytest.fixture(autouse=True)
def owned(reachable: Path) -> None:
    """Folders of the superuser's own, and one of the user's."""
    (reachable / "state").mkdir(mode=0o755)
    (reachable / "closed").mkdir(mode=0o755)
    mine = reachable / "mine"
    mine.mkdir()
    os.chown(mine, 65534, 65534)


def with_checkpoints(folder: Path) -> JobSpec:
    return a_script("fake 0 exit 3", checkpoint=Checkpoint(dir=str(folder)))


def test_a_checkpoint_folder_where_the_user_may_not_write_is_refused(reachable: Path) -> None:
    async def story() -> None:
        async with running(reachable / "state") as service:
            for where in (reachable / "closed", reachable / "closed" / "a" / "b"):
                with pytest.raises(Rejected, match=r"checkpoint.dir: .*closed.*write there"):
                    await service.submit(c.SubmitJob(with_checkpoints(where)), NOBODY)
            made = await service.submit(
                c.SubmitJob(with_checkpoints(reachable / "mine" / "a" / "b")), NOBODY
            )
            await until(lambda: service.job(made.id, NOBODY).state is S.FAILED)
        found = (reachable / "mine" / "a" / "b").stat()
        assert (found.st_uid, found.st_gid) == (65534, 65534)
        assert not list((reachable / "closed").iterdir())

    asyncio.run(story())


def test_a_folder_swapped_for_a_link_after_the_check_leads_nowhere(reachable: Path) -> None:
    """The check at submission is for people; what protects is with whose rights it is made."""

    async def story() -> None:
        async with running(reachable / "state") as service:
            spec = with_checkpoints(reachable / "mine" / "a" / "b")
            held = await service.submit(c.SubmitJob(spec, held=True), NOBODY)
            (reachable / "mine" / "a").symlink_to(reachable / "closed")
            await service.act(c.ReleaseJob(held.id), NOBODY)
            job = service.state.jobs[held.id]
            await until(lambda: bool(job.attempts) and bool(job.attempts[0].ended_at))
            diagnosis = job.attempts[0].diagnosis
            assert diagnosis is not None
            assert "permission denied" in diagnosis.evidence
        assert not list((reachable / "closed").iterdir())

    asyncio.run(story())


def test_folders_of_our_own_belong_to_the_user(reachable: Path) -> None:
    async def story() -> None:
        async with running(reachable / "state") as service:
            made = await service.submit(c.SubmitJob(a_script("fake")), NOBODY)
            await until(lambda: service.job(made.id, NOBODY).state is S.SUCCEEDED)
        for path in (
            f"outputs/{made.id}",
            f"outputs/{made.id}/attempt-1",
            f"checkpoints/{made.id}",
        ):
            found = (reachable / "state" / path).stat()
            assert (found.st_uid, stat.S_IMODE(found.st_mode)) == (65534, 0o755), path

    asyncio.run(story())
