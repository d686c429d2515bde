"""One service that runs jobs on this machine and on a real Slurm, under one queue tree."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.slurm.test_slurm import AWAY_S, OnSlurm, shell
from tests.support.cluster import until
from tests.support.slurm import TOOLS, Slurm, a_slurm

pytestmark = [
    pytest.mark.needs_root,
    pytest.mark.needs_tool(*TOOLS),
]

CONFIG = """\
engines:
  here: {type: local}
  gpus: {type: slurm, partition: main}
nodes:
- {name: desk, cpu: 4, memory: 2000MiB, disk: 1TiB, gpu: {type: a100, count: 2}, engine: here}
tenants: {lab: {}}
"""
"""Of the partition none is listed, so that its nodes are those that Slurm has: n1 and n2."""
LONG = "echo on $ALLOT_NODE, slurm job ${SLURM_JOB_ID:-none}; sleep 1000"


class Mixed(OnSlurm):
    """A service with a local engine and one of Slurm, as the configuration says."""

    def __init__(self, state: Path, slurm: Slurm, config: str = CONFIG) -> None:
        super().__init__(state, slurm)
        self.config.write_text(config)

    def up(self) -> None:
        self.until_up(self.start("--config", str(self.config)))

    def nodes_of(self, job: int) -> list[str]:
        return [task["node"] for task in self.job(job)["attempts"][-1]["tasks"]]

    def why(self, job: int) -> str:
        return self.allot("why", str(job)).stdout


@pytest.fixture(scope="module")
def slurm() -> Iterator[Slurm]:
    with a_slurm() as running:
        yield running


@pytest.fixture
def cluster(slurm: Slurm) -> Iterator[Mixed]:
    folder = Path(tempfile.mkdtemp(prefix="allot-test-", dir="/var/tmp"))
    folder.chmod(0o755)
    (folder / "state").mkdir()
    made = Mixed(folder / "state", slurm)
    made.up()
    yield made
    made.down()
    slurm.clear()
    shutil.rmtree(folder, ignore_errors=True)


def test_jobs_run_on_both_engines_and_gangs_on_one(cluster: Mixed) -> None:
    nodes = {node["name"]: node for node in cluster.get("/v1/nodes")}
    assert {name: node["engine"] for name, node in nodes.items()} == {
        "desk": "here",
        "n1": "gpus",
        "n2": "gpus",
    }
    assert nodes["desk"]["lacks"] == ["pmi", "mpirun"]
    assert {"suspends", "divides", "pins"} <= set(nodes["n1"]["lacks"])
    for name, engine in (("desk", "here"), ("n1", "gpus")):
        job = cluster.submit(shell("echo ran on $ALLOT_NODE", engine=engine))
        cluster.wait_for(job, "succeeded")
        assert nodes[cluster.nodes_of(job)[0]]["engine"] == engine, name
        assert f"ran on {cluster.nodes_of(job)[0]}" in cluster.output(job)
    # Were it not for engines, one of three such tasks would go to desk.
    gang = cluster.submit(shell("sleep 2", count=3, resources={"gpu": 2}))
    wide = cluster.submit(
        shell("echo on $ALLOT_NODE", count=2, resources={"gpu": 2}, engine="any")
    )
    cluster.wait_for(gang, "succeeded")
    assert set(cluster.nodes_of(gang)) == {"n1", "n2"}
    cluster.wait_for(wide, "succeeded")
    half = cluster.submit(shell("echo half", resources={"gpu": 0.5}))
    cluster.wait_for(half, "succeeded")
    assert cluster.nodes_of(half) == ["desk"]


def test_a_gang_larger_than_any_engine_is_refused_unless_it_may_be_spread(
    cluster: Mixed,
) -> None:
    gang = shell("echo rank $RANK on $ALLOT_NODE", count=5, resources={"gpu": 2})
    status, answer = cluster.ask("POST", "/v1/jobs", gang)
    assert status == 422, answer
    assert "All its tasks must be on one engine: here or gpus." in str(answer)
    job = cluster.submit({**gang, "engine": "any"})
    cluster.wait_for(job, "succeeded")
    assert set(cluster.nodes_of(job)) == {"desk", "n1", "n2"}
    assert len(cluster.output(job).splitlines()) == 5


def test_what_an_engine_cannot_do_is_never_planned_there(cluster: Mixed) -> None:
    keeps = cluster.submit(shell(LONG, resources={"gpu": 2}, on_eviction="suspend"))
    cluster.wait_for(keeps, "running")
    assert cluster.nodes_of(keeps) == ["desk"]
    there = cluster.submit(shell(LONG, engine="gpus"))
    cluster.wait_for(there, "running")
    # desk is full; that n1 and n2 are empty is no help.
    half = cluster.submit(shell("true", resources={"gpu": 0.5}))
    until(lambda: "It can run on here only." in cluster.why(half), "a reason")
    status, answer = cluster.ask(
        "POST", "/v1/jobs", shell("true", engine="gpus", resources={"gpu": 0.5})
    )
    assert status == 501
    assert "Engine gpus cannot give it a part of a GPU." in str(answer)
    status, answer = cluster.ask("POST", "/v1/jobs", shell("true", engine="gpu"))
    assert status == 422
    assert "There is no engine gpu." in str(answer)
    assert "here, gpus" in str(answer)
    done = cluster.allot("suspend", str(there))
    assert "On gpus a suspended job keeps its GPUs" in done.stderr
    assert cluster.allot("suspend", str(keeps)).returncode == 0
    cluster.wait_for(keeps, "suspended")
    cluster.wait_for(half, "succeeded")


def unheard(cluster: Mixed) -> dict[str, object]:
    return {node["name"]: node["unheard"] for node in cluster.get("/v1/nodes")}


def test_while_slurm_is_away_local_jobs_go_on(cluster: Mixed) -> None:
    there = cluster.submit(shell("sleep 5; echo done", engine="gpus"))
    cluster.wait_for(there, "running")
    cluster.slurm.until_saved()
    cluster.slurm.kill("slurmctld")
    for number in range(3):
        here = cluster.submit(shell(f"echo {number}", engine="here"))
        cluster.wait_for(here, "succeeded", seconds=20)
    waits = cluster.submit(shell("echo later", engine="gpus"))
    until(lambda: "gpus" in str(unheard(cluster)["n1"]), "Slurm to be silent")
    assert unheard(cluster)["desk"] is None
    cluster.kill()
    cluster.up()  # Slurm is away still: its nodes are those of last time.
    assert {node["name"] for node in cluster.get("/v1/nodes")} == {"desk", "n1", "n2"}
    here = cluster.submit(shell("echo again", engine="here"))
    cluster.wait_for(here, "succeeded", seconds=20)
    cluster.slurm.start_controller()
    cluster.wait_for(there, "succeeded", seconds=AWAY_S)
    cluster.wait_for(waits, "succeeded", seconds=AWAY_S)
    assert "done" in cluster.output(there)
    assert len(cluster.job(there)["attempts"]) == 1


def test_a_killed_service_adopts_its_tasks_on_both(cluster: Mixed) -> None:
    jobs = {
        engine: cluster.submit(shell("sleep 4; echo ended $ALLOT_ATTEMPT", engine=engine))
        for engine in ("here", "gpus")
    }
    for job in jobs.values():
        cluster.wait_for(job, "running")
    long = [cluster.submit(shell(LONG, engine=engine)) for engine in jobs]
    for job in long:
        cluster.wait_for(job, "running")
    cluster.kill()
    cluster.up()
    for job in jobs.values():
        cluster.wait_for(job, "succeeded")
        assert "ended 1" in cluster.output(job)
        assert len(cluster.job(job)["attempts"]) == 1
    for job in long:
        assert cluster.allot("cancel", str(job)).returncode == 0
        cluster.wait_for(job, "cancelled")
    until(lambda: not cluster.slurm_jobs(), "Slurm to be empty")


def test_engines_change_with_a_new_start_and_jobs_run_on(cluster: Mixed) -> None:
    job = cluster.submit(shell("sleep 6; echo done", engine="here"))
    cluster.wait_for(job, "running")
    other = cluster.state / "other.yaml"
    other.write_text(CONFIG.replace("partition: main", "partition: short"))
    done = cluster.allot("config", "apply", str(other))
    assert done.returncode != 0
    assert "change only when the service starts again" in done.stderr
    cluster.kill()
    cluster.config.write_text(other.read_text())
    cluster.up()
    assert {node["name"] for node in cluster.get("/v1/nodes")} == {"desk", "n1"}
    cluster.wait_for(job, "succeeded")
    assert "done" in cluster.output(job)
