"""A gang with `mpi: mpirun` on pilots: what its tasks are told."""

from pathlib import Path

from msgspec.structs import replace

from allotment.backends.kept import kept_text
from allotment.backends.pilot.mpi import with_agents
from allotment.model.ids import AttemptNo, JobId, TaskIndex, TaskKey
from allotment.model.quantity import Resources
from allotment.model.spec import Mpi
from allotment.service.ports import Binding, GangLaunch, TaskLaunch


def a_gang(attempt: int = 1, mpi: Mpi = Mpi.MPIRUN, **env: str) -> GangLaunch:
    told = tuple({"ALLOT_HOSTFILE": "/s/attempts/7/1/hostfile", **env}.items())
    return GangLaunch(
        tuple(
            TaskLaunch(
                TaskKey(JobId(7), AttemptNo(attempt), TaskIndex(index)), f"main.{index}",
                Binding(f"n{index}"), ("mpirun", "x") if index == 0 else ("sleep", "1"), told,
                Resources(),
            )
            for index in range(2)
        ),
        "/",
        mpi=mpi,
    )  # fmt: skip


def keys(gang: GangLaunch) -> set[str]:
    return {dict(task.env)["ALLOT_MPI_KEY"] for task in gang.tasks}


def test_tasks_behind_the_first_serve_and_mpirun_is_told_how_to_get_there() -> None:
    first, second = with_agents(a_gang(), b"s").tasks
    agent = ("/usr/bin/python3", "-I", "-S", "/s/attempts/7/1/mpi-agent")
    assert first.argv == ("mpirun", "x")
    assert second.argv == (*agent, "serve")
    assert dict(first.env)["OMPI_MCA_plm_rsh_agent"] == " ".join(agent)


def test_a_key_is_of_one_attempt_and_the_same_at_each_launch() -> None:
    one = with_agents(a_gang(), b"s")
    assert len(keys(one)) == 1
    assert keys(one) == keys(with_agents(a_gang(), b"s"))
    others = (with_agents(a_gang(2), b"s"), with_agents(a_gang(), b"t"))
    assert all(keys(other) != keys(one) for other in others)


def test_variables_of_the_user_win_but_for_the_key() -> None:
    gang = with_agents(a_gang(OMPI_MCA_plm="slurm", ALLOT_MPI_KEY="x"), b"s")
    env = dict(gang.tasks[0].env)
    assert env["OMPI_MCA_plm"] == "slurm"
    assert env["ALLOT_MPI_KEY"] != "x"


def test_other_gangs_stay_as_they_are() -> None:
    for mpi in (Mpi.NONE, Mpi.PMIX):
        gang = a_gang(mpi=mpi)
        assert with_agents(gang, b"s") is gang
    assert replace(with_agents(a_gang(), b"s"), tasks=()) == replace(a_gang(), tasks=())


def test_a_secret_that_a_crash_left_empty_is_made_anew(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.touch()
    path.with_suffix(".part").write_text("older, and readable")
    assert kept_text(path, lambda: "s3cret") == "s3cret"
    assert kept_text(path, lambda: "another") == "s3cret"
    assert path.stat().st_mode & 0o777 == 0o600
