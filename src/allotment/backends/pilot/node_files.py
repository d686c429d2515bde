"""The agent's answers about files of jobs on its node's own disk."""

import os
from pathlib import Path

from allotment.backends.local.backend import LocalBackend
from allotment.backends.pilot.file_messages import (
    LONGEST_LIST,
    PIECE,
    FileOp,
    ForgetFiles,
    ListFiles,
    Listing,
    LookAt,
    MakeFolders,
    Part,
    ReadFile,
    WriteFiles,
)
from allotment.model.errors import BackendError, Rejected
from allotment.service.files import open_left, shown
from allotment.service.host_workspace import HostWorkspace
from allotment.service.workspace import FileBelow, Watched

LOOK_S = 15.0
"""Shorter than the service waits for any answer: a silent file system is not a silent node."""


class NodeFiles:
    """The folders of jobs below the node's folder."""

    def __init__(self, folder: Path, backend: LocalBackend) -> None:
        self._here = HostWorkspace(str(folder), LOOK_S)
        self._backend = backend

    async def do(self, op: FileOp) -> object:
        """Carry out one order. Raises BackendError."""
        match op:
            case MakeFolders(wanted):
                await self._here.prepare((), wanted)
            case WriteFiles(job, files):
                await self._here.write((), job, files)
            case LookAt(watched):
                return await self._look(watched)
            case ListFiles(left, most):
                try:
                    files, is_all = await self._here.files(left, most)
                except Rejected as error:
                    raise BackendError(error.message) from error
                return bounded(tuple(files), is_all=is_all)
            case ReadFile():
                return await self._read(op)
            case ForgetFiles(jobs):
                for job in jobs:
                    await self._backend.forget(job)
                    await self._here.forget(job)
        return None

    async def _look(self, watched: tuple[Watched, ...]) -> object:
        try:
            return await self._here.look("", watched, LOOK_S)
        except TimeoutError:
            raise BackendError("the file system of its checkpoints does not answer") from None

    async def _read(self, op: ReadFile) -> Part:
        def piece() -> Part:
            found = open_left(op.left, op.path)
            if found is None:
                return Part(code="not_found", message="there is no such folder")
            try:
                data = os.pread(found.fd, min(op.size, PIECE), op.offset)
                return Part(data, found.size, os.fstat(found.fd).st_ino)
            finally:
                os.close(found.fd)

        try:
            return await self._here.read(op.left, piece)
        except Rejected as error:
            return Part(code=error.code.value, message=error.message, hint=error.hint)


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
