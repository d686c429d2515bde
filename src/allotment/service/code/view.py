"""Code as people and clients see it."""

import msgspec

from allotment.model.code import CodeBundle
from allotment.service.content.manifest import FileEntry


class CodeRoom(msgspec.Struct, frozen=True):
    """How much code a user may take along, and what is here already. In bytes and files."""

    most_files: int
    most_bytes: int
    store: int
    """For all the code of a user."""
    used: int


class CodeNote(msgspec.Struct, frozen=True):
    """A bundle that is here."""

    bundle: str
    files: int
    bytes: int


class CodeWanted(msgspec.Struct, frozen=True):
    """What is missing until a bundle is here: digests of files. Nothing: it is here."""

    bundle: str
    missing: tuple[str, ...] = ()


class CodeTaken(msgspec.Struct, frozen=True):
    """How many files arrived complete."""

    files: int


class CodeView(msgspec.Struct, frozen=True):
    """The code of a job."""

    code: CodeBundle
    difference: str
    """What `git diff` said when it was taken."""
    files: tuple[FileEntry, ...]
    """Path, kind, size, digest."""
