"""Files that jobs left on nodes with disks of their own, as they become versions of datasets.

Runners list them, read them for their digests, and give them piece by piece. A thread that
saves them asks: a file that the dataset has already is not sent, and each that comes is
compared with its digest. So what is cut goes on from the files that came whole.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Coroutine, Generator, Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Final, TypeVar

from allotment.backends.pilot import file_messages as fm
from allotment.backends.pilot.carrying import AHEAD
from allotment.backends.pilot.link import Link
from allotment.backends.pilot.node_images import refused_by_node
from allotment.model.errors import BackendError, Code, Rejected
from allotment.service.content.manifest import Kind, is_digest
from allotment.service.data.left_files import changed
from allotment.service.workspace import FileBelow, Left

AT_ONCE: Final = 500
"""So many files are digested for one question, at most, …"""
AT_ONCE_BYTES: Final = 256 << 20
"""… and of large ones so many bytes."""
SLOWEST: Final = 4 << 20
"""Bytes in a second that a node reads at least."""
T = TypeVar("T")


class FilesOnNodes:
    """The files of a folder that lies on several nodes, or of `only` a part of it.

    Of files of one name that of the first node counts. For one thread, which is not that of
    the loop in which it was made.
    """

    def __init__(self, links: Mapping[str, Link], left: Left, only: str) -> None:
        self.only = only
        self.nodes = tuple(links)
        self._links = links
        self._left = left
        self._loop = asyncio.get_running_loop()
        self._is_closed = False
        self._found: dict[str, tuple[Link, FileBelow]] = {}
        self._digests: dict[str, fm.Digested] = {}

    def files(self, most: int) -> tuple[Sequence[FileBelow], bool]:
        """Return at most so many files, in order; and whether these are all.

        Raises Rejected and BackendError.
        """
        found: dict[str, tuple[Link, FileBelow]] = {}
        is_all = True
        for link in self._links.values():
            listing = self._ask(link, fm.ListFiles(self._left, most), fm.Listing)
            is_all &= listing.is_all and len(listing.files) <= most
            for file in listing.files[:most]:
                if not self.only or f"{file.path}/".startswith(f"{self.only}/"):
                    _check(file)
                    found.setdefault(file.path, (link, file))
        names = sorted(found, key=lambda path: path.split("/"))
        self._found = {name: found[name] for name in names}
        return [file for _, file in self._found.values()][:most], is_all and len(names) <= most

    @contextlib.contextmanager
    def opened(self, path: str) -> Generator["FileOnNode"]:
        """Have a file for reading, with its digest. Raises Rejected and BackendError."""
        link, file = self._found[path]
        if path not in self._digests:
            self._digest_from(path, link)
        told = self._digests.pop(path)
        if told.code:
            raise _refused(path, told.code, told.message)
        if told.size != file.size or not is_digest(told.digest):
            raise changed(path)
        yield FileOnNode(self, link, self._left, path, told)

    def close(self) -> None:
        """Ask nothing more."""
        self._is_closed = True

    def ask(self, link: Link, op: fm.FileOp, kind: type[T], longer_s: float = 0) -> Future[T]:
        """Begin to ask a node something."""
        if self._is_closed:
            raise BackendError("nobody waits for its files any more")
        asked: Coroutine[Any, Any, T] = link.call(op, kind, longer_s)
        return asyncio.run_coroutine_threadsafe(asked, self._loop)

    def _ask(self, link: Link, op: fm.FileOp, kind: type[T]) -> T:
        return self.ask(link, op, kind).result()

    def _digest_from(self, path: str, link: Link) -> None:
        """Have this file read where it is, and with it some that come next."""
        names, size = list[str](), 0
        is_next = False
        for name, (where, file) in self._found.items():
            is_next = is_next or name == path
            if not is_next or where is not link:
                continue
            if names and (len(names) >= AT_ONCE or size + file.size > AT_ONCE_BYTES):
                break
            names.append(name)
            size += file.size
        asked = fm.DigestFiles(self._left, tuple(names))
        told = self.ask(link, asked, list[fm.Digested], size / SLOWEST).result()
        if len(told) != len(names):
            raise BackendError(f"node {link.hello.node} did not read all files")
        self._digests = dict(zip(names, told, strict=True))


class FileOnNode:
    """A file on a node that was read there."""

    def __init__(
        self, files: FilesOnNodes, link: Link, left: Left, path: str, told: fm.Digested
    ) -> None:
        self.size, self.digest = told.size, told.digest
        self.kind: Kind = "x" if told.is_program else "f"
        self._files, self._link, self._left = files, link, left
        self._path, self._inode = path, told.inode

    def pieces(self, offset: int, size: int) -> Iterator[bytes]:
        """Read a part of it, some pieces ahead. Raises Rejected and BackendError."""
        asked = deque[tuple[int, Future[fm.Part]]]()
        end = offset + size
        while offset < end or asked:
            while offset < end and len(asked) < AHEAD:
                most = min(fm.PIECE, end - offset)
                op = fm.ReadFile(self._left, self._path, offset, most)
                asked.append((most, self._files.ask(self._link, op, fm.Part)))
                offset += most
            most, answer = asked.popleft()
            part = answer.result()
            if part.code:
                raise _refused(self._path, part.code, part.message)
            is_same = part.inode == self._inode and part.size == self.size
            if not is_same or len(part.data) != most:
                raise changed(self._path)
            yield part.data


def _check(file: FileBelow) -> None:
    """Raise Rejected where a node lists what cannot be."""
    if "\ufffd" in file.path:  # So it tells of other bytes.
        raise Rejected(Code.BAD_REQUEST, f"The name of {file.path[:200]!a} is not UTF-8.")
    if file.size < 0:
        raise BackendError(f"a node lists a file of {file.size} bytes")


def _refused(path: str, code: str, message: str) -> Rejected:
    if code == Code.NOT_FOUND:
        return changed(path)
    return refused_by_node(code, message, "")
