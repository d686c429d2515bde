"""Devices that a pod is told by its environment, as HiveD does it. Pure.

On nodes that the configuration names, the container runtime gives a container the devices that
`NVIDIA_VISIBLE_DEVICES` names. The kubelet counts nothing there, and picks none.
"""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from fnmatch import translate
from functools import lru_cache

from allotment.backends.kubernetes.objects import Words
from allotment.model.cluster import Node

VARIABLE = "NVIDIA_VISIBLE_DEVICES"
NONE = "void"
"""Of the variable: no devices, whatever the image says."""
NOTE = "allotment.io/devices"
"""An annotation: which devices of its node a pod has."""
NOTE_OF_HIVED = "hivedscheduler.microsoft.com/pod-leaf-cell-isolation"
"""The same, as HiveD writes it, and as its clients have it in the variable."""
COUNT = "nvidia.com/gpu.count"
"""A label: how many devices a node has, whatever its device plugin offers."""
LONGEST_NOTE = 4096

IsVisible = Callable[[str], bool]
"""Whether a node is in this mode, by its name."""


def nowhere(node: str) -> bool:  # noqa: ARG001 - so of every node
    """Return that a node is not in this mode."""
    return False


def visible_in(patterns: Sequence[str]) -> IsVisible:
    """Return which nodes are in this mode: those of these names, in which `*` may stand."""
    if not patterns:
        return nowhere
    whole = re.compile("|".join(map(translate, patterns)))

    @lru_cache(1 << 16)
    def is_visible(node: str) -> bool:
        return whole.match(node) is not None

    return is_visible


def value_of(node: Node, indexes: Sequence[int]) -> str:
    """Return how devices of a node are named to its container runtime: by their UUIDs where all
    are known, which stay what they are over a restart of the node; else by their numbers."""
    chosen = [node.devices[index] for index in indexes]
    if all(device.uuid for device in chosen):
        return ",".join(device.uuid for device in chosen)
    return ",".join(str(device.index) for device in chosen)


def notes_of(value: str) -> Mapping[str, str]:
    """Return the annotations of a pod that has these devices. One that has none is told so: its
    maker may have written something else there."""
    return dict.fromkeys((NOTE, NOTE_OF_HIVED), value or NONE)


def picked_in(notes: Words | None) -> tuple[str, ...]:
    """Return the devices that a pod says it has, each as it was named to it."""
    told = (notes or {}).get(NOTE) or (notes or {}).get(NOTE_OF_HIVED) or ""
    return tuple(told.split(",")) if 0 < len(told) <= LONGEST_NOTE else ()


def taken(node: Node, counted: int, picked: Collection[str]) -> tuple[int, ...]:
    """Return which devices of a node others have, by index.

    `picked` are those that their pods name. Where a kubelet has picked some, nobody knows
    which: each may be one of them.
    """
    return tuple(
        device.index
        for device in node.devices
        if counted or str(device.index) in picked or (device.uuid and device.uuid in picked)
    )
