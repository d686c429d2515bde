"""The files around the code keep their promises."""

import os
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LOCKS = ["requirements/runtime.txt", "requirements/dev.txt"]


@pytest.mark.parametrize("lock", LOCKS)
def test_every_locked_package_is_pinned_and_hashed(lock: str) -> None:
    text = (ROOT / lock).read_text(encoding="utf-8").replace("\\\n", "")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    assert lines
    for line in lines:
        assert re.match(r"[a-z0-9-]+==\S+ .*--hash=sha256:[0-9a-f]{64}", line), line


@pytest.mark.parametrize("lock", LOCKS)
def test_locks_name_no_host(lock: str) -> None:
    assert "://" not in (ROOT / lock).read_text(encoding="utf-8")


def test_the_smaller_lock_is_part_of_the_larger_one() -> None:
    runtime, dev = ((ROOT / lock).read_text(encoding="utf-8") for lock in LOCKS)
    pins = re.compile(r"^\S+==\S+", re.MULTILINE)
    assert set(pins.findall(runtime)) <= set(pins.findall(dev))


def test_every_make_target_has_a_line_of_help() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = re.findall(r"^([a-z-]+):(?!=)", makefile, re.MULTILINE)
    shown = subprocess.run(
        ["make", "--no-print-directory", "help"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert targets
    assert set(targets) == {line.split()[0] for line in shown.splitlines()}


def test_every_decision_has_a_number_of_its_own_and_says_it() -> None:
    pages = sorted((ROOT / "docs" / "adr").glob("*.md"))
    numbers = [page.name.partition("-")[0] for page in pages]
    assert len(set(numbers)) == len(numbers)
    for number, page in zip(numbers, pages, strict=True):
        assert page.read_text(encoding="utf-8").startswith(f"# {number}: "), page.name
    index = (ROOT / "docs" / "decisions.md").read_text(encoding="utf-8")
    assert [page.name for page in pages if f"](adr/{page.name})" not in index] == []


@pytest.mark.parametrize("script", ["loops", "mlflow"])
def test_a_folder_of_something_else_is_not_removed_for_an_environment(
    tmp_path: Path, script: str
) -> None:
    mine = tmp_path / "thesis.tex"
    mine.write_text("the only copy")
    where = {f"ALLOT_TEST_{script.upper()}": str(tmp_path)}
    made = subprocess.run(
        [ROOT / "scripts" / script],
        env=os.environ | where,
        capture_output=True,
        text=True,
        check=False,
    )
    assert mine.read_text() == "the only copy"
    assert made.returncode == 1
    assert "is in use for something else" in made.stderr
    assert list(tmp_path.iterdir()) == [mine]
