"""Takes a folder along: lists it, reads what changed, sends what the service does not have."""

import hashlib
import os
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from allotment.client.code_list import Listed, list_code
from allotment.client.errors import Refused
from allotment.client.request import JSON, decode, path_to
from allotment.client.transport import Transport
from allotment.service.code.manifest import (
    BadManifest,
    CodeFile,
    Kind,
    check_link,
    digest_of,
    largest,
    needs,
    size_of,
    written,
)
from allotment.service.code.view import CodeNote, CodeRoom, CodeTaken, CodeWanted

BATCH: Final = 32 << 20
"""Bytes of one request, unless a file is larger."""
PIECE: Final = 1 << 20
TRIES: Final = 4
HINT: Final = "Leave it out by a line in .allotignore (written like .gitignore)."
_SETTLED_NS: Final = 2_000_000_000
"""How long after its last change a file has a time that later changes do not share."""

Tell = Callable[[str], None]


class Taken(NamedTuple):
    """A folder as it was: what a job says of it, and how large it is."""

    code: dict[str, object]
    """The key `code` of a job."""
    files: int
    bytes: int
    sent: int
    """Bytes that the service did not have."""


class _Known(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A file as it was when it was read: while it looks the same, it is the same."""

    size: int
    mtime_ns: int
    ctime_ns: int
    inode: int
    digest: str


class _Memory(msgspec.Struct, frozen=True):
    """What is known of the files of a folder."""

    version: int
    files: dict[str, _Known]


def take(transport: Transport, folder: Path, tell: Tell, *, only_look: bool = False) -> Taken:
    """Send what is missing of a folder's code. With `only_look` just say how much that is.

    Raises Refused where it is too large, or something in it cannot be taken.
    """
    folder = Path(os.path.abspath(folder))  # noqa: PTH100 - its links stay
    room = decode(transport.fetch("GET", "/v1/code", again=True), CodeRoom)
    listed = list_code(folder)
    states = _states(folder, listed.names)
    _check_size(folder, states, room)
    files = _read(folder, states)
    data = written(files)
    also = (digest_of(listed.difference),) if listed.difference else ()
    bundle = digest_of(data)
    code = _described(folder, listed, bundle, also)
    total = size_of(files)
    if _is_here(transport, bundle, also):
        return Taken(code, len(files), total, 0)
    sent = 0
    for _ in range(TRIES):
        missing = _missing(transport, data, also)
        if only_look:
            sizes = needs(files)
            return Taken(code, len(files), total, sum(sizes.get(each, 0) for each in missing))
        if not missing:
            return Taken(code, len(files), total, sent)
        sent += _send(transport, folder, files, set(missing), listed.difference, tell)
    raise Refused(
        "conflict",
        f"The files of {folder} keep changing while they are sent.",
        "Submit again, while nothing writes there; leave out what jobs write (.allotignore).",
    )


def _described(
    folder: Path, listed: Listed, bundle: str, also: Sequence[str]
) -> dict[str, object]:
    told: dict[str, object] = {
        "take": str(folder),
        "bundle": bundle,
        "commit": listed.commit,
        "branch": listed.branch,
        "changed": listed.changed,
        "difference": also[0] if also else "",
    }
    return {key: value for key, value in told.items() if value}


# ── looking ─────────────────────────────────────────────────────────────────────────────


def _states(folder: Path, names: Sequence[str]) -> dict[str, os.stat_result]:
    """Look at each file; what git knows and is not there any more is left out."""
    found: dict[str, os.stat_result] = {}
    top = f"{folder}/"
    ahead = [*reversed(names)]
    while ahead:
        name = ahead.pop()
        try:
            state = os.lstat(top + name)
        except FileNotFoundError:
            continue
        except OSError as error:
            raise _unreadable(folder, name, error) from error
        kind = stat.S_IFMT(state.st_mode)
        if kind in (stat.S_IFREG, stat.S_IFLNK):
            found[name] = state
        elif kind == stat.S_IFDIR:  # a repository inside
            inside = name.rstrip("/")
            ahead += [f"{inside}/{each}" for each in list_code(folder / inside).names]
        else:
            raise _refused(folder, f"{name} is {_KINDS.get(kind, 'no plain file')}")
    if not found:
        raise Refused(
            "bad_request",
            f"There are no files in {folder} that could be taken along.",
            "Look at what git ignores there: `git status --ignored`.",
        )
    return found


_KINDS: Final = {
    stat.S_IFSOCK: "a socket",
    stat.S_IFIFO: "a pipe",
    stat.S_IFBLK: "a device",
    stat.S_IFCHR: "a device",
}


def _check_size(folder: Path, states: dict[str, os.stat_result], room: CodeRoom) -> None:
    sizes = [(name, state.st_size) for name, state in states.items()]
    total = sum(size for _, size in sizes)
    if len(sizes) <= room.most_files and total <= room.most_bytes:
        return
    from allotment.model.quantity import show_bytes  # noqa: PLC0415 - rarely needed

    raise Refused(
        "too_large",
        f"{folder} has {len(sizes):,} files with {show_bytes(total)} in all; "
        f"{room.most_files:,} files and {show_bytes(room.most_bytes)} may be taken along. "
        f"{largest(sizes)}",
        "Leave out what no task needs, by lines in .allotignore; data belong in `data`.",
    )


# ── reading ─────────────────────────────────────────────────────────────────────────────


def _read(folder: Path, states: dict[str, os.stat_result]) -> list[CodeFile]:
    """Return all files with their digests; those are read that look other than before."""
    memory = _memory_of(folder)
    known = _recall(memory)
    began = time.time_ns()
    files: list[CodeFile] = []
    now: dict[str, _Known] = {}
    is_new = False
    for name, state in states.items():
        if stat.S_ISLNK(state.st_mode):
            files.append(_link(folder, name))
            continue
        before = known.get(name)
        if before is None or not _looks_like(before, state):
            before, state = _digested(folder, name)
            is_new = True
        if max(before.mtime_ns, before.ctime_ns) < began - _SETTLED_NS:
            now[name] = before
        kind: Kind = "x" if state.st_mode & stat.S_IXUSR else "f"
        files.append(CodeFile(_utf8(folder, name), kind, before.size, before.digest))
    if is_new or len(now) != len(known):
        _remember(memory, now)
    return files


def _looks_like(known: _Known, state: os.stat_result) -> bool:
    return (known.size, known.mtime_ns, known.ctime_ns, known.inode) == (
        state.st_size,
        state.st_mtime_ns,
        state.st_ctime_ns,
        state.st_ino,
    )


def _digested(folder: Path, name: str) -> tuple[_Known, os.stat_result]:
    try:
        fd = os.open(f"{folder}/{name}", os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        with os.fdopen(fd, "rb", buffering=0) as file:
            state = os.fstat(fd)
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            size = file.tell()
    except OSError as error:
        raise _unreadable(folder, name, error) from error
    known = _Known(size, state.st_mtime_ns, state.st_ctime_ns, state.st_ino, digest)
    return known, state


def _link(folder: Path, name: str) -> CodeFile:
    target = str((folder / name).readlink())
    try:
        check_link(_utf8(folder, name), _utf8(folder, target))
    except BadManifest as error:
        raise Refused(
            "bad_request",
            f"{error}.",
            f"On another machine it leads nowhere. {HINT} Data belong in `data`.",
        ) from error
    return CodeFile(name, "l", 0, target)


def _utf8(folder: Path, name: str) -> str:
    if not name.isascii() and any("\ud800" <= letter <= "\udfff" for letter in name):
        raise _refused(folder, f"{name!a} is no name in UTF-8")
    return name


def _memory_of(folder: Path) -> Path:
    home = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    return Path(home, "allotment", "code", digest_of(os.fsencode(folder))[:32])


def _recall(memory: Path) -> dict[str, _Known]:
    try:
        found = msgspec.msgpack.decode(memory.read_bytes(), type=_Memory)
    except (OSError, msgspec.MsgspecError):
        return {}
    return found.files if found.version == 1 else {}


def _remember(memory: Path, files: dict[str, _Known]) -> None:
    """Keep what was read, for the next time. Without, all is only read again."""
    fresh = memory.with_name(f"{memory.name}.{os.getpid()}")
    try:
        memory.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        fresh.write_bytes(msgspec.msgpack.encode(_Memory(1, files)))
        fresh.replace(memory)
    except (OSError, msgspec.MsgspecError):
        return


# ── sending ─────────────────────────────────────────────────────────────────────────────


def _is_here(transport: Transport, bundle: str, also: Sequence[str]) -> bool:
    path = path_to(f"/v1/code/{bundle}", [("also", each) for each in also])
    try:
        decode(transport.fetch("GET", path, again=True), CodeNote)
    except Refused as error:
        if error.code == "not_found":
            return False
        raise
    return True


def _missing(transport: Transport, data: bytes, also: Sequence[str]) -> Sequence[str]:
    path = path_to("/v1/code", [("also", each) for each in also])
    kind = {"Content-Type": JSON}
    return decode(transport.fetch("POST", path, data, kind, again=True), CodeWanted).missing


class _Body:
    """The files of one request. It can be read again, should the connection be lost."""

    def __init__(
        self, folder: Path, files: Sequence[CodeFile], difference: bytes = b""
    ) -> None:
        self._folder = folder
        self._files = files
        self._difference = difference
        self.size = sum(40 + file.size for file in files)
        self.size += 40 + len(difference) if difference else 0

    def __iter__(self) -> Iterator[bytes]:
        held = bytearray()
        if self._difference:
            held += _head(digest_of(self._difference), len(self._difference)) + self._difference
        for file in self._files:
            held += _head(file.of, file.size)
            for piece in _pieces(self._folder, file):
                held += piece
                if len(held) >= PIECE:
                    yield bytes(held)
                    held.clear()
        if held:
            yield bytes(held)


def _head(digest: str, size: int) -> bytes:
    return bytes.fromhex(digest) + size.to_bytes(8, "big")


def _pieces(folder: Path, file: CodeFile) -> Iterator[bytes]:
    """Read just as much of a file as was said that it has."""
    left = file.size
    try:
        with Path(f"{folder}/{file.path}").open("rb", buffering=0) as source:
            while left and (piece := source.read(min(left, PIECE))):
                left -= len(piece)
                yield piece
    except OSError as error:
        raise _unreadable(folder, file.path, error) from error
    if left:
        raise _refused(folder, f"{file.path} became shorter while it was sent")


def _send(
    transport: Transport,
    folder: Path,
    files: Sequence[CodeFile],
    missing: set[str],
    difference: bytes,
    tell: Tell,
) -> int:
    """Send what is missing, in few requests; return how many bytes that were."""
    from allotment.model.quantity import show_bytes  # noqa: PLC0415 - only where much is sent

    by_digest = {file.of: file for file in files if file.kind != "l" and file.of in missing}
    batches = _batches(list(by_digest.values()))
    total = sum(file.size for file in by_digest.values())
    text = difference if difference and digest_of(difference) in missing else b""
    done = 0
    for number, batch in enumerate(batches):
        tell(
            f"sending code: {show_bytes(done)} of {show_bytes(total)}, "
            f"{len(by_digest):,} files that are not there yet"
        )
        body = _Body(folder, batch, text if not number else b"")
        kind = {"Content-Type": "application/octet-stream", "Content-Length": str(body.size)}
        decode(transport.fetch("POST", "/v1/code:send", body, kind, again=True), CodeTaken)
        done += sum(file.size for file in batch)
    return done


def _batches(files: list[CodeFile]) -> list[list[CodeFile]]:
    found: list[list[CodeFile]] = [[]]
    size = 0
    for file in files:
        if size and size + file.size > BATCH:
            found.append([])
            size = 0
        found[-1].append(file)
        size += file.size
    return found


def _unreadable(folder: Path, name: str, error: OSError) -> Refused:
    why = (error.strerror or "cannot be read").lower()
    return _refused(folder, f"{name}: {why}")


def _refused(folder: Path, why: str) -> Refused:
    return Refused("bad_request", f"The code of {folder} cannot be taken along: {why}.", HINT)
