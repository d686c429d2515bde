"""How much of each budget is used now."""

from allotment.engine.state import State
from allotment.model.budget import FOREVER, GPU_HOUR, Account
from allotment.model.quantity import Instant
from allotment.service.usage_view import BudgetState, BudgetUse


def budgets_now(state: State, now: Instant) -> tuple[BudgetUse, ...]:
    """Return the use of all budgets, by tenant; a user's own only once used. O(accounts)."""
    return tuple(
        _use(account, now)
        for account in state.budgets.accounts()
        if not account.user or account.used(now)
    )


def _use(account: Account, now: Instant) -> BudgetUse:
    tenant, queue, user = account.key
    budget = account.budget
    begin, end = account.dates(now)
    return BudgetUse(
        tenant=tenant,
        queue=queue,
        user=user,
        every=budget.every,
        since=begin,
        until=end if end < FOREVER else 0,
        used_gpu_h=account.used(now) / GPU_HOUR,
        soft_gpu_h=budget.soft / GPU_HOUR,
        hard_gpu_h=budget.hard / GPU_HOUR,
        state=_state(account, now),
    )


def _state(account: Account, now: Instant) -> BudgetState:
    begin, end = account.period(now)
    if not begin <= now < end:
        return BudgetState.NOT_NOW
    if account.closed(now):
        return BudgetState.SPENT
    return BudgetState.WARNED if account.warns(now) else BudgetState.OK
