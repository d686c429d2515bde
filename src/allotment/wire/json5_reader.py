"""JSON5 into a tree with lines: JSON plus comments, trailing commas, bare keys, either quote.

Of our own because readers of JSON5 at hand keep no lines and take seconds for a large file.
One pass, O(length): every pattern is possessive, so none of them backtracks. A bare `...`,
as documentation writes it, is a problem of its own and does not stop the reading.
"""

import re
from bisect import bisect_left
from typing import NoReturn

from allotment.model.errors import Problem
from allotment.wire.amiss import PLACEHOLDERS
from allotment.wire.text import HALF_LETTER, bad, given_before, joined, plain_word, shown
from allotment.wire.tree import (
    LONGEST_NUMBER,
    MOST_DEPTH,
    MOST_NODES,
    Entry,
    Leaf,
    Listing,
    Place,
    Scalar,
    Table,
    Tree,
    path_of,
)

# Linear without possessive groups: those of Python before 3.11.5 do not match all they should.
GAP = re.compile(r"(?:[\s\ufeff]+|//[^\n\r]*|/\*[^*]*\*+(?:[^/*][^*]*\*+)*/)*")
STRING = re.compile(
    r'"[^"\\\n\r]*(?:\\(?:\r\n|[\s\S])[^"\\\n\r]*)*"'
    r"|'[^'\\\n\r]*(?:\\(?:\r\n|[\s\S])[^'\\\n\r]*)*'"
)
NUMBER = re.compile(
    r"[-+]?(?:0[xX][0-9a-fA-F]+|Infinity|NaN|"
    r"(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?)(?![\w$.])"
)
WORD = re.compile(r"[^\W\d][\w$]*|\$[\w$]*")
TOKEN = re.compile(r"[^\s,:\[\]{}\"']+")
ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2})|(\r\n|[\s\S]))")
WORDS: dict[str, Scalar] = {"true": True, "false": False, "null": None}
LETTERS = {
    "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "0": "\0",
    "\n": "", "\r": "", "\r\n": "", "\u2028": "", "\u2029": "",
}  # fmt: skip


def read_json5(text: str, source: str) -> tuple[Tree, tuple[Problem, ...]]:
    """Read one value; return it with the problems that do not stop the reading.

    Raises BadInput where the text is not JSON5.
    """
    reader = _Json5Reader(text, source)
    tree = reader.whole()
    return tree, tuple(reader.problems)


def starts_like_json(text: str) -> bool:
    """Whether the first thing after blanks and comments opens a JSON object."""
    start = GAP.match(text)
    return text.startswith("{", start.end() if start else 0)


class _Json5Reader:
    """Recursive descent over a text; `_at` is always at a token's start."""

    def __init__(self, text: str, source: str) -> None:
        self._text = text
        self._source = source
        self._at = 0
        self._depth = self._nodes = 0
        self._newlines = [found.start() for found in re.finditer(r"\n", text)]
        self.problems: list[Problem] = []

    def whole(self) -> Tree:
        self._skip_gap()
        tree = self._value(())
        if self._at < len(self._text):
            self._fail(f"{self._next()} follows the end", "one file holds one value")
        return tree

    def _value(self, place: Place) -> Tree:
        line = self._line()
        self._nodes += 1
        if self._nodes > MOST_NODES:
            self._fail(f"has more than {MOST_NODES} values", "describe fewer things")
        letter = self._text[self._at : self._at + 1]
        if letter == "{":
            return self._table(place, line)
        if letter == "[":
            return self._listing(place, line)
        if self._took_placeholder(place, str(place[-1]) if place else ""):
            return Leaf(line, None)
        if letter in ('"', "'"):
            return Leaf(line, self._string())
        if found := NUMBER.match(self._text, self._at):
            self._move(found.end())
            return self._number(line, found[0])
        if (found := WORD.match(self._text, self._at)) and found[0] in WORDS:
            self._move(found.end())
            return Leaf(line, WORDS[found[0]], found[0] if found[0] != "null" else "")
        return self._no_value()

    def _table(self, place: Place, line: int) -> Table:
        entries: dict[str, Entry] = {}
        self._enter()
        while not self._took("}"):
            if not self._took_placeholder(place):
                key_line, key = self._line(), self._key()
                if not self._took(":"):
                    self._fail(f"`:` is missing after `{plain_word(key)}`")
                value = self._value((*place, key))
                if key in entries:
                    self.problems.append(given_before(key, key_line, entries[key].line))
                else:
                    entries[key] = Entry(key_line, value)
            if not self._took(",") and not self._is_at("}"):
                self._fail(f"`,` or `}}` is missing before {self._next()}")
        self._depth -= 1
        return Table(line, entries)

    def _listing(self, place: Place, line: int) -> Listing:
        items: list[Tree] = []
        self._enter()
        while not self._took("]"):
            if not self._took_placeholder(place):
                items.append(self._value((*place, len(items))))
            if not self._took(",") and not self._is_at("]"):
                self._fail(f"`,` or `]` is missing before {self._next()}")
        self._depth -= 1
        return Listing(line, tuple(items))

    def _key(self) -> str:
        if self._text[self._at : self._at + 1] in ('"', "'"):
            return self._string()
        found = WORD.match(self._text, self._at)
        if not found:
            self._fail(f"a key is expected here, not {self._next()}", "write keys in quotes")
        self._move(found.end())
        return found[0]

    def _string(self) -> str:
        found = STRING.match(self._text, self._at)
        if not found:
            self._fail(
                "a quote opens here and is not closed on its line",
                r"close it, or write \n where a line should end",
            )
        inside = found[0][1:-1]
        if "\\" in inside:
            inside = self._unescape(inside)
        self._move(found.end())
        return inside

    def _unescape(self, text: str) -> str:
        whole = joined(ESCAPE.sub(_letter, text))
        if whole is None:
            self._fail(*HALF_LETTER)
        return whole

    def _number(self, line: int, text: str) -> Leaf:
        digits = text.lstrip("+-")
        if len(text) > LONGEST_NUMBER:
            self._fail(f"the number before here has {len(text)} digits", "put text in quotes")
        if digits[:2] in ("0x", "0X"):
            return _whole_leaf(line, int(text, 16))
        if digits.isdigit():
            if len(digits) > 1 and digits[0] == "0":
                self._fail(
                    f"{text} starts with 0, which some readers take for base 8",
                    f'write {digits.lstrip("0") or "0"}, or "{text}" for text',
                )
            return _whole_leaf(line, int(text))
        return Leaf(line, float(text.replace("Infinity", "inf")), text)

    def _took_placeholder(self, place: Place, key: str = "") -> bool:
        """Pass over `...`, and say that something else should stand there."""
        for sign in PLACEHOLDERS:
            if self._text.startswith(sign, self._at):
                break
        else:
            return False
        what = f"a value for `{plain_word(key)}`" if key else "what belongs there"
        self.problems.append(
            Problem(
                f"`{sign}` is a placeholder from the documentation",
                path_of(place),
                self._line(),
                f"replace it by {what}, or delete it",
            )
        )
        self._move(self._at + len(sign))
        return True

    def _no_value(self) -> NoReturn:
        found = TOKEN.match(self._text, self._at)
        bare = found and len(found[0]) > 1
        hint = f'text must be in quotes: "{plain_word(found[0])}"' if found and bare else ""
        self._fail(f"a value is expected here, not {self._next()}", hint)

    def _enter(self) -> None:
        """Go into a bracket."""
        self._depth += 1
        if self._depth > MOST_DEPTH:
            self._fail(f"is nested more than {MOST_DEPTH} deep", "check the brackets")
        self._move(self._at + 1)

    def _is_at(self, sign: str) -> bool:
        return self._text.startswith(sign, self._at)

    def _took(self, sign: str) -> bool:
        if not self._is_at(sign):
            return False
        self._move(self._at + 1)
        return True

    def _move(self, to: int) -> None:
        """Go on to the first token from there."""
        self._at = to
        self._skip_gap()

    def _skip_gap(self) -> None:
        gap = GAP.match(self._text, self._at)
        self._at = gap.end() if gap else self._at
        if self._is_at("/*"):
            self._fail("the comment that opens here is not closed", "close it with */")

    def _line(self) -> int:
        return bisect_left(self._newlines, self._at) + 1

    def _next(self) -> str:
        """Name what stands here, for a message."""
        if self._at >= len(self._text):
            return "the end of the file"
        if STRING.match(self._text, self._at):
            return "a text in quotes"  # it may be a secret
        found = TOKEN.match(self._text, self._at)
        return shown(found[0] if found else self._text[self._at])

    def _fail(self, message: str, hint: str = "") -> NoReturn:
        hint = hint or "check the quotes, commas and brackets here and on the line above"
        raise bad(self._source, f"not valid JSON: {message}", self._line(), hint)


def _whole_leaf(line: int, value: int) -> Leaf:
    # One spelling a number, as for any other reader of JSON: -0 is 0.
    return Leaf(line, value, str(value))


def _letter(escape: re.Match[str]) -> str:
    code = escape[1] or escape[2]
    if code:
        return chr(int(code, 16))
    return LETTERS.get(escape[3], escape[3])
