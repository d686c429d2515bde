"""Hardware that is not well: what is meant by a note on it, and how it is shown."""

from collections.abc import Iterable

from allotment.core.cells.book import Cells
from allotment.core.cells.chain import Cell, Chain
from allotment.engine.state import State
from allotment.engine.suspicions import OFTEN
from allotment.model.errors import Code, Rejected
from allotment.model.health import WHOLE, HardwareHealth, HealthReport, Part, Source
from allotment.model.ids import DeviceIndex, JobId, NodeId
from allotment.model.quantity import Instant
from allotment.service.hardware_view import HardwareView, HealthNote

Place = tuple[NodeId, DeviceIndex | None]
"""A device, or a whole node."""


def hardware_views(
    state: State, now: Instant, parts: Iterable[Part] | None = None
) -> list[HardwareView]:
    """Return all parts that are unhealthy, or often were; or these, healthy or not."""
    wanted = _notable(state, now) if parts is None else list(parts)
    on: dict[Part, set[JobId]] = {part: set() for part in wanted}
    for gang in state.cluster.holders() if wanted else ():
        for slot in gang.slots:
            for place in (WHOLE, *slot.devices):
                if (slot.node, place) in on:
                    on[slot.node, place].add(gang.id)
    return [_view(state, now, part, tuple(sorted(on[part]))) for part in wanted]


def _notable(state: State, now: Instant) -> list[Part]:
    suspected = state.suspicions.parts()
    among = {*suspected, *((node, WHOLE) for node, _ in suspected)}
    often = {part for part in among if state.suspicions.of(part, now) >= OFTEN}
    return sorted(often.union(state.health, state.doubts))


def _view(state: State, now: Instant, part: Part, jobs: tuple[JobId, ...]) -> HardwareView:
    name = state.cluster.nodes[part[0]].name
    device = None if part[1] == WHOLE else part[1]
    how, often = state.condition(part), state.suspicions.of(part, now)
    if how is None:
        return HardwareView(name, device, HardwareHealth.HEALTHY, jobs=jobs, suspected=often)
    return HardwareView(
        name, device, how.health, how.by, how.code, how.words, how.who, how.final,
        how.since, how.changed_at, jobs, how.held_back, often,
    )  # fmt: skip


def part_of(place: Place) -> Part:
    """Return the part that a place names."""
    node, device = place
    return (node, WHOLE if device is None else device)


def reports_of(note: HealthNote, places: Iterable[Place], who: str) -> list[HealthReport]:
    """Return a probe's note as reports."""
    return [
        HealthReport(
            node, Source.PROBE, note.ok, device, note.code, note.because, who,
            Instant(max(0, note.since)),
        )
        for node, device in places
    ]  # fmt: skip


# ── which part is meant ─────────────────────────────────────────────────────────────────


def places_of(state: State, where: str) -> tuple[Place, ...]:
    """Return the hardware that `NODE`, `NODE:DEVICE` or a cell's name means.

    Raises Rejected where there is none.
    """
    nodes = {node.name: node for node in state.config.nodes}
    if where in nodes:
        return ((nodes[where].id, None),)
    name, colon, device = where.rpartition(":")
    if colon and name in nodes:
        if not device.isdecimal() or len(device) > 6 or int(device) >= len(nodes[name].devices):
            raise Rejected(
                Code.BAD_REQUEST,
                f"Node {name} has no device {device[:20]!r}.",
                f"It has {len(nodes[name].devices)}, counted from 0.",
            )
        return ((nodes[name].id, DeviceIndex(int(device))),)
    if state.cluster.cells is not None:
        for chain in state.cluster.cells.chains:
            cell = _cell_of(chain, where)
            if cell is not None:
                return _places_in(chain, cell)
    some = ", ".join(list(nodes)[:10])
    raise Rejected(
        Code.NO_SUCH_NODE,
        f"There is no hardware {where[:60]!r}.",
        f"Write NODE, NODE:DEVICE or a cell's name. Nodes here: {some}.",
    )


def _cell_of(chain: Chain, name: str) -> Cell | None:
    """Find a cell by its way from the root."""
    root, *ways = name.split("/")
    if root not in chain.roots or len(ways) > chain.top:
        return None
    level, number = chain.top, chain.roots.index(root)
    for way in ways:
        fanout = chain.fanout[level]
        if not way.isdecimal() or len(way) > 6 or int(way) >= fanout:
            return None
        level, number = level - 1, number * fanout + int(way)
    return (level, number)


def _places_in(chain: Chain, cell: Cell) -> tuple[Place, ...]:
    if cell[0] >= chain.node_level:
        return tuple((chain.nodes[at], None) for at in chain.nodes_of(cell))
    at = chain.nodes_of(cell)[0]
    if not chain.devices[at]:
        raise Rejected(
            Code.BAD_REQUEST,
            "A part of a machine without devices cannot break by itself.",
            f"Report the whole node: {chain.name_of(chain.above(cell, chain.node_level))}.",
        )
    devices = chain.devices_at(at, chain.mask_of(cell))
    return tuple((chain.nodes[at], DeviceIndex(device)) for device in devices)


def cells_guaranteed(cells: Cells) -> list[tuple[str, str]]:
    """List tenants with the types of cells they are guaranteed or have pinned."""
    found: dict[tuple[str, str], None] = {}
    for (tenant, _), holdings in cells.holdings.items():
        for at, holding in holdings.items():
            names = cells.chains[at].names
            levels = [level for level, count in holding.guaranteed.items() if count]
            if holding.pinned is not None:
                levels.append(holding.pinned[0])
            found |= {(tenant, names[level]): None for level in sorted(levels)}
    return list(found)
