"""A tenant's queues as a tree: its leaves, the way up, and what does not add up in it."""

from collections.abc import Iterable, Iterator, Mapping
from operator import attrgetter

import msgspec

from allotment.model.amounts import (
    BY_TYPE,
    GPU,
    Amounts,
    amounts,
    show_bare,
    show_part,
    whole_vector,
)
from allotment.model.tenancy import Queue, QueueState, Tenant

MOST_LEVELS = 12
"""Deepest nesting of queues; what is read from a file may nest no deeper than that."""


class Flaw(msgspec.Struct, frozen=True):
    """Something that does not add up, at a key of a queue."""

    queue: str
    key: str
    message: str
    hint: str


class QueueTree:
    """The queues of one tenant, indexed: what is asked of one costs O(its depth)."""

    def __init__(self, tenant: Tenant) -> None:
        self.of = tenant
        self.tenant = tenant.name
        self._by_name = {queue.name: queue for queue in tenant.queues}
        self._ways: dict[str, tuple[Queue, ...]] = {}
        inner = {queue.parent for queue in tenant.queues}
        self.leaves = {queue.name: queue for queue in tenant.queues if queue.name not in inner}
        """The queues that jobs can be in."""
        self.all_open = all(queue.state is QueueState.OPEN for queue in tenant.queues)
        """Whether no queue is closed to new jobs, in whatever way."""
        self.bounded = any(queue.max_waiting is not None for queue in tenant.queues)
        """Whether there is a queue in which only so many jobs may wait."""

    def upward(self, name: str) -> tuple[Queue, ...]:
        """Return a queue and those around it, innermost first; nothing if there is none."""
        way = self._ways.get(name)
        if way is None:
            found: dict[str, Queue] = {}
            at = name
            while at in self._by_name and at not in found:
                found[at] = self._by_name[at]
                at = found[at].parent
            way = self._ways[name] = tuple(found.values())
        return way

    def below(self, name: str) -> list[Queue]:
        """Return the leaves under a queue, or itself when it is one. O(leaves)."""
        return [leaf for leaf in self.leaves.values() if self.holds(name, leaf.name)]

    def holds(self, name: str, leaf: str) -> bool:
        """Whether a queue is the leaf, or around it."""
        return any(queue.name == name for queue in self.upward(leaf))

    def called(self, name: str) -> list[Queue]:
        """Return the leaf with this path, or else all whose last part is this."""
        exact = self.leaves.get(name)
        if exact is not None:
            return [exact]
        return [queue for queue in self.leaves.values() if last_part(queue) == name]

    def hindrance(self, name: str) -> Queue | None:
        """Return the queue, on the way up from one, that refuses new jobs; the innermost."""
        if self.all_open:
            return None
        return next((q for q in self.upward(name) if q.state is not QueueState.OPEN), None)

    def stopped(self, name: str) -> Queue | None:
        """Return the queue, on the way up from one, that starts nothing; the innermost."""
        return next((q for q in self.upward(name) if q.state is QueueState.STOPPED), None)


def last_part(queue: Queue) -> str:
    """Return the part of its name that its parent's has not."""
    return queue.name.removeprefix(f"{queue.parent}.") if queue.parent else queue.name


def all_stopped(trees: Iterable[QueueTree]) -> frozenset[tuple[str, str]]:
    """Return the tenants and leaves of their queues in which nothing starts."""
    return frozenset(
        (tree.tenant, name)
        for tree in trees
        for name in tree.leaves
        if tree.stopped(name) is not None
    )


def flaws(tenant: Tenant) -> Iterator[Flaw]:
    """Find what does not add up in a tenant's queues."""
    by_name: dict[str, Queue] = {}
    for queue in tenant.queues:
        if queue.name in by_name:
            yield Flaw(
                queue.name,
                "",
                f"tenant {tenant.name} has another queue {queue.name}",
                "rename one",
            )
        by_name[queue.name] = queue
    lost = list(_parents(tenant, by_name))
    yield from lost
    if not lost:
        yield from _limits(by_name)
        yield from _shares(tenant)


def _parents(tenant: Tenant, by_name: Mapping[str, Queue]) -> Iterator[Flaw]:
    tree = QueueTree(tenant)
    for queue in tenant.queues:
        if queue.parent and queue.parent not in by_name:
            known = ", ".join(sorted(name for name in by_name if name != queue.name))
            yield Flaw(
                queue.name,
                "parent",
                f"tenant {tenant.name} has no queue {queue.parent}",
                f"its queues: {known}" if known else "take the key out",
            )
            continue
        way_up = tree.upward(queue.name)
        if len(way_up) > MOST_LEVELS:
            message = f"is {len(way_up)} levels deep, and {MOST_LEVELS} are accepted"
            yield Flaw(queue.name, "", message, "put it nearer to the top")
        if (top := way_up[-1]).parent:
            way = " in ".join(q.name for q in way_up)
            yield Flaw(
                queue.name,
                "parent",
                f"is inside itself: {way} in {top.parent}",
                "move one of them to the top",
            )


def _limits(by_name: Mapping[str, Queue]) -> Iterator[Flaw]:
    """Find what is more than the limit of the queue itself."""
    for queue in sorted(by_name.values(), key=attrgetter("name")):
        for key, amount in (
            ("guaranteed", queue.guaranteed),
            ("soft_limit", queue.terms.soft_limit),
            ("per_user", queue.per_user),
            ("per_group", queue.per_group),
        ):
            if part := amount.over(queue.limit):
                most = show_bare(part, queue.limit.get(part) or 0)
                given = show_part(part, amount.get(part) or 0)
                whose = {"per_user": " for one user", "per_group": " for one group"}.get(
                    key, ""
                )
                message = f"{given}{whose} is more than the limit of the queue, {most}"
                hint = f"lower `{key}`, or raise `limit`"
                yield Flaw(queue.name, key, message, hint)
        yield from _typed(queue)
        if part := queue.guaranteed.over(queue.terms.soft_limit):
            most = show_bare(part, queue.terms.soft_limit.get(part) or 0)
            own = show_part(part, queue.guaranteed.get(part) or 0)
            message = f"{most} is less than the {own} that the queue is guaranteed"
            yield Flaw(queue.name, "soft_limit", message, "raise it, or lower `guaranteed`")
        if not queue.terms.borrow and not queue.guaranteed:
            message = "is false, and the queue has no guarantee: no job could start"
            yield Flaw(queue.name, "borrow", message, "give it a guarantee, or remove this")


def _typed(queue: Queue) -> Iterator[Flaw]:
    """Find devices guaranteed by type that are more than all devices it may have."""
    typed = sum(n for part, n in queue.guaranteed.parts if part.startswith(BY_TYPE))
    limit, own = queue.limit.get(GPU), queue.guaranteed.get(GPU)
    for most, whose, hint in (
        (limit, "the limit of the queue", "lower it, or raise `limit`"),
        (own, "all that the queue is guaranteed", "lower it, or raise `gpu`"),
    ):
        if most is not None and typed > most:
            message = f"{show_part(GPU, typed)} by type is more than {whose}, "
            yield Flaw(queue.name, "guaranteed", message + show_bare(GPU, most), hint)
            return


def _shares(tenant: Tenant) -> Iterator[Flaw]:
    """Find guarantees that add up to more than what they are part of."""
    yield from _over(tenant, "", f"tenant {tenant.name}", whole_vector(tenant.guaranteed))
    for queue in tenant.queues:
        name, own, limit = f"queue {queue.name}", queue.guaranteed, queue.limit
        if own:
            yield from _over(tenant, queue.name, name, dict(own.parts))
        if limit:
            beside = {part: n for part, n in limit.parts if own.get(part) is None}
            yield from _over(tenant, queue.name, name, beside, "its limit is")


def _over(
    tenant: Tenant, parent: str, name: str, whole: Mapping[str, int], has: str = "it has"
) -> Iterator[Flaw]:
    given = {
        queue.name: _given(tenant, queue) for queue in tenant.queues if queue.parent == parent
    }
    for part, most in whole.items():
        parts = {queue: vector.get(part) or 0 for queue, vector in given.items()}
        if (total := sum(parts.values())) > most:
            who = ", ".join(f"{q} {show_bare(part, n)}" for q, n in parts.items() if n)
            yield Flaw(
                max(parts, key=lambda queue: parts[queue]),
                "guaranteed",
                f"the queues inside {name} are guaranteed {show_part(part, total)} in all, and "
                f"{has} {show_bare(part, most)}: {who}",
                "lower one of them"
                if has == "it has"
                else "lower one of them, or raise `limit`",
            )


def _given(tenant: Tenant, queue: Queue) -> Amounts:
    """Return what is guaranteed to a queue: of a part it does not name, to those inside it.

    Devices by type are devices, too.
    """
    inside = Amounts()
    for each in tenant.queues:
        if each.parent == queue.name:
            inside += _given(tenant, each)
    given = {**dict(inside.parts), **dict(queue.guaranteed.parts)}
    typed = sum(n for part, n in given.items() if part.startswith(BY_TYPE))
    if typed > given.get(GPU, 0):
        given[GPU] = typed
    return amounts(given)
