"""What of a configuration has to stay as it is: node ids, and hardware that jobs are on."""

import msgspec

from allotment.engine.state import State
from allotment.model.errors import Code, Rejected
from allotment.model.ids import NodeId
from allotment.model.tenancy import Config


def check_stays(state: State, config: Config) -> None:
    """Raise Rejected where a job is on hardware that a configuration has no longer."""
    kept = {node.id: node for node in config.nodes}
    for gang in state.cluster.holders():
        for slot in gang.slots:
            node = kept.get(slot.node)
            old = state.cluster.nodes[slot.node]
            if node is None or any(index >= len(node.devices) for index in slot.devices):
                what = "a device of it" if node else "it"
                raise Rejected(
                    Code.CONFLICT,
                    f"Node {old.name}: job {gang.id} still uses {what}, so it cannot go yet.",
                    f"Drain it (`allot drain {old.name}`) and wait, or cancel that job; the "
                    "old configuration stays in force.",
                )


def with_stable_ids(old: Config, new: Config, free: int = 0) -> Config:
    """Return nodes of the same name the same id, and new ones ids from `free` on."""
    known = {node.name: node.id for node in old.nodes}
    stable: dict[NodeId, NodeId] = {}
    for node in new.nodes:
        if node.name in known:
            stable[node.id] = known[node.name]
        else:
            stable[node.id] = NodeId(free)
            free += 1
    nodes = tuple(msgspec.structs.replace(node, id=stable[node.id]) for node in new.nodes)
    roots = tuple(
        msgspec.structs.replace(root, nodes=tuple(stable[node] for node in root.nodes))
        for root in new.topology.roots
    )
    pins = tuple(
        msgspec.structs.replace(pin, node=stable[pin.node]) for pin in new.topology.pins
    )
    topology = msgspec.structs.replace(new.topology, roots=roots, pins=pins)
    return msgspec.structs.replace(new, nodes=nodes, topology=topology)
