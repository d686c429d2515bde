"""Grids of parameters: as they are written, and what they make of a job."""

import pytest

from allotment.model.errors import BadInput
from allotment.model.grid import combinations, parameters_of, with_parameters
from allotment.wire.job import read_job, read_job_json
from allotment.wire.job_file import JobFile

FILE = b"""
name: sweep
command: train --lr {lr} --seed $seed ${lr} {other}
env: {A: b}
grid: {lr: [0.1, 1e-2], seed: 1..3, mode: [on, "x y"]}
array: {max_running: 2}
"""


def read(text: bytes) -> JobFile:
    return read_job(text, source="job.yaml")


def test_each_combination_is_a_job_and_the_last_parameter_changes_fastest() -> None:
    job = read(FILE)
    assert (job.copies, job.max_running) == (12, 2)
    assert combinations(job.grid) == 12
    each = [dict(parameters_of(job.grid, index)) for index in range(12)]
    assert each[0] == {"lr": "0.1", "seed": "1", "mode": "on"}
    assert each[1] == {"lr": "0.1", "seed": "1", "mode": "x y"}
    assert each[11] == {"lr": "1e-2", "seed": "3", "mode": "x y"}
    assert len({tuple(values.items()) for values in each}) == 12


def test_values_are_put_into_environment_and_commands() -> None:
    job = read(FILE)
    spec = with_parameters(job.spec, parameters_of(job.grid, 11))
    assert spec.env == (("A", "b"), ("lr", "1e-2"), ("seed", "3"), ("mode", "x y"))
    assert spec.roles[0].command == "train --lr 1e-2 --seed $seed ${lr} {other}"
    listed = read(b"name: x\ncommand: [t, '{n}', 'a{n}b']\ngrid: {n: [7]}\n")
    spec = with_parameters(listed.spec, parameters_of(listed.grid, 0))
    assert spec.roles[0].command == ("t", "7", "a7b")


def test_a_range_may_have_a_step() -> None:
    assert read(b"name: x\ncommand: x\ngrid: {n: 0..10..5}\n").grid == (
        ("n", ("0", "5", "10")),
    )


def test_json_says_the_same() -> None:
    body = b'{"name": "x", "command": "x", "grid": {"lr": [0.10, "b"], "n": "1..2"}}'
    assert read_job_json(body).grid == (("lr", ("0.10", "b")), ("n", ("1", "2")))


@pytest.mark.parametrize(
    ("grid", "says"),
    [
        ("grid: {lr: []}", "grid.lr: has no value"),
        ("grid: {lr: 3}", "grid.lr: must be a list of values, or a range"),
        ("grid: {lr: 5..1}", "range without a value"),
        ("grid: {lr: [1, 1]}", "has a value twice"),
        ("grid: {ALLOT_X: [1]}", "set by Allotment itself"),
        ("grid: {lr: [1]}\nenv: {lr: 2}", "env.lr: is in `grid` too"),
        ("grid: {a: 1..2000, b: 1..2000}", "4,000,000 tasks"),
        ("grid: {a: 1..3}\narray: {count: 2}", "array.count: is 2, and the grid makes 3 jobs"),
        ("array: {max_running: 2}", "array.count: is missing"),
    ],
)
def test_what_cannot_be_is_said_with_its_place(grid: str, says: str) -> None:
    with pytest.raises(BadInput) as caught:
        read(f"name: x\ncommand: x\n{grid}\n".encode())
    assert says in str(caught.value)
