"""Sweeps as they are written: read, written again, and what is wrong with them."""

import msgspec
import pytest

from allotment.model.errors import BadInput
from allotment.model.sweeps import GPU_HOUR, Goal, Halving, Range, Sampler, Scale, Sweep
from allotment.wire.job import read_job, read_job_json
from allotment.wire.job_file import JobFile
from allotment.wire.sweep_write import sweep_to_wire

FILE = b"""
name: tune
command: train --lr {lr} --width {width}
array: {max_running: 4}
sweep:
  parameters:
    lr: {log: [1e-5, 1e-1]}
    width: {int: [2, 8]}
    drop: {uniform: [0, 0.5]}
    opt: [sgd, adam]
    seed: 1..3
  random: {count: 27, seed: 7}
  metric: loss
  goal: maximize
  halving: {rungs: [100, 300, 900], eta: 4}
  gpu_hours: 20.5
"""
SWEEP = Sweep(
    space=(
        ("lr", Range(Scale.LOG, 1e-5, 1e-1)),
        ("width", Range(Scale.INT, 2, 8)),
        ("drop", Range(Scale.UNIFORM, 0, 0.5)),
        ("opt", ("sgd", "adam")),
        ("seed", ("1", "2", "3")),
    ),
    draws=27,
    seed=7,
    metric="loss",
    goal=Goal.MAXIMIZE,
    halving=Halving((100, 300, 900), eta=4),
    gpu_hours=GPU_HOUR * 41 // 2,
)


def read(sweep: str, rest: str = "") -> JobFile:
    text = f"name: x\ncommand: x\nsweep: {sweep}\n{rest}"
    return read_job(text.encode(), source="job.yaml")


def test_a_sweep_is_read() -> None:
    job = read_job(FILE, source="job.yaml")
    assert job.sweep == SWEEP
    assert (job.copies, job.max_running) == (27, 4)


@pytest.mark.parametrize(
    "sweep",
    [
        SWEEP,
        Sweep((("a", ("1e-3", "true")),), metric="m", halving=Halving((60_000, 90_500), True)),
        msgspec.structs.replace(SWEEP, sampler=Sampler.OPTUNA),
    ],
)
def test_what_is_written_reads_back_as_the_same(sweep: Sweep) -> None:
    body = {"name": "x", "command": "x", "sweep": sweep_to_wire(sweep)}
    assert read_job_json(msgspec.json.encode(body)).sweep == sweep


def test_values_stay_as_they_are_written_and_a_grid_needs_no_count() -> None:
    job = read(
        "{parameters: {lr: [1e-3, 1.10], on: [true]}, halving: {rungs: [1min, 2h]}, metric: m}"
    )
    assert job.copies == 2
    assert job.sweep is not None
    assert job.sweep.space == (("lr", ("1e-3", "1.10")), ("on", ("true",)))
    assert job.sweep.halving == Halving((60_000, 7_200_000), by_time=True)


@pytest.mark.parametrize(
    ("sweep", "says"),
    [
        ("{}", "sweep.parameters: is missing"),
        ("{parameters: {}}", "sweep.parameters: has no parameter"),
        ("{parameters: {lr: {log: [0, 1]}}}", "must begin above 0"),
        ("{parameters: {lr: {log: [1, 0.1]}}}", "must rise"),
        ("{parameters: {lr: {log: [1]}}}", "must be a list of two numbers"),
        ("{parameters: {lr: {log: [a, 2]}}}", "must be a number"),
        ("{parameters: {lr: {log: [.nan, 2]}}}", "must be a number"),
        ("{parameters: {lr: {uniform: [0, .inf]}}}", "must be a number"),
        ("{parameters: {lr: {uniform: [-1e308, 1e308]}}}", "spans more than a number can"),
        ("{parameters: {lr: {normal: [0, 1]}}}", "must have one key, of uniform, log, int"),
        ("{parameters: {n: {int: [1, 2.5]}}}", "must be a whole number"),
        ("{parameters: {n: {int: [1, 5]}}}", "trials must be drawn"),
        ("{parameters: {n: [1, 1]}}", "has a value twice"),
        ("{parameters: {n: 1..20000}}", "make 20,000 trials, and 10,000 are accepted"),
        ("{parameters: {n: 1..9999, m: 1..9}, random: {count: 3}}", "have 10,008 values"),
        (
            "{parameters: {a: [" + "x" * 1000 + "], b: [" + "y" * 1000 + "], m: 1..9000}}",
            "sweep: makes 9,000 copies of 4.",
        ),
        (
            "{parameters: {" + ", ".join(f"p{at}: 0..999" for at in range(1500)) + "}}",
            "make more than 10^15 trials",
        ),
        ("{parameters: {n: [1, 2]}, random: {count: 3}}", "there are only 2 combinations"),
        ("{parameters: {n: [1, 2]}, random: {count: 0}}", "sweep.random.count: must be"),
        ("{parameters: {n: [1]}, halving: {rungs: [1]}}", "sweep.metric: is missing"),
        ("{parameters: {n: [1]}, metric: m, halving: {rungs: []}}", "must be a list of steps"),
        ("{parameters: {n: [1]}, metric: m, halving: {rungs: [3, 1]}}", "rungs: must rise"),
        ("{parameters: {n: [1]}, metric: m, halving: {rungs: [3, 1h]}}", "mixes steps and"),
        ("{parameters: {n: [1]}, metric: m, halving: {rungs: [0]}}", "rungs[0]: must be"),
        ("{parameters: {n: [1]}, metric: m, halving: {rungs: [1], eta: 1}}", "eta: must be"),
        ("{parameters: {n: [1]}, goal: best}", "must be minimize or maximize"),
        ("{parameters: {n: [1]}, gpu_hours: -1}", "must be more than 0"),
        ("{parameters: {n: [1]}, cpu_hours: x}", "must be a number of CPU-hours"),
        ("{parameters: {ALLOT_X: [1]}}", "are set by Allotment itself"),
        (
            "{parameters: {n: {int: [1, 9]}}, metric: m, optuna: {count: 2000}}",
            "sweep.optuna.count: 2000 is more than the 1,000",
        ),
        ("{parameters: {n: {int: [1, 9]}}, optuna: {count: 3}}", "`optuna` learns from it"),
        (
            "{parameters: {n: 1..9}, metric: m, optuna: {count: 3}, random: {count: 3}}",
            "sweep.optuna: cannot be used together with `random`",
        ),
        ("{parameters: {n: 1..9}, metric: m, optuna: {count: 10}}", "take `optuna` out"),
        ("{parameters: {n: 1..101}, metric: m, optuna: {count: 10}}", "have 101 values"),
        ("{parameters: {n: [1]}, methods: halving}", "there is no key `methods`"),
    ],
)
def test_what_is_wrong_is_said(sweep: str, says: str) -> None:
    with pytest.raises(BadInput) as refused:
        read(sweep)
    assert says in str(refused.value)


@pytest.mark.parametrize(
    ("rest", "says"),
    [
        ("grid: {a: [1]}", "cannot be used with `sweep`"),
        ("array: {count: 3}", "says how many jobs there are"),
        ("env: {n: b}", "env.n: is in `sweep.parameters` too"),
        ("checkpoint: {dir: /data/ckpt}", "one folder for all trials"),
    ],
)
def test_what_cannot_stand_beside_it_is_said(rest: str, says: str) -> None:
    with pytest.raises(BadInput) as refused:
        read("{parameters: {n: [1, 2]}}", rest)
    assert says in str(refused.value)


def test_a_space_that_cannot_be_studied_is_refused_with_its_line() -> None:
    text = b"""name: x
command: x
sweep:
  parameters:
    lr: {log: [1e-1, 1e-5]}
  optuna: {count: 10}
  metric: loss
"""
    with pytest.raises(
        BadInput, match=r"line 5: sweep\.parameters\.lr: must rise: '1e-1' to '1e-5'"
    ):
        read_job(text, source="job.yaml")


def test_what_the_values_of_a_grid_make_of_its_jobs_is_bounded() -> None:
    job = {"name": "tune", "command": "echo " + "{text}" * 100}
    few = {"text": ["x" * 1000], "n": "1..9"}
    assert read_job_json(msgspec.json.encode({**job, "grid": few})).copies == 9
    with pytest.raises(BadInput, match=r"grid: makes 900 copies of 10\d"):
        read_job_json(msgspec.json.encode({**job, "grid": {**few, "n": "1..900"}}))
