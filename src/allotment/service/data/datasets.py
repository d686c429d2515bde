"""Datasets as the service offers them: made, filled, granted, read and removed."""

import asyncio
import os
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from allotment.engine.datasets import check_open, no_such_data, present
from allotment.engine.state import State
from allotment.model import commands as c
from allotment.model.data_use import DataReference
from allotment.model.datasets import (
    DataKind,
    Dataset,
    DataVersion,
    Grant,
    Grantee,
    JobCheckpoint,
    ObjectPlace,
    is_member,
    owns,
)
from allotment.model.errors import BackendError, Code, Rejected
from allotment.model.ids import Actor
from allotment.model.quantity import show_bytes
from allotment.rights import paths
from allotment.rights.disk import is_too_full
from allotment.rights.handing import Holder, NotHanded
from allotment.service.access import is_admin, may_administer
from allotment.service.content.manifest import (
    BadManifest,
    Manifest,
    digest_of,
    largest,
    needs,
    read,
    size_of,
)
from allotment.service.content.receiving import UNSAID, Receiving, Words
from allotment.service.content.shelf import Full, Room, Shelf, blocks
from allotment.service.data.links import DataLinks
from allotment.service.data.naming import DataNames
from allotment.service.data.objects.bucket import Stopped
from allotment.service.data.objects.checkpoints import StoreCheckpoints
from allotment.service.data.objects.objects import Objects
from allotment.service.data.objects.place import place_of
from allotment.service.data.objects.putting import StorePuts
from allotment.service.data.objects.reading import (
    StoredFile,
    StoreFile,
    StoreReads,
    stored_files,
)
from allotment.service.data.store import PRESSED_S, UNKNOWN_S, UNUSED_S, DataStore
from allotment.service.data.view import (
    DataFiles,
    DataNote,
    DataRoom,
    DataVersionView,
    DataView,
    DataWanted,
    GrantNote,
    HandedFile,
)
from allotment.service.data.wishes import Wish
from allotment.service.files import Found
from allotment.service.host_accounts import HostAccounts
from allotment.service.host_workspace import HostFile
from allotment.service.ports import Identity
from allotment.service.threads import Threads

SWEEP_EVERY_S: Final = 600.0
PATIENCE_S: Final = 120.0
WHOLE_S: Final = 1800.0
"""How long it may take to make a version of files that are there."""
DELETING_S: Final = 3600.0
MOST_LISTED: Final = 4
_PIECE: Final = 256 << 10
"""Bytes read at a time: of more at once the kernel takes longer to write each."""
T = TypeVar("T")

AGAIN: Final = "Put it again: files that arrived complete are not sent twice."


class Datasets:
    """Names, versions and grants; the files of those that are managed."""

    def __init__(self, state: State, state_dir: str, wish: Wish) -> None:
        self._state = state
        self._wish = wish
        self.names = DataNames(state)
        self.store = DataStore(Path(state_dir))
        self.links = DataLinks(state, self.store)
        self._rooms: dict[str, Room] = {}
        """Of each tenant."""
        self._turns: dict[str, asyncio.Lock] = {}
        """Of each dataset: nothing is removed while a version is closed."""
        self._listed: dict[tuple[str, str, int], Mapping[str, StoredFile | None]] = {}
        """The files of versions that are handed out, by digest; where a store has them."""
        self._threads = Threads("data", each=3, total=8)
        self._taking = Threads("taking", each=2, total=4)
        """Which read files that clients hold open, for as long as that takes."""
        self._accounts = HostAccounts()
        self.objects = Objects(state, self.store, wish, self._room, self.links.clear)
        self.in_stores = StoreCheckpoints(state, self.objects)
        self._puts = StorePuts(state, self.objects, self.store.seen)
        self._reads = StoreReads(self.objects)

    async def start(self) -> None:
        """Make the store ready; what a service that was killed left of it goes."""
        await asyncio.to_thread(self.store.prepare)
        await asyncio.to_thread(self.links.prepare)

    # ── names ───────────────────────────────────────────────────────────────────────

    async def rows(self, actor: Actor) -> list[DataView]:
        """List the datasets that a user may use."""
        readable = tuple(self.names.readable(actor))
        return await self._run(actor, lambda: [self._view(each, actor) for each in readable])

    async def show(self, text: str, actor: Actor) -> DataView:
        """Return one dataset. Raises Rejected."""
        dataset = self.names.find(self.names.reference(text), actor)
        disk = 0
        if dataset.kind is not DataKind.FOLDER and (owns(dataset, actor) or is_admin(actor)):
            disk = await self._run(actor, self.store.shelf(dataset.id).used)
        return self._view(dataset, actor, disk)

    def _view(self, dataset: Dataset, actor: Actor, disk: int = 0) -> DataView:
        is_own = owns(dataset, actor) or is_admin(actor)
        may_write = self.names.may_write(dataset, actor)
        return DataView(
            tenant=dataset.tenant,
            name=dataset.name,
            kind=dataset.kind,
            user=dataset.user,
            created_at=dataset.created_at,
            versions=tuple(map(version_view, dataset.versions)),
            write=may_write,
            grants=dataset.grants if is_own else (),
            folder=dataset.folder if is_admin(actor) else "",
            objects=dataset.objects if is_own else None,
            disk=disk,
            putting=self._puts.under_way(dataset.id) if may_write else (),
        )

    async def create(self, note: DataNote, tenant: str, actor: Actor) -> DataView:
        """Make a dataset; durable on return. Raises Rejected."""
        if note.folder:
            may_administer(actor)
            await self._check_folder(note.folder)
        config = self._state.config
        theirs = next((each for each in config.tenants if each.name == tenant), None)
        if theirs is not None and not (is_admin(actor) or is_member(actor, theirs)):
            raise Rejected(
                Code.FORBIDDEN,
                f"User {actor.user} is not a member of tenant {tenant}.",
                "Make it in a tenant of yours (allot tenants).",
            )
        made = c.CreateDataset(tenant, note.name, os.urandom(16).hex(), note.folder)
        if note.objects is not None:
            await self._create_of_objects(made, place_of(note.objects), actor)
        else:
            await self._wish(made, actor)
        return self._view(self._state.datasets[tenant, note.name], actor)

    async def _create_of_objects(
        self, made: c.CreateDataset, place: ObjectPlace, actor: Actor
    ) -> None:
        """Make a dataset of what is in a store, if its owner may see it there."""
        if made.folder:
            raise Rejected(
                Code.BAD_REQUEST,
                "A dataset is a folder or objects, not both.",
                "Take `folder` or `objects` out.",
            )
        seen = await self.objects.look(place, actor, actor)
        await self._wish(msgspec.structs.replace(made, objects=place), actor)
        if seen is not None:
            dataset = self._state.datasets[made.tenant, made.name]
            await self.objects.noted(dataset, seen, actor)

    async def _check_folder(self, path: str) -> None:
        def look() -> str:
            try:
                fd = paths.resolve(path, links=False)
            except OSError as error:
                return (error.strerror or "cannot be used").lower()
            try:
                is_folder = stat.S_ISDIR(os.fstat(fd).st_mode)
            finally:
                os.close(fd)
            return "" if is_folder else "is not a folder"

        state_dir = str(self.store.root.parent.resolve())
        is_ours = path.startswith(f"{state_dir}/") or f"{state_dir}/".startswith(f"{path}/")
        trouble = "the service keeps its state there" if is_ours else ""
        if not trouble and path.startswith("/"):
            trouble = await asyncio.to_thread(look)
        if trouble:
            raise Rejected(
                Code.PATH_UNUSABLE,
                f"folder: {path[:200]}: {trouble}.",
                "Name a folder of the machine that runs the jobs, by its path without links.",
            )

    async def grant(self, text: str, note: GrantNote, actor: Actor) -> DataView:
        """Grant a tenant or a user a right to a dataset; durable on return."""
        dataset = self.names.find_own(self._whole(text), actor)
        to, name = _grantee(note)
        grant = Grant(to, name, note.write)
        await self._wish(c.GrantData(dataset.tenant, dataset.name, grant), actor)
        return self._again(dataset, actor)

    async def revoke(self, text: str, note: GrantNote, actor: Actor) -> DataView:
        """Take a right back; what runs keeps what it has. Durable on return."""
        dataset = self.names.find_own(self._whole(text), actor)
        to, name = _grantee(note)
        await self._wish(c.RevokeData(dataset.tenant, dataset.name, to, name), actor)
        return self._again(dataset, actor)

    def _again(self, dataset: Dataset, actor: Actor) -> DataView:
        return self._view(self._state.datasets[dataset.tenant, dataset.name], actor)

    async def remove(self, text: str, actor: Actor) -> None:
        """Remove a dataset, or one version of it; durable on return. Raises Rejected."""
        named = self.names.reference(text)
        await self.remove_from(self.names.find_own(named, actor), named.version, actor)

    async def remove_from(self, dataset: Dataset, number: int, actor: Actor) -> None:
        """Remove a version of a dataset, or with 0 all of it; who may is looked at before.

        Durable on return. Raises Rejected.
        """
        wish = c.RemoveData(dataset.tenant, dataset.name, number)
        async with self._turn(dataset):
            if present(self._state, dataset) is None:
                raise no_such_data(dataset.full)  # Somebody removed it, and made another.
            await self._wish(wish, actor)
            if dataset.kind is not DataKind.FOLDER:
                work = partial(self._dropped, dataset, number)
                await self._threads.run("removing", work, DELETING_S)
                if (left := present(self._state, dataset)) is not None:
                    await self._sweep_left(left)

    async def _sweep_left(self, dataset: Dataset) -> None:
        """Remove what only the version had that went, unless it came just now."""
        if dataset.kind is DataKind.OBJECTS:
            await self.objects.sweep_one(dataset, PRESSED_S)  # A fetch may rely on files.
        else:
            work = partial(self._swept, dataset, PRESSED_S)
            await self._threads.run("removing", work, DELETING_S)

    def _turn(self, dataset: Dataset) -> asyncio.Lock:
        return self._turns.setdefault(dataset.id, asyncio.Lock())

    def _dropped(self, dataset: Dataset, number: int) -> None:
        """Remove the files of what was removed, but those that others need."""
        left = present(self._state, dataset)
        if left is None:
            self.store.remove(dataset.id)
            return
        gone = dataset.version(number)
        kept = {version.digest for version in left.versions}
        if gone is not None and gone.digest not in kept:
            # Checkpoints come one after the other, so that the sweep would find no end of them.
            at_once = gone.checkpoint is not None and dataset.kind is DataKind.MANAGED
            self.store.drop(dataset.id, gone.digest, at_once=at_once)

    def _whole(self, text: str) -> DataReference:
        named = self.names.reference(text)
        if named.version:
            raise Rejected(
                Code.BAD_REQUEST,
                "Rights are to a dataset with all its versions.",
                f"Take @{named.version} away.",
            )
        return named

    # ── putting ─────────────────────────────────────────────────────────────────────

    async def room(self, text: str, actor: Actor) -> DataRoom:
        """Return how large a version of a dataset may be. Raises Rejected."""
        dataset = self._to_put(text, actor)
        limits = self._state.config.limits
        used = await self._run(actor, partial(self._used, dataset.tenant))
        return DataRoom(limits.data_files, limits.data_store, used)

    async def put(
        self,
        text: str,
        data: bytes,
        actor: Actor,
        checkpoint: JobCheckpoint | None = None,
        is_wanted: Callable[[], bool] = lambda: True,
    ) -> DataWanted:
        """Close a version of which all files are there, or return which are missing.

        Durable on return. To an object store it is put while it `is_wanted`. Raises Rejected.
        """
        dataset = self._to_put(text, actor)
        manifest, missing = await self._run(actor, partial(self._looked, dataset, data))
        if dataset.kind is DataKind.OBJECTS:
            found = await self._put_far(text, dataset, data, manifest, actor, is_wanted)
            if isinstance(found, DataVersion):
                return DataWanted(version=version_view(found))
            missing = found
        if missing:
            sizes = needs(manifest.files)
            adds = sum(blocks(sizes.get(digest, 0)) for digest in missing)
            await self._have_room(dataset, adds, actor)
            return DataWanted(missing=tuple(missing))
        async with self._turn(dataset):
            self._check_still(text, dataset, actor)
            return await self._close(text, dataset, data, manifest, actor, checkpoint)

    async def _close(
        self,
        text: str,
        dataset: Dataset,
        data: bytes,
        manifest: Manifest,
        actor: Actor,
        checkpoint: JobCheckpoint | None,
    ) -> DataWanted:
        digest, room = digest_of(data), self._room(dataset.tenant)
        missing: list[str] = []
        try:
            missing = await self._run(
                actor, partial(self._made, dataset, data, manifest, room), WHOLE_S
            )
        except Full:
            raise await self._no_room(dataset, 0, actor) from None
        except FileNotFoundError:
            missing = (await self._run(actor, partial(self._looked, dataset, data)))[1]
        if missing:
            return DataWanted(missing=tuple(missing))
        self._check_still(text, dataset, actor)
        size = size_of(manifest.files)
        close = c.CloseVersion(
            dataset.tenant, dataset.name, digest, len(manifest.files), size, checkpoint
        )
        await self._wish(close, actor)
        newest = self._state.datasets[dataset.tenant, dataset.name].version(0)
        return DataWanted(version=version_view(newest) if newest is not None else None)

    async def _put_far(
        self,
        text: str,
        dataset: Dataset,
        data: bytes,
        manifest: Manifest,
        actor: Actor,
        is_wanted: Callable[[], bool],
    ) -> DataVersion | list[str]:
        """Put a version into an object store, or return what is missing."""

        def goes_on() -> bool:
            now = present(self._state, dataset)
            return now is not None and is_wanted() and self.names.may_write(now, actor)

        try:
            return await self._puts.put(dataset, data, manifest, actor, goes_on)
        except Stopped:
            self._check_still(text, dataset, actor)
            raise Rejected(Code.UNAVAILABLE, "Nobody waited for it any more.", AGAIN) from None
        except OSError as error:
            raise _not_kept(error) from error

    def _check_still(self, text: str, dataset: Dataset, actor: Actor) -> None:
        """Raise Rejected where the right was taken back, or the dataset was removed.

        Another of its name has files of its own.
        """
        if self._to_put(text, actor).id != dataset.id:
            raise no_such_data(text)

    def _to_put(self, text: str, actor: Actor) -> Dataset:
        """Return a dataset to which a version may be added. Raises Rejected."""
        named = self.names.reference(text)
        dataset = self.names.find_to_write(named, actor)
        check_open(dataset)
        if named.version:
            is_closed = dataset.version(named.version) is not None
            told = (
                f"Version {named.version} of {dataset.full} is closed: versions never change."
                if is_closed
                else f"{dataset.full} has no version {named.version}: numbers are given here."
            )
            raise Rejected(
                Code.CONFLICT,
                told,
                f"Take @{named.version} away, and version {dataset.next_version} is made.",
            )
        return dataset

    def _looked(self, dataset: Dataset, data: bytes) -> tuple[Manifest, list[str]]:
        try:
            manifest = read(data)
        except BadManifest as error:
            raise Rejected(
                Code.BAD_REQUEST, f"This cannot be data of {dataset.full}: {error}."
            ) from error
        limits = self._state.config.limits
        total = size_of(manifest.files)
        if len(manifest.files) > limits.data_files or total > limits.data_store:
            sizes = [(file.path, file.size) for file in manifest.files if file.kind != "l"]
            raise Rejected(
                Code.TOO_LARGE,
                f"It has {len(manifest.files):,} files with {show_bytes(total)} in all; "
                f"{limits.data_files:,} files and {show_bytes(limits.data_store)} may be. "
                f"{largest(sizes)}",
                "Put many small files into few archives (tar, WebDataset); or have an "
                "administrator raise `limits.data_files` or `limits.data_store`.",
            )
        return manifest, self._incoming(dataset).missing(manifest)

    def _incoming(self, dataset: Dataset) -> Shelf:
        """Return where files of a dataset come in: those for an object store stay apart."""
        is_far = dataset.kind is DataKind.OBJECTS
        return self.store.seen(dataset.id) if is_far else self.store.shelf(dataset.id)

    def _made(self, dataset: Dataset, data: bytes, manifest: Manifest, room: Room) -> list[str]:
        shelf = self.store.shelf(dataset.id)
        most = shelf.used() + self._left(dataset.tenant)
        if missing := shelf.keep_list(data, manifest, (), most):
            return missing
        self.store.lay_out(dataset.id, manifest, digest_of(data), room)
        self.store.flush()
        return []

    async def receiving(self, text: str, actor: Actor) -> Receiving:
        """Return what takes the files of one request. Raises Rejected."""
        dataset = self._to_put(text, actor)
        # Found before anything is waited for: once it is removed, its shelf takes nothing.
        shelf, room = self._incoming(dataset), self._room(dataset.tenant)
        await self._run(actor, partial(self._used, dataset.tenant))
        words = Words(
            beyond="all data of a tenant may be",
            leave_out="An administrator can raise `limits.data_store`.",
            full=f"The datasets of tenant {dataset.tenant} take all the room there is for one "
            f"tenant ({show_bytes(self._state.config.limits.data_store)}).",
            make_room="Remove old versions: `allot data rm NAME@VERSION`. An "
            "administrator can raise `limits.data_store`.",
            again="Put it again, while nothing writes to the folder.",
        )
        largest_file = self._state.config.limits.data_store
        return Receiving(shelf, room, largest_file, words, may_be_unsaid=True)

    async def feed(self, receiving: Receiving, data: Sequence[bytes], actor: Actor) -> None:
        """Take pieces of files in. Raises Rejected."""
        try:
            await self._run(actor, partial(self._fed, receiving, data))
        except FileNotFoundError:
            raise _went() from None

    def _fed(self, receiving: Receiving, data: Sequence[bytes]) -> None:
        self._check_disk(sum(map(len, data)))
        receiving.feed(*data)

    def _check_disk(self, size: int) -> None:
        if is_too_full(self.store.root, size, 1):
            raise Rejected(
                Code.UNAVAILABLE,
                "The disk that keeps the data is nearly full, and the service needs the rest.",
                "This is a problem of the platform: tell its administrator. Files that arrived "
                "complete stay.",
            )

    async def take(
        self,
        text: str,
        files: Sequence[HandedFile],
        pid: int,
        actor: Actor,
        is_wanted: Callable[[], bool],
    ) -> Receiving:
        """Return what took in files that a process of a user holds open.

        Breaks off where it is not wanted any more. Raises Rejected.
        """
        try:
            user = (await self._accounts.of(actor)).identity
        except BackendError as error:
            raise Rejected(Code.UNAVAILABLE, f"{error}.", AGAIN) from error
        receiving = await self.receiving(text, actor)
        work = partial(self._took, receiving, files, (pid, user), is_wanted)
        try:
            await self._taking.run(actor.user, work, WHOLE_S)
        except NotHanded as error:
            raise Rejected(
                Code.NOT_SUPPORTED,
                f"The files cannot be read from here: {error}.",
                "Send them.",
            ) from error
        except TimeoutError:
            raise Rejected(
                Code.UNAVAILABLE, f"They were not read in {WHOLE_S / 60:.0f} min.", AGAIN
            ) from None
        except FileNotFoundError:
            raise _went() from None
        except OSError as error:
            raise _not_kept(error) from error
        finally:
            receiving.close()
        return receiving

    def _took(
        self,
        receiving: Receiving,
        files: Sequence[HandedFile],
        held_by: tuple[int, Identity | None],
        is_wanted: Callable[[], bool],
    ) -> None:
        buffer = memoryview(bytearray(_PIECE))
        with Holder(*held_by) as holder:
            for file in files:
                self._check_disk(file.size)
                fd = holder.take(file.fd)
                try:
                    receiving.feed(bytes.fromhex(UNSAID) + file.size.to_bytes(8, "big"))
                    source = receiving.source_of(fd)
                    for piece in _pieces(source, file.size, buffer):
                        if not is_wanted():
                            return
                        receiving.feed(piece)
                finally:
                    os.close(fd)
                if not receiving.is_whole:
                    raise Rejected(
                        Code.CONFLICT, "A file became shorter while it was read.", AGAIN
                    )

    # ── room ────────────────────────────────────────────────────────────────────────

    def _room(self, tenant: str) -> Room:
        return self._rooms.setdefault(
            tenant,
            Room(lambda: self._state.config.limits.data_store, partial(self._used, tenant)),
        )

    def _used(self, tenant: str) -> int:
        """Return what the datasets of a tenant take of the disk.

        Of those in object stores, only what is noted of them: copies are the machine's.
        """
        theirs = [
            each for each in tuple(self._state.datasets.values()) if each.tenant == tenant
        ]
        return sum(
            self.store.shelf(each.id).used() for each in theirs if each.kind is DataKind.MANAGED
        ) + sum(
            self.store.seen(each.id).used() for each in theirs if each.kind is DataKind.OBJECTS
        )

    def _left(self, tenant: str) -> int:
        return self._state.config.limits.data_store - self._used(tenant)

    async def _have_room(self, dataset: Dataset, adds: int, actor: Actor) -> None:
        """Remove what no version needs where there is no room. Raises Rejected."""
        left = partial(self._left, dataset.tenant)
        if adds <= await self._run(actor, left):
            return
        await self._sweep_tenant(dataset.tenant, PRESSED_S)
        if adds > await self._run(actor, left):
            raise await self._no_room(dataset, adds, actor)

    async def _no_room(self, dataset: Dataset, adds: int, actor: Actor) -> Rejected:
        used = await self._run(actor, partial(self._used, dataset.tenant))
        more = f", and {show_bytes(adds)} more" if adds else ", and what is put now"
        return Rejected(
            Code.TOO_LARGE,
            f"The datasets of tenant {dataset.tenant} take {show_bytes(used)}{more} would be "
            f"beyond the {show_bytes(self._state.config.limits.data_store)} of one tenant.",
            "Remove old versions: `allot data rm NAME@VERSION`. An administrator "
            "can raise `limits.data_store`.",
        )

    # ── getting ─────────────────────────────────────────────────────────────────────

    async def files(self, text: str, actor: Actor) -> DataFiles:
        """Return the files of a version, the newest if none is named. Raises Rejected.

        The newest of an object store is what it has now, as for jobs.
        """
        dataset, version = self._to_get(text, actor)
        is_far = dataset.kind is DataKind.OBJECTS
        if is_far and not self.names.reference(text).version:
            version = await self.objects.newest(dataset, actor)
        keeper = self.objects.cache if is_far else self.store
        work = partial(keeper.manifest, dataset.id, version.digest)
        files = (await self._got(dataset, version, actor, work)).files
        view, is_sha256 = version_view(version), not is_far or version.put
        return DataFiles(dataset.tenant, dataset.name, view, files, is_sha256)

    async def open_file(
        self, text: str, digest: str, actor: Actor, start: int = 0
    ) -> HostFile | StoreFile:
        """Open a file of a version by its digest, from a byte of it on. Raises Rejected.

        Where it has no such byte it is open from its beginning.
        """
        dataset, version = self._to_get(text, actor)

        def look() -> Found | StoredFile | None:
            files = self._files(dataset, version)
            if digest not in files:
                return None
            path = self.store.shelf(dataset.id).file(digest)
            try:
                fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
            except FileNotFoundError:
                if (stored := files[digest]) is None:
                    raise
                return stored
            return Found(fd, os.fstat(fd).st_size, digest)

        found = await self._got(dataset, version, actor, look)
        if found is None:
            exact = f"{dataset.full}@{version.number}"
            raise Rejected(
                Code.NOT_FOUND, f"{exact} has no such file.", f"See `allot data ls {exact}`."
            )
        start = start if start < found.size else 0
        if isinstance(found, Found):
            return HostFile(found, start)

        def may_read() -> bool:
            now = present(self._state, dataset)
            return now is not None and self.names.may_read(now, actor)

        try:
            return await self._reads.open(dataset, version, found, start, actor, may_read)
        except Stopped:
            raise no_such_data(dataset.full) from None

    async def _got(
        self, dataset: Dataset, version: DataVersion, actor: Actor, work: Callable[[], T]
    ) -> T:
        try:
            return await self._run(actor, work)
        except FileNotFoundError:
            again = (
                "A job that names no version sees the present objects of the store."
                if dataset.kind is DataKind.OBJECTS
                else f"`allot data put {dataset.name} DIR` of the same files brings them back."
            )
            raise Rejected(
                Code.DATA_MISSING,
                f"Files of {dataset.full}@{version.number} are not in the store: they were "
                "removed, or the records are those of a backup.",
                again,
            ) from None

    def _files(self, dataset: Dataset, version: DataVersion) -> Mapping[str, StoredFile | None]:
        """Return the files of a version by digest, with where a store has them."""
        id_, digest, place = dataset.id, version.digest, dataset.objects
        lists = self.store.shelf(id_) if place is None else self.store.seen(id_)
        # One that was put again may have other ETags.
        key = id_, digest, lists.list_file(digest).stat().st_mtime_ns
        found = self._listed.get(key)
        if found is None:
            found = (
                stored_files(self.objects.cache.listing(id_, digest), place)
                if place is not None
                else dict.fromkeys(needs(self.store.manifest(id_, digest).files))
            )
            if len(self._listed) >= MOST_LISTED:
                self._listed.clear()
            self._listed[key] = found
        return found

    def _to_get(self, text: str, actor: Actor) -> tuple[Dataset, DataVersion]:
        named = self.names.reference(text)
        dataset = self.names.find(named, actor)
        version = self.names.version(dataset, named.version)
        if version is None:
            raise Rejected(
                Code.NOT_SUPPORTED,
                f"{dataset.full} is a folder that an administrator registered: the service "
                "hands out none of its files.",
                f"Jobs see it: `data: {{{dataset.name}: /data/{dataset.name}}}`.",
            )
        return dataset, version

    # ── what goes ───────────────────────────────────────────────────────────────────

    async def sweep(self) -> None:
        """Remove what no version needs any more."""
        for dataset in tuple(self._state.datasets.values()):
            await self._sweep_one(dataset, UNUSED_S)
        await self.objects.sweep()

        def unknown() -> None:
            known = {each.id for each in tuple(self._state.datasets.values())}
            for name in self.store.datasets():
                if name not in known and self.store.is_older(name, UNKNOWN_S):
                    self.store.remove(name)

        await self._threads.run("sweep", unknown, DELETING_S)

    async def _sweep_tenant(self, tenant: str, older_s: float) -> None:
        for dataset in tuple(self._state.datasets.values()):
            if dataset.tenant == tenant and dataset.kind is DataKind.OBJECTS:
                await self.objects.sweep_one(dataset, older_s)
            elif dataset.tenant == tenant:
                await self._sweep_one(dataset, older_s)

    async def _sweep_one(self, dataset: Dataset, older_s: float) -> None:
        if dataset.kind is DataKind.MANAGED:
            async with self._turn(dataset):  # No version is being closed.
                work = partial(self._swept, dataset, older_s)
                await self._threads.run("sweep", work, DELETING_S)

    def _swept(self, dataset: Dataset, older_s: float) -> None:
        """Remove what no version needs of those that there are now."""
        if (now := present(self._state, dataset)) is not None:
            kept = {version.digest for version in now.versions}
            self.store.sweep(dataset.id, kept, older_s)

    # ── parts ───────────────────────────────────────────────────────────────────────

    async def _run(
        self, actor: Actor, work: Callable[[], T], patience_s: float = PATIENCE_S
    ) -> T:
        try:
            return await self._threads.run(actor.user, work, patience_s)
        except TimeoutError:
            raise Rejected(
                Code.UNAVAILABLE, f"The disk did not answer in {patience_s:.0f} s.", AGAIN
            ) from None
        except FileNotFoundError:
            raise
        except OSError as error:
            raise _not_kept(error) from error


def _pieces(fd: int, size: int, buffer: memoryview) -> Iterator[memoryview]:
    """Read a file into a buffer; each piece counts until the next is asked for.

    Raises NotHanded where its disk fails: whoever sends it is told of it, too.
    """
    done = 0
    while done < size:
        try:
            got = os.preadv(fd, [buffer[: size - done]], done)
        except OSError as error:
            raise NotHanded(f"a file cannot be read: {error.strerror}") from error
        if not got:
            return
        yield buffer[:got]
        done += got


def _went() -> Rejected:
    return Rejected(
        Code.DATA_MISSING,
        "The dataset was removed while its files came.",
        "See `allot data ls`.",
    )


def _not_kept(error: OSError) -> Rejected:
    return Rejected(
        Code.UNAVAILABLE,
        f"The data cannot be kept: {(error.strerror or str(error)).lower()}.",
        "This is a problem of the platform: tell its administrator. No partial file stays.",
    )


def version_view(version: DataVersion) -> DataVersionView:
    """Return a version as people see it."""
    return DataVersionView(
        version.number,
        version.digest,
        version.files,
        version.bytes,
        version.closed_at,
        version.user,
        version.checkpoint,
    )


def _grantee(note: GrantNote) -> tuple[Grantee, str]:
    if bool(note.tenant) == bool(note.user):
        raise Rejected(
            Code.BAD_REQUEST,
            "Name one: a tenant, or a user.",
            "Such as tenant:vision, user:ann.",
        )
    return (Grantee.TENANT, note.tenant) if note.tenant else (Grantee.USER, note.user)
