"""Gavel's own trace on its own mixed cluster, against its published completion times.

8 V100, 16 P100 and 24 K80, four in a node; 100 jobs at once. docs/guide/simulate.md says why
Gavel's `fifo` cannot be met by any first-come order, and how its packing differs.
"""

import msgspec
import pytest

from allotment.wiring.sim import Wanted, run, scenario
from tests.conftest import SHARED

pytestmark = pytest.mark.needs_shared("golden/gavel")

TRACE = SHARED / "golden" / "gavel" / "minimize_makespan.trace"
RATES = SHARED / "traces" / "perf" / "gavel_simulation_throughputs.json.gz"
CLUSTER = "2x4xv100+4x4xp100+6x4xk80"
FIFO_S, MAX_MIN_S, PACKED_S = 211_551, 37_768, 35_075


def average_jct_s(policy: str, *settings: str, seed: int = 0) -> float:
    wanted = Wanted(str(TRACE), CLUSTER, policy, settings, seed=seed, rates=str(RATES))
    done = run(scenario(wanted)).summary
    assert done is not None
    assert done.completed == 100
    return done.avg_jct_s


def test_max_min_fairness_is_within_ten_percent() -> None:
    assert abs(average_jct_s("maxmin") / MAX_MIN_S - 1) <= 0.10


@pytest.mark.xfail(
    reason="Gavel takes apart pairs that do badly together, and tries others: here +29 %"
)
def test_random_packing_is_within_ten_percent() -> None:
    assert abs(average_jct_s("gavel-pack") / PACKED_S - 1) <= 0.10


@pytest.mark.xfail(
    reason="no first-come order lets nobody of a hundred end within 21 hours, as Gavel's does"
)
def test_first_come_is_within_ten_percent() -> None:
    assert abs(average_jct_s("fifo") / FIFO_S - 1) <= 0.10


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
