"""Start estimates over HTTP, worked out by real child processes that leave nothing behind."""

import os
import socket
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from allotment.service.estimating import ASSUMPTIONS
from allotment.sim.forecast import RUNS
from allotment.wiring import forecast
from tests.integration.api.live import Live
from tests.support.patience import PATIENCE_S

HOUR = 3_600_000


def children() -> set[int]:
    """List the processes that this one has started and that have not gone."""
    found: set[int] = set()
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            _state, parent, *_ = (process / "stat").read_text().rpartition(")")[2].split()
            if int(parent) == os.getpid():
                found.add(int(process.name))
    return found


def fill(live: Live, **limits: str) -> int:
    """Submit a job for the devices of both teams: the first runs, the others wait for it."""
    return live.submit(resources={"gpu": 8}, **limits)


def test_a_range_with_its_basis(live: Live) -> None:
    first = fill(live, max_run_time="2h")
    live.wait_for(first, "running")
    second = fill(live)
    before = children()
    found = live.get(f"/v1/jobs/{second}/eta")
    assert children() == before
    assert found["job"] == second
    assert found["outlook"] == "later"
    started = live.service.state.jobs[first].attempts[-1].started_at  # type: ignore[index]
    assert found["expected"] == found["latest"] == started + 2 * HOUR
    assert found["earliest"] < started + HOUR
    assert found["basis"] == [{"ground": "limit", "jobs": 1}]
    assert found["places"] == [{"node": "n0", "devices": list(range(8))}]
    assert found["entitlement"] == "opportunistic"
    assert found["assumptions"] == list(ASSUMPTIONS)
    assert "upper bound" in found["confidence"]


def test_finished_jobs_of_the_same_name_are_the_basis(live: Live) -> None:
    old = live.submit("fake 0.3", name="train", resources={"gpu": 8})
    live.wait_for(old, "succeeded")
    fill(live, name="train")
    second = fill(live)
    found = live.get(f"/v1/jobs/{second}/eta")
    assert found["basis"] == [{"ground": "same_name", "jobs": 1}]
    assert found["expected"] - found["asked_at"] < HOUR


def test_what_nobody_knows_is_said(live: Live) -> None:
    fill(live)
    second = fill(live)
    found = live.get(f"/v1/jobs/{second}/eta")
    assert (found["outlook"], found["expected"], found["latest"]) == ("unknown", None, None)
    assert found["basis"] == [{"ground": "unknown", "jobs": 1}]
    assert "its end is unknown" in found["note"]
    assert found["confidence"].startswith("weak")


def test_of_who_runs_is_held_or_is_over_no_process_is_asked(
    live: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forecast, "CHILD", ("/bin/false",))
    first = fill(live)
    live.wait_for(first, "running")
    assert live.get(f"/v1/jobs/{first}/eta")["outlook"] == "started"
    live.ask("POST", f"/v1/jobs/{first}:suspend")
    assert "allot resume" in live.get(f"/v1/jobs/{first}/eta")["note"]
    held = live.ask("POST", "/v1/jobs?held=true", {"name": "h", "command": "x"}).json["id"]
    assert "allot release" in live.get(f"/v1/jobs/{held}/eta")["note"]
    live.ask("POST", f"/v1/jobs/{held}:cancel")
    assert live.get(f"/v1/jobs/{held}/eta")["outlook"] == "never"
    # A process that fails is told, not hung upon.
    live.ask("POST", f"/v1/jobs/{first}:resume")
    live.wait_for(first, "running")
    waiting = fill(live)
    answer = live.ask("GET", f"/v1/jobs/{waiting}/eta")
    assert answer.status == 501
    assert "failed" in answer.json["detail"]


def test_a_dry_run_tells_what_a_submission_would_do_and_does_nothing(live: Live) -> None:
    spec = {"name": "job", "tenant": "vision", "command": "x", "resources": {"gpu": 8}}
    events = live.service.state.seq
    found = live.ask("POST", "/v1/jobs:dry-run", spec).json
    assert (found["job"], found["outlook"]) == (None, "now")
    assert found["expected"] == found["asked_at"]
    assert found["places"] == [{"node": "n0", "devices": list(range(8))}]
    refused = live.ask("POST", "/v1/jobs:dry-run", {**spec, "resources": {"gpu": 99}})
    assert (refused.status, refused.json["code"]) == (422, "never_fits")
    assert live.ask("POST", "/v1/jobs:dry-run", {**spec, "colour": 1}).status == 422
    held = live.ask("POST", "/v1/jobs:dry-run?held=true", spec).json
    assert "released" in held["note"]
    assert live.service.state.seq == events
    fill(live, max_run_time="1h")
    assert live.ask("POST", "/v1/jobs:dry-run", spec).json["outlook"] == "later"


def test_estimates_are_judged_by_what_came(live: Live) -> None:
    first = fill(live, max_run_time="1h")
    live.wait_for(first, "running")
    second = fill(live)
    told = live.get(f"/v1/jobs/{second}/eta")
    live.get(f"/v1/jobs/{second}/eta")  # the same again within a minute is not noted
    assert live.get("/v1/estimates")["waiting"] == 1
    live.ask("POST", f"/v1/jobs/{first}:cancel")
    live.wait_for(second, "running")
    found = live.get("/v1/estimates")
    placed = live.service.state.jobs[second].attempts[-1].placed_at  # type: ignore[index]
    assert (found["given"], found["judged"], found["waiting"]) == (1, 1, 0)
    assert found["median_error_ms"] == told["expected"] - placed
    assert (found["within"], found["ranges"]) == (0, 1)
    assert live.get("/v1/estimates?since=99999999999999")["given"] == 0
    assert "estimated to start" in str(live.get(f"/v1/jobs/{second}/events"))


# ── the process ─────────────────────────────────────────────────────────────────────────

SLOW = ("/bin/sleep", "600")


def await_children(wanted: int, before: set[int]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while len(children() - before) != wanted:
        assert time.monotonic() < deadline, children()
        os.sched_yield()


def test_who_hangs_up_ends_the_process(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forecast, "CHILD", SLOW)
    fill(live)
    second = fill(live)
    before = children()
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect(live.socket)
        sock.sendall(f"GET /v1/jobs/{second}/eta HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        await_children(1, before)
    await_children(0, before)


def marked(marker: str) -> list[str]:
    """List the processes that have a word in their command line."""
    found: list[str] = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if marker.encode() in (process / "cmdline").read_bytes():
                found.append(process.name)
    return found


def await_marked(wanted: int, marker: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while len(found := marked(marker)) != wanted:
        assert time.monotonic() < deadline, found
        os.sched_yield()


def test_its_forks_end_with_it(
    live: Live, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forking = (
        "import time; from allotment.wiring.forecast_child import side_by_side; "
        "side_by_side(lambda which: time.sleep(600))"
    )
    marker = f"marked-{tmp_path.name}-{os.getpid()}"
    monkeypatch.setattr(forecast, "CHILD", (sys.executable, "-P", "-c", forking, marker))
    fill(live)
    second = fill(live)
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect(live.socket)
        sock.sendall(f"GET /v1/jobs/{second}/eta HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        await_marked(RUNS if (os.cpu_count() or 1) > 1 else 1, marker)
    await_marked(0, marker)


def test_a_service_that_stops_ends_the_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forecast, "CHILD", SLOW)
    before = children()
    with Live(tmp_path / "state") as live, socket.socket(socket.AF_UNIX) as sock:
        fill(live)
        second = fill(live)
        sock.connect(live.socket)
        sock.sendall(f"GET /v1/jobs/{second}/eta HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        await_children(1, before)
    assert children() == before


def test_others_are_answered_meanwhile(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forecast, "CHILD", SLOW)
    fill(live)
    second = fill(live)
    before = children()
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect(live.socket)
        sock.sendall(f"GET /v1/jobs/{second}/eta HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        await_children(1, before)
        assert live.get("/v1/service")["ready"]
        assert live.ask("POST", f"/v1/jobs/{second}:cancel").status == 200
    await_children(0, before)


def test_a_trial_says_that_a_part_of_a_gpu_is_counted_only(live: Live) -> None:
    job = {"name": "x", "tenant": "vision", "command": "true", "resources": {"gpu": 0.5}}
    (told,) = live.ask("POST", "/v1/jobs:dry-run", job).json["warnings"]
    assert told.startswith("gpu: 0.5 of a GPU is counted, not enforced")
