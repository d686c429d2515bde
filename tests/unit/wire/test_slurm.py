"""Scripts of Slurm into jobs: every option of sbatch is used, warned of, or refused."""

from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from allotment.model.errors import BadInput
from allotment.model.ids import JobId
from allotment.model.quantity import DAY, GIB, HOUR, MIB, MINUTE, SECOND, Millis
from allotment.model.spec import (
    NEVER,
    REQUEUE_CODE,
    Arch,
    Batch,
    Checkpoint,
    Dependency,
    Dialect,
    EndKind,
    GiveWay,
    JobSpec,
)
from allotment.wire.batch.options import Takes
from allotment.wire.batch.slurm import TABLE
from allotment.wire.batch.wish import Submitter
from allotment.wire.job import BatchWish, Form, JobFile, job_to_wire, read_job

HERE = Submitter("/home/ada", "login1", "train.sbatch", {"HOME": "/home/ada", "LR": "0.1"})


def read(
    *lines: str, options: Sequence[str] = (), ignored: Sequence[str] = (), by: Submitter = HERE
) -> JobFile:
    script = "\n".join(
        ["#!/bin/bash", *(f"#SBATCH {line}" for line in lines), "srun hostname", ""]
    )
    wish = BatchWish(by, tuple(options), tuple(ignored))
    return read_job(script.encode(), source="train.sbatch", form=Form.SLURM, batch=wish)


def spec(*lines: str, **more: Sequence[str]) -> JobSpec:
    return read(*lines, **more).spec  # type: ignore[arg-type]


def batch(*lines: str, **more: Sequence[str]) -> Batch:
    found = spec(*lines, **more).batch
    assert found is not None
    return found


def variables(*lines: str) -> dict[str, str]:
    return dict(batch(*lines).variables)


def refused(*lines: str, **more: Sequence[str]) -> list[str]:
    with pytest.raises(BadInput) as caught:
        read(*lines, **more)  # type: ignore[arg-type]
    return [str(problem) for problem in caught.value.problems]


def said(*lines: str) -> list[str]:
    return [str(warning) for warning in read(*lines).warnings if warning.line]


# ── the job as a whole ──────────────────────────────────────────────────────────────────


def test_the_smallest_script() -> None:
    job = read()
    (role,) = job.spec.roles
    assert job.spec.name == "train.sbatch"
    assert job.spec.dialect is Dialect.SLURM
    assert job.spec.workdir == "/home/ada"
    assert (role.name, role.count) == ("batch", 1)
    assert str(role.command).startswith("#!/bin/bash\nsrun")
    assert role.by_default == ("cpu", "memory")
    assert job.spec.checkpoint == Checkpoint(signal="TERM", grace_ms=Millis(30_000))
    assert job.spec.batch == Batch(
        output="slurm-%j.out",
        requeue_on=(REQUEUE_CODE,),
        variables=(("SLURM_SUBMIT_DIR", "/home/ada"), ("SLURM_SUBMIT_HOST", "login1")),
    )
    assert (job.copies, job.held, job.waits) == (1, False, False)


def test_the_job_is_written_and_read_back_the_same() -> None:
    job = read(
        "-J x -n 4 -c 2 --gres=gpu:a100:2 --mem=8G -t 1:00:00 --signal=B:USR1@120",
        "-o out/%j -e err/%j --open-mode=append -i in --export=ALL,TOKEN_X=s3cret",
    )
    written = job_to_wire(job.spec, redact=False)
    again = read_job(msgspec.json.encode(written), source="job").spec
    assert again == job.spec
    assert ("TOKEN_X", "s3cret") in again.secrets


# ── how options are written ─────────────────────────────────────────────────────────────


@pytest.mark.parametrize("line", ["-N 1", "-N1", "--nodes=1", "--nodes 1", "--nodes=1-4"])
def test_every_way_to_write_an_option(line: str) -> None:
    assert read(line).warnings == read().warnings


def test_words_are_split_as_sbatch_does() -> None:
    job = spec('--job-name="my job" # --time=1', "--comment='a # b' -t 5", "--wckey=a\\ b # c")
    assert (job.name, job.max_run_ms) == ("my_job", 5 * MINUTE)
    assert job.labels == (("comment", "a # b"), ("wckey", "a b"))
    assert refused('--job-name="x') == ['line 2: a quote " is not closed (close it)']


def test_an_option_and_its_value_stand_on_one_line() -> None:
    assert "line 2: --time: needs a value" in refused("-t", "-n 2")[0]


def test_a_name_may_be_cut_short_where_it_is_still_one() -> None:
    assert batch("--ntasks-per-n=3").tasks == 3
    assert "no such option" in refused("--node=1")[0]


def test_flags_may_share_a_dash() -> None:
    assert read("-HQt 5").held


def test_the_last_of_several_wins_and_the_command_line_over_all() -> None:
    assert spec("-t 1", "-t 2").max_run_ms == 2 * MINUTE
    assert spec("-t 1", options=["--time=3"]).max_run_ms == 3 * MINUTE
    mine = Submitter("/", environ={"SBATCH_TIMELIMIT": "4", "SBATCH_HOLD_": "1"})
    assert spec("-t 1", by=mine).max_run_ms == 4 * MINUTE  # type: ignore[arg-type]
    assert spec("-t 1", by=mine, options=["-t5"]).max_run_ms == 5 * MINUTE  # type: ignore[arg-type]


def test_what_is_wrong_of_the_script_does_not_matter_where_the_command_line_says_it() -> None:
    assert spec("--time=never", "--nodes=4", options=["-t5", "-N1"]).max_run_ms == 5 * MINUTE


def test_directives_end_at_the_first_command() -> None:
    script = (
        b"#!/bin/bash\n#SBATCH -t 1\n\n  # a remark\n#SBATCH -n 2\n"
        b" #SBATCH -n 3\n#PBS -q x\ncd x\n#SBATCH -t 9\n"
    )
    job = read_job(script, source="x")
    assert job.spec.max_run_ms == MINUTE
    assert job.spec.batch is not None
    assert job.spec.batch.tasks == 2
    assert [str(warning).partition(":")[0] for warning in job.warnings] == [
        "line 6", "line 7", "line 9", "no memory is asked for",
    ]  # fmt: skip
    assert "first command is before it, on line 8" in str(job.warnings[2])


@pytest.mark.parametrize(
    ("script", "says"),
    [
        (b"#SBATCH -t 1\nhostname\n", "is not a script: the first line must be #!"),
        (b"#!/bin/sh\r\n#SBATCH -t 1\r\n", "ends its lines as DOS does"),
    ],
)
def test_what_is_no_script(script: bytes, says: str) -> None:
    with pytest.raises(BadInput, match=says):
        read_job(script, source="x", form=Form.SLURM)


def test_all_that_is_wrong_is_said_at_once_by_name_and_line() -> None:
    assert refused("--gress=gpu:1 --exclusive", "-n x", "-Y", "stray", "--time") == [
        "line 2: --gress: there is no such option (did you mean `--gres`?)",
        "line 2: --exclusive: asks for a whole node; a job here must name its amounts: "
        "GPUs, CPUs, memory (or submit it with --ignore exclusive)",
        "line 3: --ntasks: must be a whole number, not 'x'",
        "line 4: -Y: there is no such option",
        "line 5: 'stray' is not an option (an option begins with -; was a blank meant?)",
        "line 6: --time: needs a value (such as 1:30:00 or 2-12)",
    ]


def test_what_the_user_ignores_is_warned_of() -> None:
    job = read("--exclusive --nodelist=n1", ignored=["exclusive", "--nodelist"])
    assert [str(w) for w in job.warnings if w.line] == [
        "line 2: --exclusive: is ignored, as you asked",
        "line 2: --nodelist: is ignored, as you asked",
    ]


def test_other_parts_of_a_heterogeneous_job_are_refused() -> None:
    assert "heterogeneous" in refused("-n 1", "hetjob", "-n 2")[0]


# ── what options mean ───────────────────────────────────────────────────────────────────


def need(*lines: str) -> tuple[int, float, float, int]:
    """Return tasks, CPUs, GPUs and memory in MiB."""
    job = spec(*lines)
    resources = job.roles[0].resources
    assert job.batch is not None
    return (
        job.batch.tasks,
        resources.cpu_milli / 1000,
        resources.gpu_milli / 1000,
        resources.memory // MIB,
    )


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("-n 4", (4, 4, 0, 2048)),
        ("-n 4 -c 2 --mem=1000", (4, 8, 0, 1000)),
        ("-N1 --ntasks-per-node=8", (8, 8, 0, 4096)),
        ("--ntasks-per-node=8 -c4 --mem-per-cpu=2G", (8, 32, 0, 65536)),
        ("--gres=gpu:2", (1, 1, 2, 512)),
        ("--gres=gpu --mem=1T", (1, 1, 1, 1 << 20)),
        ("--gres=gpu:a100:4 --cpus-per-gpu=8", (1, 32, 4, 16384)),
        ("-G 2 --mem-per-gpu=10g", (1, 1, 2, 20480)),
        ("--gpus=v100:2 --ntasks-per-gpu=3", (6, 6, 2, 3072)),
        ("-n4 --gpus-per-task=1", (4, 4, 4, 2048)),
        ("--gpus-per-node=4 --gpus-per-task=2", (2, 2, 4, 1024)),
        ("--ntasks=4 --ntasks-per-gpu=2", (4, 4, 2, 2048)),
        ("--mincpus=6", (1, 6, 0, 3072)),
        ("-n 16 --overcommit", (16, 1, 0, 512)),
        ("--gres=none", (1, 1, 0, 512)),
        ("--gres=gpu:tesla_v100-pcie-16gb:1(S:0)", (1, 1, 1, 512)),
        ("-n 8 --ntasks-per-node=4 -N 1", (8, 8, 0, 4096)),
    ],
)
def test_how_much_a_job_needs(line: str, expected: tuple[int, float, float, int]) -> None:
    assert need(line) == expected


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("--nodes=2", "asks for 2 nodes, and a batch script has one here"),
        ("-N 2-4", "asks for 2 nodes"),
        ("-n 8 --ntasks-per-node=4", "are 8 at 4 a node: on several nodes"),
        ("--mem=0", "asks for a whole node"),
        ("--mem=1.5G", "must be an amount of memory"),
        ("--mem=1G --mem-per-cpu=1G", "--mem and --mem-per-cpu exclude each other"),
        ("--mem-per-gpu=1G", "is for each GPU, and the job has none"),
        ("--gres=nvme:1", "`nvme:1` is not a GPU"),
        ("--gres=gpu:1,gpu:a100:1", "several types at once"),
        ("--gres=gpu:x:y", "must be a number of GPUs"),
        ("--gpus=a:1,b:1", "several types at once"),
        ("--gpus=2 --gpus-per-node=4", "are 2 on one node, of which each has 4"),
        ("-C a100", "names a type of GPU, and the job asks for none"),
        ("-C 'a&b'", "is more than one type of GPU or several"),
        ("-A six@gpu", "it is that of a tenant here (name the tenant by SBATCH_ACCOUNT"),
        ("-p a/b", "it is that of a queue here"),
        ("--nice=-5", "asks to go before others"),
        ("--signal=KILL@10", "no program can catch KILL"),
        ("--signal=35@10", "signal 35 cannot be the warning"),
        ("--array=4-1", "is a range without an index"),
        ("--array=a", "must be a list of indices"),
        ("-d afternotok:1", "waits for a failure"),
        ("-d singleton", "waits for all jobs of its name"),
        ("-d aftercorr:1", "same index of another array"),
        ("-d after:1+5", "waits for the start of a job"),
        ("-d afterok:1?afterok:2,afterok:3", "has both `,` and `?`"),
        ("-d afterok:x", "must be the number of a job"),
        ("--begin=16:00", "starts when there is room"),
        ("--export=A-B", "must be ALL, NONE or names of variables"),
        ("-D ../up", "has a step up"),
        ("-A 'a b'", "cannot be a name"),
        ("-J '%%%'", "must be the name of a job"),
        ("--open-mode=both", "must be append or truncate"),
        ("--hold=yes", "takes no value"),
    ],
)
def test_what_cannot_be_is_said(line: str, says: str) -> None:
    (problem,) = refused(line)
    assert says in problem
    assert problem.startswith("line 2: -")


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("90", 90 * MINUTE),
        ("1:30", 90 * SECOND),
        ("1:30:00", 90 * MINUTE),
        ("2-12", 60 * HOUR),
        ("2-12:30", 60 * HOUR + 30 * MINUTE),
        ("1-00:00:01", DAY + SECOND),
        ("0", NEVER),
        ("UNLIMITED", NEVER),
        ("infinite", NEVER),
    ],
)
def test_time_limits(written: str, expected: int) -> None:
    assert spec(f"--time={written}").max_run_ms == expected


def test_arrays() -> None:
    job = read("--array=1-10:3,20%2")
    assert (job.copies, job.indices, job.max_running) == (5, (1, 4, 7, 10, 20), 2)
    assert variables("--array=1-10:3,20%2") | {
        "SLURM_ARRAY_TASK_COUNT": "5",
        "SLURM_ARRAY_TASK_MIN": "1",
        "SLURM_ARRAY_TASK_MAX": "20",
        "SLURM_ARRAY_TASK_STEP": "1",
    } == variables("--array=1-10:3,20%2")
    assert variables("-a 0-8:4")["SLURM_ARRAY_TASK_STEP"] == "4"
    assert batch("-a 0-8:4").output == "slurm-%A_%a.out"


def test_dependencies() -> None:
    ok, anyhow = EndKind.SUCCESS, EndKind.ANY
    assert spec("-d afterok:7:8_2,afterany:9").depends_on == (
        Dependency(JobId(7), ok, ref="7"),
        Dependency(JobId(0), ok, ref="8[2]"),
        Dependency(JobId(9), anyhow, ref="9"),
    )
    assert spec("-d afterok:7?afterany:9").depends_on == (
        Dependency(JobId(7), ok, 1, "7"),
        Dependency(JobId(9), anyhow, 1, "9"),
    )
    assert spec("-d 12").depends_on == (Dependency(JobId(12), anyhow, ref="12"),)


@pytest.mark.parametrize(
    ("line", "warning", "grace_s", "for_script"),
    [
        ("--signal=USR1", 60, 90, False),
        ("--signal=SIGUSR2@120", 120, 150, False),
        ("--signal=B:10@5", 5, 35, True),
    ],
)
def test_signals(line: str, warning: int, grace_s: int, for_script: bool) -> None:
    job = spec(line, "-t 10")
    assert job.batch is not None
    assert job.checkpoint is not None
    assert (job.batch.warn_ms, job.batch.warn_script) == (warning * SECOND, for_script)
    assert job.checkpoint.grace_ms == grace_s * SECOND
    assert job.checkpoint.signal in ("USR1", "USR2")
    assert job.max_run_ms == 10 * MINUTE


def test_who_and_where() -> None:
    job = spec(
        "-A vision -p train,debug -q high", "-C a100|h100 -G1", "--chdir=runs -J 'a/b c'"
    )
    assert (job.tenant, job.queue, job.priority, job.name) == ("vision", "train", 500, "a_b_c")
    assert job.roles[0].gpu_types == ("a100", "h100")
    assert job.workdir == "/home/ada/runs"
    told = variables("-A vision -p train -q high -J 'a/b c'")
    assert told["SLURM_JOB_NAME"] == "a/b c"
    assert told["SLURM_JOB_ACCOUNT"] == "vision"
    assert spec("-C arm64").roles[0].arch is Arch.ARM64
    assert spec("--nice=50").priority == 10
    assert "is not a priority here" in said("--qos=qos_gpu-t3")[0]
    assert variables("--qos=qos_gpu-t3")["SLURM_JOB_QOS"] == "qos_gpu-t3"
    mine = Submitter("/", environ={"SBATCH_ACCOUNT": "vision", "SBATCH_PARTITION": "train"})
    job = read("-A six@gpu -p a,b", by=mine).spec
    assert (job.tenant, job.queue) == ("vision", "train")
    assert spec("--no-requeue").on_eviction is GiveWay.CANCEL
    assert spec("--no-requeue --requeue").on_eviction is GiveWay.AS_TENANT
    assert spec("--tmp=5G").roles[0].resources.disk == 5 * GIB
    assert read("--wait").waits


def test_the_environment_is_passed_on_as_export_says() -> None:
    mine = Submitter("/", environ={
        "LR": "1", "PATH": "/opt/bin", "AWS_SECRET_ACCESS_KEY": "k", "SLURM_JOB_ID": "9",
        "CUDA_VISIBLE_DEVICES": "3", "BASH_FUNC_x%%": "() {", "TERM": "xterm", "ALLOT_X": "1",
    })  # fmt: skip

    def env(line: str) -> tuple[dict[str, str], dict[str, str]]:
        job = read(line, by=mine).spec
        return dict(job.env), dict(job.secrets)

    passed = {"LR": "1", "PATH": "/opt/bin", "BASH_FUNC_x%%": "() {"}
    assert env("-n 1") == (passed, {"AWS_SECRET_ACCESS_KEY": "k"})
    assert env("--export=NONE") == ({}, {})
    assert env("--export=LR,X=2") == ({"LR": "1", "X": "2"}, {})
    assert env("--export=ALL,LR=3")[0]["LR"] == "3"
    warned = read("--export=LOST", by=mine).warnings
    assert "LOST is not set in your environment" in str(warned[0])


def test_the_service_passes_nothing_on_and_says_so_where_it_is_asked() -> None:
    service = Submitter()
    assert read("-n 2", by=service).spec.env == ()
    (warning, *_) = read("--export=ALL", by=service).warnings
    assert "does not see your environment" in str(warning)


# ── every option ────────────────────────────────────────────────────────────────────────

USED = {
    "account": "vision", "array": "0-3", "begin": "now", "chdir": "/x", "comment": "x",
    "constraint": "x86_64", "cpus-per-gpu": "2", "cpus-per-task": "2",
    "dependency": "afterok:1", "error": "e", "export": "NONE", "gpus": "1",
    "gpus-per-node": "1", "gpus-per-task": "1",
    "gres": "gpu:1", "hold": "", "ignore-pbs": "", "input": "i", "job-name": "x",
    "kill-on-invalid-dep": "yes", "mem": "1G", "mem-per-cpu": "1G", "mincpus": "2",
    "nodes": "1", "ntasks": "2", "ntasks-per-gpu": "1", "ntasks-per-node": "2",
    "open-mode": "append", "output": "o", "overcommit": "", "parsable": "", "partition": "p",
    "qos": "high", "quiet": "", "requeue": "", "signal": "USR1@1",
    "tasks-per-node": "2", "time": "1", "tmp": "1G",
    "verbose": "", "wait": "", "wckey": "x",
}  # fmt: skip
WARNED = {
    "acctg-freq": "task=1", "batch": "x", "consolidate-segments": "", "contiguous": "",
    "core-spec": "1", "cores-per-socket": "1", "cpu-freq": "low", "delay-boot": "1",
    "distribution": "block", "extra": "x", "extra-node-info": "1", "get-user-env": "",
    "gpu-bind": "none", "gpu-freq": "low", "gres-flags": "x", "hint": "nomultithread",
    "mail-type": "END", "mail-user": "a@b", "mem-bind": "none", "mem-update": "1@1",
    "network": "x", "nice": "1", "no-kill": "", "no-requeue": "", "ntasks-per-core": "1",
    "ntasks-per-socket": "1", "oom-kill-step": "", "oversubscribe": "", "power": "x",
    "prefer": "x", "profile": "all", "propagate": "",
    "reservation": "x", "resv-ports": "", "segment": "1",
    "sockets-per-node": "1", "spread-job": "", "spread-segments": "", "stepmgr": "",
    "switches": "1", "thread-spec": "1", "threads-per-core": "1", "time-min": "1",
    "tres-bind": "x", "use-min-nodes": "", "wait-all-nodes": "1",
}  # fmt: skip
REFUSED = {
    "bb": "x", "bbf": "x", "cluster": "x", "cluster-constraint": "x",
    "clusters": "x", "container": "x",
    "container-id": "x", "deadline": "now+1hour", "exclude": "n1", "exclusive": "",
    "export-file": "x", "gid": "x", "gpus-per-socket": "1", "help": "", "licenses": "x",
    "mcs-label": "x", "mem-per-gpu": "1G", "nodefile": "x", "nodelist": "n1", "priority": "1",
    "reboot": "", "resources": "x", "runtime": "x", "test-only": "",
    "tres-per-task": "x", "uid": "x", "usage": "", "version": "", "wrap": "x",
}  # fmt: skip


def test_no_option_is_forgotten() -> None:
    assert sorted([*USED, *WARNED, *REFUSED]) == sorted(TABLE.by_name)


def test_every_option_is_in_the_guide() -> None:
    page = (Path(__file__).parents[3] / "docs/guide/batch-scripts.md").read_text("utf-8")
    assert [name for name in TABLE.by_name if f"`--{name}`" not in page] == []


def written(name: str, value: str) -> str:
    return f"--{name}={value}" if value else f"--{name}"


@pytest.mark.parametrize("name", USED)
def test_options_that_are_used(name: str) -> None:
    assert said(written(name, USED[name])) == []
    option = TABLE.by_name[name]
    assert (option.takes is Takes.NOTHING) == (not USED[name]) or name == "requeue"


@pytest.mark.parametrize("name", WARNED)
def test_options_that_are_warned_of(name: str) -> None:
    (warning,) = said(written(name, WARNED[name]))
    assert warning.startswith(f"line 2: --{name}: ")


@pytest.mark.parametrize("name", REFUSED)
def test_options_that_are_refused(name: str) -> None:
    (problem,) = refused(written(name, REFUSED[name]))
    assert problem.startswith(f"line 2: --{name}: ")
    job = read(written(name, REFUSED[name]), ignored=[name])
    assert [str(w) for w in job.warnings if w.line] == [
        f"line 2: --{name}: is ignored, as you asked"
    ]
