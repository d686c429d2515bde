"""Machines as they were discovered, as a configuration to start from."""

from collections import Counter
from collections.abc import Sequence

from allotment.model.cells import Topology
from allotment.model.cluster import Node
from allotment.wire.cells_write import topology_to_wire
from allotment.wire.config_write import node_to_wire
from allotment.wire.tree import Plain

FIRST_TENANT = "everybody"


def machines_to_wire(nodes: Sequence[Node], topology: Topology) -> dict[str, Plain]:
    """Return machines and their cells as they are written, without defaults.

    All of it belongs to the first tenant.
    """
    written: list[Plain] = [
        {key: value for key, value in node_to_wire(node).items() if value not in ([], {})}
        for node in nodes
    ]
    cells = topology_to_wire(topology, nodes)
    shares: dict[str, Plain] = dict(Counter(root.type for root in topology.roots))
    return {
        "nodes": written,
        "cells": {key: value for key, value in cells.items() if value},
        "tenants": {FIRST_TENANT: {"cells": shares}},
    }
