"""Unpacks one layer, from stdin into an empty folder which it makes its root first.

    python … unpack FOLDER DIFF_ID MOST_BYTES MOST_FILES      (prints one line of JSON)

A process of its own: whatever a layer says, there is nothing else to be reached, its memory is
bounded, and it ends with whoever feeds it. It keeps of root's rights the few that it needs, and
has a mount namespace of its own. Who is not root has rights over its own files only, in a user
namespace: all files become its own. Entries are made by descriptors of folders that are opened
without following links. What no task may get from an image is left out: devices, set-uid bits,
extended attributes. Whiteouts become those of overlay mounts.

All that is imported is imported before the root changes, and nothing can be after it: where
Python has its modules and sources, there are then files of the layer.
"""

import contextlib
import errno
import hashlib
import json
import os
import resource
import stat
import sys
import tarfile
from typing import IO, Final, cast

from allotment.backends.local.images.packed import PIECE, Unreadable, pieces
from allotment.backends.local.runner import libc, overlay, user_namespace
from allotment.rights.sealing import take_no_more_code

_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_MOST_MEMORY: Final = 1 << 30
_MOST_DEPTH: Final = 150
_MOST_FOLDERS_OPEN: Final = 200
_BLOCK: Final = 4096
_WHITEOUT: Final = ".wh."
_OPAQUE: Final = ".wh..wh..opq"
_KEPT_BITS: Final = 0o1777
_LARGEST_ID: Final = 2**32 - 2
_RIGHTS: Final = (
    libc.CAP_CHOWN,
    libc.CAP_DAC_OVERRIDE,
    libc.CAP_FOWNER,
    libc.CAP_SYS_ADMIN,
)
"""The last for the mark of an opaque folder. A whiteout is no device, and needs none."""
_RIGHTS_OF_USER: Final = (libc.CAP_DAC_OVERRIDE,)
"""For a service of a user: marks are the user's, and files are given to nobody else."""


class Bad(Exception):
    """The layer is not to be used; the text says why."""


class TooLarge(Exception):
    """The layer is larger than there is room for."""


class Plain:
    """The layer's plain bytes: decompressed, counted and hashed as they are read."""

    def __init__(self, source: IO[bytes], most: int) -> None:
        self._pieces = pieces(source)
        self._most = most
        self._hash = hashlib.sha256()
        self._left = b""
        self.count = 0

    def read(self, size: int = PIECE) -> bytes:
        """Return so many bytes, fewer only at the end.

        Raises Unreadable, EOFError or TooLarge.
        """
        parts, missing = [self._left], size - len(self._left)
        while missing > 0 and (piece := next(self._pieces, None)) is not None:
            self.count += len(piece)
            if self.count > self._most:
                raise TooLarge
            self._hash.update(piece)
            parts.append(piece)
            missing -= len(piece)
        data = b"".join(parts)
        self._left = data[size:]
        return data[:size]

    def digest(self) -> str:
        """Read the rest, and return the digest of all."""
        while self.read():
            pass
        return f"sha256:{self._hash.hexdigest()}"


class LayerFolder:
    """The folder that a layer becomes. `root` is open; `most` are bytes, and files."""

    def __init__(self, root: int, most: tuple[int, int]) -> None:
        self._root = root
        self._most_bytes, self._most_files = most
        self._open: dict[str, int] = {}
        self.files = 0
        self.used = 0

    def add(self, entry: tarfile.TarInfo, archive: tarfile.TarFile) -> None:
        """Make one entry. Raises Bad, TooLarge or OSError."""
        self._count()
        parts = _parts(entry.name)
        if not parts:
            return  # the folder itself
        *above, name = parts
        if name.startswith(_WHITEOUT):
            self._hide(above, name)
        elif entry.isdir():
            self._make_folder(above, name, entry)
        elif entry.isreg():
            self._make_file(above, name, entry, archive)
        elif entry.issym():
            folder = self._replaced(above, name)
            os.symlink(entry.linkname, name, dir_fd=folder)
            os.chown(name, *_owner(entry), dir_fd=folder, follow_symlinks=False)
        elif entry.islnk():
            self._link(above, name, _parts(entry.linkname))
        # Else it is a device, a pipe, or unknown: a task has its own devices.

    def _count(self) -> None:
        """Count one file or folder more, whatever it is: each may take a block of the disk."""
        self.files += 1
        if self.files > self._most_files:
            raise Bad(f"it has more than {self._most_files} files")
        self._take(_BLOCK)

    def _take(self, size: int) -> None:
        self.used += -(-size // _BLOCK) * _BLOCK
        if self.used > self._most_bytes:
            raise TooLarge

    def _make_file(
        self, above: list[str], name: str, entry: tarfile.TarInfo, archive: tarfile.TarFile
    ) -> None:
        if entry.sparse is not None:
            raise Bad(f"{entry.name} is a sparse file")
        source = archive.extractfile(entry)
        if source is None:
            raise Bad(f"{entry.name} has no contents")
        self._take(max(0, entry.size - _BLOCK))
        fd = os.open(name, _NEW, 0o600, dir_fd=self._replaced(above, name))
        with os.fdopen(fd, "wb", buffering=0) as file:
            left = entry.size
            while left:
                piece = source.read(min(left, PIECE))
                if not piece:
                    raise EOFError
                _write(file, piece)
                left -= len(piece)
            os.fchown(fd, *_owner(entry))
            os.fchmod(fd, _mode(entry))
            moment = max(0, int(entry.mtime * 1_000_000_000))
            os.utime(fd, ns=(moment, moment))

    def _make_folder(self, above: list[str], name: str, entry: tarfile.TarInfo) -> None:
        folder = self._folder(above)
        if not _is_folder(folder, name):
            was_hidden = _is_hidden(folder, name)
            self._forget(folder, name)
            os.mkdir(name, 0o700, dir_fd=folder)
            if was_hidden:
                self._cover([*above, name])
        fd = self._folder([*above, name])
        os.fchown(fd, *_owner(entry))
        os.fchmod(fd, _mode(entry))

    def _link(self, above: list[str], name: str, target: list[str]) -> None:
        if not target:
            raise Bad(f"a hard link {name} leads nowhere")
        source = self._folder(target[:-1])
        found = _look(source, target[-1])
        if found is None or not (stat.S_ISREG(found.st_mode) or stat.S_ISLNK(found.st_mode)):
            raise Bad(
                f"a hard link leads to {'/'.join(target)}, which is not a file of this layer"
            )
        folder = self._replaced(above, name, but=found)
        os.link(target[-1], name, src_dir_fd=source, dst_dir_fd=folder, follow_symlinks=False)

    def _hide(self, above: list[str], name: str) -> None:
        """Hide what layers below have under a name, or in a folder."""
        if name == _OPAQUE:
            self._cover(above)
            return
        hidden = name.removeprefix(_WHITEOUT)
        if hidden.startswith(_WHITEOUT) or hidden in {"", ".", ".."}:
            return  # notes of another kind of mount
        folder = self._folder(above)
        if _is_folder(folder, hidden):
            self._cover([*above, hidden])
        elif _look(folder, hidden) is None:
            os.mknod(hidden, stat.S_IFCHR, 0, dir_fd=folder)

    def _cover(self, parts: list[str]) -> None:
        os.setxattr(self._folder(parts), overlay.opaque_mark(), b"y")

    # ── folders ─────────────────────────────────────────────────────────────────────

    def _replaced(self, above: list[str], name: str, but: os.stat_result | None = None) -> int:
        """Return a folder in which a name is free now."""
        folder = self._folder(above)
        found = _look(folder, name)
        if but is not None and found is not None and os.path.samestat(found, but):
            raise Bad(f"a hard link {name} leads to itself")
        if found is not None and stat.S_ISDIR(found.st_mode):
            raise Bad(f"{'/'.join([*above, name])} is a folder, and then something else")
        self._forget(folder, name)
        return folder

    def _forget(self, folder: int, name: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name, dir_fd=folder)

    def _folder(self, parts: list[str]) -> int:
        """Open a folder, made where it is not there yet, following no link."""
        if not parts:
            return self._root
        path = "/".join(parts)
        if (known := self._open.get(path)) is not None:
            return known
        above = self._folder(parts[:-1])
        try:
            fd = os.open(parts[-1], _FOLDER, dir_fd=above)
        except FileNotFoundError:
            self._count()
            os.mkdir(parts[-1], 0o755, dir_fd=above)
            fd = os.open(parts[-1], _FOLDER, dir_fd=above)
        except OSError as error:
            if error.errno not in (errno.ELOOP, errno.ENOTDIR):
                raise
            if not _is_hidden(above, parts[-1]):
                raise Bad(f"an entry lies below {path}, which is not a folder") from error
            self._count()
            self._forget(above, parts[-1])
            os.mkdir(parts[-1], 0o755, dir_fd=above)
            fd = os.open(parts[-1], _FOLDER, dir_fd=above)
            os.setxattr(fd, overlay.opaque_mark(), b"y")
        if len(self._open) >= _MOST_FOLDERS_OPEN:
            self._close_all(keep=parts)
        self._open[path] = fd
        return fd

    def _close_all(self, keep: list[str]) -> None:
        """Close what is open, but for the folders above one."""
        needed = {"/".join(keep[:count]) for count in range(1, len(keep))}
        for path in [path for path in self._open if path not in needed]:
            os.close(self._open.pop(path))


def _parts(name: str) -> list[str]:
    """Split a name. Raises Bad where it leads up, or too deep."""
    parts = [part for part in name.split("/") if part not in {"", "."}]
    if ".." in parts:
        raise Bad(f"an entry leads out of the layer: {name[:200]}")
    if len(parts) > _MOST_DEPTH or "\0" in name:
        raise Bad(f"an entry has an impossible name: {name[:200]!r}")
    return parts


def _owner(entry: tarfile.TarInfo) -> tuple[int, int]:
    if not (0 <= entry.uid <= _LARGEST_ID and 0 <= entry.gid <= _LARGEST_ID):
        raise Bad(f"{entry.name} belongs to an impossible user")
    # Without root's rights all is the user's own.
    return (entry.uid, entry.gid) if os.geteuid() == 0 else (os.geteuid(), os.getegid())


def _mode(entry: tarfile.TarInfo) -> int:
    """Return what may be done with a file: of one that would be root's, a task is no owner.

    Where it is the task's user's, its owner has at least the rights of all others.
    """
    mode = entry.mode & _KEPT_BITS
    return mode if os.geteuid() == 0 else mode | (mode & 0o007) << 6


def _look(folder: int, name: str) -> os.stat_result | None:
    try:
        return os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None


def _is_folder(folder: int, name: str) -> bool:
    found = _look(folder, name)
    return found is not None and stat.S_ISDIR(found.st_mode)


def _is_hidden(folder: int, name: str) -> bool:
    """Whether a name is a whiteout."""
    found = _look(folder, name)
    return found is not None and stat.S_ISCHR(found.st_mode)


def _write(file: IO[bytes], data: bytes) -> None:
    while data:
        data = data[file.write(data) :]


def unpack(source: IO[bytes], root: int, diff_id: str, most: tuple[int, int]) -> LayerFolder:
    """Unpack a layer into an empty folder. Raises what `main` tells."""
    plain = Plain(source, most[0])
    layer = LayerFolder(root, most)
    try:
        with tarfile.TarFile.open(
            fileobj=cast("IO[bytes]", plain), mode="r|", bufsize=PIECE, errorlevel=2
        ) as archive:
            while (entry := archive.next()) is not None:
                layer.add(entry, archive)
                vars(archive)["members"].clear()  # or it would remember all of them
    except (tarfile.TarError, ValueError, OverflowError, RecursionError) as error:
        raise Bad(f"it is not an archive that can be read: {error}") from error
    if (found := plain.digest()) != diff_id:
        raise Bad(f"unpacked it is {found}, and the configuration says {diff_id}")
    return layer


def main() -> None:
    """Run as a program. See the top of this file."""
    folder, diff_id, most_bytes, most_files = sys.argv[1:]
    "".encode("idna")  # loads what may be wanted later, while it can be found
    for name in ("utf-8", "ascii", "latin-1"):
        b"".decode(name)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (_MOST_MEMORY, _MOST_MEMORY))
    os.umask(0o022)
    os.chdir(folder)
    user_namespace.unshare(libc.CLONE_NEWNS)
    libc.mount("none", "/", "", libc.MS_REC | libc.MS_SLAVE)
    take_no_more_code()
    os.chroot(".")
    libc.keep_capabilities(_RIGHTS if os.geteuid() == 0 else _RIGHTS_OF_USER)
    root = os.open("/", _FOLDER)
    told = _told(root, diff_id, (int(most_bytes), int(most_files)))
    print(json.dumps(told), flush=True)
    os._exit(0)  # what Python does at its end could fail as well


def _told(root: int, diff_id: str, most: tuple[int, int]) -> dict[str, object]:
    """Unpack stdin, and return what is said of it."""
    try:
        layer = unpack(sys.stdin.buffer, root, diff_id, most)
    except Bad as error:
        return {"bad": str(error)}
    except Unreadable as error:
        return {"bad": f"it cannot be decompressed: {error}"}
    except TooLarge:
        return {"large": True}
    except EOFError:
        return {"cut": True}
    except MemoryError:
        return {"bad": "it needs more memory to be unpacked than it may have"}
    except OSError as error:
        is_full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        return {"full" if is_full else "bad": error.strerror or str(error)}
    except Exception as error:  # noqa: BLE001 - whatever else a layer brings about
        return {"bad": f"it cannot be unpacked: {type(error).__name__}"}
    return {"files": layer.files, "bytes": layer.used}


if __name__ == "__main__":
    main()
