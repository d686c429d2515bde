"""`allot why` of jobs that really waited, through a crash of the service."""

import json
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.cluster import RealCluster, a_real_cluster, until
from tests.support.invoke import allot

CONFIG = """
virtual_gpus: {type: A100, count: 2}
tenants: {lab: {guaranteed: {gpu: 2}}}
"""
JOB = {"command": "sleep 60", "resources": {"gpu": 2, "cpu": 0.1, "memory": "16MiB"}}


@pytest.fixture
def cluster() -> Iterator[RealCluster]:
    folder = Path(tempfile.mkdtemp(prefix="allot-"))
    try:
        with a_real_cluster(folder, CONFIG) as cluster:
            yield cluster
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def past(cluster: RealCluster, job: int) -> dict[str, Any]:
    ran = allot("why", job, "--json", "--state", cluster.state)
    assert ran.code == 0, ran.err
    return json.loads(ran.out)


def waited(cluster: RealCluster, job: int, reason: str, ms: int) -> bool:
    return past(cluster, job)["waited_for"].get(reason, 0) >= ms


def test_it_outlives_the_service_and_the_job(cluster: RealCluster) -> None:
    first = cluster.submit({**JOB, "name": "first"})
    cluster.wait_for(first, "running")
    job = cluster.submit({**JOB, "name": "second", "command": "sleep 1.2"})
    until(lambda: waited(cluster, job, "capacity", 1500), "it to be looked at")
    cluster.kill()
    cluster.up()
    assert list(past(cluster, job)["waited_for"]) == ["capacity"]
    until(lambda: waited(cluster, job, "capacity", 4000), "it to wait on")
    cluster.allot("cancel", str(first))
    cluster.wait_for(job, "succeeded")
    found = past(cluster, job)
    assert (found["state"], found["why"], list(found["waited_for"])) == (
        "succeeded", None, ["capacity"],
    )  # fmt: skip
    told = [each["reason"] or each["phase"] for each in found["stretches"]]
    assert told[0] == "capacity"
    assert "running" in told
    ran = allot("why", job, "--state", cluster.state)
    assert "is not waiting: it succeeded" in ran.out
    assert "It waited " in ran.out
    events = allot("events", job, "--json", "--state", cluster.state).out.splitlines()
    kinds = [json.loads(line)["kind"] for line in events]
    assert kinds.count("WaitExplained") == 1, "a restart records nothing anew"
