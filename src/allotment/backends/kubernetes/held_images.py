"""Which nodes of a cluster have an image, by what their kubelets report of themselves.

A kubelet reports its largest images, 50 unless it is told otherwise, each under some names.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache

from allotment.model.cluster import Node
from allotment.model.ids import NodeId
from allotment.model.image_names import HUB, BadReference, parse

MOST_IMAGES = 1_000
"""Of which it is remembered which nodes have them."""


class HeldImages:
    """Answers from what was noted."""

    def __init__(self) -> None:
        self._at: Sequence[Node] = ()
        """The nodes that were in force when it was asked last."""
        self._ids: dict[str, NodeId] = {}
        """Of these, by name."""
        self._having: dict[str, set[str]] = {}
        """The nodes that have an image, by what they call it."""
        self._changed: set[str] = set()
        """What images are called of which that changed since it was asked last."""
        self._known: dict[str, frozenset[NodeId]] = {}
        """What was answered, while that holds."""

    def note(self, node: str, had: Sequence[str], has: Sequence[str]) -> None:
        """Note which images a node had, and has now, by all their names."""
        before, now = set(had), set(has)
        self._changed |= before ^ now
        for name in before - now:
            nodes = self._having[name]
            nodes.discard(node)
            if not nodes:
                del self._having[name]
        for name in now - before:
            self._having.setdefault(name, set()).add(node)

    def nodes_with(
        self, images: Sequence[str], nodes: Sequence[Node]
    ) -> Mapping[str, frozenset[NodeId]]:
        """Return which of the nodes in force have some images. O(nodes), and more at news."""
        if nodes != self._at:
            self._at, self._ids = nodes, {node.name: node.id for node in nodes}
            self._known.clear()
        if self._changed:
            for image in list(self._known):
                if not self._changed.isdisjoint(spellings_of(image)):
                    del self._known[image]
            self._changed.clear()
        return {image: self._of(image) for image in images}

    def _of(self, image: str) -> frozenset[NodeId]:
        found = self._known.get(image)
        if found is None:
            names = set[str]().union(*(self._having.get(n, ()) for n in spellings_of(image)))
            found = frozenset(self._ids[name] for name in names if name in self._ids)
            self._known[image] = found
            if len(self._known) > MOST_IMAGES:
                del self._known[next(iter(self._known))]
        return found


@lru_cache(MOST_IMAGES)
def spellings_of(image: str) -> frozenset[str]:
    """Return how kubelets may call an image: in full, or as Docker shortens it.

    Where a digest is named, only by that: a tag may lead to other bytes by now.
    """
    try:
        there = parse(image)
    except BadReference:
        return frozenset({image})
    end = f"@{there.digest}" if there.digest else f":{there.tag}"
    names = {f"{there.place}{end}"}
    if there.registry == HUB:
        short = there.repository
        names |= {f"{short}{end}", f"{short.removeprefix('library/')}{end}"}
    return frozenset(names)
