"""`allot sim compare` as a user calls it: side by side, in processes that never outlive it."""

import contextlib
import json
import os
import signal
from pathlib import Path

import pytest

from tests.integration.cli.sim_shell import (
    TRACE,
    Folder,
    all_of,
    told_by,
)
from tests.support.patience import PATIENCE_S

ON_TWO = ("compare", "--trace", "t.csv", "--cluster", "2x8", "--policies")
BROKEN = """\
from msgspec.structs import replace
from allotment.sim.catalogue import RECIPES

def ordering(settings, estimates):
    raise ZeroDivisionError("no\\nway")

RECIPE = replace(RECIPES["fifo"], ordering=ordering)
"""
KILLED = BROKEN.replace(
    'raise ZeroDivisionError("no\\nway")', "import os, signal; os.kill(os.getpid(), 9)"
)


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def test_one_table(folder: Folder) -> None:
    done = folder.sim(*ON_TWO, "fifo,srtf,las2d", "--report", "r.html")
    assert done.code == 0, done.err
    head, *rows, note = done.out.splitlines()
    assert head.split()[:3] == ["policy", "mean", "JCT"]
    assert [row.split()[0] for row in rows] == ["fifo", "srtf", "las2d"]
    assert rows[1].startswith("srtf *")
    assert note.startswith("* clairvoyant: it knew every run time beforehand")
    assert sorted(line.split(":")[0] for line in done.err.splitlines()) == [
        *("fifo", "las2d", "srtf")
    ]
    page = (folder.path / "r.html").read_text()
    assert all(name in page for name in ("fifo", "srtf", "las2d"))


def test_json_is_what_each_run_alone_gives(folder: Folder) -> None:
    done = folder.sim(
        *ON_TWO, "las2d,fifo", "--seed", "2", "--set", "job_failure=0.4", "--json"
    )
    told = json.loads(done.out)
    assert [run["policy"] for run in told] == ["las2d", "fifo"]
    for run in told:
        words = ("--policy", run["policy"], "--seed", "2", "--set", "job_failure=0.4", "--json")
        alone = json.loads(folder.sim("run", *ON_TWO[1:5], *words).out)
        assert {**alone, "wall_s": 0} == {**run, "wall_s": 0}


@pytest.mark.parametrize("workers", ["1", "2", "5"])
def test_the_same_however_many_processes(folder: Folder, workers: str) -> None:
    done = folder.sim(*ON_TWO, "fifo,sjf,ftf", "--workers", workers, "--json")
    assert done.code == 0, done.err
    assert [run["avg_jct_s"] for run in json.loads(done.out)] == [115.25, 76.5, 76.5]


BAD = {
    "fifo,lsa2d": "There is no policy 'lsa2d'. Did you mean las2d",
    "fifo,las,fifo": "--policies names one twice",
    ",": "--policies names none.",
    "fifo --workers -1": "--workers: it cannot be negative",
    "fifo --cluster 8x0": "'8x0' has no devices",
    "fifo --report no/r.html": "--report no/r.html: there is no folder",
    "fifo --trace no.csv": "no.csv: cannot be read",
    "fifo,no.py": "no.py: there is no such file",
}


@pytest.mark.parametrize(("words", "said"), BAD.items(), ids=BAD)
def test_bad_input(folder: Folder, words: str, said: str) -> None:
    done = folder.sim(*ON_TWO, *words.split())
    assert (done.code, done.out) == (2, "")
    assert said in done.err
    assert "Traceback" not in done.err
    assert folder.names() == ["t.csv"]


def test_policies_are_looked_up_before_the_trace_is_read(folder: Folder) -> None:
    done = folder.sim(*ON_TWO, "fifo,lsa2d", "--trace", "no.csv")
    assert "There is no policy 'lsa2d'" in done.err


# ── what breaks ─────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_policy_that_breaks_is_named(folder: Folder, workers: str) -> None:
    folder.write("mine.py", BROKEN)
    words = ("fifo,mine.py,las2d", "--workers", workers, "--report", "r.html")
    done = folder.sim(*ON_TWO, *words)
    assert (done.code, done.out) == (1, "")
    assert "error: mine: ZeroDivisionError at mine.py:5: no\nway.\n" in done.err
    assert "Traceback" not in done.err
    assert "r.html" not in folder.names()


def test_a_process_that_is_killed_is_named(folder: Folder) -> None:
    folder.write("mine.py", KILLED)
    done = folder.sim(*ON_TWO, "fifo,mine.py", "--workers", "2", "--report", "r.html")
    assert (done.code, done.out) == (1, "")
    assert "error: mine: its process was killed, perhaps for lack of memory" in done.err
    assert "r.html" not in folder.names()


@pytest.mark.parametrize("to_all", [True, False], ids=["to the group", "to it alone"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
@pytest.mark.parametrize("stays", [True, False], ids=["stuck", "busy"])
def test_stopped_it_leaves_no_process_and_no_file(
    folder: Folder, stays: bool, number: signal.Signals, to_all: bool
) -> None:
    folder.write("t.csv", TRACE + "".join(f"x{n},{n},1,5,red\n" for n in range(30_000)))
    told = folder.waiting_policy(stays=stays)
    words = ("stuck.py,las2d", "--workers", "2", "--report", "r.html")
    with folder.started(*ON_TWO, *words) as compare, told_by(told) as end:
        process = int(os.read(end, 100))
        assert process != compare.pid
        (os.killpg if to_all else os.kill)(compare.pid, number)
        assert all_of(end) == b"", "once the pipe is at its end, so is the process"
        out, err = compare.communicate(timeout=PATIENCE_S)
    assert compare.returncode == (130 if number is signal.SIGINT else -number)
    assert (out, "Traceback" in err) == ("", False)
    assert "r.html" not in folder.names()
    assert not [name for name in folder.names() if name.endswith(".part")]


# ── how far it is ───────────────────────────────────────────────────────────────────────


def test_on_a_terminal_it_shows_how_far_each_policy_is(folder: Folder) -> None:
    rows = "".join(f"x{n},{n},1,5,red\n" for n in range(10_000))
    folder.write("t.csv", TRACE + rows)
    ours, theirs = os.openpty()
    with folder.started(*ON_TWO, "fifo,las2d", "--workers", "2", stderr=theirs) as compare:
        os.close(theirs)
        shown = b""
        with contextlib.suppress(OSError):  # A terminal that everybody has left.
            while piece := os.read(ours, 1 << 16):
                shown += piece
        out, _ = compare.communicate(timeout=PATIENCE_S)
    os.close(ours)
    assert compare.returncode == 0
    text = shown.decode()
    assert "fifo" in text
    assert "las2d" in text
    assert "%" in text
    assert "%" not in out.partition("util.")[0]


def test_without_a_terminal_it_does_not(folder: Folder) -> None:
    rows = "".join(f"x{n},{n + 10},1,5,red\n" for n in range(3_000))
    folder.write("t.csv", TRACE + rows)
    done = folder.sim(*ON_TWO, "fifo,las2d")
    assert done.code == 0
    assert sorted(line.split(":")[0] for line in done.err.splitlines()) == ["fifo", "las2d"]


def test_a_policy_in_a_file_is_not_taken_for_another(folder: Folder) -> None:
    (folder.path / "more").mkdir()
    for name in ("fifo.py", "mine.py", "more/mine.py"):
        folder.write(name, "from allotment.sim.catalogue import RECIPES\n"
                     "RECIPE = RECIPES['srtf']\n")  # fmt: skip
    before = folder.names()
    done = folder.sim(*ON_TWO, "fifo,fifo.py,mine.py,more/mine.py", "--json")
    assert done.code == 0, done.err
    assert folder.names() == before
    names = ["fifo", "fifo.py", "mine.py", "more/mine.py"]
    assert [run["policy"] for run in json.loads(done.out)] == names
    alone = folder.sim("run", *ON_TWO[1:5], "--policy", "mine.py", "--json")
    assert json.loads(alone.out)["policy"] == "mine"
