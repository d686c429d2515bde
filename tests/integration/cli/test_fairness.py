"""`allot fairness` and `allot usage`: of canned answers, and of a real service."""

import csv
import io
import json
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from allotment.model.budget import Every
from allotment.model.ids import NodeId
from allotment.model.ledger import Entitlement, Slot
from allotment.model.quantity import HOUR, Instant, Resources
from allotment.service.fairness_view import FairnessReport, Served, TenantFairness
from allotment.service.usage import usage_of
from allotment.service.usage_view import BudgetState, BudgetUse, By, UsageReport
from tests.integration.cli.canned import Answer, Service
from tests.support.builders import a_config, a_tenant
from tests.support.cluster import RealCluster, a_real_cluster
from tests.support.invoke import allot
from tests.unit.metrics.history import History

FIRST = 1_790_000_000_000
CONFIG = """
virtual_gpus: {type: A100, count: 4}
tenants:
  vision: {guaranteed: {gpu: 3}}
  nlp: {guaranteed: {gpu: 1}, budgets: [{every: month, soft: 0.001, hard: 0.001}]}
"""


def gpus(count: float) -> Resources:
    return Resources(gpu_milli=round(count * 1000))


def a_tenants(name: str, served: Served, *amounts: float, since: int = 0) -> TenantFairness:
    """Amounts: guaranteed, deserved, wanted, used, borrowed, lent."""
    guaranteed, deserved, wanted, used, borrowed, lent = amounts
    return TenantFairness(
        tenant=name,
        guaranteed=gpus(guaranteed),
        deserved=gpus(deserved),
        wanted=gpus(wanted),
        used=gpus(used),
        borrowed=gpus(borrowed),
        lent=gpus(lent),
        deserved_ppm=round(deserved * 62_500),
        used_ppm=round(used * 62_500),
        served=served,
        eligible=3,
        starved_jobs=2 if since else 0,
        starved_ms=since,
    )


def told(*tenants: TenantFairness) -> FairnessReport:
    return FairnessReport(at=FIRST, capacity=gpus(16), tenants=tenants)


HUNGRY = told(
    a_tenants("a", Served.OVER, 2, 2.667, 14, 14, 12, 0),
    a_tenants("team-b-of-a-long-name", Served.STARVED, 8, 8, 9, 1, 0, 7, since=7_500_000),
    a_tenants("c", Served.EVEN, 0, 0, 0, 0, 0, 0),
)


def test_fairness_in_words(service: Service, state: Path) -> None:
    service.routes["GET /v1/fairness"] = Answer(msgspec.json.encode(HUNGRY))
    ran = allot("fairness", "--state", state)
    assert ran.code == 0, ran.err
    table, _, words = ran.out.partition("\n\n")
    assert [line.split() for line in table.splitlines()] == [
        ["TENANT", "GUARANTEED", "WANTS", "DESERVES", "USES", "BORROWED", "LENT", "SHARE",
         "SERVED", "STARVED"],
        ["team-b-of-a-long-name", "8", "9", "8", "1", "0", "7", "6%/50%", "starved", "2h5m"],
        ["a", "2", "14", "2.7", "14", "12", "0", "88%/17%", "over", "-"],
        ["c", "0", "0", "0", "0", "0", "0", "0%/0%", "even", "-"],
    ]  # fmt: skip
    assert words.splitlines() == [
        "team-b-of-a-long-name is starved: 2 jobs within what it deserves, one for 2h5m.",
        "a has most beyond its fair share: 71% of the cluster.",
        "To see why a job waits: `allot why JOB`.",
    ]


def test_when_all_is_well_it_says_so(service: Service, state: Path) -> None:
    even = told(a_tenants("a", Served.EVEN, 2, 2, 2, 2, 0, 0))
    service.routes["GET /v1/fairness"] = Answer(msgspec.json.encode(even))
    ran = allot("fairness", "--state", state)
    assert ran.out.splitlines()[-1].startswith("Every tenant gets its share")
    assert json.loads(allot("fairness", "--state", state, "--json").out)["tenants"][0][
        "served"
    ] == ("even")


def test_they_fit_a_screen_of_eighty_columns(
    service: Service, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NO_COLOR", "1")
    service.routes["GET /v1/fairness"] = Answer(msgspec.json.encode(HUNGRY))
    service.routes["GET /v1/usage"] = Answer(msgspec.json.encode(a_report(By.JOB, By.TYPE)))
    wanted = {
        "fairness": ("GUARANTEED", "DESERVES", "USES", "SERVED", "STARVED"),
        "usage": ("JOB", "GPU-H", "OWN", "BORROWED", "LOST", "CPU-H"),
    }
    for verb, columns in wanted.items():
        ran = allot(verb, "--state", state, terminal=True)
        assert ran.code == 0, ran.err
        lines = ran.out.splitlines()
        assert max(map(len, lines)) <= 80, lines
        (head,) = (line for line in lines if columns[0] in line.split())
        for column in columns:
            assert column in head


# ── usage ───────────────────────────────────────────────────────────────────────────────


def a_report(*by: By) -> UsageReport:
    """Team a had two devices for three hours, b one for one hour, and lost half of it."""
    log = History().at(FIRST).configure(a_config(a_tenant("a", 4), a_tenant("b", 4)))
    log.submit(1, 2, "a", name="train, the large one")
    log.place(1, slots=(Slot(NodeId(0), (0, 1), 2000),)).begin(1)
    log.submit(2, 1, "b", user="bob").place(
        2, Entitlement.OPPORTUNISTIC, (Slot(NodeId(0), (2,), 1000),)
    )
    log.begin(2).at(FIRST + HOUR).evict(2).at(FIRST + 3 * HOUR).succeed(1)
    end = Instant(FIRST + 4 * HOUR)
    return usage_of(log.records, Instant(FIRST), end, 0, by or (By.TENANT,))


def test_usage_in_words(service: Service, state: Path) -> None:
    service.routes["GET /v1/usage"] = Answer(msgspec.json.encode(a_report()))
    ran = allot("usage", "--state", state)
    assert ran.code == 0, ran.err
    head, *rows = (line.split() for line in ran.out.splitlines()[1:])
    assert head == [
        "TENANT", "JOBS", "GPU-H", "OWN", "BORROWED", "LOST", "EVICTED", "OF", "ALL", "CPU-H",
    ]  # fmt: skip
    assert rows == [
        ["a", "1", "6.0", "6.0", "0", "0", "0", "18.8%", "0"],
        ["b", "1", "1.0", "0", "1.0", "0", "1", "3.1%", "0"],
        ["all", "2", "7.0", "6.0", "1.0", "0", "1", "21.9%", "0"],
    ]


def test_usage_says_how_devices_were_used_where_that_was_seen(
    service: Service, state: Path
) -> None:
    found = a_report()
    first, second = found.rows
    rows = (replace(first, gpu_h_seen=4.0, gpu_h_busy=1.0), second)
    total = replace(found.total, gpu_h_seen=4.0, gpu_h_busy=1.0)
    service.routes["GET /v1/usage"] = Answer(
        msgspec.json.encode(replace(found, rows=rows, total=total))
    )
    lines = allot("usage", "--state", state).out.splitlines()
    assert [line.split()[-1] for line in lines[1:]] == ["USE", "25%", "-", "25%"]


def test_usage_as_csv(service: Service, state: Path) -> None:
    service.routes["GET /v1/usage"] = Answer(msgspec.json.encode(a_report(By.JOB)))
    ran = allot("usage", "--state", state, "--by", "job", "--csv", "--since", "9d")
    assert ran.code == 0, ran.err
    first, second = csv.DictReader(io.StringIO(ran.out))
    assert list(first) == [
        "tenant", "queue", "user", "job", "name", "type", "jobs", "evictions", "gpu_h",
        "gpu_h_guaranteed", "gpu_h_borrowed", "gpu_h_lost", "cpu_h", "cpu_h_guaranteed",
        "cpu_h_borrowed", "cpu_h_lost", "cpu_h_used", "gpu_h_seen", "gpu_h_busy",
    ]  # fmt: skip
    assert (first["job"], first["name"], first["gpu_h"]) == (
        "1", "train, the large one", "6.000000",
    )  # fmt: skip
    assert (second["user"], second["gpu_h_borrowed"], second["type"]) == (
        "bob", "1.000000", "",
    )  # fmt: skip
    assert service.requests[-1].path.endswith("&by=job")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--since", "soon"], "neither a length of time nor a date"),
        (["--since", "1h", "--until", "2h"], "--since is not before --until"),
        (["--csv", "--json"], "two different forms"),
    ],
)
def test_bad_input(tmp_path: Path, words: list[str], said: str) -> None:
    ran = allot("usage", "--state", tmp_path, *words)
    assert (ran.code, ran.out) == (2, "")
    assert said in ran.err


def test_no_service(tmp_path: Path) -> None:
    assert allot("usage", "--state", tmp_path).code == 3
    assert allot("fairness", "--state", tmp_path).code == 3


# ── a real service ──────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def cluster() -> Iterator[RealCluster]:
    folder = Path(tempfile.mkdtemp(prefix="allot-"))
    try:
        with a_real_cluster(folder, CONFIG) as cluster:
            yield cluster
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def test_a_real_service(cluster: RealCluster) -> None:
    need = {"gpu": 3, "cpu": 0.1, "memory": "16MiB"}
    job = {"name": "j", "command": "sleep 1.3", "resources": need}
    for tenant in ("vision", "nlp"):
        cluster.wait_for(cluster.submit({**job, "tenant": tenant}), "succeeded")
    words = ("--state", cluster.state)
    found = json.loads(allot("usage", *words, "--by", "tenant,type", "--json").out)
    rows = {row["tenant"]: row for row in found["rows"]}
    assert {row["type"] for row in found["rows"]} == {"A100"}
    assert rows["vision"]["gpu_h_borrowed"] == rows["nlp"]["gpu_h_guaranteed"] == 0
    assert rows["vision"]["gpu_h_guaranteed"] > 3 * 0.2 / 3600
    assert rows["nlp"]["gpu_h_borrowed"] > 3 * 0.2 / 3600
    numbers = json.loads(allot("stats", *words, "--json").out)
    assert numbers["numbers"]["device_h"] <= found["total"]["gpu_h"]
    ran = allot("fairness", *words)
    assert ran.code == 0, ran.err
    assert "Every tenant gets its share" in ran.out
    (budget,) = found["budgets"]
    assert (budget["tenant"], budget["state"]) == ("nlp", "spent")
    assert budget["used_gpu_h"] > 3 * 0.2 / 3600
    waits = cluster.submit({**job, "tenant": "nlp"})
    why = cluster.get(f"/v1/jobs/{waits}")
    assert (why["row"]["state"], why["why"]["reason"]) == ("queued", "budget")
    assert "so it waits" in why["warnings"][-1]
    assert "It may start in" in allot("why", str(waits), *words).out
    ran = allot("usage", *words, "--by", "colour")
    assert ran.code == 1
    assert "tenant, queue, user, job, type" in ran.err


# ── budgets ─────────────────────────────────────────────────────────────────────────────


def test_budgets_in_words(service: Service, state: Path) -> None:
    budgets = (
        BudgetUse("a", "", "", Every.MONTH, FIRST, FIRST, 12.5, 10, 20, BudgetState.WARNED),
        BudgetUse("a", "night", "", Every.DAY, FIRST, FIRST, 3, 0, 2, BudgetState.SPENT),
        BudgetUse("b", "", "bob", Every.NEVER, FIRST, 0, 0, 5, 0, BudgetState.OK),
    )
    found = msgspec.structs.replace(a_report(), budgets=budgets)
    service.routes["GET /v1/usage"] = Answer(msgspec.json.encode(found))
    ran = allot("usage", "--state", state)
    assert ran.code == 0, ran.err
    head, *rows = (line.split() for line in ran.out.partition("Budgets now\n")[2].splitlines())
    assert head[:9] == [
        "TENANT", "QUEUE", "USER", "EVERY", "USED", "WARN", "MOST", "PART", "STATE",
    ]  # fmt: skip
    assert [row[:8] for row in rows] == [
        ["a", "-", "-", "month", "12.5", "10.0", "20.0", "62%"],
        ["a", "night", "-", "day", "3.0", "-", "2.0", "150%"],
        ["b", "-", "bob", "once", "0", "5.0", "-", "0%"],
    ]
    assert " used up " in ran.out
    assert "Budgets" not in allot("usage", "--state", state, "--csv").out
