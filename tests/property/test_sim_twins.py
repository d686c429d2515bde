"""Small random traces: the simulator against the slow, obvious twins of its policies.

Every run is audited at every instant, and the committer never has to refuse.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allotment.model.quantity import DAY
from allotment.sim.catalogue import RECIPES
from allotment.sim.settings import Settings
from tests.support import sim

JOB = st.tuples(st.integers(DAY, DAY + 60), st.integers(1, 9), st.integers(1, 40))


def up_to(most: int) -> st.SearchStrategy[sim.Rows]:
    """Crowded on purpose: many jobs come and end at the same instants."""
    counts = st.integers(1, most)
    return counts.flatmap(lambda n: st.lists(JOB, min_size=n, max_size=n)).map(sorted)


ROWS = up_to(40)

CLUSTERS = st.tuples(st.integers(1, 3), st.integers(1, 4))


def watched(rows: sim.Rows, cluster: tuple[int, int], policy: str) -> sim.Watched:
    return sim.Watched(rows, f"{cluster[0]}x{cluster[1]}", policy)


def assert_same(run: sim.Watched, twins: list[sim.Twin]) -> None:
    """Compare when each job ran, from start to end.

    Left out is what takes no time: a job that is sent away and gets its place back at the
    same instant, because another one that left its place made more room than was needed.
    """
    assert run.spans == [twin.spans for twin in twins]
    assert run.end == [twin.end for twin in twins]


@pytest.mark.parametrize(("policy", "strict"), [("fifo", True), ("backfill", False)])
@given(rows=ROWS, cluster=CLUSTERS)
def test_in_order_of_arrival(
    policy: str, strict: bool, rows: sim.Rows, cluster: tuple[int, int]
) -> None:
    run = watched(rows, cluster, policy)
    assert_same(run, sim.dealt_out(rows, cluster[0] * cluster[1], strict=strict))


@given(rows=ROWS, cluster=CLUSTERS)
def test_equals_in_priority_are_first_come_first_served(
    rows: sim.Rows, cluster: tuple[int, int]
) -> None:
    run = watched(rows, cluster, "priority")
    assert_same(run, sim.dealt_out(rows, cluster[0] * cluster[1], strict=False))


@given(rows=ROWS, cluster=CLUSTERS)
def test_shortest_first(rows: sim.Rows, cluster: tuple[int, int]) -> None:
    run = watched(rows, cluster, "sjf")
    assert_same(run, sim.dealt_out(rows, cluster[0] * cluster[1], sim.by_run))


@pytest.mark.parametrize(("policy", "key"), [("srtf", sim.by_left), ("srsf", sim.by_size)])
@given(rows=ROWS, cluster=CLUSTERS)
def test_least_remaining_first(
    policy: str, key: sim.Key, rows: sim.Rows, cluster: tuple[int, int]
) -> None:
    run = watched(rows, cluster, policy)
    assert_same(run, sim.dealt_out(rows, cluster[0] * cluster[1], key, preempt=True))


@given(rows=ROWS, cluster=CLUSTERS)
def test_easy_backfilling(rows: sim.Rows, cluster: tuple[int, int]) -> None:
    twins, _ = sim.easy(rows, cluster[0] * cluster[1])
    assert_same(watched(rows, cluster, "easy"), twins)


@given(rows=ROWS, cluster=CLUSTERS)
def test_easy_keeps_its_promises(rows: sim.Rows, cluster: tuple[int, int]) -> None:
    """With true run times the first of the line never starts later than the instant that
    could be foretold when it first was blocked there."""
    _, promises = sim.easy(rows, cluster[0] * cluster[1])
    run = watched(rows, cluster, "easy")
    for place, promise in enumerate(promises):
        assert promise < 0 or run.spans[place][0][0] <= promise


@given(rows=ROWS, cluster=CLUSTERS)
def test_conservative_backfilling(rows: sim.Rows, cluster: tuple[int, int]) -> None:
    twins = sim.conservative(rows, cluster[0] * cluster[1])
    assert_same(watched(rows, cluster, "conservative"), twins)


@pytest.mark.parametrize("policy", ["las", "las2d"])
@given(rows=ROWS, cluster=CLUSTERS)
def test_the_others_give_every_job_what_it_needs(
    policy: str, rows: sim.Rows, cluster: tuple[int, int]
) -> None:
    run = watched(rows, cluster, policy)
    fits = [gpus <= cluster[0] * cluster[1] for _, gpus, _ in rows]
    assert [end >= 0 for end in run.end] == fits
    assert [place not in run.refused for place in range(len(rows))] == fits


COSTS = st.builds(
    Settings,
    start_ms=st.integers(0, 60),
    resume_ms=st.integers(0, 60),
    stop_ms=st.integers(0, 30),
    queues=st.sets(st.integers(1, 120), min_size=1, max_size=3).map(sorted).map(tuple),
    first_ms=st.integers(1, 30),
    round_ms=st.integers(1, 50),
    lead_ms=st.integers(0, 40),
    promote=st.integers(0, 3),
)
"""Starting and stopping that take longer than the jobs, and than the turns between them."""


@pytest.mark.parametrize("policy", sorted(RECIPES))
@given(rows=up_to(16), cluster=CLUSTERS, costs=COSTS)
def test_nobody_goes_round_for_ever_whatever_starting_and_stopping_cost(
    policy: str, rows: sim.Rows, cluster: tuple[int, int], costs: Settings
) -> None:
    run = sim.Watched(rows, f"{cluster[0]}x{cluster[1]}", policy, costs, most=30_000)
    assert all((end >= 0) == (place not in run.refused) for place, end in enumerate(run.end))
