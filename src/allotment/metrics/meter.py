"""What was used of budgets, as the log tells it: whether one kept jobs from starting."""

from collections.abc import Iterable, Iterator

import msgspec

from allotment.model.budget import Account, Budget
from allotment.model.quantity import Instant
from allotment.model.queue_tree import QueueTree
from allotment.model.tenancy import Tenant

Whose = tuple[str, str, str]
"""A tenant, a queue and a user."""


class Meter:
    """The accounts of all budgets. O(budgets of the tenant) a change."""

    def __init__(self) -> None:
        self.tenants: dict[str, tuple[Budget, ...]] = {}
        """Those that have budgets."""
        self._trees: dict[str, QueueTree] = {}
        self._accounts: dict[tuple[str, int, str], Account] = {}

    def configure(
        self, tenants: Iterable[Tenant], held: Iterable[tuple[Whose, int]], now: Instant
    ) -> None:
        """Take new budgets, and what is held of devices now; the same ones keep their sums."""
        old = list(self._accounts.values())
        self._accounts.clear()
        limited = [tenant for tenant in tenants if tenant.budgets]
        self.tenants = {tenant.name: tenant.budgets for tenant in limited}
        self._trees = {tenant.name: QueueTree(tenant) for tenant in limited}
        for account in old:
            account.settle(now)
            for number, budget in enumerate(self.tenants.get(account.tenant, ())):
                if budget.scope == account.budget.scope:
                    place = (account.tenant, number, account.user)
                    kept = msgspec.structs.replace(account, budget=budget, held=0)
                    self._accounts[place] = kept
        for whose, milli in held:
            self.change(whose, milli, now)

    def change(self, whose: Whose, milli: int, now: Instant) -> None:
        """Take note that so much more, or less, is held from now on."""
        for account in self._counting(whose, now):
            account.settle(now)
            account.held += milli

    def closed(self, whose: Whose, now: Instant) -> bool:
        """Whether a budget keeps such jobs from starting."""
        return any(account.closed(now) for account in self._counting(whose, now))

    def next(self, now: Instant) -> Instant | None:
        """Return when one closes or opens next though nothing happens."""
        found = (account.next_change(now) for account in self._accounts.values())
        return min((at for at in found if at is not None), default=None)

    def _counting(self, whose: Whose, now: Instant) -> Iterator[Account]:
        tenant, queue, user = whose
        if tenant not in self.tenants:
            return
        around = {"", *(each.name for each in self._trees[tenant].upward(queue))}
        for number, budget in enumerate(self.tenants[tenant]):
            if budget.queue not in around or (budget.user and budget.user != user):
                continue
            place = (tenant, number, user if budget.each_user else "")
            account = self._accounts.get(place)
            if account is None:
                account = self._accounts[place] = Account(tenant, budget, place[2], at=now)
            yield account
