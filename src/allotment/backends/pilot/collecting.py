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
from itertools import islice
from typing import Any, Final, TypeVar

from allotment.backends.pilot import file_messages as fm
from allotment.backends.pilot.carrying import AHEAD
from allotment.backends.pilot.link import Link
from allotment.backends.pilot.node_files import DIGEST_S
from allotment.backends.pilot.node_images import refused_by_node
from allotment.model.errors import BackendError, Code, Rejected
from allotment.service.content.manifest import Kind, is_digest
from allotment.service.data.left_files import changed
from allotment.service.workspace import FileBelow, Left

AT_ONCE: Final = 500
"""So many files are digested for one question, at most, …"""
AT_ONCE_BYTES: Final = 256 << 20
"""… and of large ones so many bytes."""
SMALL: Final = 64 << 10
SMALL_AHEAD: Final = 16
"""So many small files are asked for before they are wanted."""
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
        self._found: dict[str, tuple[int, Link, FileBelow]] = {}
        """Each with its place in the order."""
        self._digests: dict[str, fm.Digested] = {}
        """Of those that come next of each node, in order."""
        self._ahead: dict[str, Future[fm.Part]] = {}

    def files(self, most: int) -> tuple[Sequence[FileBelow], bool]:
        """Return at most so many files, in order; and whether these are all.

        Raises Rejected and BackendError.
        """
        found: dict[str, tuple[Link, FileBelow]] = {}
        is_all = True
        for node, link in self._links.items():
            listing = self._ask(link, fm.ListFiles(self._left, most), fm.Listing).result()
            if not listing.is_there:  # Else a part of a gang's would be taken for all.
                raise Rejected(Code.NOT_FOUND, f"Node {node} does not have its files any more.")
            is_all &= listing.is_all and len(listing.files) <= most
            for file in listing.files[:most]:
                if not self.only or f"{file.path}/".startswith(f"{self.only}/"):
                    _check(file)
                    found.setdefault(file.path, (link, file))
        names = sorted(found, key=lambda path: path.split("/"))
        self._found = {name: (at, *found[name]) for at, name in enumerate(names)}
        return [found[name][1] for name in names[:most]], is_all and len(names) <= most

    @contextlib.contextmanager
    def opened(self, path: str) -> Generator["FileOnNode"]:
        """Have a file for reading, with its digest. Raises Rejected and BackendError."""
        _, _, file = self._found[path]
        if path not in self._digests:
            self._digest_from(path)
        told = self._digests.pop(path)
        if told.code:
            raise _refused(path, told.code, told.message)
        if told.size != file.size or not is_digest(told.digest):
            raise changed(path)
        yield FileOnNode(self, path, told)
        self._ahead.pop(path, None)

    def read(self, path: str, offset: int, most: int) -> Future[fm.Part]:
        """Begin to read a piece of a file: with the first, small files that come next.

        Where those are not wanted, none are asked for before the next that is.
        """
        if offset == 0:
            link = self._found[path][1]
            same = (name for name in self._digests if self._found[name][1] is link)
            for name in islice(same, SMALL_AHEAD):
                if name not in self._ahead and 0 < (size := self._digests[name].size) <= SMALL:
                    self._ahead[name] = self._read(name, 0, size)
            if (begun := self._ahead.pop(path, None)) is not None:
                return begun
        return self._read(path, offset, most)

    def _read(self, path: str, offset: int, most: int) -> Future[fm.Part]:
        op = fm.ReadFile(self._left, path, offset, most)
        return self._ask(self._found[path][1], op, fm.Part)

    def close(self) -> None:
        """Ask nothing more."""
        self._is_closed = True

    def _ask(self, link: Link, op: fm.FileOp, kind: type[T], longer_s: float = 0) -> Future[T]:
        if self._is_closed:
            raise BackendError("nobody waits for its files any more")
        asked: Coroutine[Any, Any, T] = link.call(op, kind, longer_s)
        return asyncio.run_coroutine_threadsafe(asked, self._loop)

    def _digest_from(self, path: str) -> None:
        """Have this file read where it is, and with it some that come next there."""
        at, link, _ = self._found[path]
        names, size = list[str](), 0
        for name, (_, where, file) in islice(self._found.items(), at, None):
            if where is not link:
                continue
            if names and (len(names) >= AT_ONCE or size + file.size > AT_ONCE_BYTES):
                break
            names.append(name)
            size += file.size
        asked = fm.DigestFiles(self._left, tuple(names))
        # Others of the same user may be read first. That the node lives is asked besides.
        told = self._ask(link, asked, list[fm.Digested], DIGEST_S).result()
        if len(told) != len(names):
            raise BackendError(f"node {link.hello.node} did not read all files")
        self._digests.update(zip(names, told, strict=True))


class FileOnNode:
    """A file on a node that was read there."""

    def __init__(self, files: FilesOnNodes, path: str, told: fm.Digested) -> None:
        self.size, self.digest = told.size, told.digest
        self.kind: Kind = "x" if told.is_program else "f"
        self._files, self._path, self._inode = files, path, told.inode

    def pieces(self, offset: int, size: int) -> Iterator[bytes]:
        """Read a part of it, some pieces ahead. Raises Rejected and BackendError."""
        asked = deque[tuple[int, Future[fm.Part]]]()
        end = offset + size
        while offset < end or asked:
            while offset < end and len(asked) < AHEAD:
                most = min(fm.PIECE, end - offset)
                asked.append((most, self._files.read(self._path, offset, most)))
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
