"""A figure on the page: what came out, the picture, and how to read it."""

from collections.abc import Sequence

import msgspec

from allotment.sim.report.view import View
from allotment.sim.report.words import safe

NOT_FOLLOWED = "No job was placed, or none was followed."


class FigureTable(msgspec.Struct, frozen=True):
    """The same as a picture, for those who read better than they see."""

    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    words: int = 1
    """So many columns, from the left, are names; the others are amounts."""


class Figure(msgspec.Struct, frozen=True):
    """A picture with its words. `pictures` and `legend` are markup, all else is text."""

    key: str
    heading: str
    how: str
    """One sentence on how to read it."""
    finding: str = ""
    """One sentence on what came out."""
    pictures: tuple[str, ...] = ()
    """Empty when there is nothing to draw: then `finding` says so."""
    legend: str = ""
    full: bool = False
    """As wide as the page."""
    table: FigureTable | None = None


def markup(figure: Figure) -> str:
    """Write a figure down that has pictures."""
    plots = "".join(f'<div class="plot">{picture}</div>' for picture in figure.pictures)
    if len(figure.pictures) > 1:
        plots = f'<div class="plots">{plots}</div>'
    finding = f'<p class="finding">{safe(figure.finding)}</p>' if figure.finding else ""
    kind = ' class="full"' if figure.full else ""
    return (
        f'<figure id="{safe(figure.key)}"{kind}>'
        f"<figcaption><h3>{safe(figure.heading)}</h3>{finding}</figcaption>"
        f"{figure.legend}{plots}"
        f'<p class="how">How to read it: {safe(figure.how)}</p>{_as_table(figure)}</figure>'
    )


def _as_table(figure: Figure) -> str:
    table = figure.table
    if table is None or not table.rows:
        return ""
    head = "".join(
        f'<th scope="col"{_left(n, table)}>{safe(name)}</th>'
        for n, name in enumerate(table.head)
    )
    rows = "".join(
        "<tr>" + "".join(_cell(n, words, table) for n, words in enumerate(row)) + "</tr>"
        for row in table.rows
    )
    return (
        f"<details><summary>The same as a table</summary>"
        f'<div class="wide" tabindex="0" role="region" aria-label="{safe(figure.heading)}">'
        f"<table><caption>{safe(figure.heading)}</caption>"
        f"<thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div></details>"
    )


def _left(place: int, table: FigureTable) -> str:
    return ' class="w"' if place < table.words else ""


def _cell(place: int, words: str, table: FigureTable) -> str:
    if not place:
        return f'<th scope="row">{safe(words)}</th>'
    return f"<td{_left(place, table)}>{safe(words)}</td>"


def lines_legend(views: Sequence[View]) -> str:
    """Return which line is whose; nothing where there is only one."""
    return _legend(views, '<path class="curve p{0}" d="M0 6H34"/>')


def bars_legend(views: Sequence[View]) -> str:
    """Return which bar is whose; nothing where there is only one."""
    return _legend(views, '<path class="bar p{0}" fill="url(#h{0})" d="M1 1H33V11H1Z"/>')


def _legend(views: Sequence[View], sample: str) -> str:
    if len(views) < 2:
        return ""
    items = "".join(
        f'<li data-p="{view.index}"><svg aria-hidden="true" viewBox="0 0 34 12">'
        f"{sample.format(view.index)}</svg>{safe(view.name)}</li>"
        for view in views
    )
    return f'<ul class="legend">{items}</ul>'


def marks_legend(marks: Sequence[tuple[str, str]]) -> str:
    """Return what the marks of a picture mean: the words, and a sample as markup."""
    items = "".join(
        f'<li><svg aria-hidden="true" viewBox="0 0 34 12">{sample}</svg>{safe(words)}</li>'
        for words, sample in marks
    )
    return f'<ul class="legend">{items}</ul>' if items else ""
