"""The log of a real service, replayed as the service decided: the same order of starts."""

from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from allotment.client import Client
from allotment.model import events as e
from allotment.model.ids import JobId
from allotment.sim.history import history_of
from allotment.sim.run import simulate
from allotment.wiring.history import Again, records_of, replayed
from tests.integration.api.live import Live
from tests.support.builders import a_config, a_tenant


@pytest.fixture
def live(tmp_path: Path) -> Iterator[Live]:
    """Eight devices: five are vision's, three nlp's."""
    config = a_config(a_tenant("vision", 5), a_tenant("nlp", 3))
    with Live(tmp_path / "state", config) as server:
        yield server


def a_history(live: Live) -> None:
    """Caps, dependencies, priorities and two shares; far enough apart to be told in order."""

    def job(seconds: float, gpus: float, tenant: str = "vision", **others: object) -> int:
        need = {"gpu": gpus, "cpu": 1, "memory": "1 GiB"}
        return live.submit(f"fake {seconds}", tenant=tenant, resources=need, **others)

    first = job(0.30, 5)
    job(0.50, 3, "nlp")
    job(0.12, 1, array={"count": 4, "max_running": 1})
    job(0.20, 2, "nlp")
    job(0.15, 2, depends_on=[first], priority=50)
    urgent = job(0.10, 4, priority=300)
    last = job(0.10, 1, "nlp", depends_on=[urgent])
    for number in range(1, last + 1):
        live.wait_for(number, "succeeded")
    live.run(live.service.pipeline.committer.idle())


def placed(log: Iterable[e.Record]) -> list[JobId]:
    return [r.event.job for r in log if isinstance(r.event, e.AttemptPlaced)]


@pytest.mark.parametrize("told", [False, True])
def test_the_order_of_starts_is_that_of_the_history(live: Live, told: bool) -> None:
    """From the log as it was written, and as the API tells it."""
    a_history(live)
    store = live.service._store  # noqa: SLF001 - the log as it was written
    with Client(state=str(live.folder)) as client:
        events = client.events(after=0, limit=10_000)
        found = history_of(records_of(events) if told else store.records(), 0, 1 << 60)
    assert sum(spec.array is not None for spec in found.wishes.specs) == 4
    log: list[e.Record] = []
    scenario = replayed(found, Again("own"))
    run = simulate(scenario, tap=log.extend)
    assert run.summary is not None
    assert run.summary.completed == len(found.trace.jobs) == 10
    assert [job.id for job in found.trace.jobs] == [str(job) for job in range(1, 11)]
    assert placed(log) == placed(store.records())
