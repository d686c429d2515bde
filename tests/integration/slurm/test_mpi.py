"""Real programs of MPI over two nodes: their tasks are the ranks, or mpirun starts these."""

import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cluster import until
from tests.support.on_slurm import CONFIG, OnSlurm, a_shared_folder, as_nobody, shell
from tests.support.slurm import TOOLS, Slurm

pytestmark = [
    pytest.mark.needs_root,
    pytest.mark.needs_tool(*TOOLS, "mpicc", "mpirun", "mpicc.mpich"),
]

RING = r"""
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
int main(int argc, char **argv) {
    int rank, size, token = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (rank == 0) {
        MPI_Send(&rank, 1, MPI_INT, 1, 0, MPI_COMM_WORLD);
        MPI_Recv(&token, 1, MPI_INT, size - 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    } else {
        MPI_Recv(&token, 1, MPI_INT, rank - 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        token += rank;
        MPI_Send(&token, 1, MPI_INT, (rank + 1) % size, 0, MPI_COMM_WORLD);
    }
    printf("rank %d of %d on %s sum %d\n", rank, size, getenv("SLURMD_NODENAME"), token);
    fflush(stdout);
    if (argc > 1 && strcmp(argv[1], "stay") == 0) pause();
    MPI_Finalize();
    return 0;
}
"""
COMMAND = """\
mpirun --allow-run-as-root --hostfile $ALLOT_HOSTFILE --map-by ppr:2:node:oversubscribe \
  --mca btl tcp,self {ring}
"""
"""`btl`: all nodes are one machine here, where shared memory would be taken for possible."""


@pytest.fixture(scope="module")
def on_mpi(slurm: Slurm) -> Iterator[OnSlurm]:
    """A service whose nodes have addresses of their own, as in a real cluster."""
    with a_shared_folder() as made:
        running = OnSlurm(made / "state", slurm)
        text = CONFIG
        for name in ("n1", "n2"):
            text = text.replace(f"{{name: {name},", f"{{name: {name}, address: {name},")
        running.config.write_text(text)
        (made / "ring.c").write_text(RING)
        for compiler, name in (("mpicc", "ring"), ("mpicc.mpich", "ring-mpich")):
            subprocess.run([compiler, "-o", made / name, made / "ring.c"], check=True)
        running.up()
        try:
            yield running
        finally:
            running.down()
            slurm.clear()


def ring(cluster: OnSlurm, more: str = "") -> dict[str, object]:
    program = Path(cluster.state.parent) / "ring"
    role = {
        "command": COMMAND.format(ring=f"{program} {more}"),
        "count": 2,
        "resources": {"cpu": 3, "memory": "512MiB", "gpu": 2},
    }
    return {"name": "ring", "mpi": "mpirun", "roles": {"main": role}}


def ranks(cluster: OnSlurm) -> list[str]:
    """Return the numbers of the processes that have our ring in their command line."""
    words = ["pgrep", "-r", "R,S,D,T", "-f", f"{cluster.state.parent}/ring stay"]
    return subprocess.run(words, capture_output=True, text=True).stdout.split()


def test_a_ring_goes_over_two_nodes_with_two_ranks_each(on_mpi: OnSlurm) -> None:
    job = on_mpi.submit(ring(on_mpi))
    on_mpi.wait_for(job, "succeeded", "failed")
    said = on_mpi.output(job) + on_mpi.allot("logs", str(job)).stderr
    assert on_mpi.state_of(job) == "succeeded", said
    lines = sorted(line.partition("| ")[2] or line for line in on_mpi.output(job).splitlines())
    assert [line.split(" on ")[0] for line in lines] == [f"rank {r} of 4" for r in range(4)]
    assert [line.split()[5] for line in lines] == ["n1", "n1", "n2", "n2"]
    assert lines[0].endswith("sum 6")


def test_a_killed_rank_ends_the_job_and_all_it_started(on_mpi: OnSlurm) -> None:
    job = on_mpi.submit(ring(on_mpi, "stay"))
    until(lambda: "rank 3 of 4" in on_mpi.output(job), "all ranks")
    subprocess.run(["kill", "-9", ranks(on_mpi)[-1]], check=True)
    on_mpi.wait_for(job, "failed")
    until(lambda: not ranks(on_mpi), "all ranks to end")
    until(lambda: not on_mpi.slurm_jobs(), "Slurm to be empty")


def test_a_cancelled_job_ends_with_all_its_ranks(on_mpi: OnSlurm) -> None:
    job = on_mpi.submit(ring(on_mpi, "stay"))
    until(lambda: "rank 3 of 4" in on_mpi.output(job), "all ranks")
    on_mpi.allot("cancel", str(job))
    on_mpi.wait_for(job, "cancelled")
    until(lambda: not ranks(on_mpi), "all ranks to end")
    until(lambda: not on_mpi.slurm_jobs(), "Slurm to be empty")


def test_mpirun_of_a_user_starts_ranks_on_the_other_node(on_mpi: OnSlurm) -> None:
    command = COMMAND.format(ring=program(on_mpi)).replace("--allow-run-as-root", "")
    role = ("-n", "2", "-c", "3", "--gpus", "2", "--mpi", "mpirun")
    done = as_nobody(on_mpi, "run", *role, "--", "sh", "-c", command)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [line for line in done.stdout.splitlines() if "rank" in line]
    assert sorted(line.split()[-3] for line in lines) == ["n1", "n1", "n2", "n2"]


# ── tasks that are ranks ────────────────────────────────────────────────────────────────


def ranked(cluster: OnSlurm, command: str, **more: object) -> dict[str, object]:
    """Describe a job of four ranks, two a node."""
    return {
        "name": "ranks",
        "mpi": "pmix",
        "command": command,
        "count": 4,
        "resources": {"cpu": 2, "memory": "256MiB", "gpu": 2},
        "env": {"OMPI_MCA_btl": "tcp,self"},  # Else it takes both nodes for one machine.
        **more,
    }


def program(cluster: OnSlurm, name: str = "ring") -> str:
    return str(Path(cluster.state.parent) / name)


def test_tasks_are_the_ranks_of_one_ring_by_pmix(on_mpi: OnSlurm) -> None:
    words = 'echo "task $RANK devices $CUDA_VISIBLE_DEVICES"; exec '
    job = on_mpi.submit(ranked(on_mpi, words + program(on_mpi)))
    on_mpi.wait_for(job, "succeeded", "failed")
    said = {
        rank: on_mpi.allot("logs", str(job), "--task", f"main.{rank}").stdout.splitlines()
        for rank in range(4)
    }
    assert on_mpi.state_of(job) == "succeeded", said
    tasks = on_mpi.job(job)["attempts"][-1]["tasks"]
    for rank, (task, (devices, ring)) in enumerate(zip(tasks, said.values(), strict=True)):
        # A task's number is its rank, and it runs where it was placed, with devices of its own.
        assert ring.startswith(f"rank {rank} of 4 on {task['node']} sum ")
        assert devices == f"task {rank} devices {','.join(map(str, task['devices']))}"
    assert Counter(task["node"] for task in tasks) == {"n1": 2, "n2": 2}
    assert all(len(task["devices"]) == 2 for task in tasks)
    assert len({task["engine_job"] for task in tasks}) == 1


def test_a_killed_rank_ends_all_others_on_both_nodes(on_mpi: OnSlurm) -> None:
    job = on_mpi.submit(ranked(on_mpi, f"exec {program(on_mpi)} stay", retry=0))
    until(lambda: "rank 3 of 4" in on_mpi.output(job), "all ranks")
    pid = ranks(on_mpi)[-1]
    variables = Path(f"/proc/{pid}/environ").read_text().split("\0")
    (rank,) = (int(each[5:]) for each in variables if each.startswith("RANK="))
    subprocess.run(["kill", "-9", pid], check=True)
    on_mpi.wait_for(job, "failed")
    attempts = on_mpi.job(job)["attempts"]
    assert len(attempts) == 1  # The program is at fault, not the platform: no second try.
    assert attempts[0]["tasks"][rank]["exit"]["signal"] == 9
    until(lambda: not ranks(on_mpi), "all ranks to end")
    until(lambda: not on_mpi.slurm_jobs(), "Slurm to be empty")


def test_ranks_of_a_user_outlive_the_service_and_are_found_again(on_mpi: OnSlurm) -> None:
    ring = ("--detach", "-n", "4", "-c", "2", "-e", "OMPI_MCA_btl=tcp,self", "--mpi", "pmix")
    done = as_nobody(on_mpi, "run", *ring, "--", program(on_mpi), "stay")
    job = int(done.stdout)
    until(lambda: all(f"rank {rank} of 4" in on_mpi.output(job) for rank in range(4)), "all")
    before = on_mpi.slurm_jobs()
    on_mpi.kill()
    on_mpi.up()
    on_mpi.wait_for(job, "running")
    assert on_mpi.slurm_jobs() == before
    assert {Path(f"/proc/{pid}").owner() for pid in ranks(on_mpi)} == {"nobody"}
    on_mpi.allot("cancel", str(job))
    on_mpi.wait_for(job, "cancelled")
    until(lambda: not ranks(on_mpi) and not on_mpi.slurm_jobs(), "all ranks to end")


def test_ranks_lie_as_they_were_placed_also_unevenly(on_mpi: OnSlurm) -> None:
    other = on_mpi.submit(shell("sleep 1000", resources={"cpu": 3, "gpu": 1}))
    on_mpi.wait_for(other, "running")
    job = on_mpi.submit(
        ranked(on_mpi, f"{program(on_mpi)} stay", resources={"cpu": 1, "memory": "64MiB"})
        | {"count": 5}
    )
    until(lambda: "rank 4 of 5" in on_mpi.output(job), "all ranks")
    tasks = on_mpi.job(job)["attempts"][-1]["tasks"]
    assert sorted(Counter(task["node"] for task in tasks).values()) == [1, 4]
    for rank, task in enumerate(tasks):
        said = on_mpi.allot("logs", str(job), "--task", f"main.{rank}").stdout
        assert said.startswith(f"rank {rank} of 5 on {task['node']} ")
        done = on_mpi.allot("exec", str(job), "--task", f"main.{rank}", "--", "sh", "-c",
                            "echo $SLURMD_NODENAME $RANK")  # fmt: skip
        assert done.stdout.split() == [task["node"], str(rank)], done.stderr
    on_mpi.allot("cancel", str(job))
    on_mpi.wait_for(job, "cancelled")
    until(lambda: not ranks(on_mpi), "all ranks to end")
    on_mpi.allot("cancel", str(other))


def test_tasks_are_ranks_by_pmi2_for_a_program_that_speaks_it(on_mpi: OnSlurm) -> None:
    job = on_mpi.submit(ranked(on_mpi, program(on_mpi, "ring-mpich"), mpi="pmi2"))
    on_mpi.wait_for(job, "succeeded", "failed")
    said = on_mpi.output(job)
    assert on_mpi.state_of(job) == "succeeded", said
    assert all(f"rank {rank} of 4" in said for rank in range(4))


def test_where_no_rank_comes_up_slurms_reason_is_told(on_mpi: OnSlurm) -> None:
    """Here the folder in which PMIx has its files is none."""
    folder = on_mpi.slurm.folder / "tmp.n2"
    folder.rename(away := folder.with_suffix(".away"))
    folder.touch()
    try:
        job = on_mpi.submit(ranked(on_mpi, program(on_mpi)))
        words = "srun said: srun: error: task "
        until(lambda: words in on_mpi.allot("show", str(job)).stdout, "Slurm's words")
    finally:
        folder.unlink()
        away.rename(folder)
        on_mpi.allot("cancel", str(job))
