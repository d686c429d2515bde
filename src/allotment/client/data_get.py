"""Fetches a version of a dataset into a folder: each file whole under its name, or not there.

What was cut goes on where it was. A file that came in part lies beside its place under a name
of its own. Of whole ones it is remembered how they looked, and what their SHA-256 is.
"""

import contextlib
import errno
import fcntl
import hashlib
import os
import stat
import threading
import time
from collections import deque
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Final

import msgspec

from allotment.client.content import PIECE, known_of, memory_of, recall, remember
from allotment.client.errors import Refused, Unreachable, Unreadable
from allotment.client.files import make_link, names_of, opened, put_in_place
from allotment.client.request import data_path, decode
from allotment.client.step import Step, Tell
from allotment.client.transport import TOO_MANY, Transport
from allotment.service.content.manifest import FileEntry, digest_of
from allotment.service.data.view import DataFiles

LANES: Final = 4
"""Files at a time: an object store takes a while before it sends anything."""
PAUSES_S: Final = (1.0, 2.0, 4.0, 8.0)
"""Before what was cut is asked for again, where nothing came since the last time."""
READ_S: Final = 620.0
"""How long the next piece may take: the service asks an object store some times."""
REMEMBER_EVERY_S: Final = 30.0
PARTIAL: Final = 206
_PART: Final = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_WHOLE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def get(transport: Transport, name: str, folder: Path, tell: Tell) -> DataFiles:
    """Write the files of a version below a folder. Raises ApiError."""
    page = decode(transport.fetch("GET", data_path(name, "/files"), again=True), DataFiles)
    folder = Path(os.path.abspath(folder))  # noqa: PTH100 - its links stay
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _Getting(transport, page, folder, tell).all()
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        raise Refused(
            "unavailable",
            f"The files cannot be written to {folder}: {why}.",
            "Name another folder, or make room; what came whole is not fetched again.",
        ) from error
    return page


class _Getting:
    """A version on its way into a folder."""

    def __init__(self, transport: Transport, page: DataFiles, folder: Path, tell: Tell) -> None:
        self._transport = transport
        self._page = page
        self._patient = transport.patient(READ_S)
        self._exact = f"{page.tenant}/{page.name}@{page.version.number}"
        self._folder = folder
        self._tell = tell
        self._memory = memory_of("got", folder)
        self._known = recall(self._memory)
        self._left = deque(file for file in page.files if file.kind != "l")
        self._failed: list[BaseException] = []
        self._turn = threading.Lock()
        self._done = self._told = 0
        self._remembered_at = time.monotonic()

    def all(self) -> None:
        """Fetch all files, and make all links. What failed first is raised."""
        self._say()
        lanes = min(LANES, len(self._left))
        others = [threading.Thread(target=self._lane, daemon=True) for _ in range(lanes - 1)]
        for thread in others:
            thread.start()
        try:
            self._lane()
            for thread in others:
                thread.join()
        except BaseException as error:  # Interrupted: the others end with their next piece.
            self._failed.append(error)
            raise
        finally:
            self._patient.close()
            self._remember()
        if self._failed:
            raise self._failed[0]
        for file in self._page.files:
            if file.kind == "l":
                make_link(self._folder, file.path, file.of)

    def _lane(self) -> None:
        while not self._failed:
            try:
                file = self._left.popleft()
            except IndexError:
                return
            try:
                self._get(file)
            except Exception as error:  # told by `all`
                self._failed.append(error)

    def _get(self, file: FileEntry) -> None:
        names = names_of(file.path)
        with opened(self._folder, names[:-1], file.path) as below:
            digest = self._there(below, names[-1], file)
            if digest:
                self._came(file.size)
            else:
                digest = self._fetch(below, names[-1], file)
            fd = os.open(names[-1], _WHOLE, dir_fd=below)
        try:
            state = os.fstat(fd)
            if (file.kind == "x") != bool(state.st_mode & stat.S_IXUSR):
                # Whoever may read it, and nobody else, may run it.
                mode = stat.S_IMODE(state.st_mode) & ~0o111
                os.fchmod(fd, mode | (mode & 0o444) >> 2 if file.kind == "x" else mode)
                state = os.fstat(fd)
        finally:
            os.close(fd)
        with self._turn:
            self._known[file.path] = known_of(state, file.size, file.of + digest)
            if time.monotonic() - self._remembered_at > REMEMBER_EVERY_S:
                self._remember()

    def _remember(self) -> None:
        began = time.time_ns()
        known = self._known.copy()  # After an interrupt a lane may still add what it just got.
        for path in [path for path, each in known.items() if not each.is_settled(began)]:
            # How it looks says nothing yet, and what is in it does.
            known[path] = msgspec.structs.replace(known[path], ctime_ns=0)
        remember(self._memory, known)
        self._remembered_at = time.monotonic()

    # ── what is there ───────────────────────────────────────────────────────────────

    def _there(self, below: int, name: str, file: FileEntry) -> str:
        """Return the SHA-256 of a file that is in its place as the version has it, else ''."""
        digest, known = file.of if self._page.sha256 else "", self._known.get(file.path)
        if known is not None and known.digest.startswith(file.of):
            digest = known.digest.removeprefix(file.of)
        else:
            known = None
        try:
            fd = os.open(name, _WHOLE, dir_fd=below)
        except OSError:
            return ""  # What is there instead is told when the file gets its name.
        with os.fdopen(fd, "rb", buffering=0) as there:
            state = os.fstat(fd)
            if not digest or not stat.S_ISREG(state.st_mode) or state.st_size != file.size:
                return ""
            if known is not None and known.looks_like(state):
                return digest
            return digest if hashlib.file_digest(there, "sha256").hexdigest() == digest else ""

    # ── what comes ──────────────────────────────────────────────────────────────────

    def _fetch(self, below: int, name: str, file: FileEntry) -> str:
        """Have a file come, and give it its name; return its SHA-256."""
        part = f".allot-{digest_of(f'{file.path} {file.of}'.encode())[:32]}.part"
        with _own(below, part, file.path) as fd:
            was_begun = os.fstat(fd).st_size > 0
            digest = self._filled(fd, file)
            if was_begun and not self._is_right(digest, file):
                os.ftruncate(fd, 0)  # It was not this file that was begun.
                self._came(-file.size)
                digest = self._filled(fd, file)
            if not self._is_right(digest, file):
                os.unlink(part, dir_fd=below)
                raise Unreadable(
                    f"{file.path!r} came with other bytes than were put into {self._exact}.",
                    "Get it again; if that does not help, something else writes where its "
                    "owner keeps it.",
                )
            put_in_place(below, part, name, file.path)
            return digest

    def _is_right(self, digest: str, file: FileEntry) -> bool:
        return digest == file.of or not self._page.sha256

    def _filled(self, fd: int, file: FileEntry) -> str:
        """Have the bytes of a file that it lacks; return the SHA-256 of all of it."""
        digest, done = hashlib.sha256(), 0
        os.ftruncate(fd, min(os.fstat(fd).st_size, file.size))
        while piece := os.pread(fd, PIECE, done):
            digest.update(piece)
            done += len(piece)
        self._came(done)
        for piece in self._rest(file, done):
            digest.update(piece)
            view = memoryview(piece)
            while view:
                written = os.pwrite(fd, view, done)
                done += written
                view = view[written:]
            self._came(len(piece))
        return digest.hexdigest()

    def _rest(self, file: FileEntry, done: int) -> Iterator[bytes]:
        """Yield a file from a place on, asked for again where it is cut. Raises ApiError."""
        pauses = iter(PAUSES_S)
        while done < file.size:
            try:
                for piece in self._asked(file, done):
                    done += len(piece)
                    pauses = iter(PAUSES_S)
                    yield piece
                    if self._failed:
                        raise _Ended
            except (Unreachable, Refused) as error:
                if isinstance(error, Refused) and error.status != TOO_MANY:
                    raise
                pause = next(pauses, None)
                if pause is None:
                    raise Unreachable(
                        error.message, f"{error.hint} Get it again: it goes on where it was."
                    ) from error
                time.sleep(pause)

    def _asked(self, file: FileEntry, start: int) -> Iterator[bytes]:
        path = data_path(self._exact, f"/files/{file.of}")
        headers = {"Accept": "*/*"} | ({"Range": f"bytes={start}-"} if start else {})
        left = file.size - start
        if not start and left <= PIECE:  # Over a connection that is kept: of these are many.
            data = self._patient.fetch("GET", path, None, headers, again=True)
            if len(data) != left:
                raise Unreachable("The service broke off in the middle of a file.")
            yield data
            return
        with contextlib.closing(self._transport.open(path, headers, READ_S)) as reply:
            if start and reply.status != PARTIAL:
                raise Unreadable(f"The service does not send a part of {file.path!r}.")
            while left and (piece := reply.read(min(PIECE, left))):
                left -= len(piece)
                yield piece
        if left:
            raise Unreachable("The service broke off in the middle of a file.")

    # ── how far it is ───────────────────────────────────────────────────────────────

    def _came(self, size: int) -> None:
        with self._turn:
            self._done += size
            if abs(self._done - self._told) >= PIECE:
                self._say()

    def _say(self) -> None:
        self._told, files = self._done, self._page.version.files
        what = "1 file" if files == 1 else f"{files:,} files"
        self._tell(Step("getting data", self._done, self._page.version.bytes, what))


class _Ended(Exception):
    """Another lane failed, or was interrupted: that is told."""


@contextlib.contextmanager
def _own(below: int, part: str, path: str) -> Generator[int]:
    """Open a file that came in part, or begin it; nobody else writes to it meanwhile.

    One that is not our own is not gone on with.
    """
    fd = os.open(part, _PART, 0o644, dir_fd=below)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Refused(
                "conflict",
                f"Another process is getting {path!r} into the same folder.",
                "Wait until it is done, or name another folder.",
            ) from None
        except OSError as error:
            if error.errno not in {errno.ENOLCK, errno.ENOTSUP}:
                raise  # else its file system has no locks
        found = os.fstat(fd)
        there = os.stat(part, dir_fd=below, follow_symlinks=False)
        is_own = stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid()
        if not (is_own and found.st_nlink == 1 and os.path.samestat(found, there)):
            raise Unreadable(
                f"{path!r} cannot be written: {part} is there, and is not yours.",
                "Remove it, or name another folder.",
            )
        try:
            yield fd
        except BaseException:
            if os.fstat(fd).st_size == 0:
                with contextlib.suppress(OSError):
                    os.unlink(part, dir_fd=below)
            raise
    finally:
        os.close(fd)
