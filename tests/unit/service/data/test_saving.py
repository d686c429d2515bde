"""Outputs that are versions already are not saved twice; what cannot be read is told of."""

import asyncio
import errno
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from allotment.backends.pilot import file_messages as fm
from allotment.model.datasets import DataKind, Dataset, DataVersion
from allotment.model.errors import Code, EngineAway, Rejected
from allotment.model.quantity import WallTime
from allotment.service.data import saving
from allotment.service.data.left_files import FolderFile, FolderFiles
from allotment.service.data.objects.bucket import Bucket
from allotment.service.data.objects.unfinished import Unfinished
from allotment.service.data.saving import made_before, path_below
from allotment.service.workspace import Left, LeftFiles
from tests.support.object_stores import Moto, a_store
from tests.unit.backends.test_carrying import JOB, Nodes

VERSIONS = (
    DataVersion(1, "a", 1, 1, WallTime(100), "ann"),
    DataVersion(2, "b", 1, 1, WallTime(200), "ben"),
    DataVersion(3, "c", 1, 1, WallTime(300), "ann"),
)
DATASET = Dataset("vision", "results", "id", DataKind.MANAGED, "ann", versions=VERSIONS)


@pytest.mark.parametrize(
    ("digest", "ended", "number"),
    [("a", 100, 1), ("a", 99, 1), ("a", 101, 0), ("b", 100, 0), ("c", 100, 3), ("d", 0, 0)],
)
def test_a_version_of_these_outputs(digest: str, ended: int, number: int) -> None:
    assert made_before(DATASET, digest, "ann", WallTime(ended)) == number


@pytest.mark.parametrize(
    ("path", "below"),
    [("/c/7/a", "a"), ("/c/7/b/../a/x", "a/x"), ("/c/7//a/", "a")],
)
def test_where_a_checkpoint_is_in_its_folder(path: str, below: str) -> None:
    assert path_below("/c/7", path) == below


@pytest.mark.parametrize("path", ["/c/7", "/c/7/../8/a", "/c/70/a", "a", "", "/etc/shadow"])
def test_a_checkpoint_elsewhere_is_refused(path: str) -> None:
    with pytest.raises(Rejected, match="is not in ALLOT_CHECKPOINT_DIR"):
        path_below("/c/7", path)


def never(key: str) -> Unfinished:
    raise AssertionError(key)


def test_a_file_that_cannot_be_read_is_not_the_store_that_does_not_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a").write_bytes(b"data")
    begun: list[int] = []
    pieces = FolderFile.pieces

    def failing(file: FolderFile, offset: int, size: int) -> Iterator[bytes]:
        begun.append(size)
        if len(begun) > 1:  # First its digest is taken.
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        yield from pieces(file, offset, size)

    monkeypatch.setattr(FolderFile, "pieces", failing)
    left = FolderFiles(str(tmp_path), None)
    assert left.files(9)[1]
    try:
        with a_store(Moto, tmp_path / "moto") as store:
            bucket = Bucket(store.place(), None, None)
            with pytest.raises(Rejected, match="cannot be read or kept: Input/output") as told:
                saving._sent(left, "a", bucket, "bert/a", never)  # pyright: ignore[reportPrivateUsage]
            bucket.close()
    finally:
        left.close()
    assert told.value.code is Code.UNAVAILABLE
    assert len(begun) == 2, "it is not tried again at once"


@pytest.mark.parametrize(("away_s", "tries"), [(3600.0, 30), (0.0, saving.TRIES)])
def test_nodes_that_are_away_are_waited_for_longer_than_other_troubles(
    monkeypatch: pytest.MonkeyPatch, away_s: float, tries: int
) -> None:
    monkeypatch.setattr(saving, "FIRST_PAUSE_S", 0.0001)
    monkeypatch.setattr(saving, "LONGEST_PAUSE_S", 0.0001)
    monkeypatch.setattr(saving, "AWAY_S", away_s)
    told: list[str] = []
    tried = 0

    async def work() -> str:
        nonlocal tried
        tried += 1
        if tried >= 30:
            return "lab/results@1"
        with saving._told_plainly(lambda: None):  # pyright: ignore[reportPrivateUsage]
            raise EngineAway("node n1 is not held yet")

    async def run() -> str:
        try:
            return await saving._in_the_end(work, lambda: True, told.append)  # pyright: ignore[reportPrivateUsage]
        except Rejected as refusal:
            return refusal.message

    words = "They cannot be read now: node n1 is not held yet."
    assert asyncio.run(run()) == ("lab/results@1" if tries == 30 else words)
    assert tried == tries
    assert told == [words] * (tries - 1)


def test_a_file_of_a_node_goes_to_a_store_as_it_was_digested_there(
    tmp_path: Path,
) -> None:
    """So a small one is read over the connection once."""
    nodes = Nodes(tmp_path)
    outputs = nodes.root / "outputs"
    outputs.mkdir()
    (outputs / "a").write_text("first")

    def work(left: LeftFiles, store: Moto) -> None:
        bucket = Bucket(store.place(), None, None)
        left.files(9)
        entry = saving._sent(left, "a", bucket, "bert/a", never)  # pyright: ignore[reportPrivateUsage]
        assert entry.of == hashlib.sha256(b"first").hexdigest()
        assert nodes.said.count("ReadFile") == 1
        nodes.before = meanwhile
        with pytest.raises(Rejected, match="'a' changed while it was read"):
            saving._sent(left, "a", bucket, "bert/b", never)  # pyright: ignore[reportPrivateUsage]
        assert [each.path for each in bucket.objects(9, 99)] == ["bert/a"]
        bucket.close()

    def meanwhile(op: fm.FileOp) -> None:
        if isinstance(op, fm.ReadFile):
            (outputs / "a").write_text("other")

    async def run(store: Moto) -> None:
        left = Left(str(outputs), ("n1",), None, None, "ann", "ann")
        async with nodes.disks.left_files(JOB, left) as found:
            await asyncio.to_thread(work, found, store)

    with a_store(Moto, tmp_path / "moto") as store:
        asyncio.run(run(store))
