"""Large files to object stores: in parts, several at a time; as a whole or not at all.

A store takes so much in one request (docs/adr/0062). Each part says beforehand what SHA-256
comes. What a store was asked to begin is noted on the disk until it is over, so that a service
that was killed has it ended at the store by the next: parts of an upload are in no list, and
cost money.
"""

import hashlib
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import Final
from xml.sax.saxutils import escape

import msgspec

from allotment.service.data.objects.bucket import Body, Bucket, Stopped, Told
from allotment.service.data.objects.lanes import LANES, in_lanes, taken
from allotment.service.data.objects.listing import BadPage, mark_of, told_of
from allotment.service.data.objects.trouble import Kind, StoreTrouble
from allotment.service.data.objects.unfinished import Unfinished

PART: Final = 64 << 20
MOST_PARTS: Final = 10_000
MOST_SENT: Final = 5 << 40
"""Bytes of one object that stores take at all."""
_LONGEST_ID: Final = 1024
Reads = Callable[[int, int], Iterator[bytes]]
"""Returns the bytes of a file from one place on, so many of them."""
Counts = Callable[[int, int], None]
"""Told from where on how much was sent; it may begin anew."""


class Part(msgspec.Struct, frozen=True):
    """A part of a file, with its SHA-256, or '' where it is to be read for that."""

    number: int
    offset: int
    size: int
    digest: str = ""


class Measured(msgspec.Struct, frozen=True):
    """What is to be sent: the SHA-256 of all of it, and its parts."""

    size: int
    digest: str
    parts: tuple[Part, ...]


def known(size: int, digest: str, part: int = PART) -> Measured:
    """Return what is to be sent of a file whose SHA-256 is known; its parts are read later."""
    part = max(part, -(-size // MOST_PARTS))
    parts = [
        Part(number, offset, min(part, size - offset))
        for number, offset in enumerate(range(0, size, part), 1)
    ]
    return Measured(size, digest, tuple(parts))


def measured(size: int, read: Reads, part: int = PART) -> Measured:
    """Read a file once, for what is to be known before it is sent. Raises as `read`."""
    whole, parts = hashlib.sha256(), list[Part]()
    for each in known(size, "", part).parts:
        of_it = hashlib.sha256()
        for piece in read(each.offset, each.size):
            whole.update(piece)
            of_it.update(piece)
        parts.append(msgspec.structs.replace(each, digest=of_it.hexdigest()))
    return Measured(size, whole.hexdigest(), tuple(parts))


def send(
    bucket: Bucket,
    key: str,
    file: Measured,
    reads: Reads,
    begun: Callable[[str], Unfinished],
    counts: Counts = lambda _offset, _size: None,
) -> None:
    """Put a file, in one request or in parts. `begun` notes an upload before it begins.

    Raises StoreTrouble, Stopped, and what `reads` raises: no OSError.
    """
    if len(file.parts) < 2:
        whole = Part(1, 0, file.size, file.digest)
        bucket.put(key, file.size, file.digest, lambda: _as_measured(reads, whole, counts))
        return
    unfinished = begun(key)
    upload = ""
    try:
        upload = _begun(bucket, key)
        unfinished.named(upload)
        marks = _Sending(bucket, key, upload, file.parts, reads, counts).all()
        _complete(bucket, key, upload, marks)
    except BaseException:
        # A stopped one asks nothing more, so the end of it has no one to wait for.
        ending = bucket.another(lambda: True)
        try:
            if upload:
                abort(ending, key, upload)
            unfinished.over()
        except (StoreTrouble, Stopped):
            unfinished.later()
        finally:
            ending.close()
        raise
    unfinished.over()


class _Sending:
    """The parts of an upload, over several connections."""

    def __init__(
        self,
        bucket: Bucket,
        key: str,
        upload: str,
        parts: Sequence[Part],
        reads: Reads,
        counts: Counts,
    ) -> None:
        self._bucket, self._key, self._upload = bucket, key, upload
        self._reads, self._counts = reads, counts
        self._left = deque(parts)
        self._marks: dict[int, str] = {}

    def all(self) -> list[tuple[int, str]]:
        """Send all parts; return their numbers, each with what the store calls it."""
        in_lanes(min(LANES, len(self._left)), self._work, lambda: self._bucket.is_wanted)
        return sorted(self._marks.items())

    def _work(self, goes_on: Callable[[], bool]) -> None:
        with closing(self._bucket.another(goes_on)) as bucket:
            for part in taken(self._left):
                self._marks[part.number] = self._sent(bucket, part)

    def _sent(self, bucket: Bucket, part: Part) -> str:
        query = {"partNumber": str(part.number), "uploadId": self._upload}
        if not part.digest:
            found = hashlib.sha256()
            for piece in self._reads(part.offset, part.size):
                found.update(piece)
            part = msgspec.structs.replace(part, digest=found.hexdigest())
        body = Body(part.digest, lambda: _as_measured(self._reads, part, self._counts))
        told = bucket.ask("PUT", self._key, query, part.size, body)
        try:
            return mark_of(told.etag)
        except BadPage as error:
            raise bucket.odd(str(error)) from error


class ChangedMeanwhile(Exception):
    """A file is not any more what it was when it was measured."""


def _as_measured(reads: Reads, part: Part, counts: Counts) -> Iterator[bytes]:
    """Yield what is read, the last piece only if all of it is what was announced.

    So a store never has the whole of something else, whether it looks or not.
    """
    found, last, size = hashlib.sha256(), b"", 0
    for piece in reads(part.offset, part.size):
        counts(part.offset, size)
        if last:
            yield last
            size += len(last)
        found.update(piece)
        last = piece
    if found.hexdigest() != part.digest:
        raise ChangedMeanwhile
    if last:
        yield last
    counts(part.offset, part.size)


def _begun(bucket: Bucket, key: str) -> str:
    told = bucket.ask("POST", key, {"uploads": ""})
    words = _words(bucket, told, "InitiateMultipartUploadResult")
    upload = next((each[1] for each in words if each[0] == "UploadId" and len(each) == 2), "")
    if not (upload and len(upload) <= _LONGEST_ID and upload.isprintable()):
        raise bucket.odd("it does not say the id of an upload")
    return upload


def _complete(bucket: Bucket, key: str, upload: str, marks: list[tuple[int, str]]) -> None:
    """Have an object made of parts. Stores may say 200 and then that it failed."""
    parts = "".join(
        f"<Part><PartNumber>{number}</PartNumber><ETag>&quot;{escape(mark)}&quot;</ETag></Part>"
        for number, mark in marks
    )
    data = f"<CompleteMultipartUpload>{parts}</CompleteMultipartUpload>".encode()
    body = Body(hashlib.sha256(data).hexdigest(), lambda: iter([data]))
    what = f"s3://{bucket.place.bucket}/{key}"
    try:
        told = bucket.ask("POST", key, {"uploadId": upload}, len(data), body)
        told_of(told.data, "CompleteMultipartUploadResult")
    except BadPage:
        raise StoreTrouble(
            Kind.AWAY, f"{bucket.host} did not make {what} of its parts."
        ) from None
    except StoreTrouble as trouble:
        if trouble.kind is not Kind.GONE:
            raise
        # The answer to a try before this one was lost: sent again, nothing is in doubt.
        raise StoreTrouble(
            Kind.AWAY, f"{bucket.host} does not know the parts of {what} any more."
        ) from None


def abort(bucket: Bucket, key: str, upload: str) -> None:
    """End an upload: its parts go. Raises StoreTrouble and Stopped."""
    try:
        bucket.ask("DELETE", key, {"uploadId": upload})
    except StoreTrouble as trouble:
        if trouble.kind is not Kind.GONE:
            raise


def uploads_of(bucket: Bucket, key: str) -> list[str]:
    """List the uploads to one key that are not over. Raises StoreTrouble and Stopped."""
    told = bucket.ask("GET", "", {"uploads": "", "prefix": key})
    found, name = list[str](), ""
    for each in _words(bucket, told, "ListMultipartUploadsResult"):
        if each[:-1] == ("Upload", "Key"):
            name = each[-1]
        elif each[:-1] == ("Upload", "UploadId") and name == key:
            found.append(each[-1])
    return found


def _words(bucket: Bucket, told: Told, root: str) -> list[tuple[str, ...]]:
    try:
        return told_of(told.data, root)
    except BadPage as error:
        raise bucket.odd(str(error)) from error
