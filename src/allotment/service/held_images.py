"""Asks engines which nodes have the images that jobs ask for, and tells what is news."""

from collections.abc import Callable, Sequence
from itertools import islice

import msgspec

from allotment.engine.state import State
from allotment.model.ids import NodeId
from allotment.model.node_runs import runs_of
from allotment.model.quantity import Instant
from allotment.model.reports import ImageReport
from allotment.service.ports import Backend, KnowsImages

LOOK_EVERY_S = 2.0
AGAIN_MS = 10_000
"""For so long nothing new is told of an image: many nodes may fetch it one after the other."""
MOST_IMAGES = 1_000
"""Of those that jobs ask for, in the order in which they came: nodes with others are as any."""
NOBODY: frozenset[NodeId] = frozenset()


class _Told(msgspec.Struct):
    """What an engine said of an image last, and what of that was told."""

    nodes: frozenset[NodeId]
    at: Instant
    came: int
    """What the book's `came` was then."""


class HeldImages:
    """Looks at once where a job asks for an image that none asked for before."""

    def __init__(
        self, state: State, backend: Backend, tell: Callable[[ImageReport], None]
    ) -> None:
        self._state, self._tell = state, tell
        self._knows = backend if isinstance(backend, KnowsImages) else None
        self._told: dict[str, _Told] = {}
        self._came = 0

    def look_for_new(self, now: Instant) -> None:
        """Ask if a job asks for another image than before: it may be placed in a moment."""
        if self._state.images.came != self._came:
            self._ask([image for image in self._asked() if image not in self._told], now)

    def look(self, now: Instant) -> None:
        """Ask for all images, and tell what is new."""
        self._ask(self._asked(), now)

    def _asked(self) -> Sequence[str]:
        """Return the images to ask for, and forget what was told before they were asked for."""
        images, before = self._state.images, self._told
        self._came = images.came
        asked = dict(islice(images, MOST_IMAGES))
        self._told = {
            image: told
            for image, since in asked.items()
            if (told := before.get(image)) is not None and told.came >= since
        }
        return tuple(asked)

    def _ask(self, images: Sequence[str], now: Instant) -> None:
        if self._knows is not None and images:
            there = self._knows.nodes_with(images)
            for image in images:
                self._compare(image, there.get(image, NOBODY), now)

    def _compare(self, image: str, nodes: frozenset[NodeId], now: Instant) -> None:
        """Report which nodes have an image, unless that is known, or was otherwise just now."""
        told = self._told.get(image)
        known = self._state.images.nodes.get(image, ())
        if told is not None and (told.nodes == nodes or now < told.at + AGAIN_MS):
            return
        runs = runs_of(nodes)
        self._told[image] = _Told(nodes, now, self._came)
        if runs != known:
            self._tell(ImageReport(image, runs))
