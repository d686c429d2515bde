"""The code that users took along, each user's apart from all others'.

    code/UID/bundles/DIGEST         the list of files; there only once all of them are
    code/UID/uses/DIGEST            which job used the bundle last, and what else it keeps
    code/UID/files/AB/DIGEST        what is in a file, whatever files have it
    code/new/                       what is being made; emptied at the start

All is the service's alone (content/shelf.py). What is not needed by a job goes when it is a
day old, or earlier where its user's part of the store is full.
"""

import os
import sys
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

import msgspec

from allotment.model.ids import Actor, JobId
from allotment.service.content.manifest import (
    Manifest,
    digest_of,
    is_digest,
    needs,
    read,
    size_of,
)
from allotment.service.content.shelf import Fresh, Shelf, is_there, names_in

FOLDER: Final = "code"
UNUSED_S: Final = 24 * 3600.0
"""How long what no job needs stays."""
PRESSED_S: Final = 600.0
"""And how long where its user has no room for more."""


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


class CodeStore:
    """The store of a state folder. Calls may come from several threads."""

    def __init__(self, state_dir: Path) -> None:
        self._root = state_dir / FOLDER
        self._fresh = Fresh(self._root / "new")
        self._shelves: dict[int, Shelf] = {}
        self._turn = threading.Lock()
        self._known: dict[tuple[int, str], Summary] = {}

    def prepare(self) -> None:
        """Make the folders; throw away what a service that was killed was making."""
        self._root.mkdir(mode=0o700, exist_ok=True)
        self._fresh.prepare()

    def shelf(self, uid: int) -> Shelf:
        """Return where the files of a user are."""
        with self._turn:
            if uid not in self._shelves:
                self._shelves[uid] = Shelf(self._root / str(uid), self._fresh, "bundles")
            return self._shelves[uid]

    # ── bundles ─────────────────────────────────────────────────────────────────────

    def summary(self, uid: int, bundle: str) -> Summary | None:
        """Return how large a bundle is; None where this user has none of that name.

        It is then not removed for a day.
        """
        shelf = self.shelf(uid)
        with shelf.turn:
            if not is_there(shelf.list_file(bundle)):
                self._known.pop((uid, bundle), None)
                return None
            known = self._known.get((uid, bundle))
        return known or self._noted(uid, bundle, self.manifest(uid, bundle))

    def manifest(self, uid: int, bundle: str) -> Manifest:
        """Return the list of files of a bundle. Raises FileNotFoundError."""
        data = self.shelf(uid).list_file(bundle).read_bytes()
        return msgspec.json.decode(data, type=Manifest)

    def missing(
        self, uid: int, data: bytes, also: Iterable[str], most: int = sys.maxsize
    ) -> list[str]:
        """Keep a bundle all of whose files are there; else return which are missing.

        `also` are files besides. Raises BadManifest, and Full where its user would have more
        than `most` bytes here.
        """
        manifest = read(data)
        missing = self.shelf(uid).keep_list(data, manifest, tuple(also), most)
        if not missing:
            self._noted(uid, digest_of(data), manifest)
        return missing

    def _noted(self, uid: int, bundle: str, manifest: Manifest) -> Summary:
        summary = Summary(len(manifest.files), size_of(manifest.files))
        with self._turn:
            if len(self._known) >= 1000:
                self._known.clear()
            self._known[uid, bundle] = summary
        return summary

    # ── files ───────────────────────────────────────────────────────────────────────

    def file(self, uid: int, digest: str) -> Path:
        """Return where a file lies, if it is there."""
        return self.shelf(uid).file(digest)

    def has_file(self, uid: int, digest: str) -> bool:
        """Whether a file is there; it is then not removed for a while."""
        return self.shelf(uid).has_file(digest)

    def text(self, uid: int, digest: str, most: int) -> bytes:
        """Return the beginning of a file; nothing where it is not there."""
        if not is_digest(digest):
            return b""
        try:
            with self.file(uid, digest).open("rb") as file:
                return file.read(most)
        except FileNotFoundError:
            return b""

    def used(self, uid: int) -> int:
        """Return how much of the disk a user's code takes."""
        return self.shelf(uid).used()

    # ── what goes ───────────────────────────────────────────────────────────────────

    def use(self, uid: int, bundle: str, job: JobId, difference: str) -> None:
        """Keep a bundle as long as a job is kept, with what git said of it."""
        path = self._uses(uid) / bundle
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with self.shelf(uid).turn:
            before = _use_in(path)
            differences = before.differences if before else ()
            if difference and difference not in differences:
                differences = (*differences, difference)[-100:]
            if before != (now := Use(job, differences)):
                self._fresh.write(path, msgspec.json.encode(now))

    def users(self) -> list[int]:
        """List the users that have code here."""
        return [int(path.name) for path in self._root.iterdir() if path.name.isdecimal()]

    def jobs_of(self, uid: int) -> set[JobId]:
        """Return the jobs for which bundles of a user are kept."""
        found = [_use_in(path) for path in names_in(self._uses(uid))]
        return {use.job for use in found if use is not None}

    def sweep(self, uid: int, is_kept: Callable[[JobId], bool], older_s: float) -> int:
        """Remove what no job needs and is older than that; return how many files went."""
        before = time.time() - older_s
        shelf = self.shelf(uid)
        with shelf.turn:
            needed: set[str] = set()
            for path in shelf.lists():
                use = _use_in(self._uses(uid) / path.name)
                is_needed = use is not None and is_kept(use.job)
                if not is_needed and path.stat().st_mtime < before:
                    path.unlink()
                    (self._uses(uid) / path.name).unlink(missing_ok=True)
                    self._known.pop((uid, path.name), None)
                    continue
                needed.update(needs(self.manifest(uid, path.name).files))
                needed.update(use.differences if use is not None else ())
            gone = 0
            for path in shelf.files():
                if path.name not in needed and path.stat().st_mtime < before:
                    path.unlink()
                    gone += 1
            shelf.count_anew()
        return gone

    def _uses(self, uid: int) -> Path:
        return self._root / str(uid) / "uses"


def _use_in(path: Path) -> Use | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=Use)
    except (FileNotFoundError, msgspec.MsgspecError):
        return None
