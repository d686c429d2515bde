"""What some jobs may hold beside what is free: their tenant's share, caps, limits of queues."""

from collections.abc import Iterator, Mapping

import msgspec

from allotment.metrics.shortage import Shortage
from allotment.model.amounts import GPU
from allotment.model.quantity import Instant
from allotment.model.tenancy import Queue, Tenant

ENOUGH = 1 << 60
"""More devices than any tenant has, in thousandths; and more jobs."""


class Rule(msgspec.Struct, frozen=True, gc=False):
    """How much one queue lets be held at once; devices in thousandths."""

    queue: str
    most: int = ENOUGH
    jobs: int = ENOUGH
    each: int = ENOUGH
    """What one user may hold."""


NO_RULES: tuple[Rule, ...] = ()


def rules_of(tenant: Tenant) -> dict[str, tuple[Rule, ...]]:
    """Return what bounds the jobs of each queue: its own rule, and those of queues around it.

    Queues that nothing bounds are left out.
    """
    own = {queue.name: rule for queue in tenant.queues if (rule := _rule(queue)) is not None}
    if not own:
        return {}
    parents = {queue.name: queue.parent for queue in tenant.queues}
    chains = {name: tuple(_upward(name, parents, own)) for name in parents}
    return {name: chain for name, chain in chains.items() if chain}


def _rule(queue: Queue) -> Rule | None:
    limit, each, own = queue.limit.get(GPU), queue.per_user.get(GPU), ENOUGH
    if not queue.terms.borrow:
        granted = queue.guaranteed.get(GPU)
        own = ENOUGH if granted is None else granted
    most = own if limit is None else min(own, limit)
    jobs = ENOUGH if queue.max_jobs is None else queue.max_jobs
    rule = Rule(queue.name, most, jobs, ENOUGH if each is None else each)
    return None if rule == Rule(queue.name) else rule


def _upward(name: str, parents: Mapping[str, str], own: Mapping[str, Rule]) -> Iterator[Rule]:
    while name in parents:
        if name in own:
            yield own[name]
        name = parents[name]


class Cap:
    """What may be held in a queue at once, by all or by one user, and what is."""

    __slots__ = ("held", "jobs", "most", "most_jobs")

    def __init__(self, most: int, most_jobs: int = ENOUGH) -> None:
        self.most, self.most_jobs = most, most_jobs
        self.held = self.jobs = 0

    def left(self) -> int:
        """Return the devices that are left; less than none where no more jobs may have any."""
        return max(0, self.most - self.held) if self.jobs < self.most_jobs else -1


class Right:
    """A tenant's right to devices, in thousandths, and what it uses of it."""

    def __init__(self) -> None:
        self.guaranteed = 0
        self.used = 0
        self.borrows = True
        self.cap = 0
        """What one user may hold, by any entitlement; 0 means no cap."""
        self.users: dict[str, User] = {}
        self.bounds_queues = False
        self.rooms: dict[tuple[bool, str, tuple[Cap, ...]], Room] = {}
        """What is watched for jobs alike: may they borrow, which are capped, and by queues."""
        self._rules: dict[str, tuple[Rule, ...]] = {}
        self._caps: dict[tuple[str, str], Cap] = {}

    def configure(self, tenant: Tenant) -> bool:
        """Take what the configuration says; return whether queues are bounded otherwise now.

        If so all caps begin anew, at nothing held, and nothing is watched any more.
        """
        self.guaranteed = tenant.guaranteed.gpu_milli
        self.borrows = tenant.borrow
        self.cap = tenant.per_user.gpu_milli
        rules = rules_of(tenant)
        if rules == self._rules:
            return False
        self._rules = rules
        self.bounds_queues = bool(rules)
        self._caps.clear()
        self.rooms.clear()
        return True

    def user(self, name: str) -> "User":
        """Return one of its users."""
        user = self.users.get(name)
        if user is None:
            user = self.users[name] = User(name)
        return user

    def caps(self, queue: str, user: str) -> tuple[Cap, ...]:
        """Return the caps that such a job is counted under."""
        return tuple(
            self._caps.setdefault((rule.queue, name), cap)
            for rule in self._rules.get(queue, NO_RULES)
            for name, cap in (("", Cap(rule.most, rule.jobs)), (user, Cap(rule.each)))
            if cap.most < ENOUGH or cap.most_jobs < ENOUGH
        )


class User:
    """What one user of a tenant holds, by any entitlement, in thousandths."""

    __slots__ = ("held", "name")

    def __init__(self, name: str) -> None:
        self.name, self.held = name, 0


class Room:
    """What jobs alike may still hold, watched over time."""

    def __init__(
        self,
        of: Right,
        user: User | None,
        caps: tuple[Cap, ...],
        free: int,
        *,
        borrows: bool,
    ) -> None:
        self.of, self._user, self._caps, self._borrows = of, user, caps, borrows
        left = self._left()
        self.right = Shortage(left)
        """Of what they have a right to."""
        self.both = Shortage(min(left, free))
        """Of that and of free devices, whichever is less."""

    def settle(self, free: int, at: Instant) -> None:
        """Take note of what is left, and of what is free, from `at` on."""
        left = self._left()
        self.right.change(left, at)
        self.both.change(min(left, free), at)

    def _left(self) -> int:
        of = self.of
        left = ENOUGH if self._borrows else of.guaranteed - of.used
        if self._user is not None and of.cap:
            left = min(left, of.cap - self._user.held)
        for cap in self._caps:
            left = min(left, cap.left())
        return left
