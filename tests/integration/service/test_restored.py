"""Books that are put back to before: what happened since is told as what it was."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cluster import RealCluster, a_real_cluster

CONFIG = """
virtual_gpus: {type: virtual, count: 4}
tenants: {a: {guaranteed: {gpu: 4}}}
"""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[RealCluster]:
    with a_real_cluster(tmp_path, CONFIG) as cluster:
        yield cluster


def a_sleeper(cluster: RealCluster, command: str = "sleep 600", **more: object) -> int:
    small = {"cpu": 0.1, "memory": "16MiB"}
    spec = {"name": "j", "command": command, "tenant": "a", "resources": small}
    job = cluster.submit(spec | more)
    cluster.wait_for(job, "running")
    return job


def back_up(cluster: RealCluster, *options: str) -> Path:
    file = cluster.state.parent / "copy.db"
    done = cluster.allot("backup", str(file), *options)
    assert done.returncode == 0, done.stderr
    return file


SECRET = "hunter2-hunter2-hunter2"


def test_a_backup_without_secrets_has_none_and_who_needs_one_waits_for_it(
    cluster: RealCluster, tmp_path: Path
) -> None:
    secrets = {"TOKEN": SECRET}
    go = tmp_path / "go"
    waiting = f"while [ ! -e {go} ]; do sleep 0.05; done; test $ALLOT_ATTEMPT = 2"
    retried = a_sleeper(cluster, waiting, secrets=secrets, retry=1)
    with_gpu = {"gpu": 1, "cpu": 0.1, "memory": "16MiB"}
    blocker = a_sleeper(cluster, resources=with_gpu)
    queued = cluster.submit(
        {"name": "q", "command": "echo got $TOKEN", "tenant": "a", "secrets": secrets,
         "resources": {"gpu": 4, "cpu": 0.1, "memory": "16MiB"}}
    )  # fmt: skip
    told = cluster.allot("backup", str(tmp_path / "clear.db"))
    assert "It has the secrets of jobs in clear text" in told.stderr
    assert SECRET.encode() in (tmp_path / "clear.db").read_bytes()
    file = back_up(cluster, "--without-secrets")
    assert SECRET.encode() not in file.read_bytes()

    put_back(cluster, file)
    assert cluster.state_of(queued) == "held"
    why = cluster.allot("why", str(queued)).stdout
    assert "a backup without secrets was restored, and it needs TOKEN" in why
    assert f"allot edit {queued} --set secrets.TOKEN=VALUE" in why
    refused = cluster.allot("release", str(queued))
    assert f"Job {queued} cannot run: a backup without secrets" in refused.stderr
    assert (
        cluster.allot("edit", str(queued), "--set", "secrets.TOKEN=a new one").returncode == 0
    )
    assert cluster.allot("release", str(queued)).returncode == 0

    go.touch()  # runs since before the backup; another try would need its secret
    cluster.wait_for(retried, "failed")
    shown = cluster.allot("show", str(retried)).stdout
    assert "a backup without secrets was restored, and it needs TOKEN" in shown
    assert f"allot clone {retried} --set secrets.TOKEN=VALUE" in " ".join(shown.split())
    cluster.allot("cancel", str(blocker))
    cluster.wait_for(queued, "succeeded")
    assert cluster.allot("logs", str(queued)).stdout == "got ***\n"  # told, and blotted out


def put_back(cluster: RealCluster, file: Path) -> None:
    cluster.kill()
    for part in cluster.state.glob("allot.db*"):
        part.unlink()
    done = cluster.allot("restore", str(file))
    assert done.returncode == 0, done.stderr
    cluster.up()


def test_what_was_cancelled_after_the_backup_reads_as_cancelled(
    cluster: RealCluster, tmp_path: Path
) -> None:
    stopped = a_sleeper(cluster)
    polite = a_sleeper(cluster, "trap 'exit 0' TERM; while :; do sleep 0.05; done")
    go = tmp_path / "go"
    waiting = f"while [ ! -e {go} ]; do sleep 0.05; done"
    failed = a_sleeper(cluster, f"{waiting}; exit 3")
    killed = a_sleeper(cluster, f"{waiting}; kill -TERM $$; sleep 9")
    file = back_up(cluster)
    go.touch()
    assert cluster.allot("cancel", str(stopped), str(polite)).returncode == 0
    for job in (stopped, polite):
        cluster.wait_for(job, "cancelled")
    for job in (failed, killed):
        cluster.wait_for(job, "failed")
    put_back(cluster, file)
    for job in (stopped, polite):
        cluster.wait_for(job, "cancelled")
        attempt = cluster.get(f"/v1/jobs/{job}")["attempts"][-1]
        assert attempt["outcome"] == "cancelled"
    for job in (failed, killed):  # nobody stopped these
        cluster.wait_for(job, "failed")
