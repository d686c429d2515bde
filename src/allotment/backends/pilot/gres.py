"""Reads `gres.conf`: which files the devices of a node are. Pure."""

import re
from collections.abc import Iterator

_RANGES = re.compile(r"^(.*?)\[([0-9,\-]+)\](.*)$")
_MOST = 4096
"""Of names in one expression: what says more is a mistake."""


def files_of(text: str, node: str) -> dict[int, str]:
    """Return the file of each GPU of a node, by its place; none where Slurm names no files.

    Slurm counts devices in the order in which `File=` names them.
    """
    found: list[str] = []
    for line in text.splitlines():
        pairs = (word.partition("=") for word in line.split("#")[0].split())
        words = {name.lower(): value for name, _, value in pairs}
        nodes = words.get("nodename")
        if words.get("name") != "gpu" or (nodes and node not in expanded(nodes)):
            continue
        if "file" not in words:
            return {}
        found += expanded(words["file"])
    return dict(enumerate(found))


def expanded(expression: str) -> list[str]:
    """Return what `n[1-3,07],m` names, in order."""
    return [name for part in _parts(expression) for name in _expanded(part)][:_MOST]


def _parts(expression: str) -> list[str]:
    return [part for part in re.split(r",(?![^\[]*\])", expression) if part]


def _expanded(part: str) -> Iterator[str]:
    match = _RANGES.match(part)
    if match is None:
        yield part
        return
    for piece in match[2].split(","):
        first, _, last = piece.partition("-")
        if not first.isdecimal() or (last and not last.isdecimal()):
            continue
        end = min(int(last or first), int(first) + _MOST)
        for number in range(int(first), end + 1):
            for rest in _expanded(match[3]):
                yield f"{match[1]}{number:0{len(first)}d}{rest}"
