"""Code and versions of data that came to a node with a disk of its own.

FOLDER/code, FOLDER/data      as in the service's folder, and the runner's alone
FOLDER/working/JOB/attempt-N  the code of an attempt, its user's

Files are kept by content: of the next version, or of code that was changed, only what is new
is sent. Tasks see a version where their runner mounts it: the folders above are closed.
"""

import contextlib
import os
import re
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from allotment.backends.pilot.file_messages import (
    HasListed,
    LackFiles,
    LayCode,
    LayData,
    ListedOp,
    TakeFiles,
)
from allotment.model.errors import BackendError, Rejected
from allotment.model.ids import JobId
from allotment.model.quantity import show_bytes
from allotment.rights.disk import is_too_full
from allotment.service.code.layout import copy_for, drop_folders
from allotment.service.code.store import PRESSED_S, UNUSED_S, CodeStore
from allotment.service.content.manifest import (
    BadManifest,
    Manifest,
    folders_of,
    is_digest,
    needs,
    read,
)
from allotment.service.content.receiving import Receiving, Words
from allotment.service.content.shelf import BLOCK, Room, Shelf, blocks
from allotment.service.data.store import DataStore
from allotment.service.launch import Folders

YOUNG_S: Final = 10.0
"""What was asked for just now may be of a job of which the service did not know yet."""
KEEP_WORK_S: Final = 3600.0
"""How long the code of an attempt stays after its end."""
SWEEP_EVERY_S: Final = 300.0
_OWNER: Final = re.compile(r"code/([0-9]{1,10})|data/([0-9a-f]{1,64})")
_WORDS: Final = Words(
    "all that the node keeps may be", "", "The node has no room for more.", "", ""
)


class NodeContent:
    """What a node keeps of code and data. Calls may come from several threads.

    Those about one owner come one after the other.
    """

    def __init__(self, folder: Path, runs: Callable[[JobId], bool]) -> None:
        self._folder = folder
        self._folders = Folders(str(folder))
        self._runs = runs
        self._code, self._data = CodeStore(folder), DataStore(folder)
        self._coming: dict[str, Receiving] = {}
        self._is_ready = False
        self._sweep_at = 0.0
        self._turn = threading.Lock()
        self._clearing = threading.Lock()
        if (folder / "data").is_dir():  # Half a file may be large, and nothing else come here.
            with contextlib.suppress(OSError):  # It is told where something is to come.
                self._prepare()

    def do(self, op: ListedOp) -> bool | bytes | None:
        """Carry out one order; return what it is answered with. Raises BackendError."""
        try:
            with self._turn:
                self._prepare()
            match op:
                case HasListed(owner, digest):
                    return self._has(owner, digest)
                case TakeFiles():
                    self._take(op)
                case LackFiles():
                    return self._lacks(op)
                case LayData(owner, digest):
                    self._lay_data(owner, digest)
                case LayCode():
                    self._lay_code(op)
        except (OSError, BadManifest, Rejected) as error:
            if isinstance(op, TakeFiles):  # Others come while files for another job do.
                self._leave_off(op.owner)
            why = error.message if isinstance(error, Rejected) else None
            why = why or getattr(error, "strerror", None) or str(error)
            raise BackendError(f"files cannot be kept on the node: {why}") from error
        return None

    def _prepare(self) -> None:
        """Make the folders; throw away what an earlier runner was making."""
        if not self._is_ready:
            self._code.prepare()
            self._data.prepare()
            self._is_ready = True

    def _shelf(self, owner: str) -> Shelf:
        found = _OWNER.fullmatch(owner)
        if found is None:
            raise BackendError("these are no files that nodes keep")
        return self._code.shelf(int(found[1])) if found[1] else self._data.shelf(found[2])

    def _has(self, owner: str, digest: str) -> bool:
        self._shelf(owner)
        kind, _, name = owner.partition("/")
        if kind == "code":
            return self._code.summary(int(name), digest) is not None
        try:
            with self._turn:
                os.utime(self._data.tree(name, _digest(digest)))
        except FileNotFoundError:
            return False
        return True

    def held(self) -> list[tuple[float, str, int]]:
        """List the versions of data that are here: when each was asked for last, its name."""
        return [
            (when, f"data/{each}/{digest}", 0)
            for each in self._data.datasets()
            for when, digest in self._data.trees(each)
        ]

    # ── what comes ──────────────────────────────────────────────────────────────────

    def _take(self, op: TakeFiles) -> None:
        if op.is_first:
            self._leave_off(op.owner)
            room = Room(lambda: op.limit, lambda: self._used(op.owner))
            self._coming[op.owner] = Receiving(
                self._shelf(op.owner), room, op.limit, _WORDS, is_believed=not op.are_digests
            )
        if (receiving := self._coming.get(op.owner)) is None:
            raise BackendError("the beginning of these files did not come")
        receiving.feed(op.data)

    def _leave_off(self, owner: str) -> None:
        """Throw away what is not whole."""
        if (receiving := self._coming.pop(owner, None)) is not None:
            receiving.close()

    def _lacks(self, op: LackFiles) -> bytes:
        self._leave_off(op.owner)
        since = time.time() - YOUNG_S
        shelf, manifest = self._shelf(op.owner), read(self._list(op.owner, op.digest))
        missing, sizes = shelf.missing(manifest), needs(manifest.files)
        more = len(folders_of(manifest.files)) + sum(f.kind == "l" for f in manifest.files)
        size = sum(blocks(sizes[each]) for each in missing) + BLOCK * more
        with self._clearing:
            self._make_room(op, size, manifest, since)
        if is_too_full(self._folder, size, len(missing) + more):
            raise BackendError(
                f"the disk of the node is too full for {show_bytes(size)} of files more"
            )
        return b"".join(map(bytes.fromhex, missing))

    def _list(self, owner: str, digest: str) -> bytes:
        """Return a list that came as a file. Raises OSError."""
        return self._shelf(owner).file(_digest(digest)).read_bytes()

    # ── what goes ───────────────────────────────────────────────────────────────────

    def _used(self, owner: str) -> int:
        """Return what counts together: one user's code, or all data."""
        if owner.startswith("code/"):
            return self._shelf(owner).used()
        return sum(self._data.shelf(each).used() for each in self._data.datasets())

    def _make_room(self, op: LackFiles, size: int, manifest: Manifest, since: float) -> None:
        """Remove what was used least recently, until so much more fits.

        Raises BackendError where it does not.
        """

        def fits() -> bool:
            return self._used(op.owner) + size <= op.limit

        if op.owner.startswith("code/"):
            self._sweep_code()
            if not fits():
                self._code.sweep(int(op.owner[5:]), _unused, PRESSED_S)
        elif not fits():
            self._evict(op, set(needs(manifest.files)) | {op.digest}, fits, since)
        if not fits():
            raise BackendError(
                f"there is no room for {show_bytes(size)} more on the node: what jobs use "
                f"takes {show_bytes(self._used(op.owner))} of {show_bytes(op.limit)}"
            )

    def _sweep_code(self) -> None:
        """Remove code of all users that is a day old. It looks at all files: not each time."""
        if time.monotonic() >= self._sweep_at:
            self._sweep_at = time.monotonic() + SWEEP_EVERY_S
            for uid in self._code.users():
                self._code.sweep(uid, _unused, UNUSED_S)

    def _evict(
        self, op: LackFiles, needed: set[str], fits: Callable[[], bool], since: float
    ) -> None:
        versions: list[tuple[float, str, str]] = []
        for each in self._data.datasets():
            trees = self._data.trees(each)
            # What came of a version that nobody wanted to its end goes first.
            self._data.sweep(each, {digest for _, digest in trees}, PRESSED_S)
            versions += [(when, each, digest) for when, digest in trees]
        for _, each, digest in sorted(versions):
            if fits():
                return
            name = f"data/{each}/{digest}"
            if name in op.in_use:
                continue
            try:
                files = needs(self._data.manifest(each, digest).files)
            except FileNotFoundError:
                files = {}
            with self._turn:
                if self._data.tree(each, digest).stat().st_mtime > since:
                    continue  # A job has just asked for it.
                gone = self._data.take_away(each, digest)
            stays = needed if f"data/{each}" == op.owner else set[str]()
            self._data.shelf(each).list_file(digest).unlink(missing_ok=True)
            self._data.free(each, gone, digest, files, stays.__contains__)

    # ── for tasks ───────────────────────────────────────────────────────────────────

    def _lay_data(self, owner: str, digest: str) -> None:
        data = self._list(owner, digest)
        manifest, shelf, name = read(data), self._shelf(owner), owner.partition("/")[2]
        if shelf.missing(manifest):
            raise BackendError("files of the data did not come")
        shelf.note_list(digest, data)
        # Its room was looked for when its files were asked for.
        self._data.lay_out(name, manifest, digest, Room(lambda: sys.maxsize, lambda: 0))
        shelf.discard(digest, lambda _: False)
        shelf.count_anew()

    def _lay_code(self, op: LayCode) -> None:
        uid = int(op.owner.partition("/")[2])
        is_kept = self._code.summary(uid, op.digest) is not None
        if not is_kept and self._code.missing(uid, self._list(op.owner, op.digest), ()):
            raise BackendError("files of the code did not come")
        old = time.time() - KEEP_WORK_S
        drop_folders(self._folders, lambda job: self._runs(job) or self._is_young(job, old))
        copy_for(self._code, self._folders, (uid, op.digest), (op.job, op.attempt), op.identity)

    def _is_young(self, job: JobId, old: float) -> bool:
        try:
            return Path(self._folders.working(), str(job)).stat().st_mtime > old
        except FileNotFoundError:
            return False


def _digest(text: str) -> str:
    if not is_digest(text):
        raise BackendError("that is no digest")
    return text


def _unused(_job: JobId) -> bool:
    """Return that no job keeps code: on a node it goes by when it was asked for last."""
    return False
