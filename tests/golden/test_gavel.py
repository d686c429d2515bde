"""Gavel's own trace on its own mixed cluster, against its published completion times.

8 V100, 16 P100 and 24 K80, four in a node; 100 jobs at once. Gavel's `fifo` run is no
first-come order: docs/guide/simulate.md says what it is, and a test here plays that.
"""

import csv

import msgspec
import pytest

from allotment.core.gang import Standing
from allotment.core.rank import Rank, moving
from allotment.model.quantity import Instant
from allotment.policies.ordering.ran import ran_ms
from allotment.policies.turns.rounds import Rounds
from allotment.sim.catalogue import Recipe
from allotment.wiring.sim import Wanted, run, scenario
from tests.conftest import SHARED

pytestmark = pytest.mark.needs_shared("golden/gavel")

TRACE = SHARED / "golden" / "gavel" / "minimize_makespan.trace"
RATES = SHARED / "traces" / "perf" / "gavel_simulation_throughputs.json.gz"
CLUSTER = "2x4xv100+4x4xp100+6x4xk80"
V100_ALONE = "2x4xv100"
FIFO_S, MAX_MIN_S, PACKED_S = 211_551, 37_768, 35_075


def average_jct_s(policy: str, *settings: str, seed: int = 0) -> float:
    wanted = Wanted(str(TRACE), CLUSTER, policy, settings, seed=seed, rates=str(RATES))
    done = run(scenario(wanted)).summary
    assert done is not None
    assert done.completed == 100
    return done.avg_jct_s


def test_max_min_fairness_is_within_ten_percent() -> None:
    assert abs(average_jct_s("maxmin") / MAX_MIN_S - 1) <= 0.10


# Chance makes the pairs, here and there: docs/guide/simulate.md has the range of eight seeds.
def test_random_packing_is_within_ten_percent() -> None:
    assert abs(average_jct_s("gavel-pack") / PACKED_S - 1) <= 0.10


@pytest.mark.xfail(
    reason="Gavel's deals turns on the V100 alone to all at once, and leaves 40 devices idle"
)
def test_first_come_is_within_ten_percent() -> None:
    assert abs(average_jct_s("fifo") / FIFO_S - 1) <= 0.10


class LeastRun:
    """Whoever ran least comes first, however many devices it takes."""

    def rank(self, job: Standing, now: Instant) -> Rank:
        return moving((), ran_ms(job, now), int(job.runs), now)


def test_gavels_first_come_is_equal_turns_on_the_v100_alone() -> None:
    wanted = Wanted(str(TRACE), V100_ALONE, "fifo", rates=str(RATES))
    equal = Recipe("equal turns", lambda *_: LeastRun(), turns=lambda s: Rounds(s.round_ms))
    done = run(msgspec.structs.replace(scenario(wanted), custom=equal))
    assert done.summary is not None
    assert abs(done.summary.avg_jct_s / FIFO_S - 1) <= 0.02
    with (SHARED / "golden" / "gavel" / "mm100-fifo.jobs.csv").open() as file:
        theirs = [float(row["jct"]) for row in csv.DictReader(file)]
    ours = [(job.end_ms - job.submit_ms) / 1000 for job in done.jobs]
    apart = sorted(abs(mine / their - 1) for mine, their in zip(ours, theirs, strict=True))
    assert apart[89] <= 0.10


def test_trying_the_fastest_type_first_finishes_sooner_than_by_chance() -> None:
    by_chance = sum(average_jct_s("sjf", "types=chance", seed=seed) for seed in range(5)) / 5
    assert average_jct_s("sjf", "types=best") < by_chance


def test_moving_to_faster_types_ends_the_whole_sooner() -> None:
    wanted = Wanted(str(TRACE), CLUSTER, "maxmin", rates=str(RATES))
    moving = run(scenario(wanted)).summary
    still = run(scenario(msgspec.structs.replace(wanted, settings=("turns=never",)))).summary
    assert moving is not None
    assert still is not None
    assert moving.makespan_s < still.makespan_s
