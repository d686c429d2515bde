"""Whatever a script says: a job, or all that is wrong with it; and no line is passed over."""

import shlex
from contextlib import suppress

from hypothesis import given
from hypothesis import strategies as st

from allotment.model.errors import BadInput, Problem
from allotment.model.quantity import MINUTE
from allotment.wire.batch.lsf import TABLE as LSF
from allotment.wire.batch.options import Takes
from allotment.wire.batch.slurm import TABLE
from allotment.wire.batch.wish import Submitter
from allotment.wire.indices import read_indices, write_indices
from allotment.wire.job import BatchWish, Form, job_to_wire, read_job

HEAD = "#!/bin/bash\n"
HERE = BatchWish(Submitter("/home/ada", "login", "job.sh", {"HOME": "/home/ada"}))
texts = st.text(st.characters(exclude_categories=("Cs",)), max_size=200)
ascii_words = st.text(st.characters(min_codepoint=33, max_codepoint=126), max_size=12)
names = st.sampled_from(sorted(TABLE.by_name)) | st.from_regex(
    r"[a-z][a-z-]{0,8}", fullmatch=True
)
values = st.sampled_from(["", "1", "2-3", "gpu:2", "a:b", "16G", "USR1@5", "0-5%2", "ALL"])


@given(texts)
def test_any_text_is_read_or_refused(text: str) -> None:
    for form, mark in ((Form.SLURM, "SBATCH"), (Form.AUTO, "BSUB"), (Form.AUTO, "SBATCH")):
        with suppress(BadInput):
            read_job(f"{HEAD}#{mark} {text}".encode(), source="x", form=form, batch=HERE)


@given(st.sampled_from(sorted(LSF.by_name)), values | ascii_words)
def test_any_value_of_lsf_is_read_or_refused(name: str, value: str) -> None:
    script = f"#BSUB -{name} {shlex.quote(value)}\nhostname\n".encode()
    try:
        read_job(script, source="x", batch=HERE)
    except BadInput as error:
        told = error.problems
    else:
        told = ()
    assert all(problem.line == 1 for problem in told)


@given(st.lists(st.tuples(names, values | ascii_words), max_size=8))
def test_no_directive_is_passed_over(options: list[tuple[str, str]]) -> None:
    lines = [
        f"#SBATCH --{name}={value}" if value else f"#SBATCH --{name}" for name, value in options
    ]
    script = "\n".join([HEAD.strip(), *lines, "hostname", ""]).encode()
    unknown = {at for at, (name, _) in enumerate(options, 2) if TABLE.find(name) is None}
    problems = found(script)
    told = {problem.line for problem in problems}
    assert unknown <= told
    assert all(problem.message for problem in problems)
    if problems:
        return
    again = read_job(
        script, source="x", form=Form.SLURM, batch=BatchWish(HERE.by, ("--time=7",))
    )
    assert again.spec.max_run_ms == 7 * MINUTE
    assert job_to_wire(again.spec)["dialect"] == "slurm"


def found(script: bytes) -> tuple[Problem, ...]:
    try:
        read_job(script, source="x", form=Form.SLURM, batch=HERE)
    except BadInput as error:
        return error.problems
    return ()


@given(st.sampled_from(sorted(TABLE.by_name)))
def test_an_option_that_is_ignored_is_told_of(name: str) -> None:
    option = TABLE.by_name[name]
    value = "" if option.takes is Takes.NOTHING else "=1"
    script = f"{HEAD}#SBATCH --{name}{value}\n".encode()
    job = read_job(script, source="x", batch=BatchWish(HERE.by, (), (name,)))
    assert [w.path for w in job.warnings if w.line == 2] == [f"--{name}"]


@given(st.sets(st.integers(0, 40), min_size=1))
def test_indices_are_written_and_read_back_the_same(indices: set[int]) -> None:
    assert read_indices(write_indices(sorted(indices))) == tuple(sorted(indices))
