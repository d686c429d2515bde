"""`allotment.progress`: a call in a training loop that can do no harm."""

import json
import math
import subprocess
import sys
from pathlib import Path

import pytest

import allotment
from allotment.job import MOST_METRICS, Progress
from allotment.service.progress import MOST_BYTES

SRC = Path(allotment.__file__).parents[1]


def lines(file: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def test_the_first_call_is_written_and_the_last_one_at_the_end(tmp_path: Path) -> None:
    file = tmp_path / "progress"
    told = Progress(str(file))
    for step in range(1, 1001):
        told(step, 1000, loss=1 / step)
        if step == 1:
            assert lines(file) == [{"step": 1, "total": 1000, "metrics": {"loss": 1.0}}]
    told.last()
    (line,) = lines(file)
    assert line["step"] == 1000


def test_a_shorter_line_leaves_nothing_of_a_longer_one(tmp_path: Path) -> None:
    told = Progress(str(tmp_path / "progress"))
    told(10**15, 10**16, loss=0.123456789)
    told._next = 0.0
    told(1)
    assert lines(tmp_path / "progress") == [{"step": 1}]


def test_what_is_no_number_is_left_out(tmp_path: Path) -> None:
    told = Progress(str(tmp_path / "progress"))
    told(3, loss=math.nan, speed=math.inf, name="x", good=2)
    assert lines(tmp_path / "progress") == [{"step": 3, "metrics": {"good": 2.0}}]


def test_no_line_is_longer_than_what_is_read(tmp_path: Path) -> None:
    told = Progress(str(tmp_path / "progress"))
    told(2**62, 2**62, **{f"{n:03}" + "é" * 400: 1.0 / 3 for n in range(100)})
    (line,) = lines(tmp_path / "progress")
    metrics = line["metrics"]
    assert isinstance(metrics, dict)
    assert len(metrics) == MOST_METRICS
    assert (tmp_path / "progress").stat().st_size < MOST_BYTES


@pytest.mark.parametrize("step", ["x", None, math.nan])
def test_a_call_never_raises(tmp_path: Path, step: object) -> None:
    Progress(str(tmp_path / "progress"))(step)  # type: ignore[arg-type]
    Progress(str(tmp_path / "no folder" / "progress"))(1)
    Progress("")(1)


@pytest.mark.parametrize(
    ("env", "tells"),
    [({}, True), ({"RANK": "0"}, True), ({"RANK": "1"}, False), ({"SLURM_PROCID": "2"}, False)],
)
def test_it_needs_python_alone_and_only_the_first_process_tells(
    tmp_path: Path, env: dict[str, str], tells: bool
) -> None:
    program = f"import sys; sys.path.insert(0, {str(SRC)!r}); import allotment as a; "
    program += "a.progress(1, 3); a.progress(2, 3); assert 'msgspec' not in sys.modules"
    file = tmp_path / "progress"
    env = {**env, "ALLOT_PROGRESS_FILE": str(file)}
    subprocess.run([sys.executable, "-S", "-I", "-c", program], env=env, check=True)
    assert file.exists() is tells
    if tells:
        assert lines(file) == [{"step": 2, "total": 3}]


def test_a_trial_keeps_its_metric_at_just_the_steps_of_its_rungs(tmp_path: Path) -> None:
    file = tmp_path / "progress"
    told = Progress(str(file), "loss", [10, 30])
    for step in range(1, 41):
        told(step, loss=float(step), other=1.0)
        if step == 10:  # Written at once, though the last line is not a tenth of a second old.
            assert lines(file)[0]["rungs"] == [[10, 10.0]]
    told.last()
    (line,) = lines(file)
    assert line["rungs"] == [[10, 10.0], [30, 30.0]]
    assert line["step"] == 40
    assert line["metrics"] == {"loss": 40.0, "other": 1.0}


def test_a_trial_may_report_its_metric_now_and_then_and_jump(tmp_path: Path) -> None:
    file = tmp_path / "progress"
    told = Progress(str(file), "loss", [10, 30, 90])
    told(1)
    told(12)
    told(35, loss=0.5)
    assert lines(file)[0]["rungs"] == [[35, 0.5], [35, 0.5]]


def test_a_trial_tells_that_its_metric_is_no_number(tmp_path: Path) -> None:
    file = tmp_path / "progress"
    told = Progress(str(file), "loss", [2, 3])
    told(2, loss=math.nan)
    assert lines(file) == [{"step": 2, "metrics": {"loss": None}, "rungs": [[2, None]]}]
    told(3, loss="x")
    told("x", loss=1.0)  # type: ignore[arg-type]
    told._next = 0.0
    told(4, loss=math.inf)
    assert lines(file)[0]["rungs"] == [[2, None], [4, None]]
