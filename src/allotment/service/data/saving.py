"""What jobs leave becomes versions of datasets: as a whole, or not at all.

These are the outputs of jobs that succeeded, and checkpoints of jobs while they run: of these
the newest, and as many of a job stay as it says. The files are read with the rights of the
job's owner, as if it had put the folder itself; on nodes with disks of their own by the runners
there. A service that ends in the middle begins again: there is no version before all files are
there.
"""

import asyncio
import contextlib
import hashlib
import posixpath
import sys
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterator
from functools import partial
from typing import Final, TypeVar

import msgspec
import structlog

from allotment.engine.datasets import present
from allotment.engine.records import AttemptRecord, CheckpointRecord, JobRecord
from allotment.engine.state import State
from allotment.model import commands as c
from allotment.model.datasets import DataKind, Dataset, JobCheckpoint
from allotment.model.errors import BackendError, Code, EngineAway, Rejected
from allotment.model.ids import SYSTEM, JobId
from allotment.model.quantity import WallTime, show_bytes
from allotment.rights.disk import is_too_full
from allotment.service.content.manifest import (
    BadManifest,
    FileEntry,
    digest_of,
    read,
    written,
)
from allotment.service.content.receiving import UNSAID, Receiving
from allotment.service.data.datasets import Datasets
from allotment.service.data.left_files import FolderFiles, changed
from allotment.service.data.objects.bucket import Bucket, Stopped
from allotment.service.data.objects.checkpoints import new_folder
from allotment.service.data.objects.listing import COMPLETE, folder_of
from allotment.service.data.objects.parts import (
    MOST_SENT,
    ChangedMeanwhile,
    known,
    measured,
    send,
)
from allotment.service.data.objects.trouble import StoreTrouble
from allotment.service.data.objects.unfinished import Unfinished
from allotment.service.data.wishes import Wish
from allotment.service.host_accounts import HostAccounts
from allotment.service.threads import Threads
from allotment.service.workspace import Carrying, Left, LeftFiles
from allotment.service.workspaces import Workspaces

log = structlog.get_logger("allot.service")

T = TypeVar("T")
LOOK_EVERY_S: Final = 2.0
TRIES: Final = 8
FIRST_PAUSE_S, LONGEST_PAUSE_S = 2.0, 300.0
AWAY_S: Final = 24 * 3600.0
"""How long nodes that are not there now are waited for: others may have them meanwhile."""
AGAIN_S: Final = 60.0
SAVING_S: Final = 4 * 3600.0
_NO_DIGEST: Final = "0" * 64
_PASSING: Final = {Code.UNAVAILABLE, Code.UNCERTAIN, Code.CONFLICT}


class Saving:
    """Saves the outputs and the checkpoints of jobs."""

    def __init__(
        self, state: State, datasets: Datasets, workspaces: Workspaces, wish: Wish
    ) -> None:
        self._state = state
        self._datasets = datasets
        self._workspaces = workspaces
        self._wish = wish
        self._accounts = HostAccounts()
        self._threads = Threads("saving", each=1, total=4)
        self._fetching = Threads("saving-from-nodes", each=1)
        """A node that is slow holds up what comes from it, and nothing else."""
        self._tasks: dict[JobId, asyncio.Task[None]] = {}
        self._troubles: dict[JobId, str] = {}
        """Why it has to be tried again."""

    def warnings_of(self, job: JobId) -> tuple[str, ...]:
        """Return what the owner of a job should know of what it left."""
        trouble = self._troubles.get(job)
        if job not in self._tasks or not trouble:
            return ()
        return (f"what it left is not saved yet, and that is tried again: {trouble}",)

    async def look(self) -> None:
        """Begin with what jobs have left since."""
        for job in self._state.jobs.values():
            if (job.has_to_keep or job.has_to_save) and job.id not in self._tasks:
                work = self._keep(job) if job.has_to_keep else self._save(job)
                task = asyncio.create_task(work)
                self._tasks[job.id] = task
                self._troubles.pop(job.id, None)
                task.add_done_callback(lambda _, job=job.id: self._tasks.pop(job))

    async def close(self) -> None:
        """Break off; the next start begins again."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _save(self, job: JobRecord) -> None:
        """Save the outputs of one job, and note what became of it."""
        saved, why = await self._outcome(job, lambda: self._saved(job), lambda: True)
        await self._note(c.NoteOutputs(job.id, saved, why))

    async def _keep(self, job: JobRecord) -> None:
        """Keep the newest checkpoint of one job, and note what became of it.

        Where that cannot be now and a newer one came, that is tried in its place.
        """
        newest = job.checkpoint
        assert newest is not None

        def is_newest() -> bool:
            return job.checkpoint is newest

        kept, why = await self._outcome(job, lambda: self._kept(job, newest), is_newest)
        if kept or is_newest():
            await self._note(c.NoteKept(job.id, newest.path, newest.step, kept, why))

    async def _outcome(
        self, job: JobRecord, work: Callable[[], Awaitable[str]], goes_on: Callable[[], bool]
    ) -> tuple[str, str]:
        """Return the version that became of something, or why none did."""
        try:
            return await _in_the_end(work, goes_on, partial(self._trouble, job.id)), ""
        except Rejected as refusal:
            return "", refusal.message
        except Exception as error:
            log.exception("what a job left could not be saved", job=job.id)
            return "", f"a bug in Allotment: {error!r}"

    def _trouble(self, job: JobId, why: str) -> None:
        self._troubles[job] = why

    async def _note(self, wish: c.NoteOutputs | c.NoteKept) -> None:
        try:
            await self._wish(wish, SYSTEM)
        except Rejected as refusal:
            log.warning("what was saved cannot be noted", job=wish.job, why=str(refusal))
            await asyncio.sleep(AGAIN_S)  # Then it begins again.

    async def _saved(self, job: JobRecord) -> str:
        """Return the version that a job's outputs are now. Raises Rejected."""
        names, name, newest = self._datasets.names, job.spec.save, job.attempts[-1]
        dataset = names.find_to_write(names.reference(name), job.owner)
        folder = self._workspaces.of(job).folders.output(job.id, job.spec, newest.no)
        with _told_plainly(lambda: names.find_to_write(names.reference(name), job.owner)):
            async with self._left(job, newest, folder) as left:
                if dataset.kind is DataKind.OBJECTS:
                    return await self._put_to_store(job, dataset, left)
                return await self._put(job, name, left)

    async def _kept(self, job: JobRecord, newest: CheckpointRecord) -> str:
        """Return the version that a job's checkpoint is now. Raises Rejected."""
        names, how = self._datasets.names, job.spec.checkpoint
        assert how is not None
        named = names.reference(how.save)
        dataset = names.find_to_write(named, job.owner)
        of_that = (each for each in job.attempts if each.no == newest.attempt)
        attempt = next(of_that, job.attempts[-1])
        folder = self._workspaces.of(job, attempt).folders.checkpoints(job.id, job.spec)
        path = path_below(folder, newest.path)
        of = JobCheckpoint(job.id, newest.attempt, path, newest.step, newest.progress_milli)
        number = next((each.number for each in dataset.versions if _is(each.checkpoint, of)), 0)
        if not number:  # else a service that was killed kept it, and did not say so
            with _told_plainly(lambda: names.find_to_write(named, job.owner)):
                async with self._left(job, attempt, folder, of) as left:
                    if dataset.kind is DataKind.OBJECTS:
                        number = await self._kept_in_store(job, dataset, left, of)
                    else:
                        data = await self._taken(job, how.save, left)
                        number = await self._closed(job, how.save, data, of)
        await self._leave_newest(dataset, job, how.keep)
        return f"{dataset.full}@{number}"

    @contextlib.asynccontextmanager
    async def _left(
        self,
        job: JobRecord,
        attempt: AttemptRecord,
        folder: str,
        of: JobCheckpoint | None = None,
    ) -> AsyncGenerator[LeftFiles]:
        """Have the files that an attempt left in a folder at hand, or a checkpoint there.

        Raises BackendError and Rejected.
        """
        account = await self._accounts.of(job.owner)
        who, workspace = account.identity, self._workspaces.of(job, attempt)
        only, step = (of.path, of.step) if of is not None else ("", 0)
        if not isinstance(workspace, Carrying):
            yield FolderFiles(folder, who, only)
            return
        nodes = tuple(self._workspaces.nodes_of(attempt))
        there = Left(folder, nodes, who, who, account.name, job.owner.user)
        async with workspace.left_files(job.id, there, only, step) as left:
            yield left

    async def _kept_in_store(
        self, job: JobRecord, dataset: Dataset, left: LeftFiles, of: JobCheckpoint
    ) -> int:
        """Put a checkpoint to an object store; return its version. No part of one stays."""
        store = self._datasets.in_stores
        fresh = new_folder(job.id, dataset.id)
        try:
            listed = await self._put_whole(job, dataset, left, fresh)
            of = msgspec.structs.replace(of, listed=listed)
            return (await store.close(dataset, fresh, job.owner, of)).number
        except (Rejected, StoreTrouble, Stopped, BackendError, OSError) as error:
            # Else it may be a version all the same.
            if not isinstance(error, Rejected) or error.code is not Code.UNCERTAIN:
                await store.leave(dataset, job.id, job.owner, failed=fresh)
            raise

    async def _leave_newest(self, dataset: Dataset, job: JobRecord, keep: int) -> None:
        """Remove all but a job's newest checkpoints; one that jobs use goes another time."""
        now = self._state.datasets.get((dataset.tenant, dataset.name), dataset)
        old = now.checkpoints_of(job.id)[:-keep]
        if now.kind is DataKind.OBJECTS:
            # Their objects first: a version whose objects cannot go is seen, and tried again.
            old = await self._datasets.in_stores.leave(now, job.id, job.owner, old)
        for each in old:
            with contextlib.suppress(Rejected):
                await self._datasets.remove_from(now, each.number, SYSTEM)

    async def _put(self, job: JobRecord, name: str, left: LeftFiles) -> str:
        data = await self._taken(job, name, left)
        names = self._datasets.names
        dataset = names.find_to_write(names.reference(name), job.owner)
        ended = self._state.wall(job.finished_at)
        number = made_before(dataset, digest_of(data), job.owner.user, ended)
        return f"{name}@{number or await self._closed(job, name, data)}"

    async def _taken(self, job: JobRecord, name: str, left: LeftFiles) -> bytes:
        """Take files in; return the list of them."""
        receiving = await self._datasets.receiving(name, job.owner)
        take = partial(self._received, left, receiving)
        most_bytes = self._state.config.limits.data_store
        try:
            return written(
                await self._run(job, left, lambda: self._each(left, take, most_bytes))
            )
        finally:
            receiving.close()

    async def _run(self, job: JobRecord, left: LeftFiles, work: Callable[[], T]) -> T:
        """Do work with files of a job in a thread, in turns with what comes the same way."""
        user = job.owner.user
        if left.nodes:
            return await self._fetching.run((left.nodes, user), work, SAVING_S)
        return await self._threads.run(user, work, SAVING_S)

    async def _closed(
        self, job: JobRecord, name: str, data: bytes, of: JobCheckpoint | None = None
    ) -> int:
        done = await self._datasets.put(name, data, job.owner, of)
        if done.version is None:
            raise Rejected(
                Code.CONFLICT, "Files of the dataset were removed while they were saved."
            )
        return done.version.number

    async def _put_to_store(self, job: JobRecord, dataset: Dataset, left: LeftFiles) -> str:
        """Put outputs to an object store; return the version of what it has then."""
        await self._put_whole(job, dataset, left, folder_of(job.id, dataset.id))
        closed = await self._datasets.objects.newest(dataset, job.owner)
        return f"{dataset.full}@{closed.number}"

    async def _put_whole(
        self, job: JobRecord, dataset: Dataset, left: LeftFiles, folder: str
    ) -> str:
        """Put files to a folder of an object store.

        What is read of it counts them when all are there. Returns the SHA-256 of their list.
        Raises what can go wrong.
        """
        running, end = asyncio.current_task(), time.monotonic() + SAVING_S
        objects, names = self._datasets.objects, self._datasets.names

        def goes_on() -> bool:
            if time.monotonic() > end or running is None or running.cancelling():
                return False
            now = present(self._state, dataset)
            return now is not None and names.may_write(now, job.owner)

        bucket = await objects.bucket_of(dataset, goes_on)
        begun = partial(objects.begun, dataset, is_upload=True)
        prefix = bucket.place.prefix
        below = f"{prefix}/{folder}" if prefix else folder

        def take(path: str) -> FileEntry:
            return _sent(left, path, bucket, f"{below}/{path}", begun)

        def work() -> str:
            try:
                data = written(self._each(left, take, below=f"{folder}/"))
                digest = hashlib.sha256(data).hexdigest()
                bucket.put(f"{below}/{COMPLETE}", len(data), digest, lambda: iter([data]))
                return digest
            finally:
                bucket.close()

        return await self._run(job, left, work)

    def _each(
        self,
        left: LeftFiles,
        take: Callable[[str], FileEntry],
        most_bytes: int = sys.maxsize,
        below: str = "",
    ) -> list[FileEntry]:
        """Have each file taken; return the list of them.

        They come `below` a folder of the dataset, where that is said.
        """
        where = f"at {left.only[:200]!a}" if left.only else "in its output folder"
        most = self._state.config.limits.data_files
        try:
            try:
                found, is_all = left.files(most)
            except FileNotFoundError:
                found, is_all = (), True
            if not is_all:
                raise Rejected(
                    Code.TOO_LARGE,
                    f"They are more than {most:,} files, or not all folders can be read.",
                )
            if not found:
                raise Rejected(Code.NOT_FOUND, f"There is no file {where}.")
            if (size := sum(each.size for each in found)) > most_bytes:
                raise Rejected(
                    Code.TOO_LARGE,
                    f"They have {show_bytes(size)}; the datasets of one tenant may have "
                    f"{show_bytes(most_bytes)}.",
                )
            _check_names([f"{below}{each.path}" for each in found], below)
            entries = [take(each.path) for each in found]
            # Its job goes on, and may be replacing it.
            if left.only and left.files(most)[0] != found:
                raise changed(left.only)
            return entries
        finally:
            left.close()

    def _received(self, left: LeftFiles, receiving: Receiving, path: str) -> FileEntry:
        """Put a file into the store of datasets, unless it is there."""
        with left.opened(path) as file:
            entry = FileEntry(path, file.kind, file.size, file.digest)
            if receiving.has(file.digest, file.size):
                return entry
            if is_too_full(self._datasets.store.root, file.size, 1):
                raise Rejected(Code.UNAVAILABLE, "The disk that keeps the data is nearly full.")
            receiving.feed(bytes.fromhex(file.digest) + file.size.to_bytes(8, "big"))
            for piece in file.pieces(0, file.size):
                receiving.feed(piece)
            if not receiving.is_whole:
                raise changed(path)
            return msgspec.structs.replace(entry, of=receiving.digests[-1])


async def _in_the_end(
    work: Callable[[], Awaitable[str]],
    goes_on: Callable[[], bool],
    tell: Callable[[str], None],
) -> str:
    """Do work, again and again while what hinders it may pass, and `tell` that.

    Raises Rejected.
    """
    pause_s, tries, end = FIRST_PAUSE_S, 0, time.monotonic() + AWAY_S
    while True:
        try:
            return await work()
        except Rejected as refusal:
            is_away = isinstance(refusal.__cause__, EngineAway) and time.monotonic() < end
            tries += not is_away
            if refusal.code not in _PASSING or tries >= TRIES or not goes_on():
                raise
            tell(refusal.message)
        await asyncio.sleep(pause_s)
        pause_s = min(2 * pause_s, LONGEST_PAUSE_S)


@contextlib.contextmanager
def _told_plainly(check: Callable[[], object]) -> Generator[None]:
    """Turn what can go wrong into Rejected. `check` raises it where a right was taken back."""
    try:
        yield
    except BackendError as error:
        raise Rejected(Code.UNAVAILABLE, f"They cannot be read now: {error}.") from error
    except StoreTrouble as trouble:
        raise trouble.refusal() from trouble
    except Stopped:
        check()
        raise Rejected(Code.UNAVAILABLE, "They were not saved in time.") from None
    except TimeoutError:
        raise Rejected(
            Code.UNAVAILABLE, f"They were not saved in {SAVING_S / 3600:.0f} h."
        ) from None
    except OSError as error:
        raise _unreadable(error) from error


def _is(kept: JobCheckpoint | None, of: JobCheckpoint) -> bool:
    """Whether a version is a checkpoint, whatever was put of it."""
    return kept is not None and msgspec.structs.replace(kept, listed="") == of


def path_below(folder: str, path: str) -> str:
    """Return where a checkpoint is in the job's folder of them. Raises Rejected."""
    plain, top = posixpath.normpath(path), posixpath.normpath(folder)
    if not plain.startswith(f"{top}/"):
        raise Rejected(
            Code.BAD_REQUEST,
            f"{path[:200]!a} is not in ALLOT_CHECKPOINT_DIR ({folder}).",
        )
    return plain.removeprefix(f"{top}/")


def made_before(dataset: Dataset, digest: str, user: str, ended: WallTime) -> int:
    """Return the version that a user's outputs became already, if a service that was killed
    made it and did not say so; else 0. `ended` is when the job did.

    Versions of other jobs may have come since, so it need not be the newest.
    """
    for each in dataset.versions:
        if each.digest == digest and each.user == user and each.closed_at >= ended:
            return each.number
    return 0


def _check_names(names: list[str], below: str) -> None:
    """Raise Rejected where files cannot be in a version: before anything is kept of them.

    Else jobs could not use any version that has them.
    """
    if below and f"{below}{COMPLETE}" in names:
        raise Rejected(
            Code.BAD_REQUEST,
            f"{COMPLETE} is what the list of them is called in an object store.",
        )
    for name in names:
        if not name.isascii() and _is_odd(name):
            raise Rejected(Code.BAD_REQUEST, f"The name of {name[:200]!a} is not UTF-8.")
    try:
        read(written(FileEntry(name, "f", 0, _NO_DIGEST) for name in names))
    except BadManifest as error:
        raise Rejected(Code.BAD_REQUEST, f"They cannot all be files: {error}.") from error


def _is_odd(name: str) -> bool:
    return any("\ud800" <= letter <= "\udfff" for letter in name)


def _sent(
    left: LeftFiles, path: str, bucket: Bucket, key: str, begun: Callable[[str], Unfinished]
) -> FileEntry:
    """Put a file to an object store, which is told beforehand what comes."""
    with left.opened(path) as file:
        if file.size > MOST_SENT:
            raise Rejected(
                Code.TOO_LARGE,
                f"{path[:200]!a} has {show_bytes(file.size)}, and an object store takes "
                f"{show_bytes(MOST_SENT)} of one file.",
            )

        def reads(offset: int, size: int) -> Iterator[bytes]:
            missing = size
            try:
                for piece in file.pieces(offset, size):
                    missing -= len(piece)
                    yield piece
            except OSError as error:  # else it would be the store's
                raise _unreadable(error) from error
            if missing:
                raise changed(path)

        whole = known(file.size, file.digest)
        if file.digest == UNSAID or len(whole.parts) > 1:
            whole = measured(file.size, reads)
        if file.digest not in {UNSAID, whole.digest}:
            raise changed(path)
        try:
            send(bucket, key, whole, reads, begun)
        except ChangedMeanwhile:
            raise changed(path) from None
        return FileEntry(path, file.kind, file.size, whole.digest)


def _unreadable(error: OSError) -> Rejected:
    return Rejected(Code.UNAVAILABLE, f"They cannot be read or kept: {error.strerror}.")
