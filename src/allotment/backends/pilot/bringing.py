"""Environments that go to nodes with disks of their own: packed once, and sent by the links.

They were built for the service's folder. What in them names that folder names the node's when
it is packed, so a node changes nothing of what it was told the digest of.
"""

import asyncio
import hashlib
import io
import os
import re
import tarfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Final

import msgspec

from allotment.backends.pilot import file_messages as fm
from allotment.backends.pilot.link import Link
from allotment.backends.pilot.sending import Turns
from allotment.backends.together import gather_all
from allotment.model.errors import BackendError
from allotment.service.workspace import Kept

UNPACK_S: Final = 900.0
"""How long a node may take to check and unpack what it got."""
_NAMES_ITSELF: Final = re.compile(
    r"pyvenv\.cfg|lib/python3\.\d+/_sysconfigdata_[^/]*\.py|lib/pkgconfig/[^/]*\.pc"
)
"""Files of text that say where they are."""


class Packed(msgspec.Struct):
    """A folder as one file, which has no name and goes when it is closed."""

    file: IO[bytes]
    size: int
    digest: str


class Bringing:
    """Sends what nodes lack. `root` is the folder that all of them have.

    `changed` is told which node may have other folders than before.
    """

    def __init__(self, root: str, changed: Callable[[str], None]) -> None:
        self._root = root
        self._changed = changed
        self._turns = Turns()

    async def bring(
        self, links: Sequence[Link], kept: Kept, is_wanted: Callable[[], bool]
    ) -> None:
        """Have folders on nodes, whole, unless they are not wanted any more.

        Raises BackendError.
        """
        for name in kept.names:
            if not await _lacking(links, name):
                continue  # What is there waits for nothing that goes to other nodes.
            async with self._turns.turn(name, is_wanted) as is_ours:
                if not is_ours:
                    return
                lacking = await _lacking(links, name)
                if lacking and is_wanted():
                    await self._send(lacking, kept, name, is_wanted)

    async def _send(
        self, links: Sequence[Link], kept: Kept, name: str, is_wanted: Callable[[], bool]
    ) -> None:
        try:
            packed = await asyncio.to_thread(pack, name, kept.root, self._root)
        except OSError as error:
            raise BackendError(
                f"the environment cannot be packed for its nodes: {error.strerror}"
            ) from error
        with packed.file:
            await gather_all([self._to(link, packed, kept, name, is_wanted) for link in links])

    async def _to(
        self, link: Link, packed: Packed, kept: Kept, name: str, is_wanted: Callable[[], bool]
    ) -> None:
        fd, at = packed.file.fileno(), 0
        while at < packed.size and is_wanted():
            data = await asyncio.to_thread(os.pread, fd, fm.PIECE, at)
            await link.call(fm.PutKept(name, at, data))
            at += len(data)
        if is_wanted():
            whole = fm.UnpackKept(name, packed.digest, await kept.needed(), kept.limit)
            try:
                await link.call(whole, longer_s=UNPACK_S)
            finally:
                self._changed(link.hello.node)  # It may have removed others, whatever came.
        else:
            await link.call(fm.PutKept(name, 0, b""))  # What came takes no room.


async def _lacking(links: Sequence[Link], name: str) -> list[Link]:
    """Return the links to nodes that do not have a folder."""
    asked = [link.call(fm.HasKept(name), bool) for link in links]
    return [link for link, has in zip(links, await gather_all(asked), strict=True) if not has]


def pack(name: str, ours: str, theirs: str) -> Packed:
    """Pack a folder below ours, as it is to be below theirs. Raises OSError."""
    top = Path(ours, name)
    with ExitStack() as unless_whole:
        file = unless_whole.enter_context(TemporaryFile(dir=ours))
        with tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as archive:
            for folder, names, others in os.walk(top, onerror=_raised):
                names.sort()
                for each in sorted((*names, *others)):
                    _add(archive, Path(folder, each), top, (ours, theirs))
        size = file.tell()
        file.seek(0)
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        unless_whole.pop_all()
    return Packed(file, size, digest)


def _raised(error: OSError) -> None:
    """Raise what a walk would pass over: then a part would be sent for the whole."""
    raise error


def _add(archive: tarfile.TarFile, path: Path, top: Path, moved: tuple[str, str]) -> None:
    entry = archive.gettarinfo(path, str(path.relative_to(top)))
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    ours, theirs = moved
    if entry.issym():
        if entry.linkname.startswith(f"{ours}/"):
            entry.linkname = theirs + entry.linkname.removeprefix(ours)
        archive.addfile(entry)
    elif not entry.isreg():
        archive.addfile(entry)
    elif _NAMES_ITSELF.fullmatch(entry.name):
        data = path.read_bytes().replace(f"{ours}/".encode(), f"{theirs}/".encode())
        entry.size = len(data)
        archive.addfile(entry, io.BytesIO(data))
    else:
        with path.open("rb") as content:
            archive.addfile(entry, content)
