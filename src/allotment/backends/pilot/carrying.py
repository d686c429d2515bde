"""Checkpoints that go with their jobs: from the nodes that saved them, by way of the service.

A checkpoint counts as saved once all of it is here. Before an attempt begins elsewhere it is
laid on the new nodes, whole; where it lies already, nothing is sent.
"""

import asyncio
import contextlib
import errno
import os
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path, PurePosixPath
from secrets import token_hex

import msgspec

from allotment.backends.pilot import file_messages as fm
from allotment.backends.pilot.link import Link
from allotment.backends.together import gather_all
from allotment.model.errors import BackendError, Code, Rejected
from allotment.model.ids import JobId
from allotment.model.quantity import GIB
from allotment.rights.disk import is_too_full
from allotment.rights.flushing import flush
from allotment.rights.removing import remove
from allotment.service.checkpoints import Reported
from allotment.service.data.left_files import FolderFiles
from allotment.service.ports import Identity
from allotment.service.workspace import Changed, FileBelow, JobFolders, KeptReport, Left

LARGEST = 64 * GIB
MOST_FILES = 100_000
DEEPEST = 100
AHEAD = 4
"""So many pieces of a file are asked for at once."""
CURRENT = "current.json"
REPORT = ".allot-checkpoint.json"
NEVER = (errno.EEXIST, errno.EISDIR, errno.ENOTDIR, errno.ENAMETOOLONG, errno.EINVAL)
"""How a file system says that names do not go together: on two nodes one is a folder."""


class NotKept(BackendError):
    """A checkpoint that cannot be kept as it is: why. To try again is of no use."""


class Saved(msgspec.Struct, frozen=True):
    """A checkpoint of a job that is here, whole."""

    version: str
    """The name of its folder."""
    at_ns: int
    """When it was reported, by the date of that file."""
    report: bytes
    files: tuple[FileBelow, ...]
    """By path below the job's folder of checkpoints."""


class Checkpoints:
    """The checkpoints that are here, the newest of each job."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._coming = 0
        """Bytes of checkpoints that are fetched now."""

    def of(self, job: JobId) -> Saved | None:
        """Return the newest checkpoint of a job; None where there is none.

        Raises BackendError where that cannot be said.
        """
        try:
            return msgspec.json.decode((self._of(job) / CURRENT).read_bytes(), type=Saved)
        except FileNotFoundError:
            return None
        except (OSError, msgspec.DecodeError) as error:
            raise BackendError(
                f"the checkpoint that is kept of job {job} cannot be read: "
                f"{self._of(job) / CURRENT}: {error}"
            ) from error

    def forget(self, job: JobId) -> None:
        """Remove what is here of a job."""
        remove(None, str(self._of(job)))

    async def bring(
        self, job: JobId, links: Mapping[str, Link], left: Left, changed: Changed
    ) -> None:
        """Bring a checkpoint that a job reports here, from all its nodes, or nothing of it.

        Raises NotKept, or another BackendError where another try may do.
        """
        try:
            await self._bring(job, links, left, changed)
        except OSError as error:
            trouble = f"{error.strerror}: {error.filename}" if error.filename else str(error)
            kind = NotKept if error.errno in NEVER else BackendError
            raise kind(trouble) from error

    async def _bring(
        self, job: JobId, links: Mapping[str, Link], left: Left, changed: Changed
    ) -> None:
        part = part_of(changed.data, left.folder)
        if part is None:
            saved = Saved("", changed.at_ns, changed.data, ())
            await asyncio.to_thread(self._note, job, saved)
            return
        found = await _listed(links, left, part)
        if not found:
            raise NotKept("there is no file where the job says that it saved")
        size = sum(file.size for _, file in found.values())
        if size > LARGEST:
            raise NotKept(f"it has {size} bytes, and {LARGEST} are kept at most")
        self._look_for_room(size, len(found))
        version = token_hex(8)
        folder = self._of(job) / version
        self._coming += size
        try:
            await _fetch_all(links, left, part, found, folder)
        except BaseException:
            await asyncio.to_thread(remove, None, str(folder))
            raise
        finally:
            self._coming -= size
        files = tuple(file for _, file in found.values())
        saved = Saved(version, changed.at_ns, changed.data, files)
        try:
            await asyncio.to_thread(self._note, job, saved)
        except Exception:  # If it is cancelled, the thread notes it all the same.
            await asyncio.to_thread(self._drop, job, version)
            raise

    def _drop(self, job: JobId, version: str) -> None:
        """Remove a checkpoint that could not be noted."""
        with contextlib.suppress(BackendError):
            saved = self.of(job)
            if saved is None or saved.version != version:
                remove(None, str(self._of(job) / version))

    def _look_for_room(self, size: int, files: int) -> None:
        """Raise BackendError where a checkpoint would take what the service needs itself."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if is_too_full(self._folder, self._coming + size, files):
            raise BackendError(
                f"the disk of {self._folder} is too full for its {size} bytes in {files} files"
            )

    def _note(self, job: JobId, saved: Saved) -> None:
        """Have a checkpoint be the newest of its job, on disk, and remove others."""
        folder = self._of(job)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = folder / f"{CURRENT}.part"
        path.write_bytes(msgspec.json.encode(saved))
        flush(folder)
        path.rename(folder / CURRENT)
        flush(folder)
        for other in folder.iterdir():
            if other.name not in (CURRENT, saved.version):
                remove(None, str(other))

    async def lay(self, link: Link, wanted: JobFolders, left: Left) -> None:
        """Have the newest checkpoint of a job on a node, whole. Raises BackendError."""
        saved = await asyncio.to_thread(self.of, wanted.job)
        if saved is None or not saved.files:
            return
        listing = await link.call(fm.ListFiles(left, MOST_FILES), fm.Listing)
        if set(saved.files) <= set(listing.files):
            return
        await link.call(fm.ClearCheckpoints(wanted.job))
        await link.call(fm.MakeFolders(wanted))
        await self.send(link, wanted.job, saved, left)

    async def send(self, link: Link, job: JobId, saved: Saved, left: Left) -> None:
        """Put a checkpoint that is here to a node. Raises BackendError."""
        folder = self._of(job) / saved.version
        for file in saved.files:
            await self._send(link, folder / file.path, file, left)
        size, at_ms = len(saved.report), saved.at_ns // 1_000_000
        report = FileBelow(REPORT, size, at_ms)
        await link.call(_put(left, report, 0, saved.report))

    async def _send(self, link: Link, path: Path, file: FileBelow, left: Left) -> None:
        offset = 0
        while True:
            try:
                data = await asyncio.to_thread(_piece, path, offset)
            except OSError as error:  # A newer one may just have taken its place.
                raise BackendError(
                    f"the checkpoint that was kept cannot be read: {path}: {error.strerror}"
                ) from error
            await link.call(_put(left, file, offset, data))
            offset += len(data)
            if offset >= file.size:
                return
            if not data:
                raise BackendError(f"the checkpoint that was kept is incomplete: {file.path}")

    # ── as versions of datasets ─────────────────────────────────────────────────────────

    def files(self, job: JobId, folder: str, only: str, step: int) -> FolderFiles:
        """Return the files of the newest checkpoint: that is to be this one. Raises Rejected
        and BackendError."""
        saved = self.of(job)
        if saved is None or not is_of(saved, f"{folder}/{only}", step):
            raise Rejected(
                Code.CONFLICT, "A newer one was reported, or it is not here any more."
            )
        return FolderFiles(str(self._of(job) / saved.version), None, only, saved.files)

    async def put_back(
        self, job: JobId, folder: str, kept: KeptReport, lay: Callable[[str], Awaitable[None]]
    ) -> Saved:
        """Have a checkpoint that `lay` puts below a folder be the newest, and return it.

        Raises BackendError, and what `lay` does.
        """
        path = f"{folder}/{kept.path}"
        saved = await asyncio.to_thread(self.of, job)
        if saved is not None and is_of(saved, path, kept.step):
            return saved
        version = token_hex(8)
        place = self._of(job) / version
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        place.mkdir(mode=0o700, parents=True)
        try:
            await lay(str(place))
            files = await asyncio.to_thread(_files_in, place)
        except BaseException:
            await asyncio.to_thread(remove, None, str(place))
            raise
        report = msgspec.json.encode(Reported(path, kept.step, kept.progress_milli / 1000))
        saved = Saved(version, kept.at * 1_000_000, report, files)
        await asyncio.to_thread(self._note, job, saved)
        return saved

    def _of(self, job: JobId) -> Path:
        return self._folder / str(job)


def _files_in(folder: Path) -> tuple[FileBelow, ...]:
    found = FolderFiles(str(folder), None)
    try:
        return tuple(found.files(sys.maxsize)[0])
    finally:
        found.close()


def is_of(saved: Saved, path: str, step: int) -> bool:
    """Whether a checkpoint is what a job reported by this path and step."""
    try:
        reported = msgspec.json.decode(saved.report, type=Reported, strict=False)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return False
    is_there = os.path.normpath(reported.path) == os.path.normpath(path)
    return is_there and reported.step == step


def part_of(report: bytes, folder: str) -> str | None:
    """Return which part of its folder a job says its checkpoint is, '' for all of it.

    None where it is nowhere in there.
    """
    try:
        path = msgspec.json.decode(report, type=Reported, strict=False).path
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
    if not path.startswith("/"):
        return ""
    place = PurePosixPath(os.path.normpath(path))
    if not place.is_relative_to(folder):
        return None
    part = str(place.relative_to(folder))
    return "" if part == "." else part


async def _listed(
    links: Mapping[str, Link], left: Left, part: str
) -> dict[str, tuple[str, FileBelow]]:
    """Return a checkpoint's files, each with its node: the first that has it."""
    found: dict[str, tuple[str, FileBelow]] = {}
    for node, link in links.items():
        listing = await link.call(fm.ListFiles(left, MOST_FILES), fm.Listing)
        if not listing.is_all or len(listing.files) > MOST_FILES:
            raise NotKept(f"its folder has more than {MOST_FILES} files")
        for file in listing.files:
            is_in = not part or file.path == part or file.path.startswith(f"{part}/")
            if is_in and not file.path.startswith(".allot-"):
                check(file)
                found.setdefault(file.path, (node, file))
    return found


def check(file: FileBelow) -> None:
    """Raise NotKept for a path that leads out of its folder, or too deep, or is not UTF-8."""
    path, parts = file.path, file.path.split("/")
    is_odd = "\0" in path or "\ufffd" in path or {"", ".", ".."} & {*parts}
    if len(parts) > DEEPEST or len(path) > 3000 or is_odd or file.size < 0:
        raise NotKept(f"{path[:200]!r} is not a path that can be kept")


async def _fetch_all(
    links: Mapping[str, Link],
    left: Left,
    part: str,
    found: Mapping[str, tuple[str, FileBelow]],
    to: Path,
) -> None:
    """Fetch a checkpoint as it was listed. Raises BackendError where it changed."""
    for node, file in found.values():
        await _fetch(links[node], left, file, to / file.path)
    if await _listed(links, left, part) != found:
        raise BackendError("it changed while it was fetched")


async def _fetch(link: Link, left: Left, file: FileBelow, to: Path) -> None:
    """Fetch one file as it was listed. Raises BackendError where it changed."""
    to.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    inode, end = 0, max(1, file.size)
    with to.open("xb") as out:
        for start in range(0, end, AHEAD * fm.PIECE):
            places = range(start, min(end, start + AHEAD * fm.PIECE), fm.PIECE)
            parts = await gather_all([_read(link, left, file.path, at) for at in places])
            for at, part in zip(places, parts, strict=True):
                inode = inode or part.inode
                is_same = part.inode == inode and part.size == file.size
                if part.code or not is_same or len(part.data) != min(fm.PIECE, file.size - at):
                    why = part.message or "it changed while it was fetched"
                    kind = NotKept if part.code == Code.FORBIDDEN else BackendError
                    raise kind(f"{file.path}: {why}")
                await asyncio.to_thread(out.write, part.data)


async def _read(link: Link, left: Left, path: str, offset: int) -> fm.Part:
    return await link.call(fm.ReadFile(left, path, offset, fm.PIECE), fm.Part)


def _piece(path: Path, offset: int) -> bytes:
    with path.open("rb") as file:
        file.seek(offset)
        return file.read(fm.PIECE)


def _put(left: Left, file: FileBelow, offset: int, data: bytes) -> fm.PutFile:
    return fm.PutFile(left.folder, left.owner, file, offset, data)


def left_in(folder: str, nodes: Sequence[str], identity: Identity | None, user: str) -> Left:
    """Return a job's folder of checkpoints as its own user reads it."""
    return Left(folder, tuple(nodes), identity, identity, user, user)
