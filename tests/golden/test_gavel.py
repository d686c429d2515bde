"""Gavel's own trace on its own mixed cluster, against its published completion times.

8 V100, 16 P100 and 24 K80, four in a node; 100 jobs at once. Which type a job tries first is
drawn, so the mean of five seeds is compared. docs/guide/simulate.md says why Gavel's `fifo`
cannot be met by any first-come order, and what packing two jobs on a device waits for.
"""

import pytest

from allotment.wiring.sim import Wanted, run, scenario
from tests.conftest import SHARED

pytestmark = pytest.mark.needs_shared("golden/gavel")

TRACE = SHARED / "golden" / "gavel" / "minimize_makespan.trace"
RATES = SHARED / "traces" / "perf" / "gavel_simulation_throughputs.json.gz"
CLUSTER = "2x4xv100+4x4xp100+6x4xk80"
FIFO_S, MAX_MIN_S, PACKED_S = 211_551, 37_768, 35_075


def average_jct_s(policy: str, seed: int) -> float:
    wanted = Wanted(str(TRACE), CLUSTER, policy, seed=seed, rates=str(RATES))
    done = run(scenario(wanted)).summary
    assert done is not None
    assert done.completed == 100
    return done.avg_jct_s


@pytest.mark.xfail(
    reason="Gavel moves running jobs to faster types each round; here they stay: +11 %"
)
def test_max_min_fairness_is_within_ten_percent() -> None:
    average = sum(average_jct_s("maxmin", seed) for seed in range(5)) / 5
    assert abs(average / MAX_MIN_S - 1) <= 0.10


@pytest.mark.xfail(
    reason="here packed jobs stay packed though devices become free; moving them comes later"
)
def test_random_packing_is_within_ten_percent() -> None:
    average = sum(average_jct_s("gavel-pack", seed) for seed in range(5)) / 5
    assert abs(average / PACKED_S - 1) <= 0.10


@pytest.mark.xfail(
    reason="no first-come order lets nobody of a hundred end within 21 hours, as Gavel's does"
)
def test_first_come_is_within_ten_percent() -> None:
    average = sum(average_jct_s("fifo", seed) for seed in range(5)) / 5
    assert abs(average / FIFO_S - 1) <= 0.10


def test_trying_the_fastest_type_first_finishes_sooner_than_by_chance() -> None:
    by_chance = sum(average_jct_s("sjf", seed) for seed in range(5)) / 5
    wanted = Wanted(str(TRACE), CLUSTER, "sjf", ("types=best",), rates=str(RATES))
    by_speed = run(scenario(wanted)).summary
    assert by_speed is not None
    assert by_speed.avg_jct_s < by_chance
