"""The sharing-anomaly experiment on a cut of its trace: cells are worth a private cluster."""

from pathlib import Path

import msgspec
import pytest

from bench.anomaly.__main__ import main
from bench.anomaly.measure import Result
from bench.anomaly.verdict import excesses, find

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
    for scheduler in ("2D-LAS", "packing"):
        private = find(results, "×1", "private", scheduler)
        cells = find(results, "×1", "cells", scheduler)
        quota = find(results, "×1", "quota", scheduler)
        assert private is not None
        assert cells is not None
        assert quota is not None
        # Not within 1 %: the same, percentile for percentile.
        assert cells.delays == private.delays
        assert excesses(quota, private)[0].is_more
    told = capsys.readouterr().out
    assert "| ×1 packing | cells | 0 |" in told
    assert "### ×1 2D-LAS: delay in minutes" in told
