"""Links to versions for attempts, without a service around them."""

import asyncio
import contextlib
import errno
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from allotment.backends.local.runner import libc
from allotment.engine.records import JobRecord
from allotment.model.errors import BackendError, Rejected
from allotment.rights import disk
from allotment.rights.unmounting import unmount
from allotment.service.data.links import DataLinks
from allotment.service.data.store import DataStore
from allotment.service.ports import Identity
from tests.support.builders import a_config, a_job, a_tenant
from tests.support.world import World


class Stage:
    """A version that is laid out, and a job with an attempt."""

    def __init__(self, state: Path) -> None:
        self.world = World(a_config(a_tenant("vision", 4), nodes=1, devices=4))
        self.world.submit(a_job().gpus(1))
        self.world.cycle()
        self.state = state
        self.store = DataStore(state)
        self.store.prepare()
        self.links = DataLinks(self.world.state, self.store)
        self.links.prepare()
        self.tree = self.store.tree("d", "f" * 64)
        (self.tree / "deep/er").mkdir(parents=True)
        for path, mode in (("a", 0o444), ("deep/er/run", 0o555)):
            (self.tree / path).write_text(path)
            (self.tree / path).chmod(mode)
        (self.tree / "deep/link").symlink_to("er/run")

    @property
    def job(self) -> JobRecord:
        (job,) = self.world.state.jobs.values()
        return job

    @property
    def place(self) -> Path:
        return Path(self.links.place(self.job, 3))

    async def make(self, is_wanted: Callable[[], bool] = lambda: True) -> None:
        owner = Identity(65534, 65534, (65534,)) if os.geteuid() == 0 else None
        await self.links.ready(self.job, {3: self.tree}, owner, is_wanted, 60)

    def left(self) -> list[Path]:
        """Return what there is besides versions."""
        return [*(self.state / "data/new").iterdir(), *(self.state / "data-links").iterdir()]


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


def test_an_attempt_sees_the_files_themselves(stage: Stage) -> None:
    asyncio.run(stage.make())
    made = sorted(path.relative_to(stage.place) for path in stage.place.rglob("*"))
    assert made == sorted(path.relative_to(stage.tree) for path in stage.tree.rglob("*"))
    for name in ("a", "deep/er/run"):
        assert (stage.place / name).samefile(stage.tree / name)
    assert (stage.place / "deep/link").readlink() == Path("er/run")
    folders = {stat.S_IMODE((stage.place / name).stat().st_mode) for name in ("", "deep/er")}
    assert folders == {0o755}
    assert stat.S_IMODE(stage.place.parent.stat().st_mode) == 0o700
    assert stage.place.stat().st_uid == os.geteuid(), "a user could move what is the user's"
    assert list(stage.place.parent.iterdir()) == [stage.place]
    before = stage.place.stat().st_ino
    asyncio.run(stage.make())
    assert stage.place.stat().st_ino == before


def test_it_is_gone_once_the_attempt_is_over(stage: Stage) -> None:
    async def work() -> None:
        await stage.make()
        await stage.links.clear()
        assert stage.place.is_dir()
        stage.world.runs(stage.job.id)
        stage.world.ends(stage.job.id)
        await stage.links.clear()

    asyncio.run(work())
    assert stage.left() == []
    assert (stage.tree / "a").stat().st_nlink == 1


@pytest.mark.needs_root
def test_what_is_mounted_on_a_folder_goes_and_keeps_no_other(stage: Stage) -> None:
    """Its user may do that by FUSE, with a file system that lets not even root in."""
    doors = [stage.state / "data-links" / f"7{number}-1" for number in range(5)]
    for door in doors:
        door.mkdir()
    for _ in range(2):
        libc.mount("none", str(doors[2]), "tmpfs", 0)
    again = DataLinks(stage.world.state, stage.store)
    again.prepare()
    try:
        asyncio.run(again.clear())
        assert stage.left() == []
    finally:
        for _ in range(2):
            with contextlib.suppress(OSError):
                unmount(str(doors[2]))


def test_one_that_cannot_be_taken_away_keeps_no_other(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    doors = [stage.state / "data-links" / f"7{number}-1" for number in range(5)]
    for door in doors:
        door.mkdir()
    again = DataLinks(stage.world.state, stage.store)
    again.prepare()
    real = Path.rename

    def rename(path: Path, to: Path) -> None:
        if path == doors[2]:
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))
        real(path, to)

    monkeypatch.setattr(Path, "rename", rename)
    with pytest.raises(OSError, match="Input/output error"):
        asyncio.run(again.look())
    asyncio.run(again.clear())  # Others need room.
    assert list((stage.state / "data-links").iterdir()) == [doors[2]]
    monkeypatch.undo()
    asyncio.run(again.clear())
    assert stage.left() == []


def test_a_service_that_starts_finds_what_one_before_it_made(stage: Stage) -> None:
    asyncio.run(stage.make())
    for name in ("77-1", f"{stage.job.id}-2", f"{stage.job.id}", "-", "other"):
        (stage.state / "data-links" / name).mkdir()
    again = DataLinks(stage.world.state, stage.store)
    again.prepare()
    asyncio.run(again.clear())
    assert stage.left() == [stage.place.parent]


def test_what_is_not_wanted_any_more_leaves_nothing(stage: Stage) -> None:
    asyncio.run(stage.make(lambda: False))
    wanted = iter([True, False])
    asyncio.run(stage.make(lambda: next(wanted, False)))
    assert stage.left() == []


def test_a_version_that_went_meanwhile_is_no_whole_one(stage: Stage) -> None:
    def take_away() -> bool:
        if stage.tree.exists():
            stage.store.take_away("d", stage.tree.name)
        return True

    with pytest.raises(BackendError, match=r"cannot be linked: no such file or directory"):
        asyncio.run(stage.make(take_away))
    assert [path for path in stage.left() if path.parent.name == "data-links"] == []


def test_a_file_with_as_many_links_as_it_may_have_is_copied_once(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(5):
        os.link(stage.tree / "a", stage.tree / f"deep/a{number}")
    real, full = os.link, (stage.tree / "a").stat().st_ino

    def link(source: str, name: str, **more: Any) -> None:
        found = os.stat(source, dir_fd=more.get("src_dir_fd"))
        if found.st_ino == full:
            raise OSError(errno.EMLINK, os.strerror(errno.EMLINK), source)
        real(source, name, **more)

    monkeypatch.setattr(os, "link", link)
    asyncio.run(stage.make())
    made = [stage.place / "a", *(stage.place / f"deep/a{number}" for number in range(5))]
    assert {path.stat().st_ino for path in made}.isdisjoint({full})
    assert len({path.stat().st_ino for path in made}) == 1
    found = made[0].stat()
    assert (found.st_uid, stat.S_IMODE(found.st_mode)) == (os.geteuid(), 0o444)
    assert made[-1].read_text() == "a"


def test_a_disk_that_is_nearly_full_takes_no_links(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk, "LEFT_FREE", 1)
    monkeypatch.setattr(disk, "MOST_LEFT_FREE", 1 << 60)
    with pytest.raises(BackendError, match="the disk is nearly full"):
        asyncio.run(stage.make())
    assert stage.left() == []


def test_a_folder_that_takes_nothing_is_told_when_a_job_is_submitted(stage: Stage) -> None:
    asyncio.run(stage.links.check())
    (stage.state / "data-links").rmdir()
    with pytest.raises(
        Rejected, match=r"cannot be made from .*/data to .*/data-links: no such"
    ):
        asyncio.run(stage.links.check())
    assert list((stage.state / "data/new").iterdir()) == []
