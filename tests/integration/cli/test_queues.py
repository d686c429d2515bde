"""`allot queues`: of a real service with real jobs, in words and for programs."""

import json
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from allotment.client import Client
from allotment.service.queue_view import QueueStand, QueueView, TenantQueues
from tests.integration.cli.canned import Answer, Service
from tests.support.cluster import RealCluster, a_real_cluster
from tests.support.invoke import allot

CONFIG = """
virtual_gpus: {type: A100, count: 8}
tenants:
  lab:
    guaranteed: {gpu: 6}
    queues:
      research:
        guaranteed: {gpu: 4}
        limit: {gpu: 6, gpu_by_type: {A100: 6}}
        queues:
          train: {order: skip, max_jobs: 20, per_user: {gpu: 2}}
          eval: {limit: {gpu: 2}, weight: 2}
      nightly: {soft_limit: {gpu: 4}}
      old: {state: stopped, queues: {x: }}
  nlp: {guaranteed: {gpu: 2}}
"""
JOB = {"command": "sleep 60", "tenant": "lab"}


@pytest.fixture(scope="module")
def cluster() -> Iterator[RealCluster]:
    folder = Path(tempfile.mkdtemp(prefix="allot-"))
    try:
        with a_real_cluster(folder, CONFIG) as cluster:
            for name, queue, gpus in (("a", "train", 2), ("b", "eval", 2), ("c", "nightly", 4)):
                need = {"gpu": gpus, "cpu": 0.1, "memory": "16MiB"}
                job = cluster.submit({**JOB, "name": name, "queue": queue, "resources": need})
                cluster.wait_for(job, "running")
            for queue in ("train", "eval"):
                need = {"gpu": 1, "cpu": 0.1, "memory": "16MiB"}
                cluster.submit({**JOB, "name": "w", "queue": queue, "resources": need})
            yield cluster
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def test_in_words(cluster: RealCluster) -> None:
    ran = allot("queues", "--state", cluster.state)
    assert ran.code == 0, ran.err
    head, *lines = ran.out.splitlines()
    assert head.split()[:7] == [
        "QUEUE",
        "STATE",
        "ORDER",
        "WEIGHT",
        "PART",
        "GUARANTEED",
        "USED",
    ]
    words = {line.split()[0]: line for line in lines}
    order = ("lab", "research", "train", "eval", "nightly", "old", "x", "nlp", "default")
    assert [name for name in words if not name.startswith("gpu:")] == list(order)
    assert words["research"].startswith("  research ")
    assert words["train"].startswith("    train ")
    assert words["research"].split()[1:6] == ["open", "1", "gpu", "4", "4"]
    assert "1/20" in words["train"]
    assert "(job 4)" in words["train"]
    assert words["eval"].rstrip().endswith("at limit")
    assert words["nightly"].rstrip().endswith("beyond")
    assert "stopped (around it)" in words["x"]
    assert words["gpu:A100"].split() == ["gpu:A100", "-", "4", "-", "-", "-", "6"]
    assert "holds all that one user of queue research.train of lab may: 2 GPUs" in ran.err


def test_for_programs_in_python_and_over_http_it_says_the_same(cluster: RealCluster) -> None:
    told = msgspec.convert(
        json.loads(allot("queues", "lab", "--json", "--state", cluster.state).out),
        list[TenantQueues],
    )
    with Client(state=str(cluster.state)) as client:
        (lab,) = client.queues("lab")
        assert [each.tenant for each in client.queues()] == ["lab", "nlp"]
    assert [steady(each.queues) for each in told] == [steady(lab.queues)]
    research, nightly, _ = lab.queues
    assert (nightly.borrowed["gpu"], nightly.stands) == (4000, QueueStand.BEYOND)
    assert (research.running, research.waiting, research.eligible) == (2, 2, 2)
    assert research.oldest_job == 4
    (who,) = research.queues[0].capped
    assert (who.held, who.cap, who.full) == ({"gpu": 2000}, {"gpu": 2000}, True)


def steady(queues: tuple[QueueView, ...]) -> tuple[QueueView, ...]:
    """Leave out how long they waited, which grows."""
    return tuple(
        msgspec.structs.replace(queue, oldest_ms=0, queues=steady(queue.queues))
        for queue in queues
    )


def test_a_tenant_that_is_not_there(cluster: RealCluster) -> None:
    ran = allot("queues", "nobody", "--state", cluster.state)
    assert ran.code != 0
    assert "no tenant nobody" in ran.err
    assert "lab, nlp" in ran.err
    assert cluster.ask("GET", "/v1/queues?tenant=nobody")[1]["code"] == "no_such_tenant"


def test_it_fits_a_screen_of_eighty_columns(
    cluster: RealCluster, service: Service, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NO_COLOR", "1")
    with Client(state=str(cluster.state)) as client:
        service.routes["GET /v1/queues"] = Answer(msgspec.json.encode(client.queues()))
    lines = allot("queues", "--state", state, terminal=True).out.splitlines()
    assert max(map(len, lines)) <= 80, lines
    for column in ("QUEUE", "GUARANTEED", "USED", "LIMIT", "JOBS", "WAITING", "STANDS"):
        assert column in lines[0]


def test_no_service(tmp_path: Path) -> None:
    assert allot("queues", "--state", tmp_path).code == 3
