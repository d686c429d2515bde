"""Change functions that are loaded already, instead of importing them again."""

import ast
import builtins
import gc
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import CodeType, FunctionType

from tests.mutants.mutate import Span, span

MARK = "mutant_is_reached"

Key = tuple[str, int, bytes]
"""What tells the functions of a file apart: name, first line, place of every operation."""


def compiled(path: Path, source: str | ast.Module) -> CodeType:
    """Return a module's code as its import makes it."""
    return compile(source, str(path), "exec", dont_inherit=True)


def marked(path: Path, source: str, numbers: Mapping[Span, int]) -> CodeType:
    """Return a module's code that tells the observer each numbered place that it comes to."""
    tree = ast.parse(source)
    _Marks(numbers).visit(tree)
    return compiled(path, ast.fix_missing_locations(tree))


def observe(observer: Callable[[int], None]) -> None:
    """Let marked code call this with its number."""
    setattr(builtins, MARK, observer)


def exchange(before: CodeType, after: CodeType) -> None:
    """Give every loaded function of a module the code that it has in another version."""
    codes = dict(_changed(before, after))
    for each in gc.get_objects():
        if isinstance(each, FunctionType) and each.__code__.co_filename == before.co_filename:
            each.__code__ = codes.get(_key(each.__code__), each.__code__)


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
    """Replaces an expression E by (mark(number), E)[1]."""

    def __init__(self, numbers: Mapping[Span, int]) -> None:
        self._numbers = numbers

    def visit(self, node: ast.AST) -> ast.AST:
        self.generic_visit(node)
        if not isinstance(node, ast.expr) or span(node) not in self._numbers:
            return node
        number = ast.Constant(self._numbers[span(node)])
        mark = ast.Call(ast.Name(MARK, ast.Load()), [number], [])
        both = ast.Tuple([mark, node], ast.Load())
        return ast.copy_location(ast.Subscript(both, ast.Constant(1), ast.Load()), node)
