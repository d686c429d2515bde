"""A real service on a machine whose clock is set while it runs, and while it is away."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from allotment.model.quantity import DAY, HOUR, MINUTE
from tests.integration.api.test_wiring import Started
from tests.support.cluster import until

STEPPED = """
import pathlib, time
_file, _real = pathlib.Path({file!r}), time.time_ns
time.time_ns = lambda: _real() + int(_file.read_text() or 0) * 1_000_000
"""
"""The service's wall clock is off by what a file says; those of its tasks are not."""

CONFIG = """
nodes: [{name: n0, cpu: 8, memory: 8GiB}]
tenants: {vision: {guaranteed: {cpu: 8}}}
limits: {backoff: {first: 2s, most: 2s}}
"""


class Machine:
    """A service, and a hand on its wall clock."""

    def __init__(self, folder: Path) -> None:
        self.state, self.file = folder / "state", folder / "off_ms"
        self.config = folder / "config.yaml"
        self.config.write_text(CONFIG)
        self.file.write_text("0")
        self.service = self.start()

    def start(self) -> Started:
        before = STEPPED.format(file=str(self.file))
        self.service = Started(self.state, config=self.config, before=before)
        assert self.service.address is not None, self.service.end()
        return self.service

    def set(self, off_ms: int) -> None:
        new = self.file.with_suffix(".new")
        new.write_text(str(off_ms))
        new.rename(self.file)

    def step(self, off_ms: int) -> None:
        """Set the clock, and wait until that was seen."""
        before = len(self.steps())
        self.set(off_ms)
        until(lambda: len(self.steps()) > before, "the step to be seen")

    def now(self) -> int:
        return time.time_ns() // 1_000_000 + int(self.file.read_text())

    def get(self, path: str) -> Any:
        answer = self.service.ask("GET", path)
        assert answer.status == 200, answer
        return answer.json

    def steps(self) -> list[dict[str, Any]]:
        return [one for one in self.get("/v1/events") if one["kind"] == "ClockStepped"]

    def submit(self, command: str, **more: Any) -> int:
        job = {"name": "j", "command": command, "resources": {"cpu": 1}, **more}
        answer = self.service.ask("POST", "/v1/jobs", job)
        assert answer.status == 201, answer
        return answer.json["id"]

    def is_(self, job: int) -> str:
        return self.get(f"/v1/jobs/{job}")["row"]["state"]

    def becomes(self, job: int, state: str) -> None:
        until(lambda: self.is_(job) == state, f"job {job} to be {state}")


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    machine = Machine(tmp_path)
    yield machine
    machine.service.end()


BACK_AND_FORTH = pytest.mark.parametrize("off", [-HOUR, HOUR], ids=["back", "forth"])


@BACK_AND_FORTH
def test_limits_and_back_offs_hold_while_the_clock_is_set(machine: Machine, off: int) -> None:
    limited = machine.submit("fake forever", max_run_time="4s")
    machine.becomes(limited, "running")
    filler = machine.submit("fake forever", resources={"cpu": 6})
    machine.becomes(filler, "running")
    fails = machine.submit("fake exit 1", retry=1)
    until(lambda: len(machine.get(f"/v1/jobs/{fails}")["attempts"]) == 1, "it to fail once")
    waits = machine.submit("fake forever", resources={"cpu": 8}, max_queue_time="30m")
    machine.step(off)
    machine.becomes(limited, "timed_out")
    machine.becomes(fails, "failed")
    assert len(machine.get(f"/v1/jobs/{fails}")["attempts"]) == 2
    assert machine.is_(waits) == "queued"
    (step,) = machine.steps()
    way = "back" if off < 0 else "forward"
    assert step["text"].startswith(f"the machine's clock was set {way} by ")
    assert abs(step["at"] - machine.now()) < MINUTE, "told by the new clock"
    told = machine.get("/v1/service")
    assert abs(told["clock_set_ms"] - off) < 5_000
    assert abs(told["clock_set_at"] - machine.now()) < MINUTE


def moments(told: Any) -> Iterator[int]:
    """Return every number in an answer that may be a moment."""
    if isinstance(told, dict):
        for value in told.values():
            yield from moments(value)
    elif isinstance(told, list):
        for value in told:
            yield from moments(value)
    elif isinstance(told, int) and told > 1_000_000_000_000:
        yield told


def test_everything_is_shown_by_the_new_clock(machine: Machine) -> None:
    """Far enough ahead that no time of the old clock could be taken for one of the new."""
    over = machine.submit("fake exit 3")
    machine.becomes(over, "failed")
    runs = machine.submit("fake forever", resources={"cpu": 8})
    machine.becomes(runs, "running")
    waits = machine.submit("fake forever", max_run_time="1h")
    machine.service.ask("POST", "/v1/health", {"where": "n0", "source": "probe", "since": 5})
    machine.step(1_000 * DAY)
    note = {"name": "w", "begin": machine.now() + HOUR, "end": machine.now() + 2 * HOUR}
    made = machine.service.ask("POST", "/v1/reservations", {**note, "nodes": ["n0"]})
    assert made.status in {200, 201}, made
    assert (made.json[0]["begin"], made.json[0]["begun"]) == (note["begin"], False)
    paths = [
        *(f"/v1/jobs/{job}" for job in (over, runs, waits)),
        *(f"/v1/jobs/{waits}/{what}" for what in ("why", "waits", "eta", "events")),
        "/v1/jobs", "/v1/events", "/v1/service", "/v1/health", "/v1/nodes", "/v1/tenants",
        "/v1/queues", "/v1/statistics", "/v1/usage", "/v1/objectives", "/v1/fairness",
        "/v1/reservations", "/v1/cells",
    ]  # fmt: skip
    seen = 0
    for path in paths:
        for moment in moments(machine.get(path)):
            assert moment > machine.now() - DAY, path
            seen += 1
    assert seen > 40
    since = machine.now() - MINUTE
    assert machine.get(f"/v1/statistics?since={since}")["since"] >= since


@BACK_AND_FORTH
def test_a_service_goes_on_where_it_was_though_the_clock_was_set(
    machine: Machine, off: int
) -> None:
    held = machine.submit("fake forever", resources={"cpu": 8})
    machine.becomes(held, "running")
    waits = machine.submit("fake forever", resources={"cpu": 8}, max_queue_time="30m")
    before = machine.get(f"/v1/jobs/{waits}")["row"]["submitted_at"]
    assert machine.service.end()[0] == 0
    machine.set(off)
    machine.start()
    (step,) = machine.steps()
    assert abs(step["detail"]["by_ms"] - off) < 5_000
    assert machine.is_(waits) != "timed_out"
    shown = machine.get(f"/v1/jobs/{waits}")["row"]["submitted_at"]
    assert abs(shown - before - off) < 5_000
    limited = machine.submit("fake forever", max_queue_time="1s", resources={"cpu": 8})
    until(lambda: machine.is_(limited) in {"timed_out", "running"}, "time to go on")
