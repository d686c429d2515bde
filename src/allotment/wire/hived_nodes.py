"""The machines behind HiveD's cells: HiveD counts leaves, and knows no CPU or memory."""

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from allotment.model.quantity import CPU, GIB
from allotment.wire.amounts import write_milli, write_size
from allotment.wire.cells_machines import HOST_LEAF
from allotment.wire.hived_cells import LaidRoot
from allotment.wire.hived_shape import HivedSku
from allotment.wire.problems import Finding
from allotment.wire.tree import Place, Plain


class Share(msgspec.Struct, frozen=True):
    """The CPU and memory that go with each leaf where no SKU says it."""

    cpu_milli: int = 4 * CPU
    memory: int = 8 * GIB


class HivedNode(msgspec.Struct):
    """A node: what is at each index, over all cells that it lies in."""

    place: Place
    devices: list[str] = []
    index_of: dict[tuple[str, int], int] = {}
    """Our index of HiveD's, by type."""
    cores: dict[str, int] = {}
    """Leaves without a device, by type."""


def host_leaves(skus: Mapping[str, HivedSku]) -> set[str]:
    """Return the leaf types that are no devices: their SKU has none."""
    return {name for name, sku in skus.items() if sku.gpu == 0 and sku.cpu}


def machines_of(
    roots: Sequence[LaidRoot], skus: Mapping[str, HivedSku]
) -> tuple[dict[str, HivedNode], list[Finding]]:
    """Return the nodes of all roots, by name, with warnings.

    HiveD may number leaves as it likes; our devices are 0, 1, 2 …, as the node has them.
    """
    machines: dict[str, HivedNode] = {}
    hosts, warnings = host_leaves(skus), list[Finding]()
    for root in roots:
        for node in root.nodes:
            machine = machines.setdefault(node.name, HivedNode(node.place))
            if root.leaf in hosts:
                machine.cores[root.leaf] = len(node.leaves)
            else:
                machine.index_of |= {(root.leaf, leaf): leaf for leaf in node.leaves}
    for name, machine in machines.items():
        message = _number(name, machine)
        if message:
            warnings.append((machine.place, message, ""))
    return machines, warnings


def _number(name: str, machine: HivedNode) -> str:
    """Number the devices of a machine; return what is not as HiveD has it."""
    leaves = sorted(machine.index_of, key=lambda leaf: (leaf[1], leaf[0]))
    wanted = [index for _, index in leaves]
    if len(set(wanted)) < len(wanted):
        for kind, index in sorted(leaves):
            machine.index_of[kind, index] = len(machine.devices)
            machine.devices.append(kind)
        types = " and ".join(sorted({kind for kind, _ in leaves}))
        return f"{name} has {types} of the same numbers: its devices are numbered one by one"
    by_index = {index: kind for kind, index in leaves}
    missing = [at for at in range(max(wanted, default=-1) + 1) if at not in by_index]
    kind = leaves[0][0] if leaves else ""
    machine.devices = [by_index.get(at, kind) for at in range(len(wanted) + len(missing))]
    if missing:
        shown = ", ".join(map(str, missing[:6])) + (" …" if len(missing) > 6 else "")
        return f"{name} has no leaf {shown}: taken for devices that lie in no cell"
    return ""


def node_to_wire(
    name: str, machine: HivedNode, skus: Mapping[str, HivedSku], share: Share
) -> dict[str, Plain]:
    """Return a node as our configuration writes it."""
    kinds = [*machine.devices, *(k for k, count in machine.cores.items() for _ in range(count))]
    each = [_share(skus.get(kind), share) for kind in kinds]
    written: dict[str, Plain] = {
        "name": name,
        "cpu": write_milli(max(1, sum(one.cpu_milli for one in each))),
        "memory": write_size(max(1, sum(one.memory for one in each))),
    }
    groups: list[tuple[str, int]] = []
    for kind in machine.devices:
        if groups and groups[-1][0] == kind:
            groups[-1] = (kind, groups[-1][1] + 1)
        else:
            groups.append((kind, 1))
    gpus: list[Plain] = [{"type": kind, "count": count} for kind, count in groups]
    if gpus:
        written["gpu"] = gpus[0] if len(gpus) == 1 else gpus
    return written


def together(nodes: Iterable[dict[str, Plain]]) -> list[Plain]:
    """Return nodes, with those that are alike and next to each other as one entry."""
    rows: list[tuple[list[Plain], dict[str, Plain]]] = []
    for node in nodes:
        name, rest = node["name"], {key: value for key, value in node.items() if key != "name"}
        if rows and rows[-1][1] == rest:
            rows[-1][0].append(name)
        else:
            rows.append(([name], rest))
    return [
        {"name": names[0], **rest} if len(names) == 1 else {"names": names, **rest}
        for names, rest in rows
    ]


def _share(sku: HivedSku | None, share: Share) -> Share:
    if sku is None or not (sku.cpu or sku.memory):
        return share
    units = max(1, sku.gpu)
    return Share(sku.cpu // units, sku.memory // units)


def leaf_word(leaf: str, skus: Mapping[str, HivedSku]) -> str:
    """Return our name for a leaf type."""
    return HOST_LEAF if leaf in host_leaves(skus) else leaf
