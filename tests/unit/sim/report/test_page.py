"""The page as a whole: complete, harmless, small, quick."""

import random
import re
import time
from html.parser import HTMLParser
from itertools import pairwise

import msgspec
import pytest

from allotment.model.quantity import DEVICE, HOUR, MINUTE, Millis
from allotment.sim.outcome import JobOutcome, Run
from allotment.sim.report import render
from allotment.sim.report.findings import change, overall
from allotment.sim.report.look import PALETTE, dashes, shades
from allotment.sim.report.table import COLUMNS, NOTES
from allotment.sim.report.view import names, views
from tests.conftest import SHARED
from tests.unit.sim.report.twin import Row, chart_of, read, run_of, schedule

HOSTILE = "\"'><script>alert(1)</script><img src=x onerror=alert(1)>\u202e\x00{0}{"
needs_trace = pytest.mark.needs_shared("golden/philly480.csv")


class Markup(HTMLParser):
    """Checks that tags close as they open, and collects them and their attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.attributes: list[tuple[str, str]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes += [(name, value or "") for name, value in attrs]
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes += [(name, value or "") for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def checked(page: str) -> Markup:
    markup = Markup()
    markup.feed(page)
    assert markup.open == []
    names = [name for name, _ in markup.attributes]
    assert not {"style", "src", "href", "srcset"} & set(names)
    assert not any(name.startswith("on") for name in names)
    ids = [value for name, value in markup.attributes if name == "id"]
    assert len(set(ids)) == len(ids)
    assert not re.search(r"\b(nan|inf|None)\b", page)
    return markup


def philly(policy: str, *, skip: bool, clairvoyant: bool = False) -> Run:
    jobs = schedule(read(SHARED / "golden/philly480.csv"), 128, skip=skip)
    return run_of(jobs, policy, clairvoyant=clairvoyant, chart=chart_of(jobs, 16, 8))


@needs_trace
def test_the_twin_is_the_published_one() -> None:
    (view,) = views([philly("backfill", skip=True)])
    assert round(view.summary.avg_jct_s, 1) == 178_229.2
    assert view.summary.makespan_s == 3_286_871


@needs_trace
def test_a_comparison_is_complete() -> None:
    page = render([philly("fifo", skip=False), philly("backfill", skip=True)])
    checked(page)
    for part in (
        "backfill cuts the median wait of fifo by 99",
        "2 policies on philly.csv",
        "0123456789abcdef",
        "16 nodes × 8 devices",
        "1.2.3",
        "<caption>",
        "✓",
    ):
        assert part in page
    assert page.count('<svg viewBox="0 0 560') == page.count("<desc") == 9
    assert page.count("How to read it: ") == page.count("<figure") == 7


@needs_trace
def test_a_single_run_marks_nothing_as_best() -> None:
    page = render([philly("fifo", skip=False)])
    checked(page)
    assert "✓" not in page
    assert "half of 480 completed jobs waited at most 12.2 h" in page


@needs_trace
def test_clairvoyant_policies_are_never_named_without_saying_so() -> None:
    page = render([philly("fifo", skip=False), philly("oracle", skip=True, clairvoyant=True)])
    assert page.count("oracle") == page.count("oracle (clairvoyant)") > 15
    assert "the results are bounds" in page
    assert "(✓)" in page


def jobs_of(*rows: Row) -> list[JobOutcome]:
    return schedule(rows, 128, skip=True)


ODD: dict[str, list[Run]] = {
    "no runs": [],
    "no jobs": [run_of([])],
    "one job": [run_of(jobs_of(("a", "t", 1, 0, 5000)))],
    "a job of no time": [run_of(jobs_of(("a", "t", 1, 0, 0)))],
    "none done": [
        run_of([JobOutcome(str(n), "t", DEVICE, n, Millis(5)) for n in range(5)]),
        run_of([JobOutcome(str(n), "t", DEVICE, n, Millis(5)) for n in range(5)], "x"),
    ],
    "no waits": [
        run_of(jobs_of(*((str(n), "t", 1, n * 1000, 900_000) for n in range(20))), name)
        for name in ("fifo", "backfill")
    ],
    "one done, one not": [
        run_of(jobs_of(("a", "t", 1, 0, 5000))),
        run_of([JobOutcome("a", "t", DEVICE, 0, Millis(5000))], "x"),
    ],
    "40 tenants": [
        run_of(jobs_of(*((str(n), f"t{n % 40}", 9, n, HOUR + n) for n in range(400))))
    ],
    "far apart": [run_of(jobs_of(("a", "", 1, 0, 10**15), ("b", "t", 128, 1, 1)))],
    "long ago": [run_of(jobs_of(("a", "t", 1, -(10**13), 5), ("b", "t", 1, 10**14, 5)))],
    "no cluster": [
        msgspec.structs.replace(
            run_of(jobs_of(("a", "t", 0, 0, HOUR))), nodes=0, capacity_milli=0
        )
    ],
    "samples only": [
        msgspec.structs.replace(
            run_of([]), samples=run_of(jobs_of(("a", "t", 1, 0, HOUR))).samples
        )
    ],
    "20 runs": [run_of(jobs_of(("a", "t", 1, 0, HOUR)), "same") for _ in range(20)],
}


@pytest.mark.parametrize("case", ODD)
def test_odd_runs(case: str) -> None:
    page = render(ODD[case])
    checked(page)
    assert "<h1>" in page


def test_nothing_to_draw_is_said() -> None:
    page = render(ODD["none done"])
    assert "No job completed: nothing to draw." in page
    assert "5 jobs did not complete" in page
    assert "cannot be compared" in page
    page = render(ODD["no waits"])
    assert page.count("No job waited.") == 2
    assert "All jobs are of one tenant" in page


def test_hostile_names_are_only_words() -> None:
    rows = [(f"{n}{HOSTILE}", f"{HOSTILE}{n % 3}", 1 + n % 9, n, HOUR) for n in range(80)]
    jobs = schedule(rows, 64, skip=True)
    jobs[0].never = HOSTILE
    run = msgspec.structs.replace(
        run_of(jobs, HOSTILE, clairvoyant=True, settings=((HOSTILE, HOSTILE),)),
        cluster=HOSTILE,
        trace=HOSTILE,
        trace_digest=HOSTILE,
        dropped=((HOSTILE, 3),),
        warnings=(HOSTILE,),
        version=HOSTILE,
        events=1,
        chart=chart_of(jobs, 16, 8),
    )
    page = render([run, run])
    markup = checked(page)
    assert "img" not in markup.tags
    assert page.count("<script>") == 1
    assert "\u202e" not in page
    assert "\x00" not in page


def test_the_page_asks_for_nothing() -> None:
    page = render(ODD["40 tenants"])
    assert "default-src 'none'" in page
    assert not re.search(r"https?:|//[a-z]|@import|url\((?!#)", page)


def test_runs_that_share_a_policy_are_told_apart() -> None:
    (job,) = jobs_of(("a", "t", 1, 0, 5))
    runs = [
        run_of([job], "las", settings=(("a", "1"), ("b", "2"))),
        run_of([job], "las", settings=(("a", "1"), ("b", "3"))),
        run_of([job], "fifo", settings=(("a", "9"),)),
    ]
    assert names(runs) == ["las b=2", "las b=3", "fifo"]
    assert names([runs[2], runs[2]]) == ["fifo #1", "fifo #2"]
    looks = [(n % len(PALETTE), dashes(n)) for n in range(64)]
    assert len(set(looks)) == 64


def test_one_policy_on_two_clusters_is_no_comparison_of_policies() -> None:
    (job,) = jobs_of(("a", "t", 1, 0, 5))
    runs = [
        msgspec.structs.replace(run_of([job], "las", nodes=nodes), rule="least first")
        for nodes in (2, 3)
    ]
    page = render(runs)
    assert names(runs) == ["las 2 nodes × 8 devices", "las 3 nodes × 8 devices"]
    assert "<h1>las on philly.csv: 2 runs compared</h1>" in page
    assert page.count("las: least first") == 1


def test_left_out_warnings_never_and_censored_are_told() -> None:
    jobs = jobs_of(*((str(n), "t", 1, 0, 5000) for n in range(12)))
    for job in jobs[:3]:
        job.censored = True
    for job in jobs[3:12]:
        job.never = "asks for 900 devices of 128"
    run = msgspec.structs.replace(
        run_of(jobs), dropped=(("no duration", 1_200),), warnings=("times look like ms",)
    )
    page = render([run])
    assert "1,200 rows (no duration: 1,200)" in page
    assert "times look like ms" in page
    assert (
        "9 jobs can never run on this cluster: asks for 900 devices of 128 (jobs 3, 4" in page
    )
    assert "and 1 more" in page
    assert "3 jobs had not ended" in page


@pytest.mark.parametrize(
    ("new", "old", "words"),
    [
        (50, 100, "halves it"),
        (200, 100, "doubles it"),
        (37, 100, "cuts it by 63 %"),
        (0, 100, "removes it"),
        (0.1, 100, "all but removes it"),
        (100.5, 100, "leaves it as it is"),
        (140, 100, "raises it by 40 %"),
        (320, 100, "makes it 3.2 times as long"),
        (0, 0, "leaves it at 0"),
        (3, 0, "makes it more than 0"),
    ],
)
def test_changes_in_words(new: float, old: float, words: str) -> None:
    assert change("it", new, old) == words


def test_preemptions_are_the_price() -> None:
    strict = jobs_of(*((str(n), "t", 100, n, HOUR) for n in range(20)))
    better = jobs_of(*((str(n), "t", 60, n, HOUR) for n in range(20)))
    better[3].preemptions = 396
    (said,) = overall(views([run_of(strict, "fifo"), run_of(better, "las2d")]))
    assert said.startswith("las2d cuts the median wait of fifo by ")
    assert said.endswith(" and costs 396 preemptions.")


def test_where_hardly_any_job_waits_no_policy_is_judged() -> None:
    idle = [(str(n), "t", 1, n * 1000, HOUR) for n in range(20)]
    runs = [run_of(jobs_of(*idle), name) for name in ("fifo", "las2d")]
    runs[0].jobs[3].start_ms += 300
    runs[0].jobs[3].end_ms += 300
    (said,) = overall(views(runs))
    assert said.startswith("There is nothing to compare: jobs hardly wait under any policy (at")
    assert "of the devices were idle." in said
    page = render(runs)
    assert said in page
    assert "\u2713" not in page
    assert "this is the widest gap" not in page
    assert "makes" not in said


def test_where_one_policy_lets_jobs_wait_they_are_compared() -> None:
    strict = jobs_of(*((str(n), "t", 100, n, HOUR) for n in range(20)))
    better = jobs_of(*((str(n), "t", 6, n, HOUR) for n in range(20)))
    (said,) = overall(views([run_of(strict, "fifo"), run_of(better, "las2d")]))
    assert said.startswith("las2d removes the mean wait of fifo")


def many(count: int) -> Run:
    """A run as large as the largest trace, waits made up."""
    rng = random.Random(1)
    jobs: list[JobOutcome] = []
    for n in range(count):
        submit, run = n * 90_000, int(rng.lognormvariate(7, 2.5) * 1000) + 1
        start = submit + (int(rng.expovariate(1 / HOUR)) if rng.random() < 0.6 else 0)
        jobs.append(
            JobOutcome(
                str(n),
                f"team{int(rng.expovariate(0.2))}",
                rng.choice((1, 1, 1, 2, 4, 8, 16)) * DEVICE,
                submit,
                Millis(run),
                start,
                start + run,
                attained_ms=run,
                ran_ms=run,
                ideal_ms=run,
            )
        )
    return run_of(jobs, nodes=64)


def test_five_large_runs_make_a_small_page_quickly() -> None:
    runs = [many(82_000)] * 5
    began = time.process_time()
    page = render(runs)
    assert time.process_time() - began < 2
    assert len(page.encode()) < 600_000


def test_nodes_over_time_stay_small_too() -> None:
    rng = random.Random(1)
    rows = [
        (str(n), "t", rng.choice((1, 2, 8)), n * MINUTE, rng.randrange(10, 600) * MINUTE)
        for n in range(8_000)
    ]
    jobs = schedule(rows, 512, skip=True)
    run = run_of(jobs, nodes=64, chart=chart_of(jobs, 64, 8))
    assert len(render([run] * 5).encode()) < 600_000


def test_the_head_tells_all_that_a_run_was_made_from() -> None:
    rows = [(str(n), f"t{n % 3}", 1, n, 5000) for n in range(9)]
    run = msgspec.structs.replace(
        run_of(jobs_of(*rows), "las2d", settings=(("start", "30s"),)),
        rule="least attained device-time first",
        defaults=(("round", "6min"), ("placing", "pack")),
        dropped=(("no duration", 3),),
        seed=7,
    )
    page = render([run])
    for words in (
        "las2d: least attained device-time first",
        "philly.csv, SHA-256 of the file begins 0123456789abcdef",
        "9 jobs of 12 rows, of 3 tenants",
        "3 rows (no duration: 3)",
        "16 nodes × 8 devices: 128 devices in all",
        "<dd>start = 30s</dd>",
        "round = 6min, placing = pack.",
        "<dd>7</dd>",
        "<dd>Allotment 1.2.3</dd>",
    ):
        assert words in page
    plain = render([run_of(jobs_of(*rows))])
    assert "no row of the trace" in plain
    assert "none chosen: all are at their defaults" in plain


def test_every_figure_of_the_table_is_explained() -> None:
    explained = " ".join(name for name, _ in NOTES)
    for column in COLUMNS:
        assert column.head in explained or column.head == "mean"
        group = column.group.lower()
        assert group in explained or group in {"jobs", "cluster", "fairness"}


def test_means_over_unlike_sets_of_jobs_are_warned_of() -> None:
    done, undone = (jobs_of(("a", "t", 1, 0, 5000), ("b", "t", 1, 0, 9000)) for _ in range(2))
    undone[1].end_ms = -1
    page = render([run_of(done), run_of(undone, "x")])
    assert "Not all policies completed as many jobs (2 under fifo and 1 under x)" in page
    assert "Not all" not in render([run_of(done), run_of(done, "x")])


@needs_trace
def test_every_picture_has_words_and_a_table() -> None:
    page = render([philly("fifo", skip=False), philly("backfill", skip=True)])
    for figure in page.split("<figure")[1:]:
        assert "<summary>The same as a table</summary>" in figure
        for picture in figure.split('<svg viewBox="0 0 560')[1:]:
            assert re.match(r'[^>]*role="img" aria-labelledby="[^"]+"', picture)
            assert "<title" in picture
            assert "<desc" in picture


def test_shades_grow_darker_step_by_step() -> None:
    light = re.findall(r"\.h(\d)\{stroke:#(..)(..)(..)\}", shades().partition("@media")[0])
    greys = [sum(int(part, 16) for part in parts) for _, *parts in light]
    assert len(greys) == 9
    assert greys == sorted(greys, reverse=True)
    assert min(a - b for a, b in pairwise(greys)) >= 40


def luminance(colour: str) -> float:
    """Of WCAG 2: how light a colour is, 0 to 1."""
    parts = (int(colour[n : n + 2], 16) / 255 for n in (1, 3, 5))
    lights = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * lights[0] + 0.7152 * lights[1] + 0.0722 * lights[2]


@pytest.mark.parametrize(("place", "paper"), [(0, "#ffffff"), (1, "#1a1d22")])
def test_every_colour_stands_out_from_the_paper(place: int, paper: str) -> None:
    for pair in PALETTE:
        low, high = sorted((luminance(pair[place]), luminance(paper)))
        assert (high + 0.05) / (low + 0.05) >= 3
