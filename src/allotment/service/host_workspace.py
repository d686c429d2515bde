"""The workspace of engines whose nodes see the service's disk: it works on that disk itself.

What lies below the state folder is on a local disk, and is used at once. What is its user's
may lie where nobody answers: it is used in threads (docs/adr/0011).
"""

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from time import monotonic
from typing import TypeVar

from allotment.model.errors import BackendError, Code, Rejected
from allotment.model.ids import Actor, JobId
from allotment.service.batch.files import File
from allotment.service.files import Found, files_left, open_left
from allotment.service.folders import account_of, forget, make, rewrite
from allotment.service.job_reports import changed_in
from allotment.service.launch import Folders
from allotment.service.ports import Identity
from allotment.service.threads import Threads
from allotment.service.workspace import Changed, FileBelow, JobFolders, Left, OpenFile, Watched

MAKE_S = 30.0
"""How long a file system may take to make a folder."""
LAST_S = 5.0
"""How long the end of a job waits for its file to be read."""
READ_S = 60.0
"""How long a look at what a job left may take."""

KNOWN_S = 60.0
"""For how long it stays known who a user is, after it was last wanted."""

T = TypeVar("T")


class HostWorkspace:
    """The folders of jobs, as this host sees them."""

    def __init__(self, root: str, read_s: float = READ_S) -> None:
        self.folders = Folders(root)
        self._read_s = read_s
        self._making = Threads("folders")
        self._looking = Threads("reports", each=16)
        self._reading = Threads("files")
        self._who: dict[Actor, tuple[Identity | None, float]] = {}
        """Who users are, and when that was last wanted."""

    async def prepare(self, nodes: Sequence[str], wanted: JobFolders) -> None:
        work = partial(make, wanted, self.folders.root)
        if not wanted.named and wanted.identity is None:
            work()
            return
        try:
            await self._making.run(wanted.user, work, MAKE_S)
        except TimeoutError:
            where = " or ".join(wanted.named) or "its outputs"
            raise BackendError(
                f"the folders of job {wanted.job} were not made in {MAKE_S:.0f} s: the file "
                f"system of {where} does not answer"
            ) from None

    async def write(self, nodes: Sequence[str], job: JobId, files: Mapping[str, File]) -> None:
        rewrite(job, files, self.folders.root)

    def look_now(self, watched: Watched) -> Sequence[Changed] | None:
        is_near = watched.uid is None and watched.file.startswith(f"{self.folders.root}/")
        return changed_in([(watched, None)]) if is_near else None

    async def look(
        self, node: str, watched: Sequence[Watched], patience_s: float
    ) -> Sequence[Changed]:
        def work() -> Sequence[Changed]:
            return changed_in((each, self._identity(each)) for each in watched)

        return await self._looking.run(watched[0].owner.user, work, patience_s)

    async def last_look(self, node: str, watched: Watched) -> Sequence[Changed]:
        return await self.look(node, [watched], LAST_S)

    def warnings_of(self, job: JobId) -> tuple[str, ...]:  # noqa: ARG002 - all is in place
        return ()

    def _identity(self, watched: Watched) -> Identity | None:
        """Return whose rights to use. May block: the host is not asked again while jobs run."""
        if watched.uid is None:
            return None
        now = monotonic()
        identity, wanted_at = self._who.get(watched.owner, (None, now - 2 * KNOWN_S))
        if now - wanted_at > KNOWN_S:
            identity = account_of(watched.owner).identity
        self._who[watched.owner] = identity, now
        return identity

    async def files(self, left: Left, most: int) -> tuple[Sequence[FileBelow], bool]:
        return await self.read(left, lambda: files_left(left, most))

    async def open_file(self, left: Left, path: str) -> OpenFile | None:
        found = await self.read(left, lambda: open_left(left, path))
        return HostFile(found) if found is not None else None

    async def read(self, left: Left, work: Callable[[], T]) -> T:
        """Do work on what a job left, in a thread. Raises Rejected if it takes too long."""
        try:
            return await self._reading.run(left.asked_by, work, self._read_s)
        except TimeoutError:
            raise silent_files(self._read_s) from None

    async def forget(self, job: JobId) -> None:
        """Remove what a job left below the state folder."""
        await asyncio.to_thread(forget, job, self.folders)


class HostFile:
    """A file of this host, open for reading."""

    def __init__(self, found: Found, start: int = 0) -> None:
        """Make it; it is read from `start` on, which is before its end."""
        self.name = found.name
        self.start = start
        self.size = found.size - start
        self._fd = found.fd
        if start:
            os.lseek(found.fd, start, os.SEEK_SET)

    async def read(self, most: int) -> bytes:
        return await asyncio.to_thread(os.read, self._fd, most)

    async def close(self) -> None:
        os.close(self._fd)


def silent_files(after_s: float) -> Rejected:
    """Return the error that a file system does not answer."""
    return Rejected(
        Code.UNAVAILABLE,
        f"The file system did not answer within {after_s:.0f} s.",
        "Check whether its server answers, and try again.",
    )
