"""Paths become descriptors: by the kernel's own call, and by hand where it is missing."""

import errno
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from allotment.rights import paths
from allotment.rights.user import rights_of

NOBODY = 65534

RESOLVERS = pytest.mark.parametrize("resolve", [paths.resolve, paths.by_hand])
OPENERS = pytest.mark.parametrize("open_below", [paths.open_below, paths.below_by_hand])


class Who(NamedTuple):
    uid: int
    gid: int
    groups: tuple[int, ...] = ()


def place_of(fd: int) -> str:
    try:
        return str(Path(f"/proc/self/fd/{fd}").readlink())
    finally:
        os.close(fd)


@RESOLVERS
def test_links_are_followed_unless_they_may_not_be(
    tmp_path: Path, resolve: Callable[..., int]
) -> None:
    real = tmp_path / "real"
    (real / "deep").mkdir(parents=True)
    (real / "deep" / "file").write_text("")
    (tmp_path / "relative").symlink_to("real/deep")
    (tmp_path / "absolute").symlink_to(real)
    for path in ("real/deep", "relative", "absolute/deep", "real/../relative/.", "real//deep"):
        assert place_of(resolve(f"{tmp_path}/{path}")) == str(real / "deep"), path
    assert place_of(resolve(f"{tmp_path}/absolute/deep/file")) == str(real / "deep" / "file")
    assert place_of(resolve(str(real / "deep"), links=False)) == str(real / "deep")
    for path in ("relative", "absolute/deep"):
        with pytest.raises(OSError, match=os.strerror(errno.ELOOP)):
            resolve(f"{tmp_path}/{path}", links=False)


@RESOLVERS
def test_what_is_not_there_is_told_with_its_path(
    tmp_path: Path, resolve: Callable[..., int]
) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "round").symlink_to("round")
    for path, why in (
        ("none", errno.ENOENT),
        ("file/x", errno.ENOTDIR),
        ("round", errno.ELOOP),
    ):
        with pytest.raises(OSError, match=str(tmp_path / path)) as raised:
            resolve(f"{tmp_path}/{path}")
        assert raised.value.errno == why


@RESOLVERS
def test_links_of_proc_are_not_followed(tmp_path: Path, resolve: Callable[..., int]) -> None:
    """They lead past closed folders, by a right that overrides permissions."""
    (tmp_path / "link").symlink_to("/proc/self/cwd")
    for path in ("/proc/self/cwd", "/proc/self/root/etc", f"{tmp_path}/link"):
        with pytest.raises(OSError, match=os.strerror(errno.ELOOP)):
            resolve(path)


@OPENERS
def test_nothing_but_what_lies_below_is_opened(
    tmp_path: Path, open_below: Callable[..., int]
) -> None:
    folder = tmp_path / "folder"
    (folder / "deep").mkdir(parents=True)
    (folder / "deep" / "file").write_text("content")
    (folder / "link").symlink_to("deep/file")
    (folder / "out").symlink_to(tmp_path)
    (tmp_path / "other").write_text("")
    at = os.open(folder, os.O_PATH)
    try:
        with os.fdopen(open_below(at, "deep/file", os.O_RDONLY)) as file:
            assert file.read() == "content"
        for path in ("link", "out/other", "../other", "deep/../../other", f"{tmp_path}/other"):
            with pytest.raises(OSError, match=r"."):
                open_below(at, path, os.O_RDONLY)
    finally:
        os.close(at)


@pytest.mark.parametrize("has_call", [True, False])
def test_a_file_is_opened_through_links_but_is_none(
    tmp_path: Path, has_call: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not has_call:
        monkeypatch.setattr(paths, "_SYS_OPENAT2", 9999)
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "file").write_text("content")
    (tmp_path / "way").symlink_to("real")
    (tmp_path / "real" / "link").symlink_to("file")
    with os.fdopen(paths.open_file(f"{tmp_path}/way/file", os.O_RDONLY)) as file:
        assert file.read() == "content"
    for path in (tmp_path / "way" / "link", Path("/proc/self/cwd/pyproject.toml")):
        with pytest.raises(OSError, match=os.strerror(errno.ELOOP)):
            paths.open_file(str(path), os.O_RDONLY)


@pytest.mark.needs_root
@RESOLVERS
def test_rights_are_those_of_the_user_and_of_one_thread(
    reachable: Path, resolve: Callable[..., int]
) -> None:
    closed = reachable / "closed"
    closed.mkdir(mode=0o700)
    (closed / "open").mkdir(mode=0o755)
    shared = reachable / "shared"
    shared.mkdir()
    os.chown(shared, 0, 4711)
    shared.chmod(0o750)
    (shared / "data").mkdir()
    before = (os.getresuid(), os.getresgid(), os.getgroups())
    seen: list[str] = []
    taken = threading.Event()

    def look() -> None:
        taken.wait(30)
        seen.append(place_of(resolve(f"{closed}/open")))

    other = threading.Thread(target=look)
    other.start()
    with rights_of(Who(NOBODY, NOBODY, (4711, 4712))):
        with pytest.raises(PermissionError):
            resolve(f"{closed}/open")
        os.close(resolve(f"{shared}/data"))
        assert os.getresuid() == before[0]
        taken.set()
        other.join()
        with pytest.raises(PermissionError):
            (reachable / "made").mkdir()
    assert seen == [str(closed / "open")]
    assert (os.getresuid(), os.getresgid(), os.getgroups()) == before
    os.close(resolve(f"{closed}/open"))


@pytest.mark.needs_root
def test_rights_come_back_after_an_error(reachable: Path) -> None:
    closed = reachable / "closed"
    closed.mkdir(mode=0o700)
    with pytest.raises(PermissionError), rights_of(Who(NOBODY, NOBODY)):
        (closed / "x").mkdir()
    (closed / "x").mkdir()
    assert (closed / "x").stat().st_uid == 0


@pytest.mark.needs_root
def test_what_is_made_is_the_users(reachable: Path) -> None:
    reachable.chmod(0o777)
    with rights_of(Who(NOBODY, 65533)):
        (reachable / "x").mkdir()
    found = (reachable / "x").stat()
    assert (found.st_uid, found.st_gid) == (NOBODY, 65533)
