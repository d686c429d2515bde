"""Puts what came to the service into an object store, as a version of a dataset.

Each version has a folder of its own, named by what is in it, and there the list of its files
comes last. So what is cut goes on where it was: files that are there as a whole are not sent
again. Nothing is overwritten that another version has. What did not change since the newest
version is copied by the store itself.
"""

import asyncio
import os
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from time import monotonic
from typing import Final, NamedTuple
from weakref import WeakValueDictionary

import msgspec

from allotment.engine.state import State
from allotment.model.datasets import Dataset, DataVersion
from allotment.model.errors import BackendError, Code, Rejected
from allotment.model.ids import Actor
from allotment.service.content.manifest import (
    FileEntry,
    Manifest,
    digest_of,
    needs,
    size_of,
)
from allotment.service.content.shelf import Shelf
from allotment.service.data.objects.bucket import Bucket, Stopped
from allotment.service.data.objects.cache import Seen
from allotment.service.data.objects.lanes import LANES, in_lanes, taken
from allotment.service.data.objects.listing import COMPLETE, Object, ObjectList, put_folders
from allotment.service.data.objects.objects import Objects
from allotment.service.data.objects.parts import (
    ChangedMeanwhile,
    known,
    send,
)
from allotment.service.data.objects.trouble import Kind, StoreTrouble
from allotment.service.data.objects.unfinished import Unfinished
from allotment.service.data.view import DataPut
from allotment.service.threads import Threads

PUTTING_S: Final = 4 * 3600.0
ENDING_S: Final = 600.0
"""How long it may take to break off what is being sent, and its upload at the store."""
_PIECE: Final = 1 << 20
_MOST_COPIED: Final = 1 << 30
"""Bytes of one object that a store copies while one waits for its answer."""


class StorePuts:
    """Versions that people put into object stores."""

    def __init__(self, state: State, objects: Objects, shelf: Callable[[str], Shelf]) -> None:
        """Make it; on the `shelf` of a dataset's id lie the files that came for it."""
        self._state = state
        self._objects = objects
        self._shelf = shelf
        self._threads = Threads("putting", each=2, total=4)
        self._turns = WeakValueDictionary[tuple[str, str], asyncio.Lock]()
        """By dataset and version: the same files twice at once are sent once."""
        self._sent: dict[tuple[str, str], _Sent] = {}
        """By dataset and version."""

    def under_way(self, dataset: str) -> tuple[DataPut, ...]:
        """Return the versions of a dataset that go to its store now, by the dataset's id."""
        return tuple(
            DataPut(digest, sent.user, sent.total, sent.bytes)
            for (id_, digest), sent in tuple(self._sent.items())
            if id_ == dataset
        )

    async def put(
        self,
        dataset: Dataset,
        data: bytes,
        manifest: Manifest,
        actor: Actor,
        is_wanted: Callable[[], bool],
    ) -> DataVersion | list[str]:
        """Return the version of which these are the files, or the digests of missing ones.

        Goes on where it was cut. Raises Rejected, and Stopped where it is not wanted any more.
        """
        digest, putting = digest_of(data), self._objects.putting
        turn = self._turns.setdefault((dataset.id, digest), asyncio.Lock())
        putting[dataset.id] += 1
        try:
            async with turn:
                offer = _Offer(digest, data, manifest, actor, is_wanted)
                return await self._alone(dataset, offer)
        finally:
            putting[dataset.id] -= 1

    async def _alone(self, dataset: Dataset, offer: "_Offer") -> DataVersion | list[str]:
        if not offer.is_wanted():
            raise Stopped
        dataset = self._state.datasets.get((dataset.tenant, dataset.name), dataset)
        newest = dataset.version(0)
        if newest is not None and newest.put and newest.digest == offer.digest:
            return newest
        if any(file.path == COMPLETE for file in offer.manifest.files):
            raise Rejected(
                Code.BAD_REQUEST,
                f"{COMPLETE} is what the list of the files is called in an object store.",
                "Give the file another name.",
            )
        put = await self._brought(dataset, offer)
        if not isinstance(put, ObjectList):
            return put
        if not offer.is_wanted():
            raise Stopped
        version = await self._objects.noted(
            dataset, Seen(put, offer.digest), offer.actor, put=True
        )
        if self._objects.putting[dataset.id] == 1:  # Others may put the same files just now.
            clear = partial(self._clear, dataset, offer.manifest)
            await self._threads.run(offer.actor.user, clear, PUTTING_S)
        return version

    async def _brought(self, dataset: Dataset, offer: "_Offer") -> ObjectList | list[str]:
        """Have a version in its store, or return what is missing. Raises as `put`."""
        end = monotonic() + PUTTING_S

        def goes_on() -> bool:
            return offer.is_wanted() and monotonic() < end

        try:
            # What else is there is a version of its own, older than this one.
            await self._objects.present(dataset, offer.actor)
            bucket = await self._objects.bucket_of(dataset, goes_on)
            sent = self._sent[dataset.id, offer.digest] = _Sent(
                offer.actor.user, size_of(offer.manifest.files)
            )
            work = partial(self._put, dataset, offer.data, offer.manifest, bucket, sent)
            # It ends by itself: what came for it stays until then, and no other begins with it.
            return await self._threads.run(offer.actor.user, work, PUTTING_S + ENDING_S)
        except StoreTrouble as trouble:
            raise trouble.refusal() from trouble
        except BackendError as error:
            raise Rejected(Code.UNAVAILABLE, f"{error}.", "Put it again.") from error
        except (TimeoutError, Stopped):
            if not offer.is_wanted():
                raise Stopped from None
            raise Rejected(
                Code.UNAVAILABLE,
                f"It was not put to {dataset.objects} in {PUTTING_S / 3600:.0f} h.",
                "Put it again: files that arrived complete are not sent twice.",
            ) from None
        finally:
            self._sent.pop((dataset.id, offer.digest), None)

    def _clear(self, dataset: Dataset, manifest: Manifest) -> None:
        """Remove what came for a version that the store has now."""
        shelf = self._shelf(dataset.id)
        for digest in needs(manifest.files):
            shelf.discard(digest, lambda _: False)
        shelf.count_anew()

    def _put(
        self, dataset: Dataset, data: bytes, manifest: Manifest, bucket: Bucket, sent: "_Sent"
    ) -> ObjectList | list[str]:
        """Put all files of a version; return how the store has them, or what is missing."""
        with closing(bucket):
            folder = f"{put_folders(dataset.id)}{digest_of(data)[:16]}"
            at = ObjectList((), folder=folder)
            there = _there(bucket, at)
            wanted = [
                file
                for file in manifest.files
                if file.kind != "l" and there.get(file.path, ("", -1))[1] != file.size
            ]
            sent.count("", 0, sent.total - size_of(wanted))
            work = _Putting(
                bucket, at, self._shelf(dataset.id), self._copyable(dataset),
                partial(self._objects.begun, dataset, is_upload=True), sent,
            )  # fmt: skip
            if missing := work.missing(wanted):
                return missing
            work.all(wanted)
            if work.gone:
                return sorted(work.gone)
            if wanted or COMPLETE not in there:
                key = at.key_of(COMPLETE, bucket.place)
                bucket.put(key, len(data), digest_of(data), lambda: iter([data]))
            return _as_put(bucket, at, manifest)

    def _copyable(self, dataset: Dataset) -> dict[str, tuple[str, str]]:
        """Return where the store has files of the newest version that was put, by digest.

        Each with its ETag.
        """
        assert dataset.objects is not None
        newest = next((each for each in reversed(dataset.versions) if each.put), None)
        if newest is None:
            return {}
        try:
            listing = self._objects.cache.listing(dataset.id, newest.digest)
        except FileNotFoundError:  # The books are those of a backup.
            return {}
        return {
            each.of: (listing.key_of(each.path, dataset.objects), each.etag)
            for each in listing.kept
            if each.size <= _MOST_COPIED
        }


class _Offer(NamedTuple):
    """A version that a user puts: the list of its files, as it came and as it was read."""

    digest: str
    data: bytes
    manifest: Manifest
    actor: Actor
    is_wanted: Callable[[], bool]


class _Sent:
    """How much of a version its store has. Lanes count, each of parts of its own."""

    def __init__(self, user: str, total: int) -> None:
        self.user = user
        self.total = total
        self._counted: dict[tuple[str, int], int] = {}

    def count(self, path: str, offset: int, size: int) -> None:
        """Note how much is there of what begins at a place of a file. It may begin anew."""
        self._counted[path, offset] = size

    @property
    def bytes(self) -> int:
        return sum(tuple(self._counted.values()))


class _Putting:
    """The files of one version on their way into a store."""

    def __init__(
        self,
        bucket: Bucket,
        at: ObjectList,
        shelf: Shelf,
        copyable: dict[str, tuple[str, str]],
        begun: Callable[[str], Unfinished],
        sent: _Sent,
    ) -> None:
        self._sent = sent
        self._bucket = bucket
        self._at = at
        self._shelf = shelf
        self._copyable = copyable
        self._begun = begun
        self.gone = set[str]()
        """What nobody has any more, and is to come again."""

    def missing(self, files: list[FileEntry]) -> list[str]:
        """Return the digests of what is neither here nor can be copied."""
        wanted = dict.fromkeys(file.of for file in files)
        return [
            digest
            for digest in wanted
            if digest not in self._copyable and not self._shelf.has_file(digest)
        ]

    def all(self, files: list[FileEntry]) -> None:
        """Put files, over several connections. Raises StoreTrouble and Stopped."""
        left = deque(sorted(files, key=lambda file: -file.size))

        def work(goes_on: Callable[[], bool]) -> None:
            with closing(self._bucket.another(goes_on)) as bucket:
                for file in taken(left):
                    self._one(bucket, file)

        in_lanes(min(LANES, len(left)), work, lambda: self._bucket.is_wanted)

    def _one(self, bucket: Bucket, file: FileEntry) -> None:
        key = self._at.key_of(file.path, bucket.place)
        try:
            fd = os.open(self._shelf.file(file.of), os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            if self._is_copied(bucket, file.of, key):
                self._sent.count(file.path, 0, file.size)
            else:
                self.gone.add(file.of)
            return
        try:
            whole, counts = known(file.size, file.of), partial(self._sent.count, file.path)
            send(bucket, key, whole, partial(_reads, fd), self._begun, counts)
        except ChangedMeanwhile:  # A disk that fails: what it has is not what came.
            self._shelf.discard(file.of, lambda _: False)
            self.gone.add(file.of)
        finally:
            os.close(fd)

    def _is_copied(self, bucket: Bucket, digest: str, key: str) -> bool:
        source = self._copyable.get(digest)
        if source is None:
            return False
        try:
            bucket.copy(*source, key)
        except StoreTrouble:  # It went, or the store copies nothing: then it comes again.
            return False
        return True


def _reads(fd: int, offset: int, size: int) -> Iterator[bytes]:
    end = offset + size
    while offset < end:
        try:
            piece = os.pread(fd, min(end - offset, _PIECE), offset)
        except OSError as error:  # else it would be the store's
            raise ChangedMeanwhile from error
        if not piece:
            raise ChangedMeanwhile
        offset += len(piece)
        yield piece


def _there(bucket: Bucket, at: ObjectList) -> dict[str, tuple[str, int]]:
    """Return the ETags and sizes of what is in the folder of a version."""
    start = at.key_of("", bucket.place) + "/"
    found = bucket.below(start)
    return {each.path.removeprefix(start): (each.etag, each.size) for each in found}


def _as_put(bucket: Bucket, at: ObjectList, manifest: Manifest) -> ObjectList:
    """Return a version as the store has it now. Raises StoreTrouble where that is not all."""
    there = _there(bucket, at)
    objects: list[Object] = []
    for file in manifest.files:
        etag, size = there.get(file.path, ("", file.size if file.kind == "l" else -1))
        if file.kind != "l" and size != file.size:
            key = at.key_of(file.path, bucket.place)
            raise StoreTrouble(
                Kind.CHANGED,
                f"s3://{bucket.place.bucket}/{key} is not there, though it was put.",
                "Put it again; if that does not help, find out what removes objects there.",
            )
        objects.append(Object(file.path, file.size, etag, file.kind, file.of))
    return msgspec.structs.replace(at, objects=tuple(objects))
