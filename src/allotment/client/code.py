"""Takes a folder along: lists it, reads what changed, sends what the service does not have."""

import os
import stat
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from allotment.client.code_list import Listed, list_code
from allotment.client.content import (
    KINDS,
    Body,
    Known,
    Sent,
    batches,
    digested,
    memory_of,
    recall,
    remember,
    utf8,
    why,
)
from allotment.client.errors import Refused
from allotment.client.request import JSON, decode, path_to
from allotment.client.step import Step, Tell
from allotment.client.transport import Transport
from allotment.service.code.view import CodeNote, CodeRoom, CodeTaken, CodeWanted
from allotment.service.content.manifest import (
    BadManifest,
    FileEntry,
    Kind,
    check_link,
    digest_of,
    largest,
    needs,
    size_of,
    written,
)

TRIES: Final = 4
HINT: Final = "Leave it out by a line in .allotignore (written like .gitignore)."


class Taken(NamedTuple):
    """A folder as it was: what a job says of it, and how large it is."""

    code: dict[str, object]
    """The key `code` of a job."""
    files: int
    bytes: int
    sent: int
    """Bytes that the service did not have."""


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
            raise _refused(folder, f"{name} is {KINDS.get(kind, 'not a regular file')}")
    if not found:
        raise Refused(
            "bad_request",
            f"There are no files in {folder} that could be taken along.",
            "Look at what git ignores there: `git status --ignored`.",
        )
    return found


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


def _read(folder: Path, states: dict[str, os.stat_result]) -> list[FileEntry]:
    """Return all files with their digests; those are read that look other than before."""
    memory = memory_of("code", folder)
    known = recall(memory)
    began = time.time_ns()
    files: list[FileEntry] = []
    now: dict[str, Known] = {}
    is_new = False
    for name, state in states.items():
        if stat.S_ISLNK(state.st_mode):
            files.append(_link(folder, name))
            continue
        before = known.get(name)
        if before is None or not before.looks_like(state):
            before, state = _digested(folder, name)
            is_new = True
        if before.is_settled(began):
            now[name] = before
        kind: Kind = "x" if state.st_mode & stat.S_IXUSR else "f"
        files.append(
            FileEntry(utf8(name, partial(_refused, folder)), kind, before.size, before.digest)
        )
    if is_new or len(now) != len(known):
        remember(memory, now)
    return files


def _digested(folder: Path, name: str) -> tuple[Known, os.stat_result]:
    try:
        return digested(f"{folder}/{name}")
    except OSError as error:
        raise _unreadable(folder, name, error) from error


def _link(folder: Path, name: str) -> FileEntry:
    target, refuse = str((folder / name).readlink()), partial(_refused, folder)
    try:
        check_link(utf8(name, refuse), utf8(target, refuse))
    except BadManifest as error:
        raise Refused(
            "bad_request",
            f"{error}.",
            f"On another machine it leads nowhere. {HINT} Data belong in `data`.",
        ) from error
    return FileEntry(name, "l", 0, target)


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


def _send(
    transport: Transport,
    folder: Path,
    files: Sequence[FileEntry],
    missing: set[str],
    difference: bytes,
    tell: Tell,
) -> int:
    """Send what is missing, in few requests; return how many bytes that were."""
    by_digest = {file.of: file for file in files if file.kind != "l" and file.of in missing}
    parts = batches([Sent(file.path, file.size, file.of) for file in by_digest.values()])
    total = sum(file.size for file in by_digest.values())
    text = difference if difference and digest_of(difference) in missing else b""
    done = 0
    for number, batch in enumerate(parts):
        are = "1 file that is" if len(by_digest) == 1 else f"{len(by_digest):,} files that are"
        more = f"{are} not there yet"
        tell(Step("sending code", done, total, more))
        body = Body(folder, batch, partial(_refused, folder), b"" if number else text)
        kind = {"Content-Type": "application/octet-stream", "Content-Length": str(body.size)}
        decode(transport.fetch("POST", "/v1/code:send", body, kind, again=True), CodeTaken)
        done += sum(file.size for file in batch)
    return done


def _unreadable(folder: Path, name: str, error: OSError) -> Refused:
    return _refused(folder, why(name, error))


def _refused(folder: Path, because: str) -> Refused:
    return Refused(
        "bad_request", f"The code of {folder} cannot be taken along: {because}.", HINT
    )
