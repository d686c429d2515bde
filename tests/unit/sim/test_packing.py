"""Jobs that share devices two by two."""

from collections.abc import Iterable

import pytest
from msgspec.structs import replace

from allotment.core.gang import Standing
from allotment.core.request import Request, Shape
from allotment.engine.state import State
from allotment.model import events as e
from allotment.model.ids import JobId
from allotment.model.quantity import DEVICE, MINUTE, SECOND, Instant, Millis, Resources
from allotment.policies.moving.least_used import LeastUsedPairs
from allotment.policies.moving.pairs import RandomPairs
from allotment.policies.ordering.las import LeastAttained
from allotment.policies.rescheduling.in_pairs import InPairs
from allotment.policies.turns.rounds import Rounds
from allotment.sim.catalogue import Recipe
from allotment.sim.cluster import cluster_of
from allotment.sim.run import simulate
from allotment.sim.scenario import Scenario
from allotment.sim.settings import Settings
from allotment.sim.simulation import Simulation
from allotment.sim.speeds import PLAIN, Pairs, Rates, Speeds
from allotment.sim.trace import Trace, TraceJob
from tests.support.audit import audit

HALF = Resources(gpu_milli=DEVICE // 2)
NOW, LATER = Instant(0), Instant(6 * MINUTE)


def a_job(job: int, tasks: int = 1, need: Resources = HALF) -> Standing:
    shape = Shape("t", "default", (Request(tasks, need),))
    return Standing(JobId(job), shape, 100, Instant(0))


def pairs_of(pairs: RandomPairs, jobs: Iterable[Standing]) -> set[frozenset[int]]:
    found = ({job.id, pairs.partner(job.id)} for job in jobs)
    return {frozenset(pair) for pair in found if None not in pair}  # pyright: ignore[reportReturnType]


def anybody(job: JobId, other: JobId) -> bool:
    return job != other


# ── who is joined with whom ─────────────────────────────────────────────────────────────


def test_everybody_has_one_partner_who_has_it_too() -> None:
    jobs = [a_job(number) for number in range(20)]
    pairs = RandomPairs(0, 4, anybody)
    pairs.deal(jobs, NOW)
    assert len(pairs_of(pairs, jobs)) == 10
    for job in jobs:
        partner = pairs.partner(job.id)
        assert partner is not None
        assert pairs.partner(partner) == job.id


def test_the_seed_alone_says_who() -> None:
    jobs = [a_job(number) for number in range(20)]

    def dealt(seed: int) -> set[frozenset[int]]:
        pairs = RandomPairs(seed, 4, anybody)
        pairs.deal(jobs, NOW)
        return pairs_of(pairs, jobs)

    assert dealt(1) == dealt(1)
    assert dealt(1) != dealt(2)


def test_nobody_shares_while_all_fit() -> None:
    jobs = [a_job(number, tasks=2) for number in range(4)]
    pairs = RandomPairs(0, 8, anybody)
    pairs.deal(jobs, NOW)
    assert not pairs_of(pairs, jobs)


def test_pairs_are_taken_apart_once_all_fit() -> None:
    jobs = [a_job(number) for number in range(4)]
    pairs = RandomPairs(0, 3, anybody)
    pairs.deal(jobs, NOW)
    assert len(pairs_of(pairs, jobs)) == 2
    pairs.deal(jobs[:3], LATER)
    assert not pairs_of(pairs, jobs)


def test_only_jobs_that_ask_for_the_same_share() -> None:
    small, large = [a_job(1), a_job(2)], [a_job(3, 4), a_job(4, 4)]
    odd = [a_job(5, 2), a_job(6, need=Resources(gpu_milli=DEVICE // 4))]
    whole = [a_job(7, need=Resources(gpu_milli=DEVICE)), a_job(8, need=Resources(DEVICE))]
    jobs = [*small, *large, *odd, *whole]
    pairs = RandomPairs(0, 1, anybody)
    pairs.deal(jobs, NOW)
    assert pairs_of(pairs, jobs) == {frozenset({1, 2}), frozenset({3, 4})}


def test_what_does_badly_with_one_is_tried_with_the_next_and_never_again_with_the_first() -> (
    None
):
    jobs = [a_job(number) for number in range(6)]
    pairs = RandomPairs(0, 1, lambda job, other: (job < 3) != (other < 3))
    for turn in range(5):
        pairs.deal(jobs, Instant(turn))
        found = pairs_of(pairs, jobs)
        assert len(found) == 3
        assert all(sum(job < 3 for job in pair) == 1 for pair in found)


def test_a_pair_lasts_until_one_of_them_ends() -> None:
    jobs = [a_job(number) for number in range(7)]
    pairs = RandomPairs(0, 1, anybody)
    pairs.deal(jobs, NOW)
    before = pairs_of(pairs, jobs)
    gone = min(next(iter(before)))
    left = [job for job in jobs if job.id != gone]
    pairs.deal(left, LATER)
    after = pairs_of(pairs, left)
    assert {pair for pair in before if gone not in pair} < after
    assert len(after) == 3, "the one it leaves goes with the one who had nobody"


# ── those that use least ────────────────────────────────────────────────────────────────


def has_run(job: int, tasks: int = 1) -> Standing:
    return replace(a_job(job, tasks), served_ms=Millis(MINUTE))


def test_those_that_use_least_come_together() -> None:
    jobs = [has_run(job) for job in (1, 2, 3, 4)]
    pairs = LeastUsedPairs(2, {1: 80, 2: 10, 3: 60, 4: 30}.get, anybody)
    pairs.deal(jobs, NOW)
    assert pairs_of(pairs, jobs) == {frozenset({2, 4}), frozenset({1, 3})}


def test_one_that_gains_with_none_stays_alone() -> None:
    jobs = [has_run(job) for job in (1, 2, 3)]
    pairs = LeastUsedPairs(
        1, {1: 10, 2: 20, 3: 95}.get, lambda job, other: {job, other} != {1, 2}
    )
    pairs.deal(jobs, NOW)
    assert pairs_of(pairs, jobs) == {frozenset({1, 3})}


def test_a_job_has_its_devices_to_itself_until_its_use_is_known() -> None:
    jobs = [has_run(1), a_job(2), has_run(3), has_run(4)]
    pairs = LeastUsedPairs(1, {1: 10, 2: 10, 4: 10}.get, anybody)
    pairs.deal(jobs, NOW)
    assert pairs_of(pairs, jobs) == {frozenset({1, 4})}
    pairs.deal([replace(job, served_ms=Millis(1)) for job in jobs], LATER)
    assert pairs_of(pairs, jobs) == {frozenset({1, 4})}, "of job 3 nothing is known"


def test_packing_by_use_ends_work_sooner_where_it_helps() -> None:
    jobs = tuple(a_trace_job(str(n), "xy"[n % 2], run_s=600) for n in range(8))
    together = {(X, X): 10.0, (X, Y): 4.0, (Y, X): 1.6, (Y, Y): 1.0}
    both: Pairs = {"v100": together}
    trace = Trace("made up", "simple", "0" * 16, jobs)
    ended: dict[bool, int] = {}
    for packs in (False, True):
        recipe = Recipe(
            "in rounds", lambda settings, _: LeastAttained(settings.round_ms),
            turns=lambda settings: Rounds(settings.round_ms), packs=packs, by_use=packs,
        )  # fmt: skip
        scenario = Scenario(
            trace, cluster_of("1x2xv100"), "mine", Settings(round_ms=MINUTE), rates=RATES,
            pairs=both, used={"x": 20, "y": 90}, custom=recipe,
        )  # fmt: skip
        ended[packs] = max(job.end_ms for job in simulate(scenario).jobs)
    assert ended[True] < ended[False], "each x is as fast beside another x as by itself"


# ── what two have of each other ─────────────────────────────────────────────────────────

X, Y = ("x", 1), ("y", 1)
RATES: Rates = {"v100": {X: 10.0, Y: 4.0}, "k80": {X: 2.0, Y: 1.0}}


def a_trace_job(name: str, model: str = "x", submit_s: int = 0, run_s: int = 100) -> TraceJob:
    need = Resources(gpu_milli=DEVICE)
    return TraceJob(name, submit_s * SECOND, run_s * SECOND, 1, need, model=model)


@pytest.mark.parametrize(
    ("v100", "k80", "expected"),
    [
        ((8.0, 3.0), (1.0, 0.5), 1.275),
        ((2.0, 1.0), (0.8, 0.4), 0.625),
        ((8.0, 3.0), (0.0, 0.0), 0.0),
        ((8.0, 0.0), (1.0, 0.5), 0.0),
    ],
)
def test_two_jobs_have_together_the_mean_over_the_types(
    v100: tuple[float, float], k80: tuple[float, float], expected: float
) -> None:
    pairs: Pairs = {
        "v100": {(X, Y): v100[0], (Y, X): v100[1]},
        "k80": {(X, Y): k80[0], (Y, X): k80[1]},
    }
    speeds = Speeds(cluster_of("1x1xv100+1x1xk80"), PLAIN, RATES, pairs)
    together = speeds.together(a_trace_job("a"), a_trace_job("b", "y"))
    assert together == pytest.approx(expected)


def test_of_whom_nothing_is_known_each_has_half() -> None:
    speeds = Speeds(cluster_of("1x1"))
    assert speeds.together(a_trace_job("a"), a_trace_job("b")) == 1.0


# ── where they sit ──────────────────────────────────────────────────────────────────────


class Watched:
    """A run of `gavel-pack`, audited at every instant; how many jobs sat on any device."""

    def __init__(self, jobs: list[TraceJob], cluster: str, pairs: Pairs, seed: int = 0) -> None:
        trace = Trace("made up", "simple", "0", tuple(jobs))
        nodes = cluster_of(cluster)
        self.scenario = Scenario(
            trace, nodes, "gavel-pack", seed=seed, rates=RATES, pairs=pairs
        )
        self.most = 0
        self.log: list[e.Record] = []
        self.simulation = Simulation(self.scenario, self._look)
        for _ in self.simulation.run(trace.jobs):
            pass

    def _look(self, records: Iterable[e.Record]) -> None:
        self.log += records
        state = self.simulation.engine.state
        audit(state)
        assert self.simulation.engine.refusals == 0
        self.most = max([self.most, *_crowds(state)])


def _crowds(state: State) -> list[int]:
    """Count the jobs on each device that has any; two of them must be partners."""
    rescheduler = state.cluster.rescheduler
    assert isinstance(rescheduler, InPairs)
    packing = rescheduler.packing
    on: dict[tuple[int, int], list[JobId]] = {}
    for gang in state.cluster.gangs.values():
        for slot in gang.slots:
            assert slot.gpu_milli == DEVICE // 2
            on.setdefault((slot.node, slot.devices[0]), []).append(gang.id)
    for jobs in on.values():
        if len(jobs) == 2:
            assert packing.partner(jobs[0]) in (jobs[1], None)
    return [len(jobs) for jobs in on.values()]


WELL: Pairs = {"v100": {(X, X): 7.0}}
BADLY: Pairs = {"v100": {(X, X): 4.0}}
NEVER: Pairs = {"v100": {(X, X): 0.0}}


def jobs_of(count: int) -> list[TraceJob]:
    return [a_trace_job(str(n), submit_s=n % 3 * 50, run_s=900 + n * 70) for n in range(count)]


def test_jobs_that_do_well_together_share() -> None:
    assert Watched(jobs_of(9), "1x2xv100", WELL).most == 2


@pytest.mark.parametrize("pairs", [BADLY, NEVER])
def test_jobs_that_do_badly_together_never_share(pairs: Pairs) -> None:
    assert Watched(jobs_of(9), "1x2xv100", pairs).most == 1


def test_the_same_seed_gives_the_same_events() -> None:
    runs = [Watched(jobs_of(9), "1x2xv100", WELL, seed) for seed in (5, 5, 6)]
    assert runs[0].log == runs[1].log
    assert runs[0].log != runs[2].log
