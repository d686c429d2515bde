"""Budgets: how many GPU-hours may be used in a stretch of time, and an account of them.

All is integers: thousandths of a device × milliseconds. Days, weeks and months are those of
UTC; a week begins on Monday.
"""

from datetime import UTC, datetime, timedelta
from enum import StrEnum

import msgspec

from allotment.model.quantity import DAY, DEVICE, HOUR, SECOND, Instant, WallTime

GPU_HOUR = DEVICE * HOUR
"""One hour of a whole device, in thousandths × milliseconds."""

FOREVER = WallTime(1 << 61)


class Every(StrEnum):
    """How often a budget is renewed."""

    DAY = "day"
    WEEK = "week"
    MONTH = "month"
    NEVER = "never"
    """It is of one stretch of time, given by its ends."""


class Budget(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """What the jobs of a tenant, of one queue or user of it, or of each user, may use.

    Amounts are thousandths of a device × milliseconds, 0 where there is no such limit.
    Beyond `soft` there are warnings; at `hard` nothing more is started.
    """

    every: Every
    soft: int = 0
    hard: int = 0
    queue: str = ""
    user: str = ""
    each_user: bool = False
    """Whether every user has the whole of it for themselves."""
    begin: WallTime = WallTime(0)
    end: WallTime = FOREVER
    """Outside of these nothing is counted and nothing limited."""

    @property
    def scope(self) -> tuple[str, str, bool, str, int, int]:
        """Return what makes it the same budget though its amounts change."""
        return (
            self.queue, self.user, self.each_user, self.every.value, self.begin, self.end,
        )  # fmt: skip

    def counts(self, user: str) -> bool:
        """Whether an account of a user, or of all where that is '', is one of this budget."""
        return bool(user) if self.each_user else user == self.user

    def period(self, at: WallTime) -> tuple[WallTime, WallTime]:
        """Return the stretch that counts at a moment: its begin, and the end, not included."""
        if self.every is Every.NEVER:
            return self.begin, self.end
        first, after = _calendar(self.every, at)
        return WallTime(max(first, self.begin)), WallTime(min(after, self.end))


def _calendar(every: Every, at: WallTime) -> tuple[int, int]:
    midnight = at - at % DAY
    if every is Every.DAY:
        return midnight, midnight + DAY
    day = datetime.fromtimestamp(midnight // SECOND, UTC)
    if every is Every.WEEK:
        monday = midnight - day.weekday() * DAY
        return monday, monday + 7 * DAY
    first = day.replace(day=1)
    after = (first + timedelta(days=32)).replace(day=1)
    return int(first.timestamp()) * SECOND, int(after.timestamp()) * SECOND


class Account(msgspec.Struct, omit_defaults=True):
    """What was used of a budget in its period, as far as it is settled."""

    tenant: str
    budget: Budget
    user: str = ""
    """Whose it is, of a budget that each user has."""
    spent: int = 0
    """Up to `at`, in the period of `at`."""
    at: Instant = Instant(0)
    held: int = 0
    """Thousandths of devices that are held since then."""
    wall_ms: int = 0
    """How far the clock that its periods go by is ahead of the engine's time."""

    @property
    def key(self) -> tuple[str, str, str]:
        """Return tenant, queue and user whose jobs it counts; '' where that is any."""
        return (self.tenant, self.budget.queue, self.user or self.budget.user)

    def dates(self, now: Instant) -> tuple[WallTime, WallTime]:
        """Return the period of `now` as people write it."""
        return self.budget.period(WallTime(now + self.wall_ms))

    def period(self, now: Instant) -> tuple[Instant, Instant]:
        """Return the period of `now` in the engine's time; `FOREVER` stays what it is."""
        begin, end = self.dates(now)
        ends = end if end >= FOREVER else end - self.wall_ms
        return Instant(begin - self.wall_ms), Instant(ends)

    def set_clock(self, wall_ms: int, now: Instant) -> None:
        """Let its periods go by a clock that was set; in a later one nothing is used yet."""
        before, _ = self.dates(now)
        self.settle(now)
        self.wall_ms = wall_ms
        if self.dates(now)[0] > before:
            self.spent = 0

    def used(self, now: Instant) -> int:
        """Return what was used in the period of `now`."""
        begin, end = self.period(now)
        kept = self.spent if self.at >= begin else 0
        length = min(now, end) - max(self.at, begin)
        return kept + self.held * length if length > 0 else kept

    def settle(self, now: Instant) -> None:
        """Sum up what was used until now."""
        self.spent, self.at = self.used(now), now

    def closed(self, now: Instant) -> bool:
        """Whether it keeps jobs from starting: all of it is used."""
        hard = self.budget.hard
        if not hard:
            return False
        begin, end = self.period(now)
        return begin <= now < end and self.used(now) >= hard

    def warns(self, now: Instant) -> bool:
        """Whether more is used than is wanted."""
        soft = self.budget.soft
        if not soft:
            return False
        begin, end = self.period(now)
        return begin <= now < end and self.used(now) >= soft

    def next_change(self, now: Instant) -> Instant | None:
        """Return when it may close, or open, next though nothing happens; None for never."""
        hard = self.budget.hard
        begin, end = self.period(now)
        if not hard or now >= end:
            return None
        if now < begin:
            return begin
        used = self.used(now)
        if used < hard and self.held:
            full = now + -(-(hard - used) // self.held)
            return Instant(min(full, end))
        return end if used >= hard and end < FOREVER else None
