"""Durations, shares and names as a person would say them."""

from html import unescape

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allotment.model.quantity import DAY, HOUR, MINUTE, SECOND
from allotment.sim.report.words import (
    counted,
    duration,
    fitted,
    listed,
    moment,
    number,
    percent,
    safe,
    short,
    width,
)


@pytest.mark.parametrize(
    ("ms", "words"),
    [
        (0, "0"),
        (-5, "0"),
        (0.2, "1 ms"),
        (340, "340 ms"),
        (999.9, "1 s"),
        (SECOND, "1 s"),
        (59_940, "59.9 s"),
        (59_960, "1 min"),
        (90 * SECOND, "1.5 min"),
        (59.97 * MINUTE, "1 h"),
        (23.9 * HOUR, "23.9 h"),
        (DAY, "1 day"),
        (36 * HOUR, "1.5 days"),
        (400 * DAY, "400 days"),
        (123_456 * DAY, "123,456 days"),
    ],
)
def test_durations(ms: float, words: str) -> None:
    assert duration(ms) == words


@given(st.floats(0, 1e15))
def test_a_duration_never_has_sixty_seconds_or_minutes(ms: float) -> None:
    assert duration(ms) not in {"1,000 ms", "60 s", "60 min", "24 h", "1 days"}


@pytest.mark.parametrize(
    ("part", "words"),
    [
        (0, "0 %"),
        (0.0001, "under 0.1 %"),
        (0.014, "1.4 %"),
        (0.0999, "10 %"),
        (0.5, "50 %"),
        (0.991, "99.1 %"),
        (0.99999, "over 99.9 %"),
        (1, "100 %"),
    ],
)
def test_shares(part: float, words: str) -> None:
    assert percent(part) == words


def test_numbers_lists_and_counts() -> None:
    assert [number(v) for v in (0, 1.25, 12, 82_247, 1e7)] == [
        "0",
        "1.25",
        "12",
        "82,247",
        "10,000,000",
    ]
    assert [listed(v) for v in ([], ["a"], ["a", "b"], ["a", "b", "c"])] == [
        "",
        "a",
        "a and b",
        "a, b and c",
    ]
    assert (counted(1, "job"), counted(2, "job")) == ("1 job", "2 jobs")
    assert short("abcdef", 4) == "abc…"


def test_an_instant_is_a_date_if_the_trace_has_dates() -> None:
    at = 1_507_000_000_000
    assert moment(at, at - 5) == "on 3 Oct 2017, 03:06"
    assert moment(2 * HOUR, 0) == "2 h after the first submission"
    assert moment(at, 0).endswith("days after the first submission")


@given(st.text())
def test_safe_text_holds_no_markup_and_no_hidden_characters(text: str) -> None:
    shown = safe(text)
    assert not set(shown) & set("<>\"'")
    assert shown.isprintable()
    kept = "".join(c if c.isprintable() else " " if c.isspace() else "\ufffd" for c in text)
    assert unescape(shown) == kept
    shown.encode()


@given(st.text(), st.floats(1, 500), st.sampled_from([10.5, 12.0]))
def test_what_is_fitted_fits(text: str, room: float, size: float) -> None:
    cut = fitted(text, room, size)
    assert cut == "…" or width(cut) * size <= room
    assert cut == text or text.startswith(cut.removesuffix("…"))


def test_only_what_does_not_fit_is_cut() -> None:
    assert fitted("team12", 60, 12) == "team12"
    assert fitted("W" * 30, 60, 12) == "WWW…"
    assert fitted("研究チーム非常", 60, 12) == "研究チ…"
