"""The store of datasets: versions as trees of links, files kept once, and what goes."""

import errno
import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from allotment.service.content.manifest import FileEntry, digest_of, read, written
from allotment.service.content.shelf import Full, Room, blocks
from allotment.service.data.store import DataStore

ID = "0123"


@pytest.fixture
def store(tmp_path: Path) -> DataStore:
    made = DataStore(tmp_path)
    made.prepare()
    return made


def a_room(store: DataStore, most: int = 1 << 30) -> Room:
    return Room(lambda: most, lambda: store.shelf(ID).used())


def version(store: DataStore, *files: tuple[str, str, bytes], most: int = 1 << 30) -> str:
    """Put files into the store, and lay them out."""
    shelf = store.shelf(ID)
    for _, _, data in files:
        path = shelf.fresh.path()
        path.write_bytes(data)
        shelf.keep_file(path, digest_of(data))
    listed = written(
        FileEntry(path, kind, len(data), digest_of(data))  # type: ignore[arg-type]
        for path, kind, data in files
    )
    assert shelf.keep_list(listed, read(listed), (), most) == []
    store.lay_out(ID, read(listed), digest_of(listed), a_room(store, most))
    return digest_of(listed)


def age(tmp_path: Path) -> None:
    long_ago = time.time() - 5000
    for path in (tmp_path / "data").rglob("*"):
        os.utime(path, (long_ago, long_ago), follow_symlinks=False)


def test_files_are_kept_once_and_cannot_be_written(store: DataStore) -> None:
    one = version(
        store, ("a", "f", b"same"), ("deep/b", "f", b"same"), ("run", "x", b"#!/bin/sh")
    )
    two = version(store, ("a", "f", b"same"), ("new", "f", b"new"))
    trees = store.tree(ID, one), store.tree(ID, two)
    inodes = {
        (tree / name).stat().st_ino for tree, name in zip(trees, ("deep/b", "a"), strict=True)
    }
    assert len(inodes) == 1
    assert (trees[0] / "run").stat().st_mode & 0o777 == 0o555
    assert (trees[0] / "a").stat().st_mode & 0o777 == 0o444
    assert store.root.stat().st_mode & 0o777 == 0o700
    files = 4  # same, run, run as a program, new
    assert store.shelf(ID).used() == (files + 3) * blocks(1)  # and two lists, and `deep`


def test_a_version_that_goes_takes_only_what_no_other_has(
    store: DataStore, tmp_path: Path
) -> None:
    one = version(store, ("a", "f", b"same"), ("only", "f", b"only"))
    two = version(store, ("a", "f", b"same"))
    age(tmp_path)
    store.drop(ID, one)
    assert store.sweep(ID, {two}, 1000) == 1
    assert not store.tree(ID, one).exists()
    assert (store.tree(ID, two) / "a").read_bytes() == b"same"
    assert not store.shelf(ID).has_file(digest_of(b"only"))
    store.remove(ID)
    assert store.datasets() == []


def test_a_version_goes_with_its_files_at_once_where_no_other_has_them(
    store: DataStore,
) -> None:
    one = version(store, ("a", "f", b"same"), ("b", "f", b"only"), ("run", "x", b"#!/bin/sh"))
    two = version(store, ("a", "f", b"same"))
    store.drop(ID, one, at_once=True)
    assert not store.tree(ID, one).exists()
    assert [path.read_bytes() for path in store.shelf(ID).files()] == [b"same"]
    assert (store.tree(ID, two) / "a").read_bytes() == b"same"


def test_what_came_in_one_go_stays_however_long_it_took(store: DataStore) -> None:
    shelf, now = store.shelf(ID), time.time()
    for seconds in (100, 1000, 1900, 2999, 4100, 4200):
        made = shelf.fresh.path()
        made.write_bytes(str(seconds).encode())
        os.utime(made, (now - seconds, now - seconds))
        shelf.keep_file(made, digest_of(str(seconds).encode()))
    assert store.sweep(ID, (), 1000) == 3
    left = {path.read_bytes() for path in shelf.files()}
    assert left == {b"100", b"1000", b"1900"}


def test_what_was_laid_out_and_not_noted_goes_in_time(store: DataStore, tmp_path: Path) -> None:
    left = version(store, ("a", "f", b"left"))
    store.sweep(ID, (), 1000)
    assert store.tree(ID, left).exists()
    age(tmp_path)
    store.sweep(ID, (), 1000)
    assert not store.tree(ID, left).exists()
    assert store.shelf(ID).used() == 0


def test_a_file_with_as_many_links_as_may_be_is_copied(
    store: DataStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    link, calls = os.link, [0]

    def few(*words: Any, **named: Any) -> None:
        calls[0] += 1
        if calls[0] == 2:
            raise OSError(errno.EMLINK, "too many links")
        link(*words, **named)

    monkeypatch.setattr(os, "link", few)
    digest = version(store, *((name, "f", b"same") for name in "abc"))
    tree = store.tree(ID, digest)
    assert [(tree / name).read_bytes() for name in "abc"] == [b"same"] * 3
    assert len({(tree / name).stat().st_ino for name in "abc"}) == 2
    assert store.shelf(ID).used() == 3 * blocks(1)  # Both, and the list.


def test_room_is_asked_for_while_nobody_holds_the_shelf(
    store: DataStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who asks for room holds its turn and asks for the shelf's: never the other way."""
    link, calls, shelf = os.link, [0], store.shelf(ID)
    was_free: list[bool] = []

    def few(*words: Any, **named: Any) -> None:
        calls[0] += 1
        if calls[0] == 1:
            raise OSError(errno.EMLINK, "too many links")
        link(*words, **named)

    def used() -> int:
        def look() -> None:
            was_free.append(shelf.turn.acquire(blocking=False))
            if was_free[-1]:
                shelf.turn.release()

        other = threading.Thread(target=look)
        other.start()
        other.join()
        return 0

    path = shelf.fresh.path()
    path.write_bytes(b"same")
    shelf.keep_file(path, digest_of(b"same"))
    listed = written([FileEntry("a", "f", 4, digest_of(b"same"))])
    assert shelf.keep_list(listed, read(listed), (), 1 << 30) == []
    monkeypatch.setattr(os, "link", few)
    store.lay_out(ID, read(listed), digest_of(listed), Room(lambda: 1 << 30, used))
    assert len(was_free) == 2  # For the folders, and for the copy.
    assert all(was_free)


def test_copies_of_programs_need_room_too(store: DataStore) -> None:
    with pytest.raises(Full):
        version(store, ("run", "x", b"#!/bin/sh"), most=2 * blocks(1))
    assert list((store.root / "new").iterdir()) == []
    assert not list((store.root / ID / "trees").iterdir())


def test_folders_and_links_take_room_while_their_version_is_there(
    store: DataStore, tmp_path: Path
) -> None:
    files = [(f"{number}/a", "f", b"same") for number in range(50)]
    kept = version(store, *files)
    assert store.shelf(ID).used() == (50 + 1) * blocks(1) + list_size(store, kept)
    store.shelf(ID).count_anew()
    assert store.shelf(ID).used() == (50 + 1) * blocks(1) + list_size(store, kept)
    files = [(f"{number}/b", "f", b"same") for number in range(50)]
    with pytest.raises(Full):
        version(store, *files, most=store.shelf(ID).used() + 20 * blocks(1))
    age(tmp_path)
    store.sweep(ID, (), 1000)
    assert store.shelf(ID).used() == 0


def list_size(store: DataStore, digest: str) -> int:
    return blocks(store.shelf(ID).list_file(digest).stat().st_size)


def test_what_a_program_was_copied_of_stays_with_it(store: DataStore, tmp_path: Path) -> None:
    data = b"#!/bin/sh"
    kept = version(store, ("run", "x", data))
    age(tmp_path)
    assert store.sweep(ID, {kept}, 1000) == 0
    assert store.shelf(ID).file(digest_of(data)).read_bytes() == data
    store.drop(ID, kept)
    store.sweep(ID, (), 1000)
    store.sweep(ID, (), 1000)
    assert list(store.shelf(ID).files()) == []


def test_a_file_that_a_power_failure_cut_is_replaced(store: DataStore) -> None:
    shelf, digest = store.shelf(ID), digest_of(b"whole")
    shelf.used()
    cut = shelf.file(digest)
    cut.parent.mkdir(parents=True)
    cut.write_bytes(b"")
    made = shelf.fresh.path()
    made.write_bytes(b"whole")
    shelf.keep_file(made, digest)
    assert cut.read_bytes() == b"whole"


def test_a_version_has_its_name_only_once_it_is_on_the_disk(
    store: DataStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing() -> None:
        raise OSError(errno.EIO, "input/output error")

    monkeypatch.setattr(store, "flush", failing)
    with pytest.raises(OSError, match="input/output"):
        version(store, ("a", "f", b"a"))
    assert not list((store.root / ID / "trees").iterdir())
    assert not list((store.root / "new").iterdir())
