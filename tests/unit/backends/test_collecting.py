"""What jobs left on nodes, as it becomes a version: each with a real agent's answers, and some
with those of a runner in the hands of somebody else.
"""

import asyncio
import hashlib
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar, cast

import msgspec
import pytest

from allotment.backends.pilot import collecting
from allotment.backends.pilot import file_messages as fm
from allotment.backends.pilot.collecting import FilesOnNodes
from allotment.backends.pilot.messages import Fault, Op
from allotment.backends.pilot.node_files import DIGEST_S
from allotment.backends.pilot.own_disks import check_versions
from allotment.model.errors import BackendError, Code, EngineAway, Rejected
from allotment.service.ports import Identity
from allotment.service.workspace import FileBelow, Left, LeftFiles
from tests.unit.backends.test_carrying import JOB, Nodes
from tests.unit.backends.test_pilot_distrust import a_link

T = TypeVar("T")
MOST = 100


@pytest.fixture
def nodes(tmp_path: Path) -> Nodes:
    return Nodes(tmp_path)


@pytest.fixture
def outputs(nodes: Nodes) -> Path:
    folder = nodes.root / "outputs"
    folder.mkdir()
    return folder


def saved(
    nodes: Nodes, folder: Path, work: Callable[[LeftFiles], T], who: Identity | None = None
) -> T:
    """Work with the files of a folder as the saving of a job does: in a thread."""

    async def run() -> T:
        left = Left(str(folder), ("n1",), None, who, "ann", "ann")
        async with nodes.disks.left_files(JOB, left) as found:
            return await asyncio.to_thread(work, found)

    return asyncio.run(run())


def read(left: LeftFiles, path: str) -> tuple[bytes, str, str]:
    with left.opened(path) as file:
        return b"".join(file.pieces(0, file.size)), file.digest, file.kind


def test_files_come_whole_with_their_digests(nodes: Nodes, outputs: Path) -> None:
    large = os.urandom(9 * fm.PIECE + 1)
    (outputs / "large").write_bytes(large)
    (outputs / "deep").mkdir()
    (outputs / "deep/run").write_text("ran")
    (outputs / "deep/run").chmod(0o700)
    (outputs / "empty").touch()
    (outputs / "link").symlink_to("/etc/passwd")

    def work(left: LeftFiles) -> dict[str, tuple[bytes, str, str]]:
        found, is_all = left.files(MOST)
        assert is_all
        return {each.path: read(left, each.path) for each in found}

    assert saved(nodes, outputs, work) == {
        "deep/run": (b"ran", hashlib.sha256(b"ran").hexdigest(), "x"),
        "empty": (b"", hashlib.sha256(b"").hexdigest(), "f"),
        "large": (large, hashlib.sha256(large).hexdigest(), "f"),
    }


def test_files_are_digested_together_and_each_once(
    nodes: Nodes, outputs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collecting, "AT_ONCE", 4)
    for number in range(10):
        (outputs / f"{number}").write_text(f"{number}")

    def work(left: LeftFiles) -> list[bytes]:
        return [read(left, each.path)[0] for each in left.files(MOST)[0]]

    assert saved(nodes, outputs, work) == [f"{number}".encode() for number in range(10)]
    assert nodes.said.count("DigestFiles") == 3


def test_small_files_are_read_ahead_only_where_they_are_wanted(
    nodes: Nodes, outputs: Path
) -> None:
    for number in range(100, 300):
        (outputs / f"{number}").write_text(f"{number}")

    def work(left: LeftFiles) -> None:
        for file in left.files(MOST * 3)[0]:
            with left.opened(file.path) as found:
                if file.path < "200":  # The dataset has the others.
                    assert b"".join(found.pieces(0, found.size)) == file.path.encode()

    saved(nodes, outputs, work)
    assert 100 <= nodes.said.count("ReadFile") <= 100 + collecting.SMALL_AHEAD


@pytest.mark.needs_root
def test_a_file_that_is_swapped_for_a_link_or_a_pipe_is_not_followed(
    reachable: Path,
) -> None:
    nodes, nobody = Nodes(reachable), Identity(65534, 65534)
    outputs = nodes.root / "outputs"
    outputs.mkdir()
    secret = nodes.root / "secret"
    secret.write_text("root's own")
    secret.chmod(0o600)
    for name in ("link", "pipe", "hard", "folder/a"):
        (outputs / name).parent.mkdir(exist_ok=True)
        (outputs / name).write_text("a" * 10)

    def work(left: LeftFiles) -> list[str]:
        found, _ = left.files(MOST)
        for name in ("link", "pipe", "hard", "folder/a"):
            (outputs / name).unlink()
        (outputs / "link").symlink_to(secret)
        os.mkfifo(outputs / "pipe")
        os.link(secret, outputs / "hard")
        (outputs / "folder").rmdir()
        (outputs / "folder").symlink_to("/etc")
        told: list[str] = []
        for file in found:
            with pytest.raises(Rejected) as refused:
                read(left, file.path)
            told.append(refused.value.message)
        return told

    assert saved(nodes, outputs, work, nobody) == [
        "'folder/a' changed while it was read.",
        "ann may not read hard.",
        "'link' changed while it was read.",
        "'pipe' changed while it was read.",
    ]


@pytest.mark.parametrize("when", ["DigestFiles", "ReadFile"])
def test_a_file_that_is_replaced_or_grows_meanwhile_is_refused(
    nodes: Nodes, outputs: Path, when: str
) -> None:
    (outputs / "a").write_text("first")

    def meanwhile(op: fm.FileOp) -> None:
        if type(op).__name__ == when:
            nodes.before = lambda _: None
            (outputs / "b").write_text("second")
            (outputs / "b").rename(outputs / "a")

    nodes.before = meanwhile

    def work(left: LeftFiles) -> None:
        left.files(MOST)
        with pytest.raises(Rejected, match="'a' changed while it was read") as told:
            read(left, "a")
        assert told.value.code is Code.CONFLICT

    saved(nodes, outputs, work)


def test_a_node_that_lost_the_folder_has_no_part_of_it(nodes: Nodes, outputs: Path) -> None:
    outputs.rmdir()

    def work(left: LeftFiles) -> None:
        with pytest.raises(Rejected, match="Node n1 does not have its files any more"):
            left.files(MOST)

    saved(nodes, outputs, work)
    saved(nodes, Path("/nowhere"), lambda left: left.files(MOST))


def test_files_that_wait_for_others_to_be_read_do_not_make_their_node_silent(
    nodes: Nodes, outputs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (outputs / "a").write_text("first")
    longer: list[float] = []
    call = nodes.wire.call

    async def noted(op: fm.FileOp, kind: object = None, longer_s: float = 0) -> object:
        if isinstance(op, fm.DigestFiles):
            longer.append(longer_s)
        return await call(op, kind, longer_s)

    monkeypatch.setattr(nodes.wire, "call", noted)

    def work(left: LeftFiles) -> None:
        left.files(MOST)
        assert read(left, "a")[0] == b"first"

    saved(nodes, outputs, work)
    assert longer == [DIGEST_S], "as long as the node itself lets them wait"


def test_nothing_is_asked_once_nobody_waits(nodes: Nodes, outputs: Path) -> None:
    (outputs / "a").write_text("first")
    begun, left_alone = threading.Event(), threading.Event()
    told: list[str] = []

    def work(left: LeftFiles) -> None:
        left.files(MOST)
        begun.set()
        left_alone.wait()
        try:
            read(left, "a")
        except BackendError as error:
            told.append(str(error))

    async def run() -> None:
        left = Left(str(outputs), ("n1",), None, None, "ann", "ann")
        async with nodes.disks.left_files(JOB, left) as found:
            working = asyncio.create_task(asyncio.to_thread(work, found))
            await asyncio.to_thread(begun.wait)
        left_alone.set()
        await working

    asyncio.run(run())
    assert told == ["nobody waits for its files any more"]


def test_each_node_of_a_gang_reads_its_files_for_one_question() -> None:
    asked: list[tuple[str, ...]] = []

    def of(rank: int) -> Callable[[Op], object]:
        files = tuple(FileBelow(f"{n}-{rank}", 1, 0) for n in range(20))

        def answer(op: Op) -> object:
            match op:
                case fm.ListFiles():
                    return fm.Listing(files, is_all=True)
                case fm.DigestFiles(_, names):
                    asked.append(names)
                    return [fm.Digested("0" * 64, 1, 7) for _ in names]
                case _:
                    return fm.Part(f"{rank}".encode(), 1, 7)

        return answer

    async def run() -> list[tuple[bytes, str]]:
        left = Left("/o", ("n0", "n1"), None, None, "ann", "ann")
        async with a_link(of(0)) as one, a_link(of(1)) as other:
            files = FilesOnNodes({"n0": one, "n1": other}, left, "")

            def work() -> list[tuple[bytes, str]]:
                found = files.files(MOST)[0]
                return [(read(files, each.path)[0], each.path[-1]) for each in found]

            return await asyncio.to_thread(work)

    found = asyncio.run(run())
    assert len(found) == 40
    assert all(data.decode() == rank for data, rank in found)
    assert [len(names) for names in asked] == [20, 20]


def test_a_runner_of_an_older_version_is_not_asked() -> None:
    async def run() -> None:
        async with a_link(lambda op: Fault(0, "?")) as link:
            check_versions({"n0": link})
            link.hello = msgspec.structs.replace(link.hello, protocol=7)
            with pytest.raises(EngineAway, match="n0 is of another version"):
                check_versions({"n0": link})
            link.hang_up()

    asyncio.run(run())


# ── a runner in the hands of somebody else ──────────────────────────────────────────────

FILE = FileBelow("a", 3, 0)
DIGESTED = fm.Digested("0" * 63 + "1", 3, 7)
PART = fm.Part(b"abc", 3, 7)


def told(
    listing: object = fm.Listing((FILE,), is_all=True),
    digested: object = (DIGESTED,),
    part: object = PART,
) -> object:
    """Return what comes of reading a file, where the runner answers so."""

    def answer(op: Op) -> object:
        match op:
            case fm.ListFiles():
                return listing
            case fm.DigestFiles():
                return digested
            case fm.ReadFile():
                return part
            case _:
                return Fault(0, "?")

    async def run() -> object:
        left = Left("/o", ("n0",), None, None, "ann", "ann")
        async with a_link(answer) as link:
            files = FilesOnNodes({"n0": link}, left, "")

            def work() -> object:
                files.files(MOST)
                return read(cast("LeftFiles", files), "a")[0]

            try:
                return await asyncio.to_thread(work)
            except (Rejected, BackendError) as error:
                return str(error)

    return asyncio.run(run())


def test_what_cannot_be_of_a_file_is_not_taken() -> None:
    changed = "'a' changed while it was read."
    assert told() == b"abc"
    assert told(part=fm.Part(b"abcd", 3, 7)) == changed
    assert told(part=fm.Part(b"ab", 3, 7)) == changed
    assert told(part=fm.Part(b"abc", 4, 7)) == changed
    assert told(part=fm.Part(b"abc", 3, 8)) == changed
    for digest in ("", "xyz", "0" * 63, "G" * 64, "../../etc/passwd"):
        assert told(digested=(fm.Digested(digest, 3, 7),)) == changed
    assert told(digested=(fm.Digested("0" * 64, 2**60, 7),)) == changed
    assert told(digested=()) == "node n0 did not read all files"
    assert "lists a file of -1 bytes" in str(
        told(listing=fm.Listing((FileBelow("a", -1, 0),), is_all=True))
    )
    assert "cannot be read" in str(told(listing="much"))
    refused = fm.Digested(code="bug", message="x" * 10**6)
    assert len(str(told(digested=(refused,)))) < 1000


def test_more_files_than_asked_for_are_not_all() -> None:
    many = tuple(FileBelow(f"{number}", 1, 0) for number in range(MOST + 50))

    async def run() -> tuple[int, bool]:
        left = Left("/o", ("n0",), None, None, "ann", "ann")
        async with a_link(lambda op: fm.Listing(many, is_all=True)) as link:
            found, is_all = await asyncio.to_thread(
                FilesOnNodes({"n0": link}, left, "").files, MOST
            )
        return len(found), is_all

    assert asyncio.run(run()) == (MOST, False)
