"""What is due by the clock."""

from allotment.engine.timers import Timers
from allotment.model.quantity import Instant


def test_a_date_is_due_once_from_its_moment_on() -> None:
    timers = Timers()
    assert not timers.due_date(Instant(5))
    timers.arm_dates((Instant(10), Instant(20)))
    assert [timers.due_date(Instant(at)) for at in (9, 10, 11, 19, 30, 31)] == [
        False, True, False, False, True, False,
    ]  # fmt: skip
