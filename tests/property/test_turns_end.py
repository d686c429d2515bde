"""Where tenants have guarantees, taking turns comes to rest at every instant."""

from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allotment.engine.engine import Engine
from allotment.model.quantity import DEVICE, SECOND, Instant, Resources
from allotment.sim.catalogue import RECIPES
from allotment.sim.run import simulate
from allotment.sim.scenario import Scenario
from allotment.sim.settings import Settings
from allotment.sim.trace import Trace, TraceJob
from allotment.wiring.cluster_file import cluster_in

NODES, OWNERS = cluster_in(
    b"""
nodes:
  - {name: n1, cpu: 64, memory: 512GiB, gpu: {type: A, count: 4, memory: 80GiB}}
  - {name: n2, cpu: 64, memory: 512GiB, gpu: {type: A, count: 4, memory: 80GiB}}
tenants: {red: {guaranteed: {gpu: 5}}, blue: {guaranteed: {gpu: 3}}}
""",
    "cluster.yaml",
)
MOST = 2_000
"""Far more decisions than two dozen jobs need at one instant."""

JOBS = st.lists(
    st.tuples(
        st.sampled_from([0, 0, 5, 30, 100, 300]),
        st.sampled_from([1, 2, 3, 4, 6, 8]),
        st.sampled_from([10, 60, 200, 500, 1500]),
        st.sampled_from(["red", "blue"]),
    ),
    min_size=2,
    max_size=20,
)
"""Seconds since the one before, devices, seconds to run, tenant."""


def a_trace(rows: list[tuple[int, int, int, str]]) -> Trace:
    jobs: list[TraceJob] = []
    at = 0
    for number, (pause, gpus, seconds, tenant) in enumerate(rows):
        at += pause * SECOND
        need = Resources(gpu_milli=DEVICE)
        jobs.append(TraceJob(str(number), at, seconds * SECOND, gpus, need, tenant=tenant))
    return Trace("made.csv", "simple", "0" * 16, tuple(jobs))


class Impatient(Engine):
    """Fails where it would decide for ever."""

    at, times = Instant(-1), 0

    def cycle(self, now: Instant, budget: int = 256) -> bool:
        self.times = self.times + 1 if now == self.at else 0
        self.at = now
        assert self.times < MOST, f"no rest at {now}"
        more = super().cycle(now, budget)
        assert not self.refusals
        return more


@pytest.mark.parametrize("policy", sorted(RECIPES))
@given(rows=JOBS, eviction=st.sampled_from(["", "suspend"]))
def test_it_comes_to_rest_and_everybody_is_served(
    policy: str, rows: list[tuple[int, int, int, str]], eviction: Literal["", "suspend"]
) -> None:
    settings = Settings(eviction=eviction)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("allotment.sim.simulation.Engine", Impatient)
        run = simulate(Scenario(a_trace(rows), NODES, policy, settings, 0, owners=OWNERS))
    assert run.summary is not None
    assert run.summary.completed == len(rows)
