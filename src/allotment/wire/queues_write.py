"""A tenant's queues back into what is read: nested, with what is set."""

from collections.abc import Sequence

from allotment.model.amounts import BY_TYPE, CPU, GPU, Amounts
from allotment.model.queue_tree import last_part
from allotment.model.tenancy import (
    DatedChange,
    Queue,
    QueueOrder,
    QueueState,
    RankBy,
    ShareBy,
    Tenant,
)
from allotment.wire.amounts import write_duration, write_milli, write_size
from allotment.wire.dated_write import differing, period_to_wire
from allotment.wire.tree import Plain

Written = dict[str, Plain]


def queues_to_wire(tenant: Tenant, changes: Sequence[DatedChange] = ()) -> Written:
    """Return the tree of a tenant's queues, each with its own changes by date."""
    return _under(tenant, "", changes)


def _under(tenant: Tenant, parent: str, changes: Sequence[DatedChange]) -> Written:
    return {
        last_part(queue): _queue(tenant, queue, changes)
        for queue in tenant.queues
        if queue.parent == parent
    }


def _queue(tenant: Tenant, queue: Queue, changes: Sequence[DatedChange]) -> Written:
    inside = _under(tenant, queue.name, changes)
    alone = _alone(queue)
    dated = [
        {**period_to_wire(change), **differing(alone, _alone(change.queue), _USUAL)}
        for change in changes
        if change.queue is not None and change.queue.name == queue.name
    ]
    if inside and queue.order is QueueOrder.STRICT:
        del alone["order"]  # Said of its leaves alone: here it would have no effect.
    return {
        **alone,
        **({"changes": list[Plain](dated)} if dated else {}),
        **({"queues": inside} if inside else {}),
    }


_USUAL: Written = {
    "guaranteed": {},
    "soft_limit": {},
    "limit": {},
    "lend": True,
    "borrow": True,
    "weight": 1,
    "max_jobs": "none",
    "per_user": {},
    "per_group": {},
}
"""What may change by date of a queue, and what it is where it is not written."""


def _alone(queue: Queue) -> Written:
    """Write a queue without those inside it."""
    caps = (
        ("guaranteed", queue.guaranteed),
        ("soft_limit", queue.terms.soft_limit),
        ("limit", queue.limit),
        ("per_user", queue.per_user),
        ("per_group", queue.per_group),
    )
    return {
        "order": queue.order.value,
        **_ranked(queue),
        **shared_to_wire(queue.share, queue.weight_milli),
        **({"state": queue.state.value} if queue.state is not QueueState.OPEN else {}),
        **{key: amounts_to_wire(amounts) for key, amounts in caps if amounts},
        **({"affinity": True} if queue.by_affinity else {}),
        **({"migrate": True} if queue.migrates else {}),
        **({"grow": write_duration(queue.grow_ms)} if queue.grow_ms else {}),
        **({"pack": True} if queue.packs else {}),
        **({} if queue.terms.lend else {"lend": False}),
        **({} if queue.terms.borrow else {"borrow": False}),
        **({"overtaken": queue.terms.overtaken} if queue.terms.overtaken else {}),
        **({} if queue.max_jobs is None else {"max_jobs": queue.max_jobs}),
        **({} if queue.max_waiting is None else {"max_waiting": queue.max_waiting}),
    }


def _ranked(queue: Queue) -> Written:
    """Write in what order jobs come; where they take turns, that goes without saying."""
    if queue.slices_by_cost:
        return {"time_slice": "auto"}
    if queue.time_slice_ms:
        return {"time_slice": write_duration(queue.time_slice_ms)}
    return {"rank": queue.rank.value} if queue.rank is not RankBy.SUBMITTED else {}


def shared_to_wire(share: ShareBy, weight_milli: int) -> Written:
    """Return the sharing rule and the weight, where they are given."""
    return {
        **({"share": share.value} if share is not ShareBy.FIRST_COME else {}),
        **({"weight": write_milli(weight_milli)} if weight_milli != 1000 else {}),
    }


def amounts_to_wire(amounts: Amounts) -> Written:
    """Return the parts that are named."""
    by_type: Written = {}
    written: Written = {}
    for part, amount in amounts.parts:
        if part.startswith(BY_TYPE):
            by_type[part.removeprefix(BY_TYPE)] = write_milli(amount)
        else:
            written[part] = (write_milli if part in (GPU, CPU) else write_size)(amount)
    return {**written, **({"gpu_by_type": by_type} if by_type else {})}
