"""The page as a whole."""

import pytest

from allotment.sim.report import render
from tests.unit.sim.report.twin import read, run_of, schedule

pytestmark = pytest.mark.needs_shared("golden/philly480.csv")


def test_a_page_names_its_policies() -> None:
    from tests.conftest import SHARED

    rows = read(SHARED / "golden/philly480.csv")
    page = render(
        [
            run_of(schedule(rows, 128, skip=False), "fifo"),
            run_of(schedule(rows, 128, skip=True), "backfill"),
        ]
    )
    assert page.count("<svg") > 6
    assert "backfill" in page
