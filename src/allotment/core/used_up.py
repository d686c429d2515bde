"""Budgets of which all is used: whose jobs start no more until they are renewed.

Rule: while the account of a tenant's, queue's or user's budget is closed, jobs that it
counts and that ask for devices are passed over, and hold up nobody. Who holds devices keeps
them. The engine says which accounts are closed.
"""

from collections.abc import Iterable
from datetime import UTC, datetime

from allotment.core.request import Shape, total_of
from allotment.model.budget import FOREVER, GPU_HOUR, Account, Every
from allotment.model.quantity import SECOND, Instant, Resources, WallTime
from allotment.model.reasons import Blocked, Reason
from allotment.model.tenancy import Tenant

Key = tuple[str, str, str]

PERIODS = {Every.DAY: "today", Every.WEEK: "this week", Every.MONTH: "this month"}


class UsedUp:
    """The closed accounts, found by whom they count."""

    def __init__(self, tenants: Iterable[Tenant]) -> None:
        self._apart = {
            tenant.name
            for tenant in tenants
            for budget in tenant.budgets
            if budget.user or budget.each_user
        }
        self.any_apart = bool(self._apart)
        """Whether there are budgets of users."""
        self.closed: dict[Key, list[Account]] = {}
        """By whom they count."""

    def told_apart(self, tenant: str, user: str) -> str:
        """Return a user where budgets are of users, who then do not wait alike; else ''."""
        return user if tenant in self._apart else ""

    def clear(self) -> None:
        """Forget them all."""
        self.closed.clear()

    def close(self, account: Account) -> None:
        """Let nothing more start that it counts."""
        self.closed.setdefault(account.key, []).append(account)

    def open(self, account: Account) -> None:
        """Undo `close`."""
        left = [other for other in self.closed[account.key] if other is not account]
        if left:
            self.closed[account.key] = left
        else:
            del self.closed[account.key]

    def holds_back(self, shape: Shape) -> bool:
        """Whether jobs of a shape may not start. O(1)."""
        return self.counts(shape.tenant, shape.queue, shape.user) and (
            total_of(shape.requests).gpu_milli > 0
        )

    def counts(self, tenant: str, queue: str, user: str) -> bool:
        """Whether a closed account counts such jobs."""
        closed = self.closed
        return bool(closed) and any(key in closed for key in _keys(tenant, queue, user))

    def longest(self, tenant: str, queue: str, user: str, now: Instant) -> Account:
        """Return that closed account of such jobs which opens last; there must be one."""
        found = [
            account
            for key in _keys(tenant, queue, user)
            for account in self.closed.get(key, ())
        ]
        return max(found, key=lambda account: (account.period(now)[1], account.key))


def _keys(tenant: str, queue: str, user: str) -> tuple[Key, ...]:
    return (tenant, "", ""), (tenant, queue, ""), (tenant, "", user), (tenant, queue, user)


def why_used_up(account: Account, need: Resources, now: Instant) -> Blocked:
    """Return how much of a budget is used, and when it is renewed."""
    _, end = account.period(now)
    return Blocked(
        Reason.BUDGET,
        f"{used_of(account, now)}. {renewal(account, now)}.",
        need=need,
        until=end if end < FOREVER else None,
        hint="What runs goes on. All budgets: allot usage.",
    )


def used_of(account: Account, now: Instant) -> str:
    """Return how much was used of how much: the hard amount, or the soft one without it."""
    budget, used = account.budget, account.used(now)
    whole = budget.hard or budget.soft
    when = PERIODS.get(budget.every) or "from {} to {}".format(
        *(show_utc(end) for end in account.dates(now))
    )
    return (
        f"{who(account)} used {used * 100 // whole}% of its GPU-hours "
        f"({show_gpu_hours(used)} of {show_gpu_hours(whole)} {when})"
    )


def renewal(account: Account, now: Instant) -> str:
    """Return when the whole of a budget can be used again."""
    end = account.dates(now)[1]
    if account.budget.every is Every.NEVER:
        return "It is not renewed" if end >= FOREVER else f"It limits until {show_utc(end)}"
    return f"It is renewed on {show_utc(end)}"


def who(account: Account) -> str:
    """Name whose jobs an account counts."""
    tenant, queue, user = account.key
    words = f"tenant {tenant}"
    words = f"queue {queue} of {words}" if queue else words
    words = f"user {user} in {words}" if user else words
    return words[0].upper() + words[1:]


def show_gpu_hours(amount: int) -> str:
    """Write an amount in GPU-hours, rounded down to the hundredth."""
    hundredths = amount * 100 // GPU_HOUR
    text = f"{hundredths // 100:,}.{hundredths % 100:02d}"
    return text.rstrip("0").rstrip(".")


def show_utc(at: WallTime) -> str:
    """Write an instant as a date, with the time of day where it is not midnight."""
    if at <= 0 or at >= FOREVER:
        return "ever" if at >= FOREVER else "the beginning"
    text = datetime.fromtimestamp(at // SECOND, UTC).strftime("%Y-%m-%d %H:%M")
    return text.removesuffix(" 00:00") + " UTC"
