"""How much of what tenants are guaranteed is on hardware that takes work."""

from collections.abc import Iterator

import msgspec

from allotment.metrics.fold import Handlers
from allotment.model import events as e
from allotment.model.cells import CellShare, CellType, Topology
from allotment.model.cluster import Node
from allotment.model.health import WHOLE
from allotment.model.ids import NodeId
from allotment.model.objectives import PPM
from allotment.model.quantity import DEVICE, Instant
from allotment.model.tenancy import Config, Tenant

DEVICES, CPUS = "gpu", "cpu"
"""The kinds of counted shares; where shares are cells, each top type is a kind."""


class Course(msgspec.Struct, gc=False):
    """How much of a tenant's guarantee was available, over time."""

    ppm: int = PPM
    """Now, in millionths."""
    ms_at: dict[int, int] = {}
    """For how long it was so much."""

    @property
    def length_ms(self) -> int:
        return sum(self.ms_at.values())

    def mean_ppm(self) -> int:
        """Return the mean over time, rounded down."""
        length = self.length_ms
        return sum(ppm * ms for ppm, ms in self.ms_at.items()) // length if length else PPM

    def held_for(self, percent: int) -> int:
        """Return what was available for at least so many hundredths of the time."""
        spare = self.length_ms * (100 - percent)
        for ppm, ms in sorted(self.ms_at.items()):
            spare -= ms * 100
            if spare < 0:
                return ppm
        return PPM

    def worst_ppm(self) -> int:
        """Return the least that was available at any time."""
        return min((ppm for ppm, ms in self.ms_at.items() if ms), default=PPM)


class Availability:
    """Folds configurations and the health of hardware. O(nodes + tenants) such an event."""

    def __init__(self, since: Instant = Instant(0)) -> None:
        self.courses: dict[str, Course] = {}
        """By tenant, of those that are guaranteed anything."""
        self._at = since
        self._config = Config((), ())
        self._closed: set[NodeId] = set()
        self._bad: set[tuple[NodeId, int]] = set()
        self._guaranteed: dict[str, dict[str, int]] = {}

    def handlers(self) -> Handlers:
        """Return the methods by the kind of event they take."""
        return {
            e.ConfigApplied: self._configured,
            e.NodesFound: self._configured,
            e.NodeDrained: self._shut,
            e.NodeLost: self._shut,
            e.NodeUndrained: self._opened,
            e.NodeRecovered: self._opened,
            e.HealthChanged: self._health,
        }

    def close(self, at: Instant) -> None:
        """Take note that nothing changed until `at`, the end."""
        self._pass_to(at)

    def _pass_to(self, at: Instant) -> None:
        length = at - self._at
        if length <= 0:
            return
        self._at = at
        for course in self.courses.values():
            course.ms_at[course.ppm] = course.ms_at.get(course.ppm, 0) + length

    # ── events ──────────────────────────────────────────────────────────────────────────

    def _configured(self, at: Instant, event: e.ConfigApplied) -> None:
        self._pass_to(at)
        self._config = event.config
        nodes = {node.id for node in event.config.nodes}
        self._bad = {part for part in self._bad if part[0] in nodes}
        self._guaranteed = {
            tenant.name: guaranteed
            for tenant in event.config.tenants
            if (guaranteed := guaranteed_to(tenant, event.config.topology))
        }
        self._weigh()

    def _shut(self, at: Instant, event: e.NodeDrained | e.NodeLost) -> None:
        self._pass_to(at)
        self._closed.add(event.node)
        self._weigh()

    def _opened(self, at: Instant, event: e.NodeUndrained | e.NodeRecovered) -> None:
        self._pass_to(at)
        self._closed.discard(event.node)
        self._weigh()

    def _health(self, at: Instant, event: e.HealthChanged) -> None:
        self._pass_to(at)
        part = (event.node, WHOLE if event.device is None else event.device)
        if event.now.is_out:
            self._bad.add(part)
        else:
            self._bad.discard(part)
        self._weigh()

    # ── sums ────────────────────────────────────────────────────────────────────────────

    def _weigh(self) -> None:
        """Return how much of each guarantee is there now; what is short is shared evenly."""
        total: dict[str, int] = {}
        for guaranteed in self._guaranteed.values():
            for kind, amount in guaranteed.items():
                total[kind] = total.get(kind, 0) + amount
        sound = self._sound()
        for tenant, guaranteed in self._guaranteed.items():
            had = sum(
                PPM * amount * min(total[kind], sound.get(kind, 0)) // total[kind]
                for kind, amount in guaranteed.items()
            )
            self.courses.setdefault(tenant, Course()).ppm = had // sum(guaranteed.values())
        for gone in self.courses.keys() - self._guaranteed.keys():
            self.courses[gone].ppm = PPM

    def _sound(self) -> dict[str, int]:
        """Sum up what takes work, of each kind."""
        found = {DEVICES: 0, CPUS: 0}
        nodes = {node.id: node for node in self._config.nodes}
        for node in nodes.values():
            if self._open(node.id):
                found[DEVICES] += DEVICE * (len(node.devices) - len(self._broken(node)))
                found[CPUS] += node.cpu_milli
        types = {kind.name: kind for kind in self._config.topology.types}
        for root in self._config.topology.roots:
            each = leaves_of(root.type, types) // max(1, len(root.nodes))
            for place, id in enumerate(root.nodes):
                if not self._open(id):
                    continue
                mine = set(root.devices[place]) if root.devices else set(range(each))
                broken = len(self._broken(nodes[id]) & mine) if id in nodes else each
                found[root.type] = found.get(root.type, 0) + each - broken
        return found

    def _open(self, node: NodeId) -> bool:
        return node not in self._closed and (node, WHOLE) not in self._bad

    def _broken(self, node: Node) -> set[int]:
        if not self._bad:
            return set()
        return {d.index for d in node.devices if (node.id, d.index) in self._bad}


def guaranteed_to(tenant: Tenant, topology: Topology) -> dict[str, int]:
    """Return what a tenant is guaranteed by kind: leaves of cells, or thousandths."""
    if tenant.cells or tenant.pins:
        found: dict[str, int] = {}
        for kind, leaves in _cells(tenant, topology):
            found[kind] = found.get(kind, 0) + leaves
        return {kind: leaves for kind, leaves in found.items() if leaves}
    devices, cpus = tenant.guaranteed.gpu_milli, tenant.guaranteed.cpu_milli
    if devices:
        return {DEVICES: devices}
    return {CPUS: cpus} if cpus else {}


def _cells(tenant: Tenant, topology: Topology) -> Iterator[tuple[str, int]]:
    types = {kind.name: kind for kind in topology.types}
    pins = {pin.id: pin for pin in topology.pins}
    pinned = [CellShare(pins[pin].type, 1) for pin in tenant.pins if pin in pins]
    tops = dict.fromkeys(root.type for root in topology.roots)
    for share in (*tenant.cells, *pinned):
        top = share.chain or next((top for top in tops if _below(top, share.type, types)), "")
        yield top, share.count * leaves_of(share.type, types)


def _below(top: str, name: str, types: dict[str, CellType]) -> bool:
    while top != name and top in types:
        top = types[top].child
    return top == name


def leaves_of(name: str, types: dict[str, CellType]) -> int:
    """Count the leaves of a cell of a type."""
    count = 1
    while name in types:
        count *= types[name].count
        name = types[name].child
    return count
