"""How jobs and people name datasets."""

import re
from typing import Final

import msgspec

NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_TENANT: Final = r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}"
_REFERENCE: Final = re.compile(rf"(?:({_TENANT})/)?({NAME.pattern})(?:@([1-9]\d{{0,8}}))?")


class DataReference(msgspec.Struct, frozen=True, gc=False):
    """How a dataset is named: `imagenet`, `vision/imagenet`, `imagenet@3`."""

    name: str
    tenant: str = ""
    version: int = 0
    """0 for the newest."""

    def __str__(self) -> str:
        tenant = f"{self.tenant}/" if self.tenant else ""
        return f"{tenant}{self.name}" + (f"@{self.version}" if self.version else "")


class DataUse(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A dataset that a job uses, mounted at a path; the version as it was resolved."""

    tenant: str
    name: str
    version: int
    """0 for a folder, and before it was resolved for the newest."""
    at: str
    write: bool = False
    digest: str = ""
    """That of the version's list of files: another of this name is not the same."""
    fetched: bool = False
    """Whether its files may have to come, from an object store or to a node, before a task can
    start."""

    def __str__(self) -> str:
        return str(DataReference(self.name, self.tenant, self.version))


def reference_of(text: str) -> DataReference | None:
    """Read how a dataset is named; None where it cannot be a name."""
    found = _REFERENCE.fullmatch(text)
    if found is None:
        return None
    return DataReference(found[2], found[1] or "", int(found[3] or 0))
