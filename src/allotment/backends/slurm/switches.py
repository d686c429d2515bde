"""What Slurm says of its switches → labels of nodes, and groups that make cells. Pure."""

import re
from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from allotment.backends.groups import Group
from allotment.model.cluster import Node

LINE = re.compile(r"SwitchName=(\S+) Level=(\d+)(?: LinkSpeed=\d+)?(?: Nodes=(\S+))?(.*)")
BELOW = re.compile(r"Switches=(\S+)")
PART = re.compile(r"([^,\[\]]*)(?:\[([^\]]*)\])?([^,\[\]]*)(?:,|$)")
MOST_NAMES = 100_000


def switches_of(text: str) -> tuple[Group, ...]:
    """Read what `scontrol show topology` prints; nothing where Slurm knows no switches."""
    found: list[Group] = []
    for line in text.splitlines():
        match = LINE.match(line.strip())
        if match is None:
            continue
        name, level, nodes, rest = match.groups()
        below = BELOW.search(rest or "")
        under = tuple(names_of(below[1])) if below and int(level) else ()
        word = f"switch-{int(level) + 1}" if int(level) else "switch"
        found.append(Group(name, word, int(level), tuple(names_of(nodes or "")), under))
    return tuple(found)


def names_of(text: str) -> Iterator[str]:
    """Return the names of a host list such as `n[1-3,7],gpu[01-02]`; at most MOST_NAMES."""
    count = 0
    for before, inner, after in PART.findall(text):
        for middle in _numbers(inner) if inner else ("",):
            count += 1
            if count > MOST_NAMES:
                return
            if before or middle or after:
                yield f"{before}{middle}{after}"


def _numbers(text: str) -> Iterator[str]:
    """Write `1-3,007` out, with as many digits as the first number of a range has."""
    for part in text.split(","):
        first, dash, last = part.partition("-")
        if not (dash and first.isdecimal() and last.isdecimal()):
            yield part
            continue
        for number in range(int(first), min(int(last), int(first) + MOST_NAMES) + 1):
            yield str(number).zfill(len(first))


def labelled(nodes: Sequence[Node], switches: Sequence[Group]) -> tuple[Node, ...]:
    """Return the nodes with the switches above them as labels, the nearest first."""
    above: dict[str, list[tuple[str, str]]] = {}
    for switch in sorted(switches, key=lambda switch: (switch.level, switch.name)):
        for name in switch.nodes:
            above.setdefault(name, []).append((switch.word, switch.name))
    return tuple(
        replace(node, labels=(*above.get(node.name, ()), *node.labels)) for node in nodes
    )
