"""Every help page fits a terminal of eighty columns, and no word is cut."""

import re
from collections.abc import Iterator

import pytest
import typer
import typer.core
import typer.main

from allotment.cli.app import VERBS, build, overview
from allotment.cli.habits import ALSO, HABITS, OF_A_JOB, habit
from tests.support.invoke import allot

NARROW = 80


def pages(
    command: typer.core.TyperCommand | typer.core.TyperGroup, words: tuple[str, ...] = ()
) -> Iterator[tuple[str, ...]]:
    for name, inner in getattr(command, "commands", {}).items():
        yield from pages(inner, (*words, name))
    if words:
        yield words


PAGES = list(pages(typer.main.get_command(build(list(VERBS)))))  # type: ignore[arg-type]


def test_there_are_pages_of_verbs_within_verbs() -> None:
    assert ("sim", "run") in PAGES
    assert ("run",) in PAGES
    assert len(PAGES) > len(VERBS)


@pytest.mark.parametrize("words", PAGES, ids=" ".join)
def test_a_page_fits_eighty_columns(
    words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(NARROW))
    lines = allot(*words, "--help").out.splitlines()
    assert lines
    assert [line for line in lines if len(line) > NARROW] == []


@pytest.mark.parametrize("words", PAGES, ids=" ".join)
def test_a_page_says_what_to_type_and_of_no_type(words: tuple[str, ...]) -> None:
    page = allot(*words, "--help").out
    assert re.findall(r"<(?:str|int|float|path|list|[a-z]+\b[^>\n]*)>", page) == []
    assert "…]" not in page.splitlines()[0]


def test_an_option_names_its_value() -> None:
    page = allot("top", "--help").out + allot("cancel", "--help").out
    for shown in ("--by cpu|memory|gpu|job ", "--user USER ", "cancel [OPTIONS] [JOB]..."):
        assert shown in page


def test_the_overview_is_wrapped_at_words_and_aligned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(NARROW))
    lines = overview().splitlines()
    assert [line for line in lines if len(line) > NARROW] == []
    begins = {line.index(line.split(maxsplit=1)[1]) for line in lines if verb_of(line)}
    assert len(begins) == 1
    monkeypatch.setenv("COLUMNS", "200")
    assert set(overview().split()) == {word for line in lines for word in line.split()}


def verb_of(line: str) -> bool:
    return line[:2] == "  " and line.split()[0] in VERBS


# ── verbs of other tools ────────────────────────────────────────────────────────────────


def test_a_habit_leads_to_a_verb_of_ours() -> None:
    ours = {wanted.split()[0] for wanted in HABITS.values()} - {"--version"}
    assert ours <= set(VERBS)
    assert set(ALSO) <= set(HABITS)
    assert set(HABITS.values()) >= OF_A_JOB - {"why", "eta"}


@pytest.mark.parametrize(
    ("typed", "hint"),
    [
        (["kill", "12"], "Try: allot cancel 12"),
        (["kill"], "Try: allot cancel JOB"),
        (["attach", "last"], "Try: allot logs -f last"),
        (["top"], "Try: allot ps"),
        (["list", "--mine"], "Try: allot ps --mine"),
        (["delete", "12", "13"], "Try: allot cancel 12 13"),
        (["status"], "Try: allot ps    One job: allot show JOB    The service: allot doctor"),
    ],
)
def test_a_verb_of_another_tool_is_answered_with_ours(typed: list[str], hint: str) -> None:
    found = habit(typed, ("ps",))
    assert found is not None
    assert (found.exit_code, found.hint) == (2, hint)


def test_a_verb_of_ours_is_no_habit() -> None:
    assert habit(["top"], ("top",)) is None
    assert habit(["sumbit"], VERBS) is None
    assert habit([], VERBS) is None
