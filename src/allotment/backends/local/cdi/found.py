"""The CDI specifications of this machine: found where CDI has them, believed only from root.

A specification has files of the host mounted for tasks. So whoever can write one has all
files of the host: files, and folders, that others than root may write are passed over. So is
what it names where others could have put it: a link in /tmp leads wherever its maker likes.
"""

import errno
import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import structlog
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from allotment.backends.local.cdi.spec import BadSpec, Bind, Edits, Spec, edits_of, spec_of
from allotment.rights.mount_points import is_roots_alone

FOLDERS: Final = (Path("/var/run/cdi"), Path("/etc/cdi"))
"""The first comes first: there are those that are made when the machine starts."""
_MOST_BYTES: Final = 4 << 20
_MOST_FILES: Final = 100
_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_CLOSED: Final = stat.S_IWGRP | stat.S_IWOTH
_MOST_LINKS: Final = 40

log = structlog.get_logger("allot.cdi")

Stamp = tuple[str, int, int]


class Specifications:
    """The specifications, read again when they have changed. Blocks; for one thread."""

    def __init__(self, folders: Sequence[Path] = FOLDERS) -> None:
        self._folders = folders
        self._read: dict[Stamp, Spec | None] = {}
        self._told: set[str] = set()

    def edits(self, files: Sequence[str]) -> Edits | None:
        """Return what devices need in an image, named by their files; None where nothing says.

        What is not there on the machine is left out.
        """
        found = edits_of(list(self._specs()), files)
        if found is None:
            return None
        for hook in found.undone:
            self._tell(f"the hook {hook[:80]} is not carried out")
        return msgspec.structs.replace(
            found,
            devices=tuple(filter(self._is_there, found.devices)),
            binds=tuple(self._binds(found.binds)),
        )

    def _binds(self, binds: Sequence[Bind]) -> Iterator[Bind]:
        """Yield what is there, by its path without links."""
        for bind in binds:
            try:
                source = real_path(bind.source)
            except FileNotFoundError:
                self._tell(f"{bind.source} is not there, and left out")
            except OSError as error:
                self._tell(f"{bind.source} is left out: {error.strerror}")
            else:
                yield msgspec.structs.replace(bind, source=source)

    def _is_there(self, path: str) -> bool:
        if Path(path).exists():
            return True
        self._tell(f"{path} is not there, and left out")
        return False

    def _tell(self, what: str) -> None:
        """Log what is wrong with a specification, once."""
        if what not in self._told and len(self._told) < 10 * _MOST_FILES:
            self._told.add(what)
            log.warning("of a CDI specification something is not used", what=what)

    def _specs(self) -> Iterator[Spec]:
        seen: dict[Stamp, Spec | None] = {}
        for folder in self._folders:
            for path in self._files(folder):
                try:
                    stamp, spec = self._spec(path)
                except (OSError, BadSpec) as error:
                    why = error.strerror if isinstance(error, OSError) else error
                    self._tell(f"{path}: {why}")
                    continue
                seen[stamp] = spec
                if spec is not None:
                    yield spec
        self._read = seen

    def _files(self, folder: Path) -> list[Path]:
        """Return the specifications in a folder that is root's alone, by their names."""
        try:
            state = folder.stat()
            if state.st_uid != 0 or state.st_mode & _CLOSED:
                self._tell(f"{folder} is ignored: users other than root may write to it")
                return []
            paths = sorted(folder.iterdir())[:_MOST_FILES]
        except OSError:
            return []
        return [path for path in paths if path.suffix in (".json", ".yaml", ".yml")]

    def _spec(self, path: Path) -> tuple[Stamp, Spec | None]:
        """Read a specification, unless it is the same as before. Raises OSError, BadSpec."""
        fd = os.open(path, _READ)
        with os.fdopen(fd, "rb") as file:
            state = os.fstat(fd)
            stamp = (str(path), state.st_ino, state.st_mtime_ns)
            if stamp in self._read:
                return stamp, self._read[stamp]
            if not stat.S_ISREG(state.st_mode) or state.st_uid != 0 or state.st_mode & _CLOSED:
                raise BadSpec("users other than root may write to it")
            text = file.read(_MOST_BYTES + 1)
        if len(text) > _MOST_BYTES:
            raise BadSpec(f"it is larger than {_MOST_BYTES >> 20} MiB")
        return stamp, spec_of(_plain(text, path.suffix))


def real_path(path: str) -> str:
    """Return a path without links. Raises OSError, also where others than root made part of it.

    In a folder that others may write, only what is root's was put there by root.
    """
    at, names, links = Path("/"), path.split("/")[::-1], 0
    while names:
        name = names.pop()
        if name in ("", "."):
            continue
        below = at.parent if name == ".." else at / name
        found = below.lstat()
        if found.st_uid != 0 and not is_roots_alone(at.stat()):
            raise PermissionError(
                errno.EPERM, f"users other than root may have made {below}", path
            )
        if not stat.S_ISLNK(found.st_mode):
            at = below
            continue
        links += 1
        if links > _MOST_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
        target = str(below.readlink())
        names += target.split("/")[::-1]
        at = Path("/") if target.startswith("/") else at
    return str(at)


def _plain(text: bytes, suffix: str) -> Any:
    """Read JSON or YAML. Raises BadSpec."""
    try:
        if suffix == ".json":
            return msgspec.json.decode(text)
        return YAML(typ="safe", pure=True).load(text)  # pyright: ignore[reportUnknownMemberType]
    except (msgspec.MsgspecError, YAMLError, ValueError, RecursionError) as error:
        why = " ".join(str(error).split())
        raise BadSpec(f"it cannot be read: {why[:200]}") from error
