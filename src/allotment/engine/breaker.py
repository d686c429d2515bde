"""How much hardware may be out of use at once without an administrator's word.

Rule: of each type of device a share of all (`limits.breaker`, a tenth), or one machine where
that is more, but then no more than half; one device always. Machines without devices are
counted in the same way.

Why: a machine is what breaks in one piece, so one must be able to go by itself. More than a
few per cent at once is seldom broken hardware and mostly a broken judgement: a probe with a
bug, a driver that is being changed, jobs that lie. What is held back stays in use: at worst
jobs fail there and are tried again, and people are told.
"""

import msgspec

from allotment.engine.state import State
from allotment.model.cluster import Node
from allotment.model.health import WHOLE, Part
from allotment.model.objectives import PPM
from allotment.model.tenancy import Config

NO_DEVICE = ""
"""The type under which machines without devices are counted."""


class Room(msgspec.Struct, frozen=True):
    """What is out of use of a type by automatic means, and how much may be."""

    type: str
    out: int
    most: int
    total: int


def lacking_room(state: State, part: Part) -> Room | None:
    """Return the type of which too much would be out of use with a part; None if none."""
    out = _out(state)
    for kind, units in _units(state.cluster.nodes[part[0]], part[1]).items():
        already = out.get(kind, set())
        if len(already | units) > (room := room_of(state, kind, len(already))).most:
            return room
    return None


def room_of(state: State, kind: str, out: int) -> Room:
    """Return how much of a type may be out of use by automatic means."""
    total, largest = _sizes(state.config, kind)
    return Room(kind, out, bound(total, largest, state.config.limits.breaker_ppm), total)


def bound(total: int, largest: int, share_ppm: int) -> int:
    """Return how many of `total` may go, of which `largest` are in one machine."""
    if not share_ppm:
        return 0
    return max(total * share_ppm // PPM, min(largest, total // 2), 1)


Unit = tuple[int, int]
"""A device: its node and index. A machine without devices: its node and `WHOLE`."""


def _units(node: Node, place: int) -> dict[str, set[Unit]]:
    """Return what cannot be used without a part, by type."""
    if not node.devices:
        return {NO_DEVICE: {(node.id, WHOLE)}}
    units: dict[str, set[Unit]] = {}
    for device in node.devices:
        if place in (WHOLE, device.index):
            units.setdefault(device.type, set()).add((node.id, device.index))
    return units


def _out(state: State) -> dict[str, set[Unit]]:
    """Return what is out of use though no administrator said so, by type. O(unhealthy)."""
    out: dict[str, set[Unit]] = {}
    for (node, place), condition in state.health.items():
        if not condition.final:
            for kind, units in _units(state.cluster.nodes[node], place).items():
                out.setdefault(kind, set()).update(units)
    return out


def _sizes(config: Config, kind: str) -> tuple[int, int]:
    """Count the devices of a type, and those of the machine with most of them."""
    if kind == NO_DEVICE:
        return sum(not node.devices for node in config.nodes), 1
    counts = [sum(device.type == kind for device in node.devices) for node in config.nodes]
    return sum(counts), max(counts, default=0)
