"""Reclaiming: a job within its queue's guarantee gets back what sibling queues were lent.

Rule: of the tenant's gangs those may have to go by which a sibling queue is beyond its
guarantee, newest first, just enough: surplus tasks of elastic gangs where these will do, else
whole gangs; none that would take a queue below what is
guaranteed to it. A gang that turns out not to be in the way stays. They are told as borrowers
are: marked, warned, and gone within their grace.

No two jobs can reclaim from each other for ever: it goes from a queue beyond its guarantee
to one that stays within, and a queue is never taken beyond its guarantee by it.
"""

from collections.abc import Iterator, Sequence

from allotment.core.cluster import Cluster
from allotment.core.gang import Gang, Standing
from allotment.core.preemption.search import may_scale_down
from allotment.core.quota import Account, parted
from allotment.model.amounts import Vector, add
from allotment.model.ledger import GUARANTEED
from allotment.model.queue_tree import QueueTree
from allotment.model.tenancy import Queue

Removed = dict[str, Vector]
"""By queue, what would be gone of each part."""

Change = tuple[Sequence[Gang], Sequence[Gang]]
"""Gangs, or parts of such, that would be gone; and what would stay of the latter."""


def surplus(cluster: Cluster, waiting: Standing) -> list[Gang]:
    """Return the gangs of sibling queues that may have to go for a job, newest first.

    Any of them may stay: no queue is below its guarantee without all of them.
    """
    beyond = list(_beyond(cluster, waiting))
    gone = _not_to_keep(cluster, waiting.shape.tenant) if beyond else {}
    found: list[Gang] = []
    for gang, chain, there in beyond:
        held = _held(cluster, gang)
        if all(_can_do_without(branch, held, gone) for branch in chain[:there]):
            _remove(gone, chain, held)
            found.append(gang)
    return found


def shrinkable(cluster: Cluster, waiting: Standing) -> list[tuple[Gang, int]]:
    """Return elastic gangs of sibling queues that may have to shrink for a job, newest first.

    No queue is below its guarantee when all of them keep the tasks named with them.
    """
    if not cluster.placed.elastic:
        return []
    beyond = [each for each in _beyond(cluster, waiting) if may_scale_down(cluster, each[0])]
    gone = _not_to_keep(cluster, waiting.shape.tenant) if beyond else {}
    found: list[tuple[Gang, int]] = []
    for gang, chain, there in beyond:
        for tasks in range(gang.least, len(gang.slots), gang.step):
            held = _held(cluster, gang.surplus(tasks))
            if all(_can_do_without(branch, held, gone) for branch in chain[:there]):
                _remove(gone, chain, held)
                found.append((gang, tasks))
                break
    return found


def _beyond(
    cluster: Cluster, waiting: Standing
) -> Iterator[tuple[Gang, tuple[Account, ...], int]]:
    """Return the gangs by which sibling queues may be beyond their guarantees, newest first.

    With each come the queues around it, and how many of these are siblings.
    """
    shape, queues = waiting.shape, cluster.queues
    if shape.opportunistic or shape.tenant not in queues.guarantees:
        return
    need = cluster.queues.need_of(shape)
    mine = queues.chain(shape.tenant, shape.queue)
    covered = [branch.covers(need) for branch in mine]
    if not any(covered):
        return
    awaited = {job for reserved in cluster.reserved.values() for job in reserved.victims}
    theirs = [gang for gang in cluster.gangs.values() if gang.tenant == shape.tenant]
    for gang in sorted(theirs, key=lambda gang: (-gang.placed_at, -gang.id)):
        if (
            gang.leaving
            or gang.suspended
            or not gang.preemptible
            or gang.id in awaited
            or gang.entitlement is not GUARANTEED
        ):
            continue
        chain = queues.chain(gang.tenant, gang.standing.shape.queue)
        here, there = parted(mine, chain)
        if here and there and covered[here - 1]:
            yield gang, chain, there


def _not_to_keep(cluster: Cluster, tenant: str) -> Removed:
    """Return what counts as used by a tenant's queues, and is not theirs to keep.

    That is what they hold by borrowing, or for a while only; and
    what is reserved, until it is held.
    """
    gone: Removed = {}
    for gang in cluster.holders():
        if gang.tenant == tenant and (gang.leaving or gang.entitlement is not GUARANTEED):
            chain = cluster.queues.chain(tenant, gang.standing.shape.queue)
            _remove(gone, chain, _held(cluster, gang))
    for reserved in cluster.reserved.values():
        shape = cluster.shape_of(reserved.job)
        if shape.tenant == tenant:
            chain = cluster.queues.chain(tenant, shape.queue)
            _remove(gone, chain, cluster.held_on(reserved.slots, reserved.needs))
    return gone


def _held(cluster: Cluster, gang: Gang) -> Vector:
    return cluster.held_on(gang.slots, gang.kept())


def _can_do_without(branch: Account, held: Vector, gone: Removed) -> bool:
    """Whether a queue has all that is guaranteed to it without a gang, too."""
    use, less = branch.use, gone.get(branch.queue, {})
    return all(
        use.get(part, 0) - less.get(part, 0) - held[part] >= least
        for part, least in branch.guaranteed.items()
        if held.get(part)
    )


def _remove(gone: Removed, chain: tuple[Account, ...], held: Vector) -> None:
    for branch in chain:
        add(gone.setdefault(branch.queue, {}), held)


# ── the committer's own look ────────────────────────────────────────────────────────────
#
# Counted from the gangs, not from the books.


def may_reclaim(
    cluster: Cluster, waiting: Standing, gangs: Sequence[Gang], rest: Sequence[Gang] = ()
) -> bool:
    """Whether a job may have all these gangs of sibling queues sent away.

    Of some it may be only what they give up: `rest` is what stays of these.

    It must stay within what is guaranteed to a queue around it that they are not in, and
    their own queues must keep what is guaranteed to them.
    """
    shape = waiting.shape
    tree = cluster.trees.get(shape.tenant)
    if tree is None or shape.opportunistic or not cluster.queues.any:
        return False
    need = cluster.queues.need_of(shape)
    mine = tree.upward(shape.queue)
    return all(
        gang.tenant == tree.tenant
        and gang.preemptible
        and _parted(cluster, tree, mine, need, gang, (gangs, rest))
        for gang in gangs
    )


def _parted(
    cluster: Cluster,
    tree: QueueTree,
    mine: tuple[Queue, ...],
    need: Vector,
    gang: Gang,
    change: Change,
) -> bool:
    theirs = tree.upward(gang.standing.shape.queue)
    around = {queue.name for queue in mine} & {queue.name for queue in theirs}
    own = [queue for queue in mine if queue.name not in around]
    sibling = [queue for queue in theirs if queue.name not in around]
    if not own or not sibling or not _would_stay_within(cluster, tree, own[-1], need):
        return False
    return all(_keeps(cluster, tree, queue, gang, change) for queue in sibling)


def _would_stay_within(cluster: Cluster, tree: QueueTree, queue: Queue, need: Vector) -> bool:
    held = _sum(cluster, tree, queue, tuple(cluster.holders()))
    for reserved in cluster.reserved.values():
        shape = cluster.shape_of(reserved.job)
        if shape.tenant == tree.tenant and tree.holds(queue.name, shape.queue):
            add(held, cluster.held_on(reserved.slots, reserved.needs))
    named = dict(queue.guaranteed.parts)
    fits = all(held.get(p, 0) + need.get(p, 0) <= most for p, most in named.items())
    return fits and any(need.get(part) for part in named)


def _keeps(cluster: Cluster, tree: QueueTree, queue: Queue, gang: Gang, change: Change) -> bool:
    gangs, rest = change
    gone = {each.id for each in gangs}
    stay = tuple(
        each
        for each in cluster.gangs.values()
        if each.id not in gone and not each.leaving and each.entitlement is GUARANTEED
    )
    left = _sum(cluster, tree, queue, (*stay, *rest))
    lost = cluster.held_on(gang.slots, gang.kept())
    return all(left.get(p, 0) >= least for p, least in queue.guaranteed.parts if lost.get(p))


def _sum(cluster: Cluster, tree: QueueTree, queue: Queue, gangs: Sequence[Gang]) -> Vector:
    total: Vector = {}
    for gang in gangs:
        if gang.tenant == tree.tenant and tree.holds(queue.name, gang.standing.shape.queue):
            add(total, cluster.held_on(gang.slots, gang.kept()))
    return total
