"""What `allot down` leaves behind: tasks that run and what they need, and nothing else."""

from pathlib import Path

from tests.support.cluster import RealCluster, end_launchers, launchers, until

CONFIG = """
virtual_gpus: {type: A100, count: 1}
tenants: {us: {guaranteed: {gpu: 1}}}
"""


def a_job(command: str) -> dict[str, object]:
    return {"name": "one", "command": command, "resources": {"cpu": 1, "memory": "16MiB"}}


def test_no_process_is_left_when_nothing_runs(tmp_path: Path) -> None:
    cluster = RealCluster(tmp_path / "state", CONFIG)
    cluster.up()
    try:
        cluster.wait_for(cluster.submit(a_job("true")), "succeeded")
        assert launchers(cluster.state)
        assert cluster.allot("down").returncode == 0
        assert not launchers(cluster.state)
        cluster.up()
        cluster.wait_for(cluster.submit(a_job("true")), "succeeded")
    finally:
        cluster.down()


def test_what_runs_goes_on_and_is_taken_up_again(tmp_path: Path) -> None:
    cluster = RealCluster(tmp_path / "state", CONFIG)
    cluster.up()
    try:
        go = tmp_path / "go"
        job = cluster.submit(a_job(f"until [ -e {go} ]; do sleep 0.02; done"))
        cluster.wait_for(job, "running")
        assert cluster.allot("down").returncode == 0
        assert launchers(cluster.state)
        cluster.up()
        assert cluster.state_of(job) == "running"
        go.touch()
        cluster.wait_for(job, "succeeded")
        assert cluster.allot("down").returncode == 0
        until(lambda: not launchers(cluster.state), "the launcher to be gone")
    finally:
        cluster.down()
        end_launchers(cluster.state)
