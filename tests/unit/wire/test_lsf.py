"""Scripts of LSF into jobs: every option of bsub is used, warned of, or refused."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from allotment.model.errors import BadInput
from allotment.model.ids import JobId
from allotment.model.quantity import GIB, MIB, MINUTE, SECOND
from allotment.model.spec import Dependency, Dialect, EndKind, GiveWay, JobSpec
from allotment.wire.batch.lsf import TABLE
from allotment.wire.batch.wish import Submitter
from allotment.wire.job import BatchWish, JobFile, is_batch_script, read_job

HERE = Submitter("/home/ada", "login1", "train.bsub", {"HOME": "/home/ada", "LR": "0.1"})


def read(*lines: str, options: Sequence[str] = (), ignored: Sequence[str] = ()) -> JobFile:
    script = "\n".join(["#!/bin/bash", *(f"#BSUB {line}" for line in lines), "hostname", ""])
    script = script if lines else f"{script}#BSUB -H\n"
    wish = BatchWish(HERE, tuple(options), tuple(ignored))
    return read_job(script.encode(), source="train.bsub", batch=wish)


def spec(*lines: str) -> JobSpec:
    return read(*lines).spec


def refused(*lines: str) -> list[str]:
    with pytest.raises(BadInput) as caught:
        read(*lines)
    return [str(problem) for problem in caught.value.problems]


def said(*lines: str) -> list[str]:
    return [str(warning) for warning in read(*lines).warnings if warning.line]


def test_a_script_as_they_are_written() -> None:
    job = read(
        "-J train", "-q gpuv100", '-gpu "num=2:mode=exclusive_process:gmodel=A100"',
        "-n 4 -R 'span[hosts=1] rusage[mem=2GB/task]'", "-W 12:30 -o out_%J -e err_%J",
    )  # fmt: skip
    (role,) = job.spec.roles
    batch = job.spec.batch
    assert batch is not None
    assert job.spec.dialect is Dialect.LSF
    assert (job.spec.name, job.spec.queue) == ("train", "gpuv100")
    assert (batch.tasks, batch.output, batch.error, batch.append) == (
        4,
        "out_%J",
        "err_%J",
        True,
    )
    assert (role.resources.gpu_milli, role.resources.cpu_milli) == (2000, 4000)
    assert (role.resources.memory, role.gpu_types) == (8 * GIB, ("A100",))
    assert job.spec.max_run_ms == 750 * MINUTE
    assert job.warnings == ()
    assert dict(batch.variables)["LS_SUBCWD"] == "/home/ada"


def test_a_script_needs_no_first_line_and_lines_count_everywhere() -> None:
    script = b'#BSUB -J "x"\n\ncd work\n#BSUB -n 3\nhostname\n'
    assert is_batch_script(script)
    job = read_job(script, source="x").spec
    assert job.batch is not None
    assert (job.name, job.batch.tasks) == ("x", 3)
    assert str(job.roles[0].command).startswith('#!/bin/sh\n#BSUB -J "x"')
    assert not is_batch_script(b"# a job\nname: x\n")


def test_arrays() -> None:
    job = read('-J "sweep[1-9:4,20]%2"')
    assert (job.indices, job.max_running) == ((1, 5, 9, 20), 2)
    assert job.spec.batch is not None
    assert dict(job.spec.batch.variables)["LSB_JOBINDEX_END"] == "20"


@pytest.mark.parametrize(
    ("line", "memory"),
    [
        ("-R rusage[mem=4000]", 4000 * MIB),
        ("-R rusage[mem=4G] -M 8GB", 4 * GIB),
        ("-M 8GB -R rusage[mem=4G/host]", 4 * GIB),
        ("-n 4 -R rusage[mem=1G/slot]", 4 * GIB),
        ("-M 1048576", GIB),
        ("-M 8GB", 8 * GIB),
        ("-R 'rusage[mem=1.5GB:duration=10,ngpus_physical=2]'", 1536 * MIB),
    ],
)
def test_memory(line: str, memory: int) -> None:
    assert spec(line).roles[0].resources.memory == memory


def test_dependencies() -> None:
    ok, anyhow = EndKind.SUCCESS, EndKind.ANY
    assert spec("-w 'done(12) && ended(prep) && 13'").depends_on == (
        Dependency(JobId(12), ok, ref="12"),
        Dependency(JobId(0), anyhow, ref="prep"),
        Dependency(JobId(13), ok, ref="13"),
    )
    assert spec("""-w 'done("a") || done(7[3])'""").depends_on == (
        Dependency(JobId(0), ok, 1, "a"),
        Dependency(JobId(0), ok, 1, "7[3]"),
    )


def test_warnings_and_other_attempts() -> None:
    job = spec("-W 60 -wa USR2 -wt 5 -Q '99 100' -rn")
    assert job.checkpoint is not None
    assert job.batch is not None
    assert (job.checkpoint.signal, job.batch.warn_ms) == ("USR2", 300 * SECOND)
    assert job.batch.requeue_on[:2] == (99, 100)
    assert job.on_eviction is GiveWay.CANCEL


def test_the_command_line_wins_and_the_environment_is_passed_on() -> None:
    job = read("-n 2 -W 5", options=["-n", "3", "-W7"]).spec
    assert job.batch is not None
    assert (job.batch.tasks, job.max_run_ms) == (3, 7 * MINUTE)
    assert dict(job.env) == {"HOME": "/home/ada", "LR": "0.1"}
    assert dict(spec("-env 'none, LR=2'").env) == {"LR": "2"}


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("-R span[hosts=2]", "asks for 2 hosts"),
        ("-n 8 -R span[ptile=4]", "span[ptile=4] makes several hosts of -n 8"),
        ("-R 'select[gpu32gb]'", "chooses hosts by 'gpu32gb'"),
        ("-R rusage[licence=1]", "reserves 'licence'"),
        ("-R nonsense", "chooses hosts by 'nonsense'"),
        ("-nnodes 2", "asks for 2 nodes"),
        ("-gpu num=x", "must be a whole number"),
        ("-gpu what=1", "must be a requirement of GPUs"),
        ("-W 1:2:3", "must be a length of time"),
        ("-w exit(3)", "waits for 'exit(3)'"),
        ("-w 'done(1) && done(2) || done(3)'", "has both && and ||"),
        ("-w 'done(a[*])'", "must be a job"),
        ("-J 'x[0-3]'", "has the index 0"),
        ("-wa KILL", "no program can catch KILL"),
        ("-env ~HOME", "leaves variables out"),
        ("-Q all", "must be a list of exit codes"),
        ("-M many", "must be an amount of memory"),
        ("-yz", "there is no such option"),
        ("stray", "'stray' is not an option"),
        ("-n", "needs a value"),
    ],
)
def test_what_cannot_be_is_said(line: str, says: str) -> None:
    (problem,) = refused(line)
    assert says in problem
    assert problem.startswith("line 2: ")


# ── every option ────────────────────────────────────────────────────────────────────────

USED = {
    "J": "x", "Jd": "a text", "q": "x", "G": "x", "P": "x", "g": "/x", "n": "2", "nnodes": "1",
    "R": "span[hosts=1]", "M": "1GB", "gpu": "num=1", "W": "5", "wt": "1", "wa": "USR1",
    "w": "done(1)", "Q": "9", "r": "", "H": "", "K": "", "o": "o", "oo": "o", "e": "e",
    "eo": "e", "i": "i", "is": "i", "cwd": "/x", "env": "all", "hl": "", "ti": "",
}  # fmt: skip
WARNED = {
    "rn": "", "B": "", "N": "", "Ne": "", "u": "x", "notify": "x", "C": "1", "c": "1", "D": "1",
    "F": "1", "S": "1", "T": "1", "v": "1", "p": "1", "ul": "", "We": "5", "L": "/bin/sh",
    "a": "x", "ar": "", "alloc_flags": "x", "core_isolation": "1", "freq": "1", "network": "x",
    "smt": "4", "jsm": "n", "ln_mem": "1", "ln_slots": "1", "cn_mem": "1", "cn_cu": "1",
    "stage": "x", "csm": "y", "ext": "x", "mig": "1", "step_cgroup": "y", "rcacct": "x",
}  # fmt: skip


def written(name: str, value: str) -> str:
    return f"-{name} '{value}'" if value else f"-{name}"


@pytest.mark.parametrize("name", USED)
def test_options_that_are_used(name: str) -> None:
    more = " -W 9" if name == "wa" else ""
    assert said(written(name, USED[name]) + more) == []


@pytest.mark.parametrize("name", WARNED)
def test_options_that_are_warned_of(name: str) -> None:
    (warning,) = said(written(name, WARNED[name]))
    assert warning.startswith(f"line 2: -{name}: ")


@pytest.mark.parametrize("name", sorted(TABLE.by_name.keys() - USED.keys() - WARNED.keys()))
def test_all_others_are_refused_unless_they_are_ignored(name: str) -> None:
    value = "" if TABLE.by_name[name].takes.value == "nothing" else "x"
    (problem,) = refused(written(name, value))
    assert problem.startswith(f"line 2: -{name}: ")
    job = read(written(name, value), ignored=[name])
    assert [str(w) for w in job.warnings if w.line] == [
        f"line 2: -{name}: is ignored, as you asked"
    ]


def test_every_option_is_in_the_guide() -> None:
    page = (Path(__file__).parents[3] / "docs/guide/batch-scripts.md").read_text("utf-8")
    assert [name for name in TABLE.by_name if f"`-{name}`" not in page] == []
