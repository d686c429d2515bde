"""Checkpoints on their way between nodes, each with a real agent's answers about its disk."""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from allotment.backends.local.backend import LocalBackend
from allotment.backends.pilot import carrying, own_disks
from allotment.backends.pilot import file_messages as fm
from allotment.backends.pilot.carrying import REPORT, Checkpoints, NotKept, left_in
from allotment.backends.pilot.link import Link
from allotment.backends.pilot.messages import PROTOCOL, Hello
from allotment.backends.pilot.node_files import NodeFiles
from allotment.backends.pilot.own_disks import NodeDisks
from allotment.model.errors import BackendError
from allotment.model.ids import Actor, AttemptNo, JobId, TaskIndex, TaskKey
from allotment.rights import disk
from allotment.service.workspace import Changed, JobFolders, Watched

# pyright: reportPrivateUsage=false

JOB = JobId(7)
KEY = TaskKey(JOB, AttemptNo(1), TaskIndex(0))


class Wire:
    """A link to an agent that is in this process: what goes over it is packed all the same."""

    hello = Hello(PROTOCOL, "n1", 1, "7", "secret", "session")

    def __init__(self, disk: Path, before: Callable[[fm.FileOp], None]) -> None:
        self._files = NodeFiles(disk, LocalBackend(disk))
        self._before = before

    async def call(self, op: fm.FileOp, kind: Any = None, longer_s: float = 0) -> Any:  # noqa: ARG002
        sent = msgspec.msgpack.decode(msgspec.msgpack.encode(op), type=fm.FileOp)
        self._before(sent)
        answer = msgspec.msgpack.encode(await self._files.do(sent))
        return msgspec.msgpack.decode(answer, type=kind)


class Nodes:
    """Two nodes that have one path for their disks: each is entered by a link to its own."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "disk"
        self.root.mkdir()
        self.kept = Checkpoints(folder / "kept")
        self.running: set[str] = set()
        self.said: list[str] = []
        self.before: Callable[[fm.FileOp], None] = lambda op: self.said.append(
            type(op).__name__
        )
        self.wire = cast("Link", Wire(self.root, lambda op: self.before(op)))
        self.disks = NodeDisks(
            str(self.root),
            lambda node: self.wire,
            self._link,
            self.kept,
            lambda nodes, more: None,
            lambda node, job: node in self.running,
            set[str]().add,
        )
        self.own = self.root / "checkpoints" / str(JOB)
        self.own.mkdir(parents=True)

    async def _link(self, node: str, job: JobId) -> Link:  # noqa: ARG002 - one for all
        return self.wire

    def save(self, step: int, *names: str) -> Changed:
        """Save as a job does; return its report."""
        folder = self.own / f"step-{step}"
        folder.mkdir(exist_ok=True)
        for name in names:
            (folder / name).write_text(f"{name} of {step}")
        report = msgspec.json.encode({"path": str(folder), "step": step})
        (self.own / REPORT).write_bytes(report)
        return Changed(KEY, (self.own / REPORT).stat().st_mtime_ns, report)

    def bring(self, changed: Changed) -> None:
        left = left_in(str(self.own), ("n1",), None, "me")
        asyncio.run(self.kept.bring(JOB, {"n1": self.wire}, left, changed))

    def prepare(self) -> None:
        wanted = JobFolders(JOB, "me", (str(self.own),), (), {})
        asyncio.run(self.disks.prepare(("n1",), wanted))

    def there(self) -> list[str]:
        return sorted(str(p.relative_to(self.own)) for p in self.own.rglob("*") if p.is_file())


@pytest.fixture
def nodes(tmp_path: Path) -> Nodes:
    return Nodes(tmp_path)


def test_a_checkpoint_is_laid_whole_where_it_is_not(nodes: Nodes) -> None:
    nodes.bring(nodes.save(1, "a", "b"))
    for name in ("a", "b"):
        (nodes.own / "step-1" / name).unlink()
    (nodes.own / "half").write_text("of another attempt")
    nodes.prepare()
    assert nodes.there() == [REPORT, "step-1/a", "step-1/b"]
    assert (nodes.own / "step-1/a").read_text() == "a of 1"


def test_nothing_is_sent_where_it_lies_already(nodes: Nodes) -> None:
    nodes.bring(nodes.save(1, "a"))
    nodes.said.clear()
    nodes.prepare()
    assert nodes.said == ["MakeFolders", "ListFiles"]


def test_what_running_tasks_saved_meanwhile_stays(nodes: Nodes) -> None:
    nodes.bring(nodes.save(1, "a"))
    nodes.save(2, "a")
    (nodes.own / "step-1/a").unlink()
    nodes.running.add("n1")
    nodes.prepare()
    assert nodes.there() == [REPORT, "step-2/a"]


def test_only_the_newest_is_kept(nodes: Nodes) -> None:
    for step in (1, 2, 3):
        nodes.bring(nodes.save(step, "a"))
    saved = nodes.kept.of(JOB)
    assert saved is not None
    assert [file.path for file in saved.files] == ["step-3/a"]
    folder = nodes.root.parent / "kept" / str(JOB)
    assert sorted(path.name for path in folder.iterdir()) == sorted(
        ["current.json", saved.version]
    )


@pytest.mark.parametrize("how", ["grows", "goes", "is replaced", "is touched at the end"])
def test_one_that_changes_on_its_way_is_none(nodes: Nodes, how: str) -> None:
    nodes.bring(nodes.save(1, "a"))
    first = nodes.kept.of(JOB)
    changed = nodes.save(2, "a", "b")
    victim = nodes.own / "step-2/b"

    def meddle(op: fm.FileOp) -> None:
        if how == "is touched at the end":
            if isinstance(op, fm.ListFiles) and nodes.said.count("ListFiles"):
                os.utime(victim, (1, 1))
            nodes.said.append(type(op).__name__)
        elif isinstance(op, fm.ReadFile) and op.path.endswith("/a"):
            if how == "grows":
                victim.write_text("longer than before")
            else:
                victim.unlink()
            if how == "is replaced":
                victim.write_text("c of 2")
                os.utime(victim, (1, 1))  # Not within one tick of the clock.

    nodes.said.clear()
    nodes.before = meddle
    with pytest.raises(BackendError):
        nodes.bring(changed)
    assert nodes.kept.of(JOB) == first, "the one before stays"


def test_one_that_is_too_large_is_refused_with_its_size(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(carrying, "LARGEST", 10)
    with pytest.raises(NotKept, match="it has 12 bytes, and 10 are kept at most"):
        nodes.bring(nodes.save(1, "a", "b"))


def test_a_report_counts_once_all_is_here(nodes: Nodes) -> None:
    changed = nodes.save(5, "a")
    watched = Watched(
        KEY, str(nodes.own / REPORT), 65536, 0, 0, Actor("me", None, ()), None, ("n1",)
    )

    async def story() -> None:
        assert await nodes.disks.look("n1", [watched], 5) == []
        assert await nodes.disks.last_look("n1", watched) == [changed]

    asyncio.run(story())
    assert nodes.kept.of(JOB) is not None


def test_one_that_would_fill_the_services_disk_is_not_fetched(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes.bring(nodes.save(1, "a"))
    monkeypatch.setattr(disk, "LEFT_FREE", 1)
    monkeypatch.setattr(disk, "MOST_LEFT_FREE", 1 << 60)
    with pytest.raises(BackendError, match="too full for its 6 bytes in 1 files"):
        nodes.bring(nodes.save(2, "a"))
    saved = nodes.kept.of(JOB)
    assert saved is not None
    assert [file.path for file in saved.files] == ["step-1/a"], "the one before stays"
    assert "ReadFile" not in nodes.said[nodes.said.index("ListFiles", 3) :]


def test_one_that_cannot_be_noted_leaves_no_files(nodes: Nodes) -> None:
    kept = nodes.root.parent / "kept" / str(JOB)
    (kept / "current.json.part").mkdir(parents=True)
    with pytest.raises(BackendError, match="Is a directory"):
        nodes.bring(nodes.save(1, "a"))
    assert [path.name for path in kept.iterdir()] == ["current.json.part"]


@pytest.mark.parametrize("lost", ["the list", "a file"])
def test_no_attempt_begins_without_what_counts_as_saved(nodes: Nodes, lost: str) -> None:
    nodes.bring(nodes.save(1, "a"))
    (nodes.own / "step-1/a").unlink()
    kept = nodes.root.parent / "kept" / str(JOB)
    if lost == "the list":
        (kept / "current.json").unlink()
        (kept / "current.json").mkdir()
    else:
        next(kept.glob("*/step-1/a")).unlink()
    with pytest.raises(BackendError, match="cannot be read"):
        nodes.prepare()


def test_the_one_before_goes_when_the_new_one_is_on_disk(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[list[str], int]] = []
    flush = carrying.flush

    def watched(folder: Path) -> None:
        saved = nodes.kept.of(JOB)
        seen.append(
            ([file.path for file in saved.files] if saved else [], len([*folder.glob("*/")]))
        )
        flush(folder)

    nodes.bring(nodes.save(1, "a"))
    monkeypatch.setattr(carrying, "flush", watched)
    nodes.bring(nodes.save(2, "a"))
    assert seen == [(["step-1/a"], 2), (["step-2/a"], 2)]


def test_a_name_that_is_not_utf8_is_refused_at_once(nodes: Nodes) -> None:
    changed = nodes.save(1, "a")
    (nodes.own / "step-1" / os.fsdecode(b"caf\xe9")).write_text("x")
    with pytest.raises(NotKept, match="not a path that can be kept"):
        nodes.bring(changed)


def watched_of(nodes: Nodes) -> Watched:
    file = str(nodes.own / REPORT)
    return Watched(KEY, file, 65536, 0, 0, Actor("me", None, ()), None, ("n1",))


async def all_else() -> None:
    """Wait until nothing else is under way."""
    while others := asyncio.all_tasks() - {asyncio.current_task()}:
        await asyncio.wait(others)


def test_a_job_that_is_forgotten_while_it_is_fetched_leaves_nothing(nodes: Nodes) -> None:
    nodes.save(5, "a")

    async def story() -> None:
        assert await nodes.disks.look("n1", [watched_of(nodes)], 5) == []
        await asyncio.sleep(0)
        await nodes.disks.forget(JOB)
        await all_else()

    asyncio.run(story())
    assert not (nodes.root.parent / "kept" / str(JOB)).exists()


def test_one_that_never_holds_still_is_fetched_less_and_less_often(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(own_disks, "AGAIN_S", 0.001)
    nodes.save(5, "a")
    victim = nodes.own / "step-5/a"

    def meddle(op: fm.FileOp) -> None:
        if isinstance(op, fm.ReadFile):
            victim.write_text(f"{victim.read_text()}.")

    nodes.before = meddle

    async def story() -> None:
        for _ in range(4):
            assert await nodes.disks.look("n1", [watched_of(nodes)], 5) == []
            await all_else()

    asyncio.run(story())
    assert nodes.disks._pauses[JOB] == pytest.approx(0.016)


@pytest.mark.parametrize(
    "told",
    [
        Changed(TaskKey(JobId(8), AttemptNo(1), TaskIndex(0)), 1, b"{}"),
        Changed(KEY, 1, b"x" * 65537),
        Changed(KEY, 2**63, b"{}"),
    ],
    ids=["another job", "too long", "too late"],
)
def test_a_node_reports_no_more_than_it_is_asked_for(nodes: Nodes, told: Changed) -> None:
    class Lying:
        async def call(self, op: fm.FileOp, kind: object = None) -> list[Changed]:  # noqa: ARG002
            return [told]

    nodes.wire = cast("Link", Lying())
    progress = msgspec.structs.replace(watched_of(nodes), file=str(nodes.own / "progress"))
    assert asyncio.run(nodes.disks.look("n1", [progress], 5)) == []
