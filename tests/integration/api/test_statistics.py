"""How it went, asked of a real server about jobs that really ran."""

import time
from typing import Any

import msgspec

from allotment.service.statistics import statistics_of
from allotment.service.statistics_view import Statistics
from allotment.wiring.history import records_of
from tests.integration.api.live import Live

GPU = {"resources": {"gpu": 3, "cpu": 1, "memory": "1 GiB"}}
STRANGER = {"Authorization": "Bearer no"}


def a_history(live: Live) -> None:
    """Two tenants: six jobs that take turns, one that fails, one that runs on."""
    for _ in range(3):
        live.submit("fake 0.05", tenant="vision", **GPU)
        live.submit("fake 0.05", tenant="nlp", **GPU)
    live.submit("fake 0.01 exit 3", tenant="nlp", **GPU)
    for job in range(1, 7):
        live.wait_for(job, "succeeded")
    live.wait_for(7, "failed")
    live.wait_for(live.submit("fake forever", tenant="vision", **GPU), "running")


def test_the_numbers_are_those_of_the_log(live: Live) -> None:
    a_history(live)
    found = msgspec.json.decode(live.ask("GET", "/v1/statistics").body, type=Statistics)
    assert (found.numbers.jobs, found.forgotten, found.carried) == (8, 0, 0)
    assert (found.numbers.completed, found.numbers.failed) == (6, 1)
    assert found.capacity_milli == 8000
    assert [(s.tenant, s.guaranteed_milli) for s in found.shares] == [
        ("nlp", 4000),
        ("vision", 4000),
    ]
    assert [block.failed for block in found.numbers.tenants] == [1, 0]
    assert found.numbers.p90_queue_delay_s > 0.03, "three by three of eight devices"
    assert found.numbers.wait_causes.capacity_s > 0
    events = msgspec.convert(live.get("/v1/events"), list[Any])
    assert found.events == len(events)
    first = events[0]["at"]
    assert found.since == found.known_since == first
    store = live.service._store  # noqa: SLF001 - the log itself, beside what is told of it
    again = statistics_of(store.records(), found.since, found.until)  # type: ignore[arg-type]
    assert again == found


def test_what_is_told_of_events_gives_the_same(live: Live) -> None:
    """Also to somebody who only has the API."""
    from allotment.client import Client  # noqa: PLC0415

    a_history(live)
    with Client(state=str(live.folder)) as client:
        found = client.statistics()
        records = records_of(client.events(after=0, limit=10_000))
        again = statistics_of(records, found.since, found.until)  # type: ignore[arg-type]
        assert again.numbers == found.numbers
        assert client.statistics(found.since, found.since + 1).numbers.completed == 0


def test_what_has_just_happened_is_in_it(live: Live) -> None:
    for number in range(1, 4):
        live.submit("fake forever")
        assert live.get("/v1/statistics")["numbers"]["jobs"] == number


def test_bad_stretches(live: Live) -> None:
    now = round(time.time() * 1000)
    for query, status in (
        ("since=-1", 422),
        ("since=soon", 422),
        (f"since={1 << 62}", 422),
        (f"since={now + 10_000_000}", 422),
        ("since=10&until=5", 422),
    ):
        answer = live.ask("GET", f"/v1/statistics?{query}")
        assert (answer.status, answer.json["code"]) == (status, "bad_request"), query


def test_it_is_behind_the_guard_like_all_reading(live: Live) -> None:
    assert live.ask_tcp("GET", "/v1/statistics").status == 401
    assert live.ask_tcp("GET", "/v1/statistics", headers=STRANGER).status == 401
    allowed = {"Authorization": f"Bearer {live.token}"}
    assert live.ask_tcp("GET", "/v1/statistics", headers=allowed).status == 200
