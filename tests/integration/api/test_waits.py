"""For what jobs waited, asked of a real server about jobs that really waited."""

import msgspec

from allotment.client import Client
from allotment.metrics.reasons import LifePhase
from allotment.model.reasons import Reason
from allotment.service.wait_view import WaitHistory
from tests.integration.api.live import Live
from tests.support.cluster import until

ALL = {"resources": {"gpu": 8, "cpu": 1, "memory": "1 GiB"}}
ONE = {"resources": {"gpu": 1, "cpu": 1, "memory": "1 GiB"}}


def waits(live: Live, job: int) -> WaitHistory:
    return msgspec.json.decode(live.ask("GET", f"/v1/jobs/{job}/waits").body, type=WaitHistory)


def told(live: Live, job: int) -> list[str]:
    return [(each.reason or each.phase).value for each in waits(live, job).stretches]


def came_to(live: Live, job: int, *words: str) -> None:
    """Wait until a job's past reads so."""
    until(lambda: told(live, job) == list(words), f"job {job} to be {words}")


def lasts(live: Live, job: int, ms: int = 1200) -> None:
    """Wait until the present stretch of a job is long enough to be told."""
    until(lambda: waits(live, job).stretches[-1].ms > ms, f"job {job} to stay as it is")


def test_capacity_then_held_then_capacity_then_over(live: Live) -> None:
    first = live.submit("fake forever", **ALL)
    live.wait_for(first, "running")
    job = live.submit("fake forever", **ALL)
    after = live.submit("fake forever", **ONE, depends_on=[job])
    came_to(live, job, "capacity")
    lasts(live, job)
    live.ask("POST", f"/v1/jobs/{job}:hold")
    lasts(live, job)
    live.ask("POST", f"/v1/jobs/{job}:release")
    lasts(live, job)
    found = waits(live, job)
    assert told(live, job) == ["capacity", "held", "capacity"]
    assert found.why is not None
    assert found.why.reason is Reason.CAPACITY
    live.ask("POST", f"/v1/jobs/{first}:cancel")
    live.wait_for(job, "running")
    lasts(live, job)
    assert told(live, after) == ["dependency"]
    live.ask("POST", f"/v1/jobs/{job}:cancel")
    live.wait_for(after, "failed")
    over = waits(live, job)
    assert (over.state.value, over.why, over.name) == ("cancelled", None, "job")
    lengths = [each.ms for each in over.stretches]
    assert sum(lengths) == live.get(f"/v1/jobs/{job}")["row"]["finished_at"] - submitted(
        live, job
    )
    assert list(over.waited_for) == sorted(
        over.waited_for, key=lambda reason: -over.waited_for[reason]
    )
    assert set(over.waited_for) == {"capacity", "held"}
    assert over.waited_ms == sum(over.waited_for.values())
    assert over.stretches[-1].phase in (LifePhase.RUNNING, LifePhase.STOPPING)
    assert list(waits(live, after).waited_for) == ["dependency"]
    with Client(state=str(live.folder)) as client:
        assert client.waits(job) == over


def submitted(live: Live, job: int) -> int:
    return live.get(f"/v1/jobs/{job}")["row"]["submitted_at"]


def test_evicted_it_waits_for_capacity_again_and_its_successor_for_its_place(
    live: Live,
) -> None:
    borrower = live.submit("fake forever", **ALL)
    live.wait_for(borrower, "running")
    lasts(live, borrower)
    owner = live.submit(tenant="nlp", resources={"gpu": 4, "cpu": 1, "memory": "1 GiB"})
    live.wait_for(owner, "running")
    lasts(live, borrower)
    found = waits(live, borrower).stretches
    assert (found[-1].phase, found[-1].cause, found[-1].attempt) == (
        LifePhase.WAITING,
        "evicted",
        1,
    )
    assert LifePhase.RUNNING in [each.phase for each in found]
    until(lambda: told(live, borrower)[-1] == "capacity", "it to be looked at")
    assert waits(live, owner).waited_for.keys() <= {"waiting_for_victims", "eligible"}


def test_what_is_found_is_told_by_the_events_too(live: Live) -> None:
    live.wait_for(live.submit("fake forever", **ALL), "running")
    job = live.submit("fake forever", **ALL)
    came_to(live, job, "capacity")
    with Client(state=str(live.folder)) as client:
        assert "waits: capacity" in [event.text for event in client.events(job)]


def test_a_job_that_is_not_there(live: Live) -> None:
    answer = live.ask("GET", "/v1/jobs/99/waits")
    assert (answer.status, answer.json["code"]) == (404, "no_such_job")
