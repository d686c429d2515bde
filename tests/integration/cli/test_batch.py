"""Batch scripts as they are: submitted, run and answered by a real service on this machine."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import pytest

from allotment.client import Client
from allotment.model.lifecycle import JobState
from tests.support.cluster import end_launchers
from tests.support.invoke import Ran, allot

NODE = os.uname().nodename.partition(".")[0]
CONFIG = f"""\
nodes:
  - name: {NODE}
    cpu: 16
    memory: 4GiB
    disk: 10GiB
    gpu: {{type: a100, count: 8, memory: 8GiB}}
tenants:
  default:
    guaranteed: {{gpu: 8, cpu: 16, memory: 4GiB}}
    queues: {{default: , train: }}
limits: {{backoff: {{first: 1ms}}}}
"""


class Site:
    """A folder with scripts, and a service beside it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.work = folder / "work"
        self.work.mkdir()
        (folder / "cluster.yaml").write_text(CONFIG)

    def allot(self, *words: str, **env: str) -> Ran:
        clean = {name: os.environ[name] for name in ("PATH", "HOME")}
        theirs = {**clean, "ALLOT_STATE": str(self.folder / "state"), **env}
        with patch.dict(os.environ, theirs, clear=True), contextlib.chdir(self.work):
            return allot(*words)

    def submit(self, script: str, *words: str, name: str = "job.sh", **env: str) -> str:
        """Submit a script; give the id of its job."""
        (self.work / name).write_text(script)
        ran = self.allot("submit", name, *words, **env)
        assert ran.code == 0, ran.err
        return ran.out.split()[0]

    def run(self, script: str, *words: str, **env: str) -> tuple[int, str]:
        """Run a script to its end; give its exit code and its output file."""
        job = self.submit(script, *words, **env)
        code = self.allot("wait", job).code
        (file,) = self.work.glob(f"*-{job}.out")
        return code, file.read_text()


@pytest.fixture(scope="module")
def site(reachable_once: Path) -> Iterator[Site]:
    """A folder short enough for a socket; its service ends with it."""
    made = Site(reachable_once)
    up = made.allot("up", "--config", str(made.folder / "cluster.yaml"))
    assert up.code == 0, up.err
    yield made
    made.allot("down")
    end_launchers(reachable_once / "state")


def script(*directives: str, body: str) -> str:
    lines = "\n".join(f"#SBATCH {line}" for line in directives)
    return f"#!/bin/bash\n{lines}\n#SBATCH --mem=64M\n\n{body}\n"


def test_a_script_runs_from_where_it_is_submitted_with_its_output_in_its_file(
    site: Site,
) -> None:
    code, out = site.run(
        script("-J plain", body='echo "$PWD $SLURM_SUBMIT_DIR $1 $LR $0" >&2; exit 3'),
        "--arg", "one", LR="0.1",
    )  # fmt: skip
    assert code == 3
    here, submitted, *rest = out.split()
    assert here == submitted == str(site.work)
    assert rest[:2] == ["one", "0.1"]
    assert rest[2].endswith("slurm_script")


def test_output_and_errors_go_to_their_files_and_to_the_log(site: Site) -> None:
    job = site.submit(
        script("-J split -o %x.out -e %x-%4j.err --open-mode=append", body="echo a; echo b >&2")
    )
    site.allot("wait", job)
    assert (site.work / "split.out").read_text() == "a\n"
    assert (site.work / f"split-{int(job):04d}.err").read_text() == "b\n"
    logs = site.allot("logs", job)
    assert (logs.out, logs.err) == ("a\n", "b\n")


def test_an_output_file_that_cannot_be_made_fails_the_job_and_says_so(site: Site) -> None:
    job = site.submit(script("-o nowhere/%j.out", body="echo a"))
    assert site.allot("wait", job).code == 1
    assert "No such file or directory: nowhere/" in site.allot("logs", job).err


def test_the_tasks_of_a_step_share_out_the_devices(site: Site) -> None:
    code, out = site.run(
        script(
            "-n 4 --gpus-per-task=2",
            body='echo "all $CUDA_VISIBLE_DEVICES $SLURM_NTASKS ${RANK-none}"\n'
            "srun --label bash -c 'echo $SLURM_PROCID/$SLURM_NTASKS $SLURM_LOCALID"
            " $SLURM_STEP_ID gpu $CUDA_VISIBLE_DEVICES'\n"
            "srun -n 2 --gpus-per-task=1 -l bash -c 'echo $CUDA_VISIBLE_DEVICES'",
        )
    )
    assert code == 0, out
    first, *lines = out.splitlines()
    assert first == "all 0,1,2,3,4,5,6,7 4 none"
    assert sorted(lines[:4]) == [
        f"{rank}: {rank}/4 {rank} 0 gpu {2 * rank},{2 * rank + 1}" for rank in range(4)
    ]
    assert sorted(lines[4:]) == ["0: 0", "1: 1"]


def test_steps_side_by_side_wait_for_their_turn(site: Site) -> None:
    code, out = site.run(
        script(
            "-n 2",
            body="for i in 1 2 3 4; do srun -n1 bash -c '"
            'mkdir busy.$SLURM_STEP_ID; n=$(echo busy.* | wc -w); [ "$n" -le 2 ] || echo many;'
            " rmdir busy.$SLURM_STEP_ID; echo done' & done; wait",
        )
    )
    assert (code, out.split()) == (0, ["done"] * 4)


@pytest.mark.parametrize(
    ("step", "says"),
    [
        ("srun -n 9 true", "9 tasks need 9 CPUs, and the job has 2"),
        ("srun -N2 true", "--nodes: 2 nodes, and the job has one"),
        (
            "srun --mpi=pmix true",
            "--mpi: there is no pmix here; start MPI programs with mpirun",
        ),
        ("srun --gres=gpu:1 true", "needs 1 GPUs, and the job has 0"),
        ("srun --multi-prog x", "--multi-prog: several programs in one step"),
        ("srun --nonsense true", "--nonsense: there is no such option"),
        ("scontrol hold 1", "hold 1: is not done in a job"),
    ],
)
def test_what_a_step_cannot_have_is_refused_by_name(site: Site, step: str, says: str) -> None:
    code, out = site.run(script("-n 2", body=step))
    assert code == 1
    assert says in out


def test_a_step_ends_with_the_highest_code_of_its_tasks(site: Site) -> None:
    code, out = site.run(script("-n 3", body="srun bash -c 'exit $((SLURM_PROCID * 2))'"))
    assert code == 4
    assert f"srun: error: {NODE}: task 2: Exited with exit code 4" in out


def test_names_of_hosts(site: Site) -> None:
    code, out = site.run(
        script(
            body='scontrol show hostnames "$SLURM_JOB_NODELIST"\n'
            'scontrol show job "$SLURM_JOB_ID" | grep -o "Restarts=[0-9]*"'
        )
    )
    assert (code, out) == (0, f"{NODE}\nRestarts=0\n")


def test_functions_of_the_submitters_shell_come_along(site: Site) -> None:
    function = {"BASH_FUNC_module%%": "() { echo loaded $1; }"}
    assert site.run(script(body="module cuda"), **function) == (0, "loaded cuda\n")


def test_an_array(site: Site) -> None:
    (site.work / "a.sh").write_text(
        script(
            "-a 1-7:3%1 -J sweep -o sweep.%a",
            body="echo $SLURM_ARRAY_TASK_ID of $SLURM_ARRAY_TASK_COUNT from"
            " $SLURM_ARRAY_TASK_MIN to $SLURM_ARRAY_TASK_MAX $SLURM_JOB_NAME"
            " $((SLURM_JOB_ID - SLURM_ARRAY_JOB_ID))",
        )
    )
    jobs = site.allot("submit", "a.sh").out.split()
    assert len(jobs) == 1
    assert site.allot("wait", f"{jobs[0]}[1-7]").code == 0
    said = [(site.work / f"sweep.{index}").read_text() for index in (1, 4, 7)]
    assert said == [f"{i} of 3 from 1 to 7 sweep {n}\n" for n, i in enumerate((1, 4, 7))]
    assert "sweep ×3" in site.allot("ps", "--all").out
    after = script(f"-d afterok:{jobs[0]}", body="cat sweep.7")
    assert site.run(after) == (0, said[2])


def test_a_script_that_asks_for_it_is_queued_again(site: Site) -> None:
    code, out = site.run(
        script(
            "-J again --requeue --open-mode=append",
            body="echo try ${SLURM_RESTART_COUNT-first}\n"
            '[ -n "$SLURM_RESTART_COUNT" ] && exit 0\n'
            'scontrol requeue "$SLURM_JOB_ID"\nsleep 600',
        )
    )
    assert (code, out) == (0, "try first\ntry 1\n")


def test_a_warning_comes_before_the_time_limit(site: Site) -> None:
    code, out = site.run(
        script(
            "-t 0:05 --signal=B:USR1@4",
            body="trap 'echo saved; exit 0' USR1\nsleep 600 & wait",
        )
    )
    assert (code, out) == (0, "saved\n")


def test_a_warning_is_for_the_steps_unless_it_is_for_the_script(site: Site) -> None:
    code, out = site.run(
        script(
            "-t 0:05 --signal=USR1@4",
            body="srun bash -c 'trap \"echo step saved; exit 7\" USR1; sleep 600 & wait'\n"
            "echo script goes on with $?; exit 0",
        )
    )
    assert (code, out.splitlines()[0]) == (0, "step saved")
    assert "script goes on with 7" in out


def test_a_job_beyond_its_time_limit_gets_term_and_is_timed_out(site: Site) -> None:
    job = site.submit(
        script(
            "-t 0:01",
            body="trap 'echo term; exit 0' TERM\nsleep 600 & wait",
        )
    )
    assert site.allot("wait", job).code == 1
    assert (site.work / f"slurm-{job}.out").read_text() == "term\n"
    assert "timed_out" in site.allot("show", job, "--json").out


def test_wait_hold_and_ignored_options(site: Site) -> None:
    job = site.submit(script("--hold --exclusive", body="true"), "--ignore", "exclusive")
    assert '"held"' in site.allot("show", job, "--json").out
    site.allot("cancel", job)
    (site.work / "w.sh").write_text(script("--wait", body="exit 5"))
    assert site.allot("submit", "w.sh").code == 5


def test_a_dry_run_shows_the_job_file_that_a_script_becomes(site: Site) -> None:
    (site.work / "d.sh").write_text(script("-n 2 -p train -t 5", body="srun hostname"))
    shown = site.allot(
        "submit", "d.sh", "--dry-run", "--set", "priority=high", TOKEN="a secret"
    )
    assert shown.code == 0, shown.err
    assert "queue: train" in shown.out
    assert "max_run_time: 5m" in shown.out
    assert "    command: |\n      #!/bin/bash\n      #SBATCH -n 2 -p train -t 5\n" in shown.out
    assert "a secret" not in shown.out
    written = shown.out.partition("Job d.sh")[0]
    (site.work / "d.yaml").write_text(written.replace('"***"', "x"))
    again = site.allot("submit", "d.yaml", "--dry-run")
    assert again.code == 0, again.err


def test_what_is_wrong_is_said_with_its_line_and_nothing_is_submitted(site: Site) -> None:
    (site.work / "bad.sh").write_text(script("--nodes=2 --gress=gpu:1", body="true"))
    ran = site.allot("submit", "bad.sh")
    assert ran.code != 0
    assert "bad.sh:2: --nodes: asks for 2 nodes" in ran.err
    assert "bad.sh:2: --gress: there is no such option (did you mean `--gres`?)" in ran.err


def test_an_array_of_lsf(site: Site) -> None:
    (site.work / "lsf.sh").write_text(
        '#BSUB -J "fit[2-5:3]%1"\n#BSUB -n 3 -R "span[hosts=1] rusage[mem=64MB/host]"\n'
        '#BSUB -gpu "num=1" -q train -W 5\n#BSUB -oo fit.%I\n'
        'echo "$LSB_JOBNAME $LSB_JOBINDEX $LSB_BATCH_JID $LSB_QUEUE $LSB_DJOB_NUMPROC"\n'
        'echo "$LSB_MCPU_HOSTS $(sort -u "$LSB_DJOB_HOSTFILE") $(wc -l < $LSB_DJOB_HOSTFILE)"\n'
        'echo "$LS_SUBCWD $CUDA_VISIBLE_DEVICES" >&2\n'
        '[ "$LSB_JOBINDEX $LSB_RESTART" = "2 N" ] && exit 9\n#BSUB -Q 9\nexit 0\n'
    )
    ran = site.allot("submit", "lsf.sh")
    assert ran.code == 0, ran.err
    job = ran.out.strip()
    assert site.allot("wait", f"{job}[2-5]").code == 0
    for index in (2, 5):
        assert (site.work / f"fit.{index}").read_text().splitlines() == [
            f"fit[{index}] {index} {job}[{index}] train 3",
            f"{NODE} 3 {NODE} 3",
            f"{site.work} 0",
        ]


def test_a_warning_of_lsf_reaches_the_whole_job(site: Site) -> None:
    (site.work / "warn.sh").write_text(
        "#!/bin/bash\n#BSUB -o warn.%J -M 64MB -W 1 -wa USR1 -wt 1\n"
        "trap 'echo warned; exit 0' USR1\nsleep 600 & wait\n"
    )
    job = site.allot("submit", "warn.sh").out.strip()
    assert site.allot("wait", job).code == 0
    assert (site.work / f"warn.{job}").read_text() == "warned\n"


def test_the_service_takes_the_text_of_a_script(site: Site) -> None:
    text = script(f"-D {site.work} -J rest --export=LR=7 -o rest.%j", body='echo "$PWD $LR"')
    with Client(state=str(site.folder / "state")) as client:
        made = client.submit(text)
        assert client.wait(made.id).row.state is JobState.SUCCEEDED
    assert (site.work / f"rest.{made.id}").read_text() == f"{site.work} 7\n"
