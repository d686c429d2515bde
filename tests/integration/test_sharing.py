"""The comparison of ways to share, on a cut of the trace."""

from pathlib import Path

import pytest

from allotment.wiring.sim import open_trace
from bench.anomaly.workload import compressed, read
from bench.sharing import ARMS, NODES, play

TRACE = "traces/philly_sia_82k.csv.zst"
pytestmark = pytest.mark.needs_shared(TRACE)


def test_whatever_is_lent_shortens_delays_and_all_jobs_end() -> None:
    shared = Path(__file__).parents[2].parent / "shared"
    workload = read(open_trace(shared / TRACE, tasks="node"), NODES, 1500)
    workload = compressed(workload, 2)
    results = {arm: play((arm, 2.0, workload)) for arm in ARMS}
    assert {result.unfinished for result in results.values()} == {0}
    assert results["static"].evictions == 0
    assert results["borrow"].all_ms < results["static"].all_ms
    assert results["drf"].rows == results["max_min"].rows, "only devices are asked for"
    assert results["fair_share"].jain > results["borrow"].jain > results["static"].jain
