"""What a requirement may be: names, versions, markers, hashes. Nothing that runs.

The builder is nobody's own user, and what it builds is shared: it takes no paths, no addresses,
no options, and no source that would have to be run to be built.
"""

import re
from collections.abc import Iterable
from typing import Final

MOST: Final = 1000
_LONGEST: Final = 2000
"""Letters of a requirement, without its hashes."""
HASH: Final = " --hash="
_NAME: Final = r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?"
_VERSION: Final = r"[=<>!~]=?=? ?[A-Za-z0-9.*+!_-]+"
# No part takes what the next one may begin with: the time to look is in proportion.
_REQUIREMENT: Final = re.compile(
    rf"{_NAME}(?: ?\[ ?{_NAME}(?: ?, ?{_NAME})* ?\])?"
    rf"(?: ?{_VERSION}(?: ?, ?{_VERSION})*)?"
    r"(?: ?;[A-Za-z0-9 \"'._()<>=!~+*,-]+)?"
    r"(?: --hash=sha256:[0-9a-f]{64})*"
)
_ALIKE: Final = str.maketrans("_.", "--")
_CLAUSE: Final = r"(?:[<>]=?|[~=!]=)[0-9](?:\.[0-9]{1,2}){0,2}(?:\.\*)?"
_PYTHON: Final = re.compile(rf"3\.[0-9]{{1,2}}(\.[0-9]{{1,2}})?|{_CLAUSE}(?:,{_CLAUSE}){{0,9}}")


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
            return (
                f"{line[:80]!r} is an option, and options are refused: the index is the "
                "machine's own, and other files are not read"
            )
        if len(without_hashes(line)) > _LONGEST or not _REQUIREMENT.fullmatch(line):
            return (
                f"{line[:80]!r} is not a requirement by name and version (paths and addresses "
                "are not taken)"
            )
    return ""


def is_lock(requirements: Iterable[str]) -> bool:
    """Whether requirements have hashes: then they are all there is, as pip has it."""
    return any(HASH in line for line in requirements)


def without_hashes(line: str) -> str:
    """Return a requirement as people read it."""
    return line.partition(HASH)[0]


def unlike(requirements: Iterable[str], offered: str) -> str:
    """Return the first requirement of which an index has other bytes; '' where it has none.

    `offered` has what the index has, for the requirements that count here. A lock for several
    platforms has a package several times, and one of them counts.
    """
    locked: dict[str, set[str]] = {}
    for line in requirements:
        locked.setdefault(_named(line), set()).update(line.split(HASH)[1:])
    for line in lines_of(offered):
        if locked.get(_named(line), set()).isdisjoint(line.split(HASH)[1:]):
            return without_hashes(line)
    return ""


def _named(line: str) -> str:
    """Return the name in a requirement, as it is compared."""
    return re.split(r"[^A-Za-z0-9._-]", line, maxsplit=1)[0].lower().translate(_ALIKE)


def is_python(text: str) -> bool:
    """Whether a text is a version of Python, or bounds of one: >=3.10,<3.13."""
    return bool(_PYTHON.fullmatch(text))
