"""How values look on a screen."""

import pytest

from allotment.cli.words import count, harmless, show_age, show_span, some
from allotment.model.quantity import DAY, HOUR, MINUTE, SECOND


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (-1, "-"),
        (0, "0s"),
        (999, "0s"),
        (59 * SECOND, "59s"),
        (MINUTE, "1m"),
        (3 * MINUTE + 20 * SECOND, "3m20s"),
        (10 * MINUTE + 59 * SECOND, "10m"),
        (HOUR, "1h"),
        (2 * HOUR + 5 * MINUTE, "2h5m"),
        (31 * HOUR + MINUTE, "31h"),
        (2 * DAY, "2d"),
        (3 * DAY + 4 * HOUR, "3d4h"),
        (400 * DAY, "400d"),
    ],
)
def test_a_span_is_short(ms: int, text: str) -> None:
    assert show_span(ms) == text
    assert len(text) <= 6


def test_an_age_is_never_negative_and_what_never_was_has_none() -> None:
    assert show_age(0, 1000) == "-"
    assert show_age(5000, 1000) == "0s"


def test_words_for_numbers_and_lists() -> None:
    assert (count(1, "job"), count(0, "job")) == ("1 job", "0 jobs")
    assert (some([]), some(["n1"]), some(["n1", "n2", "n3"])) == ("-", "n1", "n1 +2")


def test_text_of_a_job_cannot_steer_the_terminal() -> None:
    assert harmless("a\x1b[2J\rb\x9b\ttab\n größe") == r"a\x1b[2J\rb\x9b\ttab" + "\n größe"
