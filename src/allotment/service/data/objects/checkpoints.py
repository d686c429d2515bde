"""Checkpoints in object stores: each below a name of its own, the list of its files last.

What lies below such a name without that list is no checkpoint, so what a service that was
killed had put is never seen, and the next one of the same job takes it away. Of whole ones go
those alone that are named: a service whose books come from a backup does not know them all.
"""

import contextlib
import os
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

import msgspec
import structlog

from allotment.engine.state import State
from allotment.model.datasets import Dataset, DataVersion, JobCheckpoint
from allotment.model.errors import BackendError, Code, Rejected
from allotment.model.ids import Actor, JobId
from allotment.service.content.manifest import digest_of
from allotment.service.data.objects.bucket import Bucket, Stopped
from allotment.service.data.objects.cache import Seen
from allotment.service.data.objects.listing import COMPLETE, ObjectList, files_of
from allotment.service.data.objects.objects import LISTING_S, Objects
from allotment.service.data.objects.signing import EMPTY
from allotment.service.data.objects.trouble import Kind, StoreTrouble
from allotment.service.data.objects.unfinished import Unfinished
from allotment.service.threads import Threads

log = structlog.get_logger("allot.service")

DELETING_S: Final = 3600.0
_PROBE: Final = ".allot-may-write-"


class StoreCheckpoints:
    """Keeps checkpoints of jobs in object stores."""

    def __init__(self, state: State, objects: Objects) -> None:
        self._state = state
        self._objects = objects
        self._threads = Threads("checkpoints", each=2, total=4)
        # Apart from those that delete: slow stores must not hold up submissions of others.
        self._tries = Threads("stores tried", each=2, total=8)

    async def check(self, dataset: Dataset, actor: Actor) -> None:
        """Try whether objects can be put and removed. Raises Rejected.

        Else that would be told when the first checkpoint is there, or never.
        """
        try:
            bucket = await self._objects.bucket_of(dataset, for_seconds(2 * LISTING_S))
            key = _below(dataset, f"{_PROBE}{os.urandom(8).hex()}")
            begun = partial(self._objects.begun, dataset, key, is_upload=False)
            work = partial(_tried, bucket, key, begun)
            await self._tries.run(actor.user, work, 2 * LISTING_S)
        except StoreTrouble as trouble:
            raise trouble.refusal() from trouble
        except (BackendError, OSError, Stopped) as error:
            raise Rejected(
                Code.UNAVAILABLE, f"{dataset.objects} was not tried: {error}.", "Try again."
            ) from error

    async def close(
        self, dataset: Dataset, folder: str, actor: Actor, of: JobCheckpoint
    ) -> DataVersion:
        """Make what was put below a folder the next version. Raises Rejected."""
        assert dataset.objects is not None
        place = msgspec.structs.replace(dataset.objects, prefix=_below(dataset, folder))
        seen = await self._objects.look(place, Actor(dataset.user, dataset.uid), actor)
        if seen is None:
            raise Rejected(Code.CONFLICT, f"What was put to {place} is not there any more.")
        listing = ObjectList(
            tuple(
                msgspec.structs.replace(each, path=f"{folder}/{each.path}")
                for each in seen.listing.objects
            )
        )
        whole = Seen(listing, digest_of(files_of(listing)))
        return await self._objects.noted(dataset, whole, actor, of)

    async def leave(
        self,
        dataset: Dataset,
        job: JobId,
        owner: Actor,
        old: Sequence[DataVersion] = (),
        failed: str = "",
    ) -> list[DataVersion]:
        """Remove the objects of old checkpoints of a job, and parts that were cut off.

        `failed` is the folder of one that became no version. Returns the old versions that
        need nothing of the store any more; those that jobs use, or that cannot go now, go
        another time.
        """
        dataset = self._state.datasets.get((dataset.tenant, dataset.name), dataset)
        used = self._used(dataset)
        gone = [each for each in old if each.digest not in used]
        digests = {each.digest for each in gone}
        needed = used | {each.digest for each in dataset.checkpoints_of(job)} - digests
        try:
            bucket = await self._objects.bucket_of(dataset, for_seconds(DELETING_S))
            start = _below(dataset, name_of(job, dataset.id))
            folders = partial(self._named, dataset, digests, needed, failed)
            work = partial(clear, bucket, start, folders)
            await self._threads.run(owner.user, work, DELETING_S)
        except (StoreTrouble, Stopped, BackendError, OSError) as error:
            log.warning("old checkpoints stay", job=job, dataset=dataset.full, why=str(error))
            return []
        return gone

    def _used(self, dataset: Dataset) -> set[str]:
        """Return the digests of what jobs use of a dataset that have not ended: O(jobs)."""
        return {
            use.digest
            for job in self._state.jobs.values()
            if not job.state.finished
            for use in job.spec.data
            if (use.tenant, use.name) == (dataset.tenant, dataset.name)
        }

    def _named(
        self, dataset: Dataset, gone: set[str], needed: set[str], failed: str
    ) -> tuple[set[str], set[str]]:
        """Return the folders that are to go, and those that are to stay.

        Raises FileNotFoundError where nobody knows what has to stay.
        """
        stay = {name for digest in needed for name in self._folders(dataset, digest)}
        go = {failed} if failed else set[str]()
        for digest in gone:
            with contextlib.suppress(FileNotFoundError):  # Nobody knows which they were.
                go |= self._folders(dataset, digest)
        return go - stay, stay

    def _folders(self, dataset: Dataset, digest: str) -> set[str]:
        """Return the folders at the top of a version. Raises FileNotFoundError."""
        files = self._objects.cache.manifest(dataset.id, digest).files
        return {each.path.partition("/")[0] for each in files}


def name_of(job: JobId, dataset: str) -> str:
    """Return what the folders of a job's checkpoints begin with. `dataset` is its id."""
    return f"allot-checkpoint-{job}-{dataset[:8]}-"


def new_folder(job: JobId, dataset: str) -> str:
    """Return a folder for one more: nothing that is there is ever overwritten."""
    return f"{name_of(job, dataset)}{os.urandom(8).hex()}"


def for_seconds(seconds: float) -> Callable[[], bool]:
    """Return whether there is still time, asked as often as one likes from now on."""
    end = time.monotonic() + seconds
    return lambda: time.monotonic() < end


def _below(dataset: Dataset, name: str) -> str:
    assert dataset.objects is not None
    prefix = dataset.objects.prefix
    return f"{prefix}/{name}" if prefix else name


def _tried(bucket: Bucket, key: str, begun: Callable[[], Unfinished]) -> None:
    """Put an object and remove it; whatever happens meanwhile, it goes in the end."""
    try:
        unfinished = begun()
        try:
            bucket.put(key, 0, EMPTY, lambda: iter(()))
            bucket.remove(key)
        except (StoreTrouble, Stopped):
            unfinished.later()
            raise
        unfinished.over()
    finally:
        bucket.close()


def clear(bucket: Bucket, start: str, folders: Callable[[], tuple[set[str], set[str]]]) -> None:
    """Remove folders that begin with `start`: those that are to go, or that have no list.

    Of the latter none that is to stay. The list of a folder goes first: without it the rest is
    no checkpoint. Raises StoreTrouble, Stopped and FileNotFoundError.
    """
    above = start.rpartition("/")[0]
    skip = len(above) + 1 if above else 0
    try:
        go, stay = folders()
        found = [key for key in bucket.starting_with(start) if _is_plain(key[skip:])]
        whole = {key[skip:].partition("/")[0] for key in found if key.endswith(f"/{COMPLETE}")}
        gone = [
            key
            for key in found
            for folder in (key[skip:].partition("/")[0],)
            if folder in go or folder not in whole | stay
        ]
        for key in sorted(gone, key=lambda key: not key.endswith(f"/{COMPLETE}")):
            bucket.remove(key)
    except StoreTrouble as trouble:
        if trouble.kind is not Kind.GONE:
            raise
    finally:
        bucket.close()


def _is_plain(path: str) -> bool:
    """Whether a path leads nowhere else, should a store follow dots: others may put objects."""
    return {"", ".", ".."}.isdisjoint(path.split("/"))
