"""Versions of what is in object stores, and their files for the jobs that start with them.

A version is what a store had when a job was submitted that named none. Its files are fetched
before the first task that wants them, once for all jobs, with the key of the dataset's owner.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, TypeVar

import structlog

from allotment.engine.datasets import no_such_data, present
from allotment.engine.records import JobRecord
from allotment.engine.state import State
from allotment.model import commands as c
from allotment.model.datasets import DataKind, Dataset, DataVersion, JobCheckpoint, ObjectPlace
from allotment.model.errors import BackendError, Code, Rejected
from allotment.model.events import Phase
from allotment.model.ids import Actor
from allotment.service.content.manifest import BadManifest, digest_of
from allotment.service.content.shelf import Full, Room
from allotment.service.data.objects.bucket import Bucket, Stopped
from allotment.service.data.objects.cache import (
    DiskTrouble,
    ObjectCache,
    Reserved,
    Seen,
    Version,
    Wanted,
)
from allotment.service.data.objects.keys import key_of
from allotment.service.data.objects.listing import files_of, listing_of, put_folders
from allotment.service.data.objects.parts import abort, uploads_of
from allotment.service.data.objects.signing import Key
from allotment.service.data.objects.trouble import Kind, StoreTrouble
from allotment.service.data.objects.unfinished import Journal, Note, Unfinished
from allotment.service.data.store import PRESSED_S, UNUSED_S, DataStore
from allotment.service.data.wishes import Wish
from allotment.service.fair_queue import FairQueue
from allotment.service.host_accounts import HostAccounts
from allotment.service.launch import Account
from allotment.service.phases import took
from allotment.service.threads import Threads

LISTING_S: Final = 60.0
LOOK_S: Final = 0.5
PATIENCE_S: Final = 600.0
FETCHING_S: Final = 7 * 24 * 3600.0
"""Longer than any start may take: before that, nobody waits any more."""
EACH: Final = 2
"""Versions of one owner's datasets that are fetched at a time."""
AT_ONCE: Final = 4
T = TypeVar("T")

log = structlog.get_logger("allot.service")


class Objects:
    """Looks what is in object stores, and fetches it."""

    def __init__(
        self,
        state: State,
        store: DataStore,
        wish: Wish,
        room_of: Callable[[str], Room],
        clear: Callable[[], Awaitable[None]],
    ) -> None:
        """Make it; `room_of` a tenant is what its datasets may take of the disk.

        `clear` returns when jobs that are over keep no file any more.
        """
        self._clear = clear
        self._state = state
        self._store = store
        self._wish = wish
        self._room_of = room_of
        self.cache = ObjectCache(store, lambda: state.config.limits.data_cache, self._ids)
        self._accounts = HostAccounts()
        self._looking = Threads("stores", each=2, total=8)
        self._fetching = Threads("fetching", each=EACH, total=AT_ONCE)
        self._turns = FairQueue(lambda: EACH, AT_ONCE)
        self._disk = Threads("cache", each=4, total=8)
        self._journal = Journal(store.root.with_name("data-unfinished"))
        self._fetches: dict[Version, _Fetch] = {}
        self.putting = Counter[str]()
        """How many puts to a dataset are under way, by its id: what came for them stays."""

    def _ids(self) -> list[str]:
        return [
            each.id
            for each in tuple(self._state.datasets.values())
            if each.kind is DataKind.OBJECTS
        ]

    async def close(self) -> None:
        """Break off what is being fetched; files that came whole stay."""
        tasks = [fetch.task for fetch in self._fetches.values()]
        for fetch in self._fetches.values():
            fetch.waiting = 0
            fetch.task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # ── looking ─────────────────────────────────────────────────────────────────────

    async def look(
        self, place: ObjectPlace, owner: Actor, actor: Actor, aside: str = ""
    ) -> Seen | None:
        """Return what is at a place now, as its owner sees it; None where nothing is.

        Without folders that begin with `aside`: those are versions already. Raises Rejected.
        """
        try:
            account = await self._accounts.of(owner)
            work = partial(self._looked, place, account, aside)
            return await self._looking.run(actor.user, work, 2 * LISTING_S)
        except BackendError as error:
            raise Rejected(Code.UNAVAILABLE, f"{error}.", "Try again.") from error
        except TimeoutError:
            raise Rejected(
                Code.UNAVAILABLE, f"{place} was not listed in time.", "Try again."
            ) from None
        except StoreTrouble as trouble:
            raise trouble.refusal() from trouble

    def _looked(self, place: ObjectPlace, account: Account, aside: str) -> Seen | None:
        limits = self._state.config.limits
        end = time.monotonic() + LISTING_S
        key = _key(place, account)
        bucket = Bucket(place, key, account.identity, lambda: time.monotonic() < end)
        try:
            found = bucket.objects(limits.data_files, limits.data_cache, aside)
        except Stopped:
            raise StoreTrouble(
                Kind.AWAY, f"{place.endpoint} did not list {place} in {LISTING_S:.0f} s."
            ) from None
        finally:
            bucket.close()
        listing = listing_of(found, place)
        if not listing.objects:
            return None
        try:
            return Seen(listing, digest_of(files_of(listing)))
        except BadManifest as error:
            raise StoreTrouble(
                Kind.UNFIT, f"The objects of {place} cannot all be files: {error}."
            ) from error

    async def newest(self, dataset: Dataset, actor: Actor) -> DataVersion:
        """Look, and return the version of what there is. Raises Rejected."""
        found = await self.present(dataset, actor)
        if found is None:
            raise StoreTrouble(Kind.GONE, f"There is nothing in {dataset.objects}.").refusal()
        return found

    async def present(self, dataset: Dataset, actor: Actor) -> DataVersion | None:
        """Look, and return what came last: the version of what there is, or one that was put.

        None where nothing is. Raises Rejected.
        """
        assert dataset.objects is not None
        owner, aside = Actor(dataset.user, dataset.uid), put_folders(dataset.id)
        seen = await self.look(dataset.objects, owner, actor, aside)
        newest = dataset.version(0)
        before = next((each.digest for each in reversed(dataset.versions) if not each.put), "")
        is_put = newest is not None and newest.put
        if seen is None or (is_put and seen.digest == before):
            return newest if is_put else None
        return await self.noted(dataset, seen, actor)

    async def noted(
        self,
        dataset: Dataset,
        seen: Seen,
        actor: Actor,
        of: JobCheckpoint | None = None,
        *,
        put: bool = False,
    ) -> DataVersion:
        """Return the version of what there is, which may be a new one; durable on return.

        It is checkpoint `of` a job, or was `put`. Raises Rejected.
        """
        room = self._room_of(dataset.tenant)
        work = partial(self.cache.note, dataset.id, seen, room)
        try:
            await self._disk.run(actor.user, work, PATIENCE_S)
        except (OSError, TimeoutError) as error:
            raise Rejected(
                Code.UNAVAILABLE, f"What {dataset.objects} has cannot be noted: {error}."
            ) from error
        except Full:
            raise Rejected(
                Code.TOO_LARGE,
                f"There is no room to note another version of {dataset.full}: the datasets of "
                f"tenant {dataset.tenant} take all there is for one.",
                "Remove old versions: `allot data rm NAME@VERSION`.",
            ) from None
        if present(self._state, dataset) is None:
            raise no_such_data(dataset.full)
        objects, digest = seen.listing.objects, seen.digest
        size = sum(each.size for each in seen.listing.kept)
        count, (tenant, name) = len(objects), (dataset.tenant, dataset.name)
        await self._wish(c.CloseVersion(tenant, name, digest, count, size, of, put), actor)
        now = present(self._state, dataset)
        closed = now.versions if now is not None else ()
        found = [each for each in closed if (each.digest, each.checkpoint) == (digest, of)]
        if not found:
            raise no_such_data(dataset.full)  # It was removed meanwhile.
        return found[-1]

    # ── putting ─────────────────────────────────────────────────────────────────────

    async def bucket_of(self, dataset: Dataset, is_wanted: Callable[[], bool]) -> Bucket:
        """Return a way to the store of a dataset, with its owner's key.

        Raises BackendError and StoreTrouble.
        """
        place = dataset.objects
        assert place is not None
        account = await self._accounts.of(Actor(dataset.user, dataset.uid))
        key = await self._looking.run(dataset.user, partial(_key, place, account), PATIENCE_S)
        return Bucket(place, key, account.identity, is_wanted)

    def begun(self, dataset: Dataset, key: str, *, is_upload: bool) -> Unfinished:
        """Note what is about to begin in a store. Blocks. Raises OSError."""
        assert dataset.objects is not None
        place, user, uid = dataset.objects, dataset.user, dataset.uid
        return self._journal.begin(Note(place, user, uid, key, is_upload))

    async def end_unfinished(self) -> None:
        """Have go at the stores what a service that was killed, or could not, left there.

        A store that does not answer is waited for once for each owner, not for each note.
        """
        away = set[tuple[str, str]]()
        for each in await self._on_disk(self._journal.left):
            note = each.note
            store = note.user, note.place.endpoint
            if store in away:
                continue
            try:
                account = await self._accounts.of(Actor(note.user, note.uid))
                work = partial(_ended, each, account)
                await self._looking.run(note.user, work, 2 * LISTING_S)
            except (StoreTrouble, Stopped, BackendError, OSError) as error:
                log.warning("something stays in an object store", key=note.key, why=str(error))
                if not isinstance(error, StoreTrouble) or error.kind is Kind.AWAY:
                    away.add(store)

    # ── fetching ────────────────────────────────────────────────────────────────────

    def is_here(self, dataset: Dataset, digest: str) -> bool:
        """Whether a version is here as a whole."""
        return self._store.tree(dataset.id, digest).is_dir()

    async def ready(
        self, dataset: Dataset, digest: str, is_wanted: Callable[[], bool]
    ) -> tuple[Phase, ...]:
        """Have a version here; return how long that took.

        Returns early where it is not wanted any more. Raises StoreTrouble and BackendError.
        """
        version, began = Version(dataset.id, digest), time.time()
        if self.cache.is_here(version):
            return ()
        while is_wanted() and not self.cache.is_here(version):
            fetch = self._begun(dataset, version)
            fetch.waiting += 1
            try:
                while is_wanted() and not fetch.task.done():
                    await asyncio.wait([fetch.task], timeout=LOOK_S)
            finally:
                fetch.waiting -= 1
            if fetch.task.done():
                _told(fetch.task, dataset)
        return took("data", began)

    def _begun(self, dataset: Dataset, version: Version) -> "_Fetch":
        """Return the fetch of a version, which is begun if it was not."""
        fetch = self._fetches.get(version)
        if fetch is None:
            fetch = self._fetches[version] = _Fetch()
            work = self._fetch(dataset, version, fetch)
            fetch.task = asyncio.get_running_loop().create_task(work)
            fetch.task.add_done_callback(partial(self._over, version))
        return fetch

    def _over(self, version: Version, task: "asyncio.Task[None]") -> None:
        del self._fetches[version]
        if not task.cancelled():
            task.exception()  # It is told to whoever waits, if anybody does.

    async def _fetch(self, dataset: Dataset, version: Version, fetch: "_Fetch") -> None:
        assert dataset.objects is not None
        account = await self._accounts.of(Actor(dataset.user, dataset.uid))
        try:
            work = partial(self.cache.wanted, version)
            wanted = await self._disk.run(dataset.user, work, PATIENCE_S)
        except FileNotFoundError:
            raise StoreTrouble(
                Kind.GONE,
                f"It is not known any more what {dataset.objects} had: the books are those of "
                "a backup.",
                "Submit the job again: it then gets the present objects.",
            ) from None
        fetch.needs = frozenset(file.of for file in wanted.manifest.files)
        # Room is kept for what is fetched, and not for what waits for its turn.
        await self._turns.turn(dataset.user)
        try:
            if fetch.waiting <= 0:
                raise Stopped
            await self._make_room(wanted.size)
            reserved = Reserved(self.cache.room, wanted.size)
            try:
                place = dataset.objects
                fetching = partial(self._fetched, wanted, reserved, place, account, fetch)
                await self._fetching.run(dataset.user, fetching, FETCHING_S)
            finally:
                reserved.release()
        finally:
            self._turns.leave(dataset.user)

    def _fetched(
        self,
        wanted: Wanted,
        reserved: Reserved,
        place: ObjectPlace,
        account: Account,
        fetch: "_Fetch",
    ) -> None:
        key = _key(place, account)
        self.cache.fetch(
            wanted,
            reserved,
            lambda is_wanted: Bucket(place, key, account.identity, is_wanted),
            lambda: fetch.waiting > 0,
        )
        self.cache.lay_out(wanted)

    def forget(self, dataset: Dataset, digest: str) -> None:
        """Throw away what was fetched of a version: it is not what was put. Blocks."""
        version = Version(dataset.id, digest)
        gone = self.cache.take_away(version)
        if gone is not None:
            self.cache.free(version, gone, partial(self._is_needed, version.id))

    # ── what goes ───────────────────────────────────────────────────────────────────

    async def sweep(self) -> None:
        """Remove what no version has, and what is more than may be here."""
        await self._sweep(UNUSED_S)
        await self._evict_until(lambda: self.cache.room.reserve(0))
        await self.end_unfinished()

    async def _make_room(self, size: int) -> None:
        """Reserve room, for which others go. Raises StoreTrouble."""
        reserve = partial(self.cache.room.reserve, size)
        if await self._on_disk(reserve):
            return
        await self._sweep(PRESSED_S)
        if not await self._evict_until(reserve):
            raise StoreTrouble(
                Kind.NO_ROOM,
                "Jobs that run use so much of what is kept here from object stores that no "
                "more fits.",
            )

    async def _evict_until(self, is_enough: Callable[[], bool]) -> bool:
        """Remove versions until it is enough, those used least recently first."""
        if await self._on_disk(is_enough):
            return True
        used: set[Version] | None = None
        for version in await self._on_disk(self.cache.by_use):
            if used is None:
                await self._clear()
                # From here until it is away no job can begin: what has an attempt is seen.
                used = self._in_use()
            if version in used or self._is_looked_at(version):
                continue
            gone = self.cache.take_away(version)
            if gone is None:
                continue
            is_needed = partial(self._is_needed, version.id)
            await self._on_disk(partial(self.cache.free, version, gone, is_needed))
            used = None  # Jobs may have begun meanwhile.
            if await self._on_disk(is_enough):
                return True
        return False

    def _in_use(self) -> set[Version]:
        """Return what jobs see that run or start: O(jobs)."""
        found: set[Version] = set(self._fetches)
        for job in self._state.jobs.values():
            if job.attempt is None:
                continue
            for use in job.spec.data:
                dataset = self._state.datasets.get((use.tenant, use.name))
                if use.fetched and dataset is not None:
                    found.add(Version(dataset.id, use.digest))
            found |= self._checkpoints(job)
        return found

    def _checkpoints(self, job: JobRecord) -> set[Version]:
        """Return the versions from which a job may be about to get its checkpoint back."""
        how = job.spec.checkpoint
        tenant, _, name = how.save.partition("/") if how is not None else ("", "", "")
        dataset = self._state.datasets.get((tenant, name))
        if dataset is None or dataset.kind is not DataKind.OBJECTS:
            return set()
        return {Version(dataset.id, each.digest) for each in dataset.checkpoints_of(job.id)}

    def _is_needed(self, dataset: str, name: str) -> bool:
        """Whether a fetch of a dataset relies on a file, or may; from any thread.

        One that begins while a version goes is seen: it looks which files are here later.
        """
        return any(
            one.id == dataset and (each.needs is None or name in each.needs)
            for one, each in tuple(self._fetches.items())
        )

    def _is_looked_at(self, version: Version) -> bool:
        """Whether a fetch of the same dataset is finding out which files it needs."""
        fetches = self._fetches.items()
        return any(one.id == version.id and each.needs is None for one, each in fetches)

    async def _sweep(self, older_s: float) -> None:
        for dataset in tuple(self._state.datasets.values()):
            if dataset.kind is DataKind.OBJECTS:
                await self.sweep_one(dataset, older_s)

    async def sweep_one(self, dataset: Dataset, older_s: float) -> None:
        """Remove what no version of a dataset has, unless one is being fetched or put."""
        is_fetched = any(version.id == dataset.id for version in self._fetches)
        if is_fetched or self.putting[dataset.id]:
            return
        kept = {version.digest for version in dataset.versions}
        await self._on_disk(partial(self._store.sweep, dataset.id, kept, older_s))

    async def _on_disk(self, work: Callable[[], T]) -> T:
        return await self._disk.run("cache", work, FETCHING_S)


class _Fetch:
    """A fetch under way."""

    def __init__(self) -> None:
        self.task: asyncio.Task[None]
        self.waiting = 0
        """How many starts wait for it."""
        self.needs: frozenset[str] | None = None
        """Its files, by their names in the store; None until that is known."""


def _told(task: "asyncio.Task[None]", dataset: Dataset) -> None:
    """Raise what kept a fetch from its end. One that was interrupted is begun again."""
    try:
        task.result()
    except Stopped:
        return
    except (DiskTrouble, OSError, TimeoutError) as error:
        raise BackendError(f"{dataset.full} cannot be fetched: {error}") from error
    except asyncio.CancelledError:
        raise BackendError(f"the fetch of {dataset.full} was interrupted") from None


def _ended(each: Unfinished, account: Account) -> None:
    """Have something go at its store. Blocks. Raises StoreTrouble and Stopped."""
    note, end = each.note, time.monotonic() + LISTING_S
    key = _key(note.place, account)
    bucket = Bucket(note.place, key, account.identity, lambda: time.monotonic() < end)
    try:
        if not note.is_upload:
            bucket.remove(note.key)
        else:
            uploads = [note.upload] if note.upload else uploads_of(bucket, note.key)
            for upload in uploads:
                abort(bucket, note.key, upload)
    except StoreTrouble as trouble:
        if trouble.kind is not Kind.GONE:  # else its bucket went, too
            raise
    finally:
        bucket.close()
    each.over()


def _key(place: ObjectPlace, account: Account) -> Key | None:
    return key_of(account, place.profile) if place.profile else None
