"""A report of simulations as a browser shows it."""

import re
import subprocess
from collections.abc import Sequence
from html.parser import HTMLParser
from pathlib import Path

import pytest

from allotment.model.quantity import MINUTE
from allotment.sim.cluster import cluster_of
from allotment.sim.outcome import Run
from allotment.sim.report import render
from allotment.sim.run import simulate
from allotment.sim.scenario import Scenario
from allotment.sim.trace import Trace, TraceJob
from tests.conftest import SHARED
from tests.unit.sim.report.twin import chart_of, read, run_of, schedule

pytestmark = [
    pytest.mark.needs_tool("chromium"),
    pytest.mark.needs_shared("golden/philly480.csv"),
]

CHROMIUM = (
    "chromium",
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--enable-logging=stderr",
)
HOSTILE = "\"></text><script>document.title='owned'</script><img src=x onerror=alert(1)>"
POLICY = re.compile(r'<meta http-equiv="Content-Security-Policy"[^>]*>')


class Pictures(HTMLParser):
    """Collects the words of every picture that is not mere decoration."""

    def __init__(self) -> None:
        super().__init__()
        self.words: list[str] = []
        self._in_picture = self._in_text = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "svg" and ("aria-hidden", "true") not in attrs:
            self._in_picture = True
            self.words.append("")
        self._in_text = tag == "text"

    def handle_endtag(self, tag: str) -> None:
        self._in_text = False
        if tag == "svg":
            self._in_picture = False

    def handle_data(self, data: str) -> None:
        if self._in_picture and self._in_text:
            self.words[-1] += data


def opened(page: str, folder: Path, width: int = 1280) -> tuple[str, list[str]]:
    """Open a page; give what became of it, and what the browser complained about."""
    path = folder / "report.html"
    path.write_text(page, encoding="utf-8")
    done = subprocess.run(
        [
            *CHROMIUM,
            f"--user-data-dir={folder / 'profile'}",
            f"--window-size={width},900",
            "--dump-dom",
            path.as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=90,
        check=True,
    )
    return done.stdout, [line for line in done.stderr.splitlines() if "CONSOLE" in line]


def runs() -> list[Run]:
    rows = read(SHARED / "golden/philly480.csv")
    strict, skipping = (schedule(rows, 128, skip=skip) for skip in (False, True))
    return [
        run_of(strict, "fifo", chart=chart_of(strict, 16, 8)),
        run_of(skipping, "backfill", chart=chart_of(skipping, 16, 8), clairvoyant=True),
    ]


def test_a_browser_has_nothing_to_complain_about(tmp_path: Path) -> None:
    shown, complaints = opened(render(runs()), tmp_path)
    assert not complaints
    pictures = Pictures()
    pictures.feed(shown)
    assert len(pictures.words) == 9
    assert all(words.strip() for words in pictures.words)
    assert 'aria-pressed="false"' in shown, "the page's own script ran"


def test_complaints_would_be_seen(tmp_path: Path) -> None:
    page = render(runs()).replace("</body>", "<script>nobody()</script></body>")
    _, complaints = opened(page, tmp_path)
    assert complaints, "the page forbids scripts that are not its own"


def test_hostile_names_do_nothing(tmp_path: Path) -> None:
    rows = [(HOSTILE, HOSTILE, 1 + n % 9, n * 60_000, 6_000_000) for n in range(50)]
    run = run_of(
        schedule(rows, 64, skip=True), HOSTILE, nodes=8, settings=((HOSTILE, HOSTILE),)
    )
    # Without the page's own rule against foreign scripts: escaping alone must do.
    shown, complaints = opened(POLICY.sub("", render([run, run])), tmp_path)
    assert not complaints
    assert "<title>owned" not in shown
    assert "<img" not in shown


LAYOUT = """<script>
document.querySelectorAll("details").forEach(d => d.open = true);
const wrong = [];
let seen = 0;
document.querySelectorAll("svg[role=img]").forEach(svg => {
  const view = svg.viewBox.baseVal, texts = [...svg.querySelectorAll("text:not(.in)")];
  const boxes = texts.map(text => [text.textContent, text.getBBox()]);
  seen += boxes.length;
  boxes.forEach(([words, a], n) => {
    if (a.x < -0.5 || a.x + a.width > view.width + 0.5 || a.y < -1
        || a.y + a.height > view.height + 1) wrong.push("cut off: " + words);
    boxes.slice(n + 1).forEach(([other, b]) => {
      if (a.x < b.x + b.width - 1 && b.x < a.x + a.width - 1
          && a.y < b.y + b.height - 3 && b.y < a.y + a.height - 3)
        wrong.push(words + " lies over " + other);
    });
  });
});
if (document.documentElement.scrollWidth > innerWidth) wrong.push("the page is too wide");
const output = document.createElement("output");
output.textContent = seen + " texts; " + wrong.join("; ");
document.body.appendChild(output);
</script></body>"""


def drawn(count: int, cluster: str, policies: Sequence[str]) -> list[Run]:
    """Play jobs with names of all kinds under several policies."""
    jobs = tuple(
        TraceJob(
            f"{NAMES[n * 5 % len(NAMES)]}-{n}",
            1_700_000_000_000 + n * 7 * MINUTE,
            (1 + n * 37 % 50) * 5 * MINUTE,
            (1, 2, 16, 4)[n % 4],
            tenant=NAMES[n % len(NAMES)],
        )
        for n in range(count)
    )
    trace = Trace("made.csv", "simple", "0" * 16, jobs)
    nodes = cluster_of(cluster)
    return [simulate(Scenario(trace, nodes, policy, drawn=True)) for policy in policies]


NAMES = (
    HOSTILE,
    "W" * 60,
    "研究チームの非常に長い名前",
    "команда",
    "a team & co",
    "",
    *(f"team{n}" for n in range(9)),
)


@pytest.mark.parametrize("width", [1280, 520])
@pytest.mark.parametrize(
    ("count", "cluster", "policies"),
    [
        (80, "3x8xNVIDIA-A100-SXM4-80GB+8x4xV100", ("fifo", "srtf")),
        (60, "40x1xTesla-V100+1x16xA100", ("las2d",)),
        (400, "100x4xA100+60x8xNVIDIA-H100-SXM5", ("fifo", "backfill", "maxmin", "srtf")),
    ],
)
def test_no_label_is_cut_off_or_lies_over_another(
    tmp_path: Path, count: int, cluster: str, policies: tuple[str, ...], width: int
) -> None:
    page = POLICY.sub("", render(drawn(count, cluster, policies)))
    shown, complaints = opened(page.replace("</body>", LAYOUT), tmp_path, width)
    assert not complaints
    (said,) = re.findall(r"<output>(\d+ texts; .*?)</output>", shown, re.DOTALL)
    assert re.fullmatch(r"\d{2,4} texts; ", said)


def test_a_label_that_is_cut_off_would_be_seen(tmp_path: Path) -> None:
    page = POLICY.sub("", render(drawn(40, "2x8", ["fifo"]))).replace("</body>", LAYOUT)
    page, changed = re.subn(r'<text x="[\d.]+"([^>]*>fifo<)', r'<text x="-9"\1', page)
    assert changed
    shown, _ = opened(page, tmp_path)
    assert "cut off: fifo" in shown


def test_hostile_names_do_nothing_in_any_picture(tmp_path: Path) -> None:
    runs = drawn(80, "3x8xA100+8x4xV100", ["fifo", "srtf"])
    page = render(runs)
    assert 'id="devices"' in page
    assert 'id="jobs"' in page
    shown, complaints = opened(POLICY.sub("", page), tmp_path)
    assert not complaints
    assert "<title>owned" not in shown
    assert "<img" not in shown


def test_values_can_be_read_off(tmp_path: Path) -> None:
    point = """<script>
    for (const key of ["jct", "queue", "use"]) {
      const svg = document.querySelector("#" + key + " svg[data-read]");
      const box = svg.getBoundingClientRect();
      const at = {clientX: box.left + box.width / 2, clientY: box.top + 20};
      svg.dispatchEvent(new MouseEvent("mousemove", at));
      const seen = document.createElement("output");
      seen.textContent = key + "=" + document.getElementById("tip").textContent;
      document.body.appendChild(seen);
    }
    document.querySelector(".legend li").click();
    </script></body>"""
    page = POLICY.sub("", render(runs())).replace("</body>", point)
    shown, complaints = opened(page, tmp_path)
    assert not complaints
    seen = dict(re.findall(r"<output>(\w+)=([^<]*)", shown))
    assert re.fullmatch(
        r"within [\d.]+ (min|h)\nfifo: [\d.]+ %\nbackfill \(clairvoyant\): [\d.]+ %",
        seen["jct"],
    )
    assert re.search(r"\nfifo: \d+\n", seen["queue"])
    assert re.search(r"\nfifo: [\d.]+ %\n", seen["use"])
    assert 'class="solo"' in shown
