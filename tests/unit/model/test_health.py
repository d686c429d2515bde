"""The rules of health, with a hand on the clock."""

from typing import Any

import pytest

from allotment.model.health import (
    RULES,
    Course,
    HardwareHealth,
    HealthReport,
    Source,
    aged,
    heard,
    next_turn,
)
from allotment.model.ids import DeviceIndex, NodeId
from allotment.model.quantity import MINUTE, Instant

H, D, S, B = HardwareHealth


class Part:
    """One device, and whoever talks about it."""

    def __init__(self) -> None:
        self.course = Course()
        self.now = Instant(1_000_000)

    def trouble(self, source: Source = Source.DRIVER, **more: Any) -> HardwareHealth:
        return self._hear(source, ok=False, **more)

    def ok(self, source: Source = Source.DRIVER) -> HardwareHealth:
        return self._hear(source, ok=True)

    def _hear(self, source: Source, *, ok: bool, **more: Any) -> HardwareHealth:
        report = HealthReport(NodeId(0), source, ok, DeviceIndex(3), **more)
        self.course = heard(self.course, report, self.now)
        return self.course.health

    def after(self, ms: int) -> HardwareHealth:
        self.now = Instant(self.now + ms)
        self.course = aged(self.course, self.now)
        return self.course.health


@pytest.fixture
def part() -> Part:
    return Part()


def test_trouble_makes_suspect_at_once(part: Part) -> None:
    assert part.ok() is H
    assert part.trouble() is S
    assert part.course.since == part.now


def test_trouble_that_stands_makes_bad(part: Part) -> None:
    part.trouble()
    assert next_turn(part.course) == part.now + RULES.worsen_ms
    assert part.after(RULES.worsen_ms - 1) is S
    assert part.after(1) is B
    assert next_turn(part.course) is None


def test_a_flood_of_one_trouble_is_one_trouble(part: Part) -> None:
    for _ in range(1000):
        part.trouble()
        assert part.after(1) is S
    assert len(part.course.troubles) == 1


def test_trouble_that_comes_and_goes_makes_bad(part: Part) -> None:
    for _ in range(RULES.troubles - 1):
        assert part.trouble() is S
        part.ok()
        assert part.after(MINUTE) is S
    assert part.trouble() is B


def test_troubles_far_apart_do_not_add_up(part: Part) -> None:
    for _ in range(10):
        assert part.trouble() is S
        part.ok()
        assert part.after(RULES.within_ms) is H


def test_a_suspect_heals_when_it_was_ok_for_a_time(part: Part) -> None:
    part.trouble()
    part.after(MINUTE)
    assert part.ok() is S
    assert next_turn(part.course) == part.now + RULES.heal_ms
    assert part.after(RULES.heal_ms - 1) is S
    assert part.after(1) is H


def test_who_does_not_see_the_trouble_does_not_end_it(part: Part) -> None:
    part.trouble(Source.DRIVER)
    for _ in range(5):
        part.after(MINUTE // 2)
        assert part.ok(Source.PROBE) is S
    assert part.after(5 * MINUTE) is B


def test_the_word_of_one_users_jobs_takes_no_hardware_away(part: Part) -> None:
    for _ in range(50):
        assert part.trouble(Source.JOB, who="mallory") is D
        part.after(MINUTE)
    assert part.after(RULES.within_ms - MINUTE) is H


def test_jobs_of_two_users_make_it_suspect_and_of_three_bad(part: Part) -> None:
    assert part.trouble(Source.JOB, who="alice") is D
    part.after(RULES.within_ms - 1)
    assert part.trouble(Source.JOB, who="bob") is S
    assert part.after(RULES.heal_ms - 1) is S
    assert part.after(1) is H, "nobody says more"
    for who, is_now in (("alice", D), ("bob", S), ("carol", B)):
        assert part.trouble(Source.JOB, who=who) is is_now


def test_jobs_of_two_users_far_apart_do_not_add_up(part: Part) -> None:
    assert part.trouble(Source.JOB, who="alice") is D
    assert part.after(RULES.within_ms) is H
    assert part.trouble(Source.JOB, who="bob") is D


@pytest.mark.parametrize("source", [Source.DRIVER, Source.PROBE])
def test_a_watcher_and_a_job_agree(part: Part, source: Source) -> None:
    assert part.trouble(Source.JOB, who="alice") is D
    assert part.trouble(source) is S


def test_one_user_cannot_keep_hardware_away_that_was_suspect(part: Part) -> None:
    part.trouble(Source.JOB, who="bob")
    for _ in range((RULES.within_ms + RULES.heal_ms) // MINUTE - 1):
        assert part.trouble(Source.JOB, who="mallory") is S
        part.after(MINUTE)
    assert part.course.health is H
    assert part.trouble(Source.JOB, who="mallory") is D


def test_bad_needs_somebody_to_say_that_it_is_ok(part: Part) -> None:
    for who in ("alice", "bob", "carol"):
        part.trouble(Source.JOB, who=who)
    assert part.after(100 * RULES.mend_ms) is B
    assert part.ok(Source.PROBE) is B
    assert part.after(RULES.mend_ms - 1) is B
    assert part.after(1) is H


def test_trouble_while_it_mends_begins_anew(part: Part) -> None:
    part.trouble()
    part.after(RULES.worsen_ms)
    part.ok()
    part.after(RULES.mend_ms - 1)
    assert part.trouble(Source.JOB, who="alice") is B, "which is one user's word alone"
    assert part.trouble(Source.PROBE) is B
    part.ok(Source.PROBE)
    assert part.after(RULES.mend_ms - 1) is B
    assert part.after(1) is H


def test_an_administrators_word_is_final(part: Part) -> None:
    assert part.trouble(Source.ADMIN, words="fan") is B
    part.ok()
    part.ok(Source.PROBE)
    assert part.after(100 * RULES.mend_ms) is B
    assert part.ok(Source.ADMIN) is H
    assert part.course.troubles == ()
    assert part.trouble() is S


def test_an_administrators_ok_forgets_what_was_before(part: Part) -> None:
    for _ in range(RULES.troubles - 1):
        part.trouble()
        part.ok()
    assert part.ok(Source.ADMIN) is H
    assert part.trouble() is S, "and not bad, as the third"


def test_a_node_lost_once_is_not_suspect_and_one_lost_often_is_bad(part: Part) -> None:
    for _ in range(RULES.troubles - 1):
        assert part.trouble(Source.HEARTBEAT) is H
        assert part.ok(Source.HEARTBEAT) is H
        part.after(MINUTE)
    assert part.trouble(Source.HEARTBEAT) is B
    assert part.ok(Source.HEARTBEAT) is B
    assert part.after(RULES.mend_ms) is H


def test_since_when_there_is_trouble_is_what_was_told(part: Part) -> None:
    part.trouble(since=Instant(500))
    assert part.course.troubles[0].since == 500
    part.ok()
    part.trouble(since=Instant(part.now + 99))
    assert part.course.troubles[1].since == part.now, "not from the future"
