"""What a requirement may be: names, versions, markers, hashes. Nothing that runs.

The builder is nobody's own user, and what it builds is shared: it takes no paths, no addresses,
no options, and no source that would have to be run to be built.
"""

import re
from collections.abc import Iterable
from typing import Final

MOST: Final = 1000
_LONGEST: Final = 2000
_NAME: Final = r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?"
_VERSION: Final = r"[=<>!~]=?=? ?[A-Za-z0-9.*+!_-]+"
# No part takes what the next one may begin with: the time to look is in proportion.
_REQUIREMENT: Final = re.compile(
    rf"{_NAME}(?: ?\[ ?{_NAME}(?: ?, ?{_NAME})* ?\])?"
    rf"(?: ?{_VERSION}(?: ?, ?{_VERSION})*)?"
    r"(?: ?;[A-Za-z0-9 \"'._()<>=!~+*,-]+)?"
    r"(?: --hash=sha256:[0-9a-f]{64})*"
)
_PYTHON: Final = re.compile(r"3\.[0-9]{1,2}(\.[0-9]{1,2})?")


def lines_of(text: str) -> tuple[str, ...]:
    """Return the requirements in a file: without comments, lines that go on joined."""
    joined = re.sub(r"\\\r?\n", " ", text)
    bare = (re.sub(r"(^|\s)#.*", "", line).strip() for line in joined.splitlines())
    return plain(line for line in bare if line)


def plain(requirements: Iterable[str]) -> tuple[str, ...]:
    """Return requirements each as one line: a line within one could be an option of uv's."""
    return tuple(" ".join(line.split()) for line in requirements)


def trouble_of(requirements: Iterable[str]) -> str:
    """Return why requirements, as `plain` writes them, cannot be taken; '' where they can."""
    listed = list(requirements)
    if len(listed) > MOST:
        return f"{len(listed):,} requirements are more than {MOST:,}"
    for line in listed:
        if line.startswith("-"):
            return f"{line[:80]!r} is an option; the index is the machine's own"
        if len(line) > _LONGEST or not _REQUIREMENT.fullmatch(line):
            return (
                f"{line[:80]!r} is no requirement by name and version (paths and addresses "
                "are not taken)"
            )
    return ""


def is_python(text: str) -> bool:
    """Whether a text is a version of Python."""
    return bool(_PYTHON.fullmatch(text))
