"""The YAML library, kept at arm's length: its events and errors as values of ours.

Events come one by one, so the reader can stop before a hostile file is scanned.
"""

from collections.abc import Generator, Iterator
from enum import IntEnum
from typing import TYPE_CHECKING, cast

import msgspec
from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError

from allotment.wire.text import bad, plain_word

if TYPE_CHECKING:
    from typing import Protocol

    class _Mark(Protocol):
        line: int

    class _Raw(Protocol):
        """What the library's events have, each some of it; it is not typed itself."""

        start_mark: _Mark
        anchor: str | None
        tag: str | None
        value: str
        style: str | None
        version: tuple[int, int] | None

    class _Parser(Protocol):
        def parse(self, stream: str) -> Iterator[_Raw]: ...

    class _Complaint(Protocol):
        problem_mark: _Mark | None
        context_mark: _Mark | None
        problem: str | None
        context: str | None


class Kind(IntEnum):
    """What an event is about."""

    DOCUMENT = 1
    SCALAR = 2
    ALIAS = 3
    MAP = 4
    MAP_END = 5
    LIST = 6
    LIST_END = 7


KINDS = {
    "DocumentStartEvent": Kind.DOCUMENT,
    "ScalarEvent": Kind.SCALAR,
    "AliasEvent": Kind.ALIAS,
    "MappingStartEvent": Kind.MAP,
    "MappingEndEvent": Kind.MAP_END,
    "SequenceStartEvent": Kind.LIST,
    "SequenceEndEvent": Kind.LIST_END,
}
"""By the library's class names; the start and end of the stream say nothing."""


class YamlEvent(msgspec.Struct, frozen=True, gc=False):
    """One step through a document. `anchor` and `tag` are empty where there is none."""

    kind: Kind
    line: int
    text: str = ""
    anchor: str = ""
    tag: str = ""
    quoted: bool = False
    version: tuple[int, int] | None = None


def events_of(text: str, source: str) -> Generator[YamlEvent]:
    """Return the parser's events of a text. Raises BadInput where it is not YAML."""
    # No plug-ins: looking for them reads folders.
    parser = cast("_Parser", YAML(typ="safe", pure=True, plug_ins=cast("None", [])))
    try:
        for raw in parser.parse(text):
            if kind := KINDS.get(type(raw).__name__):
                yield _event(kind, raw)
    except MarkedYAMLError as error:
        complaint = cast("_Complaint", error)
        mark = complaint.problem_mark or complaint.context_mark
        said = " ".join(str(complaint.problem or complaint.context).split())
        line = mark.line + 1 if mark else 0
        raise bad(source, f"not valid YAML: {said}", line, _advice(said)) from error
    except YAMLError as error:
        said = plain_word(str(error).partition("\n")[0])
        raise bad(source, f"not valid YAML: {said}", hint=_advice(said)) from error


def _event(kind: Kind, raw: "_Raw") -> YamlEvent:
    line = raw.start_mark.line + 1
    if kind is Kind.SCALAR:
        quoted = raw.style is not None
        return YamlEvent(kind, line, raw.value, raw.anchor or "", raw.tag or "", quoted)
    if kind is Kind.DOCUMENT:
        return YamlEvent(kind, line, version=raw.version)
    if kind in (Kind.MAP, Kind.LIST):
        return YamlEvent(kind, line, anchor=raw.anchor or "", tag=raw.tag or "")
    if kind is Kind.ALIAS:
        return YamlEvent(kind, line, anchor=raw.anchor or "")
    return YamlEvent(kind, line)


ADVICE = (
    ("\\t", "indent with spaces, not tabs"),
    ("mapping values are not allowed", "a text with `: ` in it needs quotes around it"),
    ("block end", "keys of one map start in the same column; check the indentation"),
    ("expected ',' or", "a bracket that was opened before is not closed"),
    ("end of stream", "a quote or bracket is not closed"),
    ("could not find expected ':'", "a key is followed by `: ` and its value"),
)


def _advice(said: str) -> str:
    fitting = (advice for sign, advice in ADVICE if sign in said)
    return next(fitting, "check this line and the one above: quotes, colons, indentation")
