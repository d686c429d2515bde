"""What a batch script is told, and the files it runs with."""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest

from allotment.model.ids import TaskIndex
from allotment.model.quantity import Millis
from allotment.model.spec import Batch, Checkpoint, Dialect, JobSpec
from allotment.service.batch.files import batch_files, tool_files, tools_folder
from allotment.service.batch.tools.patterns import PatternValues, expand_lsf, expand_slurm
from allotment.service.batch.tools.scontrol import hostnames
from allotment.service.folders import make_tools
from allotment.service.launch import Account, Folders, gang_launch, hostfile, task_env
from tests.support.builders import a_config, a_job, a_tenant
from tests.support.world import World

FOLDERS = Folders("/state")
ACCOUNT = Account("alice", "/home/alice")
KNOWN = PatternValues(
    job=128, array=120, member=3, name="train", node="n7", user="ada", restarts=2
)


def a_script(**changes: object) -> JobSpec:
    spec = a_job().gpus(2).cpus(4).spec()
    role = msgspec.structs.replace(spec.roles[0], command="#!/bin/sh\ntrue\n")
    batch = Batch(tasks=4, output="%x-%j.out", variables=(("SLURM_NTASKS", "4"),))
    return msgspec.structs.replace(
        spec, roles=(role,), dialect=Dialect.SLURM, batch=batch, **changes
    )


def placed(spec: JobSpec) -> tuple[World, dict[str, str]]:
    world = World(a_config(a_tenant("vision", 4), nodes=1, devices=4))
    builder = a_job()
    builder._spec = spec  # noqa: SLF001
    job = world.job(world.submit(builder))
    world.cycle()
    nodes = world.state.cluster.nodes
    return world, task_env(job, TaskIndex(0), nodes, FOLDERS, ACCOUNT)


def test_a_script_has_the_variables_of_its_system_and_no_rank() -> None:
    _, env = placed(a_script(env=(("PATH", "/opt/bin"), ("SLURM_JOB_ID", "9"))))
    assert env["SLURM_JOB_ID"] == env["SLURM_JOBID"] == env["ALLOT_JOB_ID"] == "1"
    assert (env["SLURM_NTASKS"], env["SLURM_TASKS_PER_NODE"]) == ("4", "4")
    assert (env["SLURM_CPUS_ON_NODE"], env["SLURM_NNODES"]) == ("4", "1")
    assert env["SLURM_JOB_GPUS"] == env["CUDA_VISIBLE_DEVICES"] == "0,1"
    assert env["PATH"] == f"{tools_folder('/state')}/slurm:/opt/bin"
    assert not {"RANK", "WORLD_SIZE", "LOCAL_RANK", "SLURM_RESTART_COUNT"} & env.keys()
    assert int(env["MASTER_PORT"]) > 0


def test_a_job_without_a_script_has_none_of_them() -> None:
    _, env = placed(msgspec.structs.replace(a_script(), batch=None))
    assert [name for name in env if name.startswith("SLURM")] == []


def test_the_host_file_has_a_slot_for_each_process() -> None:
    world, _ = placed(a_script())
    job = next(iter(world.state.jobs.values()))
    nodes = world.state.cluster.nodes
    assert hostfile(job.spec, job.attempts[-1], nodes).endswith(" slots=4\n")


def test_a_script_runs_by_a_program_of_ours_with_files_of_its_user_alone() -> None:
    limits: dict[str, object] = {
        "max_run_ms": Millis(90_000),
        "checkpoint": Checkpoint(signal="USR1", grace_ms=Millis(1)),
    }
    world, _ = placed(a_script(**limits))
    job = next(iter(world.state.jobs.values()))
    nodes = world.state.cluster.nodes
    key = job.task_keys()[0]
    gang = gang_launch(
        job, [key], world.state.config, nodes, FOLDERS, ACCOUNT, at_barrier=False
    )
    folder = "/state/attempts/1/1"
    tools = tools_folder("/state")
    assert gang.tasks[0].argv == (f"{tools}/run", f"{folder}/batch")
    assert {folder, tools} <= set(gang.read_only)
    assert job.spec.batch is not None
    files = batch_files(job, job.spec.batch, nodes, "alice")
    assert files["batch/slurm_script"].text == "#!/bin/sh\ntrue\n"
    private = {name for name, file in files.items() if file.is_private}
    assert private == {"batch/slurm_script", "batch/plan.json"}
    plan = json.loads(files["batch/plan.json"].text)
    assert (plan["output"], plan["signal"], plan["limit_ms"]) == ("job-1.out", "USR1", 90_000)
    programs = tool_files("/state")
    assert {name for name, file in programs.items() if file.mode == 0o555} == {
        "run", "slurm/srun", "slurm/scontrol",
    }  # fmt: skip


def test_many_at_once_make_the_programs_once_and_whole(tmp_path: Path) -> None:
    tools = Path(tools_folder(str(tmp_path)))
    files = tool_files(str(tmp_path))
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda _: make_tools(tools, tmp_path, files), range(16)))
    (made,) = (tmp_path / "tools").iterdir()
    assert made == tools
    there = {str(path.relative_to(made)) for path in made.rglob("*") if path.is_file()}
    assert there == tool_files(str(tmp_path)).keys()


@pytest.mark.parametrize(
    ("pattern", "name"),
    [
        ("slurm-%A_%a.out", "slurm-120_3.out"),
        ("%x.%j.%N.%u", "train.128.n7.ada"),
        ("%6j-%2t-%n-%r-%b", "000128-00-0-2-3"),
        ("%%j %q %s %J", "%j %q batch 128"),
        ("%99j", "0000000128"),
        ("\\%j", "%j"),
        ("", ""),
    ],
)
def test_names_of_output_files(pattern: str, name: str) -> None:
    assert expand_slurm(pattern, KNOWN) == name


def test_a_step_has_its_number_and_a_job_of_no_array_none() -> None:
    step = KNOWN._replace(step=5, task=2, member=None)
    assert expand_slurm("%J-%s-%t-%a", step) == "128.5-5-2-4294967294"
    assert expand_lsf("o.%J.%I", KNOWN) == "o.120.3"
    assert expand_lsf("o.%J.%I", KNOWN._replace(array=128, member=None)) == "o.128.0"


@pytest.mark.parametrize(
    ("nodes", "names"),
    [
        ("n1", ["n1"]),
        ("n[1-3]", ["n1", "n2", "n3"]),
        ("n[08-10,12]-x,m", ["n08-x", "n09-x", "n10-x", "n12-x", "m"]),
        ("", []),
    ],
)
def test_lists_of_hosts(nodes: str, names: list[str]) -> None:
    assert list(hostnames(nodes)) == names
