"""Cells in words, for messages."""

from collections.abc import Sequence

from allotment.core.cells.book import Cells
from allotment.core.cells.chain import NODE, Chain
from allotment.core.request import Request
from allotment.model.quantity import DEVICE, show_bytes, show_milli

MOST_NAMED = 6
"""Things that a message lists."""


def listed(names: Sequence[str], most: int = MOST_NAMED) -> str:
    """List some names, and say how many more there are: `a, b and 3 more`."""
    shown = ", ".join(names[:most])
    more = len(names) - most
    return f"{shown} and {more} more" if more > 0 else shown


def levels_of(cells: Cells) -> list[str]:
    """Return the words for a level of cells: `node`, then types from small to large."""
    names = [name for chain in cells.chains for name in chain.names[1:]]
    return [NODE, *dict.fromkeys(names)]


def owned(cells: Cells, tenant: str, pin: str) -> str:
    """Return what cells a tenant owns: `8 v100-node (8 × V100 each), 2 V100`."""
    parts: list[str] = []
    for at, holding in sorted(cells.holdings.get((tenant, pin), {}).items()):
        chain = holding.chain
        if holding.pinned is not None:
            parts.append(f"1 {_sized(chain, holding.pinned[0], '')}")
            continue
        for level in sorted(holding.guaranteed, reverse=True):
            if count := holding.guaranteed[level]:
                each = " each" if count > 1 else ""
                parts.append(f"{count:,} {_sized(cells.chains[at], level, each)}")
    return listed(parts)


def leaf_types(cells: Cells, tenant: str, *, devices: bool) -> list[str]:
    """Name the types of leaves of which a tenant owns any: devices alone, or `core` too."""
    chains = {
        at
        for at, holding in cells.holdings.get((tenant, ""), {}).items()
        if (cells.chains[at].has_devices or not devices) and any(holding.guaranteed.values())
    }
    return list(dict.fromkeys(cells.chains[at].names[0] for at in sorted(chains)))


def _sized(chain: Chain, level: int, each: str) -> str:
    if level == 0:
        return chain.names[0]
    return f"{chain.names[level]} ({chain.size[level]:,} × {chain.names[0]}{each})"


def task_words(chain: Chain, request: Request) -> str:
    """Return what one task needs of a chain: `4 V100`, `half a V100`, `2 CPUs`."""
    need = request.need
    if not need.gpu_milli:
        return f"{show_milli(need.cpu_milli)} CPUs and {show_bytes(need.memory)}"
    if need.gpu_milli < DEVICE:
        return f"{show_milli(need.gpu_milli)} of a {chain.names[0]}"
    words = f"{request.devices} {chain.names[0]}"
    beyond: list[str] = []
    if need.cpu_milli > chain.share.cpu_milli * request.devices:
        beyond.append(f"{show_milli(need.cpu_milli)} CPUs")
    if need.memory > chain.share.memory * request.devices:
        beyond.append(show_bytes(need.memory))
    return words + (f" with {' and '.join(beyond)}" if beyond else "")


def gang_words(chain: Chain, requests: Sequence[Request]) -> str:
    """Return a gang's needs of a chain, task by task: `2 × 8 V100, each in one v100-node`."""
    node = chain.names[chain.node_level]
    tasks = [
        (f"{r.count:,} × " if r.count > 1 else "")
        + task_words(chain, r)
        + (f" (each {r.group:,} within one {r.group_within})" if r.group else "")
        for r in requests
    ]
    alone = len(requests) == 1 and requests[0].count == 1
    words = " and ".join(tasks) + (f" in one {node}" if alone else f", each in one {node}")
    within = requests[0].within
    level = chain.level_of(within) if within else None
    if level is not None and level != chain.node_level:
        words += f", all in one {chain.names[level]}"
    elif level is not None and not alone:
        words += ", all in the same"
    return words
