"""One class name, one class: within a package, no two classes have the same name.

Each backend is a package by itself. In the packages that decide, names of types count too.
"""

import ast
from collections import Counter
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src/allotment"
OWN = [folder for folder in SOURCE.iterdir() if (folder / "__init__.py").is_file()]
BACKENDS = [folder for folder in (SOURCE / "backends").iterdir() if any(folder.glob("*.py"))]
PACKAGES = sorted(str(folder.relative_to(SOURCE)) for folder in (*OWN, *BACKENDS))

PURE = ("core", "engine", "explain", "model", "policies")
"""Packages in which `Name = list[int]` is a type by that name, as a class would be."""


def files_of(package: str) -> list[Path]:
    """Return the modules of a package; of `backends` those that are of no one backend."""
    folder = SOURCE / package
    return sorted(folder.glob("*.py") if package == "backends" else folder.rglob("*.py"))


def test_every_module_is_in_one_package() -> None:
    counted = [path for package in PACKAGES for path in files_of(package)]
    inside = [path for path in SOURCE.rglob("*.py") if path.parent != SOURCE]
    assert sorted(counted) == sorted(inside)


@pytest.mark.parametrize("package", PACKAGES)
def test_no_class_name_is_there_twice(package: str) -> None:
    names = Counter(
        node.name
        for path in files_of(package)
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.ClassDef)
    )
    assert {name for name, count in names.items() if count > 1} == set()


@pytest.mark.parametrize("package", PURE)
def test_no_name_stands_for_two_types(package: str) -> None:
    meanings: dict[str, set[str]] = {}
    for path in files_of(package):
        for node in ast.parse(path.read_text("utf-8")).body:
            match node:
                case ast.ClassDef(name=name):
                    meanings.setdefault(name, set()).add(f"the class of {path}")
                case ast.Assign(targets=[ast.Name(name)], value=value) if is_type_name(name):
                    meanings.setdefault(name, set()).add(ast.unparse(value))
                case _:
                    pass
    assert {name: those for name, those in meanings.items() if len(those) > 1} == {}


def is_type_name(name: str) -> bool:
    """Whether a name is written as those of types are, and not as those of constants."""
    return name.lstrip("_")[:1].isupper() and not name.isupper()
