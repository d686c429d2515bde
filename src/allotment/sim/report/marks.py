"""The few shapes that the pictures are made of, as SVG text."""

from collections.abc import Iterable

import msgspec

from allotment.sim.report.scales import Scale, Ticks
from allotment.sim.report.words import safe

WIDTH = 560
"""Every picture's width in its own units; a page shows it at about one pixel each."""

HALF_LETTER = 3.8
"""Half the width of a letter, about."""


class Box(msgspec.Struct, frozen=True):
    """The part of a picture inside its axes."""

    left: float
    top: float
    right: float
    bottom: float


class Picture(msgspec.Struct, frozen=True):
    """What an `svg` needs around its shapes."""

    key: str
    """Unique on the page."""
    title: str
    says: str
    """What it shows, for those who cannot see it."""
    height: float


def px(value: float) -> str:
    """Write a coordinate, to a tenth of a pixel."""
    return f"{value:.1f}".removesuffix(".0")


def svg(picture: Picture, shapes: Iterable[str], extra: str = "") -> str:
    """Put shapes into a picture with a title and a description. `extra` is markup."""
    key = safe(picture.key)
    return (
        f'<svg viewBox="0 0 {WIDTH} {px(picture.height)}" role="img" '
        f'aria-labelledby="{key}-t {key}-d"{extra}>'
        f'<title id="{key}-t">{safe(picture.title)}</title>'
        f'<desc id="{key}-d">{safe(picture.says)}</desc>{"".join(shapes)}</svg>'
    )


def text(x: float, y: float, words: str, kind: str = "", turn: int = 0) -> str:
    """Write words; `kind` is a class: m (middle), e (ends here), s (small), b (bold)."""
    name = f' class="{kind}"' if kind else ""
    turned = f' transform="rotate({turn} {px(x)} {px(y)})"' if turn else ""
    return f'<text x="{px(x)}" y="{px(y)}"{name}{turned}>{safe(words)}</text>'


def label(x: float, y: float, words: str) -> str:
    """Write words below `x`, moved in where they would be cut off at the right."""
    if x + len(words) * HALF_LETTER > WIDTH:
        return text(WIDTH - 1, y, words, "e")
    return text(x, y, words, "m")


def line(x1: float, y1: float, x2: float, y2: float, kind: str = "grid") -> str:
    """Draw a straight line."""
    return f'<path class="{kind}" d="M{px(x1)} {px(y1)}L{px(x2)} {px(y2)}"/>'


def steps(points: Iterable[tuple[float, float]], until: float | None = None) -> str:
    """Return the path that keeps each point's height until the next, in pixels.

    Points that would not change a pixel are left out; `until` is where the last one ends.
    """
    path: list[str] = []
    height = ""
    for x, y in points:
        new = px(y)
        if not path:
            path.append(f"M{px(x)} {new}")
        elif new != height:
            path.append(f"H{px(x)}V{new}")
        height = new
    if path and until is not None:
        path.append(f"H{px(until)}")
    return "".join(path)


def curve(index: int, path: str, name: str) -> str:
    """Draw the line of a run; `name` is what pointing at it shows."""
    return (
        f'<path class="curve p{index}" data-p="{index}" data-name="{safe(name)}" d="{path}">'
        f"<title>{safe(name)}</title></path>"
    )


def axes(box: Box, across: tuple[Scale, Ticks, str], up: tuple[Scale, Ticks, str]) -> str:
    """Draw the grid, the labels of both axes and their names."""
    x, x_ticks, x_name = across
    y, y_ticks, y_name = up
    shapes = [
        line(box.left, y.at(value), box.right, y.at(value))
        + text(box.left - 7, y.at(value) + 4, words, "e")
        for value, words in y_ticks
    ]
    shapes += [
        line(x.at(value), box.top, x.at(value), box.bottom)
        + label(x.at(value), box.bottom + 17, words)
        for value, words in x_ticks
    ]
    shapes.append(line(box.left, box.bottom, box.right, box.bottom, "axis"))
    shapes.append(text((box.left + box.right) / 2, box.bottom + 36, x_name, "m n"))
    if y_name:
        shapes.append(text(box.left - 7, box.top - 11, y_name, "n"))
    return "".join(shapes)


def read_off(box: Box, x: Scale, y: Scale, kinds: tuple[str, str]) -> str:
    """Return the attributes by which the page's script reads values off a picture.

    `kinds` names what the axes measure: length, moment, share, count, or power (a count on a
    logarithmic axis).
    """
    numbers = (box.left, box.right, box.top, box.bottom, x.low, x.high, y.low, y.high)
    values = " ".join(f"{value:g}" if abs(value) < 1e6 else f"{value:.0f}" for value in numbers)
    return f' data-read="{values} {kinds[0]} {kinds[1]}"'
