"""The store of code: whole files only, each user's apart, and nothing longer than needed."""

import os
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from allotment.model.errors import Rejected
from allotment.model.ids import AttemptNo, JobId
from allotment.service.code.code import WORDS
from allotment.service.code.layout import copy_for, lay_out
from allotment.service.code.store import CodeStore
from allotment.service.content.manifest import FileEntry, digest_of, written
from allotment.service.content.receiving import Receiving
from allotment.service.content.shelf import Full, Room, blocks
from allotment.service.launch import Folders

ANN, BEN = 64101, 64102
FILES = {"run": b"#!/bin/sh\n", "pkg/a.py": b"a = 1\n", "empty": b"", "pkg/large": b"x" * 9999}


@pytest.fixture
def store(tmp_path: Path) -> CodeStore:
    made = CodeStore(tmp_path)
    made.prepare()
    return made


def listed(files: dict[str, bytes]) -> bytes:
    return written(
        FileEntry(path, "x" if path == "run" else "f", len(data), digest_of(data))
        for path, data in files.items()
    )


def framed(contents: Sequence[bytes]) -> bytes:
    return b"".join(
        bytes.fromhex(digest_of(data)) + len(data).to_bytes(8, "big") + data
        for data in contents
    )


def room_of(store: CodeStore, uid: int = ANN, most: int = 1 << 20) -> Room:
    return Room(lambda: most, store.shelf(uid).used)


def receive(store: CodeStore, data: bytes, uid: int = ANN, piece: int = 7) -> Receiving:
    receiving = Receiving(store.shelf(uid), room_of(store, uid), 1 << 19, WORDS)
    for begin in range(0, len(data), piece):
        receiving.feed(data[begin : begin + piece])
    return receiving


def kept(store: CodeStore, uid: int = ANN) -> str:
    data = listed(FILES)
    receive(store, framed(list(FILES.values())), uid)
    assert store.missing(uid, data, ()) == []
    return digest_of(data)


def test_what_is_missing_is_asked_for_once(store: CodeStore) -> None:
    data = listed(FILES)
    assert set(store.missing(ANN, data, ())) == {digest_of(each) for each in FILES.values()}
    assert receive(store, framed(list(FILES.values()))).is_whole
    assert store.missing(ANN, data, ()) == []
    more = {**FILES, "new": b"new"}
    assert store.missing(ANN, listed(more), ()) == [digest_of(b"new")]


def test_a_bundle_is_there_for_nobody_else(store: CodeStore) -> None:
    bundle = kept(store)
    assert store.summary(ANN, bundle) is not None
    assert store.summary(BEN, bundle) is None
    assert set(store.missing(BEN, listed(FILES), ())) == {
        digest_of(each) for each in FILES.values()
    }
    assert not store.has_file(BEN, digest_of(b"a = 1\n"))


def test_a_connection_that_ends_leaves_whole_files_and_nothing_half(store: CodeStore) -> None:
    data = framed(list(FILES.values()))
    receiving = receive(store, data[:-50])
    assert not receiving.is_whole
    receiving.close()
    assert list(store.shelf(ANN).fresh.folder.iterdir()) == []
    assert store.missing(ANN, listed(FILES), ()) == [digest_of(FILES["pkg/large"])]


def test_a_file_that_is_not_what_its_digest_says_is_refused(store: CodeStore) -> None:
    data = bytes.fromhex(digest_of(b"good")) + (4).to_bytes(8, "big") + b"evil"
    with pytest.raises(Rejected, match="not what its digest says"):
        receive(store, data)
    assert not store.has_file(ANN, digest_of(b"good"))
    assert list(store.shelf(ANN).fresh.folder.iterdir()) == []


def test_a_list_that_lies_about_sizes_is_never_kept(store: CodeStore) -> None:
    kept(store)
    lie = written([FileEntry("a", "f", 1, digest_of(FILES["pkg/large"]))])
    assert store.missing(ANN, lie, ()) == [digest_of(FILES["pkg/large"])]
    assert store.summary(ANN, digest_of(lie)) is None


def test_too_large_is_refused_before_it_is_written(store: CodeStore) -> None:
    head = bytes.fromhex(digest_of(b"")) + (1 << 40).to_bytes(8, "big")
    with pytest.raises(Rejected, match=r"1 TiB is larger"):
        receive(store, head)
    small = [bytes([n]) for n in range(256)] + [n.to_bytes(2, "big") for n in range(100)]
    with pytest.raises(Rejected, match="all the room"):
        receive(store, framed(small))


def test_a_bundle_becomes_a_folder_that_can_be_written_without_harm(
    store: CodeStore, tmp_path: Path
) -> None:
    bundle = kept(store)
    manifest = store.manifest(ANN, bundle)
    for name in ("one", "two"):
        lay_out(store, ANN, manifest, tmp_path / name, None)
    (tmp_path / "one/pkg/a.py").write_text("spoilt")
    assert (tmp_path / "two/pkg/a.py").read_bytes() == FILES["pkg/a.py"]
    assert store.file(ANN, digest_of(FILES["pkg/a.py"])).read_bytes() == FILES["pkg/a.py"]
    assert os.access(tmp_path / "two/run", os.X_OK)
    assert (tmp_path / "two/pkg/a.py").stat().st_mode & 0o7777 == 0o644


def test_a_layout_that_fails_leaves_nothing(store: CodeStore, tmp_path: Path) -> None:
    manifest = store.manifest(ANN, kept(store))
    store.file(ANN, digest_of(FILES["pkg/large"])).unlink()
    with pytest.raises(FileNotFoundError):
        lay_out(store, ANN, manifest, tmp_path / "work", None)
    assert [path.name for path in tmp_path.iterdir()] == ["code"]


class Slow(CodeStore):
    """A store on a disk that answers when it is let to."""

    def __init__(self, state_dir: Path) -> None:
        super().__init__(state_dir)
        self.is_asked, self.go = threading.Event(), threading.Event()

    def file(self, uid: int, digest: str) -> Path:
        self.is_asked.set()
        self.go.wait()
        return super().file(uid, digest)


def test_a_copy_that_is_made_twice_at_once_is_whole(store: CodeStore, tmp_path: Path) -> None:
    """A call that took too long is made again, and goes on all the same."""
    code, folders, slow = (ANN, kept(store)), Folders(str(tmp_path)), Slow(tmp_path)
    first, second = (JobId(7), AttemptNo(1)), (JobId(7), AttemptNo(2))
    with ThreadPoolExecutor() as pool:
        late = pool.submit(copy_for, slow, folders, code, first, None)
        slow.is_asked.wait()
        copy_for(store, folders, code, first, None)
        slow.go.set()
        late.result()
    made = tmp_path / "working/7/attempt-1"
    assert {path: (made / path).read_bytes() for path in FILES} == FILES
    copy_for(store, folders, code, second, None)
    assert [path.name for path in made.parent.iterdir()] == ["attempt-2"]


def age(store: CodeStore, tmp_path: Path) -> None:
    long_ago = time.time() - 5000
    for path in (tmp_path / "code").rglob("*"):
        if path.is_file():
            os.utime(path, (long_ago, long_ago))


def test_what_no_kept_job_needs_goes_and_what_one_needs_stays(
    store: CodeStore, tmp_path: Path
) -> None:
    bundle, difference = kept(store), b"diff --git"
    receive(store, framed([difference, b"never used"]))
    other = listed({"other": b"a = 1\n"})
    assert store.missing(ANN, other, ()) == []
    store.use(ANN, bundle, JobId(7), digest_of(difference))
    age(store, tmp_path)
    assert store.jobs_of(ANN) == {7}
    store.sweep(ANN, lambda job: job == 7, 1000)
    assert store.summary(ANN, bundle) is not None
    assert store.summary(ANN, digest_of(other)) is None
    assert store.text(ANN, digest_of(difference), 99) == difference
    assert not store.has_file(ANN, digest_of(b"never used"))
    assert store.used(ANN) > 0
    age(store, tmp_path)
    store.sweep(ANN, lambda _: False, 1000)
    assert store.summary(ANN, bundle) is None
    assert store.used(ANN) == 0
    assert not list((tmp_path / "code" / str(ANN) / "uses").iterdir())


def test_what_was_asked_for_just_now_stays(store: CodeStore, tmp_path: Path) -> None:
    bundle = kept(store)
    age(store, tmp_path)
    assert store.summary(ANN, bundle) is not None
    store.sweep(ANN, lambda _: False, 1000)
    assert store.summary(ANN, bundle) is not None
    assert store.missing(ANN, listed(FILES), ()) == []


def test_lists_count_as_well_as_files(store: CodeStore) -> None:
    receive(store, framed([b"a"]))
    lists = [
        written([FileEntry(f"{number}" * 9, "f", 1, digest_of(b"a"))]) for number in range(3)
    ]
    most = store.used(ANN) + 2 * blocks(1)
    assert [store.missing(ANN, data, (), most) for data in lists[:2]] == [[], []]
    with pytest.raises(Full):
        store.missing(ANN, lists[2], (), most)
    assert store.summary(ANN, digest_of(lists[2])) is None


def test_requests_at_the_same_time_share_the_room_of_their_user(store: CodeStore) -> None:
    large = b"x" * 9000
    room, shelf = room_of(store, ANN, 20_000), store.shelf(ANN)
    one, other = (Receiving(shelf, room, 10_000, WORDS) for _ in range(2))
    one.feed(framed([large])[:50])
    with pytest.raises(Rejected, match="all the room"):
        other.feed(framed([large])[:50])
    of_ben = Receiving(store.shelf(BEN), room_of(store, BEN, 20_000), 10_000, WORDS)
    of_ben.feed(framed([large])[:50])
    for each in (one, other, of_ben):
        each.close()
    third = Receiving(shelf, room, 10_000, WORDS)
    third.feed(framed([large]))
    assert third.is_whole


def test_a_user_whose_store_is_looked_through_holds_up_nobody_else(store: CodeStore) -> None:
    bundle = kept(store)
    kept(store, BEN)
    met: list[bool] = []

    def is_kept(_: JobId) -> bool:
        with ThreadPoolExecutor(1) as pool:
            met.append(pool.submit(store.summary, BEN, bundle).result(5) is not None)
        return True

    store.use(ANN, bundle, JobId(1), "")
    store.sweep(ANN, is_kept, 0)
    assert met == [True]
