"""What a job leaves below the state folder, and its removal."""

import os
from pathlib import Path

from allotment.model.ids import JobId
from allotment.service.folders import forget
from allotment.service.launch import Folders


def test_what_is_nested_deeper_than_anybody_goes_is_removed_with_its_job(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "outputs/1"
    folder.mkdir(parents=True)
    at = os.open(folder, os.O_RDONLY)
    for _ in range(1200):
        os.mkdir("deep", dir_fd=at)
        below = os.open("deep", os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = below
    os.close(at)
    (tmp_path / "outputs/2").mkdir()
    forget(JobId(1), Folders(str(tmp_path)))
    assert [path.name for path in (tmp_path / "outputs").iterdir()] == ["2"]
