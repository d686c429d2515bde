"""`allot sim run --cluster FILE`: the file's tenants, and what each is guaranteed."""

import csv
import json
from pathlib import Path

import pytest

from tests.integration.cli.sim_shell import Folder

TRACE = """\
job_id,submit_time,num_gpus,duration,tenant
a1,0,8,100,a
a2,1,8,100,a
a3,2,8,100,a
b1,3,8,100,b
b2,4,8,100,b
"""
CELLS = """\
hardware: [4 x 8xV100]
tenants:
  a: {cells: {8xV100-node: 2}, borrow: BORROW}
  b: {cells: {8xV100-node: 2}, users: [root]}
"""
COUNTED = """\
hardware: [4 x 8xV100]
tenants:
  a: {guaranteed: {gpu: 16}, borrow: false}
  b: {guaranteed: {gpu: 16}}
"""


def starts(
    folder: Folder, config: str, trace: str = TRACE, tasks: str = "node"
) -> dict[str, list[int]]:
    folder.write("c.yaml", config)
    folder.write("jobs.csv", trace)
    done = folder.sim(
        "run", "--trace", "jobs.csv", "--cluster", "c.yaml", "--set", f"tasks={tasks}",
        "--jobs-out", "out.csv",
    )  # fmt: skip
    assert done.code == 0, done.err
    rows = csv.DictReader((folder.path / "out.csv").read_text().splitlines())
    return {r["job_id"]: [int(r["start_time"]), int(r["preemptions"])] for r in rows}


@pytest.mark.parametrize("config", [CELLS.replace("BORROW", "false"), COUNTED])
def test_a_tenant_that_does_not_borrow_stays_within_its_share(
    tmp_path: Path, config: str
) -> None:
    assert starts(Folder(tmp_path), config) == {
        "a1": [0, 0], "a2": [1, 0], "a3": [100, 0], "b1": [3, 0], "b2": [4, 0],
    }  # fmt: skip


def test_a_borrower_gives_way_to_the_owner_of_the_cells(tmp_path: Path) -> None:
    # It starts at 2 on b's nodes, goes when b's second job comes, and then waits for a1.
    happened = starts(Folder(tmp_path), CELLS.replace("BORROW", "true"))
    assert happened["a3"] == [2, 1]
    assert happened["b2"] == [4, 0]


def test_tenants_of_whom_the_file_knows_nothing_are_named(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    folder.write("c.yaml", COUNTED)
    folder.write("jobs.csv", TRACE + "c1,5,1,1,c\nc2,6,1,1,c\n")
    done = folder.sim("run", "--trace", "jobs.csv", "--cluster", "c.yaml")
    assert done.code == 2
    assert "c.yaml: the trace jobs.csv has tenants that are not in it: c (2 jobs)." in done.err


@pytest.mark.parametrize("tenants", ["tenants: {everybody: }\n", ""])
def test_where_nobody_is_guaranteed_anything_all_stand_in_one_line(
    tmp_path: Path, tenants: str
) -> None:
    config = f"hardware: [4 x 8xV100]\n{tenants}"
    happened = starts(Folder(tmp_path), config)
    assert [start for start, _ in happened.values()] == [0, 1, 2, 3, 100]


@pytest.mark.parametrize("rule", ["drf", "max_min"])
def test_tenants_share_by_weight_where_none_has_a_guarantee(tmp_path: Path, rule: str) -> None:
    tenants = "{a: {weight: 3}, b: {}}"
    config = f"hardware: [1 x 8xV100]\nshare: {rule}\ntenants: {tenants}\n"
    jobs = "".join(f"{who}{at},0,1,100,{who}\n" for who in "ab" for at in range(8))
    happened = starts(Folder(tmp_path), config, TRACE.partition("\n")[0] + "\n" + jobs)
    first = [job for job, (start, _) in happened.items() if start == 0]
    assert sorted(first) == ["a0", "a1", "a2", "a3", "a4", "a5", "b0", "b1"]


ONE_NODE = """\
nodes: [{name: n, cpu: 64, memory: 512GiB, gpu: {type: A, count: 4, memory: 80GiB}}]
tenants: {a: {guaranteed: {gpu: 4}, queues: QUEUES}}
"""
THREE = """\
job_id,submit_time,num_gpus,duration,tenant
long,0,4,1000,a
longer,10,4,900,a
short,20,4,100,a
"""


def test_the_policy_ranks_the_jobs_of_a_queue_whatever_the_file_says(tmp_path: Path) -> None:
    config = ONE_NODE.replace("QUEUES", "{default: {order: strict, rank: shortest}}")
    happened = starts(Folder(tmp_path), config, THREE, tasks="none")
    assert happened == {"long": [0, 0], "longer": [1000, 0], "short": [1900, 0]}


@pytest.mark.parametrize(
    "queues",
    [
        "{default: {max_waiting: 1}}",
        "{default: {state: closed}}",
        "{default: {state: stopped}}",
        "{default: {max_jobs: 0}}",
        "{default: {queues: {inner: {}}}}",
        "{other: {}}",
    ],
)
def test_each_tenant_has_one_queue_that_takes_every_job(tmp_path: Path, queues: str) -> None:
    config = ONE_NODE.replace("QUEUES", queues)
    happened = starts(Folder(tmp_path), config, THREE, tasks="none")
    assert happened == {"long": [0, 0], "longer": [1000, 0], "short": [1900, 0]}


@pytest.mark.parametrize(
    ("config", "said"),
    [
        (COUNTED, "4 nodes × 8 V100, shared by 2 tenants as in c.yaml"),
        (
            ONE_NODE.replace("QUEUES", "{default: }"),
            "1 node × 4 A, owned by tenant a as in c.yaml",
        ),
        ("hardware: [4 x 8xV100]\n", "4 nodes × 8 V100"),
    ],
)
def test_that_the_file_shares_the_cluster_is_said(
    tmp_path: Path, config: str, said: str
) -> None:
    folder = Folder(tmp_path)
    folder.write("c.yaml", config)
    folder.write("jobs.csv", THREE)
    words = ("run", "--trace", "jobs.csv", "--cluster", "c.yaml", "--report", "page.html")
    assert folder.sim(*words).out.startswith(f"fifo on {said}\n")
    assert json.loads(folder.sim(*words, "--json").out)["cluster"] == said
    assert f"{said}: " in (folder.path / "page.html").read_text()
