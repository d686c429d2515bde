"""Files in parts, to real stores: as a whole or not at all, and nothing left of a part."""

import hashlib
import os
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from allotment.model.datasets import ObjectPlace
from allotment.service.data.objects import bucket as asking
from allotment.service.data.objects.bucket import Bucket, Stopped
from allotment.service.data.objects.parts import (
    MOST_PARTS,
    ChangedMeanwhile,
    Measured,
    Reads,
    known,
    measured,
    send,
    uploads_of,
)
from allotment.service.data.objects.trouble import Kind, StoreTrouble
from allotment.service.data.objects.unfinished import Journal, Note, Unfinished
from tests.support.object_stores import BUCKET, KEY, Moto, Rclone, Store, a_store

PART = 5 << 20
"""The least that Amazon's, and moto, take for a part that is not the last."""
DATA = os.urandom(3 * PART + 12345)


@pytest.fixture(params=[Rclone, Moto], scope="module")
def store(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Store]:
    kind: type[Store] = request.param
    with a_store(kind, tmp_path_factory.mktemp("store") / kind.__name__) as made:
        yield made


@pytest.fixture
def bucket(store: Store) -> Iterator[Bucket]:
    made = Bucket(store.place(profile="default"), KEY, None)
    yield made
    made.close()


def begun(folder: Path, place: ObjectPlace) -> Callable[[str], Unfinished]:
    journal = Journal(folder)
    return lambda key: journal.begin(Note(place, "ann", 1000, key, is_upload=True))


def of(data: bytes) -> Reads:
    def reads(offset: int, size: int) -> Iterator[bytes]:
        for at in range(offset, offset + size, 1 << 20):
            yield data[at : min(at + (1 << 20), offset + size)]

    return reads


def put(bucket: Bucket, folder: Path, key: str, file: Measured, reads: Reads) -> None:
    send(bucket, key, file, reads, begun(folder, bucket.place))


def fetched(bucket: Bucket, key: str) -> bytes:
    [found] = [each for each in bucket.objects(10, 1 << 40) if each.path == key]
    return b"".join(bucket.read(key, found.size, found.etag))


def test_of_a_file_that_is_known_each_part_is_read_for_itself(
    bucket: Bucket, tmp_path: Path
) -> None:
    file, sent = known(len(DATA), hashlib.sha256(DATA).hexdigest(), PART), dict[int, int]()
    assert {part.digest for part in file.parts} == {""}
    noted = begun(tmp_path, bucket.place)
    send(bucket, "bert/known", file, of(DATA), noted, sent.__setitem__)
    assert fetched(bucket, "bert/known") == DATA
    assert sent == {part.offset: part.size for part in file.parts}


def test_a_file_in_parts_is_the_same_file(bucket: Bucket, tmp_path: Path) -> None:
    file = measured(len(DATA), of(DATA), PART)
    assert len(file.parts) == 4
    assert file.digest == hashlib.sha256(DATA).hexdigest()
    put(bucket, tmp_path, "bert/same", file, of(DATA))
    assert fetched(bucket, "bert/same") == DATA
    assert uploads_of(bucket, "bert/same") == []
    assert list(tmp_path.iterdir()) == [], "nothing is noted as unfinished"


def test_several_parts_go_at_once(bucket: Bucket, tmp_path: Path) -> None:
    together = threading.Barrier(4, timeout=30)

    def reads(offset: int, size: int) -> Iterator[bytes]:
        together.wait()
        yield from of(DATA)(offset, size)

    put(bucket, tmp_path, "bert/fast", measured(len(DATA), of(DATA), PART), reads)
    assert fetched(bucket, "bert/fast") == DATA


@pytest.mark.parametrize("part", [PART, 1 << 30])
def test_a_file_that_changes_meanwhile_is_not_put(
    bucket: Bucket, tmp_path: Path, part: int
) -> None:
    """However well the store looks: what is sent is looked at here."""
    other = bytearray(DATA)
    other[2 * PART + 7] ^= 1
    key = f"bert/changed-{part}"
    with pytest.raises(ChangedMeanwhile):
        put(bucket, tmp_path, key, measured(len(DATA), of(DATA), part), of(bytes(other)))
    assert key not in [each.path for each in bucket.objects(10, 1 << 40)]
    assert uploads_of(bucket, key) == []
    assert list(tmp_path.iterdir()) == []


def test_who_is_not_waited_for_leaves_nothing(store: Store, tmp_path: Path) -> None:
    wanted = threading.Event()
    wanted.set()
    bucket = Bucket(store.place(profile="default"), KEY, None, wanted.is_set)

    def reads(offset: int, size: int) -> Iterator[bytes]:
        for piece in of(DATA)(offset, size):
            yield piece
            if offset == PART:
                wanted.clear()

    with pytest.raises(Stopped):
        put(bucket, tmp_path, "bert/stopped", measured(len(DATA), of(DATA), PART), reads)
    bucket.close()
    looking = bucket.another(lambda: True)
    assert uploads_of(looking, "bert/stopped") == []
    assert "bert/stopped" not in [each.path for each in looking.objects(10, 1 << 40)]
    looking.close()
    assert list(tmp_path.iterdir()) == []


def test_where_the_store_goes_away_it_is_noted_and_ended_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asking, "FIRST_PAUSE_S", 0.001)
    with a_store(Rclone, tmp_path / "store") as store:
        bucket = Bucket(store.place(profile="default"), KEY, None)

        def reads(offset: int, size: int) -> Iterator[bytes]:
            if offset == 2 * PART:
                store.stop()
            yield from of(DATA)(offset, size)

        file = measured(len(DATA), of(DATA), PART)
        with pytest.raises(StoreTrouble) as caught:
            put(bucket, tmp_path / "notes", "bert/away", file, reads)
        assert caught.value.kind is Kind.AWAY
        bucket.close()
        [left] = Journal(tmp_path / "notes").left()
        assert (left.note.key, left.note.is_upload) == ("bert/away", True)
        assert left.note.upload
        noted = next((tmp_path / "notes").iterdir())
        unread = tmp_path / "notes" / "unread.json"
        unread.symlink_to(unread)
        assert len(Journal(tmp_path / "notes").left()) == 1
        assert unread.is_symlink(), "what cannot be read now is not forgotten"
        assert KEY.secret.encode() not in noted.read_bytes()
        assert noted.stat().st_mode & 0o077 == 0


def test_a_large_file_has_no_more_parts_than_may_be() -> None:
    size = 3 * MOST_PARTS + 5

    def reads(offset: int, size: int) -> Iterator[bytes]:
        yield bytes(size)

    file = measured(size, reads, 1)
    assert len(file.parts) <= MOST_PARTS
    assert sum(part.size for part in file.parts) == size


def test_memory_is_bounded_whatever_the_size(tmp_path: Path) -> None:
    size = 200 << 20
    piece = bytes(1 << 20)

    def reads(offset: int, size: int) -> Iterator[bytes]:
        for at in range(0, size, len(piece)):
            yield piece[: min(len(piece), size - at)]

    with a_store(Rclone, tmp_path / "store") as store:
        bucket = Bucket(store.place(profile="default"), KEY, None)
        file = measured(size, reads, 16 << 20)
        tracemalloc.start()
        put(bucket, tmp_path / "notes", "bert/big", file, reads)
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        bucket.close()
        assert (store.folder / "objects" / BUCKET / "bert/big").stat().st_size == size
    assert most < 32 << 20
