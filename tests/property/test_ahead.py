"""A simulation stopped anywhere and taken up from its image goes on as it would have."""

from collections.abc import Sequence

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from allotment.engine.state import Image, State
from allotment.model import events as e
from allotment.model.ids import JobId
from allotment.model.quantity import DEVICE, Instant, Resources
from allotment.model.spec import Checkpoint
from allotment.model.tenancy import Queue, QueueOrder, Tenant
from allotment.sim.ahead import Ahead
from allotment.sim.cluster import cluster_of
from allotment.sim.scenario import Owners, Scenario
from allotment.sim.settings import Settings
from allotment.sim.simulation import Simulation
from allotment.sim.trace import Trace, TraceJob
from tests.support.builders import gpus

Row = tuple[int, int, int, bool]
"""Submission, devices, run time, and whose it is."""

ROWS = st.lists(
    st.tuples(st.integers(0, 20), st.integers(1, 4), st.integers(1, 60), st.booleans()),
    min_size=2,
    max_size=24,
)


class Stopped:
    """A simulation that keeps an image of itself at one of its instants."""

    def __init__(self, scenario: Scenario, at: int) -> None:
        self.starts: dict[JobId, list[int]] = {}
        self.image = b""
        self.now = Instant(0)
        self.left: dict[JobId, int | None] = {}
        self._at = at
        self.simulation = Simulation(scenario, self._carry)
        for _ in self.simulation.run(scenario.trace.jobs):
            pass

    def _carry(self, records: Sequence[e.Record]) -> None:
        for record in records:
            if isinstance(record.event, e.AttemptPlaced):
                self.starts.setdefault(record.event.job, []).append(record.at)
        now = self.simulation.now
        if self.image or now < self._at:
            return
        self.image, self.now = msgspec.msgpack.encode(self.simulation.engine.state.image()), now
        works = self.simulation.machines.works
        self.left = {job: work.left_ms - work.done_by(now) for job, work in works.items()}


def scenario_of(rows: Sequence[Row], order: str, *, shared: bool) -> Scenario:
    jobs = tuple(
        TraceJob(
            str(place), at, run, devices, Resources(gpu_milli=DEVICE),
            tenant="a" if is_a else "b",
        )
        for place, (at, devices, run, is_a) in enumerate(sorted(rows))
    )  # fmt: skip
    queues = (Queue("default", QueueOrder.STRICT),)
    owners = Owners((Tenant("a", gpus(2), queues), Tenant("b", gpus(2), queues)))
    return Scenario(
        Trace("made", "simple", "0", jobs),
        cluster_of("2x2"),
        "fifo",
        Settings(order=order),  # pyright: ignore[reportArgumentType]
        owners=owners if shared else None,
    )


@given(ROWS, st.integers(20, 90), st.sampled_from(["strict", "skip"]), st.booleans())
def test_it_goes_on_as_it_would_have(
    rows: list[Row], at: int, order: str, shared: bool
) -> None:
    live = Stopped(scenario_of(rows, order, shared=shared), at)
    if not live.image:
        return  # it was over by then
    for asked in live.left:
        policies = live.simulation.engine.state.policies
        state = State.from_image(msgspec.msgpack.decode(live.image, type=Image), policies)
        for job in state.jobs.values():
            # In traces whoever gives way keeps what it has done.
            job.spec = msgspec.structs.replace(job.spec, checkpoint=Checkpoint())
        course = Ahead(state, live.left, live.now).until_start(asked, 10**9)
        after = [start for start in live.starts[asked] if start > live.now]
        assert course.starts_at == (after[0] if after else None)
