"""Checkpoints that became versions go back to where their job saved them, if these are gone.

A folder of checkpoints may be lost: with a disk, with a machine, or since somebody tidied up.
So before an attempt begins it is looked whether what the job reported last is there, with its
owner's rights. If not, the newest version is laid out under another name and gets its own when
it is whole; the job is told to go on from it. Nodes with disks of their own get it from what
the service keeps for them: there it is laid out.
"""

import errno
import hashlib
import os
import time
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from allotment.engine.records import JobRecord
from allotment.engine.state import State
from allotment.model import commands as c
from allotment.model.datasets import DataKind, Dataset, DataVersion, JobCheckpoint
from allotment.model.errors import BackendError, Rejected
from allotment.model.events import Phase
from allotment.model.ids import SYSTEM
from allotment.rights import paths
from allotment.rights.disk import is_too_full
from allotment.rights.removing import remove
from allotment.rights.user import rights_of
from allotment.service.content.manifest import FileEntry, read
from allotment.service.data.datasets import Datasets
from allotment.service.data.objects.listing import COMPLETE
from allotment.service.data.objects.trouble import Kind, StoreTrouble
from allotment.service.data.wishes import Wish
from allotment.service.host_accounts import HostAccounts
from allotment.service.launch import Account
from allotment.service.phases import took
from allotment.service.threads import Threads
from allotment.service.workspace import Carrying, KeptReport, Left, Workspace

PATIENCE_S: Final = 4 * 3600.0
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_LOOK: Final = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class Restoring:
    """Has the newest checkpoint of jobs in place before they begin."""

    def __init__(self, state: State, datasets: Datasets, wish: Wish) -> None:
        self._state = state
        self._datasets = datasets
        self._wish = wish
        self._accounts = HostAccounts()
        self._threads = Threads("restoring", each=2, total=4)

    async def ready(
        self,
        job: JobRecord,
        workspace: Workspace,
        nodes: Sequence[str],
        is_wanted: Callable[[], bool],
    ) -> tuple[Phase, ...]:
        """Have a job's newest checkpoint in place; return how long it took to restore it.

        Raises BackendError where that cannot be now, and StoreTrouble.
        """
        found = self._newest(job)
        if found is None or found[1].checkpoint is None:
            return ()
        (dataset, version), kept = found, found[1].checkpoint
        began, folder = time.time(), workspace.folders.checkpoints(job.id, job.spec)
        account = await self._accounts.of(job.owner)
        reported = job.checkpoint.path if job.checkpoint is not None else ""
        try:
            if isinstance(workspace, Carrying):
                is_back = await self._to_nodes(job, workspace, nodes, found, account, is_wanted)
            else:
                places = (reported, f"{folder}/{kept.path}")
                is_back = await self._here(job, found, folder, places, account, is_wanted)
            if not is_back:
                return ()
        except FileNotFoundError:
            return ()  # The version goes just now, or the records are those of a backup.
        except (OSError, TimeoutError) as error:
            why = getattr(error, "strerror", "") or "its file system does not answer"
            raise BackendError(
                f"the checkpoint of job {job.id} cannot be put to {folder}: {why}"
            ) from error
        no, path = job.attempts[-1].no, f"{folder}/{kept.path}"
        named = f"{dataset.full}@{version.number}"
        try:
            await self._wish(
                c.NoteRestored(job.id, no, path, kept.step, kept.progress_milli, named), SYSTEM
            )
        except Rejected as refusal:
            raise BackendError(f"{refusal}") from refusal
        return took("checkpoint", began)

    async def _here(
        self,
        job: JobRecord,
        found: tuple[Dataset, DataVersion],
        folder: str,
        places: tuple[str, ...],
        account: Account,
        is_wanted: Callable[[], bool],
    ) -> bool:
        """Have a version below a folder that the service sees, unless it is in its place."""
        dataset, version = found
        if dataset.kind is DataKind.OBJECTS:
            await self._fetched(dataset, version, places, account, is_wanted)
            if not is_wanted():
                return False
        work = partial(self._restored, dataset, version, places[0], folder, account)
        return await self._threads.run(job.owner.user, work, PATIENCE_S)

    async def _to_nodes(
        self,
        job: JobRecord,
        workspace: Carrying,
        nodes: Sequence[str],
        found: tuple[Dataset, DataVersion],
        account: Account,
        is_wanted: Callable[[], bool],
    ) -> bool:
        """Have a version on nodes, unless what the job reported last goes there anyhow."""
        kept, newest, spec = found[1].checkpoint, job.checkpoint, job.spec.checkpoint
        if kept is None or (spec is not None and spec.dir):
            return False  # What lies in a folder of the user's is not ours to write.
        if newest is not None and await workspace.has_checkpoint(
            job.id, newest.path, newest.step
        ):
            return False
        told = KeptReport(kept.path, kept.step, kept.progress_milli, found[1].closed_at)
        ours = Account(account.name, account.home)

        async def lay(folder: str) -> None:
            if not await self._here(job, found, folder, ("",), ours, is_wanted):
                raise _NotWanted

        own = workspace.folders.checkpoints(job.id, job.spec)
        who = account.identity
        left = Left(own, tuple(nodes), who, who, account.name, job.owner.user)
        with suppress(_NotWanted):
            await workspace.put_back(job.id, left, told, lay)
            return True
        return False

    def _newest(self, job: JobRecord) -> tuple[Dataset, DataVersion] | None:
        """Return the version that is a job's newest checkpoint, if its owner may read it."""
        how, names = job.spec.checkpoint, self._datasets.names
        if how is None or not how.save:
            return None
        named = names.reference(how.save)
        dataset = self._state.datasets.get((named.tenant, named.name))
        if dataset is None or not names.may_read(dataset, job.owner):
            return None
        kept = dataset.checkpoints_of(job.id)
        return (dataset, kept[-1]) if kept else None

    def _restored(
        self,
        dataset: Dataset,
        version: DataVersion,
        reported: str,
        folder: str,
        account: Account,
    ) -> bool:
        """Have a checkpoint in its folder; False where what was reported last is there.

        Raises OSError, and FileNotFoundError where the version is not there any more.
        """
        kept = version.checkpoint
        assert kept is not None
        with rights_of(account.identity):
            if reported and _is_there(reported):
                return False
            if _is_there(f"{folder}/{kept.path}"):
                return True  # An older one than what was reported, which is gone.
        files, tree = self._kept_files(dataset, version, kept)
        source = os.open(tree, _FOLDER)
        try:
            with rights_of(account.identity):
                top = _opened(folder)
            try:
                if is_too_full(top, version.bytes, version.files):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                _lay_out(source, top, kept, files, account)
            except _NotWhatWasPut as error:
                self._datasets.objects.forget(dataset, version.digest)
                raise _not_put(dataset, version, error) from error
            finally:
                os.close(top)
        finally:
            os.close(source)
        return True

    async def _fetched(
        self,
        dataset: Dataset,
        version: DataVersion,
        places: tuple[str, ...],
        account: Account,
        is_wanted: Callable[[], bool],
    ) -> None:
        """Have a version of an object store here, unless the checkpoint is in its place.

        Raises FileNotFoundError where its objects are not there any more, and as `ready`.
        """

        def is_there() -> bool:
            with rights_of(account.identity):
                return any(each and _is_there(each) for each in places)

        if await self._threads.run(dataset.user, is_there, PATIENCE_S):
            return
        try:
            await self._datasets.objects.ready(dataset, version.digest, is_wanted)
        except StoreTrouble as trouble:
            if trouble.kind not in {Kind.GONE, Kind.CHANGED}:
                raise
            raise FileNotFoundError(errno.ENOENT, trouble.cause) from trouble

    def _kept_files(
        self, dataset: Dataset, version: DataVersion, kept: JobCheckpoint
    ) -> tuple[tuple[FileEntry, ...], Path]:
        """Return the files of a checkpoint, and where they are.

        Those of an object store are as we put them: with the SHA-256 that our own books know
        by way of their list. Raises FileNotFoundError, and StoreTrouble.
        """
        store = self._datasets.store
        tree = store.tree(dataset.id, version.digest)
        if dataset.kind is not DataKind.OBJECTS:
            return store.manifest(dataset.id, version.digest).files, tree
        found = self._datasets.objects.cache.manifest(dataset.id, version.digest).files
        below = f"{found[0].path.partition('/')[0]}/"
        if kept.listed:
            there = {each.path.removeprefix(below) for each in found}
            try:
                _check_there([COMPLETE], there)
                files = _listed(tree / below / COMPLETE, kept.listed)
                _check_there([each.path for each in files], there)
            except _NotWhatWasPut as error:
                self._datasets.objects.forget(dataset, version.digest)
                raise _not_put(dataset, version, error) from error
            return files, tree / below
        files = [_below(each, below) for each in found if each.path != f"{below}{COMPLETE}"]
        return tuple(files), tree / below


class _NotWanted(Exception):
    """The job was cancelled while its checkpoint was fetched."""


class _NotWhatWasPut(Exception):
    """A file of an object store is not as it was put, or not there; the text is its path."""


def _not_put(dataset: Dataset, version: DataVersion, what: _NotWhatWasPut) -> StoreTrouble:
    return StoreTrouble(
        Kind.CHANGED,
        f"The checkpoint {dataset.full}@{version.number} is not what was put to the object "
        f"store: {str(what)[:200]!a} has other bytes, or is not there.",
        f"Find out who writes to {dataset.objects}. To begin without it: `allot data rm "
        f"{dataset.full}@{version.number}`, and submit the job again.",
    )


def _listed(path: Path, digest: str) -> tuple[FileEntry, ...]:
    """Return the files of a list. Raises _NotWhatWasPut, and FileNotFoundError.

    Another one may be of any size: it is not read into memory.
    """
    with path.open("rb") as file:
        if hashlib.file_digest(file, "sha256").hexdigest() != digest:
            raise _NotWhatWasPut(COMPLETE)
        file.seek(0)
        return read(file.read()).files


def _check_there(paths_put: Iterable[str], there: set[str]) -> None:
    """Raise _NotWhatWasPut where the store had not all that was put, when it was looked at."""
    for path in paths_put:
        if path not in there:
            raise _NotWhatWasPut(path)


def _below(file: FileEntry, folder: str) -> FileEntry:
    return msgspec.structs.replace(file, path=file.path.removeprefix(folder))


def _opened(folder: str) -> int:
    """Open a folder, not through links of /proc: they lead past closed folders."""
    found = paths.resolve(folder)
    try:
        return os.open(".", _FOLDER, dir_fd=found)
    finally:
        os.close(found)


def _is_there(path: str) -> bool:
    try:
        os.close(paths.resolve(path))
    except OSError:
        return False
    return True


def _lay_out(
    source: int, top: int, kept: JobCheckpoint, files: tuple[FileEntry, ...], account: Account
) -> None:
    """Copy files below a folder as its user's; they are there as a whole, or not at all."""
    part = f".allot-restored-{kept.job}"  # Of a service that was killed, too.
    with rights_of(account.identity):
        remove(top, part)
        os.mkdir(part, 0o755, dir_fd=top)
        fresh = os.open(part, _FOLDER, dir_fd=top)
    try:
        for file in files:
            _copy(source, fresh, file, account, is_far=bool(kept.listed))
        with (
            rights_of(account.identity),
            _above(fresh, kept.path) as (whole, name),
            _above(top, kept.path) as (place, _),
        ):
            os.rename(name, name, src_dir_fd=whole, dst_dir_fd=place)
            os.fsync(top)
    finally:
        os.close(fresh)
        with rights_of(account.identity):
            remove(top, part)


def _copy(source: int, fresh: int, file: FileEntry, account: Account, *, is_far: bool) -> None:
    """Copy one file; it is on the disk on return. Versions of checkpoints have no links.

    Raises _NotWhatWasPut where one that `is_far` is another.
    """
    found = os.open(file.path, _READ, dir_fd=source)
    with (
        os.fdopen(found, "rb") as whole,
        rights_of(account.identity),
        _above(fresh, file.path) as (place, name),
    ):
        mode = 0o755 if file.kind == "x" else 0o644
        with os.fdopen(os.open(name, _NEW, mode, dir_fd=place), "wb") as copy:
            digest = hashlib.sha256()
            while piece := whole.read(1 << 20):
                digest.update(piece)
                copy.write(piece)
            if is_far and digest.hexdigest() != file.of:
                raise _NotWhatWasPut(file.path)
            copy.flush()
            os.fsync(copy.fileno())


@contextmanager
def _above(top: int, path: str) -> Generator[tuple[int, str]]:
    """Make the folders that a file lies in; yield the last, and the file's name.

    No link is followed: their user may exchange one for another meanwhile.
    """
    *folders, last = path.split("/")
    at = os.dup(top)
    try:
        for name in folders:
            with suppress(FileExistsError):
                os.mkdir(name, 0o755, dir_fd=at)
            found = os.open(name, _LOOK, dir_fd=at)
            os.close(at)
            at = found
        yield at, last
    finally:
        os.close(at)
