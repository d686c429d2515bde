"""Every command, report and event stands in the table that says what becomes of it."""

from typing import get_args

from allotment.engine import apply, decide, engine
from allotment.model.commands import AnyCommand
from allotment.model.events import AnyEvent
from allotment.model.health import HealthReport
from allotment.model.reports import AnyReport


def test_nothing_is_left_out_of_the_tables_by_type() -> None:
    assert set(decide._DECIDE) == set(get_args(AnyCommand))
    assert set(engine._HEARD) == set(get_args(AnyReport)) - {HealthReport}
    assert set(apply._APPLY) == set(get_args(AnyEvent))
