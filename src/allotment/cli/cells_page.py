"""The cells as a page: every leaf a square in the colour of its owner. One file, no scripts.

Colours are Okabe and Ito's, which people with any colour vision can tell apart; what is
lent is striped, what is out of use crossed out, and everything has a title in words.
"""

from collections.abc import Iterator
from html import escape

from allotment.cli.words import show_age
from allotment.service.cells_view import CellTree, CellView

COLOURS = (
    "#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#5B5B5B",
)  # fmt: skip
"""The colours of tenants, in their order; from the ninth on again, with an edge."""
STATES = {"u": "used", "l": "lent", "o": "bound", ".": "free", "x": "out of use"}

STYLE = """\
body{font:14px/1.4 system-ui,sans-serif;margin:1.5rem;color:#222;background:#fff}
h1{font-size:1.3rem;margin:0 0 .3rem}h2{font-size:1rem;margin:1.2rem 0 .4rem}
p{margin:.2rem 0;max-width:60rem}ul{list-style:none;padding:0;display:flex;flex-wrap:wrap;
gap:.3rem 1.2rem}
.roots{display:flex;flex-wrap:wrap;gap:.5rem}
.root{border:1px solid #bbb;border-radius:4px;padding:.25rem .4rem}
.root>b{font-weight:600;font-size:.8rem}
.nodes{display:flex;flex-wrap:wrap;gap:.3rem}
.node{border:1px solid #ddd;border-radius:3px;padding:.15rem .25rem;font-size:.7rem}
.node.ill{border:2px dashed #222}
.leaves{display:grid;grid-template-columns:repeat(auto-fill,12px);gap:2px;margin-top:1px}
i{display:block;width:12px;height:12px;box-sizing:border-box;border:1px solid #8888;
background:#fff;border-radius:2px}
ul i{display:inline-block;vertical-align:-2px;margin-right:.35rem}
.l{background-image:repeating-linear-gradient(45deg,#fff 0 2px,transparent 2px 5px)}
.o{box-shadow:inset 0 0 0 3px #fff}
.x{background:linear-gradient(45deg,#0000 45%,#222 45% 55%,#0000 55%),
linear-gradient(-45deg,#ddd 45%,#222 45% 55%,#ddd 55%)}
.edge{border:2px solid #000}.any{background-color:#888}
"""


def page(tree: CellTree, now: int) -> str:
    """Return the page. `now` is in milliseconds since the epoch."""
    return "".join(_page(tree, now))


def _page(tree: CellTree, now: int) -> Iterator[str]:
    yield '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Cells</title>'
    yield f"<style>{STYLE}{''.join(_colours(tree))}</style></head><body>"
    yield "<h1>Cells</h1><p>Every square is a leaf cell, in the colour of the tenant that has "
    yield "it now; a lent cell has the colour of the borrower.</p><ul>"
    for at, tenant in enumerate(tree.tenants):
        yield f'<li><i class="u {_classes(at)}"></i>{escape(tenant)}</li>'
    for letter, word in STATES.items():
        colour = "" if letter in ".x" else " any"
        yield f'<li><i class="{_letter(letter)}{colour}"></i>{word}</li>'
    yield "<li>a dashed frame: not healthy</li></ul>"
    kinds = dict.fromkeys(root.type for root in tree.roots)
    places = {tenant: at for at, tenant in enumerate(tree.tenants)}
    for kind in kinds:
        roots = [root for root in tree.roots if root.type == kind]
        yield f'<h2>{escape(kind)}: {len(roots):,}</h2><div class="roots">'
        for root in roots:
            yield from _root(root, places, now)
        yield "</div>"
    yield "</body></html>\n"


def _colours(tree: CellTree) -> Iterator[str]:
    for at in range(min(len(tree.tenants), len(COLOURS))):
        yield f".t{at}{{background-color:{COLOURS[at]}}}"


def _classes(place: int) -> str:
    edge = " edge" if place >= len(COLOURS) else ""
    return f"t{place % len(COLOURS)}{edge}"


def _letter(letter: str) -> str:
    return "f" if letter == "." else letter


def _root(root: CellView, places: dict[str, int], now: int) -> Iterator[str]:
    if root.marks:
        yield from _node(root, places, now)
        return
    yield f'<div class="root" title="{escape(_title(root, now))}"><b>{escape(root.name)}</b>'
    yield '<div class="nodes">'
    for node in _nodes(root):
        yield from _node(node, places, now)
    yield "</div></div>"


def _nodes(cell: CellView) -> Iterator[CellView]:
    if cell.marks:
        yield cell
        return
    for part in cell.cells:
        yield from _nodes(part)


def _node(node: CellView, places: dict[str, int], now: int) -> Iterator[str]:
    ill = " ill" if node.health != "healthy" else ""
    width = min(len(node.marks), 8) * 14
    yield f'<div class="node{ill}" title="{escape(_title(node, now))}">{escape(node.node)}'
    yield f'<div class="leaves" style="width:{width}px">'
    tenants = _tenants(node)
    for place, letter in enumerate(node.marks):
        whose = tenants.get(place, "")
        colour = f" {_classes(places[whose])}" if whose in places else ""
        yield f'<i class="{_letter(letter)}{colour}"></i>'
    yield "</div></div>"


def _tenants(node: CellView) -> dict[int, str]:
    """Return whose colour each leaf has: its owner's, or its borrower's."""
    found = {leaf: owner.tenant for owner in node.owners for leaf in owner.leaves}
    lent = {
        leaf: user.tenant
        for user in node.users
        if user.borrows and not user.reserved
        for leaf in user.leaves
        if node.marks[leaf] == "l"
    }
    return {**{k: v for k, v in found.items() if node.marks[k] != "x"}, **lent}


def _title(cell: CellView, now: int) -> str:
    counts = (
        (cell.used, "used"), (cell.lent, "lent"), (cell.bound, "bound"), (cell.free, "free"),
        (cell.bad, "out of use"),
    )  # fmt: skip
    lines = [f"{cell.name}{f' ({cell.node})' if cell.node else ''}, {cell.type}"]
    lines.append(", ".join(f"{number:,} {word}" for number, word in counts if number))
    if cell.health != "healthy":
        since = f" for {show_age(cell.since, now)}" if cell.since else ""
        lines.append(f"{cell.health}{since}")
    lines += [
        f"{owner.tenant}: {owner.type}{f', pin {owner.pin}' if owner.pin else ''}"
        for owner in cell.owners
    ]
    lines += [
        f"job {user.job} of {user.tenant}"
        + (", borrowed" if user.borrows else "")
        + (", reserved" if user.reserved else "")
        for user in cell.users
    ]
    return "\n".join(lines)
