"""Folders of users are removed whatever these do meanwhile."""

import os
import subprocess
from pathlib import Path

import pytest

from allotment.rights import removing
from tests.support.cluster import until
from tests.support.patience import PATIENCE_S

NOBODY = 65534
FILL = "while true 2>/dev/null >$((n += 1)); do :; done"


@pytest.mark.needs_root
@pytest.mark.parametrize("where", [".", "deep/er"])
def test_a_folder_goes_that_its_user_has_open_and_fills(tmp_path: Path, where: str) -> None:
    top = tmp_path / "top"
    folder = top / where
    folder.mkdir(parents=True)
    for path in (top / "deep/er", top / "deep", top):
        if path.exists():
            os.chown(path, NOBODY, NOBODY)
            path.chmod(0o777)
    os.chown(top, 0, 0)
    filling = subprocess.Popen(
        ["/bin/sh", "-c", FILL], cwd=folder, user=NOBODY, group=NOBODY, extra_groups=[]
    )
    try:
        until((folder / "100").exists, "it to be filled")
        removing.remove(None, str(top))
        assert not top.exists()
        filling.wait(PATIENCE_S)
    finally:
        filling.kill()
        filling.wait()
