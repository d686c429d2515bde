"""What a store says it has under a prefix, and what files become of it. Pure.

Nothing a store says is believed: a page is read piece by piece, and a name that no file of a
folder can have is refused, with all the rest, since a part would look like the whole.
"""

import hashlib
import re
from collections.abc import Container, Sequence
from typing import Any, Final
from urllib.parse import unquote_plus
from xml.parsers import expat

import msgspec

from allotment.model.datasets import ObjectPlace
from allotment.service.content.manifest import FileEntry, Kind, read, written

_DEEPEST: Final = 8
_LONGEST_TEXT: Final = 8192
COMPLETE: Final = ".allot-complete.json"
"""The last object of a job's outputs, or of a checkpoint, with the list of all others."""
_OURS: Final = re.compile(
    r"allot-job-[1-9]\d*-[0-9a-f]{8}|allot-checkpoint-[1-9]\d*-[0-9a-f]{8}-[0-9a-f]{16}"
    r"|allot-put-[0-9a-f]{8}-[0-9a-f]{16}"
)
_MARK: Final = re.compile(r"[\x21\x23-\x7e]{1,256}")


class BadPage(Exception):
    """What a store answered is no list of objects; the text says why."""


class Object(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """An object: its name below the prefix, how large it is, and what it is by its ETag.

    Of one that was put as a file it is known what kind of file, and the SHA-256 (`of`). A link
    is in the list alone.
    """

    path: str
    size: int
    etag: str
    kind: Kind = "f"
    of: str = ""


class ObjectList(msgspec.Struct, frozen=True):
    """All objects under a prefix; `alone` where the prefix is the name of the only one.

    Of those that were put, the names are below a `folder`.
    """

    objects: tuple[Object, ...]
    alone: bool = False
    folder: str = ""

    def key_of(self, path: str, place: ObjectPlace) -> str:
        """Return how the store calls an object."""
        if self.alone:
            return place.prefix
        return "/".join(part for part in (place.prefix, self.folder, path) if part)

    @property
    def kept(self) -> list[Object]:
        """List those that the store has."""
        return [each for each in self.objects if each.kind != "l"]


class Page(msgspec.Struct, frozen=True):
    """A part of what a store has. `next` asks for what follows; '' for the last."""

    objects: tuple[Object, ...]
    """By their whole names."""
    next: str


def page_of(data: bytes) -> Page:
    """Read one answer of a store. Raises BadPage."""
    reader = _Reader()
    try:
        reader.parser.Parse(data, True)
    except expat.ExpatError as error:
        raise BadPage("it is not XML") from error
    return reader.page()


def told_of(data: bytes, root: str) -> list[tuple[str, ...]]:
    """Return the words of an answer of another kind, each with the names that lead to it.

    Some stores leave `Result` out of its name.

    Raises BadPage.
    """
    reader = _Reader(root)
    try:
        reader.parser.Parse(data, True)
    except expat.ExpatError as error:
        raise BadPage("it is not XML") from error
    return reader.words


def mark_of(etag: str) -> str:
    """Return what a store calls a state of something. Raises BadPage."""
    plain = etag.strip().strip('"')
    if not _MARK.fullmatch(plain):
        raise BadPage("it does not say what it took (ETag)")
    return plain


def error_code(data: bytes) -> str:
    """Return the code of an error that a store answered; '' where there is none."""
    found = re.search(rb"<Code>([A-Za-z0-9.]{1,64})</Code>", data)
    return found[1].decode() if found else ""


class _Reader:
    """Takes in an answer, whatever its namespace."""

    def __init__(self, root: str = "ListBucketResult") -> None:
        self._root = root
        self.words: list[tuple[str, ...]] = []
        self.parser = expat.ParserCreate()
        self.parser.buffer_text = True
        self.parser.StartElementHandler = self._begin
        self.parser.EndElementHandler = self._end
        self.parser.CharacterDataHandler = self._take
        self.parser.StartDoctypeDeclHandler = self._refuse
        self._path: list[str] = []
        self._text = ""
        self._object: dict[str, str] = {}
        self._objects: list[dict[str, str]] = []
        self._told: dict[str, str] = {}

    @property
    def _is_list(self) -> bool:
        return self._root == "ListBucketResult"

    def _refuse(self, *_: Any) -> None:
        raise BadPage("it has a document type")

    def _begin(self, name: str, _: dict[str, str]) -> None:
        self._path.append(name.rpartition(":")[2])
        if len(self._path) > _DEEPEST:
            raise BadPage("it is deeper than a list of objects")
        self._text = ""

    def _take(self, text: str) -> None:
        self._text += text
        if len(self._text) > _LONGEST_TEXT:
            raise BadPage("it has a word longer than any name")

    def _end(self, _: str) -> None:
        path, text = tuple(self._path), self._text
        self._path.pop()
        self._text = ""
        if len(path) == 3 and path[1] == "Contents" and path[2] in {"Key", "Size", "ETag"}:
            self._object[path[2]] = text
        elif path[1:] == ("Contents",):
            self._objects.append(self._object)
            self._object = {}
        elif len(path) == 2:
            self._told[path[1]] = text.strip()
        elif len(path) == 1 and path[0] not in {self._root, self._root.removesuffix("Result")}:
            raise BadPage(
                "it is not a list of objects" if self._is_list else f"no {self._root}"
            )
        if not self._is_list and text.strip():
            self.words.append((*path[1:], text.strip()))

    def page(self) -> Page:
        """Return what was taken in. Raises BadPage."""
        coded = self._told.get("EncodingType") == "url"
        goes_on = self._told.get("IsTruncated") == "true"
        token = self._told.get("NextContinuationToken", "") if goes_on else ""
        if goes_on and not token:
            raise BadPage("it does not say what follows")
        return Page(tuple(_object(each, coded=coded) for each in self._objects), token)


def _object(told: dict[str, str], *, coded: bool) -> Object:
    key = told.get("Key", "")
    if coded:
        try:
            key = unquote_plus(key, errors="strict")
        except UnicodeDecodeError as error:
            raise BadPage("it has a name that is not UTF-8") from error
    size, etag = told.get("Size", "").strip(), told.get("ETag", "").strip().strip('"')
    if not key or not size.isdecimal() or len(size) > 18:
        raise BadPage("it has an object without name or size")
    if not _MARK.fullmatch(etag):
        raise BadPage(f"it does not say what {key[:80]!r} is (ETag)")
    return Object(key, int(size), etag)


def folder_of(job: int, dataset: str) -> str:
    """Return where below a prefix the outputs of a job are put. `dataset` is its id.

    Another service, or one that begins anew, has other datasets: it has jobs of these numbers,
    too, and overwrites nothing.
    """
    return f"allot-job-{job}-{dataset[:8]}"


def put_folders(dataset: str) -> str:
    """Return what the folders of versions begin with that were put. `dataset` is its id."""
    return f"allot-put-{dataset[:8]}-"


def _is_whole(path: str, marked: Container[str]) -> bool:
    """Whether an object belongs to nothing of which a part may still be missing."""
    top, slash, _ = path.partition("/")
    is_ours = bool(slash) and _OURS.fullmatch(top) is not None
    return not is_ours or f"{top}/{COMPLETE}" in marked


# ── as files ────────────────────────────────────────────────────────────────────────────


def listing_of(found: Sequence[Object], place: ObjectPlace) -> ObjectList:
    """Return what there is under a prefix; of folders, which stores do not have, nothing."""
    if len(found) == 1 and found[0].path == place.prefix:
        only = found[0]
        name = place.prefix.rpartition("/")[2]
        return ObjectList((Object(name, only.size, only.etag),), alone=True)
    skip = len(place.prefix) + 1 if place.prefix else 0
    objects = [
        Object(each.path[skip:], each.size, each.etag)
        for each in found
        if each.size or not each.path.endswith("/")
    ]
    marked = {each.path for each in objects if each.path.endswith(COMPLETE)}
    if _OURS.fullmatch(place.prefix.rpartition("/")[2]) and COMPLETE not in marked:
        return ObjectList(())
    objects = [each for each in objects if _is_whole(each.path, marked)]
    return ObjectList(tuple(sorted(objects, key=lambda each: each.path)))


def files_of(listing: ObjectList) -> bytes:
    """Return the list of files that a listing becomes. Raises BadManifest.

    A file is named by what is known of its object before it is fetched, so that an object which
    did not change is fetched once for all versions.
    """
    data = written(
        FileEntry(each.path, each.kind, each.size, named(each)) for each in listing.objects
    )
    read(data)
    return data


def named(each: Object) -> str:
    """Return the name by which an object, in this state, is kept."""
    if each.of:
        return each.of
    text = f"{len(each.path)} {each.path} {each.size} {each.etag}"
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()
