"""`allot stats`: of canned answers, and of a real service's history."""

import json
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from allotment.model.quantity import Instant
from allotment.service.statistics import statistics_of
from allotment.service.statistics_view import Statistics
from tests.integration.cli.canned import Answer, Service
from tests.support.builders import a_config, a_tenant
from tests.support.cluster import RealCluster, a_real_cluster
from tests.support.invoke import Ran, allot
from tests.unit.metrics.history import History

HOUR = 3_600_000
FIRST = 1_790_000_000_000

CONFIG = """
virtual_gpus: {type: A100, count: 4}
tenants:
  vision: {guaranteed: {gpu: 3}}
  nlp: {guaranteed: {gpu: 1}}
"""


def a_log() -> History:
    """Team a's jobs go before; b waits two hours for devices. Nobody of c is there."""
    tenants = [a_tenant("team-a-of-a-long-name", 6), a_tenant("b", 2), a_tenant("c")]
    log = History().at(FIRST).configure(a_config(*tenants))
    log.submit(1, 8, "team-a-of-a-long-name").start(1).submit(2, 4, "b").submit(3, 2, "b")
    log.at(FIRST + 2 * HOUR).succeed(1).start(2).start(3)
    return log.at(FIRST + 3 * HOUR).succeed(2).fail(3)


def told(log: History, next_job: int = 0) -> Statistics:
    return statistics_of(
        log.records, Instant(FIRST), Instant(FIRST + 4 * HOUR), next_job=next_job
    )


def canned(service: Service, found: Statistics) -> None:
    service.routes["GET /v1/statistics"] = Answer(msgspec.json.encode(found))


def test_in_words(service: Service, state: Path) -> None:
    canned(service, told(a_log()))
    ran = allot("stats", "--state", state)
    assert ran.code == 0, ran.err
    assert "  jobs         3, 2 succeeded, 1 failed\n" in ran.out
    assert "    for        devices 100%\n" in ran.out
    assert "  devices      68.8% of 8 in use; " in ran.out
    head, *rows = ran.out.splitlines()[-6:-2]
    assert head.split() == [
        "TENANT", "GUARANTEED", "GOT", "JOBS", "FAILED", "WAIT", "P90", "P99", "PREEMPTED",
        "PACE", "WAITED", "FOR",
    ]  # fmt: skip
    assert [row.split() for row in rows] == [
        ["b", "2", "1.5", "2", "1", "2h", "2h", "2h", "0", "0.50", "devices"],
        ["team-a-of-a-long-name", "6", "4.0", "1", "0", "0s", "0s", "0s", "0", "1.75", "-"],
        ["c", "0", "0", "0", "-", "-", "-", "-", "-", "-", "-"],
    ]
    assert "b was slowed down most: 3.5 times as much as team-a-of-a-long-name" in ran.out


def test_it_fits_a_screen_of_eighty_columns(
    service: Service, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NO_COLOR", "1")
    canned(service, told(a_log()))
    ran = allot("stats", "--state", state, terminal=True)
    assert ran.code == 0, ran.err
    lines = ran.out.splitlines()
    assert max(map(len, lines)) <= 80
    (head,) = (line for line in lines if line.startswith("TENANT"))
    for column in ("GUARANTEED", "GOT", "JOBS", "WAIT", "PACE"):
        assert column in head


def test_one_tenant(service: Service, state: Path) -> None:
    canned(service, told(a_log()))
    ran = allot("stats", "--state", state, "--tenant", "b")
    assert ran.code == 0, ran.err
    assert ran.out.startswith("b, 20")
    assert "  devices      1.5 used on average, 2 guaranteed\n" in ran.out
    assert "  jobs         2, 1 succeeded, 1 failed\n" in ran.out
    assert "team-a" not in ran.out
    ran = allot("stats", "--state", state, "--tenant", "c")
    assert "It had no job." in ran.out
    ran = allot("stats", "--state", state, "--tenant", "d")
    assert ran.code == 1
    assert "Tenants here: b, c, team-a-of-a-long-name." in ran.err
    ran = allot("stats", "--state", state, "--tenant", "b", "--json")
    assert [block["tenant"] for block in json.loads(ran.out)["numbers"]["tenants"]] == ["b"]


def test_where_history_was_forgotten_it_says_so(service: Service, state: Path) -> None:
    log = a_log()
    found = told(log, next_job=9)
    canned(service, msgspec.structs.replace(found, since=found.known_since))
    ran = allot("stats", "--state", state)
    assert "5 earlier jobs forgotten (limits.keep_history)" in ran.err


def test_what_is_asked_of_the_service(service: Service, state: Path) -> None:
    canned(service, told(a_log()))
    words = ("--since", "2026-10-01T00:00:00+00:00", "--until", "2026-11-01T00:00:00+00:00")
    assert allot("stats", "--state", state, *words).code == 0
    assert service.requests[-1].path == (
        "/v1/statistics?since=1790812800000&until=1793491200000"
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--since", "soon"], "neither a length of time nor a date"),
        (["--since", "1h", "--until", "2h"], "--since is not before --until"),
    ],
)
def test_bad_input(tmp_path: Path, words: list[str], said: str) -> None:
    ran = allot("stats", "--state", tmp_path, *words)
    assert (ran.code, ran.out) == (2, "")
    assert said in ran.err


# ── a real service ──────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def cluster() -> Iterator[RealCluster]:
    folder = Path(tempfile.mkdtemp(prefix="allot-"))
    try:
        with a_real_cluster(folder, CONFIG) as cluster:
            need = {"gpu": 3, "cpu": 0.1, "memory": "16MiB"}
            jobs = [
                cluster.submit(
                    {"name": "j", "tenant": tenant, "command": "sleep 0.2", "resources": need}
                )
                for tenant in ("vision", "nlp", "vision")
            ]
            for job in jobs:
                cluster.wait_for(job, "succeeded")
            yield cluster
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def stats(cluster: RealCluster, *words: str) -> Ran:
    return allot("stats", "--state", cluster.state, *words)


def test_a_real_history(cluster: RealCluster) -> None:
    ran = stats(cluster)
    assert ran.code == 0, ran.err
    assert "  jobs         3, 3 succeeded\n" in ran.out
    found = json.loads(stats(cluster, "--json").out)
    events = cluster.get("/v1/events")
    assert found["since"] == found["known_since"] == events[0]["at"]
    assert 0 < found["in_use"] < 1
    assert [share["guaranteed_milli"] for share in found["shares"]] == [1000, 3000]
    assert "No job was there." in stats(cluster, "--since", "2d", "--until", "1d").out


def test_no_service(tmp_path: Path) -> None:
    assert allot("stats", "--state", tmp_path).code == 3
