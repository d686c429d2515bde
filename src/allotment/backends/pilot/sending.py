"""Files that go to nodes with disks of their own, by content: what a node has is not sent.

First the list goes, then the node says what it lacks, then that goes, in one stream for each
node. Files that came whole stay there, so whatever is cut goes on from them.
"""

import asyncio
import io
from collections import defaultdict
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import IO, Final

from allotment.backends.pilot import file_messages as fm
from allotment.backends.pilot.link import Link
from allotment.backends.together import gather_all
from allotment.model.errors import BackendError
from allotment.service.content.manifest import needs, read
from allotment.service.content.shelf import blocks
from allotment.service.workspace import CodeCopy, DataKept, Listed

LAYING_S: Final = 900.0
"""How long a node may take to look through what it has, and to lay files out."""
LOOK_S: Final = 0.5
_NAME: Final = 32
"""Bytes of a file's name, in what a node answers."""
Source = tuple[str, int, Callable[[], IO[bytes]]]
"""A file to send: its name, how large it is, and what opens it."""


class Turns:
    """One after the other, for each name."""

    def __init__(self) -> None:
        self._locks = defaultdict[str, asyncio.Lock](asyncio.Lock)

    @asynccontextmanager
    async def turn(self, name: str, is_wanted: Callable[[], bool]) -> AsyncGenerator[bool]:
        """Wait for a turn, and yield whether it came before it was not wanted any more."""
        lock, has_it = self._locks[name], False
        while is_wanted() and not has_it:
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_S):
                    has_it = await lock.acquire()
        try:
            yield has_it
        finally:
            if has_it:
                lock.release()


class Sending:
    """Sends what nodes lack of lists of files.

    `changed` is told which node may have other versions of data than before.
    """

    def __init__(self, changed: Callable[[str], None]) -> None:
        self._changed = changed
        self._turns = Turns()

    async def data(
        self,
        links: Sequence[Link],
        versions: Sequence[Listed],
        kept: DataKept,
        is_wanted: Callable[[], bool],
    ) -> None:
        """Have versions laid out on nodes, unless they are not wanted any more.

        Raises BackendError.
        """
        for each in versions:
            await gather_all([self._data_to(link, each, kept, is_wanted) for link in links])

    async def code(
        self, links: Sequence[Link], copy: CodeCopy, limit: int, is_wanted: Callable[[], bool]
    ) -> None:
        """Have code copied on nodes to where an attempt works. As `data`."""
        await gather_all([self._code_to(link, copy, limit, is_wanted) for link in links])

    async def _data_to(
        self, link: Link, version: Listed, kept: DataKept, is_wanted: Callable[[], bool]
    ) -> None:
        async with self._lacking(link, version, is_wanted) as is_lacking:
            if not is_lacking:
                return
            made_room = partial(self._changed, link.hello.node)
            if await _send(link, version, kept.limit, is_wanted, kept.in_use, made_room):
                await _done(link, fm.LayData(version.owner, version.digest))
                self._changed(link.hello.node)

    async def _code_to(
        self, link: Link, copy: CodeCopy, limit: int, is_wanted: Callable[[], bool]
    ) -> None:
        code = copy.code
        async with self._lacking(link, code, is_wanted) as is_lacking:
            if is_lacking:
                await _send(link, code, limit, is_wanted)
        if is_wanted():
            lay = fm.LayCode(code.owner, code.digest, copy.job, copy.attempt, copy.identity)
            await _done(link, lay)

    @asynccontextmanager
    async def _lacking(
        self, link: Link, listed: Listed, is_wanted: Callable[[], bool]
    ) -> AsyncGenerator[bool]:
        """Yield whether a node lacks files of a list; if so, in the turn of their owner there.

        What is there waits for nothing, and nothing for what goes to other nodes.
        """
        asked = fm.HasListed(listed.owner, listed.digest)
        if await link.call(asked, bool):
            yield False
            return
        name = f"{link.hello.node} {listed.owner}"
        async with self._turns.turn(name, is_wanted) as is_ours:
            yield is_ours and not await link.call(asked, bool)


async def _send(
    link: Link,
    listed: Listed,
    limit: int,
    is_wanted: Callable[[], bool],
    in_use: Callable[[], frozenset[str]] = frozenset,
    made_room: Callable[[], None] = lambda: None,
) -> bool:
    """Send a list, and what a node lacks of its files; return whether all of it is there."""
    try:
        data, sizes = await asyncio.to_thread(_read, listed)
    except OSError as error:
        raise BackendError(f"the list of files cannot be read: {error.strerror}") from error
    the_list = [(listed.digest, len(data), lambda: io.BytesIO(data))]
    # A node that is full has room for the list all the same: by it others are removed.
    room = limit + blocks(len(data))
    if not await _stream(link, listed.owner, the_list, room, is_wanted):
        return False
    asking = fm.LackFiles(listed.owner, listed.digest, limit, in_use())
    try:
        names = _names(await link.call(asking, bytes, longer_s=LAYING_S))
    finally:
        made_room()  # What was removed for it need not wait until all of it is there.
    if not sizes.keys() >= names:
        raise link.distrusted("asks for files that are not in the list")
    files = (
        (name, size, partial(listed.file(name).open, "rb"))
        for name, size in sizes.items()
        if name in names
    )
    return await _stream(
        link, listed.owner, files, limit, is_wanted, are_digests=listed.are_digests
    )


def _read(listed: Listed) -> tuple[bytes, Mapping[str, int]]:
    """Return a list, and what is in it: how large each file is. Raises OSError."""
    data = listed.read()
    return data, needs(read(data).files)


def _names(answer: bytes) -> set[str]:
    return {answer[at : at + _NAME].hex() for at in range(0, len(answer), _NAME)}


async def _stream(
    link: Link,
    owner: str,
    sources: Iterable[Source],
    limit: int,
    is_wanted: Callable[[], bool],
    *,
    are_digests: bool = True,
) -> bool:
    """Send files one after the other; return whether all went. Raises BackendError."""
    made, is_first = _pieces(sources), True
    piece = await _next(made)
    while piece and is_wanted():
        op = fm.TakeFiles(owner, piece, limit, is_first, are_digests)
        _, piece = await gather_all([_told(link, op), _next(made)])
        is_first = False
    if piece:
        await _told(link, fm.TakeFiles(owner, b"", limit, is_first=True))  # Half a file goes.
    return not piece


async def _done(link: Link, op: fm.ListedOp) -> None:
    await link.call(op, longer_s=LAYING_S)


async def _told(link: Link, op: fm.TakeFiles) -> bytes:
    await link.call(op)
    return b""


async def _next(made: Iterator[bytes]) -> bytes:
    """Return the next piece, none at the end. Raises BackendError."""
    try:
        return await asyncio.to_thread(next, made, b"")
    except OSError as error:
        raise BackendError(f"a file cannot be read for its nodes: {error}") from error


def _pieces(sources: Iterable[Source]) -> Iterator[bytes]:
    """Yield files as `content/receiving.py` takes them, in pieces. Raises OSError."""
    piece = bytearray()
    for name, size, opens in sources:
        piece += bytes.fromhex(name) + size.to_bytes(8, "big")
        with opens() as file:
            left = size
            while left:
                data = file.read(min(left, max(fm.PIECE - len(piece), 1)))
                if not data:
                    raise OSError(5, "it is shorter than it was", name)
                piece += data
                left -= len(data)
                if len(piece) >= fm.PIECE:
                    yield bytes(piece)
                    piece.clear()
        if len(piece) >= fm.PIECE:
            yield bytes(piece)
            piece.clear()
    if piece:
        yield bytes(piece)
