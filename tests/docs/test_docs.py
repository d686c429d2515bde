"""The hand-written pages say what is true: links, commands, variables, stages and reasons."""

import re
import shlex
from collections.abc import Iterator
from functools import cache
from itertools import takewhile
from pathlib import Path

import pytest
import typer.main

from allotment.cli.app import VERBS, build
from allotment.engine.records import AttemptRecord, CheckpointRecord, JobRecord
from allotment.model.cluster import Nic, Node
from allotment.model.ids import Actor, AttemptNo, JobId, NodeId, TaskIndex
from allotment.model.ledger import Entitlement, Slot
from allotment.model.lifecycle import JobState
from allotment.model.quantity import GIB, Instant, Millis
from allotment.model.reasons import Reason
from allotment.model.spec import ArraySlice, Checkpoint, Dialect, JobSpec, Port, TaskRole
from allotment.model.tracking import MlflowSetup
from allotment.service.launch import Account, Folders, task_env
from allotment.service.tracking.variables import variables_of

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "README.md",
    *(ROOT / name for name in ("CONTRIBUTING.md", "CHANGELOG.md") if (ROOT / name).exists()),
    *sorted((ROOT / "docs").rglob("*.md")),
]
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
CODE = re.compile(r"`([^`\n]+)`")


def pages(*, but: tuple[str, ...] = ()) -> list[object]:
    return [
        pytest.param(page, id=str(page.relative_to(ROOT)))
        for page in PAGES
        if page.name not in but
    ]


def prose(page: Path) -> str:
    """The page without its fenced blocks."""
    return re.sub(r"^```.*?^```", "", page.read_text("utf-8"), flags=re.M | re.S)


def slug(heading: str) -> str:
    """A heading's anchor, as GitHub makes it."""
    words = re.sub(r"[^\w\- ]", "", heading.lower().replace("`", ""))
    return words.strip().replace(" ", "-")


def anchors(page: Path) -> set[str]:
    return {slug(found) for found in re.findall(r"^#+ (.+)$", prose(page), re.M)}


# ── links ───────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("page", pages())
def test_every_link_leads_somewhere(page: Path) -> None:
    for link in LINK.findall(prose(page)):
        if re.match(r"https?:|mailto:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{link}: there is no {target}"
        if anchor:
            assert anchor in anchors(target), f"{link}: {target.name} has no such heading"


def test_the_map_names_every_page() -> None:
    shown = {
        (ROOT / "docs" / link.partition("#")[0]).resolve()
        for link in LINK.findall(prose(ROOT / "docs" / "README.md"))
    }
    pages_there = {page for page in (ROOT / "docs").rglob("*.md") if page.parent.name != "adr"}
    assert pages_there - shown == {ROOT / "docs" / "README.md"}


# ── commands ────────────────────────────────────────────────────────────────────────────


def test_a_wrong_command_would_be_noticed() -> None:
    assert wrong_with("allot submit job.yaml --follow") == ""
    assert wrong_with("allot -h") == ""
    assert "frobnicate" in wrong_with("allot frobnicate")
    assert "--colour" in wrong_with("allot ps --colour")
    assert "--whatever" not in wrong_with("allot run -- python --whatever")


@pytest.mark.parametrize("page", pages(but=("exit-codes.md",)))
def test_every_command_is_one_there_is(page: Path) -> None:
    wrong = [f"{line}: {fault}" for line in commands(page) if (fault := wrong_with(line))]
    assert not wrong, "\n".join(wrong)


def commands(page: Path) -> Iterator[str]:
    """What is written to be typed: lines of blocks, and inline code that starts with allot."""
    text = page.read_text("utf-8")
    lines = [line.strip() for line in text.splitlines()]
    for line in [*lines, *CODE.findall(text)]:
        for part in re.split(r"&&|\|\|?|;", line.removeprefix("$ ")):
            words = part.strip().removeprefix("sudo ").removeprefix(".venv/bin/")
            if re.match(r"allot (?=[a-z-])", words):
                yield words


@cache
def every_verb() -> object:
    return typer.main.get_command(build(list(VERBS)))


def wrong_with(command: str) -> str:
    """Return what is wrong with a command; nothing when its verb and options are there."""
    try:
        words = shlex.split(command, comments=True)[1:]
    except ValueError:
        return ""  # prose with an apostrophe
    words = list(takewhile(lambda word: word not in (">", "<", "2>"), words))
    if not words or words[0].startswith("-"):
        return ""
    verb = every_verb()
    while words and hasattr(verb, "commands"):
        known = getattr(verb, "commands")  # noqa: B009 - typer ships its own click
        if words[0] not in known:
            return f"there is no `{words[0]}`"
        verb = known[words.pop(0)]
    context = verb.context_class(verb, info_name="allot")  # type: ignore[attr-defined]
    try:
        verb.make_parser(context).parse_args(words)  # type: ignore[attr-defined]
    except Exception as error:  # noqa: BLE001 - typer ships its own click
        return str(error)
    return ""


# ── variables ───────────────────────────────────────────────────────────────────────────

BY_THE_BACKEND = {
    "TMPDIR", "ALLOT_SCRATCH_DIR", "ALLOT_PAUSE_FILE", "ALLOT_MPI_KEY", "ALLOT_MPI_TASKS",
    "ALLOT_MPI_HOST",
}  # fmt: skip
PLACEHOLDERS = {"ROLE": "worker", "N": "0", "LABEL": "http"}


def test_every_variable_a_task_gets_is_on_its_page_and_none_else() -> None:
    page = (ROOT / "docs/guide/environment.md").read_text("utf-8")
    rows = [line.split("|")[1] for line in page.splitlines() if line.startswith("| `")]
    told = {filled(name) for row in rows for name in CODE.findall(row)}
    given: set[str] = set(BY_THE_BACKEND)
    for dialect in Dialect:
        for index in range(3):
            given |= environment(dialect, index).keys()
    given = {name for name in given if not re.search(r"_(ps|PS)(_|$)|worker_1", name)}
    assert told - given == set(), "told, but never given"
    assert given - told == set(), "given, but not told"


def filled(name: str) -> str:
    """Put example values for `<ROLE>` and the like; ALLOT_PORT_ has its label in capitals."""
    if name == "ALLOT_PORT_<LABEL>":
        return "ALLOT_PORT_HTTP"
    return re.sub(r"<([A-Z]+)>", lambda found: PLACEHOLDERS[found[1]], name)


OF_FORMS = {
    Dialect.TRAIN_JOB: tuple(
        (name, "3")
        for name in (
            "PET_NNODES", "PET_NPROC_PER_NODE", "JAX_NUM_PROCESSES", "DMLC_NUM_WORKER",
        )
    ),
    Dialect.JOB_SET: (("JOBSET_REPLICAS", "worker=1,ps=1"),),
}  # fmt: skip
"""What reading a file of such a form puts into the job itself."""


def environment(dialect: Dialect, index: int) -> dict[str, str]:
    """What a task gets whose job asks for everything there is."""
    port = (Port("http"),)
    spec = JobSpec(
        "job",
        "team",
        (
            TaskRole("worker", 2, "true", ports=port),
            TaskRole("ps", 1, "true", ports=port, least=1, elastic=True),
        ),
        data_dir="/data",
        code_dir="/code",
        checkpoint=Checkpoint(every_ms=Millis(1000)),
        array=ArraySlice(0, 2, JobId(1), metric="loss", rungs=(10, 30)),
        dialect=dialect,
        env=OF_FORMS.get(dialect, ()),
    )
    slot = Slot(NodeId(0), (0,), 1000)
    attempt = AttemptRecord(AttemptNo(1), (slot,) * 3, Entitlement.GUARANTEED, Instant(1), 9000)
    job = JobRecord(
        JobId(1), spec, Actor("me"), Instant(1), JobState.RUNNING, Instant(1),
        attempts=[attempt], checkpoint=CheckpointRecord("/c", Instant(1), AttemptNo(1)),
    )  # fmt: skip
    nodes = {NodeId(0): Node(NodeId(0), "n", 1000, GIB, 0, nics=(Nic("mlx5_0", (0,)),))}
    account, tracked = Account("me", "/home/me"), variables_of(job, MlflowSetup("u"), "run")
    return task_env(job, TaskIndex(index), nodes, Folders("/state"), account, tracked)


# ── metrics ─────────────────────────────────────────────────────────────────────────────


def test_every_metric_is_on_its_page_and_none_else() -> None:
    page = (ROOT / "docs/metrics.md").read_text("utf-8")
    rows = [line.split("|")[1] for line in page.splitlines() if line.startswith("| `allot_")]
    told = {name for row in rows for name in CODE.findall(row) if "{" not in name}
    code = (ROOT / "src/allotment/api/metrics.py").read_text("utf-8")
    given = set(re.findall(r'(?:Gauge|Histogram)MetricFamily\(\s*"(\w+)"', code))
    given |= {f"{n}_total" for n in re.findall(r'CounterMetricFamily\(\s*"(\w+)"', code)}
    given |= {f"{n}_seconds" for n in re.findall(r'_histogram\("(\w+)"', code)}
    rows_of_alerts = {"allot_ready == 0"}
    assert told - rows_of_alerts == given


# ── scheduling ──────────────────────────────────────────────────────────────────────────


def test_reasons_are_told_in_their_order() -> None:
    page = (ROOT / "docs/scheduling.md").read_text("utf-8")
    section = page.partition("## Why a job waits")[2].partition("\n## ")[0]
    assert re.findall(r"^\| `(\w+)` \|", section, re.M) == [reason.value for reason in Reason]


def test_stages_are_numbered_as_in_the_code() -> None:
    page = (ROOT / "docs/scheduling.md").read_text("utf-8")
    section = page.partition("## One cycle")[2].partition("\n## ")[0]
    code = (ROOT / "src/allotment/core/cycle.py").read_text("utf-8")
    in_code = re.findall(r"^ +# (\d)\. ", code, re.M)
    assert re.findall(r"^(\d)\. ", section, re.M) == in_code


def test_the_packages_on_the_map_are_those_there_are() -> None:
    page = (ROOT / "docs/architecture.md").read_text("utf-8")
    told = set(re.findall(r"`(\w+)/`", page.partition("| package |")[2].partition("\n\n")[0]))
    there = {path.parent.name for path in (ROOT / "src/allotment").glob("*/__init__.py")}
    assert told == there
