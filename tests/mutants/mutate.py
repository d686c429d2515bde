"""Single changes in the functions of a source: a comparison, and/or, not, + and -.

The change is made in the text, so that all else of the file stays as it is.
"""

import ast
from collections.abc import Iterator
from typing import NamedTuple

OTHER: dict[type[ast.AST], str] = {
    ast.Lt: "<=",
    ast.LtE: "<",
    ast.Gt: ">=",
    ast.GtE: ">",
    ast.Eq: "!=",
    ast.NotEq: "==",
    ast.Is: "is not",
    ast.IsNot: "is",
    ast.In: "not in",
    ast.NotIn: "in",
    ast.And: "or",
    ast.Or: "and",
    ast.Add: "-",
    ast.Sub: "+",
}


Span = tuple[int, int, int | None, int | None]
"""Where a node begins and ends: line and column, of each."""


class Mutant(NamedTuple):
    """A source with one change."""

    span: Span
    """Of the changed expression, in the source before."""
    before: str
    after: str
    source: str
    """The whole source before."""

    @property
    def line(self) -> int:
        """From 1."""
        return self.span[0]

    @property
    def text(self) -> str:
        """The whole source with the change."""
        first, column, last, end = self.span
        assert last is not None
        assert end is not None
        lines = self.source.encode().splitlines(keepends=True)
        before = b"".join(lines[: first - 1]) + lines[first - 1][:column]
        behind = lines[last - 1][end:] + b"".join(lines[last:])
        return (before + b"(" + self.after.encode() + b")" + behind).decode()

    @property
    def is_source(self) -> bool:
        """Whether it can be compiled: it takes long to find out."""
        try:
            compile(self.text, "mutant", "exec")
        except SyntaxError:
            return False
        return True


def mutants(source: str) -> Iterator[Mutant]:
    """Yield every mutant of a source, outer expressions first; not all need be sources."""
    for node in _in_functions(ast.parse(source)):
        match node:
            case ast.Compare(left, [operator], [right]):
                parts, word = [left, right], OTHER[type(operator)]
            case ast.BoolOp(operator, parts):
                word = OTHER[type(operator)]
            case ast.BinOp(left, ast.Add() | ast.Sub() as operator, right):
                parts, word = [left, right], OTHER[type(operator)]
            case ast.UnaryOp(ast.Not(), operand):
                parts, word = [operand], ""
            case _:
                continue
        after = f" {word} ".join(f"({_of(source, part)})" for part in parts)
        yield Mutant(span(node), _of(source, node), after, source)


def span(node: ast.expr) -> Span:
    """Return where a node is."""
    return node.lineno, node.col_offset, node.end_lineno, node.end_col_offset


def _in_functions(tree: ast.Module) -> Iterator[ast.AST]:
    """Yield what runs when a function is called: not its decorators and default values."""
    inside: set[ast.AST] = set()
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(body=body) | ast.AsyncFunctionDef(body=body):
                inside.update(part for line in body for part in ast.walk(line))
            case ast.Lambda(body=body):
                inside.update(ast.walk(body))
            case _:
                pass
    return (node for node in ast.walk(tree) if node in inside)


def _of(source: str, node: ast.expr) -> str:
    return ast.get_source_segment(source, node) or ""
