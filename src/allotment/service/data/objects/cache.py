"""What was fetched from object stores: whole versions, each laid out once for all its tasks.

A version gets its place when all its files are on the disk, and not before. What is on its
way lies elsewhere, and is thrown away when the service starts; files that came whole stay, and
are not fetched again. All of it together has a bound: versions that were used least recently
go, never one of a job that runs or starts.
"""

import errno
import hashlib
import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Final

import msgspec

from allotment.model.quantity import show_bytes
from allotment.rights.disk import is_too_full
from allotment.rights.flushing import begin_flush, flush
from allotment.service.content.manifest import Manifest, folders_of, read
from allotment.service.content.shelf import BLOCK, Full, Room, blocks, is_there
from allotment.service.data.objects.bucket import Bucket
from allotment.service.data.objects.lanes import in_lanes, taken
from allotment.service.data.objects.listing import Object, ObjectList, files_of, named
from allotment.service.data.objects.trouble import Kind, StoreTrouble
from allotment.service.data.store import DataStore

CONNECTIONS: Final = 8
"""For one version at a time."""
_FLUSH_EVERY: Final = 16 << 20
_KEEP_EVERY: Final = 256 << 20
_KEEP_FILES: Final = 256
_NO_ROOM: Final = {errno.ENOSPC, errno.EDQUOT}


class DiskTrouble(Exception):
    """The disk does not take what comes; the text is what the system says of it."""


class Version(msgspec.Struct, frozen=True):
    """A version of a dataset in an object store. `id` is the dataset's."""

    id: str
    digest: str


class Seen(msgspec.Struct, frozen=True):
    """What a store has, all of which can be files; `digest` is of the list of them."""

    listing: ObjectList
    digest: str


class Wanted(msgspec.Struct, frozen=True):
    """What of a version is to be fetched."""

    version: Version
    listing: ObjectList
    manifest: Manifest
    missing: tuple[Object, ...]
    size: int
    """What that, and its folders, will take of the disk."""


class Reserved:
    """Room for what comes, given back piece by piece as it is counted as what is here."""

    def __init__(self, room: Room, size: int) -> None:
        """Note it; so much was reserved."""
        self._room = room
        self._left = size
        self._turn = threading.Lock()

    def release(self, size: int | None = None) -> None:
        """Let go of some of the room, or of all that is left."""
        with self._turn:
            given = self._left if size is None else min(size, self._left)
            self._left -= given
        self._room.release(given)


class ObjectCache:
    """Versions that were fetched. Calls block, and may come from several threads."""

    def __init__(
        self, store: DataStore, most: Callable[[], int], datasets: Callable[[], Collection[str]]
    ) -> None:
        """Make it; `most` bytes it may take, and `datasets` are the ids of its datasets."""
        self._store = store
        self._most = most
        self._datasets = datasets
        self.room = Room(most, self.used)

    def used(self) -> int:
        """Return what all of it takes of the disk."""
        return sum(self._store.shelf(each).used() for each in self._datasets())

    # ── what there is ───────────────────────────────────────────────────────────────

    def note(self, dataset: str, seen: Seen, room: Room) -> None:
        """Keep what a store has. What is kept already needs no room.

        What was put again may have other ETags than before. Raises Full and OSError.
        """
        shelf, again = self._store.seen(dataset), bool(seen.listing.folder)
        if is_there(shelf.list_file(seen.digest)) and not again:
            return
        data = msgspec.json.encode(seen.listing)
        if not room.reserve(blocks(len(data))):
            raise Full
        try:
            shelf.note_list(seen.digest, data, again=again)
        finally:
            room.release(blocks(len(data)))

    def manifest(self, dataset: str, digest: str) -> Manifest:
        """Return the files of a version. Raises FileNotFoundError."""
        return read(self.list_of(dataset, digest))

    def list_of(self, dataset: str, digest: str) -> bytes:
        """Return the list of them. Raises FileNotFoundError."""
        return files_of(self.listing(dataset, digest))

    def listing(self, dataset: str, digest: str) -> ObjectList:
        """Return what the store has of a version. Raises FileNotFoundError."""
        path = self._store.seen(dataset).list_file(digest)
        return msgspec.json.decode(path.read_bytes(), type=ObjectList)

    def is_here(self, version: Version) -> bool:
        """Whether a version is here as a whole; it then counts as used just now."""
        try:
            os.utime(self._store.tree(version.id, version.digest))
        except FileNotFoundError:
            return False
        return True

    # ── fetching ────────────────────────────────────────────────────────────────────

    def wanted(self, version: Version) -> Wanted:
        """Return what is to be fetched. Raises FileNotFoundError, and StoreTrouble."""
        listing = self.listing(version.id, version.digest)
        data = files_of(listing)
        manifest = read(data)
        missing = set(self._store.shelf(version.id).missing(manifest))
        objects = tuple(each for each in listing.kept if named(each) in missing)
        size = sum(blocks(each.size) for each in objects)
        size += sum(blocks(each.size) for each in listing.kept if each.kind == "x")
        size += BLOCK * (1 + len(folders_of(manifest.files)))
        if size > self._most():
            raise StoreTrouble(
                Kind.TOO_LARGE,
                f"It is {show_bytes(size)}, and all that may be kept here from object stores "
                f"is {show_bytes(self._most())}.",
            )
        if is_too_full(self._store.root, size, len(objects)):
            raise StoreTrouble(
                Kind.NO_ROOM,
                f"The disk has no room for {show_bytes(size)} more.",
            )
        return Wanted(version, listing, manifest, objects, size)

    def fetch(
        self,
        wanted: Wanted,
        reserved: Reserved,
        bucket_for: Callable[[Callable[[], bool]], Bucket],
        is_wanted: Callable[[], bool],
    ) -> None:
        """Fetch what is missing, over several connections. Room for it is reserved.

        Raises StoreTrouble, DiskTrouble and Stopped.
        """
        left = deque(sorted(wanted.missing, key=lambda each: (-each.size, each.path)))

        def work(goes_on: Callable[[], bool]) -> None:
            bucket = bucket_for(goes_on)
            _Worker(self._store, wanted, reserved, bucket).take_from(left, goes_on)

        in_lanes(min(CONNECTIONS, len(left)), work, is_wanted)

    def lay_out(self, wanted: Wanted) -> None:
        """Make a version of files that are here; durable on return. Raises as `fetch`.

        Its room is reserved with that of the files, and is not asked for again.
        """
        version, reserved = wanted.version, Room(lambda: sys.maxsize, lambda: 0)
        try:
            self._store.lay_out(version.id, wanted.manifest, version.digest, reserved)
        except OSError as error:
            raise disk_trouble(error) from error

    # ── what goes ───────────────────────────────────────────────────────────────────

    def by_use(self) -> list[Version]:
        """List the versions here, those used least recently first."""
        found = [
            (when, Version(dataset, digest))
            for dataset in self._datasets()
            for when, digest in self._store.trees(dataset)
        ]
        found.sort(key=lambda pair: (pair[0], pair[1].id, pair[1].digest))
        return [version for _, version in found]

    def take_away(self, version: Version) -> Path | None:
        """Take a version away, at once: from now on it is not here."""
        try:
            return self._store.take_away(version.id, version.digest)
        except FileNotFoundError:
            return None

    def free(self, version: Version, gone: Path, is_needed: Callable[[str], bool]) -> None:
        """Remove a version that was taken away; files that are needed meanwhile stay."""
        try:
            names = [named(each) for each in self.listing(version.id, version.digest).kept]
        except FileNotFoundError:
            names = []  # The sweep finds them.
        self._store.free(version.id, gone, version.digest, names, is_needed)


class _Worker:
    """One connection, and what came over it that is not kept yet."""

    def __init__(
        self, store: DataStore, wanted: Wanted, reserved: Reserved, bucket: Bucket
    ) -> None:
        self._store = store
        self._shelf = store.shelf(wanted.version.id)
        self._listing = wanted.listing
        self._reserved = reserved
        self._bucket = bucket
        self._whole: list[tuple[Path, Object]] = []
        """Files that came, and may not be on the disk yet."""

    def take_from(self, left: "deque[Object]", goes_on: Callable[[], bool]) -> None:
        """Fetch one after the other until none is left."""
        try:
            for each in taken(left):
                if not goes_on():
                    break
                self._fetch(each)
                size = sum(one.size for _, one in self._whole)
                if size >= _KEEP_EVERY or len(self._whole) >= _KEEP_FILES:
                    self._keep()
            self._keep()
        except OSError as error:
            raise disk_trouble(error) from error
        finally:
            self._bucket.close()
            for path, _ in self._whole:
                path.unlink(missing_ok=True)

    def _fetch(self, each: Object) -> None:
        if is_too_full(self._store.root, each.size, 1):
            raise StoreTrouble(
                Kind.NO_ROOM, "The disk is nearly full, and the service needs the rest."
            )
        path = self._shelf.fresh.path()
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        self._whole.append((path, each))
        with os.fdopen(fd, "wb", buffering=0) as file:
            done = flushed = 0
            digest = hashlib.sha256()
            key = self._listing.key_of(each.path, self._bucket.place)
            for piece in self._bucket.read(key, each.size, each.etag):
                if each.of:
                    digest.update(piece)
                view = memoryview(piece)
                while view:
                    view = view[file.write(view) :]
                done += len(piece)
                if done - flushed >= _FLUSH_EVERY:
                    begin_flush(file.fileno(), flushed, done - flushed)
                    flushed = done
            if each.of and digest.hexdigest() != each.of:
                raise StoreTrouble(
                    Kind.CHANGED,
                    f"s3://{self._bucket.place.bucket}/{key} is not what was put there.",
                    f"Find out who writes to {self._bucket.place}, and put it again.",
                )

    def _keep(self) -> None:
        """Put what came under its names, once it is on the disk."""
        if not self._whole:
            return
        flush(self._shelf.fresh.folder)
        while self._whole:
            path, each = self._whole[-1]
            self._shelf.keep_file(path, named(each))
            self._reserved.release(blocks(each.size))
            self._whole.pop()


def disk_trouble(error: OSError) -> Exception:
    """Return what it means that the disk does not take something."""
    if error.errno in _NO_ROOM:
        return StoreTrouble(Kind.NO_ROOM, "The disk is full.")
    return DiskTrouble((error.strerror or str(error)).lower())
