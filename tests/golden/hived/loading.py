"""From HiveD's recorded state to what is loaded into our cells.

The state is recorded after every operation of every scenario in the archive, so what is
loaded before an operation is what is recorded with the one before it. Two things are in
no state and are carried from earlier operations: the specs of groups, and from HiveD's own
bind info how a group's leaves are divided among its pods.
"""

from allotment.model.ids import NodeId
from tests.golden.hived import recording as hived
from tests.golden.hived.cluster import Cluster
from tests.golden.hived.geometry import leaves_of
from tests.golden.hived.words import Book, Held, Reserved, Task

Leaves = dict[tuple[NodeId, int], hived.Leaf]
"""What is said of a group's leaves, by node and device."""


class Memory:
    """What no state tells."""

    def __init__(self) -> None:
        self.cluster: Cluster
        self.bad: set[NodeId] = set()
        self.specs: dict[str, hived.Spec] = {}
        """By group."""
        self.group_of: dict[str, str] = {}
        """Groups by the pods that were bound."""
        self.bound: dict[str, hived.Bind] = {}
        """By group."""

    def node(self, name: str) -> NodeId:
        node = self.cluster.node(name)
        assert node is not None, name
        return node

    def owed(self, virtual: str) -> tuple[str, str]:
        """Return the type of the preassigned cell a virtual one is part of, and its pin."""
        tenant, number, *_ = virtual.split("/")
        owed = self.cluster.owed[tenant][int(number)]
        return owed.type, owed.pin


def book_of(memory: Memory, state: hived.State | None) -> Book:
    """Return which jobs hold and reserve what."""
    if state is None:
        return Book(bad=frozenset(memory.bad))
    using: dict[str, Leaves] = {}
    reserving: dict[str, Leaves] = {}
    for address, leaf in state.leaf_cells_not_idle.items():
        spot = memory.cluster.addresses[address]
        key = (spot.node, spot.device)
        if leaf.using_group:
            using.setdefault(leaf.using_group, {})[key] = leaf
        if leaf.reserving_group:
            reserving.setdefault(leaf.reserving_group, {})[key] = leaf
    held = tuple(_held(memory, state, each, using[each]) for each in sorted(using))
    reserved = [_reserved(memory, state, each, reserving[each]) for each in sorted(reserving)]
    standing = tuple(each for each in reserved if not _overtaken(each, held))
    return Book(held, standing, frozenset(memory.bad))


def _overtaken(reserved: Reserved, held: tuple[Held, ...]) -> bool:
    """Whether somebody of no lower priority has bound what was reserved.

    That should have ended the reservation; HiveD leaves it standing (ed_07).
    """
    leaves = leaves_of(reserved.tasks)
    return any(
        leaves & leaves_of(each.tasks)
        for each in held
        if each.guaranteed and each.priority >= reserved.priority
    )


def _held(memory: Memory, state: hived.State, name: str, leaves: Leaves) -> Held:
    group, spec = state.groups[name], memory.specs[name]
    # A job taken up on a cell that was thought bad is on no cell once that heals, and its
    # tenant is owed the cell once more (ed_19): by HiveD's own count it is a guest there.
    guaranteed = group.has_virtual_placement and all(
        leaf.virtual_cell for leaf in leaves.values()
    )
    tasks, pin = _divide(memory, name, leaves, guaranteed)
    return Held(
        gang=name,
        tenant=group.vc,
        priority=spec.priority,
        guaranteed=guaranteed,
        tasks=tasks,
        pin=pin,
        lazy=spec.lazy_preemption_enable,
    )


def _reserved(memory: Memory, state: hived.State, name: str, leaves: Leaves) -> Reserved:
    tasks, pin = _divide(memory, "", leaves, guaranteed=True)
    victims = sorted({leaf.using_group for leaf in leaves.values() if leaf.using_group})
    vc, priority = state.groups[name].vc, memory.specs[name].priority
    return Reserved(name, vc, priority, tasks, tuple(victims), pin)


def _divide(
    memory: Memory, name: str, leaves: Leaves, guaranteed: bool
) -> tuple[tuple[Task, ...], str]:
    """Divide leaves among tasks: as they were bound, or else one task for each node."""
    parts = _bound_parts(memory, name) or [
        [key for key in leaves if key[0] == node]
        for node in dict.fromkeys(node for node, _ in leaves)
    ]
    tasks: list[Task] = []
    pins: set[str] = set()
    left = dict(leaves)
    for part in parts:
        here = [key for key in part if left.pop(key, None) is not None]
        if not here:
            continue
        kind = ""
        if guaranteed:
            owed = {memory.owed(leaves[key].virtual_cell) for key in here}
            (kind, pin), *others = owed
            assert not others, "a task in cells of two types"
            pins.add(pin)
        tasks.append(Task(here[0][0], tuple(device for _, device in here), kind))
    assert not left, f"{name} uses leaves it was not bound to: {left}"
    return tuple(tasks), pins.pop() if pins else ""


def _bound_parts(memory: Memory, name: str) -> list[list[tuple[NodeId, int]]]:
    bind = memory.bound.get(name)
    if bind is None:
        return []
    parts: list[list[tuple[NodeId, int]]] = []
    for pod in (pod for pods in bind.group_bind_info for pod in pods):
        node = memory.cluster.node(pod.node)
        if node is not None:
            keys = [(node, device) for device in pod.leaf_cells]
            parts.append([key for key in keys if key in memory.cluster.spots])
    return parts


def report_of(memory: Memory, name: str) -> Held:
    """Say of a gang what is reported of it after a restart: as bound, where leaves remain."""
    spec = memory.specs[name]
    tasks: list[Task] = []
    for pod in (pod for pods in memory.bound[name].group_bind_info for pod in pods):
        node = memory.cluster.node(pod.node)
        devices = tuple(d for d in pod.leaf_cells if (node, d) in memory.cluster.spots)
        if node is not None and devices:
            tasks.append(Task(node, devices, pod.preassigned_cell_types[0]))
    return Held(
        gang=name,
        tenant=spec.virtual_cluster or "",
        priority=spec.priority,
        guaranteed=spec.priority >= 0,
        tasks=tuple(tasks),
        pin=spec.pinned_cell_id,
        lazy=spec.lazy_preemption_enable,
    )


def tasks_of(
    memory: Memory,
    members: list[list[hived.BoundPod]],
    virtual: list[hived.VirtualMember] | None = None,
) -> tuple[Task, ...]:
    """Turn a placement into tasks; `virtual` is the same one in the tenant's view."""
    tasks: list[Task] = []
    for at, pods in enumerate(members):
        for number, pod in enumerate(pods):
            types = set(pod.preassigned_cell_types)
            if virtual is not None:
                types = {memory.owed(cell)[0] for cell in virtual[at].pods[number]}
            kind = types.pop() if types else ""
            assert not types, "a task in cells of two types"
            tasks.append(Task(memory.node(pod.node), tuple(pod.leaf_cells), kind))
    return tuple(tasks)
