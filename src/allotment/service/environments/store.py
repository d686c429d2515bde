"""The environments that this machine keeps.

environments/made/KEY        an environment, root's: everybody who has the key may read it,
                             nobody can write it; there only once it is whole
environments/pythons/KEY     a Python that was fetched, for the environments that it is in
environments/known/KEY.json  what it was resolved to; its time is when it was asked for last
environments/known/KEY.users who asked for it: for others it is not there
environments/salt            part of every key, so that none can be guessed
environments/uv/             the builder's cache
environments/new/            what is being built; emptied at the start
"""

import contextlib
import math
import os
import re
import stat
import threading
from collections.abc import Container
from pathlib import Path
from typing import Final

import msgspec

from allotment.rights.clearing import clear, remove_all
from allotment.rights.writing import write_whole
from allotment.service.environments.lasting import Spoilt
from allotment.service.environments.measuring import size_below
from allotment.service.environments.pythons import Build
from allotment.service.environments.uv import own

FOLDER: Final = "environments"
PYTHONS: Final = "pythons"
KEY: Final = re.compile(r"[0-9a-f]{32}")
YOUNG_S: Final = 600.0
UNUSED_S: Final = 3600.0
"""A Python that no environment has may be one of which the first is being built."""
UNBUILT_S: Final = 24 * 3600.0


class Known(msgspec.Struct, frozen=True):
    """What an environment consists of."""

    python: str
    requirements: tuple[str, ...]
    lock: str
    bytes: int = 0
    files: int = 0
    program: str = ""
    """Where its Python is in the images that it is for; '' for one of the machine's."""
    platform: str = ""
    """Which C library those have, in uv's words."""
    build: Build | None = None
    """Its Python, where that is fetched."""

    @property
    def packages(self) -> tuple[str, ...]:
        """Return its packages as name==version."""
        found = re.findall(r"^([A-Za-z0-9._-]+==[^\s;\\]+)", self.lock, re.MULTILINE)
        return tuple(found)


class EnvironmentStore:
    """The store of a state folder. Calls may come from several threads."""

    def __init__(self, state_dir: Path) -> None:
        self.root = state_dir / FOLDER
        self._turn = threading.Lock()

    def prepare(self) -> None:
        """Make the folders; throw away what a service that was killed was building."""
        open_to_all = dict.fromkeys(("", "made", PYTHONS, "new"), 0o711)
        for name, mode in {**open_to_all, "known": 0o700}.items():
            folder = self.root / name
            folder.mkdir(mode=mode, exist_ok=True)
            folder.chmod(mode)
        clear(self.root / "new")

    def salt(self) -> bytes:
        """Return what only this service knows."""
        path = self.root / "salt"
        with self._turn:
            if not path.exists():
                write_whole(path, os.urandom(32))
        return path.read_bytes()

    def made(self, key: str) -> Path:
        """Return where an environment is, once it is built."""
        return self.root / "made" / key

    def python(self, build: Build) -> Path:
        """Return where a Python is, once it is fetched."""
        return self.root / PYTHONS / build.digest(self.salt())

    def known(self, key: str, uid: int) -> Known | None:
        """Return what an environment consists of that a user asked for before."""
        if not KEY.fullmatch(key) or str(uid) not in self._users(key):
            return None
        try:
            os.utime(self._path(key))
            return msgspec.json.decode(self._path(key).read_bytes(), type=Known)
        except FileNotFoundError:
            return None

    def note(self, key: str, known: Known, uid: int) -> None:
        """Remember what an environment consists of, and that a user asked for it."""
        with self._turn:
            if not self._path(key).exists():
                self._write(key, known)
            os.utime(self._path(key))
            if str(uid) not in self._users(key):
                with self._path(key).with_suffix(".users").open("a") as file:
                    file.write(f"{uid}\n")

    def new_folder(self) -> Path:
        """Make a folder of the builder's in which an environment is built."""
        path = self.root / "new" / os.urandom(8).hex()
        path.mkdir(mode=0o755)
        own(path)
        return path

    def keep(self, key: str, folder: Path, known: Known) -> None:
        """Make an environment nobody's to write, and put it in its place, whole."""
        files, size = _freeze(folder)
        os.sync()
        with self._turn:
            # How large it is counts from the moment on in which it is there.
            self._write(key, msgspec.structs.replace(known, files=files, bytes=size))
            if not self.made(key).exists():
                folder.rename(self.made(key))

    def has_python(self, build: Build) -> bool:
        """Whether a Python is there; then it stays while an environment is built with it."""
        place = self.python(build)
        with self._turn, contextlib.suppress(FileNotFoundError):
            os.utime(place)
            return True
        return False

    def keep_python(self, build: Build, folder: Path) -> None:
        """Make a Python nobody's to write, and put it in its place, whole."""
        _freeze(folder)
        os.utime(folder)  # else it is as old as the archive says
        os.sync()
        folder.rename(self.python(build))

    def rows(self, uid: int | None) -> list[tuple[str, Known, float]]:
        """List the environments that are built and a user asked for; with None all."""
        found: list[tuple[str, Known, float]] = []
        for path in (self.root / "known").glob("*.json"):
            is_shown = uid is None or str(uid) in self._users(path.stem)
            if not is_shown or not self.made(path.stem).is_dir():
                continue
            if known := self._read(path):
                found.append((path.stem, known, self._asked_at(path.stem)))
        return sorted(found, key=lambda row: -row[2])

    def remove(self, key: str, before: float = math.inf) -> bool:
        """Remove an environment, and what it was resolved to, unless asked for since `before`.

        Return whether it went.
        """
        aside = self.root / "new" / os.urandom(8).hex()
        with self._turn:
            if self._asked_at(key) >= before:
                return False
            self._path(key).unlink(missing_ok=True)
            self._path(key).with_suffix(".users").unlink(missing_ok=True)
            if self.made(key).exists():
                self.made(key).rename(aside)
        remove_all([aside])
        return True

    def _asked_at(self, key: str) -> float:
        try:
            return self._path(key).stat().st_mtime
        except FileNotFoundError:
            return 0.0

    def make_room(self, limit: int, needed: Container[str], now: float) -> None:
        """Remove what was asked for least recently, until the rest is within a limit.

        What was only asked for, and never built, goes after a day.
        """
        for path in (self.root / "known").glob("*.json"):
            if path.stem not in needed and not self.made(path.stem).exists():
                self.remove(path.stem, now - UNBUILT_S)
        rows = self.rows(None)
        total = sum(known.bytes for _, known, _ in rows) + self._clear_pythons(now)
        for key, known, _ in reversed(rows):
            if total <= limit:
                return
            if key not in needed and self.remove(key, now - YOUNG_S):
                total -= known.bytes

    def _clear_pythons(self, now: float) -> int:
        """Remove the Pythons that no environment has; return what the others take."""
        found = [self._read(path) for path in (self.root / "known").glob("*.json")]
        used = {self.python(each.build) for each in found if each and each.build}
        total = 0
        for path in (self.root / PYTHONS).iterdir():
            aside = self.root / "new" / os.urandom(8).hex()
            with self._turn:
                goes = path not in used and path.stat().st_mtime <= now - UNUSED_S
                if goes:
                    path.rename(aside)
            if goes:
                remove_all([aside])
            else:
                total += size_below(path)[1]
        return total

    def _users(self, key: str) -> list[str]:
        try:
            return self._path(key).with_suffix(".users").read_text().split()
        except FileNotFoundError:
            return []

    def _read(self, path: Path) -> Known | None:
        """Read what one consists of; None where it went, or was cut off."""
        with contextlib.suppress(FileNotFoundError, msgspec.DecodeError):
            return msgspec.json.decode(path.read_bytes(), type=Known)
        return None

    def _path(self, key: str) -> Path:
        return self.root / "known" / f"{key}.json"

    def _write(self, key: str, known: Known) -> None:
        write_whole(self._path(key), msgspec.json.encode(known))


def _freeze(top: Path) -> tuple[int, int]:
    """Take a tree over, to be read by all; return its files and bytes.

    Raises Spoilt where there is anything but files, folders and links.
    """
    files = size = 0
    for _, names, others, fd in os.fwalk(top):
        for name in (*names, *others):
            state = os.stat(name, dir_fd=fd, follow_symlinks=False)
            if stat.S_ISREG(state.st_mode):
                files, size = files + 1, size + _frozen(name, fd)
            elif not stat.S_ISLNK(state.st_mode) and not stat.S_ISDIR(state.st_mode):
                raise Spoilt(f"{name!r} is not a file that an environment may have")
            elif os.geteuid() == 0:
                os.chown(name, 0, 0, dir_fd=fd, follow_symlinks=False)
        os.fchmod(fd, 0o755)
    if os.geteuid() == 0:
        os.chown(top, 0, 0)
    return files, size


def _frozen(name: str, folder: int) -> int:
    """Take a file over, by a descriptor: whatever gets its name meanwhile is not taken."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    fd = os.open(name, flags, dir_fd=folder)
    try:
        state = os.fstat(fd)
        if not stat.S_ISREG(state.st_mode) or state.st_nlink > 1:
            raise Spoilt(f"{name!r} is not a file that an environment may have")
        if os.geteuid() == 0:
            os.fchown(fd, 0, 0)
        os.fchmod(fd, 0o555 if state.st_mode & 0o100 else 0o444)
        return state.st_size
    finally:
        os.close(fd)
