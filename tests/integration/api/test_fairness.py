"""Who deserves what, and who had what, asked of a real server about jobs that really ran."""

import msgspec
import pytest

from allotment.client import Client
from allotment.model.quantity import HOUR
from allotment.service.fairness_view import FairnessReport, Served
from allotment.service.statistics_view import Statistics
from allotment.service.usage_view import By, UsageReport
from tests.integration.api.live import Live

GPU = {"resources": {"gpu": 3, "cpu": 1, "memory": "1 GiB"}}


def fairness(live: Live) -> FairnessReport:
    return msgspec.json.decode(live.ask("GET", "/v1/fairness").body, type=FairnessReport)


def test_fairness_now(live: Live) -> None:
    first = live.submit("fake forever", tenant="vision", **GPU)
    live.wait_for(first, "running")
    live.submit("fake forever", tenant="vision", **GPU)
    found = fairness(live)
    assert [each.tenant for each in found.tenants] == ["nlp", "vision"]
    assert found.capacity.gpu_milli == 8000
    assert found.tenants[1].guaranteed.gpu_milli == 4000
    assert found.tenants[1].deserved.gpu_milli == 6000
    assert found.tenants[0].served is Served.EVEN
    with Client(state=str(live.folder)) as client:
        assert [each.deserved for each in client.fairness().tenants] == [
            each.deserved for each in found.tenants
        ]


def test_usage_agrees_with_the_statistics_and_with_what_is_in_the_log(live: Live) -> None:
    for tenant in ("vision", "nlp", "vision"):
        live.wait_for(live.submit("fake 0.05", tenant=tenant, **GPU), "succeeded")
    running = live.submit("fake forever", tenant="nlp", **GPU)
    live.wait_for(running, "running")
    until = live.service.now()
    user = live.service.state.jobs[running].owner.user  # type: ignore[index]
    with Client(state=str(live.folder)) as client:
        numbers = client.statistics(0, until)
        found = client.usage(0, until, "tenant,user")
    again = msgspec.json.decode(
        live.ask("GET", f"/v1/usage?until={until}").body, type=UsageReport
    )
    assert again.total == found.total
    assert (again.by, found.by) == ((By.TENANT,), (By.TENANT, By.USER))
    assert {(row.tenant, row.user, row.jobs) for row in found.rows} == {
        ("vision", user, 2),
        ("nlp", user, 2),
    }
    assert (found.since, found.known_since) == (numbers.since, numbers.known_since)
    devices = numbers.in_use * numbers.capacity_milli / 1000
    assert found.total.gpu_h == pytest.approx(devices * (until - found.since) / HOUR)
    assert found.total.gpu_h_guaranteed + found.total.gpu_h_borrowed == pytest.approx(
        found.total.gpu_h
    )
    assert found.total.cpu_h == pytest.approx(found.total.gpu_h / 3)
    assert isinstance(numbers, Statistics)


def test_bad_questions(live: Live) -> None:
    for query in ("since=-1", "since=10&until=5", "by=colour", "by=", "by=" + "a" * 101):
        answer = live.ask("GET", f"/v1/usage?{query}")
        assert (answer.status, answer.json["code"]) == (422, "bad_request"), query


def test_they_are_behind_the_guard_like_all_reading(live: Live) -> None:
    allowed = {"Authorization": f"Bearer {live.token}"}
    for path in ("/v1/usage", "/v1/fairness"):
        assert live.ask_tcp("GET", path).status == 401
        assert live.ask_tcp("GET", path, headers=allowed).status == 200
