"""What a task is given to run with."""

import json
from pathlib import Path

import msgspec

from allotment.engine.records import JobRecord
from allotment.model.cluster import Nic
from allotment.model.ids import JobId, NodeId, TaskIndex, TaskKey
from allotment.model.quantity import GIB, MIB, Resources
from allotment.model.spec import Dialect, JobSpec, Port, TaskRole
from allotment.service.launch import Account, Folders, gang_launch, hostfile, task_env
from allotment.service.operator_env import mpi_hosts
from allotment.service.ports import Binding
from allotment.wire.job import read_job
from tests.support.builders import a_config, a_job, a_tenant
from tests.support.world import World

FOLDERS = Folders("/state")
ACCOUNT = Account("alice", "/home/alice")


def placed(spec: JobSpec, nodes: int = 2, devices: int = 4) -> tuple[World, JobRecord]:
    world = World(a_config(a_tenant("vision", nodes * devices), nodes=nodes, devices=devices))
    builder = a_job()
    builder._spec = spec  # noqa: SLF001
    job = world.submit(builder)
    world.cycle()
    return world, world.job(job)


def envs(spec: JobSpec, **cluster: int) -> list[dict[str, str]]:
    world, job = placed(spec, **cluster)
    nodes = world.state.cluster.nodes
    return [
        task_env(job, TaskIndex(index), nodes, FOLDERS, ACCOUNT)
        for index in range(spec.task_count)
    ]


def test_ranks_over_two_nodes() -> None:
    spec = a_job().tasks(6).gpus(1).spec()
    tasks = envs(spec)
    assert [t["RANK"] for t in tasks] == list("012345")
    assert {t["WORLD_SIZE"] for t in tasks} == {"6"}
    assert [t["LOCAL_RANK"] for t in tasks] == list("012301")
    assert [t["NODE_RANK"] for t in tasks] == list("000011")
    assert len({(t["MASTER_ADDR"], t["MASTER_PORT"]) for t in tasks}) == 1
    assert int(tasks[0]["MASTER_PORT"]) >= 20_000
    assert [t["CUDA_VISIBLE_DEVICES"] for t in tasks] == ["0", "1", "2", "3", "0", "1"]
    assert tasks[0]["ROCR_VISIBLE_DEVICES"] == tasks[0]["HIP_VISIBLE_DEVICES"] == "0"


def test_a_task_without_devices_sees_none() -> None:
    (task,) = envs(a_job().spec())
    assert task["CUDA_VISIBLE_DEVICES"] == ""
    assert task["NVIDIA_VISIBLE_DEVICES"] == "none"


def test_tf_config_names_every_role_with_ports_of_its_own() -> None:
    need = Resources(cpu_milli=100, memory=MIB)
    roles = (TaskRole("ps", 1, "run", need), TaskRole("worker", 2, "run", need))
    spec = msgspec.structs.replace(a_job().spec(), roles=roles)
    tasks = envs(spec)
    configs = [json.loads(t["TF_CONFIG"]) for t in tasks]
    assert [c["task"] for c in configs] == [
        {"type": "ps", "index": 0},
        {"type": "worker", "index": 0},
        {"type": "worker", "index": 1},
    ]
    cluster = configs[0]["cluster"]
    addresses = [*cluster["ps"], *cluster["worker"]]
    assert len(set(addresses)) == 3
    assert all(c["cluster"] == cluster for c in configs)


def test_ports_by_label_do_not_overlap() -> None:
    role = TaskRole(
        "main", 2, "run", Resources(memory=MIB), ports=(Port("web", count=2), Port("ssh", 2222))
    )
    tasks = envs(msgspec.structs.replace(a_job().spec(), roles=(role,)))
    web = [port for task in tasks for port in task["ALLOT_PORT_WEB"].split(",")]
    assert len(set(web)) == 4
    assert tasks[0]["MASTER_PORT"] not in web
    assert {task["ALLOT_PORT_SSH"] for task in tasks} == {"2222"}


def test_the_classic_form_gets_its_own_variables() -> None:
    need = Resources(gpu_milli=2000, cpu_milli=4000, memory=8 * GIB)
    roles = (
        TaskRole("ps_server", 1, "run", need, ports=(Port("http"),)),
        TaskRole("worker", 2, "run", need),
    )
    spec = msgspec.structs.replace(
        a_job().spec(), roles=roles, dialect=Dialect.CLASSIC, name="tf", tenant="vision"
    )
    tasks = envs(spec)
    first = tasks[0]
    assert first["PAI_JOB_NAME"] == "tf"
    assert first["PAI_TASK_ROLE_LIST"] == "ps_server,worker"
    assert first["PAI_TASK_ROLE_TASK_COUNT_worker"] == "2"
    assert first["PAI_RESOURCE_worker"] == "2,4,8192,64"
    assert first["PAI_CURRENT_TASK_ROLE_NAME"] == "ps_server"
    assert first["PAI_TASK_ROLE_ps_server_HOST_LIST"].endswith(
        first["PAI_PORT_LIST_ps_server_0_http"]
    )
    assert tasks[2]["PAI_CURRENT_TASK_ROLE_CURRENT_TASK_INDEX"] == "1"


def test_native_jobs_get_no_foreign_variables() -> None:
    (task,) = envs(a_job().spec())
    assert not [name for name in task if name.startswith("PAI_")]


def test_users_win_over_defaults_but_not_over_the_scheduler() -> None:
    spec = msgspec.structs.replace(
        a_job().spec(),
        env=(("PATH", "/opt/bin"), ("ALLOT_JOB_ID", "99"), ("OMP_NUM_THREADS", "1")),
        secrets=(("TOKEN", "t0p"),),
    )
    (task,) = envs(spec)
    assert task["PATH"] == "/opt/bin"
    assert task["ALLOT_JOB_ID"] == "1"
    assert task["TOKEN"] == "t0p"


def test_a_restart_is_told_where_its_checkpoint_is() -> None:
    world, job = placed(a_job().checkpointing().spec())
    world.runs(job.id)
    world.saves(job.id, 7)
    world.ends(job.id, 1)
    env = task_env(job, TaskIndex(0), world.state.cluster.nodes, FOLDERS, ACCOUNT)
    assert env["ALLOT_RESUME_FROM"] == "ckpt-7"
    assert env["ALLOT_CHECKPOINT_DIR"] == "/state/checkpoints/1"


def test_the_request_has_paths_and_limits() -> None:
    spec = msgspec.structs.replace(
        a_job().gpus(2).spec(), data_dir="/data", code_dir="/code", output_dir="/out"
    )
    world, job = placed(spec)
    gang = gang_launch(
        job,
        job.task_keys(),
        world.state.config,
        world.state.cluster.nodes,
        FOLDERS,
        ACCOUNT,
        at_barrier=False,
    )
    (task,) = gang.tasks
    assert task.argv == ("/bin/sh", "-c", "true")
    assert gang.workdir == "/code"
    assert gang.read_only == ("/data", "/code", "/state/attempts/1/1")
    assert gang.writable == ("/out/1/attempt-1", "/state/checkpoints/1")
    assert dict(gang.labels)["tenant"] == "vision"
    (kind,) = {device.type for device in world.state.cluster.nodes[NodeId(0)].devices}
    assert task.binding == Binding(
        world.state.cluster.nodes[NodeId(0)].name, (0, 1), ((kind, 2),)
    )


def test_the_host_file_counts_tasks_on_each_node() -> None:
    world, job = placed(a_job().tasks(3).gpus(1).spec(), nodes=1)
    assert (
        hostfile(job.spec, job.attempts[0], world.state.cluster.nodes) == "127.0.0.1 slots=3\n"
    )


def test_job_ids() -> None:
    assert FOLDERS.outputs(JobId(3), a_job().spec()) == "/state/outputs/3"


def test_a_task_is_told_the_network_cards_nearest_to_its_devices() -> None:
    world, job = placed(a_job().tasks(2).gpus(2).spec(), nodes=1)
    cards = (Nic("mlx5_0", (0, 1)), Nic("mlx5_1", (2, 3)))
    nodes = {
        name: msgspec.structs.replace(node, nics=cards)
        for name, node in world.state.cluster.nodes.items()
    }
    tasks = [task_env(job, TaskIndex(index), nodes, FOLDERS, ACCOUNT) for index in (0, 1)]
    assert [task["NCCL_IB_HCA"] for task in tasks] == ["=mlx5_0", "=mlx5_1"]
    assert [task["UCX_NET_DEVICES"] for task in tasks] == ["mlx5_0:1", "mlx5_1:1"]


def test_without_cards_in_the_configuration_the_libraries_choose_themselves() -> None:
    (task,) = envs(a_job().gpus(1).spec())
    assert "NCCL_IB_HCA" not in task


# ── jobs written for operators of Kubernetes ────────────────────────────────────────────


def foreign(name: str) -> JobSpec:
    path = Path(__file__).parents[2] / "fixtures" / "foreign" / f"{name}.yaml"
    spec = read_job(path.read_bytes(), source=name).spec
    return msgspec.structs.replace(spec, tenant="vision", image="")


def test_a_pytorch_job_is_told_what_its_operator_would_tell() -> None:
    tasks = envs(foreign("pytorch"))
    assert [t["RANK"] for t in tasks] == [t["PET_NODE_RANK"] for t in tasks] == ["0", "1"]
    for task in tasks:
        assert task["WORLD_SIZE"] == "4"
        assert task["PET_MASTER_ADDR"] == task["MASTER_ADDR"]
        assert task["PET_MASTER_PORT"] == task["MASTER_PORT"]


def test_a_tf_job_of_one_role_has_its_cluster_too() -> None:
    spec = foreign("tf")
    only = msgspec.structs.replace(spec, roles=spec.roles[:1])
    told = [json.loads(task["TF_CONFIG"]) for task in envs(only)]
    assert [each["task"] for each in told] == [
        {"type": "worker", "index": 0},
        {"type": "worker", "index": 1},
    ]
    assert len({*told[0]["cluster"]["worker"]}) == 2
    assert [sorted(json.loads(task["TF_CONFIG"])["cluster"]) for task in envs(spec)] == [
        ["ps", "worker"]
    ] * 3


def test_the_host_file_of_an_mpi_job_lists_its_workers() -> None:
    spec = foreign("mpi")
    world, job = placed(spec, nodes=2, devices=1)
    nodes = world.state.cluster.nodes
    # Both nodes of this world have one address; the launcher's task has no slot.
    assert hostfile(spec, job.attempts[-1], nodes) == "127.0.0.1 slots=4\n"
    first, second, _ = envs(spec, nodes=2, devices=1)
    assert (first["K_MPI_JOB_ROLE"], second["K_MPI_JOB_ROLE"]) == ("launcher", "worker")
    assert first["OMPI_MCA_orte_default_hostfile"] == first["ALLOT_HOSTFILE"]
    hosts = mpi_hosts(job, nodes)
    assert [(index, host.name, host.slots) for index, host in hosts.items()] == [
        (1, "ring-worker-0.ring", 2),
        (2, "ring-worker-1.ring", 2),
    ]
    assert len({host.port for host in hosts.values()} | {job.attempts[-1].port}) == 3
    assert mpi_hosts(placed(foreign("pytorch"))[1], nodes) == {}


def test_a_pod_of_a_job_knows_its_index() -> None:
    (task,) = envs(foreign("job"))
    assert task["JOB_COMPLETION_INDEX"] == "0"


def commands(spec: JobSpec) -> list[str]:
    """Return the last word that each task is started with."""
    world, job = placed(spec)
    keys = [TaskKey(job.id, job.attempts[-1].no, TaskIndex(n)) for n in range(spec.task_count)]
    nodes = world.state.cluster.nodes
    launch = gang_launch(
        job, keys, world.state.config, nodes, FOLDERS, ACCOUNT, at_barrier=False
    )
    return [task.argv[-1] for task in launch.tasks]


def test_the_pods_of_a_job_set_know_their_places() -> None:
    tasks = envs(foreign("jobset"))
    assert [
        (t["KIND"], t["JOB_INDEX"], t["JOB_COMPLETION_INDEX"], t["GLOBAL"], t["JOBS"])
        for t in tasks
    ] == [
        ("leader", "0", "0", "0", "3"),
        ("workers", "0", "0", "1", "3"),
        ("workers", "0", "1", "1", "3"),
        ("workers", "1", "0", "2", "3"),
        ("workers", "1", "1", "2", "3"),
    ]
    assert [t["POD"] for t in tasks][3] == "ring-workers-1-0"
    assert {t["LEADER"] for t in tasks} == {"127.0.0.1"}
    words = commands(foreign("jobset"))
    assert [word.split(", ")[1] for word in words] == ["0", "1", "1", "2", "2"]
    assert all(word.endswith('127.0.0.1"') for word in words)


def test_the_nodes_of_a_train_job_are_told_what_their_runtime_tells() -> None:
    for n, task in enumerate(envs(foreign("trainjob"))):
        assert task["PET_NODE_RANK"] == task["JOB_COMPLETION_INDEX"] == str(n)
        assert (task["PET_MASTER_ADDR"], task["PET_MASTER_PORT"]) == (
            task["MASTER_ADDR"], task["MASTER_PORT"],
        )  # fmt: skip
    assert [word.rpartition(" ")[2] for word in commands(foreign("trainjob"))] == ['0"', '1"']
    for n, task in enumerate(envs(foreign("runtime"))):
        assert task["JAX_PROCESS_ID"] == str(n)
        assert task["JAX_COORDINATOR_ADDRESS"] == f"127.0.0.1:{task['MASTER_PORT']}"
        assert "PET_NODE_RANK" not in task


def test_a_job_that_counts_its_own_sets_oddly_starts_all_the_same() -> None:
    for said in ("", "workers", "workers=0,leader=x", f"workers={'9' * 50}", "workers=99"):
        spec = foreign("jobset")
        env = {**dict(spec.env), "JOBSET_REPLICAS": said}
        odd = msgspec.structs.replace(spec, env=tuple(env.items()))
        assert [t["KIND"] for t in envs(odd)] == ["leader", *["workers"] * 4]


def test_a_native_job_is_told_nothing_of_what_it_writes() -> None:
    spec = msgspec.structs.replace(a_job().spec(), env=(("A", "$(allotment.RANK)"),))
    (task,) = envs(spec)
    assert task["A"] == "$(allotment.RANK)"
