"""The quota tree: tenants, in each of them queue in queue, in these their users and groups.

Every job is charged to its tenant, to the queue it is in, to the queues around that, to its
user and to one of its owner's groups: an account is kept of all that the jobs there hold and
have reserved. Below the tenants it is kept where something is bounded. The group is the first
of the owner's that the tenant lists, or the owner's first where it lists none of them.

A tenant has its guaranteed quota, out of which its jobs hold what is its own; what they hold
beyond is borrowed from other tenants.

An account below a tenant may have

* a limit: its jobs never hold more, by whatever entitlement (core/caps.py);
* a guaranteed quota: a job is within it if with it the queue, or one around that, holds no more
  of any guaranteed part than is guaranteed. Such jobs come before all others of their
  tenant. What a queue holds beyond is lent to it by its siblings: it can be reclaimed by
  a job within its guarantee (core/reclaim.py);
* no lending: what it does not use of its guaranteed quota is kept for it (core/lending.py);
* a soft limit: beyond it a queue goes only while no other queue of the tenant has a job in
  line that would stay below its own.

Any account may have budgets: GPU-hours that its jobs may use in a stretch of time. What was
used is a sum over time, and needs a clock: the engine keeps it (engine/budgets.py), and says
which budgets are used up. Meanwhile jobs charged there that ask for devices are passed over,
and hold up none. What holds devices keeps them.

A part that a quota does not name is not looked at. A job that is not preemptible never runs
beyond the guaranteed quota of its queue, where its tenant's queues have any.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache

import msgspec

from allotment.core.book import Holder
from allotment.core.gang import Gang, ReservedPlace, held_vector
from allotment.core.ledger import Ledger
from allotment.core.request import Request, Shape, sum_of, total_of
from allotment.model import budget as budgets
from allotment.model.amounts import (
    BY_TYPE,
    CPU,
    GPU,
    GPU_MEMORY,
    JOBS,
    MEMORY,
    Vector,
    add,
    covers,
    of_type,
    resources_of,
    vector_of,
    whole_vector,
)
from allotment.model.ids import JobId
from allotment.model.ledger import GUARANTEED, Slot
from allotment.model.quantity import NOTHING, Resources
from allotment.model.queue_tree import QueueTree
from allotment.model.tenancy import Queue, Tenant

Who = tuple[str, str, str, str]
"""A tenant, a leaf of its queues, a user and a group."""

BudgetPlace = tuple[str, int, str]
"""A tenant, the number of one of its budgets, and a user where each user has it."""


class Account:
    """What is held in one place of the tree, and what bounds it.

    `queue` is '' for a whole tenant; `user` or `group` names whose jobs are meant, and both
    are '' where it counts all jobs.
    """

    __slots__ = (
        "budgets", "group", "guaranteed", "lends", "limit", "queue", "soft", "tenant", "use",
        "used_up", "user",
    )  # fmt: skip

    def __init__(
        self, tenant: str, queue: str, limit: Vector, user: str = "", group: str = ""
    ) -> None:
        self.tenant, self.queue, self.user, self.group = tenant, queue, user, group
        self.limit = limit
        self.guaranteed: Vector = {}
        self.soft: Vector = {}
        """The soft limit."""
        self.lends = True
        """Whether others may use what is guaranteed to it meanwhile."""
        self.use: Vector = {}
        self.budgets: tuple[BudgetPlace, ...] = ()
        self.used_up: list[budgets.Account] = []
        """Those of its budgets of which all is used."""

    def count(self, parts: Vector, sign: int) -> None:
        """Add (+1) or subtract (-1) what a job holds."""
        use = self.use
        for part, amount in parts.items():
            left = use.get(part, 0) + sign * amount
            if left:
                use[part] = left
            else:
                use.pop(part, None)

    def beyond(self, bound: Vector, more: Vector) -> Iterator[str]:
        """Return the parts of a bound that so much more would go beyond.

        What is beyond it already matters only to a job that wants more of it.
        """
        use = self.use
        for part, most in bound.items():
            wanted = more.get(part, 0)
            if wanted > 0 and use.get(part, 0) + wanted > most:
                yield part

    def exceeded(self, more: Vector) -> str:
        """Return the first part of the limit that so much more would go beyond; '' if none."""
        return next(self.beyond(self.limit, more), "")

    def overdrawn(self) -> str:
        """Return the first part of which more is held than the limit is now; '' if none."""
        return self.too_much(self.use)

    def too_much(self, need: Vector) -> str:
        """Return the first part of which so much is too much by itself; '' if none."""
        return next((p for p, most in self.limit.items() if need.get(p, 0) > most), "")

    def covers(self, need: Vector) -> bool:
        """Whether so much more is within what is guaranteed to it."""
        return covers(self.guaranteed, need, self.use)

    def holds_within(self, held: Vector) -> bool:
        """Whether what it holds, so much of it among that, is within its guaranteed quota."""
        use = self.use
        return any(held.get(part) for part in self.guaranteed) and all(
            use.get(part, 0) <= most for part, most in self.guaranteed.items()
        )

    def spare(self) -> Vector:
        """Return what it does not use of that: devices by type count in all, too."""
        use = self.use
        left = {
            part: spare
            for part, most in self.guaranteed.items()
            if (spare := most - use.get(part, 0)) > 0
        }
        typed = sum(spare for part, spare in left.items() if part.startswith(BY_TYPE))
        if typed:
            left[GPU] = max(left.get(GPU, 0), typed)
        return left


class TenantAccount:
    """What a whole tenant holds, and what is left of its guaranteed quota: every part."""

    __slots__ = ("borrowed", "guaranteed", "left", "reserved")

    def __init__(self, guaranteed: Resources) -> None:
        self.guaranteed = whole_vector(guaranteed)
        self.left = self.guaranteed.copy()
        """What of it its jobs neither hold nor have reserved; below 0 where it was cut."""
        self.reserved = whole_vector(NOTHING)
        """What reserved places will take of it."""
        self.borrowed = whole_vector(NOTHING)
        """What its jobs hold beyond it."""

    def count(self, gang: Gang, sign: int) -> None:
        """Add (+1) or subtract (-1) what a gang holds."""
        if gang.entitlement is GUARANTEED:
            add(self.left, held_vector(gang), -sign)
        else:
            add(self.borrowed, held_vector(gang), sign)

    def reserve(self, taken: Vector, sign: int) -> None:
        """Add (+1) or subtract (-1) what a reserved place will take."""
        add(self.left, taken, -sign)
        add(self.reserved, taken, sign)

    def own(self) -> Resources:
        """Return what its jobs hold out of its guaranteed quota."""
        whole = resources_of(self.guaranteed)
        return whole - resources_of(self.left) - resources_of(self.reserved)

    def total(self) -> Resources:
        """Return what its jobs hold, by whatever entitlement."""
        return self.own() + resources_of(self.borrowed)


def has_room(left: Vector, need: Mapping[str, int]) -> bool:
    """Whether what is left of a tenant's guaranteed quota has room for so much more.

    Where too much is used of disk or device memory, that matters only to a job that wants more.
    """
    if left[GPU] < 0 or left[CPU] < 0 or left[MEMORY] < 0:
        return False
    for part, amount in need.items():  # noqa: SIM110 - asked of every job in every pass
        if amount > left[part]:
            return False
    return True


class _Bounds(msgspec.Struct, frozen=True):
    """The limits in one place of the tree; None where no such account is kept."""

    limit: Vector | None
    """Of all its jobs."""
    user: Vector | None
    group: Vector | None


class QuotaTree:
    """All accounts of all tenants."""

    def __init__(
        self, tenants: Iterable[Tenant], trees: Mapping[str, QueueTree], ledger: Ledger
    ) -> None:
        self._trees, self._ledger = trees, ledger
        self._tenants = {tenant.name: tenant for tenant in tenants}
        self._bounds: dict[tuple[str, str], _Bounds] = {}
        self._accounts: dict[tuple[str, str, str, str], Account] = {}
        self._charged: dict[Who, tuple[Account, ...]] = {}
        self._reserved: dict[JobId, tuple[Who, Vector]] = {}
        self._taken: dict[JobId, tuple[str, Vector]] = {}
        """What reserved places take of their tenants' guaranteed quota."""
        self.used_up = 0
        """How many budgets are used up."""
        self.tenants = defaultdict[str, TenantAccount](lambda: TenantAccount(NOTHING))
        """The accounts of tenants, also of those that are gone and have jobs here."""
        for tenant in self._tenants.values():
            self.tenants[tenant.name] = TenantAccount(tenant.guaranteed)
        self._chains: dict[tuple[str, str], tuple[Account, ...]] = {}
        self.guarantees: set[str] = set()
        """Tenants that guarantee something to some queue."""
        self.softs: set[str] = set()
        """Tenants some queue of which has a soft limit."""
        self.keeps: dict[str, tuple[Account, ...]] = {}
        """Tenants some queue of which does not lend, with the outermost such queues."""
        self.keeps_types: set[str] = set()
        """Those of them of which such a queue is guaranteed devices by type."""
        for tenant in self._tenants.values():
            self._bound(tenant)
            if tenant.name in self.guarantees or tenant.name in self.softs:
                self._grow(tenant)
        self.any = bool(self._chains)
        """Whether any queue has a guaranteed quota or a soft limit."""
        self.is_counted = bool(self._bounds)
        """Whether any account is kept."""
        self.by_queue = any(queue for _, queue in self._bounds)
        """Whether any queue has an account, or a limit for users."""
        self.by_type = any(
            part.startswith(BY_TYPE)
            for tenant in self._tenants.values()
            for queue in tenant.queues
            for named in (queue.limit, queue.guaranteed, queue.terms.soft_limit,
                          queue.per_user, queue.per_group)
            for part, _ in named.parts
        )  # fmt: skip
        """Whether any account counts devices by type."""

    def _bound(self, tenant: Tenant) -> None:
        if any(queue.guaranteed for queue in tenant.queues):
            self.guarantees.add(tenant.name)
        if any(queue.terms.soft_limit for queue in tenant.queues):
            self.softs.add(tenant.name)
        by_user, counted = set[str](), set[str]()
        for budget in tenant.budgets:
            (by_user if budget.user or budget.each_user else counted).add(budget.queue)
        if tenant.name in self.guarantees or tenant.name in self.softs:
            counted.update(queue.name for queue in tenant.queues)
        places = [
            (queue.name, limit_of(queue), dict(queue.per_user.parts), queue.per_group)
            for queue in tenant.queues
        ]
        for name, limit, user, group in (*places, ("", {}, vector_of(tenant.per_user), None)):
            bounds = _Bounds(
                limit if limit or name in counted else None,
                user if user or name in by_user else None,
                dict(group.parts) if group else None,
            )
            if bounds != _Bounds(None, None, None):
                self._bounds[tenant.name, name] = bounds

    def _grow(self, tenant: Tenant) -> None:
        """Set what the queues of a tenant guarantee each other."""
        name, tree = tenant.name, self._trees[tenant.name]
        for queue in tenant.queues:
            account = self._account(name, queue.name)
            account.guaranteed = dict(queue.guaranteed.parts)
            account.soft = dict(queue.terms.soft_limit.parts)
            account.lends = queue.terms.lend
        for queue in tenant.queues:
            self._chains[name, queue.name] = tuple(
                self._accounts[name, each.name, "", ""] for each in tree.upward(queue.name)
            )
        chains = [self._chains[name, queue.name] for queue in tenant.queues]
        keeps = tuple(
            chain[0]
            for chain in chains
            if not chain[0].lends
            and chain[0].guaranteed
            and all(around.lends for around in chain[1:])
        )
        if keeps:
            self.keeps[name] = keeps
        if any(part.startswith(BY_TYPE) for each in keeps for part in each.guaranteed):
            self.keeps_types.add(name)

    # ── whose job it is ─────────────────────────────────────────────────────────────────

    def named(self, tenant: str, queue: str, user: str, groups: Sequence[str]) -> Who:
        """Return the owners that a job is counted for: '' where they do not matter."""
        around = [bounds for _, bounds in self._around(tenant, queue)]
        by_user = any(bounds.user is not None for bounds in around)
        by_group = any(bounds.group is not None for bounds in around)
        group = self._group(tenant, groups) if by_group else ""
        return tenant, queue, user if by_user else "", group

    def of(self, who: Who) -> tuple[Account, ...]:
        """Return the accounts that a job is charged to, innermost queue first."""
        known = self._charged.get(who)
        if known is None:
            known = self._charged[who] = tuple(self._open(who))
        return known

    def chain(self, tenant: str, queue: str) -> tuple[Account, ...]:
        """Return the accounts of a leaf and of the queues around it, innermost first.

        Empty where no queue of the tenant has a guaranteed quota or a soft limit.
        """
        return self._chains.get((tenant, queue), ())

    def accounts(self) -> list[Account]:
        """Return every account that was ever charged."""
        return list(self._accounts.values())

    def _around(self, tenant: str, queue: str) -> Iterator[tuple[str, _Bounds]]:
        if tenant not in self._tenants:
            return
        names = (*(each.name for each in self._trees[tenant].upward(queue)), "")
        for name in names:
            if (bounds := self._bounds.get((tenant, name))) is not None:
                yield name, bounds

    def _group(self, tenant: str, groups: Sequence[str]) -> str:
        listed = self._tenants[tenant].groups
        return next((g for g in listed if g in groups), groups[0] if groups else "")

    def _open(self, who: Who) -> Iterator[Account]:
        tenant, queue, user, group = who
        for name, bounds in self._around(tenant, queue):
            if bounds.user is not None and user:
                yield self._account(tenant, name, user=user)
            if bounds.group is not None and group:
                yield self._account(tenant, name, group=group)
            if bounds.limit is not None:
                yield self._account(tenant, name)

    def _account(self, tenant: str, queue: str, user: str = "", group: str = "") -> Account:
        key = (tenant, queue, user, group)
        found = self._accounts.get(key)
        if found is None:
            bounds = self._bounds[tenant, queue]
            limit = bounds.user if user else bounds.group if group else bounds.limit
            found = self._accounts[key] = Account(tenant, queue, limit or {}, user, group)
            found.budgets = tuple(
                (tenant, number, user if each.each_user else "")
                for number, each in enumerate(self._tenants[tenant].budgets)
                if each.queue == queue and each.counts(user) and not group
            )
        return found

    # ── what it holds ───────────────────────────────────────────────────────────────────

    def taken_by(self, job: JobId) -> Vector:
        """Return what the reserved place of a job takes of its tenant's guaranteed quota."""
        return self._taken[job][1] if job in self._taken else {}

    def held_on(self, slots: Sequence[Slot], needs: Sequence[Resources]) -> Vector:
        """Return the parts that tasks hold on their slots; by type where that is counted."""
        return held_on(self._ledger, slots, needs, by_type=self.by_type)

    def enter(self, gang: Gang) -> None:
        """Charge what a gang holds to all that it is part of."""
        self.tenants[gang.tenant].count(gang, +1)
        if self.is_counted:
            self._charge(gang, +1)

    def leave(self, gang: Gang) -> None:
        """Undo `enter`."""
        self.tenants[gang.tenant].count(gang, -1)
        if self.is_counted:
            self._charge(gang, -1)

    def reserve(self, place: ReservedPlace, holder: Holder) -> None:
        """Charge a reserved place, and a job if its job has no other place."""
        if place.entitlement is GUARANTEED:
            taken = vector_of(sum_of(place.needs))
            self._taken[place.job] = (holder.shape.tenant, taken)
            self.tenants[holder.shape.tenant].reserve(taken, +1)
        if not self.is_counted:
            return
        parts = self.held_on(place.slots, place.needs)
        if not holder.is_placed:
            parts[JOBS] = 1
        self._reserved[place.job] = (holder.shape.who, parts)
        self._count(holder.shape.who, parts, +1)

    def release(self, place: ReservedPlace) -> None:
        """Undo `reserve`."""
        if place.job in self._taken:
            tenant, taken = self._taken.pop(place.job)
            self.tenants[tenant].reserve(taken, -1)
        if self.is_counted:
            self._count(*self._reserved.pop(place.job), -1)

    def _charge(self, gang: Gang, sign: int) -> None:
        """Charge it below its tenant."""
        parts = self.held_on(gang.slots, gang.kept())
        parts[JOBS] = 0 if gang.is_surplus else 1
        if gang.id in self._reserved and not gang.is_surplus:
            # Its job goes on to a reserved place, and counts for one all the time.
            parts[JOBS], self._reserved[gang.id][1][JOBS] = 0, int(sign < 0)
        self._count(gang.standing.shape.who, parts, sign)

    def _count(self, who: Who, parts: Vector, sign: int) -> None:
        for account in self.of(who):
            account.count(parts, sign)

    # ── budgets ─────────────────────────────────────────────────────────────────────────

    def close(self, budget: budgets.Account) -> None:
        """Let nothing more start that a budget counts."""
        self._account(*budget.key).used_up.append(budget)
        self.used_up += 1

    def reopen(self, budget: budgets.Account) -> None:
        """Undo `close`."""
        self._account(*budget.key).used_up.remove(budget)
        self.used_up -= 1

    # ── what a job of a queue may have ──────────────────────────────────────────────────

    def need_of(self, shape: Shape) -> Vector:
        """Return what a job will hold for certain, part by part."""
        return asked(shape.requests, self._ledger.types if self.by_type else ())

    def within(self, shape: Shape) -> bool:
        """Whether a job is within what is guaranteed to its queue, or to one around that."""
        if shape.tenant not in self.guarantees or shape.opportunistic:
            return False
        need = self.need_of(shape)
        return any(account.covers(need) for account in self.chain(shape.tenant, shape.queue))

    def beyond_soft(self, tenant: str, queue: str, need: Vector) -> tuple[Account, str] | None:
        """Return the queue whose soft limit a job would go beyond, and in what part."""
        for account in self.chain(tenant, queue):
            if part := next(account.beyond(account.soft, need), ""):
                return account, part
        return None


def parted(mine: tuple[Account, ...], theirs: tuple[Account, ...]) -> tuple[int, int]:
    """Count the queues of each of two ways up before these meet."""
    for at, account in enumerate(mine):
        if account in theirs:
            return at, theirs.index(account)
    return len(mine), len(theirs)


def held_on(
    ledger: Ledger, slots: Sequence[Slot], needs: Sequence[Resources], *, by_type: bool
) -> Vector:
    """Return the parts that tasks with these needs hold on their slots."""
    total = vector_of(sum_of(tuple(needs)))
    if any(need.gpu_memory for need in needs):
        # A suspended task asks for no devices any more, and keeps memory on each of its own.
        pairs = zip(slots, needs, strict=True)
        total[GPU_MEMORY] = sum(need.gpu_memory * len(slot.devices) for slot, need in pairs)
    if not by_type:
        return total
    for slot, need in zip(slots, needs, strict=True):
        if need.gpu_milli:
            book = ledger.books[slot.node]
            add(total, book.by_type(slot.devices, need.gpu_milli))
    return total


def limit_of(queue: Queue) -> Vector:
    """Return what all jobs of a queue may hold: its guaranteed quota if it may not borrow."""
    limit = dict(queue.limit.parts)
    for part, own in queue.guaranteed.parts if not queue.terms.borrow else ():
        limit[part] = min(own, limit.get(part, own))
    if queue.max_jobs is not None:
        limit[JOBS] = queue.max_jobs
    return limit


@lru_cache(maxsize=4_096)
def asked(requests: tuple[Request, ...], types: tuple[str, ...]) -> Vector:
    """Return what a gang will hold for certain; devices by type where only one will do.

    `types` are those of the cluster, or none where no job asks for types.
    """
    more = vector_of(total_of(requests))
    more[JOBS] = 1
    for request in requests if types else ():
        if len(kinds := request.types or types) == 1 and request.need.gpu_milli:
            part = of_type(kinds[0])
            more[part] = more.get(part, 0) + request.need.gpu_milli * request.count
    return more


NO_TYPE = ("",)
"""Stands where a cap leaves a task no type of device at all."""
