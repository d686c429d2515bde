"""Where a task's own mounts may lie."""

import os
from pathlib import Path

import pytest

from allotment.rights.mount_points import look_for, trouble_of


@pytest.mark.parametrize(
    ("path", "trouble"),
    [
        ("/data/words", ""),
        ("/srv/x", ""),
        ("/etcetera", ""),
        ("/etc", "is in /etc"),
        ("/etc/x", "is in /etc"),
        ("/proc/1/root", "is in /proc"),
        ("/lib64/x", "is in /lib64"),
        ("/tmp", "is a folder of the whole machine"),
        ("/", "is a folder of the whole machine"),
        ("data", "is not an absolute path"),
        ("/data/", "has '.', '..'"),
        ("/data/../etc", "has '.', '..'"),
        ("//data", "has '.', '..'"),
        ("/data/\n", "has a control character"),
        ("/" + "d" * 2000, "is longer than"),
        ("/d" * 40, "is longer than"),
    ],
)
def test_what_a_path_may_be(path: str, trouble: str) -> None:
    assert trouble_of(path).startswith(trouble)
    assert bool(trouble_of(path)) == bool(trouble)


def test_a_folder_of_ones_own_or_an_empty_one(tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.mkdir()
    (own / "file").write_text("")
    assert look_for(str(own), own.stat().st_uid) == (str(own), "")
    with pytest.raises(OSError, match="has files of others"):
        look_for(str(own), own.stat().st_uid + 1)
    (own / "file").unlink()
    assert look_for(str(own), own.stat().st_uid + 1) == (str(own), "")


def test_a_link_counts_as_what_it_leads_to(tmp_path: Path) -> None:
    (tmp_path / "etc").symlink_to("/etc")
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    for path in ("etc", "etc/none"):
        with pytest.raises(OSError, match="is in /etc"):
            look_for(f"{tmp_path}/{path}", os.geteuid())
    assert look_for(f"{tmp_path}/link", os.geteuid()).real == f"{tmp_path}/real"


def test_one_that_is_not_there_needs_a_folder_that_is_roots_alone(tmp_path: Path) -> None:
    assert look_for("/data-that-is-not-there/x", 1) == ("/data-that-is-not-there/x", "/")
    tmp_path.chmod(0o777)
    with pytest.raises(OSError, match=rf"users may write to {tmp_path}: make it"):
        look_for(f"{tmp_path}/missing", os.geteuid())
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="is not a folder"):
        look_for(f"{tmp_path}/file", os.geteuid())
