"""One class name, one class: within a package, no two classes have the same name.

Each backend is a package by itself.
"""

import ast
from collections import Counter
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src/allotment"
OWN = [folder for folder in SOURCE.iterdir() if (folder / "__init__.py").is_file()]
BACKENDS = [folder for folder in (SOURCE / "backends").iterdir() if any(folder.glob("*.py"))]
PACKAGES = sorted(str(folder.relative_to(SOURCE)) for folder in (*OWN, *BACKENDS))

TWICE = {"backends/kubernetes": {"_Status"}, "backends/local": {"Image", "Layer"}}
"""What is there twice still. Add none: remove a name from here when it is gone."""


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
    assert {name for name, count in names.items() if count > 1} == TWICE.get(package, set())
