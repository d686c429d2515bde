"""The sharing-anomaly experiment on a cut of its trace: cells are worth a private cluster."""

from pathlib import Path

import msgspec
import pytest

from bench.anomaly.__main__ import main
from bench.anomaly.measure import Result
from bench.anomaly.verdict import alone, excesses

TRACE = Path(__file__).parents[3] / "shared" / "traces" / "philly_sia_82k.csv.zst"
CUT = ("--jobs", "3000", "--nodes", "32", "--loads", "1", "--schedulers", "2D-LAS,packing")

pytestmark = [
    pytest.mark.needs_shared("traces/philly_sia_82k.csv.zst"),
    pytest.mark.slow,
]


def test_cells_are_worth_a_private_cluster_and_a_quota_is_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    figures = tmp_path / "r.json"
    assert main([str(TRACE), "--part", "main", *CUT, "--json", str(figures)]) == 0
    results = msgspec.json.decode(figures.read_bytes(), type=list[Result])
    for scheduler, quota in (("2D-LAS", "quota"), ("packing", "spread")):
        found = {
            result.arm.kind: result for result in results if result.arm.scheduler == scheduler
        }
        # Not within 1 %: the same, percentile for percentile.
        assert found["cells"].delays == found["private"].delays
        private = alone(results, found[quota].arm)
        assert private is not None
        assert excesses(found[quota], private)[0].is_more
    told = capsys.readouterr().out
    assert "| ×1 packing | cells | private | 0 |" in told
    assert "### ×1 2D-LAS: delay in minutes" in told
