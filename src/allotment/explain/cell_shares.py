"""How a tenant's cells stand, in words: what it owns, which jobs have it, what is down."""

from collections.abc import Iterator

from allotment.core.cells.book import Cells
from allotment.core.cells.chain import Chain
from allotment.core.cells.choices import serves
from allotment.core.cluster import Cluster
from allotment.core.own_cells import book_of
from allotment.core.request import Shape
from allotment.explain.cell_accounts import account_of
from allotment.explain.cell_words import gang_words, listed
from allotment.model.ids import JobId
from allotment.model.ledger import Entitlement, Slot
from allotment.model.quantity import DEVICE


def need_words(cluster: Cluster, shape: Shape) -> str:
    """Return what it needs, in the words of the hardware it likes best."""
    cells = book_of(cluster)
    chains = chains_for(cells, shape)
    own = [at for at in chains if at in _holdings(cells, shape)]
    return f"It needs {gang_words(cells.chains[(own or chains)[0]], shape.requests)}."


def share_words(cluster: Cluster, shape: Shape) -> str:
    """Return how its tenant's cells of its kind stand."""
    cells = book_of(cluster)
    chains = [at for at in chains_for(cells, shape) if at in _holdings(cells, shape)]
    if not chains:
        return f"Tenant {shape.tenant} owns no cells of that kind."
    parts = [part for at in chains for part in _account_words(cluster, shape, at)]
    own = f"The pinned cell {shape.pin}" if shape.pin else f"Tenant {shape.tenant} owns"
    return f"{own}: {'; '.join(parts)}."


def _account_words(cluster: Cluster, shape: Shape, at: int) -> Iterator[str]:
    cells = book_of(cluster)
    holding = cells.holdings[shape.tenant, shape.pin][at]
    levels = holding.guaranteed if holding.pinned is None else (holding.pinned[0],)
    for level in sorted(levels, reverse=True):
        account = account_of(cells, shape.tenant, shape.pin, at, level)
        if not account.guaranteed:
            continue
        words: list[str] = []
        if account.used:
            users = _users(cluster, shape, holding.chain, holding.chain.names[level])
            jobs = listed([f"job {job}" for job in users])
            words.append(f"{account.used:,} in use by {jobs}")
            left = sum(
                room * len(nodes) for room, nodes in holding.rooms.get(level, {}).items()
            )
            if left:
                words[-1] += f" (with {left:,} {holding.chain.names[0]} left)"
        if account.free:
            words.append(f"{account.free:,} free")
        if account.lost:
            words.append(f"{account.lost:,} lost to hardware that is down")
            if account.lost_with:
                words[-1] += f" (shared with {listed(account.lost_with)})"
        yield f"{account.guaranteed:,} {holding.chain.names[level]}, {', '.join(words)}"


def kept_words(cluster: Cluster, shape: Shape) -> str:
    """Return what of its kind is idle and up, and for whose larger cells that is kept; or ''.

    Asked where a tenant finds nothing in its own cells, though it may not have lost them.
    """
    cells = book_of(cluster)
    for at in chains_for(cells, shape):
        chain, leaves = cells.chains[at], cells.uses[at].idle.leaves
        idle = {node: mask.bit_count() for node, mask in enumerate(leaves) if mask}
        guaranteed = _larger_cells_of_others(cells, shape.tenant, at)
        if idle and guaranteed:
            names = listed([cluster.nodes[chain.nodes[node]].name for node in idle])
            return (
                f"{sum(idle.values()):,} {chain.names[0]} on {names} are idle and up, but kept "
                f"for larger cells that others own: {listed(guaranteed)}."
            )
    return ""


def _larger_cells_of_others(cells: Cells, tenant: str, at: int) -> list[str]:
    """Name the cells of a chain, larger than leaves, that others own and do not use."""
    return [
        f"{holding.unbound[level]:,} {holding.chain.names[level]} of {name}"
        for (name, pin), holdings in cells.holdings.items()
        if name != tenant and not pin and (holding := holdings.get(at)) is not None
        for level in sorted(holding.guaranteed, reverse=True)
        if level and holding.unbound.get(level, 0) > 0
    ]


def in_use_by(cluster: Cluster, shape: Shape) -> list[JobId]:
    """Name jobs of its own tenant that sit in cells it could have, or have places reserved."""
    cells = book_of(cluster)
    chains = [cells.chains[at] for at in chains_for(cells, shape)]
    found = {job for chain in chains for job in _users(cluster, shape, chain, "")}
    return sorted(found)


def on_its_kind(cluster: Cluster, shape: Shape) -> list[JobId]:
    """Name all gangs on hardware of its kind."""
    cells = book_of(cluster)
    chains = [cells.chains[at] for at in chains_for(cells, shape)]
    return [
        gang.id
        for gang in cluster.gangs.values()
        if any(_lies_in(chain, slot) for slot in gang.slots for chain in chains)
    ]


def _lies_in(chain: Chain, slot: Slot) -> bool:
    number = chain.number.get(slot.node)
    return number is not None and (not slot.devices or slot.devices[0] in chain.leaf[number])


def _users(cluster: Cluster, shape: Shape, chain: Chain, kind: str) -> list[JobId]:
    """Name those of its own tenant that sit in cells of a type, or of any, of a chain."""
    found = [
        gang.id
        for gang in cluster.gangs.values()
        if gang.tenant == shape.tenant
        and gang.pin == shape.pin
        and gang.entitlement is Entitlement.GUARANTEED
        and not gang.suspended
        and (not kind or kind in gang.quota)
        and _lies_in(chain, gang.slots[0])
    ]
    found += [
        reserved.job
        for reserved in cluster.reserved.values()
        if reserved.pin == shape.pin
        and reserved.entitlement is Entitlement.GUARANTEED
        and (not kind or kind in reserved.quota)
        and _lies_in(chain, reserved.slots[0])
        and cluster.tenant_of(reserved.job) == shape.tenant
    ]
    return sorted(set(found))


def chains_for(cells: Cells, shape: Shape) -> list[int]:
    """Number the chains with hardware of its kind, best liked first."""
    groups = cells.chains_for(shape.requests)
    return [at for group in groups for at in group if serves(cells.chains[at], shape.requests)]


def _holdings(cells: Cells, shape: Shape) -> set[int]:
    return set(cells.holdings.get((shape.tenant, shape.pin), {}))


def room_for(cluster: Cluster, shape: Shape) -> int:
    """Count the leaves its tenant could have now in the chain with most of them."""
    cells = book_of(cluster)
    holdings = cells.holdings.get((shape.tenant, shape.pin), {})
    rooms = [0]
    for at in chains_for(cells, shape):
        if (holding := holdings.get(at)) is None:
            continue
        lost = sum(
            account_of(cells, shape.tenant, shape.pin, at, level).lost
            * holding.chain.size[level]
            for level in holding.guaranteed
        )
        rooms.append(holding.room_in_all() - lost)
    return max(rooms)


def leaves_of(shape: Shape) -> int:
    """Count the devices a gang needs in sum; parts of devices add up."""
    return -(-sum(r.count * r.need.gpu_milli for r in shape.requests) // DEVICE)


def down_words(cluster: Cluster, shape: Shape) -> str:
    """Name the hardware of its kind that takes no new work."""
    cells = book_of(cluster)
    names: list[str] = []
    for at in chains_for(cells, shape):
        chain, space = cells.chains[at], cells.spaces[at]
        for node, shut in sorted(space.broken.items()):
            name = cluster.nodes[chain.nodes[node]].name
            if shut != chain.full:
                name += f" ({shut.bit_count()} of {chain.width} {chain.names[0]})"
            names.append(name)
    return listed(names)
