"""Datasets as the service offers them, where requests meet each other."""

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from allotment.model import commands as c
from allotment.model.data_use import DataUse
from allotment.model.datasets import DataKind, Dataset
from allotment.model.engines import ANY_ENGINE, Ability
from allotment.model.errors import Code, Rejected
from allotment.model.ids import Actor
from allotment.model.spec import Mpi
from allotment.rights import disk
from allotment.service.content.manifest import FileEntry, digest_of, written
from allotment.service.content.receiving import UNSAID
from allotment.service.data import links
from allotment.service.data.datasets import Datasets
from allotment.service.data.using import DataUses, NotUsable
from allotment.service.data.view import DataNote, DataWanted, GrantNote
from allotment.service.launch import Folders
from tests.support.builders import ALICE, a_config, a_job, a_tenant
from tests.support.world import World

BEN = Actor("ben", 1002, ("vision",))


class Stage:
    """Datasets of a tenant, without a service around them."""

    def __init__(self, folder: Path) -> None:
        self.world = World(a_config(a_tenant("vision")))
        self.datasets = Datasets(self.world.state, str(folder), self._wish)
        self.datasets.store.prepare()

    async def _wish(self, command: c.AnyCommand, actor: Actor) -> object:
        return self.world.do(command, actor)

    @property
    def words(self) -> Dataset:
        return self.world.state.datasets["vision", "words"]

    async def create(self, actor: Actor = ALICE) -> None:
        await self.datasets.create(DataNote("words"), "vision", actor)

    async def send(self, *files: bytes) -> None:
        receiving = await self.datasets.receiving("words", ALICE)
        for data in files:
            await self.datasets.feed(receiving, [framed(data)], ALICE)

    async def put(self, *files: bytes) -> DataWanted:
        await self.send(*files)
        return await self.datasets.put("words", a_list(*files), ALICE)

    def turn(self) -> asyncio.Lock:
        return self.datasets._turn(self.words)  # pyright: ignore[reportPrivateUsage]


def framed(data: bytes) -> bytes:
    return bytes.fromhex(UNSAID) + len(data).to_bytes(8, "big") + data


def a_list(*files: bytes) -> bytes:
    return written(
        FileEntry(f"f{number}", "f", len(data), digest_of(data))
        for number, data in enumerate(files)
    )


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


def run(work: Callable[[], Coroutine[None, None, None]]) -> None:
    asyncio.run(asyncio.wait_for(work(), 60))


async def refusal(work: Awaitable[object]) -> Code:
    with pytest.raises(Rejected) as refused:
        await work
    return refused.value.code


async def waiting(stage: Stage, work: Coroutine[None, None, object]) -> asyncio.Task[object]:
    """Begin something; return when it waits for the dataset's turn, which the test has."""
    task = asyncio.create_task(work)
    while not stage.turn()._waiters:  # type: ignore[attr-defined]  # pyright: ignore
        assert not task.done()
        await asyncio.sleep(0)
    return task


def make_old(folder: Path) -> None:
    long_ago = time.time() - 100_000
    for path in folder.rglob("*"):
        os.utime(path, (long_ago, long_ago), follow_symlinks=False)


def test_a_sweep_knows_the_versions_of_now(stage: Stage, tmp_path: Path) -> None:
    async def work() -> None:
        await stage.create()
        before = stage.words
        await stage.put(b"one")
        make_old(tmp_path)
        await stage.datasets._sweep_one(before, 1000)  # pyright: ignore[reportPrivateUsage]
        assert stage.datasets.store.tree(before.id, stage.words.versions[0].digest).is_dir()

    run(work)


def test_what_waited_does_nothing_to_another_dataset_of_that_name(stage: Stage) -> None:
    async def work() -> None:
        await stage.create()
        await stage.send(b"one")
        async with stage.turn():
            put = await waiting(stage, stage.datasets.put("words", a_list(b"one"), ALICE))
            stage.world.do(c.RemoveData("vision", "words", 0))
            await stage.create(ALICE)
        assert await refusal(put) is Code.DATA_MISSING
        async with stage.turn():
            removing = await waiting(stage, stage.datasets.remove("words", ALICE))
            stage.world.do(c.RemoveData("vision", "words", 0))
            await stage.create(BEN)
        assert await refusal(removing) in (Code.DATA_MISSING, Code.FORBIDDEN)
        assert (stage.words.user, stage.words.versions) == ("ben", ())

    run(work)


def test_nothing_comes_into_a_dataset_that_was_removed(stage: Stage, tmp_path: Path) -> None:
    async def work() -> None:
        await stage.create()
        receiving = await stage.datasets.receiving("words", ALICE)
        await stage.datasets.feed(receiving, [framed(b"one")], ALICE)
        await stage.datasets.remove("words", ALICE)
        sent = stage.datasets.feed(receiving, [framed(b"two")], ALICE)
        assert await refusal(sent) is Code.DATA_MISSING
        receiving.close()
        assert [path.name for path in (tmp_path / "data").rglob("*")] == ["new"]

    run(work)


def test_files_that_are_not_in_the_store_are_named_and_come_back(stage: Stage) -> None:
    async def work() -> None:
        await stage.create()
        await stage.put(b"one")
        stage.datasets.store.remove(stage.words.id)
        assert await refusal(stage.datasets.files("words", ALICE)) is Code.DATA_MISSING
        digest = digest_of(b"one")
        opening = stage.datasets.open_file("words", digest, ALICE)
        assert await refusal(opening) is Code.DATA_MISSING
        await stage.put(b"one")
        assert [each.number for each in stage.words.versions] == [1]
        await (await stage.datasets.open_file("words", digest, ALICE)).close()

    run(work)


def test_a_disk_that_is_nearly_full_takes_no_more(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work() -> None:
        await stage.create()
        monkeypatch.setattr(disk, "LEFT_FREE", 1)
        monkeypatch.setattr(disk, "MOST_LEFT_FREE", 1 << 60)
        assert await refusal(stage.send(b"one")) is Code.UNAVAILABLE

    run(work)


def test_a_folder_of_that_name_is_not_what_a_job_waited_for(stage: Stage) -> None:
    async def work() -> None:
        await stage.create()
        await stage.put(b"one")
        uses = DataUses(stage.world.state, stage.datasets, cast("Any", None), cast("Any", None))
        digest = stage.words.versions[0].digest
        used = (DataUse("vision", "words", 1, "/data/w", digest=digest),)
        spec = msgspec.structs.replace(a_job().spec(), data=used)
        stage.world.do(c.SubmitJob(spec), BEN)
        job = next(iter(stage.world.state.jobs.values()))
        here = Folders("/s")
        assert [mount.at for mount in uses.mounts_of(job, here)] == ["/data/w"]
        stage.world.do(c.RemoveData("vision", "words", 0))
        stage.world.do(c.CreateDataset("vision", "words", "other", "/srv/words"))
        with pytest.raises(NotUsable, match="was removed since the job was submitted"):
            uses.mounts_of(job, here)

    run(work)


@pytest.mark.parametrize("kind", [DataKind.MANAGED, DataKind.OBJECTS])
def test_who_cannot_write_is_told_how_outputs_become_a_version(
    stage: Stage, kind: DataKind
) -> None:
    async def work() -> None:
        await stage.create()
        uses = DataUses(stage.world.state, stage.datasets, cast("Any", None), cast("Any", None))
        words = msgspec.structs.replace(stage.words, kind=kind)
        with pytest.raises(Rejected) as caught:
            uses._check_write(words, ALICE)  # pyright: ignore[reportPrivateUsage]
        assert "`save: vision/words` makes outputs its next version" in caught.value.hint

    run(work)


def test_what_would_be_mounted_is_said(stage: Stage) -> None:
    async def work() -> None:
        await stage.create()
        await stage.put(b"one")
        uses = DataUses(stage.world.state, stage.datasets, cast("Any", None), cast("Any", None))
        used = (DataUse("vision", "words", 1, "/data/w"),)
        spec = msgspec.structs.replace(a_job().spec(), data=used)
        told = "data: vision/words@1 (1 file, 3 B) would be mounted at /data/w, read-only"
        assert uses.expected(spec) == (told,)

    run(work)


class Engine:
    """An engine that mounts datasets, or says why it does not."""

    abilities = frozenset({Ability.DATASETS, Ability.FOLDERS})

    def __init__(self, why: str = "") -> None:
        self._why = why

    async def why_no_mounts(self, _mounts: object) -> str:
        return self._why


class WithRights:
    """An engine that shows folders to tasks with the rights of their user."""

    abilities = frozenset({Ability.FOLDERS})


class WithLinks(WithRights):
    """The same, for versions too."""

    abilities = frozenset({Ability.DATASETS, Ability.FOLDERS})


class Engines:
    """Several engines."""

    def __init__(self, **engines: Engine | WithRights) -> None:
        self._engines = engines

    def engines_for(self, engine: str) -> Mapping[str, Engine | WithRights]:
        found = self._engines.get(engine)
        return {engine: found} if found is not None else self._engines


async def engine_of(
    stage: Stage, backend: Engines, engine: str = "", name: str = "words", mpi: Mpi = Mpi.NONE
) -> str:
    """Return the engine to which a job with a dataset is bound."""
    uses = DataUses(stage.world.state, stage.datasets, cast("Any", backend), cast("Any", None))
    used = (DataUse("vision", name, 0, "/data/w"),)
    spec = a_job().spec()
    spec = msgspec.structs.replace(spec, data=used, image="i", engine=engine, mpi=mpi)
    return (await uses.settled(spec, ALICE)).engine


def test_a_job_runs_where_what_it_uses_can_be_mounted(stage: Stage) -> None:
    async def work() -> None:
        await stage.create()
        await stage.put(b"one")
        pods = Engine("No pod can be shown the data.")
        assert await engine_of(stage, Engines(here=Engine(), there=Engine())) == ""
        two = Engines(here=Engine(), pods=pods)
        assert await engine_of(stage, two) == "here"
        assert await engine_of(stage, two, ANY_ENGINE) == "here"
        assert await engine_of(stage, two, "here") == "here"
        with pytest.raises(Rejected, match="No pod can be shown the data"):
            await engine_of(stage, two, "pods")
        with pytest.raises(Rejected, match="pods: No pod can be shown the data") as refused:
            await engine_of(stage, Engines(here=Engine(), pods=pods, there=Engine()))
        assert "here or there" in refused.value.hint

    run(work)


def test_a_job_runs_where_a_folder_is_shown_to_all_its_ranks(stage: Stage) -> None:
    async def work() -> None:
        note = DataNote("nfs", folder="/usr")
        await stage.datasets.create(note, "vision", Actor("root", 0))
        await stage.datasets.grant("nfs", GrantNote(user="alice"), Actor("root", 0))

        async def bound(backend: Engines, engine: str = "") -> str:
            return await engine_of(stage, backend, engine, "nfs", Mpi.MPIRUN)

        both = Engines(jobs=WithRights(), held=Engine())
        assert await bound(both) == "held"
        assert await bound(both, "held") == "held"
        for alone in ("jobs", ""):
            with pytest.raises(Rejected, match="ranks that mpirun starts") as refused:
                await bound(Engines(jobs=WithRights()), alone)
            assert "mpi: pmix" in refused.value.hint
        with pytest.raises(Rejected, match="jobs: On this engine the ranks") as refused:
            await bound(Engines(jobs=WithRights(), held=Engine(), more=Engine()))
        assert "held or more" in refused.value.hint

    run(work)


def test_versions_bind_no_job_to_an_engine_that_has_only_folders(stage: Stage) -> None:
    async def work() -> None:
        await stage.create()
        await stage.put(b"one")
        pods = Engine("No pod can be shown the data.")
        both = Engines(jobs=WithRights(), pods=pods)
        with pytest.raises(Rejected, match="No pod can be shown the data"):
            await engine_of(stage, both)
        assert await engine_of(stage, Engines(jobs=WithRights(), pods=pods, held=Engine())) == (
            "held"
        )

    run(work)


def test_versions_are_linked_for_an_engine_that_opens_them_as_their_user(stage: Stage) -> None:
    async def work() -> None:
        await stage.create()
        await stage.put(b"one")
        stage.datasets.links.prepare()
        alone = Engines(jobs=WithLinks())
        uses = DataUses(
            stage.world.state, stage.datasets, cast("Any", alone), cast("Any", None)
        )
        used = (DataUse("vision", "words", 0, "/data/w"),)
        spec = msgspec.structs.replace(a_job().spec(), data=used, image="i")
        settled = await uses.settled(spec, ALICE)
        assert settled.data[0].fetched, "a start may take longer"
        assert "would be linked for the job, and mounted" in uses.expected(settled)[0]
        assert await engine_of(stage, Engines(jobs=WithLinks(), held=Engine())) == ""
        with pytest.raises(Rejected, match="ranks that mpirun starts"):
            await engine_of(stage, alone, mpi=Mpi.MPIRUN)

    run(work)


def test_versions_are_refused_where_users_could_keep_links(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "protected").write_text("0\n")
    monkeypatch.setattr(links, "PROTECTED", tmp_path / "protected")

    async def work() -> None:
        await stage.create()
        await stage.put(b"one")
        with pytest.raises(Rejected, match=r"fs\.protected_hardlinks is 0") as refused:
            await engine_of(stage, Engines(jobs=WithLinks()))
        assert "sysctl" in refused.value.hint
        assert await engine_of(stage, Engines(jobs=WithLinks(), held=Engine())) == "held"

    run(work)
