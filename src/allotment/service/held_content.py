"""Asks engines which nodes have what jobs bring, and tells what is news."""

from collections.abc import Callable, Sequence
from itertools import islice

import msgspec

from allotment.engine.state import State
from allotment.model.content import Content, ContentKind, Held
from allotment.model.data_use import reference_of
from allotment.model.datasets import Dataset, DataVersion
from allotment.model.ids import NodeId
from allotment.model.node_runs import runs_of
from allotment.model.quantity import Instant
from allotment.model.reports import ContentReport
from allotment.service.data.using import owner_of
from allotment.service.ports import Backend, Having, KnowsContent

LOOK_EVERY_S = 2.0
AGAIN_MS = 10_000
"""For so long nothing new is told of a content: many nodes may get it one after the other."""
MOST_ASKED = 1_000
"""Of what jobs bring, in the order in which it came: nodes with the rest are as any."""


class _Told(msgspec.Struct):
    """What an engine said of a content last, and what of that was told."""

    nodes: frozenset[NodeId]
    at: Instant
    came: int
    """What the book's `came` was then."""


class HeldContent:
    """Looks at once where a job brings what none brought before."""

    def __init__(
        self, state: State, backend: Backend, tell: Callable[[ContentReport], None]
    ) -> None:
        self._state, self._tell = state, tell
        self._knows = backend if isinstance(backend, KnowsContent) else None
        self._told: dict[Content, _Told] = {}
        self._came = 0

    def look_for_new(self, now: Instant) -> None:
        """Ask if a job brings something else than before: it may be placed in a moment."""
        if self._state.content.came != self._came:
            self._ask([each for each in self._asked() if each not in self._told], now)

    def look(self, now: Instant) -> None:
        """Ask for all that jobs bring, and tell what is new."""
        self._ask(self._asked(), now)

    def _asked(self) -> Sequence[Content]:
        """Return what to ask for, and forget what was told before it was asked for."""
        book, before = self._state.content, self._told
        self._came = book.came
        asked = dict(islice(book, MOST_ASKED))
        self._told = {
            content: told
            for content, since in asked.items()
            if (told := before.get(content)) is not None and told.came >= since
        }
        return tuple(asked)

    def _ask(self, contents: Sequence[Content], now: Instant) -> None:
        if self._knows is None or not contents:
            return
        versions = {each: self._version(each) for each in contents}
        names = {each: _named(each, versions[each]) for each in contents}
        there = self._knows.nodes_with(list(names.values()))
        for each, name in names.items():
            found, version = there.get(name, Having()), versions[each]
            size = version[1].bytes if version is not None else found.bytes
            self._compare(each, found.nodes, size, now)

    def _version(self, content: Content) -> tuple[Dataset, DataVersion] | None:
        """Return the version of a dataset that a content is; None where it is gone, or none."""
        named = reference_of(content.name) if content.kind is ContentKind.DATA else None
        if named is None:
            return None
        dataset = self._state.datasets.get((named.tenant, named.name))
        version = dataset.version(named.version) if dataset is not None else None
        return (dataset, version) if dataset is not None and version is not None else None

    def _compare(
        self, content: Content, nodes: frozenset[NodeId], size: int, now: Instant
    ) -> None:
        """Report which nodes have it, unless that is known, or was otherwise just now."""
        told = self._told.get(content)
        known = self._state.content.held.get(content, Held())
        if told is not None and (told.nodes == nodes or now < told.at + AGAIN_MS):
            return
        runs = runs_of(nodes)
        self._told[content] = _Told(nodes, now, self._came)
        if runs != known.nodes:
            self._tell(ContentReport(content, runs, size))


def _named(content: Content, version: tuple[Dataset, DataVersion] | None) -> Content:
    """Return a content as engines name it."""
    if version is None:
        return content
    dataset, there = version
    return Content(ContentKind.DATA, f"{owner_of(dataset)}/{there.digest}")
