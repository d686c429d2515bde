"""`allot doctor` as a user of a service that root runs."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.support.cluster import ALLOT, a_real_cluster
from tests.support.patience import PATIENCE_S

SOMEBODY = 690_000 + os.getpid()


@pytest.mark.needs_root
def test_what_only_root_may_look_at_is_one_note(reachable: Path) -> None:
    with a_real_cluster(reachable, "tenants: {lab: }\n") as cluster:
        done = subprocess.run(
            [*ALLOT, "doctor", "--json", "--state", str(cluster.state)],
            user=SOMEBODY,
            group=SOMEBODY,
            extra_groups=[],
            cwd="/",
            env={"HOME": "/", "PATH": os.environ["PATH"]},
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
    assert done.returncode == 0, done.stdout + done.stderr
    found = {one["subject"]: one for one in json.loads(done.stdout)}
    assert found["service"]["level"] == "ok"
    assert "isolation" not in found, "what this user's own service would have"
    unseen = found["not seen"]
    assert unseen["level"] == "note"
    assert {"isolation", "books", "slurm"} <= set(unseen["text"].replace(",", "").split())
