"""A service of the superuser, and users who change what is looked at on their behalf."""

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from allotment.model import commands as c
from allotment.model.errors import Rejected
from allotment.model.ids import Actor, JobId
from allotment.model.lifecycle import JobState as S
from allotment.model.spec import Checkpoint, JobSpec
from allotment.service.service import Service
from tests.integration.service.test_service import a_report, a_script, running, until
from tests.support.exchange import TRIES, exchanging, owned, written

VICTIM, MALLORY, ROOT = Actor("victim", 64001), Actor("mallory", 64002), Actor("root", 0)
SECRET = "for the victim alone"

pytestmark = pytest.mark.needs_root


@pytest.fixture
def home(reachable: Path) -> Path:
    """The attacker's folder, beside a victim's closed home with an open folder in it."""
    (reachable / "state").mkdir(mode=0o711)
    closed = owned(reachable / "victim", 64001, 0o700)
    written(owned(closed / "files", 64001) / "secret", SECRET, 64001)
    return owned(reachable / "mallory", 64002)


async def finished(service: Service, spec: JobSpec) -> JobId:
    made = await service.submit(c.SubmitJob(spec), MALLORY)
    await until(lambda: service.job(made.id, MALLORY).state is S.SUCCEEDED)
    return made.id


def in_a_service(folder: Path, story: Callable[[Service], Coroutine[Any, Any, None]]) -> None:
    async def told() -> None:
        async with running(folder) as service:
            await story(service)

    asyncio.run(told())


def test_outputs_exchanged_for_a_link_list_and_give_nothing_of_others(home: Path) -> None:
    """Neither to their owner nor to the superuser, who looks with the owner's rights."""

    async def story(service: Service) -> None:
        job = await finished(service, a_script("fake", output_dir=str(home)))
        top = home / str(job) / "attempt-1"
        written(owned(top / "sub", 64002) / "mine", "", 64002)
        (top / "link").symlink_to(home.parent / "victim" / "files")
        with exchanging(top / "sub", top / "link", 64002):
            await look(service, job)

    async def look(service: Service, job: JobId) -> None:
        for number in range(TRIES):
            actor = (MALLORY, ROOT)[number % 2]
            page = await service.output.files(job, actor, 0, 100)
            assert {file.path for file in page.items} <= {"sub/mine", "link/mine"}
            for name in ("sub/secret", "link/secret"):
                with pytest.raises(Rejected):
                    await (await service.output.open_file(job, 1, name, actor)).close()

    in_a_service(home.parent / "state", story)


def test_an_output_folder_exchanged_for_a_link_is_none(home: Path) -> None:
    async def story(service: Service) -> None:
        job = await finished(service, a_script("fake", output_dir=str(home)))
        top = home / str(job) / "attempt-1"
        written(top / "mine", "", 64002)
        (home / "link").symlink_to(home.parent / "victim" / "files")
        with exchanging(top, home / "link", 64002):
            await look(service, job)

    async def look(service: Service, job: JobId) -> None:
        for number in range(TRIES):
            actor = (MALLORY, ROOT)[number % 2]
            page = await service.output.files(job, actor, 0, 100)
            assert {file.path for file in page.items} <= {"mine"}
            with pytest.raises(Rejected):
                await (await service.output.open_file(job, 1, "secret", actor)).close()

    in_a_service(home.parent / "state", story)


def test_what_is_readable_only_to_root_is_not_read_by_root_for_others(home: Path) -> None:
    async def story(service: Service) -> None:
        job = await finished(service, a_script("fake", output_dir=str(home)))
        top = home / str(job) / "attempt-1"
        written(top / "closed", SECRET, 0, 0o600)
        (top / "shut").mkdir(mode=0o700)
        (top / "shut" / "file").write_text(SECRET)
        for actor in (MALLORY, ROOT):
            page = await service.output.files(job, actor, 0, 100)
            assert [file.path for file in page.items] == ["closed"]
            for name in ("closed", "shut/file"):
                with pytest.raises(Rejected, match="may not read"):
                    await service.output.open_file(job, 1, name, actor)

    in_a_service(home.parent / "state", story)


def test_a_submission_tells_nothing_about_folders_of_others(home: Path) -> None:
    """The same answer, whether there is something or not."""
    there = home.parent / "victim" / "files" / "secret"
    answers: dict[str, set[str]] = {}

    async def story(service: Service) -> None:
        for name in ("secret", "nothing"):
            path = str(there.with_name(name))
            for field in ("data_dir", "code_dir", "workdir", "output_dir", "checkpoint"):
                value: Any = Checkpoint(dir=path) if field == "checkpoint" else path
                spec = a_script("fake", **{field: value})
                with pytest.raises(Rejected) as refused:
                    await service.submit(c.SubmitJob(spec), MALLORY)
                said = str(refused.value).replace(name, "NAME")
                answers.setdefault(field, set()).add(said)

    in_a_service(home.parent / "state", story)
    for field, said in answers.items():
        assert len(said) == 1, (field, said)
    assert f"may not pass through {home.parent}/victim" in answers["data_dir"].pop()


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("/", "has /proc in it, which would become read-only; name a folder below it"),
        ("link", "has /proc in it"),
        ("/proc", "lies in /proc, of which every task has its own"),
        ("/sys/fs", "lies in /sys"),
        ("/dev/shm", "lies in /dev"),
        ("state", "you may not read it"),
        ("state/run", "belongs to the service alone"),
        ("proc", "too many levels of symbolic links"),
    ],
)
def test_what_the_system_needs_is_refused_as_data(home: Path, path: str, why: str) -> None:
    state = home.parent / "state"
    (state / "run").mkdir(mode=0o755)
    (home / "link").symlink_to("/")
    (home / "proc").symlink_to("/proc/self/root")
    if not path.startswith("/"):
        path = str(home.parent / path if path.startswith("state") else home / path)

    async def story(service: Service) -> None:
        for spec in (a_script("fake", data_dir=path), a_script("fake", code_dir=path)):
            with pytest.raises(Rejected, match=why):
                await service.submit(c.SubmitJob(spec), MALLORY)
        if path.startswith(str(state)):
            with pytest.raises(Rejected):
                await service.submit(c.SubmitJob(a_script("fake", workdir=path)), ROOT)

    in_a_service(state, story)


def test_outputs_of_another_job_may_be_data(home: Path) -> None:
    async def story(service: Service) -> None:
        job = await finished(service, a_script("fake"))
        folder = f"{home.parent}/state/outputs/{job}/attempt-1"
        await finished(service, a_script("fake", data_dir=folder))

    in_a_service(home.parent / "state", story)


def test_a_checkpoint_is_read_with_the_rights_of_its_user(home: Path) -> None:
    """Not where the user could not read it himself, though it is his."""
    away = home.parent / "away"
    away.mkdir(mode=0o700)
    written(away / ".allot-checkpoint.json", a_report(step=7).decode(), 64002)

    async def story(service: Service) -> None:
        owned(home / "points", 64002)
        spec = a_script("fake forever", checkpoint=Checkpoint(dir=str(home / "points")))
        made = await service.submit(c.SubmitJob(spec), MALLORY)
        job = service.state.jobs[made.id]
        await until(lambda: job.state is S.RUNNING)
        (home / "points").rename(home / "own")
        (home / "points").symlink_to(away)
        away.joinpath(".allot-checkpoint.json").touch()
        watch = service.pipeline.checkpoints
        for _ in range(3):
            assert await watch.look(service.state) == []
        (home / "points").unlink()
        (home / "own").rename(home / "points")
        written(home / "points" / ".allot-checkpoint.json", a_report(step=3).decode(), 64002)
        await until(lambda: job.checkpoint is not None)
        assert job.checkpoint is not None
        assert job.checkpoint.step == 3

    in_a_service(home.parent / "state", story)
