"""How tasks have their devices, and on which nodes some have them in another way than others
would get them now. Pure.

Where one task was told its devices and another had its kubelet pick, nobody knows whether these
are the same ones. So is it on a node whose mode was changed under tasks that run.
"""

from collections.abc import Collection
from enum import Enum

from allotment.backends.kubernetes.named import has_names
from allotment.backends.kubernetes.objects import Pod
from allotment.backends.kubernetes.usage import use_of
from allotment.backends.kubernetes.visible import NOTE
from allotment.model.cluster import Node


class Mode(Enum):
    """Who says which devices a pod has."""

    NAMED = "claims"
    TOLD = "told"
    COUNTED = "counted"


def mode_of(pod: Pod, *, is_ours: bool) -> Mode | None:
    """Return how a pod has its devices; None where it has none, or runs no more.

    What the annotation says counts of pods that we made: others may write it themselves.
    """
    if not pod.spec.node_name or pod.is_over:
        return None
    if pod.spec.resource_claims:
        return Mode.NAMED
    if use_of(pod).devices:
        return Mode.COUNTED
    return Mode.TOLD if is_ours and (pod.metadata.annotations or {}).get(NOTE) else None


def mode_on(node: Node, *, is_named: bool, is_visible: bool) -> Mode:
    """Return how pods get devices of a node now. `is_named`: a driver names some, of which the
    node in force may not know yet."""
    if is_named or has_names(node):
        return Mode.NAMED
    return Mode.TOLD if is_visible else Mode.COUNTED


class Modes:
    """How the tasks of each node have their devices."""

    def __init__(self) -> None:
        self._by_node: dict[str, dict[str, Mode]] = {}
        self._node_of: dict[str, str] = {}

    def note(self, uid: str, node: str, mode: Mode | None) -> Collection[str]:
        """Note a task, by the uid of its pod; None where it has no devices, or no more. Return
        the nodes of which something changed."""
        at = self._node_of.get(uid, "")
        now = node if mode is not None else ""
        if at == now and (mode is None or self._by_node[at][uid] is mode):
            return ()
        if at:
            del self._node_of[uid], self._by_node[at][uid]
            if not self._by_node[at]:
                del self._by_node[at]
        if mode is not None:
            self._node_of[uid] = node
            self._by_node.setdefault(node, {})[uid] = mode
        return {at, now} - {""}

    def keep(self, there: Collection[str]) -> Collection[str]:
        """Forget all tasks but those of these pods. Return the nodes of which something
        changed."""
        gone = [uid for uid in self._node_of if uid not in there]
        return {node for uid in gone for node in self.note(uid, "", None)}

    def is_mixed(self, node: str, mode: Mode) -> bool:
        """Whether a task on a node has devices in another way than this."""
        return any(each is not mode for each in self._by_node.get(node, {}).values())
