"""Nodes with disks of their own: their folder, what is kept of them, and what they answer."""

import asyncio
import os
from pathlib import Path

import msgspec
import pytest

from allotment.backends.local.backend import LocalBackend, task_name
from allotment.backends.local.images.images import Images
from allotment.backends.local.runner import layout
from allotment.backends.pilot import backend
from allotment.backends.pilot import file_messages as fm
from allotment.backends.pilot.backend import PilotBackend
from allotment.backends.pilot.carrying import NotKept, check, part_of
from allotment.backends.pilot.leftover import KeptFolder
from allotment.backends.pilot.node_files import NodeFiles, bounded, put
from allotment.backends.pilot.own_folder import open_own, owner_of
from allotment.model.cluster import Node
from allotment.model.errors import BackendError, EngineAway
from allotment.model.ids import AttemptNo, JobId, NodeId, TaskIndex, TaskKey
from allotment.model.reports import Seen, TaskReport
from allotment.service.ports import Identity
from allotment.service.workspace import FileBelow, Left

# pyright: reportPrivateUsage=false

KEY = TaskKey(JobId(7), AttemptNo(1), TaskIndex(0))


def left(folder: Path) -> Left:
    return Left(str(folder), ("n1",), None, None, "me", "me")


def test_a_folder_on_a_nodes_disk_is_made_and_is_of_that_node(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "b"
    before = os.umask(0o077)
    try:
        fd = open_own(str(folder))
    finally:
        os.umask(before)
    assert folder.stat().st_mode & 0o777 == 0o711
    assert folder.parent.stat().st_mode & 0o777 == 0o711
    assert owner_of(fd, "n1") == "n1"
    assert owner_of(fd, "n1") == "n1"
    assert owner_of(fd, "n2") == "n1", "a disk that two nodes share is no own disk"
    os.close(fd)


def test_a_folder_that_others_could_lay_or_change_is_not_used(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with pytest.raises(OSError, match=r"Not a directory|Too many levels"):
        open_own(f"{tmp_path}/link/pilots")
    assert not list((tmp_path / "real").iterdir())
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    with pytest.raises(PermissionError, match="changed by other users"):
        open_own(f"{tmp_path}/open/pilots")


@pytest.mark.needs_root
def test_a_folder_of_another_users_is_not_used(tmp_path: Path) -> None:
    (tmp_path / "theirs").mkdir()
    os.chown(tmp_path / "theirs", 64002, 64002)
    with pytest.raises(PermissionError, match="another user's"):
        open_own(f"{tmp_path}/theirs/pilots")


def test_what_a_lost_node_said_last_is_kept(tmp_path: Path) -> None:
    kept = KeptFolder(tmp_path)
    assert not kept.has(KEY)
    kept.ask(KEY, 1 << 20)
    assert kept.has(KEY)
    assert kept.last_words(KEY) is None
    kept.hear(TaskReport(KEY, Seen.RUNNING, 4711))
    assert kept.last_words(KEY) == TaskReport(KEY, Seen.RUNNING, 4711)
    (end,) = asyncio.run(kept.of_a_lost_pilot([KEY]))
    assert end.seen is Seen.ENDED
    assert end.exit is not None
    assert end.exit.lost
    kept.hear(TaskReport(KEY, Seen.ENDED, 4711))
    assert kept.unfetched() == [KEY]
    kept.set_fetched(KEY)
    assert kept.unfetched() == []
    kept.unask(KEY)
    assert not kept.has(KEY)


def test_output_with_a_gap_is_kept_with_it(tmp_path: Path) -> None:
    kept = KeptFolder(tmp_path)
    kept.ask(KEY, 1 << 20)
    for data, start in ((b"one ", 0), (b"two ", 4), (b"nine ", 100), (b"ten", 105)):
        kept.keep_output(KEY, "stdout", data, start)

    async def read() -> list[tuple[bytes, int]]:
        found, offset = list[tuple[bytes, int]](), 0
        while (chunk := await kept.read_log(KEY, "stdout", offset, 100)).data:
            found.append((chunk.data, chunk.next))
            offset = chunk.next
        return found

    assert asyncio.run(read()) == [(b"one two ", 8), (b"nine ten", 108)]


def test_a_forgotten_job_is_removed_here_and_on_its_node(tmp_path: Path) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    ours.mkdir()
    kept = KeptFolder(ours)
    kept.ask(KEY, 1 << 20)
    for name in ("outputs/7/attempt-1", "checkpoints/7", layout.task_dir(task_name(KEY))):
        (theirs / name).mkdir(parents=True)
    (theirs / "outputs/8").mkdir()

    async def story() -> None:
        await kept.forget(JobId(7))
        assert kept.forgotten() == (7,)
        node = NodeFiles(theirs, LocalBackend(theirs))
        await node.do(fm.ForgetFiles(kept.forgotten()))
        kept.set_gone((JobId(7),))

    asyncio.run(story())
    assert not kept.has(KEY)
    assert kept.forgotten() == ()
    there = sorted(path.name for path in theirs.glob("*/*"))
    assert there == ["8"]


def test_what_is_here_of_a_forgotten_job_goes_after_its_note(tmp_path: Path) -> None:
    kept = KeptFolder(tmp_path)
    kept.ask(KEY, 1)
    (tmp_path / "forgotten").write_text("in the way")
    with pytest.raises(OSError, match="File exists"):
        asyncio.run(kept.forget(JobId(7)))
    assert kept.has(KEY)


def test_files_of_a_job_that_was_never_launched_are_removed_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its folders are made, and a checkpoint is laid, before any task is launched."""
    monkeypatch.setattr(backend, "UP_S", 0)
    nodes = [Node(NodeId(n), f"n{n}", 1000, 0, 0) for n in (1, 2)]

    def a_service() -> PilotBackend:
        images = Images(tmp_path, int)
        made = PilotBackend(tmp_path, "main", lambda: nodes, images, disk="/disk")
        (tmp_path / "pilot/nodes").mkdir(parents=True, exist_ok=True)
        made._match_nodes()
        made._find_jobs()
        return made

    for node in ("n1", "n2"):
        with pytest.raises(EngineAway):
            asyncio.run(a_service()._link_to(node, JobId(7)))
    asyncio.run(a_service().forget(JobId(7)))
    assert KeptFolder(tmp_path / "pilot/nodes/n1").forgotten() == (7,)
    assert KeptFolder(tmp_path / "pilot/nodes/n2").forgotten() == (7,)


@pytest.mark.parametrize("broken", ["n1", "n2"])
def test_a_node_whose_books_cannot_be_kept_keeps_no_others_files(
    tmp_path: Path, broken: str
) -> None:
    service = PilotBackend(tmp_path, "main", list[Node], Images(tmp_path, int), disk="/disk")
    for node in ("n1", "n2"):
        KeptFolder(tmp_path / "pilot/nodes" / node).ask(KEY, 1)
    (tmp_path / "pilot/nodes" / broken / "forgotten").write_text("in the way")
    service._find_jobs()
    asyncio.run(service.forget(JobId(7)))
    (other,) = {"n1", "n2"} - {broken}
    assert KeptFolder(tmp_path / "pilot/nodes" / other).forgotten() == (7,)


def test_a_file_is_read_by_pieces_and_never_past_a_link(tmp_path: Path) -> None:
    out = tmp_path / "outputs"
    out.mkdir()
    (out / "model").write_bytes(b"0123456789")
    (out / "link").symlink_to("/etc/passwd")
    os.mkfifo(out / "pipe")

    async def read(path: str, offset: int, size: int) -> fm.Part:
        node = NodeFiles(tmp_path, LocalBackend(tmp_path))
        part = await node.do(fm.ReadFile(left(out), path, offset, size))
        assert isinstance(part, fm.Part)
        return part

    part = asyncio.run(read("model", 4, 3))
    assert (part.data, part.size, part.code) == (b"456", 10, "")
    for name in ("link", "pipe", "none", "../outputs/model", "/etc/passwd"):
        part = asyncio.run(read(name, 0, 10))
        assert (part.data, part.code) == (b"", "not_found")


@pytest.mark.parametrize(
    ("path", "part"),
    [
        ("/c/7/step-5", "step-5"),
        ("/c/7/a/../step-5/", "step-5"),
        ("/c/7", ""),
        ("step-5", ""),
        ("/c/8/step-5", None),
        ("/c/7/../8", None),
        ("/shared/step-5", None),
    ],
)
def test_of_a_folder_that_part_goes_along_that_was_reported(
    path: str, part: str | None
) -> None:
    assert part_of(msgspec.json.encode({"path": path}), "/c/7") == part


@pytest.mark.parametrize(
    "path", ["../x", "a/../../x", "/etc/passwd", "a//b", "", "a/\0", "caf\ufffd"]
)
def test_a_path_that_leads_elsewhere_is_not_kept(path: str) -> None:
    with pytest.raises(NotKept, match="not a path that can be kept"):
        check(FileBelow(path, 1, 1))


def test_a_checkpoint_is_laid_by_pieces_and_dated(tmp_path: Path) -> None:
    file = FileBelow("step-5/deep/weights", 8, 1_700_000_000_123)
    for offset, data in ((0, b"0123"), (4, b"4567")):
        put(fm.PutFile(str(tmp_path), None, file, offset, data))
    made = tmp_path / file.path
    assert made.read_bytes() == b"01234567"
    modes = {path.stat().st_mode & 0o777 for path in (made.parent.parent, made.parent, made)}
    assert modes == {0o700, 0o600}, "it may have been private where it was saved"
    assert made.stat().st_mtime_ns // 1_000_000 == file.changed_ms


@pytest.mark.parametrize("lies", ["a link for the folder", "a link for the file", "a pipe"])
def test_what_a_user_laid_in_the_way_is_not_written_through(tmp_path: Path, lies: str) -> None:
    own, other = tmp_path / "own", tmp_path / "other"
    for folder in (own, other):
        folder.mkdir()
    (other / "file").write_text("theirs")
    if lies == "a link for the folder":
        (own / "step").symlink_to(other)
    else:
        (own / "step").mkdir()
        if lies == "a pipe":
            os.mkfifo(own / "step/file")
        else:
            (own / "step/file").symlink_to(other / "file")
    with pytest.raises(BackendError, match="cannot be copied to the node: step/file"):
        put(fm.PutFile(str(own), None, FileBelow("step/file", 4, 1), 0, b"ours"))
    assert (other / "file").read_text() == "theirs"


@pytest.mark.needs_root
def test_a_checkpoint_is_its_users_own(tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.mkdir()
    for parent in (tmp_path, *tmp_path.parents[:-2]):
        parent.chmod(0o755)
    os.chown(own, 64002, 64002)
    nobody = Identity(64002, 64002)
    put(fm.PutFile(str(own), nobody, FileBelow("a/b", 1, 1), 0, b"x"))
    assert {(own / name).stat().st_uid for name in ("a", "a/b")} == {64002}
    (tmp_path / "closed").mkdir(mode=0o700)
    with pytest.raises(BackendError, match="Permission denied"):
        put(fm.PutFile(str(tmp_path / "closed"), nobody, FileBelow("b", 1, 1), 0, b"x"))


def test_a_list_fits_into_one_answer() -> None:
    many = tuple(FileBelow("x" * 4000 + str(n), 1, 1) for n in range(5000))
    listing = bounded(many, is_all=True)
    assert not listing.is_all
    assert sum(len(file.path) for file in listing.files) <= fm.LONGEST_LIST
    odd = bounded((FileBelow("caf\udce9", 1, 1),), is_all=True)
    assert odd.files[0].path.isprintable()
    assert odd.is_all
