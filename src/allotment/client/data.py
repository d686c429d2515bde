"""Puts a folder into a dataset as its next version.

Files that the service has of the dataset are not sent, as far as this client remembers them.
Others are read once: the service finds out what they are called by what is in them.
"""

import contextlib
import os
import stat
import threading
import time
from collections import deque
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from allotment.client.content import (
    KINDS,
    READ,
    Body,
    Known,
    Sent,
    batches,
    known_of,
    memory_of,
    recall,
    remember,
    utf8,
    why,
)
from allotment.client.errors import ApiError, Refused
from allotment.client.request import JSON, data_path, decode
from allotment.client.step import Step, Tell
from allotment.client.transport import Transport
from allotment.service.content.manifest import (
    BadManifest,
    FileEntry,
    Kind,
    check_link,
    digest_of,
    largest,
    written,
)
from allotment.service.data.view import (
    DataHanded,
    DataRoom,
    DataTaken,
    DataVersionView,
    DataView,
    DataWanted,
    HandedFile,
)

TRIES: Final = 4
LANES: Final = 2
"""Files that the service reads at a time: what costs most are their digests."""
MOST_HANDED: Final = 128
"""Files of one request that we hold open."""
HANDED_S: Final = 1800.0
"""How long the service may read the files of one request."""
LOOK_S: Final = 1.0
PUTTING_S: Final = 4.2 * 3600
"""How long it may take to bring a version to where its files are kept, such as a store."""


class Put(NamedTuple):
    """A version as it was put."""

    version: DataVersionView
    sent: int
    """Bytes that the service did not have."""


# ── putting ─────────────────────────────────────────────────────────────────────────────


def put(transport: Transport, name: str, source: Path, tell: Tell) -> Put:
    """Make a folder, or one file, the next version of a dataset.

    Raises Refused where something in it cannot be put, or it keeps changing.
    """
    source = Path(os.path.abspath(source))  # noqa: PTH100 - its links stay
    room = decode(transport.fetch("GET", data_path(name, "/room"), again=True), DataRoom)
    folder = source if source.is_dir() else source.parent
    putting = _Putting(transport, name, folder, tell)
    for _ in range(TRIES):
        states = _walked(source, putting.refuse)
        _check_size(source, states, room)
        if (done := putting.once(states)) is not None:
            return done
    raise Refused(
        "conflict",
        f"The files of {source} keep changing while they are read.",
        "Put it again, while nothing writes there.",
    )


class _Putting:
    """One folder on its way into a dataset."""

    def __init__(self, transport: Transport, name: str, folder: Path, tell: Tell) -> None:
        self._transport = transport
        self._name = name
        self._folder = folder
        self._tell = tell
        self._memory = memory_of("data", folder)
        self._known = recall(self._memory)
        self._sent = 0
        self.refuse = partial(_refused, folder)

    def once(self, states: dict[str, os.stat_result]) -> Put | None:
        """Send what is missing, and close the version; None where files changed meanwhile."""
        plain = {name: state for name, state in states.items() if stat.S_ISREG(state.st_mode)}
        known = {
            name: told
            for name, state in plain.items()
            if (told := self._known.get(name)) is not None and told.looks_like(state)
        }
        fresh = [
            Sent(name, state.st_size) for name, state in plain.items() if name not in known
        ]
        try:
            self._send(fresh, known)
            if len(known) < len(plain):
                return None
            return self._close(states, known)
        finally:
            began = time.time_ns()
            came = known.copy()  # After an interrupt a lane may still add what it just brought.
            settled = {name: each for name, each in came.items() if each.is_settled(began)}
            if settled != self._known:
                remember(self._memory, settled)
            self._known = settled

    def _close(self, states: dict[str, os.stat_result], known: dict[str, Known]) -> Put | None:
        data = written(self._entry(name, state, known) for name, state in states.items())
        for _ in range(2):
            wanted = self._wanted(data)
            if wanted.version is not None:
                return Put(wanted.version, self._sent)
            missing = set(wanted.missing)
            again = [
                Sent(name, each.size, each.digest)
                for name, each in {
                    each.digest: (name, each)
                    for name, each in known.items()
                    if each.digest in missing
                }.values()
            ]
            came: dict[str, Known] = {}
            try:
                self._send(again, came)
            except Refused as error:
                if error.code != "conflict":
                    raise
                came = {}
            # Some may not be what was remembered.
            now = {file: came.get(file.path) for file in again}
            changed = [
                file for file, each in now.items() if not each or each.digest != file.digest
            ]
            for file in changed:
                known.pop(file.path, None)
            if changed:
                return None
        return None

    def _wanted(self, data: bytes) -> DataWanted:
        path, kind = data_path(self._name, ":put"), {"Content-Type": JSON}
        over = threading.Event()
        watching = threading.Thread(
            target=self._watch, args=(digest_of(data), over), daemon=True
        )
        watching.start()
        try:
            with contextlib.closing(self._transport.patient(PUTTING_S)) as transport:
                answer = transport.fetch("POST", path, data, kind, again=True)
        finally:
            over.set()
        watching.join()
        return decode(answer, DataWanted)

    def _watch(self, digest: str, over: threading.Event) -> None:
        """Report how far the service is with what it sends to an object store."""
        while not over.wait(LOOK_S):
            try:
                path = data_path(self._name)
                view = decode(self._transport.fetch("GET", path, again=True), DataView)
            except ApiError:
                return  # Whoever waits for the version is told what is wrong.
            for put in view.putting:
                if put.digest == digest and not over.is_set():
                    self._tell(Step("sending to the object store", put.sent, put.bytes))

    def _send(self, files: Sequence[Sent], found: dict[str, Known]) -> None:
        """Bring files to the service. Of those that came, `found` has all that stayed the same
        meanwhile, also where the connection is lost."""
        told = _Told(self._tell, files)
        address = self._transport.address
        if files and address is not None and address.socket:
            files = self._hand_over(files, found, told)
        for batch in batches(files) if files else ():
            told.now()
            found.update(self._sent_bytes(batch))
            told.done(batch)
        self._sent += told.bytes

    def _sent_bytes(self, batch: Sequence[Sent]) -> dict[str, Known]:
        body = Body(self._folder, batch, self.refuse)
        kind = {"Content-Type": "application/octet-stream", "Content-Length": str(body.size)}
        path = data_path(self._name, ":send")
        answer = self._transport.fetch("POST", path, body, kind, again=True)
        digests = decode(answer, DataTaken).digests
        return {
            file.path: known_of(state, file.size, digest)
            for file, digest in zip(batch, digests, strict=True)
            if (state := body.seen.get(file.path)) is not None
        }

    def _hand_over(
        self, files: Sequence[Sent], found: dict[str, Known], told: "_Told"
    ) -> list[Sent]:
        """Have the service read files that we hold open; return those that it cannot.

        On one machine that saves most of what it costs to bring them there.
        """
        left = deque(batches(files, MOST_HANDED))
        refused: list[Exception] = []

        def work() -> None:
            with contextlib.closing(self._transport.patient(HANDED_S)) as transport:
                while left and not refused:
                    with contextlib.suppress(IndexError):
                        batch = left.popleft()
                        try:
                            found.update(self._handed(transport, batch))
                            told.done(batch)
                        except Exception as error:  # told below
                            left.append(batch)
                            refused.append(error)

        lanes = min(LANES, len(left))
        others = [threading.Thread(target=work, daemon=True) for _ in range(lanes - 1)]
        for thread in others:
            thread.start()
        try:
            told.now()
            work()
            for thread in others:
                thread.join()
        except BaseException:
            left.clear()  # Interrupted: the others begin nothing more, and are not waited for.
            raise
        for error in refused:
            if not isinstance(error, Refused) or error.code != "not_supported":
                raise error
        return [file for batch in left for file in batch]

    def _handed(self, transport: Transport, batch: Sequence[Sent]) -> dict[str, Known]:
        """Have the service read some files; return those that stayed as they were."""
        with contextlib.ExitStack() as opened:
            held: list[tuple[Sent, int, os.stat_result]] = []
            for file in batch:
                fd, before = self._open(file.path)
                opened.callback(os.close, fd)
                if before.st_size == file.size:  # else it is looked at again
                    held.append((file, fd, before))
            if not held:
                return {}
            body = DataHanded(tuple(HandedFile(fd, file.size) for file, fd, _ in held))
            path, kind = data_path(self._name, ":take"), {"Content-Type": JSON}
            data = msgspec.json.encode(body)
            answer = transport.fetch("POST", path, data, kind, again=True)
            digests = decode(answer, DataTaken).digests
            found: dict[str, Known] = {}
            for (file, fd, before), digest in zip(held, digests, strict=True):
                after = os.fstat(fd)
                if known_of(before, 0, "") == known_of(after, 0, "") and (
                    after.st_size == file.size
                ):
                    found[file.path] = known_of(after, file.size, digest)
            return found

    def _open(self, name: str) -> tuple[int, os.stat_result]:
        try:
            fd = os.open(f"{self._folder}/{name}", READ)
        except OSError as error:
            raise self.refuse(why(name, error)) from error
        state = os.fstat(fd)
        if not stat.S_ISREG(state.st_mode):
            os.close(fd)
            raise self.refuse(f"{name} is not a regular file any more")
        return fd, state

    def _entry(self, name: str, state: os.stat_result, known: dict[str, Known]) -> FileEntry:
        if stat.S_ISLNK(state.st_mode):
            return self._link(name)
        kind: Kind = "x" if state.st_mode & stat.S_IXUSR else "f"
        return FileEntry(utf8(name, self.refuse), kind, known[name].size, known[name].digest)

    def _link(self, name: str) -> FileEntry:
        target = str((self._folder / name).readlink())
        try:
            check_link(utf8(name, self.refuse), utf8(target, self.refuse))
        except BadManifest as error:
            raise self.refuse(f"{error}") from error
        return FileEntry(name, "l", 0, target)


class _Told:
    """Counts how far it is. Several threads may do something of it."""

    def __init__(self, tell: Tell, files: Sequence[Sent]) -> None:
        self._tell = tell
        self._total = sum(file.size for file in files)
        self._what = "1 file" if len(files) == 1 else f"{len(files):,} files"
        self._turn = threading.Lock()
        self.bytes = 0
        """So much is there."""

    def now(self) -> None:
        self._tell(Step("sending data", self.bytes, self._total, self._what))

    def done(self, batch: Sequence[Sent]) -> None:
        with self._turn:
            self.bytes += sum(file.size for file in batch)
            if self.bytes < self._total:
                self.now()


def _walked(source: Path, refuse: "partial[Refused]") -> dict[str, os.stat_result]:
    """Look at all files below a folder. Raises Refused."""
    try:
        if not stat.S_ISDIR(source.stat().st_mode):
            return {source.name: _state(source.name, source.lstat(), refuse)}
    except OSError as error:
        raise Refused(
            "bad_request",
            f"{source}: {(error.strerror or str(error)).lower()}.",
            "Name a folder.",
        ) from error
    found: dict[str, os.stat_result] = {}
    ahead = [""]
    while ahead:
        below = ahead.pop()
        try:
            with os.scandir(source / below) as entries:
                for entry in entries:
                    name = f"{below}{entry.name}"
                    if entry.is_dir(follow_symlinks=False):
                        ahead.append(f"{name}/")
                        continue
                    with contextlib.suppress(FileNotFoundError):
                        found[name] = _state(name, entry.stat(follow_symlinks=False), refuse)
        except OSError as error:
            raise refuse(why(below or ".", error)) from error
    if not found:
        raise refuse("it has no files")
    return found


def _state(name: str, state: os.stat_result, refuse: "partial[Refused]") -> os.stat_result:
    kind = stat.S_IFMT(state.st_mode)
    if kind not in (stat.S_IFREG, stat.S_IFLNK):
        raise refuse(f"{name} is {KINDS.get(kind, 'not a regular file')}")
    return state


def _check_size(source: Path, states: dict[str, os.stat_result], room: DataRoom) -> None:
    from allotment.model.quantity import show_bytes  # noqa: PLC0415 - rarely needed

    sizes = [(name, state.st_size) for name, state in states.items()]
    total = sum(size for _, size in sizes)
    if len(sizes) > room.most_files or total > room.most:
        raise Refused(
            "too_large",
            f"{source} has {len(sizes):,} files with {show_bytes(total)} in all; a version may "
            f"have {room.most_files:,} files, and a tenant's data {show_bytes(room.most)}. "
            f"{largest(sizes)}",
            "Put many small files into few archives (tar, WebDataset); or have an "
            "administrator raise `limits.data_files` or `limits.data_store`.",
        )


def _refused(folder: Path, because: str) -> Refused:
    return Refused(
        "bad_request",
        f"{folder} cannot be put into a dataset: {because}.",
        "Take it out of the folder, or put a folder that has only what belongs to the data.",
    )
