"""The files of managed datasets, each dataset's apart from all others'.

    data/ID/lists/DIGEST        the list of files of a version
    data/ID/files/AB/DIGEST     what is in a file, whatever files and versions have it
    data/ID/files/AB/DIGEST.x   the same, as a program that can be run
    data/ID/trees/DIGEST        a version as tasks see it: links to those files
    data/ID/besides/DIGEST.N  that the tree has N folders and links, which take room, too
    data/ID/seen/lists/DIGEST   what an object store had, where the files are from one
    data/ID/seen/files/AB/DIGEST  a file on its way there
    data/new/                   what is being made; emptied at the start

All is the service's alone, and nobody else may pass through `data`: tasks see a tree where it
is mounted for them, read-only, or links of their attempt to its files (links.py). Nothing is
written again once it has its name.
"""

import contextlib
import errno
import os
import shutil
import threading
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path
from typing import Final

import msgspec

from allotment.rights.flushing import flush
from allotment.rights.removing import remove
from allotment.service.content.manifest import FileEntry, Manifest, folders_of, needs
from allotment.service.content.shelf import BLOCK, Fresh, Full, Room, Shelf, blocks, names_in

FOLDER: Final = "data"
UNUSED_S: Final = 24 * 3600.0
"""How long files stay that no version has."""
PRESSED_S: Final = 600.0
"""And how long after something was removed, or where a tenant has no room for more."""
UNKNOWN_S: Final = 7 * 24 * 3600.0
"""How long a dataset stays that the books do not know: older ones may have been restored."""
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_CAN_BE_RUN: Final = ".x"


class DataStore:
    """The store of a state folder. Calls may come from several threads."""

    def __init__(self, state_dir: Path) -> None:
        self.root = state_dir / FOLDER
        self.fresh = Fresh(self.root / "new")
        self._shelves: dict[str, Shelf] = {}
        self._turn = threading.Lock()

    def prepare(self) -> None:
        """Make the folders; throw away what a service that was killed was making."""
        self.root.mkdir(mode=0o700, exist_ok=True)
        self.root.chmod(0o700)
        self.fresh.prepare()

    def shelf(self, dataset: str) -> Shelf:
        """Return where the files of a dataset are, by its id."""
        return self._shelf(dataset)

    def _shelf(self, below: str) -> Shelf:
        with self._turn:
            if below not in self._shelves:
                self._shelves[below] = Shelf(self.root / below, self.fresh, "lists")
            return self._shelves[below]

    def seen(self, dataset: str) -> Shelf:
        """Return where it is noted what an object store had of a dataset, by its id.

        Files that are to be put there lie there, too. It counts for the tenant; what was
        fetched is the machine's.
        """
        return self._shelf(f"{dataset}/seen")

    def tree(self, dataset: str, digest: str) -> Path:
        """Return where a version is, as tasks see it."""
        return self.root / dataset / "trees" / digest

    def manifest(self, dataset: str, digest: str) -> Manifest:
        """Return the list of files of a version. Raises FileNotFoundError."""
        data = self.shelf(dataset).list_file(digest).read_bytes()
        return msgspec.json.decode(data, type=Manifest)

    def flush(self) -> None:
        """Have all that was written on the disk. Raises OSError."""
        flush(self.root)

    # ── versions ────────────────────────────────────────────────────────────────────

    def lay_out(self, dataset: str, manifest: Manifest, digest: str, room: Room) -> None:
        """Make a version as tasks see it, of files that are all there; durable on return.

        Raises Full, FileNotFoundError where a file went meanwhile, and OSError.
        """
        shelf, place = self.shelf(dataset), self.tree(dataset, digest)
        if place.is_dir():
            os.utime(place)  # It stays until its version is noted.
            return
        place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        entries = sum(file.kind == "l" for file in manifest.files)
        entries += len(folders_of(manifest.files))
        if not room.reserve(entries * BLOCK):
            raise Full
        made = self.fresh.path()
        made.mkdir(mode=0o700)
        try:
            top = os.open(made, _FOLDER)
            try:
                _Tree(shelf, room, top).fill(manifest.files)
                os.fchmod(top, 0o755)
            finally:
                os.close(top)
            shelf.charge(digest, entries)
            self.flush()  # What has its name is whole, also after the power failed.
            made.rename(place)
        except OSError as error:
            remove(None, str(made))
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise  # else another request made it meanwhile
        except Full:
            remove(None, str(made))
            raise
        finally:
            room.release(entries * BLOCK)

    # ── what goes ───────────────────────────────────────────────────────────────────

    def drop(self, dataset: str, digest: str, *, at_once: bool = False) -> None:
        """Remove a version; its files go at the next sweep, unless another has them.

        With `at_once` they go with it. Who is about to make a version of them sends them again.
        """
        gone, shelf = self.fresh.path(), self.shelf(dataset)
        files = needs(self.manifest(dataset, digest).files) if at_once else {}
        try:
            self.tree(dataset, digest).rename(gone)
        except FileNotFoundError:
            return
        shelf.list_file(digest).unlink(missing_ok=True)
        remove(None, str(gone))
        for name in (name for each in files for name in (each, each + _CAN_BE_RUN)):
            shelf.discard(name, lambda _: False)
        shelf.count_anew()

    # ── what was fetched ────────────────────────────────────────────────────────────

    def trees(self, dataset: str) -> list[tuple[float, str]]:
        """List the versions that are laid out: when each was used last, and its digest."""
        found: list[tuple[float, str]] = []
        for path in names_in(self.root / dataset / "trees"):
            with contextlib.suppress(FileNotFoundError):
                found.append((path.stat().st_mtime, path.name))
        return found

    def take_away(self, dataset: str, digest: str) -> Path:
        """Take a version away under another name, at once. Raises FileNotFoundError."""
        gone = self.fresh.path()
        self.tree(dataset, digest).rename(gone)
        return gone

    def free(
        self,
        dataset: str,
        gone: Path,
        digest: str,
        files: Iterable[str],
        is_needed: Callable[[str], bool],
    ) -> None:
        """Remove a version that was taken away, with those of its files that no other has.

        One that is needed meanwhile stays.
        """
        remove(None, str(gone))
        shelf = self.shelf(dataset)
        for path in shelf.charges():
            if path.stem == digest:
                path.unlink(missing_ok=True)
        for each in files:
            shelf.discard(each, is_needed)
            shelf.discard(each + _CAN_BE_RUN, lambda _, each=each: is_needed(each))
        shelf.count_anew()

    def remove(self, dataset: str) -> None:
        """Remove a dataset with all its files."""
        with self._turn:
            names = (dataset, f"{dataset}/seen")
            shelves = [self._shelves.pop(name) for name in names if name in self._shelves]
        for shelf in shelves:
            shelf.close()  # Files may be on their way, and would count for nobody.
        gone = self.fresh.path()
        try:
            (self.root / dataset).rename(gone)
        except FileNotFoundError:
            return
        remove(None, str(gone))

    def datasets(self) -> list[str]:
        """List the datasets that have files here, by their ids."""
        return [path.name for path in names_in(self.root) if path.name != "new"]

    def is_older(self, dataset: str, older_s: float) -> bool:
        """Whether nothing was added to a dataset for so long."""
        try:
            found = (self.root / dataset).stat()
        except FileNotFoundError:
            return False
        return found.st_mtime < time.time() - older_s

    def sweep(self, dataset: str, kept: Collection[str], older_s: float) -> int:
        """Remove what no version needs and is older than that; return how many files went.

        What came since then without a pause of that length stays: a version may become of it.

        `kept` are the digests of the versions there are.
        """
        shelf, before = self.shelf(dataset), time.time() - older_s
        gone = 0
        with shelf.turn:
            trees = names_in(self.root / dataset / "trees")
            for path in (*trees, *shelf.lists(), *self.seen(dataset).lists()):
                if path.name in kept or path.stat().st_mtime >= before:
                    continue
                if path.is_dir():
                    remove(None, str(path))
                else:
                    path.unlink()
            for path in shelf.charges():
                if not self.tree(dataset, path.stem).exists():
                    path.unlink()
            alone: list[tuple[Path, float]] = []
            for path in (*shelf.files(), *self.seen(dataset).files()):
                found = path.stat()
                # One with other links is in a version, and so is what a program was copied of.
                is_alone = found.st_nlink == 1 and not _is_in_use(
                    path.with_name(path.name + _CAN_BE_RUN)
                )
                if is_alone:
                    alone.append((path, found.st_mtime))
            since = _since(alone, older_s)
            for path, when in alone:
                if when < since:
                    path.unlink()
                    gone += 1
            shelf.count_anew()
            self.seen(dataset).count_anew()
        return gone


def _since(alone: Iterable[tuple[Path, float]], older_s: float) -> float:
    """Return when what comes now began to come: no pause in it was as long as `older_s`.

    Many files take long to send, and get their version at the end.
    """
    since = time.time()
    for when in sorted((when for _, when in alone), reverse=True):
        if when < since - older_s:
            break
        since = min(since, when)
    return since


def _is_in_use(path: Path) -> bool:
    """Whether a file is there, and in a version."""
    try:
        return path.stat().st_nlink > 1
    except FileNotFoundError:
        return False


class _Tree:
    """A version while it is made."""

    def __init__(self, shelf: Shelf, room: Room, top: int) -> None:
        self._shelf = shelf
        self._room = room
        self._top = top
        self._ready: set[Path] = set()
        """Files that are as tasks may see them."""

    def fill(self, files: Sequence[FileEntry]) -> None:
        """Make all folders, links and files. Raises Full and OSError."""
        folders = folders_of(files)
        for folder in folders:
            os.mkdir(folder, 0o700, dir_fd=self._top)
        for file in files:
            if file.kind == "l":
                os.symlink(file.of, file.path, dir_fd=self._top)
            else:
                self._link(file)
        for folder in folders:
            os.chmod(folder, 0o755, dir_fd=self._top)

    def _link(self, file: FileEntry) -> None:
        source = self._shelf.file(file.of)
        if file.kind == "x":
            plain, source = source, source.with_name(source.name + _CAN_BE_RUN)
            if source not in self._ready and not source.exists():
                self._copy(plain, source)
        if source not in self._ready:
            source.chmod(0o555 if file.kind == "x" else 0o444)
            self._ready.add(source)
        try:
            os.link(source, file.path, dst_dir_fd=self._top)
        except OSError as error:
            if error.errno != errno.EMLINK:
                raise
            self._begin_another(source)
            os.link(source, file.path, dst_dir_fd=self._top)

    def _begin_another(self, source: Path) -> None:
        """Put a copy in the place of a file that has as many links as one may have."""
        full = source.with_name(f"{source.name}.{os.urandom(4).hex()}")
        # Room is asked for before the shelf's turn: who has room's turn asks for the shelf's.
        self._copy(source, full)
        with self._shelf.turn:
            other = source.with_name(full.name + ".full")
            source.rename(other)
            full.rename(source)

    def _copy(self, source: Path, target: Path) -> None:
        size = blocks(source.stat().st_size)
        if not self._room.reserve(size):
            raise Full
        made = self._shelf.fresh.path()
        try:
            shutil.copyfile(source, made)
            made.chmod(source.stat().st_mode & 0o777)
            with made.open("rb") as copy:
                os.fsync(copy.fileno())
            with self._shelf.turn:
                made.rename(target)
                self._shelf.add(size)
        finally:
            made.unlink(missing_ok=True)
            self._room.release(size)
