"""The cluster configuration, from YAML or JSON and back: the door to `wire` for it.

Parsers are imported when first used.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from allotment.model.cells import CellType
from allotment.model.cluster import Node
from allotment.model.engines import EngineSetup
from allotment.model.errors import BadInput, Problem
from allotment.model.quantity import Millis
from allotment.model.tenancy import Config
from allotment.wire.config_write import config_to_wire
from allotment.wire.parse import tree_of
from allotment.wire.text import text_of
from allotment.wire.tree import plain_of

if TYPE_CHECKING:
    from allotment.wire.config_shape import ConfigShape, QueueShape

__all__ = ["cell_types_in", "config_to_wire", "default_config", "engines_in", "read_config"]

NOTHING_FOUND: Mapping[str, Sequence[Node]] = {}


def read_config(
    data: bytes,
    *,
    source: str,
    machine: Node | None,
    found: Mapping[str, Sequence[Node]] = NOTHING_FOUND,
) -> tuple[Config, tuple[Problem, ...]]:
    """Read a configuration, with warnings. `source` names the file in messages.

    `machine` is this machine as discovered: the only node where the file lists none, and
    the one that knows its real devices where the file lists it by name. `found` has what
    other engines found, by their name: their nodes, where the file lists none of them.
    Raises BadInput with everything that is wrong, each with its line.
    """
    from allotment.wire.config_read import config_of

    tree, problems = tree_of(text_of(data, source), source)
    return config_of(
        plain_of(tree), tree, source=source, machine=machine, problems=problems, found_by=found
    )


def engines_in(data: bytes, *, source: str) -> tuple[EngineSetup, ...]:
    """Return the engines that a configuration names; none of one that is wrong."""
    from allotment.wire.config_engines import engines_of

    shape = _shape_of(data, source)
    return engines_of(shape) if shape is not None else ()


def tenants_in(data: bytes, *, source: str) -> tuple[str, ...]:
    """Return the tenants that a configuration names; none of one that is wrong."""
    shape = _shape_of(data, source)
    return tuple(shape.tenants) if shape is not None else ()


def cell_types_in(data: bytes) -> tuple[CellType, ...]:
    """Return the cell types that a configuration lists; none of one that is wrong."""
    from allotment.wire.cells_read import listed_types

    shape = _shape_of(data, "")
    return tuple(listed_types(shape.cells).values()) if shape is not None else ()


def slices_in(data: bytes, *, source: str) -> dict[str, Millis]:
    """Return how long turns are, by TENANT/QUEUE; nothing of a configuration that is wrong."""
    found: dict[str, Millis] = {}

    def take(tenant: str, queues: Mapping[str, "QueueShape"]) -> None:
        for name, queue in queues.items():
            if queue.slice_ms:
                found[f"{tenant}/{name}"] = queue.slice_ms
            take(tenant, queue.queues)

    shape = _shape_of(data, source)
    for tenant, each in shape.tenants.items() if shape is not None else ():
        take(tenant, each.queues)
    return found


def _shape_of(data: bytes, source: str) -> "ConfigShape | None":
    """Return a configuration as it is written; None of one that is wrong."""
    from pydantic import ValidationError

    from allotment.wire.config_shape import ConfigShape

    try:
        tree, _ = tree_of(text_of(data, source), source)
        return ConfigShape.model_validate(plain_of(tree))
    except (ValidationError, BadInput):
        return None


def default_config(nodes: Sequence[Node], groups: Sequence[str]) -> Config:
    """Return a configuration of these nodes: one tenant for each group, equal shares.

    Shares are whole devices, and whole thousandths and bytes of the rest; the first tenant gets
    what is left over. Without a group, one tenant `default` is open to all users.
    """
    from allotment.wire.config_share import equal_shares

    return equal_shares(nodes, groups)
