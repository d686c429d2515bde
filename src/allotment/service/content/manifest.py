"""A bundle is a list of files: paths, kinds, sizes, digests. Its name is the list's digest.

Both sides use this: the client writes a list, the service believes nothing of it. Links lead
to what lies in the bundle, and no name leads out of it, whatever else it may hold.
"""

import hashlib
import sys
from collections.abc import Iterable, Sequence
from typing import Final, Literal

import msgspec

from allotment.model.quantity import show_bytes

Kind = Literal["f", "x", "l"]
"""A plain file, one that can be run, or a link."""

_LONGEST_PATH: Final = 1024
_LONGEST_NAME: Final = 255
_DEEPEST: Final = 64
_MOST_FOLDERS: Final = 50_000
_HEX: Final = frozenset("0123456789abcdef")
_SHOWN: Final = 5


class FileEntry(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One file. `of` is the digest of what is in it, or where a link leads."""

    path: str
    kind: Kind
    size: int
    of: str


class Manifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The files of a bundle, in order of their paths."""

    files: tuple[FileEntry, ...]
    version: Literal[1] = 1


class BadManifest(Exception):
    """A list of files that cannot be a bundle; the text says why."""


def written(files: Iterable[FileEntry]) -> bytes:
    """Write the list of files as it is sent, kept and digested."""
    return msgspec.json.encode(Manifest(tuple(sorted(files, key=lambda file: file.path))))


def digest_of(data: bytes) -> str:
    """Return the name of a bundle, or of what is in a file."""
    return hashlib.sha256(data).hexdigest()


def is_digest(text: str) -> bool:
    """Whether a text is a digest as `digest_of` writes it."""
    return len(text) == 64 and _HEX.issuperset(text)


def read(data: bytes) -> Manifest:
    """Read and check a list of files. Raises BadManifest."""
    try:
        manifest = msgspec.json.decode(data, type=Manifest)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise BadManifest(f"it is not a list of files: {str(error)[:200]}") from error
    _check(manifest.files)
    return manifest


def needs(files: Sequence[FileEntry]) -> dict[str, int]:
    """Return the digests of what the files hold, and how large each is."""
    return {file.of: file.size for file in files if file.kind != "l"}


def size_of(files: Sequence[FileEntry]) -> int:
    """Add up the files."""
    return sum(file.size for file in files if file.kind != "l")


def folders_of(files: Sequence[FileEntry], most: int = sys.maxsize) -> list[str]:
    """List the folders that the files lie in, those above before those below.

    Beyond `most` no more are looked for.
    """
    found: dict[str, None] = {}
    for file in files:
        if len(found) > most:
            break
        above = file.path.rpartition("/")[0]
        fresh: list[str] = []
        while above and above not in found:
            fresh.append(above)
            above = above.rpartition("/")[0]
        found.update(dict.fromkeys(reversed(fresh)))
    return list(found)


def largest(sizes: Iterable[tuple[str, int]]) -> str:
    """Name the largest files, and the folders at the top that hold most."""
    listed = sorted(sizes, key=lambda pair: (-pair[1], pair[0]))
    tops: dict[str, tuple[int, int]] = {}
    for path, size in listed:
        top, slash, _ = path.partition("/")
        if slash:
            count, total = tops.get(top, (0, 0))
            tops[top] = count + 1, total + size
    files = ", ".join(f"{path} ({show_bytes(size)})" for path, size in listed[:_SHOWN])
    most = sorted(tops.items(), key=lambda item: (-item[1][1], -item[1][0], item[0]))
    folders = ", ".join(
        f"{top}/ ({count:,} {'file' if count == 1 else 'files'}, {show_bytes(total)})"
        for top, (count, total) in most[:_SHOWN]
    )
    told = f"The largest files: {files}." if files else ""
    return f"{told} The largest folders: {folders}." if folders else told


# ── what may be ─────────────────────────────────────────────────────────────────────────


def _check(files: Sequence[FileEntry]) -> None:
    if not files:
        raise BadManifest("it has no files")
    seen: set[str] = set()
    before = ""
    for file in files:
        _check_path(file.path)
        if file.path <= before and seen:
            raise BadManifest(f"{_shown(file.path)} occurs twice, or is not in order")
        if file.size < 0:
            raise BadManifest(f"{_shown(file.path)} has a size below 0")
        if file.kind == "l":
            check_link(file.path, file.of)
        elif not is_digest(file.of):
            raise BadManifest(f"{_shown(file.path)} has no digest")
        seen.add(file.path)
        before = file.path
    folders = folders_of(files, _MOST_FOLDERS)
    if len(folders) > _MOST_FOLDERS:
        raise BadManifest(f"it has more than {_MOST_FOLDERS:,} folders")
    for folder in folders:
        if folder in seen:
            raise BadManifest(f"{_shown(folder)} is a folder and a file")


def _check_path(path: str) -> None:
    parts = path.split("/")
    if len(path.encode(errors="replace")) > _LONGEST_PATH or len(parts) > _DEEPEST:
        raise BadManifest(
            f"{_shown(path)} is longer than {_LONGEST_PATH} bytes, or has more than "
            f"{_DEEPEST} parts"
        )
    for part in parts:
        if part in {"", ".", ".."} or len(part.encode(errors="replace")) > _LONGEST_NAME:
            raise BadManifest(f"{_shown(path)} is not the path of a file below a folder")
    if "\0" in path or any("\ud800" <= letter <= "\udfff" for letter in path):
        raise BadManifest(f"{_shown(path)} is not a name in UTF-8")


def check_link(path: str, target: str) -> None:
    """Raise BadManifest where a link could lead out of the bundle.

    Steps up stand first and are no more than there are folders above the link, which are no
    links themselves. So what follows lies in the bundle, and every link there stays in it too.
    """
    parts = target.split("/")
    ups = 0
    while ups < len(parts) and parts[ups] == "..":
        ups += 1
    rest = parts[ups:]
    leads_out = (
        not target
        or target.startswith("/")
        or ups > path.count("/")
        or ".." in rest
        or "\0" in target
        or len(target.encode(errors="replace")) > _LONGEST_PATH
    )
    if leads_out:
        raise BadManifest(f"the link {_shown(path)} leads out of the folder: {_shown(target)}")


def _shown(text: str) -> str:
    return ascii(text[:200])
