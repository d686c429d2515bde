"""The accounts of budgets, kept true event by event: what is held counts from then on.

Nothing is scanned: a change settles the accounts of one job, and a timer strikes where an
account runs full or begins anew. Archived jobs stay counted: only sums are kept.
"""

from collections.abc import Iterable
from heapq import heappop, heappush

import msgspec

from allotment.core.cluster import Cluster
from allotment.core.gang import Gang
from allotment.core.quota import BudgetPlace, Who
from allotment.explain.budgets import renewal, show_gpu_hours, used_of
from allotment.model.budget import Account
from allotment.model.ids import JobId
from allotment.model.quantity import Instant
from allotment.model.spec import JobSpec
from allotment.model.tenancy import Tenant


class _Holder(msgspec.Struct, gc=False):
    """A job that holds devices, and the accounts that count it."""

    milli: int
    places: tuple[BudgetPlace, ...]


class Budgets:
    """All accounts. A change of what a job holds costs O(its tenant's budgets)."""

    def __init__(self, wall_ms: int = 0) -> None:
        self.exist = False
        """Whether any tenant has a budget."""
        self.wall_ms = wall_ms
        self._accounts: dict[BudgetPlace, Account] = {}
        self._tenants: dict[str, Tenant] = {}
        self._holders: dict[JobId, _Holder] = {}
        self._due: list[tuple[Instant, BudgetPlace]] = []
        self._armed: dict[BudgetPlace, Instant] = {}
        self._closed: set[BudgetPlace] = set()

    def accounts(self) -> list[Account]:
        """Return all accounts, by tenant, budget and user."""
        return [self._accounts[place] for place in sorted(self._accounts)]

    # ── the configuration, and snapshots ────────────────────────────────────────────────

    def configure(self, tenants: Iterable[Tenant], cluster: Cluster, now: Instant) -> None:
        """Take new budgets; one of which only the amounts changed keeps what was used.

        A new one counts from now on.
        """
        old = self.accounts()
        for account in old:
            account.settle(now)
            account.held = 0
        self.__init__(self.wall_ms)
        self._tenants = {tenant.name: tenant for tenant in tenants if tenant.budgets}
        self.exist = bool(self._tenants)
        self._take(old)
        for tenant in self._tenants.values():
            for number, budget in enumerate(tenant.budgets):
                if not budget.each_user:
                    self._account((tenant.name, number, ""), now)
        for job in sorted(cluster.gangs) if self._tenants else ():
            self.follow(job, cluster, now)
        self._look_at_all(cluster, now)

    def restore(self, accounts: Iterable[Account], cluster: Cluster, now: Instant) -> None:
        """Take up accounts as they were, with what is held now."""
        self._take(accounts)
        for gang in cluster.gangs.values() if self._tenants else ():
            places = self._places(gang, cluster, now)
            self._holders[gang.id] = _Holder(_held(gang.id, cluster), places)
        self._look_at_all(cluster, now)

    def _take(self, accounts: Iterable[Account]) -> None:
        """Keep the accounts of budgets that are still there."""
        for account in accounts:
            tenant = self._tenants.get(account.tenant)
            for number, budget in enumerate(tenant.budgets if tenant else ()):
                if budget.scope == account.budget.scope:
                    place = (account.tenant, number, account.user)
                    self._accounts[place] = msgspec.structs.replace(account, budget=budget)

    def set_clock(self, wall_ms: int, cluster: Cluster, now: Instant) -> None:
        """Let periods go by a clock that was set."""
        self.wall_ms = wall_ms
        for account in self._accounts.values():
            account.set_clock(wall_ms, now)
        self._look_at_all(cluster, now)

    def _look_at_all(self, cluster: Cluster, now: Instant) -> None:
        for place in sorted(self._accounts):
            self._look(place, cluster, now)

    # ── what is held ────────────────────────────────────────────────────────────────────

    def follow(self, job: JobId, cluster: Cluster, now: Instant) -> None:
        """Take note of what a job holds from now on."""
        gang = cluster.gangs.get(job)
        milli = _held(job, cluster)
        holder = self._holders.get(job)
        more = milli - (holder.milli if holder is not None else 0)
        if not more:
            return
        if holder is None:
            assert gang is not None, "a job that holds nothing gives nothing back"
            holder = self._holders[job] = _Holder(0, self._places(gang, cluster, now))
        holder.milli = milli
        if not milli:
            del self._holders[job]
        for place in holder.places:
            account = self._accounts[place]
            account.settle(now)
            account.held += more
            self._look(place, cluster, now)

    def _places(self, gang: Gang, cluster: Cluster, now: Instant) -> tuple[BudgetPlace, ...]:
        """Open the budgets of the accounts that a gang is charged to."""
        places = _budgets_of(cluster, gang.standing.shape.who)
        for place in places:
            self._account(place, now)
        return places

    def _account(self, place: BudgetPlace, now: Instant) -> Account:
        account = self._accounts.get(place)
        if account is None:
            tenant, number, user = place
            budget = self._tenants[tenant].budgets[number]
            account = self._accounts[place] = Account(
                tenant, budget, user, at=now, wall_ms=self.wall_ms
            )
        return account

    # ── the clock ───────────────────────────────────────────────────────────────────────

    def next(self) -> Instant | None:
        """Return when an account may close or open next though nothing happens."""
        return self._due[0][0] if self._due else None

    def strike(self, cluster: Cluster, now: Instant) -> None:
        """Close what is used up by now, and open what is renewed."""
        while self._due and self._due[0][0] <= now:
            due, place = heappop(self._due)
            if self._armed.get(place) == due:
                del self._armed[place]
                self._look(place, cluster, now)

    def _look(self, place: BudgetPlace, cluster: Cluster, now: Instant) -> None:
        """Open or close an account as it stands, and say when to look again."""
        account = self._accounts[place]
        closed = account.closed(now)
        if closed and place not in self._closed:
            self._closed.add(place)
            cluster.queues.close(account)
            cluster.ledger.version += 1  # The jobs that it held up may go first.
        elif not closed and place in self._closed:
            self._closed.discard(place)
            cluster.queues.reopen(account)
            cluster.ledger.version += 1
        after = account.next_change(now)
        if after is not None and after < self._armed.get(place, after + 1):
            self._armed[place] = after
            heappush(self._due, (after, place))

    # ── words ───────────────────────────────────────────────────────────────────────────

    def warnings(
        self, spec: JobSpec, user: str, cluster: Cluster, now: Instant
    ) -> tuple[str, ...]:
        """Return which budgets that count a job are used up, or more than is wanted."""
        if not spec.total().gpu_milli:
            return ()
        found: list[str] = []
        who = cluster.queues.named(spec.tenant, spec.queue, user, ())
        for place in sorted(_budgets_of(cluster, who)):
            account = self._accounts.get(place)
            if account is None:
                continue
            if account.closed(now):
                told = f"{used_of(account, now)}, so it waits. {renewal(account, now)}."
                found.append(f"budget: {told}")
            elif account.warns(now):
                soft = show_gpu_hours(account.budget.soft)
                told = f"{used_of(account, now)}, beyond its soft limit of {soft}"
                found.append(f"budget: {told}. {renewal(account, now)}.")
        return tuple(found)


def _budgets_of(cluster: Cluster, who: Who) -> tuple[BudgetPlace, ...]:
    return tuple(place for account in cluster.queues.of(who) for place in account.budgets)


def _held(job: JobId, cluster: Cluster) -> int:
    """Return what a job holds, with what it gives up and still has, in thousandths."""
    gang, surplus = cluster.gangs.get(job), cluster.placed.parting.get(job)
    milli = gang.held().gpu_milli if gang is not None else 0
    return milli + surplus.held().gpu_milli if surplus is not None else milli
