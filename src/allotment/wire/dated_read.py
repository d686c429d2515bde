"""Changes by date: read, and checked by reading the tenants as they are from each date on."""

from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec

from allotment.model.budget import FOREVER
from allotment.model.quantity import WallTime
from allotment.model.tenancy import DatedChange, Share, Tenant
from allotment.wire.config_budgets import write_date
from allotment.wire.config_shape import GuaranteedShape, Queues, QueueShape, TenantShape
from allotment.wire.dated_shape import PeriodShape
from allotment.wire.problems import Finding
from allotment.wire.tree import Place

MOST_CHANGES = 200
"""In one file: at each of their dates all tenants are looked through."""

Tenants = Mapping[str, TenantShape]
Reader = Callable[[Tenants], tuple[tuple[Tenant, ...], list[Finding]]]
"""Makes tenants of what is written of them, and finds what is wrong."""


class _Written(msgspec.Struct, frozen=True):
    """One change as it is written; `owner` is the place of its tenant or queue."""

    place: Place
    tenant: str
    queue: str
    shape: PeriodShape

    @property
    def owner(self) -> Place:
        return self.place[:-2]

    @property
    def begin(self) -> WallTime:
        return self.shape.begin or WallTime(0)

    @property
    def end(self) -> WallTime:
        return self.shape.until or FOREVER


class ReadChanges(msgspec.Struct):
    """The changes that were read, and what is amiss or doubtful."""

    changes: list[DatedChange] = []
    errors: list[Finding] = []
    warnings: list[Finding] = []


def changes_of(
    shapes: Tenants, places: Mapping[str, Mapping[str, Place]], tenants: Reader
) -> ReadChanges:
    """Read all changes. `places` are those of the queues, by tenant and name."""
    read = ReadChanges()
    written = list(_written(shapes, places))
    if not written:
        return read
    if len(written) > MOST_CHANGES:
        message = f"there are {len(written):,} changes by date, and {MOST_CHANGES} are accepted"
        read.errors.append((written[-1].place, message, "remove those that are over"))
        return read
    read.errors += _overlaps(written)
    if read.errors:
        return read
    usual = {tenant.name: tenant for tenant in tenants(_at(shapes, None))[0]}
    ends = {each.end for each in written if each.end < FOREVER}
    known: list[Finding] = []
    for date in sorted({each.begin for each in written} | ends):
        holding = [each for each in written if each.begin <= date < each.end]
        if not holding:
            continue
        found, flaws = tenants(_at(shapes, date))
        read.errors += [_pointed(flaw, date, holding) for flaw in flaws if flaw not in known]
        known += flaws
        there = {tenant.name: tenant for tenant in found}
        for each in holding if not flaws else ():
            if each.begin == date:
                _add(read, each, there[each.tenant], usual[each.tenant])
    return read


def _written(shapes: Tenants, places: Mapping[str, Mapping[str, Place]]) -> Iterator[_Written]:
    for name, tenant in shapes.items():
        for at, change in enumerate(tenant.changes):
            yield _Written(("tenants", name, "changes", at), name, "", change)
        for queue, place in places[name].items():
            for at, change in enumerate(_queue_at(tenant, place).changes):
                yield _Written((*place, "changes", at), name, queue, change)


def _queue_at(tenant: TenantShape, place: Place) -> QueueShape:
    """Find the queue that stands at ("tenants", NAME, "queues", A, "queues", B …)."""
    found = tenant.queues[str(place[3])]
    for key in place[5::2]:
        found = found.queues[str(key)]
    return found


def _overlaps(written: Sequence[_Written]) -> Iterator[Finding]:
    last: dict[Place, _Written] = {}
    for each in sorted(written, key=lambda one: one.begin):
        before = last.get(each.owner)
        if before is not None and each.begin < before.end:
            until = "for ever" if before.end == FOREVER else f"until {write_date(before.end)}"
            message = f"overlaps changes[{before.place[-1]}], which holds {until}"
            yield each.place, message, "let one end before the next begins"
        if before is None or each.end > before.end:
            last[each.owner] = each


# ── how it is at a date ─────────────────────────────────────────────────────────────────


def _at(shapes: Tenants, date: WallTime | None) -> Tenants:
    """Return what is written as it is at a date; None for without any change."""
    return {name: _tenant(shape, date) for name, shape in shapes.items()}


def _tenant(shape: TenantShape, date: WallTime | None) -> TenantShape:
    says = _says(shape.changes, date)
    if "cells" in says and "guaranteed" not in says:
        says["guaranteed"] = GuaranteedShape()
    queues = _queues(shape.queues, date)
    return shape.model_copy(update={**says, "changes": [], "queues": queues})


def _queues(queues: Queues, date: WallTime | None) -> Queues:
    return {
        key: queue.model_copy(
            update={
                **_says(queue.changes, date),
                "changes": [],
                "queues": _queues(queue.queues, date),
            }
        )
        for key, queue in queues.items()
    }


def _says(changes: Sequence[PeriodShape], date: WallTime | None) -> dict[str, object]:
    if date is None:
        return {}
    for change in changes:
        if (change.begin or 0) <= date < (change.until or FOREVER):
            return change.says
    return {}


# ── what comes of it ────────────────────────────────────────────────────────────────────


def _pointed(flaw: Finding, date: WallTime, holding: Sequence[_Written]) -> Finding:
    """Point at the change that is to blame, and say from when on it is so."""
    place, message, hint = flaw
    around = [each for each in holding if place[: len(each.owner)] == each.owner]
    newest = max(holding, key=lambda each: each.begin)
    blamed = max(around, key=lambda each: len(each.owner), default=newest)
    rest = place[len(blamed.owner) :] if around else ()
    known = bool(rest) and rest[0] in blamed.shape.says
    when = f"from {write_date(date)} on" if date else "now"
    return (*blamed.place, *rest) if known else blamed.place, f"{when}: {message}", hint


def _add(read: ReadChanges, written: _Written, tenant: Tenant, usual: Tenant) -> None:
    change = DatedChange(written.tenant, written.begin, written.end)
    if written.queue:
        queue = tenant.queue(written.queue)
        same = queue == usual.queue(written.queue)
        change = msgspec.structs.replace(change, queue=queue)
    else:
        share = share_of(tenant, usual)
        same = share == share_of(usual, usual)
        change = msgspec.structs.replace(change, share=share)
    if same:
        message = "changes nothing: its values are the usual ones"
        read.warnings.append((written.place, message, "remove it"))
    else:
        read.changes.append(change)


def share_of(tenant: Tenant, usual: Tenant) -> Share:
    """Return a guarantee, and what one user may hold if that differs from the usual."""
    cap = tenant.per_user if tenant.per_user != usual.per_user else None
    return Share(tenant.guaranteed, tenant.cells, tenant.borrow, tenant.weight_milli, cap)
