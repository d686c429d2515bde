"""A report of simulations as a browser shows it."""

import re
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import pytest

from allotment.sim.outcome import Run
from allotment.sim.report import render
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


def opened(page: str, folder: Path) -> tuple[str, list[str]]:
    """Open a page; give what became of it, and what the browser complained about."""
    path = folder / "report.html"
    path.write_text(page, encoding="utf-8")
    done = subprocess.run(
        [*CHROMIUM, f"--user-data-dir={folder / 'profile'}", "--dump-dom", path.as_uri()],
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
