"""Code and data on nodes with disks of their own: sent by content, whole, and within bounds."""

import asyncio
import os
import resource
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from allotment.backends.pilot.file_messages import (
    PIECE,
    HasListed,
    LackFiles,
    LayCode,
    LayData,
    TakeFiles,
)
from allotment.backends.pilot.node_content import KEEP_WORK_S, YOUNG_S, NodeContent
from allotment.backends.pilot.sending import Sending, Turns
from allotment.model.errors import BackendError
from allotment.model.ids import AttemptNo, JobId
from allotment.rights import disk
from allotment.service.code.store import UNUSED_S
from allotment.service.content.manifest import FileEntry, digest_of, written
from allotment.service.data.store import PRESSED_S
from allotment.service.workspace import CodeCopy, DataKept, Listed
from tests.support.straight_links import Held, Straight, overtaken

MUCH = 1 << 40
OWNER = "data/" + "a" * 32
CODE = "code/1000"


class Files:
    """Files of somebody on the service's disk, as a list has them."""

    def __init__(self, folder: Path, owner: str = OWNER) -> None:
        folder.mkdir(exist_ok=True)
        self._folder, self._owner = folder, owner

    def listed(self, files: dict[str, bytes], kinds: str = "f", names: str = "") -> Listed:
        """Keep files; with `names` each is kept by what it is called, not by what is in it."""
        entries: list[FileEntry] = []
        for path, data in files.items():
            name = digest_of((names + path).encode() if names else data)
            (self._folder / name).write_bytes(data)
            entries.append(FileEntry(path, cast("Any", kinds), len(data), name))
        data = written(entries)
        return Listed(
            self._owner, digest_of(data), lambda: data, self._folder.joinpath, not names
        )


def node_in(folder: Path, *live: int) -> NodeContent:
    folder.mkdir(exist_ok=True)
    return NodeContent(folder, lambda job: job in live)


def bring(
    node: NodeContent,
    version: Listed,
    limit: int = MUCH,
    in_use: frozenset[str] = frozenset(),
    is_wanted: Callable[[Straight], bool] = lambda _: True,
) -> Straight:
    link = Straight(node)
    kept = DataKept(limit, lambda: in_use)
    links, sending = [cast("Any", link)], Sending(link.changed.append)
    asyncio.run(sending.data(links, [version], kept, lambda: is_wanted(link)))
    return link


def tree_of(folder: Path, version: Listed) -> Path:
    return folder / version.owner / "trees" / version.digest


def age(path: Path, seconds: float) -> None:
    then = time.time() - seconds
    os.utime(path, (then, then))


def bytes_in(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def test_a_version_is_laid_out_once_and_of_the_next_only_what_is_new_is_sent(
    tmp_path: Path,
) -> None:
    files, node = Files(tmp_path / "ours"), node_in(tmp_path / "node")
    large, new = b"x" * (3 * PIECE + 7), b"new"
    first = files.listed({"a/large": large, "a/small": b"s", "empty": b""})
    assert sum(bring(node, first).sizes) > len(large)
    tree = tree_of(tmp_path / "node", first)
    assert (tree / "a/large").read_bytes() == large
    assert (tree / "empty").read_bytes() == b""
    assert (tree / "a/small").stat().st_mode & 0o777 == 0o444
    assert (tmp_path / "node/data").stat().st_mode & 0o777 == 0o700
    assert sum(bring(node, first).sizes) == 0
    second = files.listed({"a/large": large, "a/small": new})
    assert sum(bring(node, second).sizes) < PIECE
    other = tree_of(tmp_path / "node", second)
    assert (other / "a/small").read_bytes() == new
    assert (other / "a/large").stat().st_ino == (tree / "a/large").stat().st_ino
    assert not list((tmp_path / "node/data/new").iterdir())


def test_files_of_object_stores_have_names_that_are_no_digests(tmp_path: Path) -> None:
    version = Files(tmp_path / "ours").listed({"a": b"one", "b": b"two"}, "x", names="etag")
    bring(node_in(tmp_path / "node"), version)
    tree = tree_of(tmp_path / "node", version)
    assert [(tree / name).read_bytes() for name in "ab"] == [b"one", b"two"]
    assert (tree / "a").stat().st_mode & 0o777 == 0o555


def test_what_is_cut_goes_on_from_the_files_that_came_whole(tmp_path: Path) -> None:
    files, folder = Files(tmp_path / "ours"), tmp_path / "node"
    whole, cut = b"w" * PIECE, b"c" * (4 * PIECE)
    version = files.listed({"1": whole, "2": cut})
    link = bring(node_in(folder), version, is_wanted=lambda link: sum(link.sizes) < 3 * PIECE)
    assert sum(link.sizes) < len(whole) + len(cut)
    assert not tree_of(folder, version).exists()
    assert not list((folder / "data/new").iterdir()), "half a file takes no room"
    again = node_in(folder)
    assert sum(bring(again, version).sizes) < len(cut) + PIECE
    assert (tree_of(folder, version) / "2").read_bytes() == cut


def test_a_runner_that_was_killed_leaves_nothing_half_made(tmp_path: Path) -> None:
    folder = tmp_path / "node"
    version = Files(tmp_path / "ours").listed({"1": b"x" * 100})
    node = node_in(folder)
    name = bytes.fromhex(digest_of(b"x" * 100))
    node.do(TakeFiles(OWNER, name + (100).to_bytes(8, "big") + b"x" * 50, MUCH, is_first=True))
    assert bytes_in(folder / "data/new") in (0, 50), "it may be in a buffer"
    again = node_in(folder)
    assert again.do(HasListed(OWNER, version.digest)) is False
    with pytest.raises(BackendError, match="the beginning of these files did not come"):
        again.do(TakeFiles(OWNER, b"x" * 50, MUCH, is_first=False))
    bring(again, version)
    assert (tree_of(folder, version) / "1").read_bytes() == b"x" * 100
    node.do(TakeFiles(OWNER, b"", MUCH, is_first=True))  # Closes what a kill would have closed.


def test_what_is_not_what_was_told_is_not_kept(tmp_path: Path) -> None:
    files, node = Files(tmp_path / "ours"), node_in(tmp_path / "node")
    version = files.listed({"1": b"right"})
    version.file(digest_of(b"right")).write_bytes(b"wrong")
    with pytest.raises(BackendError, match="not what its digest says"):
        bring(node, version)
    version.file(digest_of(b"right")).write_bytes(b"cut")
    with pytest.raises(BackendError, match="shorter than it was"):
        bring(node, version)
    assert not tree_of(tmp_path / "node", version).exists()


def test_nothing_is_laid_beside_it(tmp_path: Path) -> None:
    node = node_in(tmp_path / "node")
    bad = written([FileEntry("../a", "f", 1, digest_of(b"x"))])
    head = bytes.fromhex(digest_of(bad)) + len(bad).to_bytes(8, "big")
    node.do(TakeFiles(OWNER, head + bad, MUCH, is_first=True))
    with pytest.raises(BackendError, match="not the path of a file below a folder"):
        node.do(LackFiles(OWNER, digest_of(bad), MUCH))
    for owner in ("data/..", "data/new", "code/x", "../data/aa", "data/aa/../bb"):
        with pytest.raises(BackendError, match="no files that nodes keep"):
            node.do(HasListed(owner, "0" * 64))
    with pytest.raises(BackendError, match="no digest"):
        node.do(LayData(OWNER, "../../x"))
    with pytest.raises(BackendError, match="No such file"):
        node.do(LayData(OWNER, "0" * 64))


def test_what_was_used_least_recently_goes_unless_a_job_uses_it(tmp_path: Path) -> None:
    folder = tmp_path / "node"
    node = node_in(folder)
    versions = [
        Files(tmp_path / name, f"data/{name}").listed({name: name.encode() * 100_000})
        for name in "abcd"
    ]
    for number, version in enumerate(versions[:3]):
        bring(node, version)
        age(tree_of(folder, version), 10 * YOUNG_S - number)
    used = frozenset({f"data/a/{versions[0].digest}"})
    bring(node, versions[3], limit=350_000, in_use=used)
    there = [node.do(HasListed(version.owner, version.digest)) for version in versions]
    assert there == [True, False, True, True]
    assert not list((folder / "data/b/files").glob("*/*")), "its bytes went with it"
    names = [f"{each.owner}/{each.digest}" for each in versions]
    assert {name for _, name, _ in node.held()} == {names[0], names[2], names[3]}
    with pytest.raises(BackendError, match=r"no room for 100 KiB more on the node: what jobs"):
        bring(node, versions[1], limit=350_000, in_use=used)
    age(tree_of(folder, versions[2]), 10 * YOUNG_S)
    assert bring(node, versions[0], limit=350_000).changed == [], "it is there"
    link = bring(node, versions[1], limit=350_000, in_use=used)
    assert link.changed == ["n1", "n1"], "something went, then something came"
    assert node.do(HasListed(versions[2].owner, versions[2].digest)) is False


def test_files_that_no_version_came_of_go_first(tmp_path: Path) -> None:
    folder = tmp_path / "node"
    node = node_in(folder)
    kept, cut, last = (
        Files(tmp_path / name, f"data/{name}").listed({
            "1": name.encode() * PIECE, "2": name.encode() * (2 * PIECE),
        })
        for name in "abc"
    )  # fmt: skip
    bring(node, kept)
    bring(node, cut, is_wanted=lambda link: sum(link.sizes) < 2 * PIECE)
    (loose,) = [path for path in folder.glob("data/b/files/*/*") if path.stat().st_size > 999]
    for path in (*folder.glob("data/b/files/*/*"), tree_of(folder, kept)):
        age(path, 2 * PRESSED_S)
    bring(node, last, limit=6 * PIECE + 100_000)
    assert not loose.exists()
    assert node.do(HasListed(kept.owner, kept.digest)) is True


def test_what_a_full_disk_refuses_takes_no_room(tmp_path: Path) -> None:
    folder = tmp_path / "node"
    node = node_in(folder)
    version = Files(tmp_path / "ours").listed({"1": b"x" * 100_000})
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before[1]))
    try:
        with pytest.raises(BackendError, match="cannot be kept on the node"):
            bring(node, version)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert bytes_in(folder / "data/new") == 0
    bring(node, version)


def test_a_disk_that_is_nearly_full_takes_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "node"
    version = Files(tmp_path / "ours").listed({"1": b"x" * 100_000})
    monkeypatch.setattr(disk, "LEFT_FREE", 1)
    monkeypatch.setattr(disk, "MOST_LEFT_FREE", 1 << 60)
    with pytest.raises(BackendError, match="the disk of the node is too full for 100 KiB"):
        bring(node_in(folder), version)
    assert not tree_of(folder, version).exists()


def take_code(node: NodeContent, code: Listed, job: int, attempt: int = 1) -> Straight:
    link = Straight(node)
    copy = CodeCopy(code, JobId(job), AttemptNo(attempt))
    asyncio.run(Sending(set[str]().add).code([cast("Any", link)], copy, MUCH, lambda: True))
    return link


def test_each_attempt_has_a_copy_of_its_code_which_is_sent_once(tmp_path: Path) -> None:
    folder, files = tmp_path / "node", Files(tmp_path / "ours", CODE)
    node = node_in(folder)
    code = files.listed({"a.py": b"print(1)", "deep/run": b"#!/bin/sh"}, "x")
    assert sum(take_code(node, code, 7).sizes) > 0
    copy = folder / "working/7/attempt-1"
    (copy / "a.py").write_text("changed by the task")
    assert (copy / "deep/run").stat().st_mode & 0o777 == 0o755
    again = take_code(node, code, 7, 2)
    assert [type(op) for op in again.asked] == [HasListed, LayCode]
    assert (folder / "working/7/attempt-2/a.py").read_bytes() == b"print(1)"
    assert not copy.exists(), "that of an earlier attempt went"
    assert (folder / "code").stat().st_mode & 0o777 == 0o700


def test_code_of_jobs_that_are_over_goes_and_that_of_those_that_run_stays(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "node"
    node = node_in(folder, 2)
    code = Files(tmp_path / "ours", CODE).listed({"a": b"a"})
    for job in (1, 2, 3):
        take_code(node, code, job)
    for job in (1, 2):
        age(folder / f"working/{job}", 2 * KEEP_WORK_S)
    take_code(node, code, 4)
    assert sorted(path.name for path in (folder / "working").iterdir()) == ["2", "3", "4"]


def test_one_users_code_is_within_bounds_and_old_code_goes(tmp_path: Path) -> None:
    folder, files = tmp_path / "node", Files(tmp_path / "ours", CODE)
    node = node_in(folder)
    first, second = (files.listed({"a": each * 100_000}) for each in (b"1", b"2"))
    take_code(node, first, 1)
    copy = CodeCopy(second, JobId(2), AttemptNo(1))
    sending = Sending(set[str]().add)

    def take() -> None:
        link = cast("Any", Straight(node))
        asyncio.run(sending.code([link], copy, 150_000, lambda: True))

    with pytest.raises(BackendError, match="no room for"):
        take()
    for path in (*folder.glob("code/1000/bundles/*"), *folder.glob("code/1000/files/*/*")):
        age(path, 2 * PRESSED_S)
    take()
    assert node.do(HasListed(CODE, first.digest)) is False
    assert (folder / "working/2/attempt-1/a").read_bytes() == b"2" * 100_000


def test_what_is_there_waits_for_nothing_that_comes(tmp_path: Path) -> None:
    files, node = Files(tmp_path / "ours"), node_in(tmp_path / "node")
    there, comes = files.listed({"a": b"a"}), files.listed({"a": b"b"})
    kept = DataKept(MUCH, frozenset)
    bring(node, there)
    sending, slow = Sending(set[str]().add), Held(node)
    works = (
        sending.data([cast("Any", link)], [version], kept, lambda: True)
        for link, version in ((slow, comes), (Straight(node), there))
    )
    overtaken(slow, works, tree_of(tmp_path / "node", comes).exists)


def test_what_goes_to_one_node_holds_up_no_other(tmp_path: Path) -> None:
    version = Files(tmp_path / "ours").listed({"a": b"a"})
    kept = DataKept(MUCH, frozenset)
    sending = Sending(set[str]().add)
    slow = Held(node_in(tmp_path / "slow"))
    fast = Straight(node_in(tmp_path / "fast"), "n2")
    works = (
        sending.data([cast("Any", link)], [version], kept, lambda: True)
        for link in (slow, fast)
    )
    overtaken(slow, works, tree_of(tmp_path / "slow", version).exists)
    for name in ("slow", "fast"):
        assert (tree_of(tmp_path / name, version) / "a").read_bytes() == b"a"


def test_two_jobs_have_the_same_data_sent_once(tmp_path: Path) -> None:
    version = Files(tmp_path / "ours").listed({"a": b"a" * 1000})
    kept = DataKept(MUCH, frozenset)

    async def both() -> tuple[Straight, Held]:
        node, sending = node_in(tmp_path / "node"), Sending(set[str]().add)
        first, second = Held(node), Straight(node)
        waits = asyncio.create_task(
            sending.data([cast("Any", first)], [version], kept, lambda: True)
        )
        await first.is_reached.wait()
        other = asyncio.create_task(
            sending.data([cast("Any", second)], [version], kept, lambda: True)
        )
        await asyncio.sleep(0)
        first.go.set()
        await asyncio.gather(waits, other)
        return second, first

    second, first = asyncio.run(both())
    assert sum(second.sizes) == 0
    assert sum(first.sizes) > 1000


def test_trouble_with_one_copy_of_code_breaks_off_no_files_that_come(tmp_path: Path) -> None:
    node = node_in(tmp_path / "node")
    code = Files(tmp_path / "ours", CODE).listed({"a": b"x" * 100})
    name = bytes.fromhex(digest_of(b"x" * 100))
    head = name + (100).to_bytes(8, "big")
    node.do(TakeFiles(CODE, head + b"x" * 50, MUCH, is_first=True))
    with pytest.raises(BackendError, match="No such file"):
        node.do(LayCode(CODE, code.digest, JobId(1), AttemptNo(1)))
    node.do(TakeFiles(CODE, b"x" * 50, MUCH, is_first=False))
    assert len(list((tmp_path / "node/code/1000/files").glob("*/*"))) == 1


def test_who_is_not_wanted_any_more_waits_for_no_turn() -> None:
    async def both() -> list[bool]:
        turns, got = Turns(), list[bool]()
        async with turns.turn("a", lambda: True) as first:
            got.append(first)
            wanted = iter([True, False])
            async with turns.turn("a", lambda: next(wanted)) as second:
                got.append(second)
        async with turns.turn("a", lambda: True) as third:
            got.append(third)
        return got

    assert asyncio.run(both()) == [True, False, True]


def test_code_of_users_that_come_no_more_goes(tmp_path: Path) -> None:
    folder = tmp_path / "node"
    old = Files(tmp_path / "ours", "code/1001").listed({"a": b"old"})
    take_code(node_in(folder), old, 1)
    for path in (*folder.glob("code/1001/bundles/*"), *folder.glob("code/1001/files/*/*")):
        age(path, 2 * UNUSED_S)
    take_code(node_in(folder), Files(tmp_path / "ours", CODE).listed({"a": b"new"}), 2)
    assert not list(folder.glob("code/1001/files/*/*"))
    assert not list(folder.glob("code/1001/bundles/*"))
