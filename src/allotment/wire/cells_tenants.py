"""What tenants are guaranteed in cells: read, checked by shape, and summed up."""

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from allotment.model.cell_quota import (
    Shape,
    Shortage,
    chain_of,
    chains_with,
    shapes_of,
    shortages,
)
from allotment.model.cells import CellShare, Topology
from allotment.model.cluster import Node
from allotment.model.quantity import NOTHING, Resources
from allotment.model.tenancy import Tenant
from allotment.wire.cells_types import near, no_such_type
from allotment.wire.cells_worth import Worth
from allotment.wire.config_shape import GuaranteedShape, TenantShape
from allotment.wire.config_share import PARTS
from allotment.wire.problems import Finding
from allotment.wire.tree import Place

MOST_NAMED = 6
"""Tenants that a message lists."""


class Guarantees(msgspec.Struct):
    """What the tenants have in cells, by name; empty if no tenant has cells."""

    tenants: dict[str, Tenant] = {}
    errors: list[Finding] = []
    warnings: list[Finding] = []


def guarantees_of(
    shapes: Mapping[str, TenantShape], topology: Topology, nodes: Sequence[Node]
) -> Guarantees:
    """Read the shares of all tenants. A share that is wrong is left out, with an error."""
    found = Guarantees()
    found.errors += [*_bad_pins(shapes, topology)]
    found.warnings += [*_unclaimed(shapes, topology)]
    if not any(shape.cells or shape.pins for shape in shapes.values()):
        return found
    chains = shapes_of(topology)
    worth = Worth(topology, nodes)
    for name, shape in shapes.items():
        cells: list[CellShare] = []
        for key, count in shape.cells.items():
            share = _share(key, count, chains, topology)
            if isinstance(share, CellShare):
                cells.append(share)
            else:
                found.errors.append((("tenants", name, "cells", key), *share))
        tenant = Tenant(name, cells=tuple(cells), pins=tuple(shape.pins))
        amount = _sum(tenant, worth, topology)
        tenant = msgspec.structs.replace(tenant, guaranteed=amount)
        found.tenants[name] = tenant
        place: Place = ("tenants", name, "guaranteed")
        found.errors += _unequal(shape.guaranteed, tenant, place)
    short = shortages(topology, list(found.tenants.values()))
    found.errors += [_short(each, found.tenants, chains) for each in short]
    return found


# ── shares ──────────────────────────────────────────────────────────────────────────────


def _share(
    key: str, count: int, chains: Mapping[str, Shape], topology: Topology
) -> CellShare | tuple[str, str]:
    """Read `v100-node` or `v100-rack/v100-node`; what is wrong, and a hint, if it cannot be."""
    chains = dict(chains)
    found = chains_with(chains, key)
    if len(found) == 1:
        return CellShare(key, count)
    if found:
        ways = " or ".join(f"{chain}/{key}" for chain in found)
        return f"there are {key} in more than one chain of cells", f"write {ways}"
    chain, slash, kind = key.partition("/")
    if slash and chain in chains and kind in chains[chain].types:
        return CellShare(kind, count, chain)
    if slash and kind in (known := {k for shape in chains.values() for k in shape.types}):
        if chain in known:
            return f"there are no {kind} under a root {chain}", _ways(kind, chains)
        return f"there is no root of type {chain}", _ways(kind, chains)
    types = {kind.name: kind for kind in topology.types}
    if key in types:
        if not count:
            return CellShare(key, 0)
        return f"there is no root with {key} in it", "add one to `cells.roots`"
    return no_such_type(kind or key, types)


def _ways(kind: str, chains: Mapping[str, Shape]) -> str:
    tops = chains_with(dict(chains), kind)
    return "write " + (kind if len(tops) == 1 else " or ".join(f"{t}/{kind}" for t in tops))


def _sum(tenant: Tenant, worth: Worth, topology: Topology) -> Resources:
    total = NOTHING
    for share in tenant.cells:
        chain = chain_of(worth.shapes, share)
        if chain:
            total += worth.of_type(chain, share.type) * share.count
    for pin in topology.pins:
        if pin.id in tenant.pins:
            total += worth.of_pin(pin)
    return total


def _unequal(given: GuaranteedShape, tenant: Tenant, place: Place) -> Iterator[Finding]:
    """Find what is guaranteed beside cells, and is not what they hold."""
    for key, field, show in PARTS:
        said: int | None = getattr(given, key)
        have: int = getattr(tenant.guaranteed, field)
        if said is None or said == have:
            continue
        if tenant.cells or tenant.pins:
            message = f"is {show(said)}, and the tenant's cells hold {show(have)}"
            yield (*place, key), message, "remove it: the cells are the guarantee"
        else:
            message = "is guaranteed without cells, where other tenants have theirs"
            hint = "give it `cells`, or take this out: it may use idle devices"
            yield (*place, key), message, hint


def _short(short: Shortage, tenants: Mapping[str, Tenant], chains: dict[str, Shape]) -> Finding:
    """Return which level lacks how many cells, and which tenants are guaranteed them."""
    by_tenant: dict[str, int] = {}
    keys: dict[str, str] = {}
    for name, tenant in tenants.items():
        for share in tenant.cells:
            if share.type == short.type and chain_of(chains, share) == short.chain:
                by_tenant[name] = by_tenant.get(name, 0) + share.count
                keys[name] = f"{share.chain}/{share.type}" if share.chain else share.type
    largest = sorted(by_tenant, key=lambda name: -by_tenant[name])
    who = ", ".join(f"{name} {by_tenant[name]}" for name in largest[:MOST_NAMED])
    if len(largest) > MOST_NAMED:
        who += f", and {len(largest) - MOST_NAMED} more"
    where = f" of {short.chain}" if short.chain != short.type else ""
    beside = "" if short.chain == short.type else " beside larger cells"
    message = (
        f"all shares of {short.type}{where} add up to {short.wanted:,}, with room for "
        f"{short.available:,}{beside}: "
        f"{short.wanted - short.available:,} too many ({who})"
    )
    place: Place = ("tenants", largest[0], "cells", keys[largest[0]])
    return place, message, "lower a share, or add roots"


# ── pinned cells ────────────────────────────────────────────────────────────────────────


def _bad_pins(shapes: Mapping[str, TenantShape], topology: Topology) -> Iterator[Finding]:
    """Find pins that are not there, or are two tenants' own."""
    known = [pin.id for pin in topology.pins]
    owner: dict[str, str] = {}
    for name, shape in shapes.items():
        for at, pin in enumerate(shape.pins):
            place: Place = ("tenants", name, "pins", at)
            if pin not in known:
                hint = near(pin, known, "pinned cells") or "add it to `cells.pins`"
                yield place, f"there is no pinned cell {pin}", hint
            elif owner.setdefault(pin, name) != name:
                yield place, f"{pin} is {owner[pin]}'s own already", "give it to one tenant"
            elif pin in shape.pins[:at]:
                yield place, f"{pin} is listed twice", "name it once"


def _unclaimed(shapes: Mapping[str, TenantShape], topology: Topology) -> Iterator[Finding]:
    owned = {pin for shape in shapes.values() for pin in shape.pins}
    for at, pin in enumerate(topology.pins):
        if pin.id not in owned:
            message = (
                f"{pin.id} belongs to no tenant: it can be borrowed, and is guaranteed to none"
            )
            yield ("cells", "pins", at), message, f"add `pins: [{pin.id}]` to a tenant"
