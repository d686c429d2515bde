"""Which devices a DeviceClass means, in the Common Expression Language. Pure.

Read is what published classes say: comparisons of a device's driver, attributes and capacities
with literals, `in`, `has`, joined by `&&`, `||`, `!`. All else is not understood, as a whole.
"""

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from operator import ge, gt, le, lt
from typing import NamedTuple, cast

from allotment.backends.kubernetes.device_objects import SliceDevice
from allotment.backends.kubernetes.objects import whole

LONGEST = 2048
DEEPEST = 24
MOST_TOKENS = 256
"""Each part is a call within the one before: far more would be too deep for Python."""

Known = Mapping[str, Mapping[str, "str | int"]]
"""By domain and name. `bool` is an `int` of Python."""


class Facts(NamedTuple):
    """What expressions speak of."""

    driver: str
    attributes: Known
    capacity: Known


class NotUnderstood(Exception):
    """An expression that is not read here."""


class NotThere(Exception):
    """What is spoken of is not there, or does not compare."""


Value = object
Meaning = Callable[[Facts], Value]
Test = Callable[[Facts], bool]

TOKEN = re.compile(
    r"""\s*(?:(?P<text>"[^"\\]*"|'[^'\\]*')|(?P<number>\d{1,18})(?![\w.])"""
    r"""|(?P<word>[A-Za-z_]\w*)|(?P<mark>&&|\|\||[=!<>]=|[][().,!<>-]))"""
)
ORDER = {"<": lt, "<=": le, ">": gt, ">=": ge}


def facts_of(driver: str, device: SliceDevice) -> Facts:
    """Return what expressions may say of a device. A name without a domain is of its driver."""
    attributes: dict[str, dict[str, str | int]] = {}
    for name, said in (device.attributes or {}).items():
        known = (said.text, said.number, said.flag)
        value = next((each for each in known if each is not None), None)
        if value is not None:
            _put(attributes, driver, name, value)
    capacity: dict[str, dict[str, str | int]] = {}
    for name, amount in (device.capacity or {}).items():
        _put(capacity, driver, name, whole(amount.value))
    return Facts(driver, attributes, capacity)


def _put(
    known: dict[str, dict[str, str | int]], driver: str, name: str, value: str | int
) -> None:
    domain, _, own = name.rpartition("/")
    known.setdefault(domain or driver, {})[own] = value


@lru_cache(512)
def meant_by(expression: str) -> Test:
    """Return the test that an expression is. Raises NotUnderstood.

    A device that lacks what it speaks of does not pass.
    """
    meaning = _Reader(expression).whole()

    def test(facts: Facts) -> bool:
        try:
            return meaning(facts) is True
        except NotThere:
            return False

    return test


class _Reader:
    """Reads an expression from left to right."""

    def __init__(self, expression: str) -> None:
        if len(expression) > LONGEST:
            raise NotUnderstood(f"it is longer than {LONGEST:,}")
        self._tokens = _tokens(expression)
        if len(self._tokens) > MOST_TOKENS:
            raise NotUnderstood(f"it has more than {MOST_TOKENS} words and marks")
        self._at = 0
        self._depth = 0

    def whole(self) -> Meaning:
        found = self._any()
        if self._at < len(self._tokens):
            raise NotUnderstood(f"what is {self._tokens[self._at]} after its end?")
        return found

    def _next(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def _take(self, *marks: str) -> str:
        """Go past one of these, if it is next, and return it."""
        found = self._next()
        if found not in marks:
            return ""
        self._at += 1
        return found

    def _need(self, mark: str) -> None:
        if not self._take(mark):
            raise NotUnderstood(f"{mark} is missing before {self._next() or 'its end'}")

    def _any(self) -> Meaning:
        self._depth += 1
        if self._depth > DEEPEST:
            raise NotUnderstood("it is too deep")
        found = self._all()
        while self._take("||"):
            found = _either(found, self._all())
        self._depth -= 1
        return found

    def _all(self) -> Meaning:
        found = self._compared()
        while self._take("&&"):
            found = _both(found, self._compared())
        return found

    def _compared(self) -> Meaning:
        left = self._one()
        mark = self._take("==", "!=", "in", *ORDER)
        return _comparison(mark, left, self._one()) if mark else left

    def _one(self) -> Meaning:
        if self._take("!"):
            return _not(self._one_deeper())
        if self._take("-"):
            number = self._next()
            if not number.isdecimal():
                raise NotUnderstood(f"- before {number or 'its end'}")
            self._at += 1
            return _constant(-int(number))
        found = self._first()
        while mark := self._take(".", "["):
            if mark == "[":
                found = _item(found, self._any())
                self._need("]")
            else:
                found = self._part_of(found)
        return found

    def _part_of(self, whole_: Meaning) -> Meaning:
        """Read a name, or the one method that is known, behind a point."""
        word = self._word()
        if word == "compareTo":
            return _difference(whole_, self._argument())
        if self._next() == "(":
            raise NotUnderstood(f"{word}() is not read")
        return _item(whole_, _constant(word))

    def _one_deeper(self) -> Meaning:
        self._depth += 1
        if self._depth > DEEPEST:
            raise NotUnderstood("it is too deep")
        found = self._one()
        self._depth -= 1
        return found

    def _first(self) -> Meaning:
        token = self._next()
        if self._take("("):
            found = self._any()
            self._need(")")
            return found
        if self._take("["):
            return self._list()
        self._at += 1
        if token[:1] in ("'", '"'):
            return _constant(token[1:-1])
        if token.isdecimal():
            return _constant(int(token))
        match token:
            case "true" | "false":
                return _constant(token == "true")
            case "device":
                return lambda facts: facts._asdict()
            case "quantity":
                return _quantity(self._argument())
            case "has":
                return _has(self._argument())
            case _:
                pass
        raise NotUnderstood(f"{token or 'its end'} is not read")

    def _list(self) -> Meaning:
        found: list[Meaning] = []
        while not self._take("]"):
            found.append(self._any())
            if not self._take(","):
                self._need("]")
                break
        return lambda facts: tuple(each(facts) for each in found)

    def _argument(self) -> Meaning:
        self._need("(")
        found = self._any()
        self._need(")")
        return found

    def _word(self) -> str:
        word = self._next()
        if not word.isidentifier():
            raise NotUnderstood(f"no name is before {word or 'its end'}")
        self._at += 1
        return word


def _tokens(expression: str) -> list[str]:
    found: list[str] = []
    at, text = 0, expression.rstrip()
    while at < len(text):
        match = TOKEN.match(text, at)
        if match is None:
            raise NotUnderstood(f"what begins with {text[at : at + 20].strip()} is not read")
        found.append(match.group().strip())
        at = match.end()
    return found


def _constant(value: Value) -> Meaning:
    return lambda facts: value


def _truth(value: Value) -> bool:
    if not isinstance(value, bool):
        raise NotThere
    return value


def _both(left: Meaning, right: Meaning) -> Meaning:
    """Join two: what is false is so whatever the other lacks."""
    return _not(_either(_not(left), _not(right)))


def _either(left: Meaning, right: Meaning) -> Meaning:
    def meaning(facts: Facts) -> Value:
        try:
            if _truth(left(facts)):
                return True
        except NotThere:
            if _truth(right(facts)):
                return True
            raise
        return _truth(right(facts))

    return meaning


def _not(one: Meaning) -> Meaning:
    return lambda facts: not _truth(one(facts))


def _comparison(mark: str, left: Meaning, right: Meaning) -> Meaning:
    match mark:
        case "==":
            return lambda facts: _same(left(facts), right(facts))
        case "!=":
            return lambda facts: not _same(left(facts), right(facts))
        case "in":
            return lambda facts: _contained(left(facts), right(facts))
        case _:
            return lambda facts: _ordered(mark, left(facts), right(facts))


def _same(left: Value, right: Value) -> bool:
    return type(left) is type(right) and left == right


def _contained(left: Value, right: Value) -> bool:
    if isinstance(right, Mapping):
        return isinstance(left, str) and left in right
    if not isinstance(right, tuple):
        raise NotThere
    return any(_same(left, each) for each in cast("tuple[Value, ...]", right))


def _ordered(mark: str, left: Value, right: Value) -> bool:
    if type(left) is int and type(right) is int:
        return ORDER[mark](left, right)
    raise NotThere


def _item(whole_: Meaning, key: Meaning) -> Meaning:
    def meaning(facts: Facts) -> Value:
        found, name = whole_(facts), key(facts)
        if not isinstance(found, Mapping) or not isinstance(name, str):
            raise NotThere
        known = cast("Mapping[str, Value]", found)
        if found is facts.attributes or found is facts.capacity:
            return known.get(name, {})  # of a domain that the device has nothing of
        if name not in known:
            raise NotThere
        return known[name]

    return meaning


def _has(one: Meaning) -> Meaning:
    def meaning(facts: Facts) -> Value:
        try:
            one(facts)
        except NotThere:
            return False
        return True

    return meaning


def _quantity(text: Meaning) -> Meaning:
    def meaning(facts: Facts) -> Value:
        said = text(facts)
        if not isinstance(said, str):
            raise NotThere
        return whole(said)

    return meaning


def _difference(left: Meaning, right: Meaning) -> Meaning:
    def meaning(facts: Facts) -> Value:
        mine, other = left(facts), right(facts)
        if type(mine) is not int or type(other) is not int:
            raise NotThere
        return (mine > other) - (mine < other)

    return meaning
