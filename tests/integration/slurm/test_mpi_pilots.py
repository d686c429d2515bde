"""mpirun on nodes that are held: it starts its daemons in the other tasks of its gang."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.slurm import test_own_disks as own
from tests.integration.slurm.test_mpi import RING
from tests.support.cluster import until
from tests.support.on_pilots import CONFIG, Piloted
from tests.support.on_slurm import a_shared_folder, as_nobody
from tests.support.slurm import TOOLS, Slurm

pytestmark = [
    pytest.mark.needs_root,
    pytest.mark.needs_tool(*TOOLS, "mpicc", "mpirun", "openssl"),
]
COMMAND = """\
mpirun --allow-run-as-root --hostfile $ALLOT_HOSTFILE --map-by ppr:2:node:oversubscribe \
  --mca btl tcp,self {program}
"""


def apart(config: str) -> str:
    """Give the nodes of a configuration addresses of their own."""
    line = next(line for line in config.splitlines() if "names: [n1, n2]" in line)
    nodes = (
        line.replace("names: [n1, n2]", f"name: {name}, address: {address}")
        for name, address in (("n1", "127.0.0.11"), ("n2", "127.0.0.12"))
    )
    return config.replace(line, "\n".join(nodes))


def built_in(folder: Path) -> str:
    """Build the ring in a folder that all nodes see; return its path."""
    (folder / "ring.c").write_text(RING.replace("SLURMD_NODENAME", "ALLOT_NODE"))
    subprocess.run(["mpicc", "-o", folder / "ring", folder / "ring.c"], check=True)
    return str(folder / "ring")


@pytest.fixture(scope="module")
def on_mpi(slurm: Slurm) -> Iterator[Piloted]:
    """A service whose nodes have addresses of their own, all on this machine."""
    with a_shared_folder() as made:
        running = Piloted(made / "state", slurm, apart(CONFIG))
        built_in(made)
        running.up()
        try:
            running.until_held()
            yield running
        finally:
            running.down()
            slurm.clear()


@pytest.fixture
def cluster(on_mpi: Piloted) -> Iterator[Piloted]:
    yield on_mpi
    on_mpi.clear()


def program(cluster: Piloted) -> str:
    return str(Path(cluster.state.parent) / "ring")


def ring(words: str) -> dict[str, object]:
    return {
        "name": "ring",
        "mpi": "mpirun",
        "command": COMMAND.format(program=words),
        "count": 2,
        "resources": {"cpu": 3, "memory": "512MiB", "gpu": 2},
        "retry": 0,
    }


def ranks(cluster: Piloted) -> list[str]:
    """Return the numbers of the processes that have our ring in their command line."""
    words = ["pgrep", "-r", "R,S,D,T", "-f", f"{program(cluster)} stay"]
    return subprocess.run(words, capture_output=True, text=True).stdout.split()


def said_by(cluster: Piloted, job: int) -> str:
    return cluster.allot("logs", str(job)).stdout


def all_said(cluster: Piloted, job: int) -> str:
    return "".join(
        cluster.allot("logs", str(job), "--task", f"main.{task}", *more).stdout
        for task in (0, 1)
        for more in ((), ("--stderr",))
    )


def test_a_ring_goes_over_two_held_nodes_with_devices_of_its_tasks(cluster: Piloted) -> None:
    words = f"sh -c 'echo devices $ALLOT_NODE $CUDA_VISIBLE_DEVICES; exec {program(cluster)}'"
    words = words.replace("$", "\\$").replace("'", '"')
    job = cluster.submit(ring(words))
    cluster.wait_for(job, "succeeded", "failed")
    said = said_by(cluster, job)
    assert cluster.state_of(job) == "succeeded", all_said(cluster, job)
    lines = [line.partition("| ")[2] or line for line in said.splitlines()]
    rings = sorted(line for line in lines if line.startswith("rank "))
    assert [line.split(" on ")[0] for line in rings] == [f"rank {r} of 4" for r in range(4)]
    assert [line.split()[5] for line in rings] == ["n1", "n1", "n2", "n2"]
    assert rings[0].endswith("sum 6")
    tasks = cluster.job(job)["attempts"][-1]["tasks"]
    wanted = {f"devices {task['node']} {','.join(map(str, task['devices']))}" for task in tasks}
    assert {line for line in lines if line.startswith("devices")} == wanted


def test_a_killed_rank_ends_the_job_and_all_it_started(cluster: Piloted) -> None:
    job = cluster.submit(ring(f"{program(cluster)} stay"))
    until(lambda: "rank 3 of 4" in said_by(cluster, job), "all ranks")
    subprocess.run(["kill", "-9", ranks(cluster)[-1]], check=True)
    cluster.wait_for(job, "failed")
    until(lambda: not ranks(cluster), "all ranks to end")
    assert len(cluster.job(job)["attempts"]) == 1


def test_a_cancelled_job_of_a_user_ends_with_all_its_ranks(cluster: Piloted) -> None:
    command = COMMAND.format(program=f"{program(cluster)} stay")
    command = command.replace("--allow-run-as-root", "")
    role = ("-n", "2", "-c", "3", "--gpus", "2", "--mpi", "mpirun", "--detach")
    done = as_nobody(cluster, "run", *role, "--", "sh", "-c", command)
    assert done.returncode == 0, done.stdout + done.stderr
    job = int(done.stdout)
    until(lambda: "rank 3 of 4" in said_by(cluster, job), "all ranks")
    assert {Path(f"/proc/{pid}").owner() for pid in ranks(cluster)} == {"nobody"}
    cluster.allot("cancel", str(job))
    cluster.wait_for(job, "cancelled")
    until(lambda: not ranks(cluster), "all ranks to end")


def test_pmi_is_refused_with_what_to_do_instead(cluster: Piloted) -> None:
    done = cluster.allot("run", "--detach", "-n", "2", "--mpi", "pmix", "--", "./x")
    assert done.returncode != 0
    assert "`mpi: mpirun`" in " ".join(done.stderr.split())


@pytest.mark.needs_tool("unshare")
def test_a_ring_goes_over_nodes_with_disks_of_their_own() -> None:
    def made(ours: Path, disk: Path, slurm: Slurm) -> own.OwnDisks:
        return own.OwnDisks(ours / "state", slurm, apart(own.CONFIG.format(disk=disk)))

    with a_shared_folder() as folder, own.with_own_disks(made) as cluster:
        program = built_in(folder)
        cluster.until_held()
        job = cluster.submit(ring(program))
        cluster.wait_for(job, "succeeded", "failed")
        said = said_by(cluster, job)
        assert cluster.state_of(job) == "succeeded", all_said(cluster, job)
        assert all(f"rank {rank} of 4" in said for rank in range(4))


def test_an_evicted_job_saves_on_all_nodes_within_its_grace(cluster: Piloted) -> None:
    """The task on the other node, which gets the signal too, stays until its ranks have."""
    script = cluster.state.parent / "saving"
    script.write_text(
        "#!/bin/sh\n"
        "trap 'sleep 1; echo saved on $ALLOT_NODE; exit 0' USR1\n"
        "echo up on $ALLOT_NODE\n"
        "while :; do sleep 0.1; done\n"
    )
    script.chmod(0o755)
    spec = ring(str(script)) | {"checkpoint": {"signal": "USR1", "grace": "30s"}}
    job = cluster.submit(spec)
    until(lambda: said_by(cluster, job).count("up on n2") == 2, "all ranks")
    words = ("--node", "n1", "--node", "n2", "--for", "1h", "--evict")
    assert cluster.allot("reserve", "fans", *words).returncode == 0
    try:
        until(lambda: cluster.job(job)["row"]["state"] == "queued", "it to be evicted")
        said = said_by(cluster, job)
        assert [said.count(f"saved on {node}") for node in ("n1", "n2")] == [2, 2]
    finally:
        cluster.allot("unreserve", "fans")
