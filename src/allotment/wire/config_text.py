"""A configuration as a file for people: YAML, a machine, a cell or a tenant to a line."""

import json
import re
from collections.abc import Iterator, Mapping

from allotment.wire.tree import Plain
from allotment.wire.yaml_reader import scalar_of

WIDTH = 96
BARE = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._/+-]*")

TRUTHS = frozenset({"y", "n", "yes", "no", "on", "off"})
"""Words that older YAML takes for true or false."""


def config_text(written: Mapping[str, Plain], head: str = "") -> str:
    """Write YAML that reads back as the same; `head` becomes comments."""
    lines = [f"# {line}".rstrip() for line in head.splitlines()]
    for key, value in written.items():
        if lines:
            lines.append("")
        lines += _entry(key, value, "", top=True)
    return "\n".join(lines) + "\n"


def _entry(key: str, value: Plain, indent: str, *, top: bool = False) -> Iterator[str]:
    if isinstance(value, str) and (text := _literal(value, indent)):
        yield f"{indent}{_word(key)}: {text}"
        return
    line = f"{indent}{_word(key)}: {_flow(value)}"
    if (
        not isinstance(value, (list, dict))
        or not value
        or (not top and len(line) <= WIDTH and "\\n" not in line)
    ):
        yield line
        return
    if isinstance(value, list) and not any(isinstance(item, (list, dict)) for item in value):
        yield f"{indent}{_word(key)}: ["
        yield from _filled([_flow(item) for item in value], f"{indent}  ")
        yield f"{indent}]"
        return
    yield f"{indent}{_word(key)}:"
    yield from _block(value, f"{indent}  ")


def _literal(text: str, indent: str) -> str:
    """Write a text of several lines as it stands; nothing where quotes are safer."""
    lines = text.split("\n")
    plain = all(line.replace("\t", " ").isprintable() for line in lines)
    if len(lines) < 3 or lines.pop() or not plain or not lines[-1].strip():
        return ""
    if lines[0].startswith((" ", "\t")) or not lines[0]:
        return ""
    inner = "\n".join(f"{indent}  {line}" if line else "" for line in lines)
    return f"|\n{inner}"


def _filled(words: list[str], indent: str) -> Iterator[str]:
    """Put as many words on each line as there is room for."""
    line = indent
    for word in words:
        if len(line) + len(word) > WIDTH and line != indent:
            yield line.rstrip()
            line = indent
        line += f"{word}, "
    yield line.rstrip()


def _block(value: Plain, indent: str) -> Iterator[str]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _entry(key, inner, indent)
    elif isinstance(value, list):
        for item in value:
            line = f"{indent}- {_flow(item)}"
            if not isinstance(item, (list, dict)) or not item or len(line) <= WIDTH:
                yield line
            else:
                first, *rest = _block(item, f"{indent}  ")
                yield f"{indent}- {first.lstrip()}"
                yield from rest


def _flow(value: Plain) -> str:
    if isinstance(value, dict):
        inner = ", ".join(f"{_word(key)}: {_flow(item)}" for key, item in value.items())
        return f"{{{inner}}}"
    if isinstance(value, list):
        return f"[{', '.join(_flow(item) for item in value)}]"
    return _word(value) if isinstance(value, str) else json.dumps(value)


def _word(text: str) -> str:
    """Write a text bare where it is still one when read, else in quotes."""
    plain = BARE.fullmatch(text) and not text.endswith(" ") and scalar_of(text) == text
    if plain and text.lower() not in TRUTHS:
        return text
    return json.dumps(text, ensure_ascii=False)
