"""The core stays small enough to keep in mind: its files, its levels and its lines of code.

A level counts imports as they are made when a module is run: those inside functions too, those
under `TYPE_CHECKING` not. There are none of the latter. The bounds are what there is now: a
change may lower them.
"""

import ast
import io
import tokenize
from functools import cache
from pathlib import Path

SOURCES = Path(__file__).parents[2] / "src"
CORE = sorted((SOURCES / "allotment/core").rglob("*.py"))
BLANK = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}

MOST_FILES = 58
MOST_LEVELS = 10
MOST_LINES = 9_000


def name_of(path: Path) -> str:
    """Return the name by which a module is imported."""
    return ".".join(path.relative_to(SOURCES).with_suffix("").parts).removesuffix(".__init__")


MODULES = {name_of(path): path for path in CORE}


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text("utf-8"))


def imports_of(module: str) -> set[str]:
    """Name the modules of the core that one imports anywhere."""
    found: set[str] = set()
    for node in ast.walk(tree_of(MODULES[module])):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.module, "no relative imports"
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found & MODULES.keys() - {module}


@cache
def level_of(module: str) -> int:
    """Return 1 for a module that imports none of the core, else one more than those it does."""
    return 1 + max(map(level_of, imports_of(module)), default=0)


def lines_of(path: Path) -> int:
    """Count the lines with code: none that are blank, or have but a comment or a docstring."""
    text = path.read_text("utf-8")
    strings = (
        node
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )
    told = {line for node in strings for line in range(node.lineno, (node.end_lineno or 0) + 1)}
    code = {
        line
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type not in BLANK
        for line in range(token.start[0], token.end[0] + 1)
    }
    return len(code - told)


def test_the_core_has_few_files() -> None:
    assert len(CORE) <= MOST_FILES


def test_the_core_has_few_levels() -> None:
    assert max(map(level_of, MODULES)) <= MOST_LEVELS


def test_the_core_has_few_lines() -> None:
    assert sum(map(lines_of, CORE)) <= MOST_LINES


def test_no_import_of_the_core_is_hidden_from_the_count() -> None:
    hidden = [
        name
        for name, path in MODULES.items()
        if any(
            isinstance(node, ast.Name) and node.id == "TYPE_CHECKING"
            for node in ast.walk(tree_of(path))
        )
    ]
    inside = [
        name
        for name, path in MODULES.items()
        for function in ast.walk(tree_of(path))
        if isinstance(function, ast.FunctionDef)
        for node in ast.walk(function)
        if isinstance(node, ast.Import | ast.ImportFrom)
    ]
    assert (hidden, inside) == ([], [])
