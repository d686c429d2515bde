"""What a Dockerfile begins with, and how many steps it has. The rest is buildah's to read."""

import re
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

_VARIABLE: Final = re.compile(r"\$(?:\{(\w+)(?::?-([^}]*))?\}|(\w+))")
_STAGE_PARTS: Final = 3
"""Words of `IMAGE AS NAME`."""


class Dockerfile(NamedTuple):
    """What is known of one before it is built."""

    steps: int
    bases: tuple[str, ...]
    """Images that it takes something from, as they are named, each once."""


def read(text: str, arguments: Mapping[str, str]) -> Dockerfile:
    """Read the text of a Dockerfile; `arguments` are those of the build."""
    known: dict[str, str] = {}
    stages: set[str] = {"scratch"}
    bases: list[str] = []
    steps = 0
    for word, rest in _instructions(text):
        words = [_filled(part, known) for part in rest.split()]
        if word == "ARG" and not steps:
            known |= {name: arguments.get(name, value) for name, value in map(_pair, words)}
            continue
        steps += 1
        flags = [part for part in words if part.startswith("--")]
        plain = [part for part in words if not part.startswith("--")]
        if word == "FROM" and plain:
            bases += [plain[0]] if plain[0].lower() not in stages else []
            if len(plain) >= _STAGE_PARTS:
                stages.add(plain[2].lower())
        elif word in ("COPY", "ADD"):
            named = [flag.partition("=")[2] for flag in flags if flag.startswith("--from=")]
            bases += [
                each for each in named if each.lower() not in stages and not each.isdigit()
            ]
    return Dockerfile(steps, tuple(dict.fromkeys(bases)))


def with_argument(text: str, line: str) -> str:
    """Return the text with a line more in each stage, first of its steps."""
    found: list[str] = []
    is_from = goes_on = False
    for raw in text.splitlines():
        found.append(raw)
        part = raw.strip()
        if not part or part.startswith("#"):
            continue
        is_from = is_from if goes_on else part.partition(" ")[0].upper() == "FROM"
        goes_on = part.endswith("\\")
        if is_from and not goes_on:
            found.append(line)
    return "\n".join(found) + "\n"


def _instructions(text: str) -> Iterator[tuple[str, str]]:
    line = ""
    for raw in text.splitlines():
        part = raw.strip()
        if part.startswith("#") or not part:
            continue
        if part.endswith("\\"):
            line += part[:-1] + " "
            continue
        word, _, rest = (line + part).partition(" ")
        yield word.upper(), rest
        line = ""


def _pair(word: str) -> tuple[str, str]:
    name, _, value = word.partition("=")
    return name, value.strip("'\"")


def _filled(text: str, known: Mapping[str, str]) -> str:
    """Put in the values of variables."""
    return _VARIABLE.sub(
        lambda found: known.get(found[1] or found[3], "") or found[2] or "", text
    )
