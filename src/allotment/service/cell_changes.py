"""What differs between the cells of two configurations, and in what tenants own of them."""

from collections.abc import Iterator, Sequence

import msgspec

from allotment.model.cell_quota import shapes_of
from allotment.model.cells import CellShare, PinnedCell, RootCell
from allotment.model.ids import NodeId
from allotment.model.quantity import Resources, show_resources
from allotment.model.tenancy import Config, Tenant
from allotment.service.config_view import ConfigChange

MOST_NAMED = 6
"""Nodes of a cell that are named; of more only the number is told."""


def cell_changes(old: Config, new: Config) -> list[ConfigChange]:
    """List the types, the roots and the pinned cells that come, go and change."""
    found = [*_types(old, new), *_roots(old, new), *_pins(old, new)]
    return sorted(found, key=lambda change: (change.what, change.sign))


def _types(old: Config, new: Config) -> Iterator[ConfigChange]:
    before = {kind.name: kind for kind in old.topology.types}
    after = {kind.name: kind for kind in new.topology.types}
    for name in {**before, **after}:
        was, now = before.get(name), after.get(name)
        if was == now:
            continue
        then, there = (f"{kind.count} × {kind.child}" if kind else "" for kind in (was, now))
        detail = f"{then} → {there}" if was and now and then != there else there or then
        yield ConfigChange(_sign(was, now), f"cell type {name}", detail)


def _sign(was: object, now: object) -> str:
    return "+" if was is None else "-" if now is None else "~"


# ── roots ───────────────────────────────────────────────────────────────────────────────


class _Root(msgspec.Struct, frozen=True):
    """A root cell as a file has it, whatever the ids of its nodes are."""

    name: str
    type: str
    nodes: tuple[str, ...]
    devices: tuple[tuple[int, ...], ...]


def _roots(old: Config, new: Config) -> Iterator[ConfigChange]:
    """A root is known by its type and its nodes; then by its nodes; then by its name.

    Its name alone may be new though nothing happened to it: two of one name get longer ones.
    """
    gone, came = _all_roots(old), _all_roots(new)
    for key in (_place, _nodes_of, _name_of):
        left = {key(root): root for root in gone}
        for now in list(came):
            was = left.pop(key(now), None)
            if was is not None:
                gone.remove(was)
                came.remove(now)
                if detail := "; ".join(_differences(was, now)):
                    yield ConfigChange("~", f"cell {was.name}", detail)
    yield from (ConfigChange("-", f"cell {root.name}", root.type) for root in gone)
    yield from (ConfigChange("+", f"cell {root.name}", root.type) for root in came)


def _all_roots(config: Config) -> list[_Root]:
    names = {node.id: node.name for node in config.nodes}
    return [
        _Root(root.name, root.type, tuple(names[node] for node in root.nodes), _devices(root))
        for root in config.topology.roots
    ]


def _devices(root: RootCell) -> tuple[tuple[int, ...], ...]:
    """Return the devices of each node; none where they are counted from 0."""
    plain = all(devices == tuple(range(len(devices))) for devices in root.devices)
    return () if plain else root.devices


def _place(root: _Root) -> object:
    return root.type, root.nodes


def _nodes_of(root: _Root) -> object:
    return root.nodes


def _name_of(root: _Root) -> object:
    return root.name


def _differences(was: _Root, now: _Root) -> Iterator[str]:
    if was.type != now.type:
        yield f"{was.type} → {now.type}"
    if was.nodes != now.nodes:
        yield f"nodes {_listed(was.nodes)} → {_listed(now.nodes)}"
    if was.devices != now.devices:
        yield "other devices, or in another order"
    if was.name != now.name:
        yield f"its name is {now.name} now"


def _listed(nodes: Sequence[str]) -> str:
    return ", ".join(nodes) if len(nodes) <= MOST_NAMED else f"{len(nodes):,} of them"


# ── pinned cells ────────────────────────────────────────────────────────────────────────


def _pins(old: Config, new: Config) -> Iterator[ConfigChange]:
    before = {pin.id: _pin_words(old, pin) for pin in old.topology.pins}
    after = {pin.id: _pin_words(new, pin) for pin in new.topology.pins}
    for name in sorted({**before, **after}):
        was, now = before.get(name), after.get(name)
        if was != now:
            detail = f"{was} → {now}" if was and now else was or now or ""
            yield ConfigChange(_sign(was, now), f"pinned cell {name}", detail)


def _pin_words(config: Config, pin: PinnedCell) -> str:
    node = next(node.name for node in config.nodes if node.id == pin.node)
    return f"{pin.type} at {node}:{_device(config, pin.type, pin.node, pin.leaf)}"


def _device(config: Config, kind: str, node: NodeId, leaf: int) -> int:
    """Return the device that is a leaf; where leaves are no devices, the leaf's own number."""
    for top, shape in shapes_of(config.topology).items():
        if kind not in shape.types:
            continue
        for root in config.topology.roots:
            if root.type == top and node in root.nodes and root.devices:
                return root.devices[root.nodes.index(node)][leaf]
    return leaf


# ── what tenants own ────────────────────────────────────────────────────────────────────


def guarantee_words(tenant: Tenant) -> str:
    """Describe a guarantee: cells, with their chain where it is not the only one."""
    cells = [share_words(share) for share in tenant.cells if share.count]
    cells += [f"pinned {pin}" for pin in tenant.pins]
    if cells:
        return ", ".join(cells)
    return show_resources(tenant.guaranteed) if tenant.guaranteed != Resources() else "nothing"


def guarantee_change(was: Tenant, now: Tenant) -> tuple[str, str]:
    """Return what a tenant was guaranteed, and what it is now, in words.

    Where the usual words are the same, they name all shares, or else what cells hold.
    """
    then, there = guarantee_words(was), guarantee_words(now)
    if then == there and was.cells != now.cells:
        then, there = (
            ", ".join(map(share_words, each.cells)) or "no cells" for each in (was, now)
        )
    if then == there and was.guaranteed != now.guaranteed:
        then, there = (show_resources(each.guaranteed) for each in (was, now))
    return then, there


def share_words(share: CellShare) -> str:
    """Write `2 v100-node`, or `2 v100-node of v100-rack` where other chains have them too."""
    chain = f" of {share.chain}" if share.chain not in ("", share.type) else ""
    return f"{share.count} {share.type}{chain}"
