"""What bubblewrap shows a task of Slurm, without a Slurm around it."""

import subprocess
from pathlib import Path

import pytest

from allotment.backends.slurm.folders import NotThere, shown

pytestmark = pytest.mark.needs_tool("bwrap")


def test_a_place_is_found_through_links(tmp_path: Path) -> None:
    source, disk = tmp_path / "nfs", tmp_path / "disk"
    for folder in (source, disk / "n"):
        folder.mkdir(parents=True)
    (source / "a").write_text("by-nfs\n")
    (tmp_path / "data").symlink_to(disk)
    (tmp_path / "n").symlink_to(disk / "n")
    for place in (tmp_path / "data/n", tmp_path / "n", disk / "n"):
        mounts = [(str(source), str(place), "ro")]
        argv = shown("bwrap", mounts, str(tmp_path), ["cat", f"{place}/a"])
        said = subprocess.run(argv, capture_output=True, text=True, check=False)
        assert (said.returncode, said.stdout) == (0, "by-nfs\n"), said.stderr
    assert not list((disk / "n").iterdir())


def test_a_folder_that_is_not_there_is_named_by_its_place(tmp_path: Path) -> None:
    mounts = [(str(tmp_path / "nfs"), "/data/n", "ro")]
    with pytest.raises(NotThere, match="the data for /data/n cannot be opened: no such file"):
        shown("bwrap", mounts, str(tmp_path), ["true"])
