"""`allot sim run` as a user calls it: the installed program, its files and its exit codes."""

import csv
import gzip
import json
import os
import signal
import stat
import subprocess
from pathlib import Path

import pytest
import zstandard

from tests.integration.cli.sim_shell import TRACE, Folder, process_told
from tests.support.patience import PATIENCE_S

ON_TWO = ("run", "--trace", "t.csv", "--cluster", "2x8")
COLUMNS = [
    "job_id", "tenant", "num_gpus", "submit_time", "start_time", "end_time", "attained_gpu_s",
    "preemptions",
]  # fmt: skip
KEYS = {
    "jobs", "completed", "avg_jct_s", "p50_jct_s", "p90_jct_s", "p99_jct_s",
    "avg_queue_delay_s", "p50_queue_delay_s", "p90_queue_delay_s", "p99_queue_delay_s",
    "makespan_s", "throughput_jobs_per_h", "utilization", "fragmentation", "preemptions",
    "fairness", "tenants", "trace_digest", "seed", "version", "wall_s", "policy",
    "clairvoyant", "never_schedulable", "dropped", "warnings", "settings",
}  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


# ── what comes out ──────────────────────────────────────────────────────────────────────


def test_json_has_every_number(folder: Folder) -> None:
    done = folder.sim_alone(*ON_TWO, "--seed", "7", "--set", "start=90s", "--json")
    assert (done.code, done.err) == (0, "")
    told = json.loads(done.out)
    assert set(told) >= KEYS
    assert (told["jobs"], told["completed"], told["seed"]) == (4, 4, 7)
    assert told["settings"] == {"start": "90s"}
    assert {"jain", "mean_rho", "worst_rho"} <= set(told["fairness"])
    assert len(told["tenants"]) == 2
    assert len(told["trace_digest"]) == 16


@pytest.mark.parametrize(("mode", "makespan_s"), [("suspend", 1_800), ("requeue", 2_020)])
def test_three_jobs_take_turns_on_one_device(
    folder: Folder, mode: str, makespan_s: int
) -> None:
    """Suspended, they lose nothing; requeued, what they did since their last checkpoint."""
    rows = "".join(f"{job},0,1,600\n" for job in "abc")
    folder.write("three.csv", f"job_id,submit_time,num_gpus,duration\n{rows}")
    sliced = ("policy maxmin", "set round=60s", "set lead=0", f"set eviction={mode}")
    lossy = ("set warned=ignore", "set checkpoint=40s")
    words = [word for pair in (*sliced, *lossy) for word in f"--{pair}".split()]
    done = folder.sim(
        "run",
        "--trace",
        "three.csv",
        "--cluster",
        "1x1",
        "--jobs-out",
        "jobs.csv",
        "--json",
        *words,
    )
    assert done.code == 0, done.err
    told = json.loads(done.out)
    assert (told["completed"], told["makespan_s"]) == (3, makespan_s)
    started = csv.DictReader((folder.path / "jobs.csv").read_text().splitlines())
    assert [float(row["start_time"]) for row in started] == [0, 60, 120]


def test_jobs_and_report_are_written(folder: Folder) -> None:
    done = folder.sim(*ON_TWO, "--jobs-out", "jobs.csv", "--report", "r.html")
    assert done.code == 0, done.err
    assert folder.names() == ["jobs.csv", "r.html", "t.csv"]
    rows = list(csv.reader((folder.path / "jobs.csv").read_text().splitlines()))
    assert rows[0][:8] == COLUMNS
    assert rows[1][:8] == ["a", "red", "1", "0", "0", "60", "60", "0"]
    assert [row[0] for row in rows[1:]] == ["a", "b", "c", "d"]
    page = (folder.path / "r.html").read_text()
    assert page.lower().startswith("<!doctype html>")
    assert page.rstrip().endswith("</html>")


def test_the_same_run_gives_the_same_jobs(folder: Folder) -> None:
    words = (*ON_TWO, "--policy", "las2d", "--set", "job_failure=0.5", "--seed", "3")
    for name in ("one.csv", "two.csv"):
        assert folder.sim(*words, "--jobs-out", name).code == 0
    assert (folder.path / "one.csv").read_bytes() == (folder.path / "two.csv").read_bytes()


def test_jobs_out_is_a_trace(folder: Folder) -> None:
    assert folder.sim(*ON_TWO, "--jobs-out", "jobs.csv").code == 0
    again = folder.sim("run", "--trace", "jobs.csv", "--cluster", "2x8", "--json")
    assert json.loads(again.out)["jobs"] == 4


# ── input that is odd, and played ───────────────────────────────────────────────────────


def test_a_job_larger_than_the_cluster_is_told_and_the_rest_runs(folder: Folder) -> None:
    words = ("run", "--trace", "t.csv", "--cluster", "1x8")
    done = folder.sim(*words)
    assert done.code == 0
    assert "3 of 4 completed, 1 can never run here" in done.out
    assert "\n  never here    1 job (" in done.out
    assert "no arrangement on these 1 node(s) has room" in done.out
    assert "`allot nodes`" not in done.out, "there is no service to ask"
    told = json.loads(folder.sim(*words, "--json", "--jobs-out", "jobs.csv").out)
    assert (told["completed"], told["never_schedulable"]) == (3, 1)
    assert list(told["never_why"].values()) == [1]
    rows = csv.DictReader((folder.path / "jobs.csv").read_text().splitlines())
    (never,) = [row for row in rows if not row["start_time"]]
    assert (never["job_id"], never["end_time"], never["attained_gpu_s"]) == ("c", "", "0")


def test_jobs_out_of_order_are_sorted_with_a_warning(folder: Folder) -> None:
    head, *rows = TRACE.splitlines()
    folder.write("back.csv", "\n".join([head, *rows[::-1]]))
    done = folder.sim("run", "--trace", "back.csv", "--cluster", "2x8", "--json")
    assert done.code == 0
    assert "warning: the file is not in order of submission, and was sorted: 3 of 4" in done.err
    assert json.loads(done.out)["warnings"]
    plain = json.loads(folder.sim(*ON_TWO, "--json").out)
    assert json.loads(done.out)["avg_jct_s"] == plain["avg_jct_s"]


def test_broken_rows_are_left_out_and_told_by_number(folder: Folder) -> None:
    folder.write("odd.csv", TRACE + "e,20,1,-60,red\nf,21,1,,red\ng,22,1,-1,red\n")
    done = folder.sim("run", "--trace", "odd.csv", "--cluster", "2x8")
    assert done.code == 0
    assert "warning: left out: row 5 and 1 more: duration is negative" in done.err
    assert "warning: left out: row 6: duration is missing" in done.err
    assert "4 of 4 completed" in done.out
    assert "left out      2 rows: duration is negative" in done.out
    assert "left out      1 row: duration is missing" in done.out


def test_times_that_look_like_milliseconds_are_doubted(folder: Folder) -> None:
    rows = "".join(f"{n},{n},1,{7_200_000 + n}\n" for n in range(9))
    folder.write("ms.csv", f"job_id,submit_time,num_gpus,duration\n{rows}")
    done = folder.sim("run", "--trace", "ms.csv", "--cluster", "2x8")
    assert done.code == 0
    assert "warning: half of the jobs run longer than 83 days: the durations look" in done.err


# ── input that cannot be ────────────────────────────────────────────────────────────────

MANY = TRACE + "".join(f"x{n},{n},1,5,red\n" for n in range(9_000))
HEAD = "job_id,submit_time,num_gpus,duration\n"
CLUSTER = """\
nodes:
  - {name: n1, cpu: 8, memory: 1GiB, gpu: {type: A, count: 8}, labels: {rack: r1, switch: s}}
  - {name: n2, cpu: 8, memory: 1GiB, gpu: {type: A, count: 8}, labels: {rack: r2, switch: s}}
tenants: {red: {guaranteed: {gpu: 1}}}
"""
FILES = {
    "negative.csv": f"{HEAD}a,0,1,-5\n",
    "missing.csv": f"{HEAD}a,0,1,\n",
    "twice.csv": f"{HEAD}a,0,1,5\nb,1,1,5\na,2,1,5\n",
    "header.csv": "job_id,submit_time,num_gpus\na,0,1\n",
    "empty.csv": "",
    "cut.csv.gz": gzip.compress(MANY.encode())[:-40],
    "cut.csv.zst": zstandard.compress(MANY.encode())[:-40],
    "switch.yaml": CLUSTER,
    "count.yaml": CLUSTER.replace("count: 8", "count: -8", 1),
    "key.yaml": CLUSTER.replace("memory", "memroy", 1),
    "racks.yaml": "hardware: [8 x dgx-a100 in racks of 3]\ntenants: {a: {}}\n",
    "policy.py": "RECIPE = 5\n",
    "rates.json": json.dumps({kind: {"('lm', 1)": {"null": 2.0}} for kind in ("k80", "v100")}),
    "broken.py": "import nothing_like_it\n",
}
BAD = {
    "--trace negative.csv": "no job could be read as simple: row 1: duration is negative",
    "--trace missing.csv": "no job could be read as simple: row 1: duration is missing",
    "--trace twice.csv": "rows 1 and 3 (the header not counted) are both called 'a'",
    "--trace header.csv": "nearest is simple, whose header also has duration",
    "--trace empty.csv": "empty.csv: the file is empty",
    "--trace no.csv": "no.csv: cannot be read: No such file",
    "--trace .": "a folder is read as pai, but it has no pai_job_table.csv",
    "--trace cut.csv.gz": "cut.csv.gz: the compressed file is cut short: it ends at byte",
    "--trace cut.csv.zst": "cut.csv.zst: the compressed file is cut short: it ends at byte",
    "--format tiresis": "did you mean tiresias",
    "--policy lsa2d": "There is no policy 'lsa2d'. Did you mean las2d",
    "--policy SRTF": "There is no policy 'SRTF'. Did you mean srtf",
    "--policy policy.py": "policy.py defines no RECIPE",
    "--policy broken.py": "broken.py: ModuleNotFoundError: No module named 'nothing_like_it'",
    "--policy no.py": "no.py: there is no such file",
    "--cluster 8x0": "'8x0' has no devices, so no job could run: write NODESxDEVICES",
    "--cluster 0x8": "a cluster has at least one node",
    "--cluster 16x8/3": "16 nodes do not fill racks of 3. Write 18x8/3, or 15x8/3+1x8/1",
    "--cluster 1x10000": "'1x10000': a cluster has at least one node, and at most 100,000 ",
    "--cluster 10000000x1": "'10000000x1': a cluster has at least one node, and at most",
    "--cluster=": "'' is not a cluster: write NODESxDEVICES, such as 16x8",
    "--cluster eight": "'eight' is not a cluster: write NODESxDEVICES, such as 16x8",
    "--cluster no.yaml": "no.yaml: no such file or directory. Name a cluster file, or write",
    "--cluster switch.yaml": "switch.yaml:3: nodes[1].labels.switch: switch s is in rack r1",
    "--cluster count.yaml": "count.yaml:2: nodes[0].gpu.count: must be at least 1, not -8",
    "--cluster key.yaml": "key.yaml:2: nodes[0].memroy: there is no key `memroy` here",
    "--cluster racks.yaml": "racks.yaml:1: hardware[0]: 8 nodes do not fill racks of 3",
    "--set within=rack": "no node of this cluster is in a rack. Write --cluster 64x8/4",
    "--set across_racks=0.5": "no node of this cluster is in a rack. Write --cluster 64x8/4",
    "--throughputs rates.json --cluster 2x4xK80": "no throughputs for devices of type 'K80'. "
    "Write k80, or no type: such devices are as fast as v100",
    "--set qeues=5": "--set qeues: there is no such setting. Near: queues",
    "--set queues=": "--set queues: '' is not a length of time",
    "--set round": "--set round: write KEY=VALUE",
    "--throughputs t.csv": "t.csv: not a table of throughputs",
    "--jobs-out no/jobs.csv": "--jobs-out no/jobs.csv: there is no folder ",
    "--jobs-out .": "--jobs-out .: it is a folder. Name a file in it, such as jobs.csv",
    "--jobs-out t.csv": "--jobs-out t.csv: it is read in the same run. Name another file",
    "--jobs-out t.csv/x": "--jobs-out t.csv/x: there is no folder ",
    "--report r.html --jobs-out ./r.html": "names the same. Name another",
    "--report /dev/fd/77": "--report /dev/fd/77: it is not open",
}


@pytest.mark.parametrize(("words", "said"), BAD.items(), ids=BAD)
def test_bad_input(folder: Folder, words: str, said: str) -> None:
    for name, stored in FILES.items():
        folder.write(name, stored)
    before = folder.names()
    outputs = () if "-out" in words else ("--jobs-out", "jobs.csv")
    done = folder.sim(*ON_TWO, *outputs, *words.split())
    assert (done.code, done.out) == (2, "")
    assert said in done.err
    assert "Traceback" not in done.err
    assert folder.names() == before


def a_tree(folder: Folder) -> dict[str, str]:
    """Make a trace in a folder, a service's state folder and a policy; give all files."""
    for name in ("pai/pai_job_table.csv", "pai/pai_task_table.csv", "pai/more.csv",
                 "state/allot.db", "state/lock", "state/outputs/1/old.csv"):  # fmt: skip
        (folder.path / name).parent.mkdir(parents=True, exist_ok=True)
        folder.write(name, name)
    folder.write("mine.py", "from allotment.sim.catalogue import RECIPES\n"
                 "RECIPE = RECIPES['fifo']\n")  # fmt: skip
    return contents(folder)


def contents(folder: Folder) -> dict[str, str]:
    files = [path for path in folder.path.rglob("*") if path.is_file()]
    return {str(path.relative_to(folder.path)): path.read_text() for path in files}


IT_IS_READ = "it is read in the same run. Name another file"
OF_A_SERVICE = "is the state folder of a service. Name a place outside of it"
KEPT = {
    "run --trace pai --cluster 1x1 --jobs-out pai/pai_job_table.csv": IT_IS_READ,
    "run --trace pai --cluster 1x1 --report pai/pai_task_table.csv": IT_IS_READ,
    "run --trace t.csv --cluster 1x1 --policy mine.py --jobs-out mine.py": IT_IS_READ,
    "run --trace t.csv --cluster 1x1 --jobs-out state/allot.db": OF_A_SERVICE,
    "run --trace t.csv --cluster 1x1 --jobs-out state/new.csv": OF_A_SERVICE,
    "run --trace t.csv --cluster 1x1 --jobs-out state/tasks/../lock": OF_A_SERVICE,
    "compare --trace t.csv --cluster 1x1 --policies fifo,mine.py --report mine.py": IT_IS_READ,
    "compare --trace pai --cluster 1x1 --policies fifo,srtf --report pai/pai_job_table.csv": (
        IT_IS_READ
    ),
    "size --trace t.csv --node 1 --target avg_jct<=1h --policy mine.py --report mine.py": (
        IT_IS_READ
    ),
    "replay --since 1d --policy mine.py --jobs-out mine.py": IT_IS_READ,
    "replay --since 1d --policy fifo --jobs-out state/allot.db": OF_A_SERVICE,
    "generate --jobs 5 --out state/jobs.csv": OF_A_SERVICE,
    "generate --jobs 5 --out pai/pai_job_table.csv --like pai": IT_IS_READ,
}


@pytest.mark.parametrize(("words", "said"), KEPT.items(), ids=KEPT)
def test_what_is_read_and_what_a_service_keeps_is_never_written(
    folder: Folder, words: str, said: str
) -> None:
    (folder.path / "state" / "tasks").mkdir(parents=True)
    before = a_tree(folder)
    done = folder.sim(*words.split())
    assert (done.code, done.out) == (2, "")
    assert said in done.err
    assert contents(folder) == before


@pytest.mark.parametrize("place", ["state/outputs/1/old.csv", "pai/more.csv", "pai/new.csv"])
def test_other_files_beside_them_are_written(folder: Folder, place: str) -> None:
    a_tree(folder)
    done = folder.sim(*ON_TWO, "--jobs-out", place)
    assert done.code == 0, done.err
    assert contents(folder)[place].startswith("job_id,")


@pytest.mark.parametrize("name", ["key.yaml", "switch.yaml", "no.yaml"])
def test_bad_input_is_told_to_programs_in_a_line(folder: Folder, name: str) -> None:
    folder.write("key.yaml", FILES["key.yaml"])
    folder.write("switch.yaml", FILES["switch.yaml"])
    done = folder.sim("run", "--trace", "t.csv", "--cluster", name, "--json")
    assert (done.code, done.out) == (2, "")
    (line,) = done.err.splitlines()
    assert name in json.loads(line)["error"]["message"]


RAISES = """\
from __future__ import annotations; from dataclasses import dataclass
from allotment.sim.catalogue import Recipe
@dataclass
class Mine:
    field: int = 1
    def rank(self, job, now): raise KeyError("no")
RECIPE = Recipe("breaks", lambda s, e: Mine())
"""


def test_a_policy_that_breaks_is_told_in_a_line(folder: Folder) -> None:
    folder.write("mine.py", RAISES)
    done = folder.sim(*ON_TWO, "--policy", "mine.py", "--jobs-out", "jobs.csv")
    assert (done.code, done.out) == (1, "")
    assert done.err == "error: mine: KeyError at mine.py:6: 'no'.\n"
    assert "jobs.csv" not in folder.names()


def test_where_it_goes_is_tried_before_the_trace_is_read(folder: Folder) -> None:
    done = folder.sim("run", "--trace", "no.csv", "--cluster", "2x8", "--report", "no/r.html")
    assert done.code == 2
    assert "--report no/r.html: there is no folder" in done.err


# ── all outputs or none ─────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("full", "other"), [("--jobs-out", "--report"), ("--report", "--jobs-out")]
)
def test_a_full_device_leaves_no_output(folder: Folder, full: str, other: str) -> None:
    (folder.path / "full").symlink_to("/dev/full")
    folder.write("kept", "as it was")
    done = folder.sim(*ON_TWO, full, "full", other, "kept")
    assert (done.code, done.out) == (1, "")
    assert done.err == f"error: {full} full: no space left on device. It was not written.\n"
    assert folder.names() == ["full", "kept", "t.csv"]
    assert (folder.path / "kept").read_text() == "as it was"
    assert Path("/dev/full").is_char_device()


def test_a_pipe_is_written_to_and_stays(folder: Folder) -> None:
    pipe = folder.path / "pipe"
    os.mkfifo(pipe)
    with subprocess.Popen(["cat", pipe], stdout=subprocess.PIPE, text=True) as reader:
        done = folder.sim(*ON_TWO, "--jobs-out", "pipe")
        got, _ = reader.communicate(timeout=PATIENCE_S)
    assert done.code == 0, done.err
    assert got.startswith(",".join(COLUMNS))
    assert len(got.splitlines()) == 5
    assert pipe.is_fifo()


def test_jobs_to_the_standard_output(folder: Folder) -> None:
    done = folder.sim_alone(*ON_TWO, "--jobs-out", "/dev/stdout")
    assert done.code == 0, done.err
    lines = done.out.splitlines()
    assert lines[0].startswith(",".join(COLUMNS))
    assert lines[5].startswith("fifo on 2 nodes")


def test_the_standard_output_may_be_a_file(folder: Folder) -> None:
    with (folder.path / "all.txt").open("w") as file:
        subprocess.run(
            [*folder.command(*ON_TWO), "--jobs-out", "/dev/stdout"],
            cwd=folder.path, stdout=file, check=True,
        )  # fmt: skip
    lines = (folder.path / "all.txt").read_text().splitlines()
    assert lines[0].startswith(",".join(COLUMNS))
    assert lines[5].startswith("fifo on 2 nodes")


def test_a_link_stays_and_so_does_the_mode(folder: Folder) -> None:
    real = folder.write("real.csv", "old")
    real.chmod(0o600)
    (folder.path / "link.csv").symlink_to("real.csv")
    assert folder.sim(*ON_TWO, "--jobs-out", "link.csv").code == 0
    assert (folder.path / "link.csv").is_symlink()
    assert stat.S_IMODE(real.stat().st_mode) == 0o600
    assert real.read_text().startswith("job_id,")


@pytest.mark.parametrize("to_all", [True, False], ids=["to the group", "to it alone"])
def test_interrupted_it_leaves_nothing(folder: Folder, to_all: bool) -> None:
    told = folder.waiting_policy(stays=True)
    before = folder.names()
    words = (*ON_TWO, "--policy", "stuck.py", "--jobs-out", "jobs.csv", "--report", "r.html")
    with folder.started(*words) as run:
        assert process_told(told) == run.pid
        (os.killpg if to_all else os.kill)(run.pid, signal.SIGINT)
        _, err = run.communicate(timeout=PATIENCE_S)
    assert run.returncode == 130
    assert "Traceback" not in err
    assert [name for name in folder.names() if name != "__pycache__"] == before


def test_help_has_examples(folder: Folder) -> None:
    done = folder.sim("run", "--help")
    assert done.code == 0
    assert "allot sim run --trace philly.csv --cluster 64x8 --policy las2d" in done.out
