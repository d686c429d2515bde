"""Files of versions in object stores for users: read from the store as fast as they take them.

Nothing is kept of it. A version may be larger than the disk, and one that somebody looks at
once would push out what jobs need. Of each file a piece is in memory.
"""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

import msgspec

from allotment.model.datasets import Dataset, DataVersion, ObjectPlace
from allotment.model.errors import BackendError, Code, Rejected
from allotment.model.ids import Actor
from allotment.service.data.objects.bucket import Bucket, Stopped
from allotment.service.data.objects.listing import ObjectList, named
from allotment.service.data.objects.objects import Objects
from allotment.service.data.objects.trouble import Kind, StoreTrouble
from allotment.service.threads import Threads

PATIENCE_S: Final = 600.0
"""For a piece: the store is asked some times, and each has its own patience."""
IDLE_S: Final = 5.0
"""How long a connection is kept that nothing is asked over."""
_ENOUGH: Final = 256 << 10
"""Bytes for which it is worth while to begin a thread."""

Run = Callable[[Callable[[], memoryview], float], Awaitable[memoryview]]
"""Does work in a thread, with so much patience."""


class StoredFile(msgspec.Struct, frozen=True):
    """A file of a version as its store has it."""

    key: str
    size: int
    etag: str


def stored_files(listing: ObjectList, place: ObjectPlace) -> dict[str, StoredFile]:
    """Return the files of a version by the names that the list of its files has for them."""
    return {
        named(each): StoredFile(listing.key_of(each.path, place), each.size, each.etag)
        for each in listing.kept
    }


class StoreReads:
    """Opens files in object stores, with the keys of their datasets' owners."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self._threads = Threads("reading", each=8, total=32)
        self._idle: dict[str, list[Bucket]] = {}
        """Connections over which a file came as a whole, by dataset: small files are many."""

    async def open(
        self,
        dataset: Dataset,
        version: DataVersion,
        file: StoredFile,
        start: int,
        actor: Actor,
        may_read: Callable[[], bool],
    ) -> "StoreFile":
        """Open a file from a byte before its end on; its store sends it by then.

        Raises Rejected, and Stopped where it may not be read any more.
        """
        try:
            bucket = await self._objects.bucket_of(dataset, may_read)
            idle = self._idle.get(dataset.id)
            keep = partial(self._keep, dataset.id)
            run = partial(self._threads.run, actor.user)
            made = StoreFile(bucket, file, start, may_read, run, keep)
            if idle:
                made.go_on_with(idle.pop())
            try:
                await made.begin()
            except BaseException:
                await made.close()
                raise
        except StoreTrouble as trouble:
            raise _refusal(trouble, dataset, version) from trouble
        except BackendError as error:
            raise Rejected(Code.UNAVAILABLE, f"{error}.", "Get it again.") from error
        return made

    def _keep(self, dataset: str, bucket: Bucket) -> None:
        """Keep a connection for a moment."""
        idle = self._idle.setdefault(dataset, [])
        idle.append(bucket)

        def over() -> None:
            if bucket in idle:
                idle.remove(bucket)
                bucket.close()
            if not idle:
                self._idle.pop(dataset, None)

        asyncio.get_running_loop().call_later(IDLE_S, over)


class StoreFile:
    """A file in an object store, open for reading from a place on."""

    def __init__(
        self,
        bucket: Bucket,
        file: StoredFile,
        start: int,
        may_read: Callable[[], bool],
        run: Run,
        keep: Callable[[Bucket], None],
    ) -> None:
        self.name = file.key.rpartition("/")[2]
        self.start = start
        self.size = file.size - start
        self._is_open = True
        self._bucket = bucket.another(lambda: self._is_open and may_read())
        self._pieces = self._bucket.read(file.key, file.size, file.etag, start)
        self._run = run
        self._keep = keep
        self._left = self.size
        self._held = memoryview(b"")

    def go_on_with(self, idle: Bucket) -> None:
        """Use a connection that is there, if it is to the same store with the same key."""
        self._bucket.adopt(idle)

    async def begin(self) -> None:
        """Have its first bytes here. Raises StoreTrouble, Stopped and BackendError."""
        try:
            self._held = await self._run(self._next, PATIENCE_S)
        except TimeoutError:
            raise BackendError(f"{self._bucket.host} does not answer in time") from None

    async def read(self, most: int) -> bytes:
        """Return the next bytes; none at the end. Raises BackendError."""
        if not self._held:
            try:
                await self.begin()
            except (StoreTrouble, Stopped) as error:
                raise BackendError(str(error) or "nobody may read it any more") from error
        piece, self._held = self._held[:most], self._held[most:]
        return bytes(piece)

    def _next(self) -> memoryview:
        held, size = list[bytes](), 0
        for piece in self._pieces:
            held.append(piece)
            size += len(piece)
            self._left -= len(piece)
            if size >= _ENOUGH and self._left:
                break
        return memoryview(b"".join(held))

    async def close(self) -> None:
        """Break off what is not read yet."""
        self._is_open = False
        if self._left:
            self._bucket.close()
        else:
            self._keep(self._bucket)


def _refusal(trouble: StoreTrouble, dataset: Dataset, version: DataVersion) -> Rejected:
    """Return what trouble means for a user, in place of a job."""
    if trouble.kind not in {Kind.GONE, Kind.CHANGED}:
        return trouble.refusal()
    again = (
        f"`allot data put {dataset.name} DIR` of the same files brings it back."
        if version.put
        else f"Without @{version.number} you get the present objects."
    )
    return Rejected(trouble.matter.refusal, trouble.cause, again)
