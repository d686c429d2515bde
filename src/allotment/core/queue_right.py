"""The committer's own look at a reclaim: counted from the gangs, not from the books."""

from collections.abc import Sequence

from allotment.core.caps import asked
from allotment.core.cluster import Cluster
from allotment.core.gang import Gang, Standing
from allotment.model.ledger import Entitlement
from allotment.model.queue_tree import QueueTree
from allotment.model.tenancy import Queue

Parts = dict[str, int]
Change = tuple[Sequence[Gang], Sequence[Gang]]
"""Gangs, or parts of such, that would be gone; and what would stay of the latter."""


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
    need = asked(shape.requests, cluster.device_types if cluster.queues.by_type else ())
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
    need: Parts,
    gang: Gang,
    change: Change,
) -> bool:
    theirs = tree.upward(gang.standing.shape.queue)
    around = {queue.name for queue in mine} & {queue.name for queue in theirs}
    own = [queue for queue in mine if queue.name not in around]
    sibling = [queue for queue in theirs if queue.name not in around]
    if not own or not sibling or not _stays_within(cluster, tree, own[-1], need):
        return False
    return all(_keeps(cluster, tree, queue, gang, change) for queue in sibling)


def _stays_within(cluster: Cluster, tree: QueueTree, queue: Queue, need: Parts) -> bool:
    held = _sum(cluster, tree, queue, tuple(cluster.holders()))
    for promise in cluster.reserved.values():
        shape = cluster.shape_of(promise.job)
        if shape.tenant == tree.tenant and tree.holds(queue.name, shape.queue):
            _add(held, cluster.held_on(promise.slots, promise.needs))
    named = dict(queue.guaranteed.parts)
    fits = all(held.get(p, 0) + need.get(p, 0) <= most for p, most in named.items())
    return fits and any(need.get(part) for part in named)


def _keeps(cluster: Cluster, tree: QueueTree, queue: Queue, gang: Gang, change: Change) -> bool:
    gangs, rest = change
    gone = {each.id for each in gangs}
    stay = tuple(
        each
        for each in cluster.gangs.values()
        if each.id not in gone
        and not each.leaving
        and each.entitlement is Entitlement.GUARANTEED
    )
    left = _sum(cluster, tree, queue, (*stay, *rest))
    lost = cluster.held_on(gang.slots, gang.kept())
    return all(left.get(p, 0) >= owed for p, owed in queue.guaranteed.parts if lost.get(p))


def _sum(cluster: Cluster, tree: QueueTree, queue: Queue, gangs: Sequence[Gang]) -> Parts:
    total: Parts = {}
    for gang in gangs:
        if gang.tenant == tree.tenant and tree.holds(queue.name, gang.standing.shape.queue):
            _add(total, cluster.held_on(gang.slots, gang.kept()))
    return total


def _add(total: Parts, more: Parts) -> None:
    for part, amount in more.items():
        total[part] = total.get(part, 0) + amount
