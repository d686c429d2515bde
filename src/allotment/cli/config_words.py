"""What `allot config check` says of a configuration."""

from allotment.cli.output import talk
from allotment.cli.words import count
from allotment.model.cell_quota import shapes_of
from allotment.model.quantity import WallTime, show_resources
from allotment.model.tenancy import Config, Tenant
from allotment.service.dated import coming


def say_what_is_in(config: Config, source: str) -> None:
    """Print the nodes, the cells, the tenants and what changes by date, a line each."""
    for node in config.nodes:
        talk(f"node {node.name}: {show_resources(node.total())}")
    for chain, shape in shapes_of(config.topology).items():
        roots = sum(root.type == chain for root in config.topology.roots)
        parts = zip(shape.counts, shape.types[1:], strict=True)
        way = "".join(f" of {number} {kind}" for number, kind in parts)
        talk(f"cells: {roots} {chain}{way}")
    for tenant in config.tenants:
        holds = show_resources(tenant.guaranteed)
        talk(f"tenant {tenant.name}: {_guaranteed(tenant)}{holds} guaranteed")
    for each in coming(config, WallTime(0)):
        talk(f"{each.what} {each.when}: {each.detail}")
    nodes, tenants = count(len(config.nodes), "node"), count(len(config.tenants), "tenant")
    talk(f"{source} is fine: {nodes}, {tenants}.")


def _guaranteed(tenant: Tenant) -> str:
    """Return its cells, before what they hold."""
    cells = [
        f"{share.count} {share.type}" + (f" of {share.chain}" if share.chain else "")
        for share in tenant.cells
    ]
    cells += [f"pinned {pin}" for pin in tenant.pins]
    return f"{', '.join(cells)}: " if cells else ""
