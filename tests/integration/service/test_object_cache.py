"""What is kept of object stores: whole versions, within a bound, none that a job uses."""

import asyncio
import os
import subprocess
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import msgspec
import pytest

from allotment.engine.records import JobRecord
from allotment.model import commands as c
from allotment.model.data_use import DataUse
from allotment.model.datasets import Dataset
from allotment.model.errors import Code, Rejected
from allotment.model.ids import Actor
from allotment.rights import disk
from allotment.service.content.shelf import BLOCK
from allotment.service.data.objects.cache import Version
from allotment.service.data.objects.objects import EACH
from allotment.service.data.objects.trouble import Kind, StoreTrouble
from allotment.service.data.view import DataNote, ObjectsNote
from tests.support.builders import ALICE, a_job
from tests.support.object_stores import BUCKET, Moto
from tests.unit.service.data.test_datasets import Stage

KIB = 1 << 10


def nobody() -> bool:
    return False


def somebody() -> bool:
    return True


class Node(Stage):
    """Datasets of a tenant on a machine that keeps so much of object stores."""

    def __init__(self, folder: Path, moto: Moto, most: int = 100 * KIB) -> None:
        super().__init__(folder)
        self.moto = moto
        config = self.world.state.config
        limits = msgspec.structs.replace(config.limits, data_cache=most)
        self.world.do(c.ApplyConfig(msgspec.structs.replace(config, limits=limits)))

    def of(self, name: str) -> Dataset:
        return self.world.state.datasets["vision", name]

    async def register(self, name: str, size: int, prefix: str = "") -> None:
        """Put an object of so many bytes, and make a dataset of it."""
        prefix = prefix or f"{name}-{os.urandom(4).hex()}"
        self.moto.put({f"{prefix}/a": bytes(size)})
        note = ObjectsNote(f"s3://{BUCKET}/{prefix}", self.moto.endpoint, profile="")
        await self.datasets.create(DataNote(name, objects=note), "vision", ALICE)

    async def ready(self, name: str, is_wanted: Callable[[], bool] = somebody) -> None:
        dataset = self.of(name)
        digest = dataset.versions[-1].digest
        await self.datasets.objects.ready(dataset, digest, is_wanted)

    def here(self) -> set[str]:
        """Name the datasets that are here."""
        return {
            each.name
            for each in self.world.state.datasets.values()
            if self.datasets.objects.is_here(each, each.versions[-1].digest)
        }

    def files(self) -> int:
        """Count all files that are kept, or on their way."""
        root = self.datasets.store.root
        return sum(1 for path in root.rglob("*") if path.is_file() and "seen" not in path.parts)

    def running(self, name: str) -> JobRecord:
        """Have a job run with a dataset."""
        dataset = self.of(name)
        use = DataUse("vision", name, 1, "/data/w", digest=dataset.versions[-1].digest,
                      fetched=True)  # fmt: skip
        spec = msgspec.structs.replace(a_job().spec(), data=(use,))
        self.world.do(c.SubmitJob(spec), ALICE)
        self.world.cycle()
        job = max(self.world.state.jobs.values(), key=lambda each: each.id)
        assert job.attempt is not None
        return job


@pytest.fixture
def node(tmp_path: Path, moto: Moto) -> Node:
    return Node(tmp_path, moto)


def run(work: Callable[[], Coroutine[None, None, None]]) -> None:
    asyncio.run(asyncio.wait_for(work(), 60))


def test_what_was_used_least_recently_goes(node: Node) -> None:
    async def work() -> None:
        for name in ("one", "two", "three"):
            await node.register(name, 40 * KIB)
        await node.ready("one")
        await node.ready("two")
        _age(node)
        await node.ready("one")
        await node.ready("three")
        assert node.here() == {"one", "three"}
        assert node.files() == 4, "a tree and a file of each, and nothing else"

    run(work)


def _age(node: Node) -> None:
    """Make all that is here an hour older."""
    for each in node.world.state.datasets.values():
        tree = node.datasets.store.tree(each.id, each.versions[-1].digest)
        if tree.exists():
            past = tree.stat().st_mtime - 3600
            os.utime(tree, (past, past))


def test_what_a_job_uses_stays(node: Node) -> None:
    async def work() -> None:
        for name in ("one", "two", "three"):
            await node.register(name, 40 * KIB)
        await node.ready("one")
        _age(node)
        await node.ready("two")
        job = node.running("one")
        await node.ready("three")
        assert node.here() == {"one", "three"}
        other = node.running("three")
        with pytest.raises(StoreTrouble, match="Jobs that run use so much") as caught:
            await node.ready("two")
        assert caught.value.kind is Kind.NO_ROOM
        assert node.here() == {"one", "three"}
        node.world.ends(job.id)
        assert job.attempt is None
        assert other.attempt is not None
        await node.ready("two")
        assert node.here() == {"two", "three"}

    run(work)


def test_a_file_that_did_not_change_is_fetched_once(node: Node) -> None:
    async def work() -> None:
        await node.register("words", 10 * KIB)
        place = node.of("words").objects
        assert place is not None
        await node.ready("words")
        node.moto.put({f"{place.prefix}/b": b"more"})
        await node.datasets.objects.newest(node.of("words"), ALICE)
        node.moto.drop(f"{place.prefix}/a")  # It is here.
        await node.ready("words")
        assert len(node.of("words").versions) == 2
        tree = node.datasets.store.tree(
            node.of("words").id, node.of("words").versions[1].digest
        )
        assert sorted(path.name for path in tree.iterdir()) == ["a", "b"]
        assert (tree / "a").stat().st_nlink == 3, "the file, and a link in each version"

    run(work)


def test_a_file_that_is_wanted_again_does_not_go_with_a_version(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work() -> None:
        await node.register("words", 10 * KIB)
        await node.ready("words")
        words = node.of("words")
        assert words.objects is not None
        node.moto.put({f"{words.objects.prefix}/b": b"more"})
        newest = await node.datasets.objects.newest(words, ALICE)
        objects, waiting = node.datasets.objects, list[asyncio.Task[None]]()
        free, loop = objects.cache.free, asyncio.get_running_loop()
        looked, freed = threading.Event(), threading.Event()
        wanted = objects.cache.wanted

        def freed_late(version: Version, gone: Path, is_needed: Callable[[str], bool]) -> None:
            loop.call_soon_threadsafe(
                lambda: waiting.append(asyncio.create_task(node.ready("words")))
            )
            assert looked.wait(60)
            free(version, gone, is_needed)
            freed.set()

        def looking(version: Version) -> object:
            found = wanted(version)
            looked.set()
            assert freed.wait(60)
            return found

        monkeypatch.setattr(objects.cache, "free", freed_late)
        monkeypatch.setattr(objects.cache, "wanted", looking)
        assert not await objects._evict_until(nobody)  # pyright: ignore[reportPrivateUsage]
        await waiting[0]
        assert objects.is_here(node.of("words"), newest.digest)

    run(work)


def test_a_version_that_could_never_be_here_is_refused(node: Node) -> None:
    async def work() -> None:
        with pytest.raises(Rejected) as caught:
            await node.register("large", 200 * KIB)
        assert caught.value.code is Code.TOO_LARGE
        assert not node.world.state.datasets

    run(work)


def test_a_nearly_full_disk_takes_nothing(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work() -> None:
        await node.register("words", 10 * KIB)
        monkeypatch.setattr(disk, "LEFT_FREE", 1)
        monkeypatch.setattr(disk, "MOST_LEFT_FREE", 1 << 60)
        with pytest.raises(StoreTrouble) as caught:
            await node.ready("words")
        assert caught.value.kind is Kind.NO_ROOM
        assert node.files() == 0

    run(work)


@pytest.mark.needs_root
def test_a_disk_that_is_full_in_the_middle_leaves_nothing(moto: Moto, tmp_path: Path) -> None:
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", tmp_path], check=True)
    try:
        node = Node(tmp_path, moto, most=1 << 30)

        async def work() -> None:
            await node.register("words", 300 * KIB)
            monkeypatch = pytest.MonkeyPatch()
            monkeypatch.setattr(disk, "MOST_LEFT_FREE", -(1 << 40))
            try:
                with pytest.raises(StoreTrouble, match="The disk is full") as caught:
                    await node.ready("words")
            finally:
                monkeypatch.undo()
            assert caught.value.kind is Kind.NO_ROOM
            assert node.files() == 0
            assert node.datasets.objects.cache.room.reserve((1 << 30) - 64 * KIB)

        run(work)
    finally:
        subprocess.run(["umount", tmp_path], check=True)


def test_what_changed_before_it_was_fetched_is_told(node: Node) -> None:
    async def work() -> None:
        await node.register("words", 10 * KIB)
        place = node.of("words").objects
        assert place is not None
        node.moto.put({f"{place.prefix}/a": b"other"})
        with pytest.raises(StoreTrouble) as caught:
            await node.ready("words")
        assert caught.value.kind is Kind.CHANGED
        node.moto.drop(f"{place.prefix}/a")
        with pytest.raises(StoreTrouble) as caught:
            await node.ready("words")
        assert caught.value.kind is Kind.GONE
        assert node.here() == set()
        assert node.files() == 0

    run(work)


def test_many_that_wait_fetch_once(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work() -> None:
        await node.register("words", 10 * KIB)
        begun: list[object] = []
        fetch = node.datasets.objects.cache.fetch
        monkeypatch.setattr(
            node.datasets.objects.cache, "fetch", lambda *x: (begun.append(x), fetch(*x))
        )
        await asyncio.gather(*(node.ready("words") for _ in range(20)))
        assert len(begun) == 1
        assert node.here() == {"words"}

    run(work)


def test_what_waits_for_its_turn_takes_no_room(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go = threading.Semaphore(0), threading.Semaphore(0)
    fetch = node.datasets.objects.cache.fetch

    def held(*words: Any) -> None:
        begun.release()
        assert go.acquire(timeout=60)
        fetch(*words)

    async def work() -> None:
        names = ("one", "two", "three")
        for name in names:
            await node.register(name, 40 * KIB)
        monkeypatch.setattr(node.datasets.objects.cache, "fetch", held)
        waiting = [asyncio.create_task(node.ready(name)) for name in names]
        for _ in range(EACH):
            await asyncio.to_thread(begun.acquire)
        go.release()
        await asyncio.to_thread(begun.acquire)
        go.release(2)
        await asyncio.gather(*waiting)
        assert len(node.here()) == 2, "all were here, and there is room for two"

    run(work)


def test_what_nobody_waits_for_any_more_is_not_fetched(node: Node) -> None:
    async def work() -> None:
        await node.register("words", 10 * KIB)
        await node.ready("words", nobody)
        assert node.here() == set()
        await node.ready("words")
        assert node.here() == {"words"}

    run(work)


def test_books_of_a_backup_know_no_list(node: Node) -> None:
    async def work() -> None:
        await node.register("words", 10 * KIB)
        for path in (node.datasets.store.root / node.of("words").id).rglob("*"):
            if path.is_file():
                path.unlink()
        with pytest.raises(StoreTrouble, match="not known any more"):
            await node.ready("words")

    run(work)


def test_a_removed_dataset_leaves_nothing(node: Node) -> None:
    async def work() -> None:
        await node.register("words", 10 * KIB)
        await node.ready("words")
        await node.datasets.remove("words", ALICE)
        assert node.files() == 0
        assert [path.name for path in node.datasets.store.root.iterdir()] == ["new"]

    run(work)


def test_one_that_is_removed_while_it_is_looked_at_is_not_there(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work() -> None:
        await node.register("words", 1)
        dataset = node.of("words")
        assert dataset.objects is not None
        node.moto.put({f"{dataset.objects.prefix}/b": "new"})
        wish = node.datasets.objects._wish  # pyright: ignore[reportPrivateUsage]

        async def removed_too(command: c.AnyCommand, actor: Actor) -> object:
            done = await wish(command, actor)
            node.world.do(c.RemoveData("vision", "words", 0))
            return done

        monkeypatch.setattr(node.datasets.objects, "_wish", removed_too)
        with pytest.raises(Rejected) as caught:
            await node.datasets.objects.newest(dataset, ALICE)
        assert caught.value.code is Code.DATA_MISSING

    run(work)


def test_what_is_noted_already_needs_no_room(node: Node) -> None:
    async def work() -> None:
        await node.register("words", 1)
        words = node.of("words")
        assert words.objects is not None
        config = node.world.state.config
        limits = msgspec.structs.replace(config.limits, data_store=BLOCK)
        node.world.do(c.ApplyConfig(msgspec.structs.replace(config, limits=limits)))
        assert (await node.datasets.objects.newest(words, ALICE)).number == 1
        node.moto.put({f"{words.objects.prefix}/b": "new"})
        with pytest.raises(Rejected, match="no room to note another version"):
            await node.datasets.objects.newest(words, ALICE)

    run(work)


def test_a_version_that_is_removed_leaves_what_a_fetch_relies_on(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    laid, go = threading.Event(), threading.Event()
    lay_out = node.datasets.objects.cache.lay_out

    def held(*words: Any) -> None:
        laid.set()
        assert go.wait(60)
        lay_out(*words)

    async def work() -> None:
        await node.register("words", 10 * KIB)
        words = node.of("words")
        assert words.objects is not None
        node.moto.put({f"{words.objects.prefix}/b": "new"})
        newest = await node.datasets.objects.newest(words, ALICE)
        monkeypatch.setattr(node.datasets.objects.cache, "lay_out", held)
        waiting = asyncio.create_task(node.ready("words"))
        assert await asyncio.to_thread(laid.wait, 60)
        for path in node.datasets.store.shelf(words.id).files():
            os.utime(path, (0, 0))  # Nothing came for long: what follows is large.
        await node.datasets.remove("words@1", ALICE)
        go.set()
        await waiting
        assert node.datasets.objects.is_here(node.of("words"), newest.digest)

    run(work)


def test_a_version_that_is_removed_makes_room_for_another(node: Node) -> None:
    async def work() -> None:
        await node.register("words", 10 * KIB)
        words = node.of("words")
        assert words.objects is not None
        seen = node.datasets.store.seen(words.id)
        os.utime(seen.list_file(words.versions[0].digest), (0, 0))
        node.moto.put({f"{words.objects.prefix}/b": "new"})
        newest = await node.datasets.objects.newest(words, ALICE)
        await node.datasets.remove("words@1", ALICE)
        assert [path.name for path in seen.lists()] == [newest.digest]

    run(work)


def test_versions_beyond_the_most_go_by_themselves(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work() -> None:
        monkeypatch.setattr("allotment.engine.datasets.MOST_VERSIONS", 3)
        await node.register("words", 1)
        place = node.of("words").objects
        assert place is not None
        job = node.running("words")
        for number in range(4):
            node.moto.put({f"{place.prefix}/b": str(number)})
            await node.datasets.objects.newest(node.of("words"), ALICE)
        assert [each.number for each in node.of("words").versions] == [1, 4, 5]
        assert job.attempt is not None

    run(work)
