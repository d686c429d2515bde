"""The code that a job takes along: which files, and from where."""

import msgspec


class CodeBundle(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """The files of a working folder as they were when a job was submitted.

    `bundle` is the digest of the list of all files with their digests; '' before they were
    sent. The rest says where they are from, as its user's client said it.
    """

    bundle: str = ""
    folder: str = ""
    """The folder that was taken."""
    files: int = 0
    bytes: int = 0
    commit: str = ""
    """The commit that was checked out; '' outside of git."""
    branch: str = ""
    changed: int = 0
    """How many files were not as in that commit."""
    difference: str = ""
    """The digest of what `git diff` said then, which is kept with the files; '' for nothing."""
