"""Accounts, limits and figures of a real slurmdbd: what Slurm enforces and counts, we show.

It is one test, so that a run beside others starts one slurmdbd, and not one in each process.
"""

import subprocess
from collections.abc import Callable, Iterator

import pytest

from tests.integration.slurm.test_engines import Mixed
from tests.support.cluster import until
from tests.support.on_slurm import a_shared_folder, shell
from tests.support.slurm_accounts import ACCOUNTING, AccountedSlurm, a_slurm_with_accounts

pytestmark = [pytest.mark.needs_root, pytest.mark.needs_tool(*ACCOUNTING, "mpicc")]

CONFIG = """\
engines:
  gpus:
    {type: slurm, partition: main, accounts: {lab: Research, poor: small}, qos: {lab: bounded}}
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
    for (int step = 0; step < 120; step++) {
        double mine[2] = {0, 0}, all[2];
        for (int i = 0; i < 16; i++) {
            double x = (rank * 16 + i) / (16.0 * size), off = w * x + b - (3 * x + 1);
            mine[0] += off * x;
            mine[1] += off;
        }
        MPI_Allreduce(mine, all, 2, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
        w -= 1.5 * all[0] / (16 * size);
        b -= 1.5 * all[1] / (16 * size);
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


@pytest.fixture
def accounted() -> Iterator[AccountedSlurm]:
    with a_slurm_with_accounts() as running:
        yield running


@pytest.fixture
def cluster(accounted: AccountedSlurm) -> Iterator[Mixed]:
    with a_shared_folder() as made:
        running = Mixed(made / "state", accounted, CONFIG)
        running.up()
        try:
            yield running
        finally:
            running.down()


def test_what_slurm_enforces_and_counts_is_shown(
    cluster: Mixed, accounted: AccountedSlurm
) -> None:
    ranks = cluster.submit(trained(cluster))
    cluster.wait_for(ranks, "running")
    accounted.kill("slurmdbd")
    cluster.wait_for(ranks, "succeeded", "failed")
    meanwhile = cluster.submit(shell("true"))
    cluster.wait_for(meanwhile, "succeeded")
    limits_hold_in_slurms_words(cluster)  # slurmctld knows them.
    accounted.start_dbd()
    limits_hold_in_slurms_words(cluster)
    for job in (ranks, meanwhile):
        assert len(cluster.job(job)["attempts"]) == 1
        is_charged_once_slurmdbd_is_back(cluster, accounted, job)
    figures_are_those_of_sacct(cluster, accounted, ranks)
    assert "GPU PEAK" not in cluster.allot("show", str(ranks)).stdout, "22.05 does not say it"
    use_of_gpus_is_shown_where_slurm_counts_it(cluster, accounted)


def use_of_gpus_is_shown_where_slurm_counts_it(
    cluster: Mixed, accounted: AccountedSlurm
) -> None:
    cluster.down()
    accounted.stop("slurmdbd")
    accounted.count_gpus(busy=170, memory=3 << 29)
    accounted.start_dbd()
    cluster.up()
    job = cluster.submit(shell("sleep 1", resources={"gpu": 2}))
    cluster.wait_for(job, "succeeded")
    until(says(cluster, job, "170%"), "Slurm's accounts to be asked")
    assert "1.5 GiB" in cluster.allot("show", str(job)).stdout
    (row,) = (row for row in cluster.get("/v1/usage?by=job")["rows"] if row["job"] == job)
    assert row["gpu_h_busy"] == pytest.approx(0.85 * row["gpu_h_seen"])
    assert row["gpu_h_seen"] > 0
    assert not list((cluster.state / "engines/gpus/slurm/accounts").iterdir())


def job_in_slurm(cluster: Mixed, job: int) -> str:
    return cluster.job(job)["attempts"][-1]["tasks"][0]["engine_job"]


def limits_hold_in_slurms_words(cluster: Mixed) -> None:
    """Submit what the limits of an account, and of the quality of service, do not allow."""
    large = {"resources": {"memory": "1800MiB"}}
    for more, words in (
        ({"tenant": "poor"}, "AssocGrpSubmitJobsLimit"),
        (large, "QOSMaxMemoryPerJob"),
    ):
        job = cluster.submit(shell("true", **more))
        until(says(cluster, job, words), words)
        cluster.allot("cancel", str(job))


def says(cluster: Mixed, job: int, words: str) -> Callable[[], bool]:
    return lambda: words in cluster.allot("show", str(job)).stdout


def is_charged_once_slurmdbd_is_back(
    cluster: Mixed, accounted: AccountedSlurm, job: int
) -> None:
    wanted = {"State": "COMPLETED", "Account": "research", "QOS": "bounded"}
    number = job_in_slurm(cluster, job)
    until(lambda: wanted in accounted.accounted(number, *wanted), "the accounts to catch up")


def seconds(told: str) -> float:
    """Read `01:02:03.4`, as sacct writes a time."""
    total = 0.0
    for part in told.split(":"):
        total = total * 60 + float(part)
    return total


def trained(cluster: Mixed) -> dict[str, object]:
    """Describe a job of four ranks that use the more, the higher their number."""
    folder = cluster.state.parent
    (folder / "train.c").write_text(TRAIN)
    subprocess.run(["mpicc", "-O1", "-o", folder / "train", folder / "train.c"], check=True)
    return {
        "name": "train",
        "mpi": "pmix",
        "command": [f"{folder}/train"],
        "count": 4,
        "resources": {"cpu": 2, "memory": "400MiB", "gpu": 2},
        "env": {"OMPI_MCA_btl": "tcp,self"},
    }


def figures_are_those_of_sacct(cluster: Mixed, accounted: AccountedSlurm, job: int) -> None:
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
