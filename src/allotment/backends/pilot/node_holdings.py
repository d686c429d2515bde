"""What each node has of what jobs bring: images, environments and versions of data.

A node is asked when it is held, and after it got or removed something. What it said last counts
until it says something else, so also while it is given back, or the service was ended.
"""

import asyncio
import contextlib
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from allotment.backends.pilot import file_messages as fm
from allotment.backends.pilot import image_messages as im
from allotment.backends.pilot.asking import MOST
from allotment.backends.pilot.link import Link
from allotment.backends.pilot.messages import PROTOCOL
from allotment.backends.pilot.node_images import can_be
from allotment.model.content import Content, ContentKind
from allotment.model.errors import BackendError
from allotment.model.image_names import BadReference, parse
from allotment.rights.writing import write_whole
from allotment.service.image_view import ImageRow

FILE: Final = "content.json"
MOST_WORDS: Final = 500
MOST_ROWS: Final = 10_000
"""Of what one node says that it has."""
MOST_KEPT: Final = 512
"""Images, and other contents, of which it is known that a node has them, those used last."""
LOOK_S: Final = 15.0
"""How long a node may take to say what it has: nobody waits for it."""
Kept = dict[str, int]
"""How large something is, by the name that nodes have for it."""


class NodeHoldings:
    """Knows what nodes said last. `folder` has a folder for each, which is the service's."""

    def __init__(
        self, folder: Path, links: Callable[[], Sequence[Link]], *, files: bool
    ) -> None:
        """They are asked for images, and for `files` that are sent to them, where they have
        disks of their own."""
        self._folder = folder
        self._links = links
        self._files = files
        self.unsure: set[str] = set()
        """Nodes that may have something else than they said last."""
        self._kept: dict[str, Kept] = {}
        """What nodes said last, by their names."""
        self._having: dict[str, Mapping[str, int]] = {}
        """The nodes that have what was asked for, until one says something else of it."""

    def match(self, nodes: Collection[str]) -> None:
        """Remember what new nodes said, and forget those that are there no longer."""
        for node in [each for each in nodes if each not in self._kept]:
            self._kept[node] = self._read(node)
            self._having.clear()
        for node in self._kept.keys() - set(nodes):
            del self._kept[node]
            self._having.clear()

    def _read(self, node: str) -> Kept:
        try:
            return msgspec.json.decode((self._folder / node / FILE).read_bytes(), type=Kept)
        except (OSError, msgspec.DecodeError):
            return {}

    async def look_again(self) -> None:
        """Have the nodes say what they have that may have something else, all at once."""
        links = [link for link in self._links() if link.hello.node in self.unsure]
        self.unsure.clear()
        await asyncio.gather(*map(self._look, links))

    async def _look(self, link: Link) -> None:
        """Have a node say what it has. What it said before holds where it does not answer."""
        node = link.hello.node
        before = self._kept.get(node, {})
        try:
            async with asyncio.timeout(LOOK_S):
                images = await self._images_of(link)
                files = await self._files_of(link)
        except (BackendError, TimeoutError):
            return
        kept = {
            name: size
            for name, size in before.items()
            if (images if _is_image(name) else files) is None
        }
        kept |= (images or {}) | (files or {})
        if kept != before:
            self._kept[node] = kept
            for name, _ in before.items() ^ kept.items():
                self._having.pop(name, None)
            data = msgspec.json.encode(kept)
            with contextlib.suppress(OSError):  # It is known until the service ends.
                await asyncio.to_thread(write_whole, self._folder / node / FILE, data)

    async def _images_of(self, link: Link) -> Kept | None:
        """Return the images of a node; None where it does not say."""
        told: im.ImagesTold = await link.call(im.ListImages(None), im.ImagesTold)
        if told.code:
            return None
        newest = sorted(filter(can_be, told.rows[:MOST_ROWS]), key=lambda row: -row.used_at)
        return {name: row.bytes for row in newest[:MOST_KEPT] if (name := _exact(row))}

    async def _files_of(self, link: Link) -> Kept | None:
        """Return the other contents of a node; None where it does not say."""
        if not self._files or link.hello.protocol != PROTOCOL:
            return None  # A runner of an older version would hang up.
        told = await link.call(fm.ListHeld(), list[fm.HeldRow])
        return {sys.intern(row.name): row.bytes for row in told[:MOST_KEPT] if _is_file(row)}

    def nodes_with(self, contents: Iterable[Content]) -> Mapping[Content, Mapping[str, int]]:
        """Name the nodes that have some contents, each with how large it says these are."""
        if len(self._having) > MOST_ROWS:
            self._having.clear()
        return {content: self._with(_name_of(content)) for content in contents}

    def _with(self, name: str) -> Mapping[str, int]:
        if name not in self._having:
            there = {node: kept[name] for node, kept in self._kept.items() if name in kept}
            self._having[name] = there
        return self._having[name]


def _name_of(content: Content) -> str:
    """Return how nodes name a content; '' where it says nothing of what they have."""
    match content.kind:
        case ContentKind.IMAGE:
            try:
                return parse(content.name).exact
            except BadReference:
                return ""
        case ContentKind.ENVIRONMENT:
            return f"environments/made/{content.name}"
        case ContentKind.DATA:
            return content.name


def _exact(row: ImageRow) -> str:
    """Return the name of an image by its bytes and where they are from; '' where it is none."""
    try:
        return sys.intern(parse(row.image).at(row.digest).exact)
    except BadReference:
        return ""


def _is_image(name: str) -> bool:
    """Whether a name is that of an image, with its digest: no other content's has an @."""
    return "@" in name


def _is_file(row: fm.HeldRow) -> bool:
    """Whether what a node says can be, and is no image."""
    is_short = 0 < len(row.name) <= MOST_WORDS
    return is_short and not _is_image(row.name) and 0 <= row.bytes <= MOST
