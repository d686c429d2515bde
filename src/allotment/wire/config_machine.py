"""A machine as it was discovered, as a configuration to start from."""

from allotment.model.cells import Topology
from allotment.model.cluster import Node
from allotment.wire.cells_write import topology_to_wire
from allotment.wire.config_write import node_to_wire
from allotment.wire.tree import Plain

FIRST_TENANT = "everybody"


def machine_to_wire(node: Node, topology: Topology) -> dict[str, Plain]:
    """Write one machine and its cells, all of it the first tenant's; what is usual left out."""
    written = {key: value for key, value in node_to_wire(node).items() if value not in ([], {})}
    cells = topology_to_wire(topology, [node])
    shares: dict[str, Plain] = {root.type: 1 for root in topology.roots}
    return {
        "nodes": [written],
        "cells": {key: value for key, value in cells.items() if value},
        "tenants": {FIRST_TENANT: {"cells": shares}},
    }
