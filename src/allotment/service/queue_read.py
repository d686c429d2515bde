"""The tree of queues, from the books: what each holds, lends, borrows, and its waiting jobs."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from allotment.core.cluster import Cluster
from allotment.core.quota import Account, held_on, limit_of
from allotment.engine.state import State
from allotment.model.amounts import GPU, JOBS, Amounts, Vector, add, of_type, vector_of
from allotment.model.errors import Code, Rejected
from allotment.model.ids import JobId
from allotment.model.ledger import Entitlement, Slot
from allotment.model.lifecycle import WAITING
from allotment.model.quantity import Instant, Resources
from allotment.model.tenancy import Queue, QueueState, Tenant
from allotment.service.queue_view import CapHolder, QueueStand, QueueView, TenantQueues

STRICTNESS = (QueueState.OPEN, QueueState.CLOSED, QueueState.DRAINING, QueueState.STOPPED)


def queue_trees(state: State, now: Instant, only: str = "") -> list[TenantQueues]:
    """Return the queues of all tenants, or of one. O(jobs + placed tasks + queues).

    Raises Rejected where there is no such tenant.
    """
    tenants = [t for t in state.config.tenants if not only or t.name == only]
    if only and not tenants:
        names = ", ".join(tenant.name for tenant in state.config.tenants[:10])
        raise Rejected(
            Code.NO_SUCH_TENANT, f"There is no tenant {only[:60]}.", f"Tenants here: {names}."
        )
    leaves = _leaves(state, {tenant.name for tenant in tenants})
    holders = _holders(state.cluster.queues.accounts())
    return [_TreeReader(tenant, leaves, holders, now).tree() for tenant in tenants]


class _Sum(msgspec.Struct):
    """What is in a queue."""

    used: Vector = msgspec.field(default_factory=dict[str, int])
    own: Vector = msgspec.field(default_factory=dict[str, int])
    """What of it counts as its tenant's own use."""
    reserved: Vector = msgspec.field(default_factory=dict[str, int])
    running: int = 0
    waiting: int = 0
    eligible: int = 0
    oldest: tuple[Instant, JobId] | None = None

    def add(self, other: "_Sum") -> None:
        """Add what is in a queue inside it."""
        add(self.used, other.used)
        add(self.own, other.own)
        add(self.reserved, other.reserved)
        self.running += other.running
        self.waiting += other.waiting
        self.eligible += other.eligible
        if other.oldest is not None:
            self.wait(*other.oldest)

    def wait(self, since: Instant, job: JobId) -> None:
        """Note an eligible job."""
        if self.oldest is None or (since, job) < self.oldest:
            self.oldest = (since, job)


Leaves = defaultdict[tuple[str, str], _Sum]
Holders = dict[tuple[str, str], list[Account]]


def _leaves(state: State, tenants: set[str]) -> Leaves:
    """Sum up what is in each leaf."""
    cluster, found = state.cluster, Leaves(_Sum)
    for job in state.jobs.values():
        spec = job.spec
        if spec.tenant not in tenants:
            continue
        if (gang := cluster.gangs.get(job.id)) is not None:
            here = found[spec.tenant, spec.queue]
            here.running += 1
            parts = _parts_held(cluster, gang.slots, gang.kept())
            add(here.used, parts)
            if gang.entitlement is Entitlement.GUARANTEED:
                add(here.own, parts)
        elif job.state in WAITING:
            here = found[spec.tenant, spec.queue]
            here.waiting += 1
            if job.id in cluster.pending:
                here.eligible += 1
                here.wait(job.queued_at, job.id)
    _add_passing(state, tenants, found)
    return found


def _add_passing(state: State, tenants: set[str], found: Leaves) -> None:
    """Add what elastic gangs give up and still hold, and what is reserved."""
    cluster = state.cluster
    for gang in cluster.placed.parting.values():
        if gang.tenant in tenants:
            parts = _parts_held(cluster, gang.slots, gang.needs)
            add(found[gang.tenant, gang.standing.shape.queue].used, parts)
    for job, place in cluster.reserved.items():
        spec = state.jobs[job].spec
        if spec.tenant in tenants:
            parts = _parts_held(cluster, place.slots, place.needs)
            if job not in cluster.gangs:
                parts[JOBS] = 1
            add(found[spec.tenant, spec.queue].reserved, parts)


def _parts_held(
    cluster: Cluster, slots: Sequence[Slot], needs: Sequence[Resources]
) -> dict[str, int]:
    """Return what tasks hold, devices by type too."""
    if len(cluster.device_types) != 1:
        return held_on(cluster.ledger, slots, needs, by_type=True)
    parts = held_on(cluster.ledger, slots, needs, by_type=False)
    if GPU in parts:
        parts[of_type(cluster.device_types[0])] = parts[GPU]
    return parts


def _holders(accounts: Iterable[Account]) -> Holders:
    """Return the accounts of users and groups that hold anything, by tenant and queue."""
    found: Holders = {}
    for account in accounts:
        if (account.user or account.group) and any(account.use.get(p) for p in account.limit):
            found.setdefault((account.tenant, account.queue), []).append(account)
    return found


class _TreeReader:
    """Makes the tree of one tenant, from its leaves up."""

    def __init__(self, tenant: Tenant, leaves: Leaves, holders: Holders, now: Instant) -> None:
        self._tenant, self._leaves, self._holders, self._now = tenant, leaves, holders, now
        self._inside: dict[str, list[Queue]] = {}
        for queue in tenant.queues:
            self._inside.setdefault(queue.parent, []).append(queue)
        self._sums: dict[str, _Sum] = {}
        self._given: dict[str, Vector] = {}
        self._lent: dict[str, Vector] = {}
        self._total = self._add_up("")
        self._guaranteed = vector_of(tenant.guaranteed)
        self._shared = {part for queue in tenant.queues for part, _ in queue.guaranteed.parts}
        """The parts that are guaranteed to some queue."""
        self._lend("", self._guaranteed, {})

    def tree(self) -> TenantQueues:
        """Return all of it."""
        tenant, total = self._tenant, self._total
        return TenantQueues(
            tenant=tenant.name,
            share=tenant.share,
            weight_milli=tenant.weight_milli,
            borrows=tenant.borrow,
            guaranteed=self._guaranteed,
            used=total.used,
            borrowed=_less(total.used, total.own),
            running=total.running,
            waiting=total.waiting,
            per_user=vector_of(tenant.per_user),
            capped=self._capped(""),
            queues=self._views("", QueueState.OPEN),
        )

    # ── sums ────────────────────────────────────────────────────────────────────────────

    def _add_up(self, name: str) -> _Sum:
        """Sum up a queue, or with '' all: what is in it, and what is guaranteed there."""
        total = _Sum()
        given: Vector = {}
        if (leaf := self._leaves.get((self._tenant.name, name))) is not None:
            total.add(leaf)
        for queue in self._inside.get(name, ()):
            total.add(self._add_up(queue.name))
            self._given[queue.name] |= dict(queue.guaranteed.parts)
            add(given, self._given[queue.name])
        self._sums[name], self._given[name] = total, given
        return total

    def _lend(self, name: str, whole: Vector, excess: Vector) -> None:
        """Count what the queues inside one lend: what others of them use of what is theirs.

        `whole` is what is guaranteed to all of them, `excess` what they hold beyond that.
        """
        inside = sorted(self._inside.get(name, ()), key=lambda queue: queue.name)
        lent: dict[str, Vector] = {queue.name: {} for queue in inside}
        more = {
            queue.name: _less(self._sums[queue.name].own, self._given[queue.name])
            for queue in inside
        }
        for part in self._shared:
            given = sum(self._given[queue.name].get(part, 0) for queue in inside)
            taken = sum(beyond.get(part, 0) for beyond in more.values())
            unowned = max(0, whole.get(part, 0) - given)
            left = taken - unowned - excess.get(part, 0)
            for queue in inside:
                own = self._given[queue.name].get(part, 0)
                idle = own - self._sums[queue.name].own.get(part, 0)
                if (here := min(idle, left)) > 0 and queue.terms.lend:
                    lent[queue.name][part] = here
                    left -= here
        self._lent |= lent
        for queue in inside:
            self._lend(queue.name, self._given[queue.name], more[queue.name])

    # ── views ───────────────────────────────────────────────────────────────────────────

    def _views(self, parent: str, around: QueueState) -> tuple[QueueView, ...]:
        return tuple(self._view(queue, around) for queue in self._inside.get(parent, ()))

    def _view(self, queue: Queue, around: QueueState) -> QueueView:
        total, in_effect = self._sums[queue.name], max(queue.state, around, key=_strictness)
        borrowed = self._borrowed(queue, total)
        since, oldest = total.oldest or (self._now, None)
        return QueueView(
            name=queue.name,
            state=queue.state,
            in_effect=in_effect,
            order=queue.order,
            rank=queue.rank,
            share=queue.share,
            weight_milli=queue.weight_milli,
            lends=queue.terms.lend,
            borrows=queue.terms.borrow,
            guaranteed=self._given[queue.name],
            used=total.used,
            reserved={p: n for p, n in total.reserved.items() if p != JOBS},
            borrowed=borrowed,
            lent=self._lent[queue.name],
            soft_limit=_parts(queue.terms.soft_limit),
            limit=_parts(queue.limit),
            stands=_stands(queue, total, borrowed),
            running=total.running,
            max_jobs=queue.max_jobs,
            waiting=total.waiting,
            eligible=total.eligible,
            max_waiting=queue.max_waiting,
            oldest_job=oldest,
            oldest_ms=max(0, self._now - since),
            per_user=_parts(queue.per_user),
            per_group=_parts(queue.per_group),
            capped=self._capped(queue.name),
            queues=self._views(queue.name, in_effect),
        )

    def _borrowed(self, queue: Queue, total: _Sum) -> Vector:
        """Return what it holds beyond its tenant's guarantee, or its own if any."""
        found = _less(total.used, total.own)
        beyond = _less(total.used, self._given[queue.name])
        for part in self._shared & beyond.keys():
            found[part] = max(found.get(part, 0), beyond[part])
        return found

    def _capped(self, queue: str) -> tuple[CapHolder, ...]:
        accounts = self._holders.get((self._tenant.name, queue), ())
        return tuple(_holder(account) for account in sorted(accounts, key=_fullest_first))


def _parts(amounts: Amounts) -> Vector:
    return dict(amounts.parts)


def _less(amount: Mapping[str, int], other: Mapping[str, int]) -> Vector:
    """Return what is more than in another, part by part."""
    return {
        part: more for part, has in amount.items() if (more := has - other.get(part, 0)) > 0
    }


def _strictness(state: QueueState) -> int:
    return STRICTNESS.index(state)


def _stands(queue: Queue, total: _Sum, borrowed: Vector) -> QueueStand:
    held = {**total.used, JOBS: total.running}
    add(held, total.reserved)
    if any(held.get(part, 0) >= most for part, most in limit_of(queue).items()):
        return QueueStand.AT_LIMIT
    return QueueStand.BEYOND if borrowed else QueueStand.WITHIN


def _holder(account: Account) -> CapHolder:
    held = {part: account.use.get(part, 0) for part in account.limit}
    return CapHolder(held, dict(account.limit), account.user, account.group, _full(account))


def _full(account: Account) -> bool:
    return any(account.use.get(part, 0) >= most for part, most in account.limit.items())


def _fullest_first(account: Account) -> tuple[bool, Sequence[int], str, str]:
    held = [-account.use.get(part, 0) for part in account.limit]
    return (not _full(account), held, account.user, account.group)
