"""`allot pools`: of canned answers, and of a real service."""

import json
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from allotment.model.ids import JobId
from allotment.model.pools import Added
from allotment.model.quantity import GIB, Resources
from allotment.service.pools_view import HelpedJob, MoreNodes, PoolView, WayView
from tests.integration.cli.canned import Answer, Service
from tests.support.cluster import a_real_cluster, end_launchers, until
from tests.support.invoke import allot

EACH = Resources(gpu_milli=8_000, cpu_milli=96_000, memory=1024 * GIB)
POOL = PoolView("h100", 2, EACH, "h100", "k8s", 32_770, 4, 1)
DEAR = WayView((Added("h100", 1),), 32_770)
ODD = WayView((Added("a", 1), Added("b", 2)), None)


def answer(service: Service, found: MoreNodes) -> None:
    service.routes["GET /v1/pools"] = Answer(msgspec.json.encode(found))


def test_pools_and_jobs_are_told_with_prices(service: Service, state: Path) -> None:
    job = HelpedJob(JobId(7), "train", "vision", "default", EACH, (DEAR, ODD))
    after = HelpedJob(JobId(9), "small", "vision", "default", EACH, ())
    answer(service, MoreNodes(1, (POOL,), (job, after), 12, 10))
    ran = allot("pools", "--state", state)
    assert ran.out.splitlines() == [
        "POOL  NODES  WANTED  MOST  PRICE/H  TYPE  EACH",
        "h100      2       1     4    32.77  h100  8 GPU, 96 CPU, 1 TiB memory",
        "",
        "JOB  NAME   TENANT  NEEDS                        MORE NODES   PRICE/H  OR",
        "  7  train  vision  8 GPU, 96 CPU, 1 TiB memory  1 of h100      32.77  "
        "1 of a and 2 of b (-)",
        "  9  small  vision  8 GPU, 96 CPU, 1 TiB memory  those above        -",
    ]
    assert "looked at the first 10 of 12 waiting jobs" in ran.err
    assert "8 other waiting jobs would not start by more nodes alone" in ran.err


def test_no_pools_are_said_to_be_none(service: Service, state: Path) -> None:
    answer(service, MoreNodes(1, (), (), 0, 0))
    ran = allot("pools", "--state", state)
    assert (ran.code, ran.out) == (0, "")
    assert "no node has the label `pool`" in ran.err


@pytest.fixture
def folder() -> Iterator[Path]:
    made = Path(tempfile.mkdtemp(prefix="allot-"))
    try:
        yield made
    finally:
        end_launchers(made)
        shutil.rmtree(made, ignore_errors=True)


def test_a_service_tells_what_more_nodes_would_let_start(folder: Path) -> None:
    config = (
        "nodes: [{name: n1, cpu: 2, memory: 4GiB, labels: {pool: small, price: '1.50'}}]\n"
        "tenants: {lab: {guaranteed: {cpu: 2, memory: 4GiB}}}\n"
        "pools: {small: {most: 3}}\n"
    )
    with a_real_cluster(folder, config) as cluster:
        big = "name: big\ncount: 3\nresources: {cpu: 2, memory: 1GiB}\ncommand: sleep 600\n"
        submitted = cluster.allot("submit", "-", input=big)
        assert submitted.returncode == 0, submitted.stderr
        found = json.loads(cluster.allot("pools", "--json").stdout)
        (pool,), (job,) = found["pools"], found["jobs"]
        assert (pool["name"], pool["nodes"], pool["wanted"]) == ("small", 1, 2)
        assert job["ways"] == [{"add": [{"pool": "small", "nodes": 2}], "price_milli": 3_000}]
        number = str(job["job"])
        foreseen = cluster.allot("submit", "--dry-run", "-", input=big).stdout
        for text in (
            foreseen,
            *(cluster.allot(verb, number).stdout for verb in ("why", "eta")),
        ):
            assert "waits for more nodes" in text
            assert "cannot start as things are now" not in text
        assert "no node can hold it" in cluster.allot("ps").stdout
        wanted = 'allot_pool_nodes{pool="small",state="wanted"} 2.0'
        until(lambda: wanted in cluster.get("/metrics").decode(), "the metrics to say so")
