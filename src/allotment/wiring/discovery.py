"""This machine as a configuration would describe it: a node, and how its devices lie."""

from allotment.model.cells import Topology
from allotment.model.cluster import Node


def discovered(gpus: int | None = None) -> tuple[Node, Topology]:
    """Return this machine as a node, with `gpus` virtual devices if it has no real ones."""
    from allotment.backends.local.machine import this_machine  # noqa: PLC0415
    from allotment.backends.local.topology import this_topology  # noqa: PLC0415

    node, _ = this_machine(gpus)
    return node, this_topology(node)
