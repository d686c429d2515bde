"""Gangs that are suspended and resumed by turns: each has its share of time, none starves."""

from collections import Counter
from collections.abc import Sequence
from itertools import permutations
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from allotment.core.gang import Standing
from allotment.core.rank import Rank, moving
from allotment.model import events as e
from allotment.model.cells import CellShare, CellType, RootCell, Topology
from allotment.model.ids import JobId, NodeId
from allotment.model.quantity import DAY, DEVICE, GIB, MINUTE, SECOND, Instant, Resources
from allotment.model.tenancy import Tenant
from allotment.policies.ordering.ran import ran_ms
from allotment.policies.turns.rounds import Rounds
from allotment.sim.catalogue import Recipe
from allotment.sim.cluster import cluster_of
from allotment.sim.scenario import Owners, Scenario
from allotment.sim.settings import Settings
from allotment.sim.simulation import BEYOND_ALL, Simulation
from allotment.sim.trace import Trace, TraceJob
from tests.support.audit import audit

ROUND = 60 * SECOND
SLICED = Settings(round_ms=ROUND, lead_ms=0, eviction="suspend", queues=(100_000, 400_000))
MOST = 500
"""Far more events than a few jobs need at one instant."""


class Sliced:
    """A run whose books are audited at every instant; what happened in it."""

    def __init__(
        self,
        jobs: Sequence[TraceJob],
        cluster: str,
        policy: str = "maxmin",
        settings: Settings = SLICED,
        custom: Recipe | None = None,
        owners: Owners | None = None,
    ) -> None:
        trace = Trace("made.csv", "simple", "0" * 16, tuple(jobs))
        nodes = cluster_of(cluster)
        scenario = Scenario(trace, nodes, policy, settings, custom=custom, owners=owners)
        self.happened = Counter[type[e.Event]]()
        self.had: list[dict[JobId, int]] = []
        """How long each job that is there has run, at every instant."""
        self.looks: list[Instant] = []
        self.gave_way: list[tuple[JobId, JobId]] = []
        """Which gang was suspended for which."""
        self.at, self.now = Counter[tuple[type[e.Event], JobId]](), Instant(-1)
        self.simulation = Simulation(scenario, self._look)
        for _ in self.simulation.run(trace.jobs):
            pass

    def _look(self, records: Sequence[e.Record]) -> None:
        state, now = self.simulation.engine.state, self.simulation.now
        assert now >= self.now, "time goes back"
        if now != self.now:
            self.at, self.now = Counter(), now
        for record in records:
            self.happened[type(record.event)] += 1
            if isinstance(record.event, e.AttemptSuspended) and record.event.wanted_by:
                self.gave_way.append((record.event.job, record.event.wanted_by))
            if isinstance(record.event, e.AttemptEvent):
                self.at[type(record.event), record.event.job] += 1
        if records:
            audit(state)
        assert self.simulation.engine.refusals == 0
        assert sum(self.at.values()) < MOST, "it does not come to rest"
        for job in state.jobs:
            assert self.at[e.AttemptSuspended, job] <= 1, "it goes back and forth"
            assert self.at[e.AttemptResumed, job] <= 1, "it goes back and forth"
        self.looks.append(now)
        self.had.append(
            {job.id: ran_ms(state.standing(job), now) for job in state.jobs.values()}
        )


# ── weighted round robin ────────────────────────────────────────────────────────────────


class Weighted:
    """Whoever has run least for its weight comes first."""

    def __init__(self, weights: Sequence[int]) -> None:
        self.pace = [12 // weight for weight in weights]

    def rank(self, job: Standing, now: Instant) -> Rank:
        pace = self.pace[job.id - 1]
        return moving((), ran_ms(job, now) * pace, pace if job.runs else 0, now)


@given(
    weights=st.lists(st.sampled_from([1, 2, 3, 4]), min_size=2, max_size=3),
    devices=st.sampled_from([1, 2, 4]),
    rounds=st.lists(st.integers(5, 20), min_size=3, max_size=3),
)
def test_gangs_on_the_same_devices_run_in_proportion_to_their_weights(
    weights: list[int], devices: int, rounds: list[int]
) -> None:
    jobs = [a_gang(n, 0, devices, rounds[n] * 45) for n in range(len(weights))]
    order = Weighted(weights)
    recipe = Recipe("weighted", lambda *_: order, turns=lambda s: Rounds(s.round_ms))
    run = Sliced(jobs, f"1x{devices}", custom=recipe)
    assert run.happened[e.JobSucceeded] == run.happened[e.AttemptPlaced] == len(jobs)
    assert run.happened[e.AttemptSuspended] == run.happened[e.AttemptResumed] > 0
    for had in run.had:
        for one, other in permutations(had, 2):
            ahead = had[one] * order.pace[one - 1] - had[other] * order.pace[other - 1]
            assert ahead <= ROUND * order.pace[one - 1], "it ran before its turn"


@given(
    weights=st.lists(st.integers(1, 4), min_size=2, max_size=3),
    devices=st.sampled_from([1, 2, 4]),
    rounds=st.lists(st.integers(5, 20), min_size=3, max_size=3),
)
def test_slices_are_dealt_in_proportion_to_the_weights_of_jobs(
    weights: list[int], devices: int, rounds: list[int]
) -> None:
    jobs = [
        replace(a_gang(n, 0, devices, rounds[n] * 45), weight=weight)
        for n, weight in enumerate(weights)
    ]
    run = Sliced(jobs, f"1x{devices}", "round_robin")
    assert run.happened[e.JobSucceeded] == run.happened[e.AttemptPlaced] == len(jobs)
    for had in run.had:
        for one, other in permutations(had, 2):
            mine, theirs = weights[one - 1], weights[other - 1]
            ahead = had[one] * theirs - had[other] * mine
            assert ahead <= ROUND * mine * theirs, "it is ahead by more than its own turn"


# ── whatever comes ──────────────────────────────────────────────────────────────────────

JOBS = st.lists(
    st.tuples(
        st.sampled_from([0, 0, 7, 30, 60, 200]),
        st.sampled_from([1, 1, 2, 3, 4]),
        st.sampled_from([5, 60, 150, 400]),
        st.sampled_from([0, 0, 60, 100]),
    ),
    min_size=2,
    max_size=12,
)
"""Seconds since the one before, devices, seconds to run, GiB of memory that each task keeps."""


def a_gang(number: int, at_s: int, gpus: int, run_s: int, gib: int = 0) -> TraceJob:
    need = Resources(gpu_milli=DEVICE, memory=gib * GIB)
    return TraceJob(str(number), DAY + at_s * SECOND, run_s * SECOND, gpus, need)


def a_trace(rows: Sequence[tuple[int, int, int, int]]) -> list[TraceJob]:
    jobs: list[TraceJob] = []
    at = 0
    for number, (pause, *rest) in enumerate(rows):
        at += pause
        jobs.append(a_gang(number, at, *rest))
    return jobs


@pytest.mark.parametrize(
    "policy", ["priority", "srtf", "las", "las2d", "maxmin", "ftf", "round_robin", "gandiva"]
)
@given(rows=JOBS, cluster=st.sampled_from(["1x4", "2x2", "2x4"]))
def test_every_job_ends_and_none_goes_back_and_forth(
    policy: str, rows: list[tuple[int, int, int, int]], cluster: str
) -> None:
    run = Sliced(a_trace(rows), cluster, policy)
    refused = len(run.simulation.refused)
    assert run.happened[e.JobSucceeded] == len(rows) - refused
    # A suspended gang that goes elsewhere starts anew there.
    moved = run.happened[e.AttemptPlaced] - run.happened[e.JobSucceeded]
    assert run.happened[e.AttemptSuspended] - run.happened[e.AttemptResumed] == (
        moved if policy == "gandiva" else 0
    )


LEVELS = (CellType("pair", "gpu", 2), CellType("node", "pair", 2, is_node=True))


def in_cells(nodes: int, *, borrow: bool) -> Owners:
    """Give one tenant a node less than there are, and another the last."""
    shares = (CellShare("node", nodes - 1),), (CellShare("node", 1),)
    tenants = tuple(
        Tenant(name, BEYOND_ALL, borrow=borrow, cells=cells)
        for name, cells in zip("ab", shares, strict=True)
    )
    roots = tuple(RootCell("node", f"node{n}", (NodeId(n),)) for n in range(nodes))
    return Owners(tenants, Topology(LEVELS, roots))


@pytest.mark.parametrize(
    "policy", ["priority", "srtf", "las", "las2d", "maxmin", "ftf", "round_robin"]
)
@given(
    rows=JOBS,
    nodes=st.sampled_from([2, 3]),
    owner=st.lists(st.booleans()),
    borrow=st.booleans(),
)
def test_in_cells_every_job_ends_too(
    policy: str,
    rows: list[tuple[int, int, int, int]],
    nodes: int,
    owner: list[bool],
    borrow: bool,
) -> None:
    jobs = [
        replace(job, tenant="b" if place < len(owner) and owner[place] else "a")
        for place, job in enumerate(a_trace(rows))
    ]
    run = Sliced(jobs, f"{nodes}x4", policy, owners=in_cells(nodes, borrow=borrow))
    refused = len(run.simulation.refused)
    assert run.happened[e.JobSucceeded] == len(rows) - refused
    # One whose memory is in the way of another gang's cells is sent away altogether.
    assert run.happened[e.AttemptSuspended] >= run.happened[e.AttemptResumed]


def test_in_cells_gangs_take_turns_on_the_same_devices() -> None:
    jobs = [replace(a_gang(number, 0, 4, 300), tenant="a") for number in range(3)]
    run = Sliced(jobs, "2x4", owners=in_cells(2, borrow=False))
    assert run.happened[e.AttemptPlaced] == run.happened[e.JobSucceeded] == 3
    assert run.happened[e.AttemptSuspended] == run.happened[e.AttemptResumed] > 3


# ── against requeueing ──────────────────────────────────────────────────────────────────


def test_a_gang_that_ignores_the_warning_loses_work_unless_it_is_suspended() -> None:
    jobs = [a_gang(number, 0, 1, 600) for number in range(3)]
    ends = {}
    for mode in ("suspend", "requeue"):
        settings = Settings(
            round_ms=ROUND, lead_ms=0, eviction=mode, warned="ignore", checkpoint_ms=40 * SECOND
        )
        run = Sliced(jobs, "1x1", settings=settings)
        ends[mode] = run.now
        assert run.happened[e.JobSucceeded] == 3
    assert ends["suspend"] == DAY + 30 * MINUTE
    assert ends["requeue"] == DAY + 2_020 * SECOND, "eleven times it lost 20 s"


# ── time slices of a queue ──────────────────────────────────────────────────────────────

ROBIN = Settings(round_ms=ROUND)


@given(count=st.integers(2, 5), devices=st.sampled_from([1, 2, 4]))
def test_gangs_of_one_size_have_the_same_share_within_a_slice(count: int, devices: int) -> None:
    jobs = [a_gang(n, 0, devices, 900) for n in range(count)]
    run = Sliced(jobs, f"1x{devices}", "round_robin", ROBIN)
    assert run.happened[e.JobSucceeded] == run.happened[e.AttemptPlaced] == count
    for had in run.had[: len(run.had) // 2]:
        assert max(had.values()) - min(had.values()) <= ROUND, "it had more than its turn"


@given(
    sizes=st.lists(st.sampled_from([1, 1, 2, 3, 4]), min_size=2, max_size=8),
    order=st.sampled_from(["strict", "skip"]),
)
def test_no_gang_waits_for_longer_than_a_slice_of_each_before_it(
    sizes: list[int], order: Literal["strict", "skip"]
) -> None:
    jobs = [a_gang(n, 0, size, 600) for n, size in enumerate(sizes)]
    settings = Settings(round_ms=ROUND, order=order)
    run = Sliced(jobs, "1x4", "round_robin", settings)
    assert run.happened[e.JobSucceeded] == len(jobs)
    ran, since = dict[JobId, int](), dict[JobId, Instant]()
    for now, had in zip(run.looks, run.had, strict=True):
        for job, ms in had.items():
            if ms > ran.get(job, -1):
                ran[job], since[job] = ms, now
            assert now - since[job] <= (len(jobs) + 1) * ROUND, f"job {job} starves"


@given(
    rows=st.lists(
        st.tuples(st.sampled_from([1, 2, 4]), st.sampled_from([0, 1, 2])),
        min_size=2,
        max_size=8,
    )
)
def test_no_gang_gives_way_to_a_less_urgent_one(rows: list[tuple[int, int]]) -> None:
    jobs = [
        replace(a_gang(n, 0, size, 600), priority=priority)
        for n, (size, priority) in enumerate(rows)
    ]
    run = Sliced(jobs, "1x4", "round_robin", Settings(round_ms=ROUND, priorities="keep"))
    assert run.happened[e.JobSucceeded] == len(jobs)
    urgency = {JobId(n + 1): priority for n, (_, priority) in enumerate(rows)}
    for gone, came in run.gave_way:
        assert urgency[came] >= urgency[gone]


def test_what_does_not_fit_beside_what_is_kept_waits_until_it_is_gone() -> None:
    """Each keeps 80 of 128 GiB while suspended, and saves nothing: both run to their end."""
    jobs = [a_gang(n, 0, 1, 300, gib=80) for n in range(2)]
    run = Sliced(jobs, "1x1", "round_robin", ROBIN)
    assert run.happened[e.AttemptSuspended] == run.happened[e.StopRequested] == 0
    assert run.now == DAY + 600 * SECOND
