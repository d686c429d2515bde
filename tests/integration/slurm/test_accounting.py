"""Accounts, limits and figures of a real slurmdbd: what Slurm enforces and counts, we show."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.slurm.test_engines import Mixed
from tests.support.cluster import until
from tests.support.on_slurm import a_shared_folder, shell
from tests.support.slurm_accounts import ACCOUNTING, AccountedSlurm

pytestmark = [pytest.mark.needs_root, pytest.mark.needs_tool(*ACCOUNTING, "mpicc")]

CONFIG = """\
engines:
  gpus: {type: slurm, partition: main, accounts: {lab: Research, poor: small}, qos: QOS}
tenants: {lab: {}, poor: {}}
default_tenant: lab
"""
TRAIN = r"""
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
/* Fits y = 3x + 1 by gradient descent, each rank on data of its own. */
int main(int argc, char **argv) {
    int rank, size;
    double w = 0, b = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (int step = 0; step < 500; step++) {
        double mine[2] = {0, 0}, all[2];
        for (int i = 0; i < 16; i++) {
            double x = (rank * 16 + i) / (16.0 * size), off = w * x + b - (3 * x + 1);
            mine[0] += off * x;
            mine[1] += off;
        }
        MPI_Allreduce(mine, all, 2, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
        w -= 1.0 * all[0] / (16 * size);
        b -= 1.0 * all[1] / (16 * size);
    }
    printf("rank %d of %d fits %.2f x + %.2f\n", rank, size, w, b);
    fflush(stdout);
    MPI_Finalize();  /* Before each works alone: in it ranks wait for others at full speed. */
    size_t held = (size_t)(rank + 1) * 30 << 20;
    char *memory = malloc(held);
    memset(memory, 1, held);
    clock_t until = clock() + (rank + 1) * CLOCKS_PER_SEC / 2;
    while (clock() < until) memory[clock() % held]++;
    sleep(3);  /* Slurm looks at memory once a second. */
    return 0;
}
"""


def running(folder: Path, slurm: AccountedSlurm, qos: str) -> Mixed:
    cluster = Mixed(folder / "state", slurm, CONFIG.replace("QOS", qos))
    cluster.up()
    return cluster


@pytest.fixture(scope="module")
def cluster(accounted: AccountedSlurm) -> Iterator[Mixed]:
    with a_shared_folder() as made:
        up = running(made, accounted, "normal")
        try:
            yield up
        finally:
            up.down()
            accounted.clear()


def job_in_slurm(cluster: Mixed, job: int) -> str:
    return cluster.job(job)["attempts"][-1]["tasks"][0]["engine_job"]


def test_what_a_limit_of_slurm_refuses_is_told_in_its_words(
    cluster: Mixed, accounted: AccountedSlurm
) -> None:
    poor = cluster.submit(shell("true", tenant="poor"))
    rich = cluster.submit(shell("true", tenant="lab"))
    cluster.wait_for(rich, "succeeded")
    until(lambda: "AssocGrpSubmitJobsLimit" in cluster.allot("show", str(poor)).stdout, "words")
    cluster.allot("cancel", str(poor))
    number = job_in_slurm(cluster, rich)
    charged = {"Account": "research", "QOS": "normal"}
    until(lambda: charged in accounted.accounted(number, "Account", "QOS"), "an account")


def test_a_quality_of_service_is_used_and_its_limits_hold(accounted: AccountedSlurm) -> None:
    with a_shared_folder() as made:
        cluster = running(made, accounted, "tiny")
        try:
            large = cluster.submit(shell("true", resources={"cpu": 2}))
            small = cluster.submit(shell("true"))
            cluster.wait_for(small, "succeeded")
            shown = lambda: cluster.allot("show", str(large)).stdout  # noqa: E731
            until(lambda: "QOSMaxCpuPerJobLimit" in shown(), "words")
            number = job_in_slurm(cluster, small)
            until(lambda: {"QOS": "tiny"} in accounted.accounted(number, "QOS"), "an account")
        finally:
            cluster.down()
            accounted.clear()


def test_jobs_go_on_while_slurmdbd_is_away_and_are_accounted_later(
    cluster: Mixed, accounted: AccountedSlurm
) -> None:
    go = Path(cluster.state.parent) / "go"
    before = cluster.submit(shell(f"until [ -e {go} ]; do sleep 0.1; done"))
    cluster.wait_for(before, "running")
    accounted.kill("slurmdbd")
    try:
        go.touch()
        cluster.wait_for(before, "succeeded")
        meanwhile = cluster.submit(shell("true"))
        cluster.wait_for(meanwhile, "succeeded")
        assert all(len(cluster.job(each)["attempts"]) == 1 for each in (before, meanwhile))
        # What slurmctld knows of limits holds.
        poor = cluster.submit(shell("true", tenant="poor"))
        until(lambda: "AssocGrpSubmitJobs" in cluster.allot("show", str(poor)).stdout, "words")
        cluster.allot("cancel", str(poor))
    finally:
        accounted.start_dbd()
    for job in (before, meanwhile):
        number = job_in_slurm(cluster, job)
        until(
            lambda number=number: any(
                row["State"] == "COMPLETED" and row["Account"] == "research"
                for row in accounted.accounted(number, "State", "Account")
            ),
            "the accounts to have caught up",
        )


def seconds(told: str) -> float:
    """Read `01:02:03.4`, as sacct writes a time."""
    total = 0.0
    for part in told.split(":"):
        total = total * 60 + float(part)
    return total


def test_figures_of_ranks_are_those_of_sacct(cluster: Mixed, accounted: AccountedSlurm) -> None:
    folder = cluster.state.parent
    (folder / "train.c").write_text(TRAIN)
    subprocess.run(["mpicc", "-O1", "-o", folder / "train", folder / "train.c"], check=True)
    job = cluster.submit(
        {
            "name": "train",
            "mpi": "pmix",
            "command": [f"{folder}/train"],
            "count": 4,
            "resources": {"cpu": 2, "memory": "400MiB", "gpu": 2},
            "env": {"OMPI_MCA_btl": "tcp,self"},
        }
    )
    cluster.wait_for(job, "succeeded", "failed")
    said = cluster.output(job)
    assert cluster.state_of(job) == "succeeded", said
    assert said.count("fits 3.00 x + 1.00") == 4
    tasks = cluster.job(job)["attempts"][-1]["tasks"]
    assert [task["node"] for task in tasks].count("n1") == 2
    used = [task["exit"]["usage"] for task in tasks]
    cpu = [(each["cpu_user_ms"] + each["cpu_system_ms"]) / 1000 for each in used]
    memory = [each["max_rss"] / 2**20 for each in used]
    assert cpu == sorted(cpu)
    assert memory == sorted(memory)

    fields = (
        "JobID", "NTasks", "TotalCPU", "MinCPUTask", "MaxRSS", "MaxRSSTask", "MaxRSSNode",
        "AllocTRES",
    )  # fmt: skip
    number = tasks[0]["engine_job"]

    def step() -> list[dict[str, str]]:
        rows = accounted.accounted(number, *fields)
        return [row for row in rows if row["JobID"] == f"{number}.0" and row["MaxRSS"]]

    until(lambda: bool(step()), "the step to be accounted")
    (row,) = step()
    assert (row["NTasks"], row["MinCPUTask"], row["MaxRSSTask"]) == ("4", "0", "3")
    assert row["MaxRSSNode"] == tasks[3]["node"]
    assert "gres/gpu=8" in row["AllocTRES"]
    # Slurm counts our own first process of each rank, too: some 10 MiB and 0.1 s.
    assert 0 <= seconds(row["TotalCPU"]) - sum(cpu) < 1.2
    assert abs(float(row["MaxRSS"].rstrip("K")) / 1024 - memory[3]) < 25
    usage = cluster.get("/v1/usage?by=job")["rows"]
    (ours,) = [each for each in usage if each["job"] == job]
    assert abs(ours["cpu_h_used"] * 3600 - sum(cpu)) < 0.1
