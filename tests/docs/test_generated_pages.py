"""The generated pages of docs/ say what the code says."""

import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("script", "page"),
    [("lifecycle_docs", "docs/lifecycle.md"), ("exit_code_docs", "docs/guide/exit-codes.md")],
)
def test_page_is_up_to_date(script: str, page: str) -> None:
    spec = importlib.util.spec_from_file_location(script, ROOT / "scripts" / f"{script}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    committed = (ROOT / page).read_text(encoding="utf-8")
    assert module.page() == committed, f"{page} is out of date: run `make docs`"
