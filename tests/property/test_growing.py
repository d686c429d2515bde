"""Simulations in which gangs grow and shrink: each job ends, and every book adds up."""

from hypothesis import given
from hypothesis import strategies as st

from allotment.model import events as e
from allotment.model.quantity import MINUTE, SECOND
from allotment.sim.settings import Settings
from tests.property.test_time_slicing import JOBS, Sliced, a_trace

GROWS = Settings(grow_ms=MINUTE, grow_to=4, scaling=0.9, start_ms=SECOND, resume_ms=SECOND)


@given(
    rows=JOBS,
    cluster=st.sampled_from(["2x2", "3x4", "2x4"]),
    policy=st.sampled_from(["fifo", "backfill", "easy", "round_robin", "gandiva"]),
    scaling=st.sampled_from([0.0, 0.5, 1.0]),
)
def test_every_job_ends_though_gangs_grow(
    rows: list[tuple[int, int, int, int]], cluster: str, policy: str, scaling: float
) -> None:
    settings = Settings(
        grow_ms=MINUTE, scaling=scaling, start_ms=SECOND, resume_ms=SECOND, stop_ms=SECOND
    )
    run = Sliced(a_trace(rows), cluster, policy, settings)
    refused = len(run.simulation.refused)
    assert run.happened[e.JobSucceeded] == len(rows) - refused


def test_a_job_grows_when_others_are_gone_and_ends_sooner() -> None:
    rows = [(0, 6, 300, 0), (1, 2, 4000, 0)]
    plain = Settings(start_ms=SECOND, resume_ms=SECOND)
    still, growing = (Sliced(a_trace(rows), "1x8", "fifo", how) for how in (plain, GROWS))
    assert still.happened[e.AttemptPlaced] == 2
    assert growing.happened[e.AttemptPlaced] == 3
    assert growing.happened[e.GainMeasured] == 1
    took = [run.looks[-1] - run.looks[0] for run in (still, growing)]
    assert took[1] < took[0] // 2
