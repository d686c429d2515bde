"""The packages that a file asks for."""

from pathlib import Path

import pytest

from allotment.client import Refused
from allotment.client.packages import read_packages


def test_a_requirements_file_is_read_here(tmp_path: Path) -> None:
    (tmp_path / "r.txt").write_text("six  # why\n")
    assert read_packages(tmp_path / "r.txt", "3.11") == ("3.11", ("six",))


def test_a_requirement_in_place_of_a_file_is_told_what_to_write() -> None:
    with pytest.raises(Refused) as refusal:
        read_packages(Path("framework==7"))
    assert "no such file" in str(refusal.value)
    assert "one a line (`framework==7`)" in refusal.value.hint


@pytest.mark.parametrize("python", ["{}/evil", ">=3.9", "evil"])
def test_a_project_without_a_lock_is_told_so_and_runs_nothing(
    tmp_path: Path, python: str
) -> None:
    (tmp_path / "evil").write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    (tmp_path / "evil").chmod(0o755)
    asked = python.format(tmp_path)
    (tmp_path / "pyproject.toml").write_text(
        f"[project]\nname = 'x'\nversion = '1'\nrequires-python = '{asked}'\n"
    )
    with pytest.raises(Refused, match="cannot be used: "):
        read_packages(tmp_path / "pyproject.toml")
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("text", ["[project", "project = 1", "\0"])
def test_what_is_no_project_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "pyproject.toml").write_text(text)
    with pytest.raises(Refused):
        read_packages(tmp_path / "uv.lock")


def test_what_no_job_has_room_for_is_refused_here(tmp_path: Path) -> None:
    line = "a==1" + f" --hash=sha256:{'0' * 64}" * 100
    (tmp_path / "r.txt").write_text(f"{line}\n" * 30)
    assert len(read_packages(tmp_path / "r.txt")[1]) == 30
    (tmp_path / "r.txt").write_text(f"{line}\n" * 40)
    with pytest.raises(Refused, match="more than 250 KiB"):
        read_packages(tmp_path / "r.txt")
