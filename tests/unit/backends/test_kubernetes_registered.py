"""Folders that an administrator registered, in pods: kubelets open their paths as root."""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from allotment.backends.kubernetes.registered import Registered
from allotment.service.ports import DataMount


def why_not(tmp_path: Path, *folders: Path) -> str:
    mounts = [DataMount(str(each), f"/data/{each.name}") for each in folders]
    return asyncio.run(Registered(tmp_path / "state").why_not(mounts))


def opened(path: Path) -> None:
    path.chmod(0o777)


def linked(path: Path) -> None:
    path.rename(path.with_name("real"))
    path.symlink_to("real")


@pytest.mark.parametrize(
    ("change", "why"),
    [(opened, "not only root may write to {0}, so {0}/data can be replaced"), (linked, "link")],
)
def test_no_pod_is_shown_a_folder_that_a_user_can_replace(
    tmp_path: Path, change: Callable[[Path], None], why: str
) -> None:
    team = tmp_path / "team"
    folder = team / "data"
    folder.mkdir(parents=True)
    folder.chmod(0o777)  # What is in it is its users' matter.
    assert why_not(tmp_path, folder) == ""
    change(team)
    assert why.format(team) in why_not(tmp_path, folder)


def test_a_sticky_folder_lets_nobody_replace_what_is_roots(tmp_path: Path) -> None:
    folder = tmp_path / "shared" / "data"
    folder.mkdir(parents=True)
    folder.parent.chmod(0o1777)
    assert why_not(tmp_path, folder) == ""


@pytest.mark.needs_root
def test_a_folder_below_one_of_a_user_is_shown_to_nobody(tmp_path: Path) -> None:
    folder = tmp_path / "ann" / "data"
    folder.mkdir(parents=True)
    os.chown(folder.parent, 65534, 65534)
    assert f"not only root may write to {folder.parent}" in why_not(tmp_path, folder)


def test_what_is_not_there_is_told_and_the_services_own_is_not_looked_at(
    tmp_path: Path,
) -> None:
    assert "no such file" in why_not(tmp_path, tmp_path / "none")
    assert why_not(tmp_path, tmp_path / "state/data/d/trees/x") == ""
