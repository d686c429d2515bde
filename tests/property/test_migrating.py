"""Simulations in which gangs migrate: each job ends, and every book adds up."""

from hypothesis import given
from hypothesis import strategies as st

from allotment.model import events as e
from allotment.model.quantity import SECOND
from allotment.sim.settings import Settings
from tests.property.test_time_slicing import JOBS, Sliced, a_trace

MIGRATES = Settings(
    migrate="yes", start_ms=SECOND, resume_ms=SECOND, across_nodes=0.5, round_ms=60 * SECOND
)


@given(
    rows=JOBS,
    cluster=st.sampled_from(["2x2", "3x4", "2x4"]),
    policy=st.sampled_from(["fifo", "backfill", "easy", "round_robin", "gandiva"]),
)
def test_every_job_ends_though_gangs_move(
    rows: list[tuple[int, int, int, int]], cluster: str, policy: str
) -> None:
    run = Sliced(a_trace(rows), cluster, policy, MIGRATES)
    refused = len(run.simulation.refused)
    assert run.happened[e.JobSucceeded] == len(rows) - refused
    moved = run.happened[e.AttemptPlaced] - run.happened[e.JobSucceeded]
    assert moved <= run.happened[e.StopRequested]


def test_gangs_do_move_and_end_sooner() -> None:
    """A gang is apart until the job ends that left it one device on its node."""
    rows = [(0, 3, 60, 0), (0, 2, 400, 0)]
    stays = Settings(start_ms=SECOND, resume_ms=SECOND, across_nodes=0.5)
    still = Sliced(a_trace(rows), "2x4", "backfill", stays)
    moving = Sliced(a_trace(rows), "2x4", "backfill", MIGRATES)
    assert still.happened[e.AttemptPlaced] == 2
    assert moving.happened[e.AttemptPlaced] == 3
    took = [run.looks[-1] - run.looks[0] for run in (still, moving)]
    assert took[1] < took[0] - 300 * SECOND
