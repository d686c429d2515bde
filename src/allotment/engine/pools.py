"""Pools that could have more nodes, and whether a job would fit once they have."""

from collections.abc import Iterable, Sequence

import msgspec

from allotment.core.ledger import Ledger
from allotment.core.request import Shape
from allotment.engine.state import State
from allotment.model.cluster import Device, Node
from allotment.model.ids import NodeId
from allotment.model.pools import POOL, PRICE, UNKNOWN, Growable
from allotment.model.tenancy import Config

MOST_NODES = 1_000
"""Nodes that a pool is thought to be larger by."""
SEPARATOR = "+"
"""Between the name of a pool and the number of a node that is only thought of."""
DIGITS = 12


def growable(config: Config) -> tuple[Growable, ...]:
    """Return the pools whose nodes are known, by name. O(nodes)."""
    there: dict[str, list[Node]] = {}
    for node in config.nodes:
        if name := dict(node.labels).get(POOL):
            there.setdefault(name, []).append(node)
    said = {pool.name: pool for pool in config.pools}
    found: list[Growable] = []
    for name in sorted({*there, *said}):
        nodes, pool = there.get(name, []), said.get(name)
        like = max(nodes, key=lambda node: node.id) if nodes else pool and pool.node
        if like is None:
            continue
        price = pool.price_milli if pool is not None else UNKNOWN
        if price == UNKNOWN:
            price = price_in(dict(like.labels).get(PRICE, ""))
        if not nodes:
            like = _equipped(like, config.nodes)
        most = pool.most if pool is not None else UNKNOWN
        found.append(Growable(name, like, len(nodes), price, most))
    return tuple(found)


def _equipped(node: Node, others: Iterable[Node]) -> Node:
    """Return a node that lacks what its engine cannot do, as others of that show."""
    lacks = next((each.lacks for each in others if each.engine == node.engine), ())
    return msgspec.structs.replace(node, lacks=lacks)


def price_in(text: str) -> int:
    """Read a price of a label, in thousandths; UNKNOWN where it is none."""
    whole, _, part = text.partition(".")
    digits = whole + part
    if not (digits.isascii() and digits.isdecimal()) or len(digits) > DIGITS or len(part) > 3:
        return UNKNOWN
    return int(whole or "0") * 1000 + int(part.ljust(3, "0"))


def more_of(
    pools: Sequence[Growable], config: Config, first: NodeId, tasks: int
) -> list[list[Node]]:
    """Return the nodes that each pool could have more, from an id on: as many as a pool may
    have, and none more than there are tasks."""
    number = max([int(first), *(node.id + 1 for node in config.nodes)])
    found: list[list[Node]] = []
    for pool in pools:
        room = pool.most - pool.there if pool.most != UNKNOWN else MOST_NODES
        count = max(0, min(room, tasks, MOST_NODES))
        found.append([_thought_of(pool, NodeId(number + at)) for at in range(count)])
        number += count
    return found


def _thought_of(pool: Growable, node: NodeId) -> Node:
    """Return a node like those of a pool."""
    devices = tuple(
        Device(each.index, each.type, each.memory, virtual=each.virtual)
        for each in pool.node.devices
    )
    name = f"{pool.name}{SEPARATOR}{node}"
    return msgspec.structs.replace(pool.node, id=node, name=name, devices=devices)


def fits_when_grown(state: State, shape: Shape) -> bool:
    """Whether a job has room once pools have as many nodes as the configuration allows.

    Pools of which it does not say how many there may be are taken to stay as they are.
    O(nodes).
    """
    config = state.config
    bounded = {pool.name for pool in config.pools if pool.most != UNKNOWN}
    if not bounded or shape.pin:
        return False
    pools = [pool for pool in growable(config) if pool.name in bounded]
    tasks = sum(request.count for request in shape.requests)
    more = [node for nodes in more_of(pools, config, state.next_node, tasks) for node in nodes]
    if not more:
        return False
    idle = Ledger((*config.nodes, *more))
    return idle.find(shape.requests, state.policies.placing) is not None
