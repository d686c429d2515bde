"""A figure on the page: what came out, the picture, and how to read it."""

from collections.abc import Sequence

import msgspec

from allotment.sim.report.view import View
from allotment.sim.report.words import safe


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


def markup(figure: Figure) -> str:
    """Write a figure down."""
    plots = "".join(f'<div class="plot">{picture}</div>' for picture in figure.pictures)
    if len(figure.pictures) > 1:
        plots = f'<div class="plots">{plots}</div>'
    finding = f'<p class="finding">{safe(figure.finding)}</p>' if figure.finding else ""
    how = f'<p class="how">How to read it: {safe(figure.how)}</p>' if plots else ""
    kind = ' class="full"' if figure.full else "" if plots else ' class="none"'
    return (
        f'<figure id="{safe(figure.key)}"{kind}>'
        f"<figcaption><h3>{safe(figure.heading)}</h3>{finding}</figcaption>"
        f"{figure.legend if plots else ''}{plots}{how}</figure>"
    )


def lines_legend(views: Sequence[View]) -> str:
    """Say which line is whose; nothing where there is only one."""
    return _legend(views, '<path class="curve p{0}" d="M0 6H34"/>')


def bars_legend(views: Sequence[View]) -> str:
    """Say which bar is whose; nothing where there is only one."""
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
