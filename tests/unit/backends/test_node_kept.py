"""Environments on nodes with disks of their own: packed, checked, and kept within bounds."""

import asyncio
import hashlib
import io
import os
import resource
import tarfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from allotment.backends.pilot import node_kept
from allotment.backends.pilot.bringing import Bringing, pack
from allotment.backends.pilot.file_messages import PIECE, HasKept, PutKept, UnpackKept
from allotment.backends.pilot.node_kept import YOUNG_S, NodeKept
from allotment.model.errors import BackendError
from allotment.service.workspace import Kept
from tests.support.straight_links import Held, Straight, overtaken

KEYS = [digit * 32 for digit in "abc"]
NAME = f"environments/made/{KEYS[0]}"
MUCH = 1 << 40


def node_in(folder: Path) -> NodeKept:
    (folder / "environments").mkdir(parents=True, exist_ok=True)
    return NodeKept(folder)


def an_archive(*entries: tuple[tarfile.TarInfo, bytes]) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for entry, data in entries:
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return packed.getvalue()


def sent(node: NodeKept, data: bytes, name: str = NAME, limit: int = MUCH) -> None:
    node.do(PutKept(name, 0, data[:100]))
    node.do(PutKept(name, 100, data[100:]))
    digest = hashlib.sha256(data).hexdigest()
    node.do(UnpackKept(name, digest, (), limit))


def test_what_names_the_services_folder_names_the_nodes(tmp_path: Path) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "node"
    env = ours / NAME
    (env / "bin").mkdir(parents=True)
    (env / "lib/python3.11").mkdir(parents=True)
    (env / "bin/python").symlink_to(f"{ours}/environments/pythons/x/bin/python3")
    (env / "bin/sh").symlink_to("/bin/sh")
    (env / "pyvenv.cfg").write_text(f"home = {ours}/environments/pythons/x/bin\n")
    (env / "lib/python3.11/data.py").write_text(f"# {ours}/ is text\n")
    (env / "lib/python3.11/data.py").chmod(0o444)
    packed = pack(NAME, str(ours), str(theirs))
    node = node_in(theirs)
    assert node.do(HasKept(NAME)) is False
    sent(node, os.pread(packed.file.fileno(), packed.size, 0))
    packed.file.close()
    assert node.do(HasKept(NAME)) is True
    made = theirs / NAME
    program = theirs / "environments/pythons/x/bin/python3"
    assert (made / "bin/python").readlink() == program
    assert (made / "bin/sh").readlink() == Path("/bin/sh")
    assert (made / "pyvenv.cfg").read_text() == f"home = {theirs}/environments/pythons/x/bin\n"
    assert str(ours) in (made / "lib/python3.11/data.py").read_text()
    assert (made / "lib/python3.11/data.py").stat().st_mode & 0o777 == 0o444
    assert not list((theirs / "environments/new").iterdir())


def test_what_is_cut_off_or_changed_gets_no_name(tmp_path: Path) -> None:
    node = node_in(tmp_path)
    data = an_archive((tarfile.TarInfo("a"), b"text"))
    node.do(PutKept(NAME, 0, data[:-512]))
    with pytest.raises(BackendError, match="not what was sent"):
        node.do(UnpackKept(NAME, hashlib.sha256(data).hexdigest(), (), MUCH))
    assert node.do(HasKept(NAME)) is False
    assert not list((tmp_path / "environments/new").iterdir())
    node.do(PutKept(NAME, 0, data))  # and the runner ends
    again = node_in(tmp_path)
    assert again.do(HasKept(NAME)) is False
    assert not list((tmp_path / "environments/new").iterdir())


@pytest.mark.parametrize("name", ["../a", "/a", "a/../../b"])
def test_nothing_is_laid_beside_it(tmp_path: Path, name: str) -> None:
    node = node_in(tmp_path)
    with pytest.raises(BackendError, match="no node keeps"):
        sent(node, an_archive((tarfile.TarInfo(name), b"text")))
    with pytest.raises(BackendError, match="no folder that nodes keep"):
        node.do(PutKept(f"environments/made/{name}", 0, b"text"))
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_what_was_asked_for_least_recently_goes_unless_it_is_needed(tmp_path: Path) -> None:
    node = node_in(tmp_path)
    names = [f"environments/made/{key}" for key in KEYS]
    data = an_archive((tarfile.TarInfo("a"), b"x" * 8192))
    for age, name in enumerate(names[:2]):
        sent(node, data, name)
        old = time.time() - 2 * YOUNG_S + age
        os.utime(tmp_path / name, (old, old))
    node.do(PutKept(names[2], 0, data))
    node.do(UnpackKept(names[2], hashlib.sha256(data).hexdigest(), (names[0],), 20_000))
    assert [node.do(HasKept(name)) for name in names] == [True, False, True]


def test_what_cannot_be_read_is_not_left_out(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        pack(NAME, str(tmp_path), "/node")


def test_what_a_full_disk_refuses_takes_no_room(tmp_path: Path) -> None:
    node = node_in(tmp_path)
    node.do(PutKept(NAME, 0, b"x" * 4096))
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before[1]))
    try:
        with pytest.raises(BackendError, match="cannot be kept on the node"):
            node.do(PutKept(NAME, 4096, b"x"))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert bytes_in(tmp_path) == 0


def test_one_that_is_sent_again_does_not_disturb_what_unpacks(tmp_path: Path) -> None:
    node = node_in(tmp_path)
    data = an_archive(*((tarfile.TarInfo(f"f{number}"), b"text") for number in range(3000)))
    node.do(PutKept(NAME, 0, data))
    digest = hashlib.sha256(data).hexdigest()
    failures: list[BaseException] = []

    def unpack() -> None:
        try:
            node.do(UnpackKept(NAME, digest, (), MUCH))
        except BackendError as error:
            failures.append(error)

    work = threading.Thread(target=unpack)
    work.start()
    while work.is_alive() and not any((tmp_path / "environments/new").glob("*/f0")):
        pass
    node.do(PutKept(NAME, 0, b"again"))
    work.join()
    assert failures == []
    assert len(list((tmp_path / NAME).iterdir())) == 3000
    assert bytes_in(tmp_path / "environments/new") == len(b"again")


def bring(ours: Path, link: Straight, is_wanted: Callable[[], bool], *needed: str) -> list[int]:
    """Bring an environment over a link; return after how many pieces the needed were asked."""
    asked: list[int] = []

    async def told() -> tuple[str, ...]:
        asked.append(len(link.sizes))
        return needed

    kept = Kept(str(ours), (NAME,), told, 1)
    asyncio.run(Bringing("/node", set[str]().add).bring([cast("Any", link)], kept, is_wanted))
    return asked


def test_jobs_that_begin_while_one_is_brought_keep_theirs(tmp_path: Path) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "node"
    (ours / NAME).mkdir(parents=True)
    (ours / NAME / "a").write_bytes(b"x" * PIECE)
    node = node_in(theirs)
    other = f"environments/made/{KEYS[1]}"
    sent(node, an_archive((tarfile.TarInfo("a"), b"x")), other)
    os.utime(theirs / other, (1, 1))
    assert bring(ours, Straight(node), lambda: True, other) == [2], "they were asked too early"
    assert (theirs / other).is_dir()
    assert (theirs / NAME / "a").stat().st_size == PIECE
    assert sorted(name for _, name, _ in node.held()) == sorted((NAME, other))
    assert {size for _, name, size in node.held() if name == NAME} == {PIECE}


def test_a_node_that_has_it_waits_for_no_other(tmp_path: Path) -> None:
    ours = tmp_path / "ours"
    (ours / NAME).mkdir(parents=True)
    has, lacks = Straight(node_in(tmp_path / "has")), Held(node_in(tmp_path / "lacks"))
    bring(ours, has, lambda: True)

    async def none() -> tuple[str, ...]:
        return ()

    bringing, kept = Bringing("/node", set[str]().add), Kept(str(ours), (NAME,), none, MUCH)
    works = (bringing.bring([cast("Any", link)], kept, lambda: True) for link in (lacks, has))
    overtaken(lacks, works, (tmp_path / "lacks" / NAME).is_dir)


def test_what_is_not_wanted_any_more_takes_no_room(tmp_path: Path) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "node"
    (ours / NAME).mkdir(parents=True)
    (ours / NAME / "a").write_bytes(b"x" * PIECE)
    link = Straight(node_in(theirs))
    assert bring(ours, link, lambda: len(link.sizes) == 0) == []
    assert len(link.sizes) == 2
    assert bytes_in(theirs) == 0


def bytes_in(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def test_what_there_is_no_time_to_measure_is_said_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = node_in(tmp_path)
    assert node.held() == []
    sent(node, an_archive((tarfile.TarInfo("a"), b"x" * PIECE)))
    monkeypatch.setattr(node_kept, "MEASURING_S", -1)
    assert [(name, size) for _, name, size in node.held()] == [(NAME, 0)]
    monkeypatch.undo()
    assert [(name, size) for _, name, size in node.held()] == [(NAME, PIECE)]
