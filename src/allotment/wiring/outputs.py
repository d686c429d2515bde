"""Files that a command writes at its end: tried before its work, and written all or none.

A regular file appears under its name only once every output is whole: nobody ever reads half
of one, and what stood there before stays until then. A device, a pipe or a terminal cannot be
replaced by a file: it is written to, last.
"""

import fcntl
import os
import re
import shutil
import signal
import stat
import sys
import tempfile
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TextIO

import msgspec

from allotment.model.errors import AllotmentError
from allotment.sim.bad import BadScenario
from allotment.sim.readers.pai import tables_in
from allotment.sim.trace import BadTrace

Write = Callable[[TextIO], object]
"""Writes one output, whole."""

STREAM = re.compile(r"/dev/(stdout|stderr)|/(?:dev|proc/self)/fd/(\d{1,6})")
NUMBERS = {"stdout": 1, "stderr": 2}

BOOKS, LOCK = "allot.db", "lock"
"""What a service keeps in its state folder."""
OF_JOBS = ("outputs", "checkpoints", "scratch")
"""Folders there in which jobs write what they like."""


class BadOutput(BadScenario):
    """A place that cannot be written to, found before the work: which, why, what instead."""


class Unwritten(AllotmentError):
    """What came out could not be written: where, and why."""


class Place(msgspec.Struct, frozen=True):
    """Where one output goes."""

    option: str
    text: str
    """As it was written."""
    target: Path
    """The same without links."""
    stream: int = -1
    """The number of an open stream that is meant; -1 for none."""

    @property
    def is_direct(self) -> bool:
        """Whether the output is written to, instead of being replaced by a new file."""
        return self.stream >= 0 or (self.target.exists() and not self.target.is_file())

    def says(self, why: str) -> str:
        """Return a message of what is wrong with the place."""
        return f"{self.option} {self.text}: {why}"


class Outputs:
    """Where the outputs of a command go, each by its option; an empty place is none."""

    def __init__(self, places: Mapping[str, str], reads: Sequence[str] = ()) -> None:
        """Try each place; it must be none of the files the command `reads`.

        Of a folder that it reads, the trace's tables are meant. Raises BadOutput.
        """
        files = [file for read in reads if read for file in _files_of(Path(read))]
        self._places = {
            option: _tried(option, text, files) for option, text in places.items() if text
        }
        seen: dict[Path, Place] = {}
        for place in self._places.values():
            other = seen.setdefault(place.target, place)
            if other is not place and not place.is_direct:
                raise BadOutput(place.says(f"{other.option} names the same. Name another."))

    def write(self, writers: Mapping[str, Write]) -> None:
        """Write those outputs that have a place: all, or none. Raises Unwritten.

        Two things can still part them: a change of the folders in that very moment, and a
        device that takes its output before another one fails.
        """
        with _taken_back_at_the_end(), ExitStack() as stack:
            written = [
                (place, stack.enter_context(_whole(place, writers[option])))
                for option, place in self._places.items()
                if option in writers
            ]
            for place, part in written:
                if place.is_direct:
                    _pour(place, part)
            for place, part in written:
                if not place.is_direct:
                    _keep(place, part)


# ── before ──────────────────────────────────────────────────────────────────────────────


def _files_of(read: Path) -> Sequence[Path]:
    if not read.is_dir():
        return (read,)
    try:
        return tables_in(read)
    except BadTrace:
        return ()  # Whoever reads it says what is wrong.


def _tried(option: str, text: str, reads: Sequence[Path]) -> Place:
    """Find out whether something can be written there. Raises BadOutput."""
    stream = STREAM.fullmatch(text)
    if stream:
        number = NUMBERS[stream[1]] if stream[1] else int(stream[2])
        place = Place(option, text, Path(text), number)
    else:
        place = Place(option, text, Path(os.path.realpath(text)))
    try:
        why = _wrong_with(place)
    except OSError as error:
        why = f"{_why(error)}. Name a place that can be written to"
    if not why and any(_is_same(place.target, read) for read in reads):
        why = "it is read in the same run. Name another file"
    if not why and place.stream < 0:
        why = _wrong_with_folder(place.target)
    if why:
        raise BadOutput(place.says(f"{why}."))
    return place


def _wrong_with(place: Place) -> str:
    if place.stream >= 0:
        return _wrong_with_stream(place.stream)
    return _wrong_with_special(place) if place.is_direct else _wrong_with_file(place)


def _wrong_with_stream(number: int) -> str:
    try:
        is_read_only = fcntl.fcntl(number, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY
    except OSError:
        return "it is not open"
    return "it is open for reading only" if is_read_only else ""


def _wrong_with_special(place: Place) -> str:
    target = place.target
    if target.is_dir():
        return f"it is a folder. Name a file in it, such as {_within(place)}"
    if target.is_block_device() or target.is_socket():
        return "it is neither a file nor a pipe. Name one"
    return "" if os.access(target, os.W_OK) else "you may not write to it"


def _within(place: Place) -> Path:
    names = {"--report": "report.html", "--keep-model": "model.json"}
    return Path(place.text) / names.get(place.option, "jobs.csv")


def _wrong_with_file(place: Place) -> str:
    folder = place.target.parent
    if place.text.endswith("/") or not folder.is_dir():
        what = place.text if place.text.endswith("/") else folder
        return f"there is no folder {what}. Make it, or name another place"
    if place.target.exists() and not os.access(place.target, os.W_OK):
        return "you may not write to it"
    part = _part_of(place)
    part.touch(exist_ok=False)
    part.unlink()
    return ""


def _wrong_with_folder(target: Path) -> str:
    """Return what is wrong with a folder in which a service keeps its books; '' for nothing."""
    for folder in target.parents:
        inside = target.relative_to(folder).parts[0]
        is_book = target.parent == folder and inside.startswith(BOOKS)
        if os.access(folder / BOOKS, os.F_OK) and (
            is_book or os.access(folder / LOCK, os.F_OK)
        ):
            if inside in OF_JOBS:
                return ""
            return f"{folder} is the state folder of a service. Name a place outside of it"
    return ""


def _is_same(one: Path, other: Path) -> bool:
    try:
        return stat.S_ISREG(one.stat().st_mode) and one.samefile(other)
    except OSError:
        return False


# ── after ───────────────────────────────────────────────────────────────────────────────


class _Ended(BaseException):
    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


@contextmanager
def _taken_back_at_the_end() -> Generator[None]:
    """If a signal ends the process meanwhile, let it take back what is half written first."""

    def end(number: int, _: object) -> None:
        raise _Ended(number)

    caught = [
        number
        for number in (signal.SIGTERM, signal.SIGHUP)
        if signal.getsignal(number) is signal.SIG_DFL
    ]
    for number in caught:
        signal.signal(number, end)
    ended = 0
    try:
        yield
    except _Ended as error:
        ended = error.number
    finally:
        for number in caught:
            signal.signal(number, signal.SIG_DFL)
    if ended:
        signal.raise_signal(ended)


@contextmanager
def _whole(place: Place, write: Write) -> Generator[Path]:
    """Write an output beside its place, or where temporary files are; gone at the end."""
    with _told(place):
        part = _part_of(place)
    try:
        with _told(place):
            with part.open("x", encoding="utf-8", newline="") as file:
                write(file)
            if not place.is_direct and place.target.exists():
                shutil.copymode(place.target, part)
        yield part
    finally:
        part.unlink(missing_ok=True)


def _pour(place: Place, part: Path) -> None:
    """Write what is whole to a device, pipe or stream."""
    with _told(place), part.open("rb") as whole:
        if place.stream >= 0:
            sys.stdout.flush()
            sys.stderr.flush()
            number = os.dup(place.stream)
        else:
            number = os.open(place.target, os.O_WRONLY)
        with os.fdopen(number, "wb") as out:
            shutil.copyfileobj(whole, out)


def _keep(place: Place, part: Path) -> None:
    with _told(place):
        part.replace(place.target)


@contextmanager
def _told(place: Place) -> Generator[None]:
    """Return of an OSError which output could not be written."""
    try:
        yield
    except OSError as error:
        raise Unwritten(place.says(f"{_why(error)}. It was not written.")) from error


def _part_of(place: Place) -> Path:
    """Name a file beside the place: only within one folder does renaming swap files whole."""
    folder = Path(tempfile.gettempdir()) if place.is_direct else place.target.parent
    return folder / f".allot-{os.getpid()}-{os.urandom(8).hex()}.part"


def _why(error: OSError) -> str:
    return (error.strerror or "it cannot be written").lower()
