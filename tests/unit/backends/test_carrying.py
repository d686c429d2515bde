"""Checkpoints on their way between nodes, each with a real agent's answers about its disk."""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from allotment.backends.local.backend import LocalBackend
from allotment.backends.pilot import carrying
from allotment.backends.pilot import file_messages as fm
from allotment.backends.pilot.carrying import REPORT, Checkpoints, NotKept, left_in
from allotment.backends.pilot.link import Link
from allotment.backends.pilot.node_files import NodeFiles
from allotment.backends.pilot.own_disks import NodeDisks
from allotment.model.errors import BackendError
from allotment.model.ids import Actor, AttemptNo, JobId, TaskIndex, TaskKey
from allotment.service.workspace import Changed, JobFolders, Watched

JOB = JobId(7)
KEY = TaskKey(JOB, AttemptNo(1), TaskIndex(0))


class Wire:
    """A link to an agent that is in this process: what goes over it is packed all the same."""

    def __init__(self, disk: Path, before: Callable[[fm.FileOp], None]) -> None:
        self._files = NodeFiles(disk, LocalBackend(disk))
        self._before = before

    async def call(self, op: fm.FileOp, kind: Any = None) -> Any:
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
        )
        self.own = self.root / "checkpoints" / str(JOB)
        self.own.mkdir(parents=True)

    async def _link(self, node: str) -> Link:  # noqa: ARG002 - both have the same
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
