"""Checkpoints are put back where their job's folder is, whatever its user has made of it."""

import hashlib
import os
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from allotment.model.datasets import DataKind, Dataset, DataVersion, JobCheckpoint
from allotment.model.ids import AttemptNo, JobId
from allotment.model.quantity import WallTime
from allotment.service.content.manifest import FileEntry, Manifest, digest_of, written
from allotment.service.data import restoring
from allotment.service.data.objects.listing import COMPLETE
from allotment.service.data.objects.trouble import StoreTrouble
from allotment.service.data.restoring import Restoring
from allotment.service.launch import Account

KEPT = JobCheckpoint(JobId(7), AttemptNo(1), "run/c1", 1, 500)
VERSION = DataVersion(1, "d", 1, 4, WallTime(100), "ann", KEPT)
DATASET = Dataset("vision", "weights", "id", DataKind.MANAGED, "ann", versions=(VERSION,))


class Store:
    """A store with one version."""

    def __init__(self, tree: Path) -> None:
        self._tree = tree
        (tree / "run" / "c1").mkdir(parents=True)
        (tree / "run" / "c1" / "model").write_text("data")

    @property
    def store(self) -> "Store":
        return self

    names = None

    def tree(self, *_: str) -> Path:
        return self._tree

    def manifest(self, *_: str) -> Manifest:
        return Manifest((FileEntry("run/c1/model", "f", 4, "0" * 64),))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    found = tmp_path / "checkpoints"
    found.mkdir()
    return found


def put_back(tmp_path: Path, folder: Path) -> None:
    anything = cast("Any", None)
    work = Restoring(anything, cast("Any", Store(tmp_path / "tree")), anything)
    account = Account("ann", "/", "/bin/sh")
    work._restored(DATASET, VERSION, "", str(folder), account)  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]


def test_it_is_there_as_a_whole(tmp_path: Path, folder: Path) -> None:
    put_back(tmp_path, folder)
    assert (folder / "run" / "c1" / "model").read_text() == "data"
    assert [path.name for path in folder.iterdir()] == ["run"]


def test_links_lead_nowhere_else(tmp_path: Path, folder: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (folder / "run").symlink_to(other)
    with pytest.raises(OSError, match="Not a directory"):
        put_back(tmp_path, folder)
    held = os.open(other, os.O_RDONLY)
    try:
        (tmp_path / "link").symlink_to(f"/proc/{os.getpid()}/fd/{held}")
        with pytest.raises(OSError, match="Too many levels"):
            restoring._opened(str(tmp_path / "link"))  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]
    finally:
        os.close(held)
    assert not list(other.iterdir())
    assert [path.name for path in folder.iterdir()] == ["run"]


def test_the_last_of_a_disk_stays_free(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("allotment.rights.disk.LEFT_FREE", 1)
    monkeypatch.setattr("allotment.rights.disk.MOST_LEFT_FREE", 1 << 62)
    with pytest.raises(OSError, match="No space left"):
        put_back(tmp_path, folder)
    assert not list(folder.iterdir())


class Lost(Store):
    """A store whose owner has taken a file away before the service looked what is there."""

    @property
    def objects(self) -> "Lost":
        return self

    cache = objects
    forgotten = ""

    def forget(self, _: Dataset, digest: str) -> None:
        self.forgotten = digest

    def manifest(self, *_: str) -> Manifest:
        names = sorted(path.name for path in self._tree.glob("far/*"))
        return Manifest(tuple(FileEntry(f"far/{name}", "f", 1, "0" * 64) for name in names))


@pytest.mark.parametrize("gone", ["model", COMPLETE])
def test_what_a_store_lost_is_no_reason_to_begin_anew_without_a_word(
    tmp_path: Path, folder: Path, gone: str
) -> None:
    lost = Lost(tmp_path / "tree")
    far = tmp_path / "tree" / "far"
    far.mkdir()
    (far / "model").write_text("data")
    digest = hashlib.sha256(b"data").hexdigest()
    listed = written([FileEntry("model", "f", 4, digest)])
    (far / COMPLETE).write_bytes(listed)
    (far / gone).unlink()
    kept = JobCheckpoint(JobId(7), AttemptNo(1), "model", 1, 500, digest_of(listed))
    dataset = msgspec.structs.replace(DATASET, kind=DataKind.OBJECTS)
    anything = cast("Any", None)
    work = Restoring(anything, cast("Any", lost), anything)
    account = Account("ann", "/", "/bin/sh")
    version = msgspec.structs.replace(VERSION, checkpoint=kept)
    with pytest.raises(StoreTrouble, match=f"'{gone}' has other bytes, or is not there"):
        work._restored(dataset, version, "", str(folder), account)  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]
    assert lost.forgotten == VERSION.digest
    assert not list(folder.iterdir())
