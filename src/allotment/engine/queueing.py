"""Which queue a job goes to, whether that takes it, and which queues may change under jobs."""

from collections.abc import Iterable, Iterator

import msgspec

from allotment.engine.records import JobRecord
from allotment.engine.state import State
from allotment.model.errors import Code, Rejected
from allotment.model.ids import Actor
from allotment.model.queue_tree import QueueTree, flaws, last_part
from allotment.model.spec import JobSpec
from allotment.model.tenancy import Config, Queue, Tenant

MOST_NAMED = 8
"""Queues or jobs that a message lists."""


def in_its_queue(state: State, spec: JobSpec) -> JobSpec:
    """Return spec with the whole path of its queue. Raises Rejected if that is not clear."""
    tree = state.cluster.trees.get(spec.tenant)
    if tree is None or spec.queue in tree.leaves:
        return spec
    found = tree.called(spec.queue)
    if len(found) != 1:
        raise _unclear(state.cluster.tenants[spec.tenant], tree, spec.queue, found)
    return msgspec.structs.replace(spec, queue=found[0].name)


def _unclear(tenant: Tenant, tree: QueueTree, name: str, found: list[Queue]) -> Rejected:
    if found:
        return Rejected(
            Code.NO_SUCH_QUEUE,
            f"Tenant {tenant.name} has {len(found)} queues called {name!r}.",
            f"Say which: {_listed(q.name for q in found)}.",
        )
    inner = [q for q in tenant.queues if name in (q.name, last_part(q))]
    if inner:
        under = {leaf.name: None for queue in inner for leaf in tree.below(queue.name)}
        return Rejected(
            Code.NO_SUCH_QUEUE,
            f"Queue {inner[0].name} of tenant {tenant.name} has queues inside: jobs go to "
            "those.",
            f"Queues in it: {_listed(under)}.",
        )
    return Rejected(
        Code.NO_SUCH_QUEUE,
        f"Tenant {tenant.name} has no queue {name!r}.",
        f"Its queues: {_listed(tree.leaves)}.",
    )


def _listed(names: Iterable[str]) -> str:
    all_names = list(names)
    more = len(all_names) - MOST_NAMED
    words = ", ".join(all_names[:MOST_NAMED])
    return f"{words} and {more} more" if more > 0 else words


def check_queue(state: State, spec: JobSpec, copies: int = 1) -> None:
    """Refuse new jobs that the queue, or one around it, takes no more. Raises Rejected."""
    tree = state.cluster.trees[spec.tenant]
    shut = tree.hindrance(spec.queue)
    if shut is not None:
        raise Rejected(
            Code.QUEUE_CLOSED,
            f"Queue {shut.name} of tenant {tree.tenant} is {shut.state.value}: it takes no "
            "new jobs.",
            _others(tree),
        )
    for queue in tree.upward(spec.queue) if tree.bounded else ():
        if queue.max_waiting is None:
            continue
        waiting = sum(1 for job in _in(state, tree, queue.name) if job.state.waiting)
        if waiting + copies > queue.max_waiting:
            asks = f"; this is {copies} more" if copies > 1 else ""
            raise Rejected(
                Code.QUEUE_FULL,
                f"{waiting} jobs wait in queue {queue.name} of tenant {tree.tenant}, and "
                f"{queue.max_waiting} may{asks}.",
                "Submit it again when some have started.",
            )


def check_user(state: State, actor: Actor, copies: int) -> None:
    """Refuse more jobs of one user than may be there at once. Raises Rejected."""
    most, there = state.config.limits.per_user.jobs, state.unfinished.get(actor.user, 0)
    if there + copies > most:
        asks = f"; this is {copies} more" if copies > 1 else ""
        raise Rejected(
            Code.QUEUE_FULL,
            f"{actor.user} has {there} jobs that are not over, and one user may have "
            f"{most}{asks}.",
            "Submit it again when some are over. The administrator sets this as "
            "`limits.per_user.jobs`.",
        )


def _others(tree: QueueTree) -> str:
    open_ones = [name for name in tree.leaves if tree.hindrance(name) is None]
    if not open_ones:
        return "No queue of the tenant is open now."
    return f"Open queues: {_listed(open_ones)}."


def _in(state: State, tree: QueueTree, name: str) -> Iterator[JobRecord]:
    """Return the unfinished jobs in a queue or under it. O(jobs)."""
    names = {queue.name for queue in tree.below(name)}
    for job in state.jobs.values():
        if (
            not job.state.finished
            and job.spec.tenant == tree.tenant
            and job.spec.queue in names
        ):
            yield job


def check_queues(state: State, config: Config) -> None:
    """Refuse a configuration whose queues do not add up, or that takes one away from its jobs.

    Raises Rejected; then the old configuration stays in force.
    """
    for tenant in config.tenants:
        for flaw in flaws(tenant):
            raise Rejected(
                Code.CONFLICT,
                f"Queue {flaw.queue} of tenant {tenant.name}: {flaw.message}.",
                f"{flaw.hint[:1].upper()}{flaw.hint[1:]}.",
            )
        old = state.cluster.tenants.get(tenant.name)
        if old is not None:
            _keep_used(state, old, tenant)


def _keep_used(state: State, old: Tenant, new: Tenant) -> None:
    before, after = state.cluster.trees[old.name], QueueTree(new)
    for name in sorted(before.leaves.keys() - after.leaves.keys()):
        jobs = [job.id for job in _in(state, before, name)]
        if not jobs:
            continue
        queue = old.queue(name)
        moved = after.called(last_part(queue)) if queue else []
        what = (
            "would have queues inside it"
            if new.queue(name)
            else f"would move to {moved[0].name}"
            if len(moved) == 1
            else "would be gone"
        )
        some = _listed(str(job) for job in jobs)
        have = "job waits or runs" if len(jobs) == 1 else "jobs wait or run"
        raise Rejected(
            Code.CONFLICT,
            f"Queue {name} of tenant {old.name} {what}, and {len(jobs)} {have} in it ({some}).",
            "Set its state to draining first, or move its jobs (allot edit JOB --set "
            "queue=NAME); the old configuration stays in force.",
        )
