"""Whether a place lies within one cell: by arithmetic alone, whoever found it."""

from collections.abc import Sequence

from allotment.core.cells.chain import Chain
from allotment.model.ledger import Slot


def in_one_cell(chains: Sequence[Chain], word: str, slots: Sequence[Slot]) -> bool:
    """Whether all slots lie within one cell of a level, in any chain. O(devices)."""
    return any(
        level is not None and _in_one(chain, level, slots)
        for chain in chains
        for level in (chain.level_of(word),)
    )


def _in_one(chain: Chain, level: int, slots: Sequence[Slot]) -> bool:
    """Whether it is so in one chain. A task without devices lies wherever its node does."""
    cells: set[int] = set()
    nodes: set[int] = set()
    for slot in slots:
        node = chain.number.get(slot.node)
        if node is None or any(device not in chain.leaf[node] for device in slot.devices):
            return False
        nodes.add(node)
        cells |= {
            (node * chain.width + chain.leaf[node][device]) // chain.size[level]
            for device in slot.devices
        }
    if level < chain.node_level:
        return len(nodes) == 1 and len(cells) <= 1
    return len({node // chain.per[level] for node in nodes}) == 1
