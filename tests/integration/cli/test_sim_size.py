"""`allot sim size` as a user calls it, on a small synthetic trace."""

import json
import random
from pathlib import Path
from typing import Any

import pytest

from tests.support.invoke import allot

WITHIN = "p90_queue_delay<=30min"


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return a_trace(tmp_path_factory, 200)


@pytest.fixture(scope="module")
def short_trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return a_trace(tmp_path_factory, 40)


def a_trace(tmp_path_factory: pytest.TempPathFactory, jobs: int) -> Path:
    rng = random.Random(1)
    lines, at = ["job_id,submit_time,num_gpus,duration"], 0.0
    for job in range(jobs):
        at += rng.expovariate(1 / 60)
        gpus, length = rng.choice([1, 1, 1, 2, 4, 8, 16]), int(rng.lognormvariate(7, 1)) + 1
        lines.append(f"{job},{int(at)},{gpus},{length}")
    path = tmp_path_factory.mktemp("trace") / "jobs.csv"
    path.write_text("\n".join(lines))
    return path


def sized(trace: Path, *words: str) -> dict[str, Any]:
    ran = allot("sim", "size", "--trace", trace, "--node", "8xA100", "--json", *words)
    assert ran.code == 0, ran.err
    return json.loads(ran.out)


def delay_on(trace: Path, nodes: int) -> float:
    ran = allot("sim", "run", "--trace", trace, "--cluster", f"{nodes}x8", "--json")
    assert ran.code == 0, ran.err
    return json.loads(ran.out)["p90_queue_delay_s"]


def test_the_answer_will_do_and_one_node_less_will_not(trace: Path) -> None:
    told = sized(trace, "--target", WITHIN)
    nodes = told["nodes"]
    assert told["answer"] == "least"
    assert delay_on(trace, nodes) <= 1800 < delay_on(trace, nodes - 1)
    curve = {row["nodes"]: row for row in told["curve"]}
    assert list(curve) == sorted(curve)
    assert curve[nodes]["met"]
    assert not curve[nodes - 1]["met"]
    assert curve[nodes]["devices"] == 8 * nodes
    assert curve[nodes]["p90_queue_delay_s"] == delay_on(trace, nodes)


def test_the_same_however_many_processes(trace: Path) -> None:
    told = {sized(trace, "--target", WITHIN, "--workers", str(n))["nodes"] for n in (1, 2, 3)}
    assert len(told) == 1


def test_in_words_with_costs(trace: Path) -> None:
    words = ("--node", "8xA100", "--target", WITHIN, "--price-per-device-hour", "2.5")
    ran = allot("sim", "size", "--trace", trace, *words)
    assert ran.code == 0, ran.err
    head, *rows, answer = ran.out.splitlines()
    assert head.split() == [
        "nodes", "devices", "p90_queue_delay", "mean", "wait", "utilization", "cost/h", "cost",
    ]  # fmt: skip
    (chosen,) = [row for row in rows if row.startswith("→")]
    nodes = int(chosen.split()[1])
    assert answer == f"{nodes} nodes of 8xA100: the least that meet {WITHIN}."
    assert f"{nodes * 8 * 2.5:,.2f}" in chosen
    assert [row[0] for row in rows if int(row.split()[1]) < nodes] == ["✗"] * sum(
        int(row.split()[1]) < nodes for row in rows
    )
    assert f"{nodes} nodes: p90_queue_delay" in ran.err


def test_several_bounds(trace: Path) -> None:
    told = sized(trace, "--policy", "backfill", "--target", f"{WITHIN} and utilization>=10%")
    alone = sized(trace, "--policy", "backfill", "--target", WITHIN)
    assert told["nodes"] == alone["nodes"]
    above = sized(trace, "--policy", "backfill", "--target", "utilization>=0.5")
    assert above["answer"] == "most"
    rows = {row["nodes"]: row["utilization"] for row in above["curve"]}
    assert rows[above["nodes"]] >= 0.5 > rows[above["nodes"] + 1]


def test_a_report_shows_the_answer_beside_one_node_less(trace: Path, tmp_path: Path) -> None:
    page = tmp_path / "size.html"
    told = sized(trace, "--target", WITHIN, "--report", str(page))
    text = page.read_text()
    assert f"{told['nodes']} nodes × 8 A100" in text
    assert f"{told['nodes'] - 1} nodes × 8 A100" in text


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--target", "avg_jct<=1min"], "missed by run times alone"),
        (["--target", WITHIN, "--most", "3"], "Even with 3 nodes, p90_queue_delay is"),
        (["--target", f"{WITHIN},utilization>=0.99"], "and there utilization is"),
        (["--target", "preemptions<0"], "no job waits any more, and still preemptions is 0"),
    ],
)
def test_targets_that_cannot_be_met(trace: Path, words: list[str], said: str) -> None:
    ran = allot("sim", "size", "--trace", trace, "--node", "8", *words)
    assert ran.code == 1
    assert said in ran.err
    assert "→" not in ran.out
    ran = allot("sim", "size", "--trace", trace, "--node", "8", "--json", *words)
    assert ran.code == 1
    told = json.loads(ran.out)
    assert (told["nodes"], told["answer"]) == (None, "none")
    assert said in told["why"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--target", "p90_queue_dely<=1h"], "Near: p90_queue_delay"),
        (["--target", "fast"], "is not a condition"),
        (["--target", "avg_jct<=1h", "--node", "2x8"], "--node: '2x8' is not a node"),
        (["--target", "avg_jct<=1h", "--most", "0"], "--most"),
        (["--target", "avg_jct<=1h", "--most", "1"], "The largest job needs 2 nodes"),
        (["--target", "avg_jct<=1h", "--price-per-device-hour", "-1"], "a price is"),
        (["--target", "avg_jct<=1h", "--price-per-device-hour", "nan"], "a price is"),
        (["--target", "avg_jct<=1h", "--policy", "fife"], "Did you mean fifo"),
        (["--target", "avg_jct<=1h", "--trace", "no.csv"], "no.csv"),
        (
            ["--target", "avg_jct<=1h", "--set", "across_racks=0.5"],
            "in a rack. Sizes are searched one node at a time, without racks: leave it out",
        ),
        (
            ["--target", "avg_jct<=1h", "--node", "4", "--set", "tasks=node"],
            "has tasks of 8 GPU, for which a node of 4 GPU",
        ),
    ],
)
def test_bad_input(trace: Path, words: list[str], said: str) -> None:
    node = [] if "--node" in words else ["--node", "8"]
    ran = allot("sim", "size", "--trace", trace, *node, *words)
    assert (ran.code, ran.out) == (2, "")
    assert said in ran.err


ONE = "job_id,submit_time,num_gpus,duration{0}\na,0,1,100000{1}\n"
FAILS = ["--set", "mtbf=1h", "--set", "mttr=10h"]


@pytest.mark.parametrize(
    ("ending", "words"),
    [
        ("", ["--target", "p90_queue_delay<=1h", *FAILS]),
        ("", ["--target", "p90_queue_delay<=1h", "--set", "job_failure=1"]),
        ("", ["--target", "avg_jct>=1s", "--set", "job_failure=1"]),
        ("censored", ["--target", "avg_jct<=1s"]),
    ],
)
def test_where_no_job_completes_no_target_is_met(
    tmp_path: Path, ending: str, words: list[str]
) -> None:
    path = tmp_path / "one.csv"
    path.write_text(ONE.format(*((",ending", f",{ending}") if ending else ("", ""))))
    ran = allot("sim", "size", "--trace", path, "--node", "1", *words)
    assert (ran.code, "→" in ran.out) == (1, False)
    assert "no job completes, so there is no" in ran.err


def test_how_many_completed_is_told_beside_the_answer(trace: Path) -> None:
    words = ("--node", "8xA100", "--target", "avg_jct<=10d", "--set", "job_failure=0.3")
    ran = allot("sim", "size", "--trace", trace, *words)
    assert ran.code == 0, ran.err
    answer, others = ran.out.splitlines()[-2:]
    assert answer.endswith("the least that meet avg_jct<=10d.")
    assert " of 200 completed, " in others
    assert "failed. Means are over completed jobs." in others


@pytest.mark.parametrize(
    ("words", "clairvoyant"),
    [
        (["--policy", "srtf"], True),
        (["--set", "order=easy"], True),
        (["--policy", "srtf", "--set", "estimates=history"], False),
    ],
)
def test_who_is_clairvoyant_is_said(
    short_trace: Path, words: list[str], *, clairvoyant: bool
) -> None:
    ran = allot(
        "sim", "size", "--trace", short_trace, "--node", "8", "--target", WITHIN, *words
    )
    assert ran.code == 0, ran.err
    said = (
        " is clairvoyant: it knew every run time beforehand: a bound, not a practical choice."
    )
    assert ran.out.endswith(f"{said}\n") == clairvoyant
    told = sized(short_trace, "--target", WITHIN, *words)
    assert told["clairvoyant"] == clairvoyant
    assert told["settings"] == dict(word.split("=") for word in words if "=" in word)
    assert told["version"]


def test_a_wait_that_must_be_long_is_looked_for_on_few_nodes(tmp_path: Path) -> None:
    path = tmp_path / "two.csv"
    path.write_text("job_id,submit_time,num_gpus,duration\na,0,1,118\nb,0,1,60\n")
    words = ("--node", "1", "--target", "p90_queue_delay>=1min")
    ran = allot("sim", "size", "--trace", path, *words)
    assert ran.code == 0, ran.err
    assert ran.out.endswith("1 node of 1: the most that meet p90_queue_delay>=1min.\n")


def test_jobs_that_want_other_devices(tmp_path: Path) -> None:
    path = tmp_path / "spot.csv"
    path.write_text(
        "job_name,organization,gpu_model,cpu_request,gpu_request,worker_num,submit_time,"
        "duration,job_type\nj1,a,V100,1,1,2,0,60,HP\nj2,a,A100,1,1,2,5,60,HP\n"
    )
    words = ("--trace", path, "--target", "avg_jct<=1h")
    ran = allot("sim", "size", *words, "--node", "8xV100")
    assert ran.code == 2
    assert "1 of 2 jobs can never run on such nodes" in ran.err
    assert "Job j2:" in ran.err


def test_help_has_examples() -> None:
    ran = allot("sim", "size", "--help")
    assert ran.code == 0
    assert "--target 'p90_queue_delay<=30min'" in ran.out
