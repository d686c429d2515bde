"""Budgets in words: how much is used, and when they are renewed."""

from datetime import UTC, datetime

from allotment.core.cluster import Cluster
from allotment.core.request import Shape
from allotment.model.budget import FOREVER, GPU_HOUR, Account, Every
from allotment.model.quantity import SECOND, Instant, Resources, WallTime
from allotment.model.reasons import Blocked, Reason

PERIODS = {Every.DAY: "today", Every.WEEK: "this week", Every.MONTH: "this month"}


def last_renewed(cluster: Cluster, shape: Shape, now: Instant) -> Account | None:
    """Return the used-up budget of a job that is renewed last; None without one."""
    found = [budget for account in cluster.queues.of(shape.who) for budget in account.used_up]
    return max(found, key=lambda each: (each.period(now)[1], each.key), default=None)


def why_used_up(account: Account, need: Resources, now: Instant) -> Blocked:
    """Return how much of a budget is used, and when it is renewed."""
    _, end = account.period(now)
    return Blocked(
        Reason.BUDGET,
        f"{used_of(account, now)}. {renewal(account, now)}.",
        need=need,
        until=end if end < FOREVER else None,
        hint="Running jobs continue. All budgets: allot usage.",
    )


def used_of(account: Account, now: Instant) -> str:
    """Return how much was used of how much: the hard amount, or the soft one without it."""
    budget, used = account.budget, account.used(now)
    whole = budget.hard or budget.soft
    when = PERIODS.get(budget.every) or "from {} to {}".format(
        *(show_utc(end) for end in account.dates(now))
    )
    return (
        f"{owner(account)} used {used * 100 // whole}% of its GPU-hours "
        f"({show_gpu_hours(used)} of {show_gpu_hours(whole)} {when})"
    )


def renewal(account: Account, now: Instant) -> str:
    """Return when the whole of a budget can be used again."""
    end = account.dates(now)[1]
    if account.budget.every is Every.NEVER:
        return "It is not renewed" if end >= FOREVER else f"It ends on {show_utc(end)}"
    return f"It is renewed on {show_utc(end)}"


def owner(account: Account) -> str:
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
