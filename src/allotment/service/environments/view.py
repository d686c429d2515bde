"""Environments as people see them."""

import msgspec

from allotment.model.quantity import Moment


class EnvironmentRow(msgspec.Struct, frozen=True):
    """One environment that is built."""

    key: str
    python: str
    requirements: tuple[str, ...]
    packages: tuple[str, ...]
    """What they were resolved to: name==version."""
    bytes: int
    """0 while it is not built yet."""
    files: int
    used_at: Moment
    """When a job asked for it last."""
    platform: str = ""
    """Of the images that it is for, in uv's words; '' where it is for none."""
    build: str = ""
    """The archive of its Python, where that was fetched; '' for one of the machine's."""


class EnvironmentNote(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The key of an environment, or the beginning of one."""

    key: str


class EnvironmentWish(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What to build ahead."""

    requirements: tuple[str, ...]
    python: str = ""
    image: str = ""
