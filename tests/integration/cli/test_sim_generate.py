"""`allot sim generate` as a user calls it: what it writes, what it says, what it refuses."""

import contextlib
import csv
import json
import signal
from pathlib import Path
from subprocess import TimeoutExpired

import pytest

from tests.integration.cli.sim_shell import Folder
from tests.support.patience import PATIENCE_S

COLUMNS = [
    "job_id", "submit_time", "num_gpus", "duration", "vc", "user", "model", "end_time",
    "ending",
]  # fmt: skip
MADE = ("generate", "--out", "made.csv", "--jobs")


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_jobs_are_written_and_can_be_played(folder: Folder) -> None:
    done = folder.sim(*MADE, "50", "--seed", "4")
    assert (done.code, done.out, done.err) == (0, "", "made.csv: 50 jobs.\n")
    rows = rows_of(folder.path / "made.csv")
    assert list(rows[0]) == COLUMNS
    assert [row["job_id"] for row in rows] == [str(number) for number in range(1, 51)]
    played = folder.sim("run", "--trace", "made.csv", "--cluster", "16x8", "--json")
    told = json.loads(played.out)
    assert (told["jobs"], told["warnings"]) == (50, [])


def test_the_same_seed_makes_the_same_jobs(folder: Folder) -> None:
    files: dict[str, bytes] = {}
    for name, seed in (("a.csv", "1"), ("b.csv", "1"), ("c.csv", "2")):
        assert folder.sim("generate", "--jobs", "40", "--seed", seed, "--out", name).code == 0
        files[name] = (folder.path / name).read_bytes()
    assert files["a.csv"] == files["b.csv"] != files["c.csv"]


def test_like_a_trace_it_says_how_well_it_fits(folder: Folder) -> None:
    done = folder.sim(*MADE, "30", "--like", "t.csv")
    assert done.code == 0, done.err
    assert "run time" in done.out
    assert "time between submissions" in done.out
    assert {row["vc"] for row in rows_of(folder.path / "made.csv")} <= {"red", "blue"}
    told = json.loads(folder.sim(*MADE, "30", "--like", "t.csv", "--json").out)
    assert told["written"] == {"jobs": 30, "left_out": 0}
    assert told["fit"]["rows"]


def test_endings_are_those_of_the_trace(folder: Folder) -> None:
    rows = "".join(f"{n},{n},1,5,{'failed' if n % 2 else 'succeeded'}\n" for n in range(60))
    folder.write("half.csv", f"job_id,submit_time,num_gpus,duration,ending\n{rows}")
    assert folder.sim(*MADE, "400", "--like", "half.csv").code == 0
    ended = [row["ending"] for row in rows_of(folder.path / "made.csv")]
    assert 150 < ended.count("failed") < 250
    assert folder.sim("generate", "--like", "made.csv", "--out", "again.csv").code == 0
    again = [row["ending"] for row in rows_of(folder.path / "again.csv")]
    assert again.count("failed") / len(again) == pytest.approx(
        ended.count("failed") / 400, abs=0.03
    )


def test_a_model_kept_makes_the_same_jobs(folder: Folder) -> None:
    assert folder.sim(*MADE, "30", "--like", "t.csv", "--keep-model", "m.json").code == 0
    first = (folder.path / "made.csv").read_bytes()
    assert (
        folder.sim("generate", "--model", "m.json", "--jobs", "30", "--out", "b.csv").code == 0
    )
    assert (folder.path / "b.csv").read_bytes() == first


def test_a_load_is_met_and_told(folder: Folder) -> None:
    asked = ("--load", "0.9", "--cluster", "16x8")
    done = folder.sim(*MADE, "3000", *asked)
    assert done.code == 0
    rows = [
        (float(row["submit_time"]), float(row["num_gpus"]), float(row["duration"]))
        for row in rows_of(folder.path / "made.csv")
    ]
    first, last = rows[0][0], rows[-1][0]
    used = sum(gpus * min(run, last - at) for at, gpus, run in rows)
    assert used / (128 * (last - first)) == pytest.approx(0.9, rel=0.015)
    assert "Load 0.9" in done.err
    assert "runs were cut to" in done.err
    told = json.loads(folder.sim(*MADE, "3000", *asked, "--json").out)
    assert told["reached"]["load"] == pytest.approx(0.9, rel=0.015)
    assert told["span_ms"] == pytest.approx((last - first) * 1000, abs=1000)
    played = folder.sim("run", "--trace", "made.csv", "--cluster", "16x8", "--json")
    assert json.loads(played.out)["utilization"] > 0.6


BAD = {
    "--load 0 --cluster 2x8": "load 0.0: it must be more than 0, such as 0.8",
    "--load -1 --cluster 2x8": "load -1.0: it must be more than 0",
    "--load nan --cluster 2x8": "load nan: it must be more than 0",
    "--load much --cluster 2x8": "'--load': Input should be a valid number",
    "--load 0.5": "--load needs --cluster",
    "--load 0.5 --cluster 8x0": "'8x0' has no devices",
    "--jobs 0": "0 jobs: there must be at least 1",
    "--jobs 99999999999": "99,999,999,999 jobs: there may be at most 100,000,000",
    "--jobs -5": "-5 jobs: there must be at least 1",
    "--seed -1": "seed -1: it must be 0 or more",
    "--like t.csv --model m.json": "--like and --model: give one of them",
    "--like no.csv": "no.csv: cannot be read",
    "--like t.csv --format philly": "t.csv",
    "--model no.json": "no.json: no such file or directory. Name a model kept with",
    "--model m.json": "m.json: not a workload model",
    "--out no/made.csv": "--out no/made.csv: there is no folder",
    "--out .": "--out .: it is a folder. Name a file in it, such as jobs.csv",
    "--like t.csv --out t.csv": "--out t.csv: it is read in the same run",
    "--model m.json --keep-model m.json": "--keep-model m.json: it is read in the same run",
    "--keep-model made.csv": "names the same. Name another",
    "--keep-model no/m.json": "--keep-model no/m.json: there is no folder",
}


@pytest.mark.parametrize(("words", "said"), BAD.items(), ids=BAD)
def test_bad_input(folder: Folder, words: str, said: str) -> None:
    folder.write("m.json", '{"jobs": 5}')
    done = folder.sim("generate", "--out", "made.csv", *words.split())
    assert (done.code, done.out) == (2, "")
    assert said in done.err
    assert "Traceback" not in done.err
    assert folder.names() == ["m.json", "t.csv"]


def test_a_full_device_leaves_no_model(folder: Folder) -> None:
    (folder.path / "full").symlink_to("/dev/full")
    done = folder.sim("generate", "--jobs", "5", "--out", "full", "--keep-model", "m.json")
    assert (done.code, done.out) == (1, "")
    assert "error: --out full: no space left on device. It was not written.\n" in done.err
    assert folder.names() == ["full", "t.csv"]
    assert Path("/dev/full").is_char_device()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_who_ends_it_finds_nothing_half_written(folder: Folder, number: signal.Signals) -> None:
    folder.write("made.csv", "as it was")
    with folder.started("generate", "--jobs", "3000000", "--out", "made.csv") as process:
        for _ in range(20 * PATIENCE_S):
            if is_half_written(folder):
                break
            with pytest.raises(TimeoutExpired):
                process.wait(0.05)
        process.send_signal(number)
        process.communicate(timeout=PATIENCE_S)
    assert process.returncode == (130 if number is signal.SIGINT else -number)
    assert folder.names() == ["made.csv", "t.csv"]
    assert (folder.path / "made.csv").read_text() == "as it was"


def is_half_written(folder: Folder) -> bool:
    with contextlib.suppress(FileNotFoundError):
        return any(part.stat().st_size for part in folder.path.glob(".*.part"))
    return False
