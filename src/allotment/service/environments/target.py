"""For which Python an environment is made: the machine's, or one that an image has. Pure.

Of an image's Python nothing is run: wheels are chosen by its version and its C library.
"""

import re
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from allotment.model.errors import Code, Rejected
from allotment.service.ports import ImagePython

ANY: Final = ">=3.9"
"""A Python of the machine, where none is asked for, or for uv to be run with."""
MUSL: Final = "musl"
_TOLD: Final = (40, 39, 38, 37, 36, 35, 34, 33, 32, 31, 28, 17)
"""Versions 2.N of glibc for which uv has a word."""
_KINDS: Final = ("x86_64", "aarch64")
_CLAUSE: Final = re.compile(r"(<=|>=|<|>|~=|!=|==)([0-9.]+?)(?:\.\*)?")

_LEAST: Final = "28"
"""Of glibc 2: what images need that get a Python along. Most have newer ones, and hardly any
wheels need one."""

Version = tuple[int, ...]


class Target(msgspec.Struct, frozen=True):
    """A Python to make an environment for."""

    python: str
    """Its version: the machine's in full, an image's without the last part."""
    program: str = ""
    """Where it is in the image; '' for one of the machine's."""
    platform: str = ""
    """Which C library there is, in uv's words, where uv cannot ask the Python itself."""

    @property
    def words(self) -> tuple[str, ...]:
        """Return what uv is told of a Python that it cannot run."""
        if not self.platform:
            return ()
        return ("--python-version", self.python, "--python-platform", self.platform)


def in_image(pythons: Sequence[ImagePython], asked: str, machine: str) -> Target:
    """Choose the Python of an image that fits what is asked for. Raises Rejected."""
    for each in pythons:
        if fits(asked, each.version):
            return Target(each.version, each.program, _platform(each.libc, machine))
    if not pythons:
        raise Rejected(
            Code.BAD_SPEC,
            "environment: the image has no Python, and none is put into it.",
            "Take an image with a Python (3.8 or newer) on its PATH, such as python:3.12-slim.",
        )
    found = ", ".join(f"{each.version} at {each.program}" for each in pythons)
    raise Rejected(
        Code.BAD_SPEC,
        f"environment: the image has no Python {asked}; it has {found}.",
        "Change `python`, or the image. Of an image's Python only the first two parts of its "
        "version are known.",
    )


def carried(machine: str) -> Target:
    """Return a Python to be fetched for images into which nobody looks, as yet of no version.

    Raises Rejected.
    """
    return Target("", platform=_platform(f"2.{_LEAST}", machine))


def fetched(version: str, libc: str, machine: str) -> Target:
    """Return a Python to be fetched, for the machine's C library. Raises Rejected."""
    return Target(version, platform=_platform(libc or MUSL, machine))


def _platform(libc: str, machine: str) -> str:
    """Return a C library in uv's words. Raises Rejected."""
    minor = 0 if libc == MUSL else int(libc.partition(".")[2])
    told = next((each for each in _TOLD if each <= minor), 0)
    if machine not in _KINDS or not (told or libc == MUSL):
        raise Rejected(
            Code.BAD_SPEC,
            f"environment: no wheels are made for the C library, {libc} on {machine}.",
            "Take an image with glibc 2.17 or newer, or musl.",
        )
    return f"{machine}-unknown-linux-musl" if libc == MUSL else f"{machine}-manylinux_2_{told}"


def fits(asked: str, version: str) -> bool:
    """Whether a version without its last part is surely one that was asked for."""
    if not asked or asked == version:
        return True
    here = _numbers(version)
    clauses = [_CLAUSE.fullmatch(clause) for clause in asked.split(",")]
    return all(each is not None and _FITS[each[1]](here, _numbers(each[2])) for each in clauses)


def _numbers(text: str) -> Version:
    return tuple(int(part) for part in text.split(".") if part)


def _is_from(here: Version, bound: Version) -> bool:
    return here >= bound[:2]


def _is_below(here: Version, bound: Version) -> bool:
    return here < (*bound[:2], 0)[:2]


def _is_like(here: Version, bound: Version) -> bool:
    return here[: len(bound[:2])] == bound[:2]


_FITS: Final[dict[str, Callable[[Version, Version], bool]]] = {
    ">=": _is_from,
    ">": _is_from,
    "<": _is_below,
    "<=": _is_below,
    "==": lambda here, bound: len(bound) < 3 and _is_like(here, bound),
    "!=": lambda here, bound: len(bound) > 2 or not _is_like(here, bound),
    "~=": lambda here, bound: _is_from(here, bound) and _is_like(here, bound[:-1]),
}
"""`>=3.11.4` takes a 3.11, whose last part is hardly ever that old; `<3.11.4` takes none."""
