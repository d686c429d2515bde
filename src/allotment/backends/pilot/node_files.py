"""The agent's answers about files of jobs on its node's own disk."""

import asyncio
import contextlib
import errno
import hashlib
import os
import stat
from contextlib import ExitStack
from pathlib import Path

import msgspec

from allotment.backends.local.backend import LocalBackend
from allotment.backends.pilot.file_messages import (
    LONGEST_LIST,
    PIECE,
    ClearCheckpoints,
    Digested,
    DigestFiles,
    FileOp,
    ForgetFiles,
    HasKept,
    HasListed,
    HeldRow,
    LackFiles,
    LayCode,
    LayData,
    ListFiles,
    ListHeld,
    Listing,
    LookAt,
    MakeFolders,
    Part,
    PutFile,
    PutKept,
    ReadFile,
    TakeFiles,
    UnpackKept,
    WriteFiles,
)
from allotment.backends.pilot.node_content import NodeContent
from allotment.backends.pilot.node_kept import NodeKept
from allotment.model.errors import BackendError, Code, Rejected
from allotment.rights import paths
from allotment.rights.removing import remove
from allotment.rights.user import rights_of
from allotment.service.files import open_left, shown
from allotment.service.host_workspace import HostWorkspace
from allotment.service.threads import Threads
from allotment.service.workspace import FileBelow, Left, Watched

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
_FILE = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK

MOST_HELD = 512
"""Of which a node says that it has them, those used last."""
LOOK_S = 15.0
"""Shorter than the service waits for any answer: a silent file system is not a silent node."""
DIGEST_S = 4 * 3600.0
"""As long as the service may take to save what a job left."""


class NodeFiles:
    """The folders of jobs below the node's folder."""

    def __init__(self, folder: Path, backend: LocalBackend) -> None:
        self._kept = NodeKept(folder)
        self._content = NodeContent(folder, backend.runs)
        self._here = HostWorkspace(str(folder), LOOK_S)
        self._backend = backend
        self._digesting = Threads("digests", each=1)

    async def do(self, op: FileOp) -> object:
        """Carry out one order. Raises BackendError."""
        match op:
            case HasKept() | PutKept() | UnpackKept():
                return await asyncio.to_thread(self._kept.do, op)
            case HasListed() | TakeFiles() | LackFiles() | LayData() | LayCode():
                return await asyncio.to_thread(self._content.do, op)
            case ListHeld():
                return await asyncio.to_thread(self._held)
            case LookAt(watched):
                return await self._look(watched)
            case ListFiles(left, most):
                try:
                    files, is_all = await self._here.files(left, most)
                except Rejected as error:
                    raise BackendError(error.message) from error
                listing = bounded(tuple(files), is_all=is_all)
                is_lost = is_missing(left.folder, self._here.folders.root)
                return msgspec.structs.replace(listing, is_there=not is_lost)
            case ReadFile():
                return await self._read(op)
            case DigestFiles(left, names):
                return await self._digest(left, names)
            case _:
                return await self._change(op)

    def _held(self) -> list[HeldRow]:
        found = sorted((*self._content.held(), *self._kept.held()), reverse=True)
        return [HeldRow(name, size) for _, name, size in found[:MOST_HELD]]

    async def _change(
        self, op: MakeFolders | WriteFiles | PutFile | ClearCheckpoints | ForgetFiles
    ) -> None:
        match op:
            case MakeFolders(wanted):
                await self._here.prepare((), wanted)
            case WriteFiles(job, files):
                await self._here.write((), job, files)
            case PutFile():
                await asyncio.to_thread(put, op)
            case ClearCheckpoints(job):
                folder = f"{self._here.folders.root}/checkpoints/{job}"
                await asyncio.to_thread(remove, None, folder)
            case ForgetFiles(jobs):
                for job in jobs:
                    await self._backend.forget(job)
                    await self._here.forget(job)

    async def _look(self, watched: tuple[Watched, ...]) -> object:
        try:
            return await self._here.look("", watched, LOOK_S)
        except TimeoutError:
            raise BackendError("the file system of its checkpoints does not answer") from None

    async def _read(self, op: ReadFile) -> Part:
        def piece() -> Part:
            found = open_left(op.left, op.path)
            if found is None:
                return Part(code=Code.NOT_FOUND.value, message="there is no such folder")
            try:
                data = os.pread(found.fd, min(op.size, PIECE), op.offset)
                return Part(data, found.size, os.fstat(found.fd).st_ino)
            finally:
                os.close(found.fd)

        try:
            return await self._here.read(op.left, piece)
        except Rejected as error:
            return Part(code=error.code.value, message=error.message, hint=error.hint)

    async def _digest(self, left: Left, names: tuple[str, ...]) -> list[Digested]:
        def work() -> list[Digested]:
            return [digested(left, name) for name in names]

        try:
            return await self._digesting.run(left.asked_by, work, DIGEST_S)
        except TimeoutError:
            raise BackendError("the file system of its outputs does not answer") from None
        except OSError as error:
            raise BackendError(f"a file of it cannot be read: {error.strerror}") from error


def digested(left: Left, path: str) -> Digested:
    """Read a file, no further than it is long now: it may grow meanwhile. Raises OSError."""
    try:
        found = open_left(left, path)
    except Rejected as error:
        return Digested(code=error.code.value, message=error.message)
    if found is None:
        return Digested(code=Code.NOT_FOUND.value, message="there is no such folder")
    digest, at = hashlib.sha256(), 0
    try:
        state = os.fstat(found.fd)
        while data := os.pread(found.fd, min(found.size - at, PIECE), at):
            digest.update(data)
            at += len(data)
    finally:
        os.close(found.fd)
    is_program = bool(state.st_mode & stat.S_IXUSR)
    return Digested(digest.hexdigest(), at, state.st_ino, is_program)


def put(op: PutFile) -> None:
    """Write a piece of a file with its user's rights, following no link.

    What modes it had is not known here: nobody else may read what may have been private.
    Raises BackendError.
    """
    *above, name = op.file.path.split("/")
    try:
        with rights_of(op.identity), ExitStack() as open_ones:
            fd = paths.resolve(op.folder)
            open_ones.callback(os.close, fd)
            for each in above:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(each, 0o700, dir_fd=fd)
                fd = os.open(each, _FOLDER, dir_fd=fd)
                open_ones.callback(os.close, fd)
            fresh = os.O_TRUNC if op.offset == 0 else 0
            file = os.open(name, _FILE | fresh, 0o600, dir_fd=fd)
            open_ones.callback(os.close, file)
            if not stat.S_ISREG(os.fstat(file).st_mode):
                raise FileExistsError(errno.EEXIST, "is not a regular file", name)
            left = memoryview(op.data)
            while left:
                at = op.offset + len(op.data) - len(left)
                left = left[os.pwrite(file, left, at) :]
            if op.offset + len(op.data) >= op.file.size:
                at_ns = op.file.changed_ms * 1_000_000
                os.utime(file, ns=(at_ns, at_ns))
    except OSError as error:
        raise BackendError(
            f"the checkpoint cannot be copied to the node: {op.file.path}: {error.strerror}"
        ) from error


def is_missing(folder: str, root: str) -> bool:
    """Whether a folder is not there that was made below the node's own."""
    return folder.startswith(f"{root}/") and not Path(folder).is_dir()


def bounded(files: tuple[FileBelow, ...], *, is_all: bool) -> Listing:
    """Return as many of the files as one answer may hold."""
    left, found = LONGEST_LIST, list[FileBelow]()
    for file in files:
        path = shown(file.path)
        left -= len(path.encode()) + 32
        if left < 0:
            return Listing(tuple(found), is_all=False)
        found.append(FileBelow(path, file.size, file.changed_ms))
    return Listing(tuple(found), is_all)
