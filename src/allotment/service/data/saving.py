"""Outputs of jobs that succeeded become versions of datasets: as a whole, or not at all.

The files are read with the rights of the job's owner, as if it had put the folder itself. A
service that ends in the middle begins again: there is no version before all files are there.
"""

import asyncio
import os
import stat
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import Final

import structlog

from allotment.engine.records import JobRecord
from allotment.engine.state import State
from allotment.model import commands as c
from allotment.model.errors import BackendError, Code, Rejected
from allotment.model.ids import SYSTEM, Actor, JobId
from allotment.model.lifecycle import JobState
from allotment.rights import paths
from allotment.rights.disk import is_too_full
from allotment.rights.user import rights_of
from allotment.service.content.manifest import FileEntry, written
from allotment.service.content.receiving import UNSAID, Receiving
from allotment.service.data.datasets import Datasets
from allotment.service.files import files_below
from allotment.service.host_accounts import HostAccounts
from allotment.service.launch import Account, Folders
from allotment.service.threads import Threads

log = structlog.get_logger("allot.service")

LOOK_EVERY_S: Final = 2.0
TRIES: Final = 8
FIRST_PAUSE_S: Final = 2.0
AGAIN_S: Final = 60.0
SAVING_S: Final = 4 * 3600.0
_PIECE: Final = 1 << 20
_PASSING: Final = {Code.UNAVAILABLE, Code.UNCERTAIN, Code.CONFLICT}
Wish = Callable[[c.AnyCommand, Actor], Awaitable[object]]


class Saving:
    """Saves the outputs of jobs."""

    def __init__(self, state: State, datasets: Datasets, folders: Folders, wish: Wish) -> None:
        self._state = state
        self._datasets = datasets
        self._folders = folders
        self._wish = wish
        self._accounts = HostAccounts()
        self._threads = Threads("saving", each=1, total=4)
        self._tasks: dict[JobId, asyncio.Task[None]] = {}

    async def look(self) -> None:
        """Begin with the outputs of jobs that have succeeded since."""
        for job in self._state.jobs.values():
            is_done = job.state is JobState.SUCCEEDED and not (job.saved or job.unsaved)
            if job.spec.save and is_done and job.id not in self._tasks:
                task = asyncio.create_task(self._save(job))
                self._tasks[job.id] = task
                task.add_done_callback(lambda _, job=job.id: self._tasks.pop(job))

    async def close(self) -> None:
        """Break off; the next start begins again."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _save(self, job: JobRecord) -> None:
        """Save the outputs of one job, and note what became of it."""
        saved, why = "", ""
        try:
            saved = await self._saved_in_the_end(job)
        except Rejected as refusal:
            why = refusal.message
        except Exception as error:
            log.exception("outputs could not be saved", job=job.id)
            why = f"a bug in Allotment: {error!r}"
        if job.id not in self._state.jobs:
            return  # It is in the archive by now.
        try:
            await self._wish(c.NoteOutputs(job.id, saved, why), SYSTEM)
        except Rejected as refusal:
            log.warning("what became of outputs cannot be noted", job=job.id, why=str(refusal))
            await asyncio.sleep(AGAIN_S)  # Then it begins again.

    async def _saved_in_the_end(self, job: JobRecord) -> str:
        pause_s = FIRST_PAUSE_S
        for _ in range(TRIES - 1):
            try:
                return await self._saved(job)
            except Rejected as refusal:
                if refusal.code not in _PASSING:
                    raise
                await asyncio.sleep(pause_s)
                pause_s *= 2
        return await self._saved(job)

    async def _saved(self, job: JobRecord) -> str:
        """Return the version that a job's outputs are now. Raises Rejected."""
        name, owner = job.spec.save, job.owner
        try:
            account = await self._accounts.of(owner)
        except BackendError as error:
            raise Rejected(Code.UNAVAILABLE, f"{error}.") from error
        receiving = await self._datasets.receiving(name, owner)
        folder = self._folders.output(job.id, job.spec, job.attempts[-1].no)
        work = partial(self._taken, folder, account, receiving)
        try:
            files = await self._threads.run(owner.user, work, SAVING_S)
        except TimeoutError:
            raise Rejected(
                Code.UNAVAILABLE, f"They were not read in {SAVING_S / 3600:.0f} h."
            ) from None
        except OSError as error:
            raise Rejected(
                Code.UNAVAILABLE, f"They cannot be read or kept: {error.strerror}."
            ) from error
        done = await self._datasets.put(name, written(files), owner)
        if done.version is None:
            raise Rejected(Code.CONFLICT, "Files of the dataset went while they were saved.")
        return f"{name}@{done.version.number}"

    def _taken(self, folder: str, account: Account, receiving: Receiving) -> list[FileEntry]:
        """Put all files below a folder into the store; return the list of them."""
        most = self._state.config.limits.data_files
        try:
            with rights_of(account.identity):
                top = paths.resolve(folder)
                found, is_all = files_below(top, most)
        except FileNotFoundError:
            found, is_all, top = [], True, -1
        try:
            if not found:
                raise Rejected(Code.NOT_FOUND, "There is no file in its output folder.")
            if not is_all:
                raise Rejected(Code.TOO_LARGE, f"They are more than {most:,} files.")
            return [self._one(top, each.path, account, receiving) for each in found]
        finally:
            receiving.close()
            if top >= 0:
                os.close(top)

    def _one(self, top: int, path: str, account: Account, receiving: Receiving) -> FileEntry:
        with rights_of(account.identity):
            fd = paths.open_below(top, path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            state = os.fstat(fd)
            if not stat.S_ISREG(state.st_mode):
                raise Rejected(Code.CONFLICT, f"{path[:200]!a} changed while it was read.")
            if is_too_full(self._datasets.store.root, state.st_size, 1):
                raise Rejected(Code.UNAVAILABLE, "The disk that keeps the data is nearly full.")
            receiving.feed(bytes.fromhex(UNSAID) + state.st_size.to_bytes(8, "big"))
            for piece in _pieces(fd, state.st_size):
                receiving.feed(piece)
        finally:
            os.close(fd)
        if not receiving.is_whole:
            raise Rejected(Code.CONFLICT, f"{path[:200]!a} changed while it was read.")
        kind = "x" if state.st_mode & stat.S_IXUSR else "f"
        return FileEntry(path, kind, state.st_size, receiving.digests[-1])


def _pieces(fd: int, size: int) -> Iterator[bytes]:
    """Read as much of a file as it had when it was opened."""
    left = size
    while left and (piece := os.read(fd, min(left, _PIECE))):
        left -= len(piece)
        yield piece
