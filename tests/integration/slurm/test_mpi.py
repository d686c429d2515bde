"""A real program of OpenMPI over two nodes, started by mpirun without ssh."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cluster import until
from tests.support.on_slurm import CONFIG, OnSlurm, a_shared_folder
from tests.support.slurm import TOOLS, Slurm

pytestmark = [pytest.mark.needs_root, pytest.mark.needs_tool(*TOOLS, "mpicc", "mpirun")]

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
[ "$RANK" = 0 ] || exec sleep infinity
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
        subprocess.run(["mpicc", "-o", made / "ring", made / "ring.c"], check=True)
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
        "completion": {"min_succeeded": 1},
    }
    return {"name": "ring", "roles": {"main": role}}


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
