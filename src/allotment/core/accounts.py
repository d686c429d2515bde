"""What users, groups and queues hold and are promised, where one of them has a cap.

Rule: every job is charged to the queue it is in, to the queues around that, to its user
and to one of its owner's groups: wherever a cap is set, an account is kept of all that the
jobs there hold. Of anybody else nothing is kept. The group is the first of the owner's that
the tenant lists, or the owner's first where it lists none of them.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from allotment.core.books import Holder
from allotment.core.gang import Gang, ReservedPlace
from allotment.core.ledger import Ledger
from allotment.core.request import sum_of
from allotment.model.amounts import BY_TYPE, GPU_MEMORY, JOBS, Amounts, of_type, parts_of
from allotment.model.ids import JobId
from allotment.model.ledger import Slot
from allotment.model.quantity import Resources
from allotment.model.queue_tree import QueueTree
from allotment.model.tenancy import Queue, Tenant

Who = tuple[str, str, str, str]
"""A tenant, a leaf of its queues, a user and a group."""


class Account:
    """What is held under one cap. `queue` is '' for a whole tenant; `user` or `group` names
    whose jobs are meant, and both are '' where it is everybody's."""

    __slots__ = ("cap", "group", "queue", "tenant", "use", "user")

    def __init__(
        self, tenant: str, queue: str, cap: Mapping[str, int], user: str = "", group: str = ""
    ) -> None:
        self.tenant, self.queue, self.user, self.group = tenant, queue, user, group
        self.cap = cap
        self.use: dict[str, int] = {}

    def exceeded(self, more: Mapping[str, int]) -> str:
        """Name the first part of the cap that so much more would go beyond; '' if none.

        What is beyond it already matters only to who wants more of it.
        """
        use = self.use
        for part, most in self.cap.items():
            wanted = more.get(part, 0)
            if wanted > 0 and use.get(part, 0) + wanted > most:
                return part
        return ""

    def overdrawn(self) -> str:
        """Name the first part of which more is held than the cap allows now; '' if none."""
        return self.too_much(self.use)

    def too_much(self, need: Mapping[str, int]) -> str:
        """Name the first part of which so much is too much by itself; '' if none."""
        return next((p for p, most in self.cap.items() if need.get(p, 0) > most), "")

    def count(self, parts: Mapping[str, int], sign: int) -> None:
        """Add (+1) or subtract (-1) what a job holds."""
        use = self.use
        for part, amount in parts.items():
            left = use.get(part, 0) + sign * amount
            if left:
                use[part] = left
            else:
                use.pop(part, None)


class _Scope:
    """Where a cap is set: a tenant, or one of its queues."""

    def __init__(
        self,
        queue: str,
        whole: dict[str, int],
        user: Amounts,
        group: Amounts,
        *,
        watched: bool = False,
    ) -> None:
        self.queue, self.whole = queue, whole
        self.user, self.group = dict(user.parts), dict(group.parts)
        self.watched = watched
        """Whether an account of all it holds is kept though it has no limit."""


class Accounts:
    """All accounts there are."""

    def __init__(
        self, tenants: Iterable[Tenant], trees: Mapping[str, QueueTree], ledger: Ledger
    ) -> None:
        self._trees = trees
        self._ledger = ledger
        self._tenants = {tenant.name: tenant for tenant in tenants}
        self._scopes: dict[str, dict[str, _Scope]] = {
            name: scopes
            for name, tenant in self._tenants.items()
            if (scopes := {scope.queue: scope for scope in _scopes(tenant)})
        }
        self.any = bool(self._scopes)
        """Whether there is any cap at all."""
        self.by_queue = any(queue for scopes in self._scopes.values() for queue in scopes)
        """Whether any cap is that of a queue."""
        self.by_type = any(
            part.startswith(BY_TYPE)
            for tenant in self._tenants.values()
            for part in _parts_named(tenant)
        )
        """Whether any cap names a type of devices."""
        self._accounts: dict[tuple[str, str, str, str], Account] = {}
        self._charged: dict[Who, tuple[Account, ...]] = {}
        self._reserved: dict[JobId, tuple[Who, dict[str, int]]] = {}

    def named(self, tenant: str, queue: str, user: str, groups: Sequence[str]) -> Who:
        """Return under whose name a job stands: '' where it does not matter who it is."""
        by_user, by_group = False, False
        for scope in self._around(tenant, queue):
            by_user, by_group = by_user or bool(scope.user), by_group or bool(scope.group)
        group = self._group(tenant, groups) if by_group else ""
        return tenant, queue, user if by_user else "", group

    def of(self, who: Who) -> tuple[Account, ...]:
        """Return the accounts that a job is charged to, innermost queue first."""
        known = self._charged.get(who)
        if known is None:
            known = self._charged[who] = tuple(self._open(who))
        return known

    def of_queue(self, tenant: str, queue: str) -> Account:
        """Return the account of all that a queue holds, one that is kept."""
        scope = self._scopes[tenant][queue]
        return self._account(tenant, scope, scope.whole)

    def held_on(self, slots: Sequence[Slot], needs: Sequence[Resources]) -> dict[str, int]:
        """Return the parts that tasks hold on their slots; by type where a cap asks for it."""
        return held_on(self._ledger, slots, needs, by_type=self.by_type)

    def enter(self, gang: Gang) -> None:
        """Charge what a gang holds to all that it is part of."""
        self._count(gang.standing.shape.who, self._parts_of(gang), +1)

    def leave(self, gang: Gang) -> None:
        """Undo `enter`."""
        self._count(gang.standing.shape.who, self._parts_of(gang), -1)

    def reserve(self, place: ReservedPlace, holder: Holder) -> None:
        """Charge a reserved place, and a job if its job has no other place."""
        parts = self.held_on(place.slots, place.needs)
        if not holder.is_placed:
            parts[JOBS] = 1
        self._reserved[place.job] = (holder.shape.who, parts)
        self._count(holder.shape.who, parts, +1)

    def release(self, place: ReservedPlace) -> None:
        """Undo `reserve`."""
        self._count(*self._reserved.pop(place.job), -1)

    def _parts_of(self, gang: Gang) -> dict[str, int]:
        parts = self.held_on(gang.slots, gang.kept())
        parts[JOBS] = 0 if gang.is_surplus else 1
        return parts

    def _count(self, who: Who, parts: Mapping[str, int], sign: int) -> None:
        for account in self.of(who):
            account.count(parts, sign)

    def all(self) -> list[Account]:
        """Return every account that was ever charged."""
        return list(self._accounts.values())

    def _around(self, tenant: str, queue: str) -> Iterator[_Scope]:
        scopes = self._scopes.get(tenant)
        if scopes is None:
            return
        for each in self._trees[tenant].upward(queue):
            if each.name in scopes:
                yield scopes[each.name]
        if "" in scopes:
            yield scopes[""]

    def _group(self, tenant: str, groups: Sequence[str]) -> str:
        listed = self._tenants[tenant].groups
        return next((g for g in listed if g in groups), groups[0] if groups else "")

    def _open(self, who: Who) -> Iterator[Account]:
        tenant, queue, user, group = who
        for scope in self._around(tenant, queue):
            if scope.user and user:
                yield self._account(tenant, scope, scope.user, user=user)
            if scope.group and group:
                yield self._account(tenant, scope, scope.group, group=group)
            if scope.whole or scope.watched:
                yield self._account(tenant, scope, scope.whole)

    def _account(
        self,
        tenant: str,
        scope: _Scope,
        cap: Mapping[str, int],
        user: str = "",
        group: str = "",
    ) -> Account:
        key = (tenant, scope.queue, user, group)
        found = self._accounts.get(key)
        if found is None:
            found = Account(tenant, scope.queue, cap, user, group)
            self._accounts[key] = found
        return found


def _scopes(tenant: Tenant) -> Iterator[_Scope]:
    watched = any(queue.guaranteed or queue.terms.soft_limit for queue in tenant.queues)
    for queue in tenant.queues:
        whole = whole_cap(queue)
        if watched or whole or queue.per_user or queue.per_group:
            yield _Scope(queue.name, whole, queue.per_user, queue.per_group, watched=watched)
    per_user = Amounts(tuple(parts_of(tenant.per_user).items()))
    if per_user:
        yield _Scope("", {}, per_user, Amounts())


def _parts_named(tenant: Tenant) -> Iterator[str]:
    for queue in tenant.queues:
        for named in (
            queue.limit,
            queue.guaranteed,
            queue.terms.soft_limit,
            queue.per_user,
            queue.per_group,
        ):
            yield from (part for part, _ in named.parts)


def held_on(
    ledger: Ledger, slots: Sequence[Slot], needs: Sequence[Resources], *, by_type: bool
) -> dict[str, int]:
    """Return the parts that tasks with these needs hold on their slots."""
    total = parts_of(sum_of(tuple(needs)))
    if any(need.gpu_memory for need in needs):
        # A suspended task asks for no devices any more, and keeps memory on each of its own.
        pairs = zip(slots, needs, strict=True)
        total[GPU_MEMORY] = sum(need.gpu_memory * len(slot.devices) for slot, need in pairs)
    if not by_type:
        return total
    for slot, need in zip(slots, needs, strict=True):
        for index in slot.devices if need.gpu_milli else ():
            part = of_type(ledger.type_of(slot.node, index))
            total[part] = total.get(part, 0) + need.gpu_milli // len(slot.devices)
    return total


def whole_cap(queue: Queue) -> dict[str, int]:
    """Return what all jobs of a queue may hold: its own share if it may not borrow."""
    cap = dict(queue.limit.parts)
    for part, own in queue.guaranteed.parts if not queue.terms.borrow else ():
        cap[part] = min(own, cap.get(part, own))
    if queue.max_jobs is not None:
        cap[JOBS] = queue.max_jobs
    return cap
