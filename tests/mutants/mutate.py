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
    text: str
    """The whole source."""

    @property
    def line(self) -> int:
        """From 1."""
        return self.span[0]


def mutants(source: str) -> Iterator[Mutant]:
    """Yield every mutant of a source, outer expressions first."""
    for node in _in_functions(ast.parse(source)):
        match node:
            case ast.Compare(left, [operator], [right]):
                yield from _with(source, node, f"({_of(source, left)}) {OTHER[type(operator)]}"
                                               f" ({_of(source, right)})")  # fmt: skip
            case ast.BoolOp(operator, values):
                word = f" {OTHER[type(operator)]} "
                yield from _with(source, node, word.join(f"({_of(source, v)})" for v in values))
            case ast.UnaryOp(ast.Not(), operand):
                yield from _with(source, node, f"({_of(source, operand)})")
            case ast.BinOp(left, ast.Add() | ast.Sub() as operator, right):
                yield from _with(source, node, f"({_of(source, left)}) {OTHER[type(operator)]}"
                                               f" ({_of(source, right)})")  # fmt: skip
            case _:
                pass


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


def _with(source: str, node: ast.expr, after: str) -> Iterator[Mutant]:
    """Yield the source with a node replaced, if that still is a source."""
    before = _of(source, node)
    lines = source.encode().splitlines(keepends=True)
    begin = sum(len(line) for line in lines[: node.lineno - 1]) + node.col_offset
    assert node.end_lineno is not None
    assert node.end_col_offset is not None
    end = sum(len(line) for line in lines[: node.end_lineno - 1]) + node.end_col_offset
    raw = source.encode()
    text = (raw[:begin] + b"(" + after.encode() + b")" + raw[end:]).decode()
    try:
        compile(text, "mutant", "exec")
    except SyntaxError:
        return
    yield Mutant(span(node), before, after, text)
