"""What `allot sim` says of jobs that do not complete, and of runs that come to nothing."""

import csv
import json
from pathlib import Path

import msgspec
import pytest

from allotment.metrics.summary import Fairness, Sla, Summary, TenantBlock, WaitParts
from tests.integration.cli.sim_shell import Folder

LARGE = "job_id,submit_time,num_gpus,duration\nbig,0,99,10\nbigger,5,120,10\n"
NEVER_UP = ("--set", "mtbf=1min", "--set", "mttr=30d")


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    folder = Folder(tmp_path)
    (tmp_path / "large.csv").write_text(LARGE)
    return folder


def names(kind: type) -> set[str]:
    return {field.name for field in msgspec.structs.fields(kind)}


def test_json_has_all_that_is_defined(folder: Folder) -> None:
    told = json.loads(folder.sim("run", "--trace", "t.csv", "--cluster", "2x8", "--json").out)
    assert names(Summary) <= set(told)
    assert {"trace_digest", "seed", "version", "wall_s"} <= set(told)
    assert names(Fairness) == set(told["fairness"])
    assert names(Sla) == set(told["sla"])
    assert names(WaitParts) == set(told["wait_causes"])
    assert all(names(TenantBlock) == set(block) for block in told["tenants"])


def test_jobs_that_fail_are_told_in_words_and_rows(folder: Folder) -> None:
    fails = ("--set", "job_failure=1", "--set", "retries=0")
    on_two = ("run", "--trace", "t.csv", "--cluster", "2x8", *fails)
    done = folder.sim(*on_two, "--jobs-out", "jobs.csv")
    assert "0 of 4 completed, 4 failed" in done.out
    with (folder.path / "jobs.csv").open() as file:
        assert [row["outcome"] for row in csv.DictReader(file)] == ["failed"] * 4
    told = json.loads(folder.sim(*on_two, "--json").out)
    assert (told["completed"], told["failed"], told["makespan_s"] > 0) == (0, 4, True)
    both = folder.sim("compare", *on_two[1:], "--policies", "fifo,srtf")
    assert "completed" in both.out


def test_what_is_of_completed_jobs_is_left_open_when_there_is_none(folder: Folder) -> None:
    fails = ("--set", "job_failure=1", "--set", "retries=0")
    on_two = ("run", "--trace", "t.csv", "--cluster", "2x8", *fails)
    said = dict(line.strip().split(maxsplit=1) for line in folder.sim(*on_two).out.splitlines())
    assert (said["completion"], said["waiting"], said["fairness"]) == ("–", "–", "–")
    assert said["makespan"].endswith(", 0.0 jobs/h")
    assert said["utilization"] != "0.0%"
    told = json.loads(folder.sim(*on_two, "--json").out)
    open_ones = {
        *(name for name in told if name.endswith(("_jct_s", "_queue_delay_s", "_response_s"))),
    }
    assert len(open_ones) == 12
    assert all(told[name] is None for name in open_ones)
    assert set(told["fairness"].values()) == {None}
    assert told["sla"]["target_rho"] == 2
    assert told["sla"]["both"] is None
    assert all(block["avg_jct_s"] is None for block in told["tenants"])
    report = folder.sim(*on_two, "--report", "r.html")
    assert report.code == 0, report.err


def test_a_tenant_without_completed_jobs_has_no_means(folder: Folder) -> None:
    folder.write("censored.csv", "job_id,submit_time,num_gpus,duration,vc,ending\n"
                 "a,0,1,60,red,succeeded\nb,0,1,60,blue,censored\n")  # fmt: skip
    done = folder.sim("run", "--trace", "censored.csv", "--cluster", "1x2", "--json")
    told = json.loads(done.out)
    assert told["avg_jct_s"] == 60
    assert [block["avg_jct_s"] for block in told["tenants"]] == [None, 60]


@pytest.mark.parametrize("verb", [("run",), ("compare", "--policies", "fifo,srtf")])
def test_a_run_in_which_no_job_fits_says_so(folder: Folder, verb: tuple[str, ...]) -> None:
    words = (*verb, "--trace", "large.csv", "--cluster", "2x8", "--report", "r.html")
    done = folder.sim(*words)
    assert (done.code, "0 ms" in done.out) == (2, False)
    assert (
        "no job can ever run on this cluster (big, bigger). The largest, bigger, " in done.err
    )
    assert "asks for 120 devices; there are 16: 2 nodes × 8 gpu." in done.err
    assert "r.html" not in folder.names()
    machine = folder.sim(*words, "--json")
    assert machine.code == 2
    assert '"never_schedulable": 2' in machine.out
    assert "bigger, asks for 120 devices" in machine.out


def test_nodes_that_only_fail_end_it(folder: Folder) -> None:
    done = folder.sim("run", "--trace", "large.csv", "--cluster", "20x8", *NEVER_UP)
    assert done.code == 2
    assert "Nodes failed 10,000 times in a row while no job ran; 1 wait, the first" in done.err
