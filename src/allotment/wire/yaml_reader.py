"""YAML 1.2 into a tree with lines: the part of YAML that describes jobs, and no more.

Events are folded here rather than by the library, whose own way knows neither limits nor
lines. Safe by construction: no tags, so no objects; depth and number of values are capped
while the text is read, and aliases count as often as they are used. Equal keys are a
problem, not a silent loss. About a second for the largest file that is accepted.
"""

import re
from collections.abc import Callable

import msgspec

from allotment.model.errors import BadInput, Problem
from allotment.wire.text import (
    CONTROL,
    HALF_LETTER,
    bad,
    given_before,
    joined,
    plain_word,
    refuse_control,
)
from allotment.wire.tree import (
    LONGEST_NUMBER,
    MOST_DEPTH,
    MOST_NODES,
    Entry,
    Leaf,
    Listing,
    Scalar,
    Table,
    Tree,
)
from allotment.wire.yaml_events import Kind, YamlEvent, events_of

WORDS: dict[str, Scalar] = {
    word: value
    for value, words in (
        (None, ("", "~", "null", "Null", "NULL")),
        (True, ("true", "True", "TRUE")),
        (False, ("false", "False", "FALSE")),
    )
    for word in words
}

NUMBERS: tuple[tuple[re.Pattern[str], Callable[[str], Scalar]], ...] = (
    (re.compile(r"[-+]?[0-9]+"), int),
    (re.compile(r"0o[0-7]+"), lambda text: int(text[2:], 8)),
    (re.compile(r"0x[0-9a-fA-F]+"), lambda text: int(text[2:], 16)),
    (re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?"), float),
    (re.compile(r"[-+]?\.(inf|Inf|INF)"), lambda text: float(text.replace(".", ""))),
    (re.compile(r"\.(nan|NaN|NAN)"), lambda _: float("nan")),
)

MOST_DOCUMENTS = 8
"""Of one file: a job, and what it goes by."""

STRING_TAGS = frozenset({"!", "tag:yaml.org,2002:str"})


class Anchored(msgspec.Struct, frozen=True):
    """A value that aliases can repeat, with what repeating it costs."""

    tree: Tree
    nodes: int
    depth: int


def read_yaml(text: str, source: str) -> tuple[Tree, tuple[Problem, ...]]:
    """Read one YAML document; return it with the problems that do not stop the reading.

    Raises BadInput when it is not YAML, or not the YAML that is accepted here.
    """
    refuse_control(text, CONTROL, source)
    reader = _YamlReader(text, source)
    return reader.document(), tuple(reader.problems)


def documents_of(text: str) -> list[str]:
    """Return the documents of a text that say anything, each on the lines that it has there;
    none where they are more than a file may hold."""
    parts = re.split(r"^---(?=\s|$)", text, maxsplit=2 * MOST_DOCUMENTS, flags=re.MULTILINE)
    found: list[str] = []
    line = 0
    for part in parts:
        if any(each and not each.startswith("#") for each in map(str.strip, part.split("\n"))):
            found.append("\n" * line + part)
        line += part.count("\n")
    return found if len(found) <= MOST_DOCUMENTS else []


def scalar_of(text: str) -> Scalar:
    """Return what unquoted text means in YAML 1.2: `yes` is a word, `0o17` is 15."""
    if text in WORDS:
        return WORDS[text]
    if len(text) <= LONGEST_NUMBER and (text[0].isdigit() or text[0] in "+-."):
        for pattern, convert in NUMBERS:
            if pattern.fullmatch(text):
                return convert(text)
    return text


class _YamlReader:
    """Folds events into a tree. Recursion is bounded by MOST_DEPTH."""

    def __init__(self, text: str, source: str) -> None:
        self._events = events_of(text, source)
        self._source = source
        self._anchors: dict[str, Anchored] = {}
        self._nodes = 0
        self._depth = self._deepest = 0
        self.problems: list[Problem] = []

    def document(self) -> Tree:
        tree: Tree | None = None
        for event in self._events:
            self._check_start(event, is_first=tree is None)
            tree = self._value(next(self._events))
        if tree is None:
            raise bad(self._source, "has nothing but comments", hint="see docs/guide")
        return tree

    def _check_start(self, event: YamlEvent, *, is_first: bool) -> None:
        if not is_first:
            raise self._bad(
                event,
                "a second document starts here (`---`), and a file holds one",
                "put each into a file of its own",
            )
        if event.version not in (None, (1, 2)):
            raise self._bad(
                event, "asks for another YAML version than 1.2", "take the %YAML line out"
            )

    def _value(self, event: YamlEvent) -> Tree:
        self._count(1, event)
        if event.kind is Kind.ALIAS:
            return self._alias(event)
        nodes, deepest = self._nodes, self._deepest
        self._deepest = self._depth
        tree = self._tree(event)
        if event.anchor:
            cost = (self._nodes - nodes + 1, self._deepest - self._depth)
            self._anchors[event.anchor] = Anchored(tree, *cost)
        self._deepest = max(deepest, self._deepest)
        return tree

    def _tree(self, event: YamlEvent) -> Tree:
        if event.kind is Kind.SCALAR:
            return self._leaf(event)
        self._check_tag(event)
        self._deeper(1, event)
        tree = self._table(event) if event.kind is Kind.MAP else self._listing(event)
        self._depth -= 1
        return tree

    def _leaf(self, event: YamlEvent) -> Leaf:
        text = self._whole(event)
        if event.quoted or event.tag in STRING_TAGS:
            return Leaf(event.line, text)
        self._check_tag(event)
        value = scalar_of(text)
        return Leaf(event.line, value, "" if value is None or value == text else text)

    def _listing(self, event: YamlEvent) -> Listing:
        items: list[Tree] = []
        while (inner := next(self._events)).kind is not Kind.LIST_END:
            items.append(self._value(inner))
        return Listing(event.line, tuple(items))

    def _table(self, event: YamlEvent) -> Table:
        entries: dict[str, Entry] = {}
        merged: list[Tree] = []
        while (inner := next(self._events)).kind is not Kind.MAP_END:
            key = self._key(inner)
            value = self._value(next(self._events))
            if key == "<<" and not inner.quoted:
                merged.append(value)
            elif key in entries:
                self.problems.append(given_before(key, inner.line, entries[key].line))
            else:
                entries[key] = Entry(inner.line, value)
        for tree in merged:
            self._merge(tree, entries, event)
        return Table(event.line, entries)

    def _key(self, event: YamlEvent) -> str:
        self._count(1, event)
        if event.kind is not Kind.SCALAR:
            raise self._bad(
                event,
                "a key must be a word, not a map, list or alias",
                "quote it if it is text",
            )
        return self._whole(event)

    def _merge(self, tree: Tree, entries: dict[str, Entry], event: YamlEvent) -> None:
        """Take over what `<<: *other` has and this map has not."""
        tables = tree.items if isinstance(tree, Listing) else (tree,)
        for table in tables:
            if not isinstance(table, Table):
                raise self._bad(event, "`<<` must name a map", "write `<<: *anchor`")
            for key, entry in table.entries.items():
                entries.setdefault(key, entry)

    def _alias(self, event: YamlEvent) -> Tree:
        anchored = self._anchors.get(event.anchor)
        if anchored is None:
            raise self._bad(
                event,
                f"nothing before it is marked `&{plain_word(event.anchor)}`",
                "an alias repeats a complete value above it",
            )
        self._count(anchored.nodes, event)
        self._deeper(anchored.depth, event)
        self._depth -= anchored.depth
        return anchored.tree

    def _count(self, nodes: int, event: YamlEvent) -> None:
        self._nodes += nodes
        if self._nodes > MOST_NODES:
            raise self._bad(
                event,
                f"has more than {MOST_NODES:,} values by here, counting each use of an alias",
                "describe fewer things, or repeat them less",
            )

    def _deeper(self, levels: int, event: YamlEvent) -> None:
        self._depth += levels
        self._deepest = max(self._deepest, self._depth)
        if self._depth > MOST_DEPTH:
            raise self._bad(
                event,
                f"is nested more than {MOST_DEPTH} deep",
                "check the brackets and the indentation",
            )

    def _check_tag(self, event: YamlEvent) -> None:
        if event.tag and event.tag not in STRING_TAGS:
            tag = plain_word(event.tag)
            raise self._bad(event, f"the tag `{tag}` is not supported", "take the tag out")

    def _whole(self, event: YamlEvent) -> str:
        text = joined(event.text)
        if text is None:
            raise self._bad(event, *HALF_LETTER)
        return text

    def _bad(self, event: YamlEvent, message: str, hint: str) -> BadInput:
        return bad(self._source, message, event.line, hint)
