"""Which columns a screen gets."""

from hypothesis import given
from hypothesis import strategies as st

from allotment.cli.table import GAP, Column, aligned, fitted

COLUMNS = [
    Column("ID"),
    Column("NAME", flexible=True),
    Column("USER", rank=2),
    Column("GPU", rank=1),
]


def test_everything_is_shown_where_there_is_room() -> None:
    assert fitted(COLUMNS, [4, 20, 8, 3], 41) == {0: 4, 1: 20, 2: 8, 3: 3}


def test_flexible_columns_shrink_before_any_is_left_out() -> None:
    assert fitted(COLUMNS, [4, 20, 8, 3], 30) == {0: 4, 1: 9, 2: 8, 3: 3}


def test_the_least_important_column_goes_first() -> None:
    assert fitted(COLUMNS, [4, 20, 8, 3], 24) == {0: 4, 1: 13, 3: 3}
    assert fitted(COLUMNS, [4, 20, 8, 3], 15) == {0: 4, 1: 9}


def test_at_the_narrowest_what_always_stays_is_there() -> None:
    assert set(fitted(COLUMNS, [4, 20, 8, 3], 1)) == {0, 1}


@given(st.lists(st.integers(1, 60), min_size=4, max_size=4), st.integers(14, 200))
def test_a_table_fits_any_screen_that_holds_what_must_stay(
    widths: list[int], room: int
) -> None:
    chosen = fitted(COLUMNS, widths, room)
    total = sum(chosen.values()) + GAP * (len(chosen) - 1)
    must = widths[0] + GAP + min(widths[1], 8)
    assert total <= room or must > room


def test_lines_are_aligned_without_blanks_at_the_end() -> None:
    right = [Column("A", right=True), Column("B")]
    assert aligned([["1", "x"], ["22", ""]], right) == [" 1  x", "22"]
