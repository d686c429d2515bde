"""Datasets as people and clients see them."""

from typing import Annotated

import msgspec
from msgspec import Meta

from allotment.model.datasets import DataKind, Grant, JobCheckpoint, ObjectPlace
from allotment.service.content.manifest import FileEntry


class ObjectsNote(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where the objects of a dataset are."""

    url: str
    """`s3://BUCKET/PREFIX`: all that is under it, or the one object of that name."""
    endpoint: str = ""
    """The address of the store, `https://HOST`; Amazon's for the region where left out."""
    region: str = "us-east-1"
    profile: str = "default"
    """Which of your keys in ~/.aws/credentials; `""` for a bucket that everybody may read."""


class DataNote(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A dataset to make. `tenant` is the user's own where it is left out."""

    name: str
    tenant: str = ""
    folder: str = ""
    """A folder of the machine to register: for the administrator."""
    objects: ObjectsNote | None = None
    """Objects of an object store to register."""


class GrantNote(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Who is given a right, or from whom it is taken back: a tenant or a user."""

    tenant: str = ""
    user: str = ""
    write: bool = False


class DataVersionView(msgspec.Struct, frozen=True):
    """A version of a dataset: closed, so it never changes."""

    number: int
    digest: str
    files: int
    bytes: int
    closed_at: int
    user: str
    checkpoint: JobCheckpoint | None = None
    """Which it is, where a job's checkpoint became this version."""


class DataPut(msgspec.Struct, frozen=True):
    """A version on its way into an object store, with the digest of the list of its files."""

    digest: str
    user: str
    bytes: int
    sent: int


class DataView(msgspec.Struct, frozen=True):
    """A dataset. What of it only its owner and writers need to know is empty for others."""

    tenant: str
    name: str
    kind: DataKind
    user: str
    """Its owner."""
    created_at: int
    versions: tuple[DataVersionView, ...]
    write: bool
    """Whether you may add to it."""
    grants: tuple[Grant, ...] = ()
    """For its owner."""
    folder: str = ""
    """For the administrator."""
    objects: ObjectPlace | None = None
    """Where in an object store it is. For its owner."""
    disk: int = 0
    """Bytes of the disk: all versions together, of objects what was fetched. For its owner."""
    putting: tuple[DataPut, ...] = ()
    """What goes to its store now. For those who may add to it."""


class DataRoom(msgspec.Struct, frozen=True):
    """How large a version may be, and what its tenant's datasets take, in files and bytes."""

    most_files: int
    most: int
    used: int


class DataRows(msgspec.Struct, frozen=True):
    """The datasets that a user may use."""

    datasets: tuple[DataView, ...]


class DataWanted(msgspec.Struct, frozen=True):
    """What is missing until a version is whole: digests of files. None: it is closed."""

    missing: tuple[str, ...] = ()
    version: DataVersionView | None = None


class HandedFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A file that the client holds open: under which number, and how much of it to read."""

    fd: Annotated[int, Meta(ge=0, le=2**31 - 1)]
    size: Annotated[int, Meta(ge=0, le=2**63 - 1)]


class DataHanded(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Files that the client holds open for the service to read, on the same machine."""

    files: Annotated[tuple[HandedFile, ...], Meta(min_length=1, max_length=256)]


class DataTaken(msgspec.Struct, frozen=True):
    """The digests of the files that arrived complete, in their order."""

    digests: tuple[str, ...]


class DataFiles(msgspec.Struct, frozen=True):
    """The files of a version."""

    tenant: str
    name: str
    version: DataVersionView
    files: tuple[FileEntry, ...]
    """Path, kind, size, digest."""
    sha256: bool = True
    """Whether the digests are SHA-256 of the files; else names of objects in some state."""


class DataRemoval(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What to remove: a version, or with 0 all of a dataset."""

    version: int = 0
