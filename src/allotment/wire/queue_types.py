"""What queues say of devices by type, held against the devices that there are."""

from collections.abc import Iterator, Mapping, Sequence

from allotment.model.amounts import BY_TYPE, GPU, Amounts, show_bare, show_part
from allotment.model.cluster import Node
from allotment.model.quantity import DEVICE
from allotment.model.tenancy import Queue, Tenant
from allotment.wire.problems import Finding, nearest
from allotment.wire.tree import Place

Places = Mapping[str, Mapping[str, Place]]
"""Where the queues stand, by tenant and name."""


def wrong_types(
    tenants: Sequence[Tenant], places: Places, nodes: Sequence[Node]
) -> Iterator[Finding]:
    """Return types that no node has, and guarantees of a type beyond what there is."""
    there: dict[str, int] = {}
    for node in nodes:
        for device in node.devices:
            there[device.type] = there.get(device.type, 0) + DEVICE
    for tenant in tenants:
        for queue in tenant.queues:
            place = places[tenant.name][queue.name]
            yield from _unknown(place, queue, list(there))
    for kind, most in there.items():
        yield from _too_many(kind, most, tenants, places)


def _unknown(place: Place, queue: Queue, known: list[str]) -> Iterator[Finding]:
    for key, amounts in (
        ("guaranteed", queue.guaranteed),
        ("soft_limit", queue.terms.soft_limit),
        ("limit", queue.limit),
        ("per_user", queue.per_user),
        ("per_group", queue.per_group),
    ):
        for kind, amount in _by_type(amounts):
            if kind not in known:
                message = (
                    f"no node has GPUs of type {kind}, and this names {show_bare(GPU, amount)}"
                )
                hint = nearest(kind, known, what="types") if known else "no node has a GPU"
                yield (*place, key, "gpu_by_type", kind), message, hint


def _too_many(
    kind: str, most: int, tenants: Sequence[Tenant], places: Places
) -> Iterator[Finding]:
    part = BY_TYPE + kind
    guaranteed = {
        (tenant.name, queue.name): _guaranteed(tenant, queue, part)
        for tenant in tenants
        for queue in tenant.queues
        if not queue.parent
    }
    total = sum(guaranteed.values())
    if total <= most:
        return
    who = ", ".join(f"{t}/{q} {show_bare(part, n)}" for (t, q), n in guaranteed.items() if n)
    tenant, queue = max(guaranteed, key=lambda name: guaranteed[name])
    yield (
        (*places[tenant][queue], "guaranteed"),
        f"queues are guaranteed {show_part(part, total)} in all, and there are "
        f"{show_bare(part, most)}: {who}",
        "lower one of them, or add nodes",
    )


def _guaranteed(tenant: Tenant, queue: Queue, part: str) -> int:
    """Return what of a type is guaranteed to a queue, else to those inside it."""
    named = queue.guaranteed.get(part)
    if named is not None:
        return named
    return sum(
        _guaranteed(tenant, each, part) for each in tenant.queues if each.parent == queue.name
    )


def _by_type(amounts: Amounts) -> Iterator[tuple[str, int]]:
    for part, amount in amounts.parts:
        if part.startswith(BY_TYPE):
            yield part.removeprefix(BY_TYPE), amount
