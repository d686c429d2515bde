"""Which Pythons an image has, told by its files: nothing of an image is run for that.

An image can say anything, and whoever looks is root. So a path is walked name by name through
the layers, as a mount of them would show it, and a link leads to another place of the same
image. Layers never change once they are here.
"""

import os
import re
import stat
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from allotment.backends.local.runner.overlay import opaque_mark
from allotment.service.ports import ImagePython

USUAL: Final = ("/usr/local/bin", "/usr/bin", "/bin")
"""Where programs are looked for where an image names no PATH."""
_MINORS: Final = range(30, 7, -1)
_NAMES: Final = ("python3", "python", *(f"python3.{minor}" for minor in _MINORS))
_NAMED: Final = re.compile(r"python3\.([0-9]{1,2})")
_PLAIN: Final = re.compile(r"/[A-Za-z0-9._/+@-]{1,300}")
"""Paths that can be written into a file of settings."""
_GLIBC: Final = re.compile(rb"GNU C Library \(.*release version 2\.([0-9]{1,2})\b")
_GLIBC_BEGINS: Final = b"GNU C Library ("
_GLIBC_LONGEST: Final = 200
_MOST_LINKS: Final = 40
_MOST_LOOKS: Final = 200_000
"""How often it is looked whether a layer has a name: some seconds."""
_DEEP: Final = 8
"""A look counts once more for so many folders above it: each takes its time."""
_MOST_PLACES: Final = 20
_MOST_READ: Final = 4 << 20
_MOST_PARTS: Final = 64
_HEADER: Final = struct.Struct("<4sBB10x16xQ14xHH")
"""Of a program: mark, 64 bits, least byte first; where its parts are listed, each how long, how
many."""
_PART: Final = struct.Struct("<I4xQ16xQ")
_LOADER: Final = 3
"""A part that names the program by which it is loaded."""


class Files:
    """The files of an image. `layers` are the folders of its layers, topmost first."""

    def __init__(self, layers: Sequence[Path]) -> None:
        self._layers = [str(layer) for layer in layers]
        self._looks = 0

    def find(self, path: str) -> tuple[str, str] | None:
        """Return a plain file's path without links, and where it lies; None without one."""
        todo = path.split("/")[::-1]
        way: list[tuple[str, list[str]]] = [("", self._layers)]
        links = 0
        while todo:
            name = todo.pop()
            if name in {"", "."}:
                continue
            if name == "..":
                if len(way) > 1:
                    way.pop()
                continue
            here, folders = way[-1]
            self._looks += len(folders) * (1 + len(way) // _DEEP)
            if self._looks > _MOST_LOOKS:
                return None
            found, target = _look(folders, name)
            if target:
                links += 1
                if links > _MOST_LINKS:
                    return None
                todo += target.split("/")[::-1]
                if target.startswith("/"):
                    del way[1:]
            elif isinstance(found, list):
                way.append((f"{here}/{name}", found))
            else:
                return (f"{here}/{name}", found) if found and not any(todo) else None
        return None


def _look(folders: Sequence[str], name: str) -> tuple[list[str] | str, str]:
    """Return what has a name in a folder of several layers, and where a link leads.

    Of a folder it is where its parts lie; '' where there is nothing.
    """
    parts: list[str] = []
    for folder in folders:
        path = f"{folder}/{name}"
        try:
            mode = os.lstat(path).st_mode
        except (OSError, ValueError):
            continue
        if stat.S_ISDIR(mode):
            parts.append(path)
            if _is_opaque(path):
                break
        elif parts:
            break
        elif stat.S_ISLNK(mode):
            return "", str(Path(path).readlink())
        else:
            return path if stat.S_ISREG(mode) else "", ""
    return parts or "", ""


def _is_opaque(path: str) -> bool:
    try:
        return os.getxattr(path, opaque_mark(), follow_symlinks=False) == b"y"
    except OSError:
        return False


def pythons(files: Files, path: str) -> list[ImagePython]:
    """Return the Pythons on a PATH, the one first that is found first; of each version one."""
    found: dict[str, ImagePython] = {}
    for version, program, place in _programs(files, path):
        if version not in found and (libc := _libc_of(files, place)):
            found[version] = ImagePython(version, program, libc)
    return list(found.values())


def _programs(files: Files, path: str) -> Iterator[tuple[str, str, str]]:
    """Find what is called as a Python is: its version, its path, and where it lies."""
    places = [place for place in path.split(":") if place.startswith("/")] or USUAL
    for place in places[:_MOST_PLACES]:
        for name in _NAMES:
            where = files.find(f"{place}/{name}")
            if where is None or not _PLAIN.fullmatch(where[0]):
                continue
            named = _NAMED.fullmatch(where[0].rpartition("/")[2]) or _NAMED.fullmatch(name)
            if named:
                yield f"3.{int(named[1])}", *where


def _libc_of(files: Files, program: str) -> str:
    """Return the C library of a program: musl, or the version of glibc; '' where unknown."""
    loader = _loader_of(program)
    name = loader.rpartition("/")[2]
    if name.startswith("ld-musl-"):
        return "musl"
    where = files.find(loader) if name.startswith("ld-linux") else None
    if where is None:
        return ""
    library = files.find(f"{where[0].rpartition('/')[0]}/libc.so.6")
    if library is None:
        return ""
    with Path(library[1]).open("rb") as file:
        data = file.read(_MOST_READ)
    begins = data.find(_GLIBC_BEGINS)  # An expression would be slow where much looks like it.
    told = _GLIBC.match(data[begins : begins + _GLIBC_LONGEST]) if begins >= 0 else None
    return f"2.{int(told[1])}" if told else ""


def _loader_of(program: str) -> str:
    """Return what a program is loaded by; '' where it is none for that."""
    with Path(program).open("rb") as file:
        try:
            mark, bits, order, offset, length, count = _HEADER.unpack(file.read(_HEADER.size))
            if (mark, bits, order) != (b"\x7fELF", 2, 1):
                return ""
            for number in range(min(count, _MOST_PARTS)):
                file.seek(offset + number * length)
                kind, at, size = _PART.unpack(file.read(_PART.size))
                if kind == _LOADER:
                    file.seek(at)
                    return file.read(min(size, 4096)).rstrip(b"\0").decode()
        except (struct.error, OSError, ValueError, OverflowError):
            return ""
    return ""
