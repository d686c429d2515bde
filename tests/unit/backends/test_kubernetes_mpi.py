"""The pods of an MPIJob: what its launcher and workers are told."""

from msgspec.structs import replace

from allotment.backends.kubernetes.mpi import with_agents
from allotment.backends.kubernetes.request import Names, Place, pod_of, variables_of
from allotment.model.ids import AttemptNo, JobId, TaskIndex, TaskKey
from allotment.model.quantity import Resources
from allotment.model.spec import MPI_WAITS
from allotment.service.ports import Binding, GangLaunch, MpiHost, TaskLaunch

HOSTS = {
    TaskIndex(index): MpiHost(f"ring-worker-{index - 1}.ring", 2, "10.0.0.4", 4000 + index)
    for index in (1, 2)
}


def a_task(index: int, *argv: str) -> TaskLaunch:
    key = TaskKey(JobId(7), AttemptNo(1), TaskIndex(index))
    env = (("ALLOT_HOSTFILE", "/state/hostfile"), ("OMPI_MCA_plm", "slurm"))
    return TaskLaunch(key, f"t.{index}", Binding("n1"), argv, env, Resources())


GANG = GangLaunch(
    (a_task(0, "mpirun"), a_task(1, *MPI_WAITS), a_task(2, "own")), "/", hosts=HOSTS
)


def test_workers_that_wait_serve_mpirun_and_others_run_their_own() -> None:
    launcher, first, second = with_agents(GANG, b"s").tasks
    assert (launcher.argv, second.argv) == (("mpirun",), ("own",))
    assert first.argv[-1].endswith("exec python3 -I -S /etc/mpi/mpi-agent serve\n")
    env = dict(launcher.env)
    assert env["OMPI_MCA_orte_default_hostfile"] == env["ALLOT_HOSTFILE"] == "/etc/mpi/hostfile"
    assert env["OMPI_MCA_plm_rsh_agent"] == "python3 -I -S /etc/mpi/mpi-agent"
    assert "ALLOT_MPI_HOST" not in env
    assert dict(first.env)["ALLOT_MPI_HOST"] == "ring-worker-0.ring"


def test_what_its_user_names_wins() -> None:
    named = replace(GANG, named=frozenset({"OMPI_MCA_plm"}))
    found = [dict(with_agents(each, b"s").tasks[0].env) for each in (GANG, named)]
    assert [env["OMPI_MCA_plm"] for env in found] == ["rsh", "slurm"]


def test_a_pod_has_the_files_of_the_operator_and_a_key_that_it_does_not_show() -> None:
    gang = with_agents(GANG, b"s")
    pod = pod_of(gang, gang.tasks[0], Names("p", "token"), Place("s", "mpi:1", ""))
    notes = pod["metadata"]["annotations"]
    assert notes["allotment.io/mpi-hostfile"] == (
        "ring-worker-0.ring slots=2\nring-worker-1.ring slots=2\n"
    )
    assert notes["allotment.io/mpi-tasks"].splitlines()[1] == "ring-worker-1.ring 10.0.0.4 4002"
    (volume,) = [each for each in pod["spec"]["volumes"] if each["name"] == "mpi"]
    modes = {item["path"]: item["mode"] for item in volume["downwardAPI"]["items"]}
    assert modes["hostfile"] == 0o444
    assert modes["discover_hosts.sh"] == 0o555
    shown, hidden = variables_of(gang, gang.tasks[0])
    assert "ALLOT_MPI_KEY" in hidden
    assert "ALLOT_MPI_KEY" not in shown
    assert with_agents(GANG, b"s") == gang
    assert with_agents(GANG, b"t") != gang


def test_other_gangs_have_no_such_files() -> None:
    gang = replace(GANG, hosts={})
    assert with_agents(gang, b"s") is gang
    pod = pod_of(gang, gang.tasks[0], Names("p", "token"), Place("s", "mpi:1", ""))
    assert "annotations" not in pod["metadata"]
