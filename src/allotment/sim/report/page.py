"""The whole page."""

from base64 import b64encode
from collections.abc import Sequence
from hashlib import sha256

from allotment.sim.outcome import Run
from allotment.sim.report import bars, cdf, gantt, heat, occupied, series
from allotment.sim.report.figure import Figure, markup
from allotment.sim.report.findings import overall
from allotment.sim.report.heading import footer, heading, title
from allotment.sim.report.look import PALETTE, STYLE, colours, hatching, shades
from allotment.sim.report.script import SCRIPT
from allotment.sim.report.table import table
from allotment.sim.report.view import views
from allotment.sim.report.words import safe


def render(runs: Sequence[Run]) -> str:
    """Make one self-contained HTML page of one run, or of several to be compared.

    The first run is what the others are compared with. Nothing is loaded from elsewhere, and
    the page allows itself no script but its own. Takes O(n log n) in jobs; the size depends
    on the runs, not on their jobs.
    """
    all_views = views(runs)
    looks = max(len(all_views), len(PALETTE))
    style = STYLE + colours(looks) + shades()
    figures = [
        draw(all_views)
        for draw in (
            cdf.completion,
            cdf.waiting,
            series.utilisation,
            series.queue,
            bars.by_tenant,
            bars.by_size,
            occupied.cluster if occupied.is_small(all_views) else heat.cluster,
            gantt.jobs,
        )
    ]
    found = "".join(f"<li>{safe(words)}</li>" for words in overall(all_views))
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_allowed(style)}">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{safe(title(all_views))}</title><style>{style}</style></head>\n"
        f"<body>{hatching(looks)}<header>{heading(all_views)}</header>\n<main>"
        f'<h2>What came out</h2><ul class="found">{found}</ul>\n'
        f"<h2>Figures</h2>{table(all_views)}\n"
        f"<h2>Pictures</h2>{_pictures(figures)}</main>"
        f"{footer(all_views)}<script>{SCRIPT}</script></body></html>\n"
    )


def _pictures(figures: Sequence[Figure]) -> str:
    """Write the figures down; those with nothing to show only if there are others."""
    if not any(figure.pictures for figure in figures):
        return "<p>No job completed: nothing to draw.</p>"
    drawn = [markup(figure) for figure in figures if figure.pictures]
    others = "".join(
        f"<li>{safe(figure.heading)}: {safe(figure.finding)}</li>"
        for figure in figures
        if not figure.pictures
    )
    missing = f'<p>Not drawn:</p><ul class="notes">{others}</ul>' if others else ""
    return f'<div class="grid">\n{chr(10).join(drawn)}\n</div>{missing}'


def _allowed(style: str) -> str:
    """Name the only style sheet and the only script that the page may use."""
    return (
        f"default-src 'none'; style-src '{_digest(style)}'; script-src '{_digest(SCRIPT)}'; "
        "base-uri 'none'; form-action 'none'"
    )


def _digest(words: str) -> str:
    return f"sha256-{b64encode(sha256(words.encode()).digest()).decode()}"
