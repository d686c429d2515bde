"""Change functions that are loaded already, instead of importing them again."""

import ast
import builtins
import gc
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

from tests.mutants.mutate import OTHER, Span, span

REACHED, ORDERED, JOINED = "mutant_reached", "mutant_ordered", "mutant_joined"
"""What marked code calls, by kind of expression."""

ORDERS: Mapping[str, Callable[[Any, Any], object]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
SIGNS: dict[type[ast.cmpop], str] = {ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">="}

Key = tuple[str, int, bytes]
"""What tells the functions of a file apart: name, first line, place of every operation."""


def compiled(path: Path, source: str | ast.Module) -> CodeType:
    """Return a module's code as its import makes it."""
    return compile(source, str(path), "exec", dont_inherit=True)


def marked(path: Path, source: str, numbers: Mapping[Span, int]) -> CodeType:
    """Return a module's code that tells each numbered place where its mutant differs.

    So a comparison by order is told where both sides are equal, or cannot be ordered; one by
    `and` where it does not give True, one by `or` where it does not give False. A test that
    tells nothing of a mutant runs on it as it runs without.
    """
    tree = ast.parse(source)
    _Marks(numbers).visit(tree)
    return compiled(path, ast.fix_missing_locations(tree))


def observe(observer: Callable[[int], None]) -> None:
    """Let marked code call this with its number."""

    def reached(number: int, value: object) -> object:
        observer(number)
        return value

    def ordered(number: int, left: object, sign: str, other: str, right: object) -> object:
        value = ORDERS[sign](left, right)
        if value is not ORDERS[other](left, right):
            observer(number)
        return value

    def joined(number: int, value: object, same: object) -> object:
        if value is not same:
            observer(number)
        return value

    for name, mark in ((REACHED, reached), (ORDERED, ordered), (JOINED, joined)):
        setattr(builtins, name, mark)


def exchange(versions: Iterable[tuple[CodeType, CodeType]]) -> None:
    """Exchange the code of every loaded function of modules for what it is afterwards.

    Raise LookupError where none is loaded that is another then.
    """
    codes = {
        (before.co_filename, *key): code
        for before, after in versions
        for key, code in _changed(before, after)
    }
    loaded = [
        (each, after)
        for each in gc.get_objects()
        if isinstance(each, FunctionType)
        if (after := codes.get((each.__code__.co_filename, *_key(each.__code__)))) is not None
    ]
    for function, after in loaded:
        function.__code__ = after
    if not loaded:
        raise LookupError("no function is loaded that is to be exchanged")


def _changed(before: CodeType, after: CodeType) -> Iterator[tuple[Key, CodeType]]:
    for old, new in zip(_inner(before), _inner(after), strict=True):
        if old != new:
            yield _key(old), new
        yield from _changed(old, new)


def _inner(code: CodeType) -> list[CodeType]:
    return [each for each in code.co_consts if isinstance(each, CodeType)]


def _key(code: CodeType) -> Key:
    return code.co_qualname, code.co_firstlineno, code.co_linetable


class _Marks(ast.NodeTransformer):
    """Replaces an expression by a call that tells its number, and gives its value."""

    def __init__(self, numbers: Mapping[Span, int]) -> None:
        self._numbers = numbers

    def visit(self, node: ast.AST) -> ast.AST:
        self.generic_visit(node)
        if not isinstance(node, ast.expr) or span(node) not in self._numbers:
            return node
        number = ast.Constant(self._numbers[span(node)])
        match node:
            case ast.Compare(left, [sign], [right]) if type(sign) in SIGNS:
                signs = ast.Constant(SIGNS[type(sign)]), ast.Constant(OTHER[type(sign)])
                mark = ast.Call(_name(ORDERED), [number, left, *signs, right], [])
            case ast.BoolOp(word):
                same = ast.Constant(isinstance(word, ast.And))
                mark = ast.Call(_name(JOINED), [number, node, same], [])
            case _:
                mark = ast.Call(_name(REACHED), [number, node], [])
        return ast.copy_location(mark, node)


def _name(name: str) -> ast.Name:
    return ast.Name(name, ast.Load())
