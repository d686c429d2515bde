"""What keeps a task from beginning, or from being over, is told while it does."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cluster import RealCluster, a_real_cluster, until
from tests.support.stuck_files import StuckFile, a_stuck_file

pytestmark = pytest.mark.needs_root

CONFIG = """\
nodes: [{name: n1, cpu: 4, memory: 4GiB, disk: 10GiB, gpu: {type: virtual, count: 1}}]
tenants: {lab: {}}
"""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[RealCluster]:
    tmp_path.chmod(0o755)
    with a_real_cluster(tmp_path, CONFIG) as made:
        yield made


@pytest.fixture
def stuck(tmp_path: Path) -> Iterator[StuckFile]:
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        pytest.skip("no /dev/fuse")
    with a_stuck_file(tmp_path / "files") as made:
        yield made


def a_job(command: str) -> dict[str, object]:
    return {"name": "train", "command": command, "resources": {"gpu": 1, "memory": "64MiB"}}


@pytest.mark.may_skip("a kernel without FUSE has no file that does not answer")
def test_devices_of_what_does_not_die_are_given_to_nobody(
    cluster: RealCluster, stuck: StuckFile
) -> None:
    ends = cluster.submit(a_job(f"cat {stuck.path} & sleep 0.5; exit 0"))
    cluster.wait_for(ends, "running")
    waits = cluster.submit(a_job("true"))
    held = "keeps its place until what was killed is dead: process"
    until(lambda: held in cluster.said("show", str(ends)), "it to be told")
    told = cluster.said("show", str(ends))
    assert "main.0: it keeps its place" in told
    assert "(cat, state D)" in told
    assert f"main.0: it {held}" in cluster.said("why", str(ends))
    assert f"job {ends} keeps its place: killed processes" in cluster.said("nodes")
    assert cluster.state_of(ends) == "running"
    assert cluster.state_of(waits) == "queued"
    cluster.kill()
    cluster.up()
    until(lambda: held in cluster.said("show", str(ends)), "it to be told again")
    stuck.let_go()
    cluster.wait_for(ends, "succeeded")
    cluster.wait_for(waits, "succeeded")
    assert "waits" not in cluster.allot("show", str(ends)).stdout.split()
    assert "keeps its place" not in cluster.said("nodes")
