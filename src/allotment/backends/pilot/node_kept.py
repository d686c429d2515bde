"""What a node keeps of the service's folder, so that many tasks find it: environments.

FOLDER/environments/made/KEY, FOLDER/environments/pythons/KEY     as in the service's folder
FOLDER/environments/new/                                          what comes, and is not whole

A folder has its name only when all of it came, has the digest that the service told, and is on
the disk. It is root's, and nobody may write it.
"""

import contextlib
import hashlib
import os
import re
import tarfile
import threading
import time
from pathlib import Path, PurePosixPath
from typing import Final

from allotment.backends.pilot.file_messages import HasKept, PutKept, UnpackKept
from allotment.model.errors import BackendError
from allotment.rights.clearing import remove_all
from allotment.rights.flushing import flush
from allotment.rights.removing import remove
from allotment.service.environments.measuring import size_below

YOUNG_S: Final = 600.0
"""What was asked for just now is of a job that begins."""
MEASURING_S: Final = 5.0
"""How long it looks at once how large environments are."""
_NAME: Final = re.compile(r"environments/(?:made|pythons)/[0-9a-f]{32}")
_PART: Final = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC


def _checked(entry: tarfile.TarInfo, _path: str = "") -> tarfile.TarInfo:
    """Return an entry as it is, if it stays in its folder. Links may lead to a Python.

    Raises BackendError.
    """
    is_plain = entry.isreg() or entry.isdir() or entry.issym()
    parts = PurePosixPath(entry.name).parts
    if not is_plain or ".." in parts or entry.name.startswith("/"):
        raise BackendError(f"an environment has {entry.name!r}, which no node keeps")
    return entry


class NodeKept:
    """The environments below a node's folder. Calls may come from several threads."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._new = folder / "environments/new"
        self._sizes: dict[str, int] = {}
        """Of environments that were here, by name. None ever changes."""
        self._is_ready = False
        self._turn = threading.Lock()
        self._clearing = threading.Lock()

    def do(self, op: HasKept | PutKept | UnpackKept) -> bool | None:
        """Carry out one order; return what it is answered with. Raises BackendError."""
        if not _NAME.fullmatch(op.name):
            raise BackendError("it is no folder that nodes keep")
        try:
            with self._turn:
                self._prepare()
            match op:
                case HasKept(name):
                    return self._has(name)
                case PutKept(name, offset, data):
                    self._put(name, offset, data)
                case UnpackKept():
                    self._unpack(op)
        except (OSError, tarfile.TarError) as error:
            why = getattr(error, "strerror", None) or str(error)
            raise BackendError(f"an environment cannot be kept on the node: {why}") from error
        return None

    def _prepare(self) -> None:
        """Make the folders, which tasks pass through; remove what an earlier runner left."""
        if self._is_ready:
            return
        for below, mode in (("", 0o711), ("made", 0o711), ("pythons", 0o711), ("new", 0o700)):
            place = self._folder / "environments" / below
            place.mkdir(mode=mode, exist_ok=True)
            place.chmod(mode)
        remove_all(self._new.iterdir())  # Now: what comes next may have the same names.
        self._is_ready = True

    def _has(self, name: str) -> bool:
        try:
            with self._turn:
                os.utime(self._folder / name)
        except FileNotFoundError:
            return False
        return True

    def held(self) -> list[tuple[float, str, int]]:
        """List the environments that are here: when each was asked for, its name and size.

        Of many that were not measured yet some have size 0.
        """
        found: list[tuple[float, str, int]] = []
        until = time.monotonic() + MEASURING_S
        for path in self._folder.glob("environments/made/*"):
            name = str(path.relative_to(self._folder))
            with contextlib.suppress(FileNotFoundError):  # It goes meanwhile.
                when = path.stat().st_mtime
                if name not in self._sizes and time.monotonic() < until:
                    self._sizes[name] = size_below(path)[1]
                found.append((when, name, self._sizes.get(name, 0)))
        return found

    def _part(self, name: str) -> Path:
        return self._new / f"{name.rpartition('/')[2]}.part"

    def _put(self, name: str, offset: int, data: bytes) -> None:
        fd = os.open(self._part(name), _PART | (0 if offset else os.O_TRUNC), 0o600)
        try:
            left = memoryview(data)
            while left:
                left = left[os.pwrite(fd, left, offset + len(data) - len(left)) :]
        except OSError:
            os.ftruncate(fd, 0)  # A disk that is full does not stay so for what is of no use.
            raise
        finally:
            os.close(fd)

    def _unpack(self, op: UnpackKept) -> None:
        part, fresh = self._part(op.name), self._new / os.urandom(8).hex()
        try:
            with part.open("rb") as file:
                part.unlink()  # One that is sent once more is another file then.
                if hashlib.file_digest(file, "sha256").hexdigest() != op.digest:
                    raise BackendError("what came of an environment is not what was sent")
                file.seek(0)
                fresh.mkdir(mode=0o755)
                with tarfile.open(fileobj=file, mode="r:") as archive:
                    archive.extraction_filter = _checked
                    archive.extractall(fresh, [_checked(entry) for entry in archive])
            fresh.chmod(0o755)
            flush(self._new)
            if not self._has(op.name):
                fresh.rename(self._folder / op.name)
                os.utime(self._folder / op.name)
        finally:
            remove(None, str(fresh))
        with self._clearing:
            self._make_room(op.limit, {op.name, *op.needed}, time.time())

    def _make_room(self, limit: int, needed: set[str], now: float) -> None:
        """Remove what was asked for least recently, until the rest is within a limit."""
        found = [
            (path.stat().st_mtime, path, size_below(path)[1])
            for kind in ("made", "pythons")
            for path in (self._folder / "environments" / kind).iterdir()
        ]
        total = sum(size for _, _, size in found)
        for asked_at, path, size in sorted(found):
            if total <= limit:
                return
            if asked_at > now - YOUNG_S or str(path.relative_to(self._folder)) in needed:
                continue
            aside = self._new / os.urandom(8).hex()
            with self._turn:
                if path.stat().st_mtime != asked_at:
                    continue  # A job has just asked for it.
                path.rename(aside)
            remove(None, str(aside))
            total -= size
