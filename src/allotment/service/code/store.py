"""The code that users took along, each user's apart from all others'.

    code/UID/bundles/DIGEST         the list of files; there only once all of them are
    code/UID/uses/DIGEST            which job used the bundle last, and what else it keeps
    code/UID/files/AB/DIGEST        what is in a file, whatever files have it
    code/new/                       what is being made; emptied at the start

All is the service's alone. To know a digest proves nothing: it is looked for among the files of
who asks, so nobody can learn of others' files by guessing. What is not needed by a job goes
when it is a day old, or earlier where its user's part of the store is full.
"""

import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

import msgspec

from allotment.model.ids import Actor, JobId
from allotment.rights.flushing import flush
from allotment.rights.removing import remove
from allotment.service.code.manifest import (
    Manifest,
    digest_of,
    is_digest,
    needs,
    read,
    size_of,
)

FOLDER: Final = "code"
BLOCK: Final = 4096
UNUSED_S: Final = 24 * 3600.0
"""How long what no job needs stays."""
PRESSED_S: Final = 600.0
"""And how long where its user has no room for more."""


class Full(Exception):
    """A user has no room for more."""


class Summary(msgspec.Struct, frozen=True):
    """How large a bundle is."""

    files: int
    bytes: int


class Use(msgspec.Struct, frozen=True):
    """For what a bundle is kept: as long as this job is. `differences` are digests."""

    job: JobId
    differences: tuple[str, ...] = ()


def uid_of(actor: Actor) -> int:
    """Return the user whose part of the store an actor uses."""
    return os.geteuid() if actor.uid is None else actor.uid


def blocks(size: int) -> int:
    """Return what a file takes of the disk."""
    return max(BLOCK, -(-size // BLOCK) * BLOCK)


class CodeStore:
    """The store of a state folder. Calls may come from several threads."""

    def __init__(self, state_dir: Path) -> None:
        self._root = state_dir / FOLDER
        self._turns: dict[int, threading.RLock] = {}
        """One for each user: who has much here holds up nobody else."""
        self._coming: dict[int, int] = {}
        """Bytes of each user's files that are on their way."""
        self._used: dict[int, int] = {}
        """Bytes of each user, once they were counted."""
        self._known: dict[tuple[int, str], Summary] = {}

    def prepare(self) -> None:
        """Make the folders; throw away what a service that was killed was making."""
        self._root.mkdir(mode=0o700, exist_ok=True)
        new = self._root / "new"
        new.mkdir(mode=0o700, exist_ok=True)
        if left := list(new.iterdir()):
            # It can be many files, and nothing waits for them.
            work = threading.Thread(target=_delete, args=[left], name="leftovers", daemon=True)
            work.start()

    # ── bundles ─────────────────────────────────────────────────────────────────────

    def summary(self, uid: int, bundle: str) -> Summary | None:
        """Return how large a bundle is; None where this user has none of that name.

        It is then not removed for a day.
        """
        path = self._of(uid, "bundles") / bundle
        if not is_digest(bundle):
            return None
        with self._turn(uid):
            try:
                os.utime(path)
            except FileNotFoundError:
                self._known.pop((uid, bundle), None)
                return None
            known = self._known.get((uid, bundle))
        if known is None:
            manifest = self.manifest(uid, bundle)
            known = Summary(len(manifest.files), size_of(manifest.files))
            self._note(uid, bundle, known)
        return known

    def manifest(self, uid: int, bundle: str) -> Manifest:
        """Return the list of files of a bundle. Raises FileNotFoundError."""
        data = (self._of(uid, "bundles") / bundle).read_bytes()
        return msgspec.json.decode(data, type=Manifest)

    def missing(
        self, uid: int, data: bytes, also: Iterable[str], most: int = sys.maxsize
    ) -> list[str]:
        """Keep a bundle all of whose files are there; else return which are missing.

        `also` are files besides. Raises BadManifest, and Full where its user would have more
        than `most` bytes here.
        """
        manifest = read(data)
        wanted = [*needs(manifest.files), *also]
        bundle = digest_of(data)
        with self._turn(uid):
            missing = [digest for digest in wanted if not self.has_file(uid, digest)]
            wrong = self._of_other_size(uid, manifest) if not missing else ""
        if missing or wrong:
            return missing or [wrong]
        self._sync()
        with self._turn(uid):
            if any(not self._file(uid, digest).exists() for digest in wanted):
                return [d for d in wanted if not self._file(uid, d).exists()]
            path = self._made(uid, "bundles") / bundle
            if not path.exists():
                if self.used(uid) + blocks(len(data)) > most:
                    raise Full
                self._write(path, data)
                self._add(uid, blocks(len(data)))
            else:
                os.utime(path)
        self._note(uid, bundle, Summary(len(manifest.files), size_of(manifest.files)))
        return []

    def _of_other_size(self, uid: int, manifest: Manifest) -> str:
        """Return a file that is not as large as the list says: the list lies."""
        for digest, size in needs(manifest.files).items():
            if self._file(uid, digest).stat().st_size != size:
                return digest
        return ""

    def _note(self, uid: int, bundle: str, summary: Summary) -> None:
        with self._turn(uid):
            if len(self._known) >= 1000:
                self._known.clear()
            self._known[uid, bundle] = summary

    # ── files ───────────────────────────────────────────────────────────────────────

    def reserve(self, uid: int, size: int, most: int) -> bool:
        """Whether so much more may come from a user; `release` it once it came, or did not."""
        with self._turn(uid):
            coming = self._coming.get(uid, 0) + size
            if self.used(uid) + coming > most:
                return False
            self._coming[uid] = coming
            return True

    def release(self, uid: int, size: int) -> None:
        """Count no more what was on its way."""
        with self._turn(uid):
            self._coming[uid] -= size

    def new_file(self) -> Path:
        """Return a name under which something is made."""
        return self._root / "new" / os.urandom(8).hex()

    def keep_file(self, uid: int, fresh: Path, digest: str) -> None:
        """Put a file that is whole in its place; what is there of it already stays."""
        with self._turn(uid):
            place = self._file(uid, digest)
            if place.exists():
                os.utime(place)
                fresh.unlink()
                return
            place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            size = fresh.stat().st_size
            fresh.rename(place)
            self._add(uid, blocks(size))

    def file(self, uid: int, digest: str) -> Path:
        """Return where a file lies, if it is there."""
        return self._file(uid, digest)

    def text(self, uid: int, digest: str, most: int) -> bytes:
        """Return the beginning of a file; nothing where it is not there."""
        if not is_digest(digest):
            return b""
        try:
            with self._file(uid, digest).open("rb") as file:
                return file.read(most)
        except FileNotFoundError:
            return b""

    def used(self, uid: int) -> int:
        """Return how much of the disk a user's code takes."""
        with self._turn(uid):
            if uid not in self._used:
                self._used[uid] = self._count(uid)
            return self._used[uid]

    # ── what goes ───────────────────────────────────────────────────────────────────

    def use(self, uid: int, bundle: str, job: JobId, difference: str) -> None:
        """Keep a bundle as long as a job is kept, with what git said of it."""
        path = self._made(uid, "uses") / bundle
        with self._turn(uid):
            before = _use_in(path)
            differences = before.differences if before else ()
            if difference and difference not in differences:
                differences = (*differences, difference)[-100:]
            if before != (now := Use(job, differences)):
                self._write(path, msgspec.json.encode(now))

    def users(self) -> list[int]:
        """List the users that have code here."""
        return [int(path.name) for path in self._root.iterdir() if path.name.isdecimal()]

    def jobs_of(self, uid: int) -> set[JobId]:
        """Return the jobs for which bundles of a user are kept."""
        found = [_use_in(path) for path in _names(self._of(uid, "uses"))]
        return {use.job for use in found if use is not None}

    def sweep(self, uid: int, is_kept: Callable[[JobId], bool], older_s: float) -> int:
        """Remove what no job needs and is older than that; return how many files went."""
        before = time.time() - older_s
        with self._turn(uid):
            needed: set[str] = set()
            for path in _names(self._of(uid, "bundles")):
                use = _use_in(self._of(uid, "uses") / path.name)
                is_needed = use is not None and is_kept(use.job)
                if not is_needed and path.stat().st_mtime < before:
                    path.unlink()
                    (self._of(uid, "uses") / path.name).unlink(missing_ok=True)
                    self._known.pop((uid, path.name), None)
                    continue
                needed.update(needs(self.manifest(uid, path.name).files))
                needed.update(use.differences if use is not None else ())
            gone = 0
            for path in self._of(uid, "files").glob("??/*"):
                if path.name not in needed and path.stat().st_mtime < before:
                    path.unlink()
                    gone += 1
            self._used[uid] = self._count(uid)
        return gone

    # ── parts ───────────────────────────────────────────────────────────────────────

    def has_file(self, uid: int, digest: str) -> bool:
        """Whether a file is there; it is then not removed for a while."""
        try:
            os.utime(self._file(uid, digest))
        except FileNotFoundError:
            return False
        return True

    def _turn(self, uid: int) -> threading.RLock:
        return self._turns.setdefault(uid, threading.RLock())

    def _of(self, uid: int, kind: str) -> Path:
        return self._root / str(uid) / kind

    def _made(self, uid: int, kind: str) -> Path:
        folder = self._of(uid, kind)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return folder

    def _file(self, uid: int, digest: str) -> Path:
        return self._root / str(uid) / "files" / digest[:2] / digest

    def _add(self, uid: int, size: int) -> None:
        if uid in self._used:
            self._used[uid] += size

    def _count(self, uid: int) -> int:
        found = [*self._of(uid, "files").glob("??/*"), *_names(self._of(uid, "bundles"))]
        return sum(blocks(path.stat().st_size) for path in found)

    def _write(self, path: Path, data: bytes) -> None:
        fresh = self.new_file()
        fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            with os.fdopen(fd, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            fresh.replace(path)
        except OSError:
            fresh.unlink(missing_ok=True)
            raise

    def _sync(self) -> None:
        """Have all files on the disk, before a list says that they are there."""
        flush(self._root)


def _use_in(path: Path) -> Use | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=Use)
    except (FileNotFoundError, msgspec.MsgspecError):
        return None


def _names(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except FileNotFoundError:
        return []


def _delete(paths: Iterable[Path]) -> None:
    for path in paths:
        remove(None, str(path))
        with contextlib.suppress(OSError):
            path.unlink()
