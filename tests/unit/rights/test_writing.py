"""Files are replaced whole: no reader, and no power cut, finds a part of one."""

import os
from pathlib import Path

import pytest

from allotment.rights.writing import write_whole


def test_a_file_is_replaced_with_its_mode(tmp_path: Path) -> None:
    path = tmp_path / "name"
    path.write_bytes(b"before")
    write_whole(path, b"after", 0o644)
    assert path.read_bytes() == b"after"
    assert path.stat().st_mode & 0o777 == 0o644
    write_whole(path, b"for us alone")
    assert path.stat().st_mode & 0o777 == 0o600


def test_all_of_it_is_on_disk_before_it_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, flushed, really = tmp_path / "name", list[tuple[int, bool]](), os.fsync

    def fsync(fd: int) -> None:
        really(fd)
        flushed.append((os.fstat(fd).st_size, path.exists()))

    monkeypatch.setattr(os, "fsync", fsync)
    write_whole(path, b"twelve bytes")
    assert flushed == [(12, False)]


def test_what_cannot_be_written_leaves_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "name"
    path.write_bytes(b"before")

    def fsync(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(OSError, match="No space"):
        write_whole(path, b"after")
    assert path.read_bytes() == b"before"
    assert list(tmp_path.iterdir()) == [path]
