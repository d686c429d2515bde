"""An MPIJob on a real Kubernetes without its operator: mpirun starts ranks in its workers."""

import subprocess
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from tests.integration.slurm.test_mpi import RING
from tests.support.cluster import until
from tests.support.image_mpi import archive_of, mpi_layers
from tests.support.kubernetes import IMAGE as BUSYBOX
from tests.support.kubernetes import MARKS, Kubernetes
from tests.support.on_kubernetes import OnKubernetes

pytestmark = [*MARKS, pytest.mark.needs_tool("mpicc", "mpirun")]

IMAGE = "localhost/mpi:1"
EXAMPLE = Path(__file__).parents[2] / "fixtures" / "foreign" / "mpi.yaml"
NAMES = [f"ring-worker-{number}.ring" for number in range(3)]
SHOWN = "cat $OMPI_MCA_orte_default_hostfile; /etc/mpi/discover_hosts.sh"
RUN = "mpirun --allow-run-as-root /ring"


@pytest.fixture(scope="module")
def mpi(kubernetes: Kubernetes, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return an image with Open MPI that both nodes have."""
    folder = tmp_path_factory.mktemp("mpi")
    (folder / "ring.c").write_text(RING.replace("SLURMD_NODENAME", "ALLOT_TASK"))
    subprocess.run(["mpicc", "-o", folder / "ring", folder / "ring.c"], check=True)
    archive = folder / "image.tar"
    archive.write_bytes(archive_of(IMAGE, mpi_layers(folder / "ring")))
    for node in kubernetes.nodes:
        assert kubernetes.ctr(node, "images", "import", str(archive)) is not None
    return IMAGE


def submit(cluster: OnKubernetes, folder: Path, image: str, command: str) -> int:
    """Submit the example with three workers that serve SSH, as files for the operator do."""
    job: Any = YAML(typ="safe").load(EXAMPLE)  # pyright: ignore[reportUnknownMemberType]
    del job["spec"]["runPolicy"]["schedulingPolicy"]
    replicas = job["spec"]["mpiReplicaSpecs"]
    replicas["Worker"]["replicas"] = 3  # on two nodes with 4 GPUs each
    containers = [role["template"]["spec"]["containers"][0] for role in replicas.values()]
    for container, words in zip(
        containers, (["sh", "-c", command], ["/usr/sbin/sshd", "-De"]), strict=True
    ):
        limits = container["resources"]["limits"]
        limits["memory"] = "200Mi"
        if "nvidia.com/gpu" in limits:
            limits["nvidia.com/gpu"] = 2
        container |= {"image": image, "command": words}
    file = folder / "mpi.yaml"
    YAML().dump(job, file)  # pyright: ignore[reportUnknownMemberType]
    done = cluster.allot("submit", str(file))
    assert done.returncode == 0, done.stderr
    return int(done.stdout.split()[0])


def said(cluster: OnKubernetes, job: int) -> list[str]:
    """Return the lines of all tasks, without whose they are."""
    return [line.rpartition("| ")[2] for line in cluster.output(job).splitlines()]


def test_ranks_run_in_the_pods_of_all_workers(
    cluster: OnKubernetes, mpi: str, folder: Path
) -> None:
    job = submit(cluster, folder, mpi, f"{SHOWN}; {RUN}")
    cluster.wait_for(job, "succeeded", "failed")
    lines = said(cluster, job)
    assert cluster.state_of(job) == "succeeded", lines
    assert lines[:6] == [*(f"{name} slots=2" for name in NAMES), *NAMES]
    ranks = sorted(line for line in lines if line.startswith("rank "))
    assert ranks[0] == "rank 0 of 6 on worker.0 sum 15"
    assert [line.split()[5] for line in ranks] == [f"worker.{rank // 2}" for rank in range(6)]
    tasks = cluster.job(job)["attempts"][-1]["tasks"]
    assert len({task["node"] for task in tasks}) == 2, "two workers share a node"


def test_a_cancelled_job_ends_with_all_its_ranks(
    cluster: OnKubernetes, mpi: str, folder: Path
) -> None:
    job = submit(cluster, folder, mpi, f"{RUN} stay")
    until(lambda: len([x for x in said(cluster, job) if x.startswith("rank")]) == 6, "ranks")
    assert cluster.allot("cancel", str(job), "--yes").returncode == 0
    cluster.wait_for(job, "cancelled")
    until(lambda: not cluster.pods_of(job), "its pods to be gone")
    until(lambda: not ring_processes(), "its ranks to end")


def ring_processes() -> str:
    words = ["pgrep", "-r", "R,S,D,T", "-f", "^/ring stay"]
    return subprocess.run(words, capture_output=True, text=True, check=False).stdout


def test_a_key_is_nobodys_to_see(cluster: OnKubernetes, mpi: str, folder: Path) -> None:
    job = submit(cluster, folder, mpi, "sleep 1000")
    until(lambda: len(cluster.pods_of(job)) == 4, "its pods")
    shown = str(cluster.pods_of(job))
    assert "ALLOT_MPI_TASKS" in shown
    assert "ALLOT_MPI_KEY'" not in shown


def test_an_image_without_python_says_so(cluster: OnKubernetes, folder: Path) -> None:
    job = submit(cluster, folder, BUSYBOX, "sleep 1000")
    cluster.wait_for(job, "failed")
    words = "this image has no python3, by which mpirun gets to a worker"
    assert words in cluster.allot("logs", str(job)).stderr + cluster.output(job)
