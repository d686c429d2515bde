"""What the queues of a tenant owe each other: guarantees, soft limits, and what is not lent.

Rule: a job is within its queue's guarantee if with it the queue, or one around that, holds
no more of any guaranteed part than is guaranteed. Such jobs come before all others of their
tenant. What a queue holds beyond its guarantee is lent to it by its siblings: it can be
reclaimed by whoever is within (core/reclaim.py). Of a queue that does not lend, what it does
not use is kept for it (core/lending.py). Beyond its soft limit a queue goes only while no other
queue of the tenant has a job in line that would stay below its own.

A part that a guarantee does not name is not looked at. A job that is not preemptible never
runs beyond the guarantee of its queue, where its tenant's queues have any.
"""

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from allotment.core.accounts import Account, Accounts
from allotment.model.amounts import BY_TYPE, GPU, Parts, covers
from allotment.model.queue_tree import QueueTree
from allotment.model.tenancy import Queue, Tenant


class Branch:
    """A queue of the tree, with its account."""

    __slots__ = ("account", "guaranteed", "lends", "name", "soft")

    def __init__(self, queue: Queue, account: Account) -> None:
        self.name = queue.name
        self.account = account
        self.guaranteed = dict(queue.guaranteed.parts)
        self.soft = dict(queue.terms.soft_limit.parts)
        self.lends = queue.terms.lend

    def covers(self, need: Parts) -> bool:
        """Whether so much more is within what is guaranteed to it."""
        return covers(self.guaranteed, need, self.account.use)

    def could_cover(self, need: Parts) -> bool:
        """Whether so much would be within that if it held nothing."""
        return covers(self.guaranteed, need, {})

    def beyond(self, need: Parts) -> tuple[str, ...]:
        """Name the parts of its guarantee that so much more would go beyond."""
        use = self.account.use
        return tuple(
            part
            for part, most in self.guaranteed.items()
            if (wanted := need.get(part, 0)) and use.get(part, 0) + wanted > most
        )

    def holds_within(self, held: Parts) -> bool:
        """Whether what it holds, so much of it among that, is within its guarantee."""
        use = self.account.use
        return any(held.get(part) for part in self.guaranteed) and all(
            use.get(part, 0) <= most for part, most in self.guaranteed.items()
        )

    def spare(self) -> dict[str, int]:
        """Return what of its guarantee it does not use: devices by type count in all, too."""
        use = self.account.use
        left = {
            part: spare
            for part, most in self.guaranteed.items()
            if (spare := most - use.get(part, 0)) > 0
        }
        typed = sum(spare for part, spare in left.items() if part.startswith(BY_TYPE))
        if typed:
            left[GPU] = max(left.get(GPU, 0), typed)
        return left

    def beyond_soft(self, need: Parts) -> str:
        """Name the part of its soft limit that so much more would go beyond; '' if none."""
        use = self.account.use
        for part, most in self.soft.items():
            wanted = need.get(part, 0)
            if wanted > 0 and use.get(part, 0) + wanted > most:
                return part
        return ""


class Kept(msgspec.Struct, frozen=True, gc=False):
    """What a queue that does not lend is guaranteed, and does not use."""

    branch: Branch
    part: str
    amount: int


class Queues:
    """The trees of those tenants whose queues have guarantees or soft limits."""

    def __init__(
        self,
        tenants: Iterable[Tenant],
        trees: Mapping[str, QueueTree],
        accounts: Accounts,
    ) -> None:
        self._chains: dict[tuple[str, str], tuple[Branch, ...]] = {}
        self.guarantees: set[str] = set()
        """Tenants that guarantee something to some queue."""
        self.softs: set[str] = set()
        """Tenants some queue of which has a soft limit."""
        self.keeps: dict[str, tuple[Branch, ...]] = {}
        """Tenants some queue of which does not lend, with the outermost such queues."""
        self.keeps_types: set[str] = set()
        """Those of them of which such a queue is guaranteed devices by type."""
        for tenant in tenants:
            self._grow(tenant, trees[tenant.name], accounts)
        self.any = bool(self._chains)

    def chain(self, tenant: str, queue: str) -> tuple[Branch, ...]:
        """Return a leaf and the queues around it, innermost first."""
        return self._chains.get((tenant, queue), ())

    def within(self, tenant: str, queue: str, need: Parts) -> bool:
        """Whether a job that needs so much is within a guarantee of its queue."""
        return any(branch.covers(need) for branch in self.chain(tenant, queue))

    def beyond_soft(self, tenant: str, queue: str, need: Parts) -> tuple[Branch, str] | None:
        """Return the queue whose soft limit a job would go beyond, and in what part."""
        for branch in self.chain(tenant, queue):
            if part := branch.beyond_soft(need):
                return branch, part
        return None

    def kept(self, tenant: str, queue: str) -> Iterator[Kept]:
        """Return what a job of a queue must leave to others that do not lend."""
        around = self.chain(tenant, queue)
        for branch in self.keeps.get(tenant, ()):
            if branch not in around:
                for part, spare in branch.spare().items():
                    yield Kept(branch, part, spare)

    def _grow(self, tenant: Tenant, tree: QueueTree, accounts: Accounts) -> None:
        if any(queue.guaranteed for queue in tenant.queues):
            self.guarantees.add(tenant.name)
        if any(queue.terms.soft_limit for queue in tenant.queues):
            self.softs.add(tenant.name)
        if tenant.name not in self.guarantees | self.softs:
            return
        branches = {
            queue.name: Branch(queue, accounts.of_queue(tenant.name, queue.name))
            for queue in tenant.queues
        }
        for queue in tenant.queues:
            chain = tuple(branches[each.name] for each in tree.upward(queue.name))
            self._chains[tenant.name, queue.name] = chain
        keeps = tuple(
            branch
            for name, branch in branches.items()
            if not branch.lends
            and branch.guaranteed
            and all(around.lends for around in self._chains[tenant.name, name][1:])
        )
        if keeps:
            self.keeps[tenant.name] = keeps
        if any(part.startswith(BY_TYPE) for each in keeps for part in each.guaranteed):
            self.keeps_types.add(tenant.name)


def parted(mine: tuple[Branch, ...], theirs: tuple[Branch, ...]) -> tuple[int, int]:
    """Count the queues of each of two ways up before these meet."""
    for at, branch in enumerate(mine):
        if branch in theirs:
            return at, theirs.index(branch)
    return len(mine), len(theirs)
