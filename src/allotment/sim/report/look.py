"""Colours, dashes and hatching, and the style sheet of the page."""

PALETTE = (
    ("#0072B2", "#56B4E9"),
    ("#D55E00", "#E07B39"),
    ("#009E73", "#1FBF92"),
    ("#CC79A7", "#CC79A7"),
    ("#1B1B1B", "#F2F2F2"),
    ("#B97E00", "#E69F00"),
    ("#3D93CC", "#4A90C2"),
    ("#7A7A7A", "#F0E442"),
)
"""Okabe and Ito's colours, in an order that keeps neighbours apart: on light, on dark.

Two are darker on light than theirs, so that all stand out from the paper by 3 to 1.
"""

DASHES = ("none", "9 4", "2.5 3", "10 3 2.5 3", "5 2.5", "14 4", "1.5 2", "10 3 2 3 2 3")

HATCHES = (
    "",
    "M0 6L6 0",
    "M3 0V6",
    "M0 0L6 6",
    "M0 3H6",
    "M0 3H6M3 0V6",
    "M3 2.9V3.1M0 0V.1M6 0V.1",
    "M0 6L6 0M0 0L6 6",
)
"""What is drawn over the colour of a bar, in a square of 6 × 6."""

LEVELS = 8
"""Shades of the map of the cluster, beside the one for nothing."""

SHADES = (("#eceef1", "#0b4f8a"), ("#2a2e35", "#7cc4f5"))
"""From nothing to all, on light and on dark."""

STYLE = """
:root{color-scheme:light dark;--ink:#1b1d21;--dim:#555b66;--paper:#fff;--card:#fff;
--line:#d9dce1;--faint:#eceef1;--mark:#eaf3fa}
@media (prefers-color-scheme:dark){:root{--ink:#e9eaec;--dim:#a6acb7;--paper:#131519;
--card:#1a1d22;--line:#383d46;--faint:#2a2e35;--mark:#1d3345}}
*{box-sizing:border-box}
body{margin:0 auto;padding:28px 24px 40px;max-width:1280px;background:var(--paper);
color:var(--ink);font:16px/1.5 system-ui,-apple-system,"Segoe UI","DejaVu Sans",sans-serif}
h1{font-size:1.75rem;line-height:1.2;margin:0 0 4px;overflow-wrap:anywhere}
h2{font-size:1.2rem;margin:32px 0 8px}h3{font-size:1rem;margin:0}
p{margin:4px 0}ul{margin:6px 0;padding-left:22px}
.lead{color:var(--dim);overflow-wrap:anywhere}
.facts{display:grid;grid-template-columns:max-content 1fr;gap:2px 18px;margin:16px 0;
font-size:.9rem}
.facts dt{color:var(--dim);grid-column:1}.facts dd{margin:0;grid-column:2;
overflow-wrap:anywhere}
.warn{border-left:4px solid #e69f00;padding:4px 0 4px 12px;margin:12px 0}
.warn li,.warn p,.found li{overflow-wrap:anywhere}
.wide{overflow-x:auto}
table{border-collapse:collapse;font-size:.76rem;font-variant-numeric:tabular-nums;width:100%}
caption{text-align:left;color:var(--dim);padding-bottom:6px}
th,td{padding:5px;text-align:right;white-space:nowrap;border-bottom:1px solid var(--line)}
thead th{font-weight:600;vertical-align:bottom}
tbody th{text-align:left;white-space:normal;max-width:16em;overflow-wrap:break-word}
thead th:first-child[rowspan]{text-align:left}
th.g{text-align:center;border-left:1px solid var(--line)}
.f{border-left:1px solid var(--line)}
td.best{font-weight:700;background:var(--mark)}
td i{font-style:normal}
.w{text-align:left}details{margin-top:6px}summary{cursor:pointer;font-size:.84rem;color:var(--dim)}
.notes{font-size:.84rem;color:var(--dim)}
.defs{display:grid;grid-template-columns:repeat(3,minmax(0,1fr));gap:4px 24px;margin:8px 0}
.defs dt{font-weight:600;display:inline}.defs dt::after{content:": "}
.defs dd{display:inline;margin:0}
.grid{display:grid;grid-template-columns:repeat(2,minmax(0,1fr));gap:16px}
figure{margin:0;padding:14px 16px;border:1px solid var(--line);border-radius:8px;
background:var(--card);min-width:0;break-inside:avoid}
figure.full{grid-column:1/-1}
.finding{font-weight:600;margin:2px 0 6px;overflow-wrap:anywhere}
.how{font-size:.84rem;color:var(--dim)}
.plots{display:grid;grid-template-columns:repeat(2,minmax(0,1fr));gap:4px 28px}
.plot{overflow-x:auto}.plot svg{display:block;width:100%;min-width:430px;height:auto;
max-width:700px}
svg text{font-size:12px;fill:var(--ink)}
svg text.m{text-anchor:middle}svg text.e{text-anchor:end}
svg text.n,svg text.s{fill:var(--dim)}svg text.s{font-size:10.5px}svg text.b{font-weight:600}
.grid-line,path.grid{stroke:var(--faint);fill:none}path.axis{stroke:var(--dim);fill:none}
.curve{fill:none;stroke:var(--c);stroke-width:2;stroke-dasharray:var(--d)}
.area{fill:var(--c);fill-opacity:.28;stroke:var(--c);stroke-width:1}
.bar{stroke:var(--c);stroke-width:1}
.tint{fill:var(--c)}.hatch{stroke:var(--paper);stroke-opacity:.6;stroke-width:1.5;fill:none;
stroke-linecap:square}
.job{fill:var(--c)}.edge{fill:none;stroke:var(--card);stroke-width:1;pointer-events:all}
.wait{stroke:var(--dim);stroke-width:1.5;stroke-dasharray:1.5 2.5;fill:none}
.gone{stroke:var(--ink);stroke-width:1.3;fill:none}.halo{stroke:var(--card);stroke-width:3.4;fill:none}
.queue{fill:var(--dim);fill-opacity:.45}
svg text.in{font-size:10.5px;paint-order:stroke;stroke:var(--card);stroke-width:3px;
stroke-linejoin:round}
.heat{fill:none;shape-rendering:crispEdges}
.legend{list-style:none;display:flex;flex-wrap:wrap;gap:2px 16px;padding:0;margin:4px 0 6px;
font-size:.84rem}
.legend li{display:flex;align-items:center;gap:7px;overflow-wrap:anywhere;min-width:0}
.legend svg{flex:none;width:34px;height:12px}
.legend li[role=button]{cursor:pointer;border-radius:4px}
.legend li[aria-pressed=true]{outline:2px solid var(--dim);outline-offset:2px}
body.solo [data-p]:not(.on):not(li){opacity:.12}body.solo li[data-p]:not(.on){opacity:.5}
#tip{position:fixed;pointer-events:none;background:var(--ink);color:var(--paper);
padding:5px 9px;border-radius:5px;font-size:.8rem;white-space:pre-line;z-index:9;max-width:26em}
.off{position:absolute;width:0;height:0}
footer{margin-top:28px;color:var(--dim);font-size:.84rem;overflow-wrap:anywhere}
@media screen and (max-width:860px){.grid,.plots,.defs{grid-template-columns:minmax(0,1fr)}
body{padding:16px 12px}figure{padding:12px 10px}h1{font-size:1.4rem}
.facts{grid-template-columns:1fr;gap:0}.facts dt,.facts dd{grid-column:1}
.facts dd{margin-bottom:6px}}
@page{size:A4 landscape;margin:11mm}
@media print{:root{color-scheme:light;--ink:#000;--dim:#444;--paper:#fff;--card:#fff;
--line:#ccc;--faint:#e6e6e6;--mark:#eaf3fa}
body{padding:0;max-width:none;font-size:12px}table{font-size:8.5px}th,td{padding:3px 4px}
#tip{display:none}h1{font-size:1.4rem}h2{margin:12px 0 4px;break-after:avoid}
figure{padding:8px 10px}.plot svg{min-width:0;max-height:122mm}.notes{break-inside:avoid}
.how,.notes,.facts,footer{font-size:.75rem}.finding{font-size:.9rem}.facts{margin:8px 0}
details{display:none}details.set{display:block}details.set::details-content{display:block;
content-visibility:visible}
*{-webkit-print-color-adjust:exact;print-color-adjust:exact}}
"""


def colours(count: int) -> str:
    """Return the rules that colour and dash the first `count` runs, on light and on dark."""
    light: list[str] = []
    dark: list[str] = []
    for index in range(count):
        on_light, on_dark = PALETTE[index % len(PALETTE)]
        light.append(f".p{index}{{--c:{on_light};--d:{dashes(index)}}}")
        dark.append(f".p{index}{{--c:{on_dark}}}")
    return f"{''.join(light)}@media screen and (prefers-color-scheme:dark){{{''.join(dark)}}}"


def shades() -> str:
    """Return the rules that shade the map of the cluster, on light and on dark."""
    light, dark = (
        "".join(f".h{level}{{stroke:{_mixed(*ends, level)}}}" for level in range(LEVELS + 1))
        for ends in SHADES
    )
    return f"{light}@media screen and (prefers-color-scheme:dark){{{dark}}}"


def _mixed(low: str, high: str, level: int) -> str:
    """Mix two colours. The first shade is already well apart from nothing."""
    part = (level + 1) / (LEVELS + 1) if level else 0
    pairs = ((int(low[n : n + 2], 16), int(high[n : n + 2], 16)) for n in (1, 3, 5))
    return "#" + "".join(f"{round(a + (b - a) * part):02x}" for a, b in pairs)


def dashes(index: int) -> str:
    """Return the dashes of a run. They differ when its colour has been used before."""
    return DASHES[(index + index // len(PALETTE)) % len(DASHES)]


def hatching(count: int) -> str:
    """Return the fillings of bars, to be named `url(#h0)` and so on."""
    patterns = [
        f'<pattern id="h{index}" class="p{index}" width="6" height="6" '
        'patternUnits="userSpaceOnUse"><path class="tint" d="M0 0H6V6H0Z"/>'
        f'<path class="hatch" d="{_hatch(index)}"/></pattern>'
        for index in range(count)
    ]
    return f'<svg class="off" aria-hidden="true"><defs>{"".join(patterns)}</defs></svg>'


def _hatch(index: int) -> str:
    return HATCHES[(index + index // len(PALETTE)) % len(HATCHES)]
