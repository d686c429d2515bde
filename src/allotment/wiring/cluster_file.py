"""Machines and tenants of a configuration file, for simulations: they need not exist."""

from pathlib import Path

import msgspec

from allotment.model.cluster import Node
from allotment.model.errors import BadInput, Problem
from allotment.model.tenancy import Queue
from allotment.sim.cluster import BadCluster
from allotment.sim.scenario import Owners
from allotment.wire.config_read import config_of
from allotment.wire.parse import tree_of
from allotment.wire.text import text_of
from allotment.wire.tree import line_of, plain_of
from allotment.wiring.service import this_machine


def cluster_in(data: bytes, source: str) -> tuple[tuple[Node, ...], Owners]:
    """Read nodes and tenants; a file of nodes alone has one tenant without a guarantee.

    Raises BadInput, or BadCluster without nodes.
    """
    tree, problems = tree_of(text_of(data, source), source)
    plain = plain_of(tree)
    if isinstance(plain, dict) and "tenants" not in plain:
        plain["tenants"] = {"everybody": None}
    machine = this_machine(0)
    config, _ = config_of(plain, tree, source=source, machine=machine, problems=problems)
    if not config.nodes:
        raise BadCluster(f"{source}: it has no nodes. List them under `nodes:`.")
    _check_switches(config.nodes, data, source)
    # How much a user may submit, and where, does not matter: a policy orders all of each.
    owners = Owners(
        tuple(msgspec.structs.replace(tenant, queues=()) for tenant in config.tenants),
        config.topology,
        config.share,
        config.limits.half_life_ms,
        Path(source).name,
        tuple(t.name for t in config.tenants if t.queues != (Queue("default"),)),
    )
    return config.nodes, owners


def _check_switches(nodes: tuple[Node, ...], data: bytes, source: str) -> None:
    """Refuse a switch that is in two racks: nothing could be near it."""
    first: dict[str, Node] = {}
    for place, node in enumerate(nodes):
        labels = dict(node.labels)
        switch = labels.get("switch", "")
        if not switch:
            continue
        other = first.setdefault(switch, node)
        here, there = labels.get("rack", ""), dict(other.labels).get("rack", "")
        if here != there:
            at = ("nodes", place, "labels", "switch")
            tree, _ = tree_of(text_of(data, source), source)
            problem = Problem(
                f"switch {switch} is in {_rack(there)} by node {other.name}, and in "
                f"{_rack(here)} by node {node.name}",
                f"nodes[{place}].labels.switch",
                line_of(tree, at),
                "a switch is in one rack: give one of them another switch or rack",
            )
            raise BadInput((problem,), source)


def _rack(name: str) -> str:
    return f"rack {name}" if name else "no rack"
