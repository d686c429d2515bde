"""Nodes of a real Slurm join, change and leave while the service runs."""

import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.integration.slurm.test_engines import Mixed
from tests.support.cluster import until
from tests.support.on_slurm import a_shared_folder, shell
from tests.support.slurm import TOOLS, Slurm, a_slurm

pytestmark = [pytest.mark.needs_root, pytest.mark.needs_tool(*TOOLS)]

CONFIG = """\
engines: {gpus: {type: slurm, partition: main}}
tenants: {lab: {}}
"""
LONG = "sleep 1000"


@pytest.fixture(scope="module")
def slurm() -> Iterator[Slurm]:
    """A Slurm of three nodes, whose third is in no partition to begin with."""
    with a_slurm(nodes=3) as running:
        running.say("scontrol", "update", "partitionname=main", "nodes=n1,n2")
        yield running


@pytest.fixture
def cluster(slurm: Slurm) -> Iterator[Mixed]:
    with a_shared_folder() as made:
        running = Mixed(made / "state", slurm, CONFIG)
        running.up()
        try:
            yield running
        finally:
            running.down()
            slurm.clear()


def nodes(cluster: Mixed) -> list[str]:
    return [node["name"] for node in cluster.get("/v1/nodes")]


def test_nodes_join_and_leave_with_their_partition(cluster: Mixed) -> None:
    say = cluster.slurm.say
    say("scontrol", "update", "partitionname=main", "nodes=n[1-3]")
    until(lambda: nodes(cluster) == ["n1", "n2", "n3"], "a node to join")
    wide = cluster.submit(shell(LONG, count=3, resources={"gpu": 4}))
    cluster.wait_for(wide, "running")
    assert set(cluster.nodes_of(wide)) == {"n1", "n2", "n3"}
    say("scontrol", "update", "partitionname=main", "nodes=n[1-2]")
    until(lambda: _node(cluster, "n3")["state"] == "drained", "a node to be closed")
    assert "not in Slurm's partition main" in _node(cluster, "n3")["reason"]
    assert cluster.state_of(wide) == "running"
    cluster.allot("cancel", str(wide))
    until(lambda: nodes(cluster) == ["n1", "n2"], "a node to leave")
    events = cluster.allot("events").stdout
    assert "nodes of gpus: n3 joined" in events
    assert "nodes of gpus: n3 left" in events


@pytest.mark.needs_tool("openssl")
def test_nodes_join_and_leave_that_are_held_as_a_whole(slurm: Slurm) -> None:
    slurm.say("scontrol", "update", "partitionname=main", "nodes=n1")
    with a_shared_folder() as made:
        cluster = Mixed(made / "state", slurm, CONFIG.replace("slurm,", "pilot,"))
        cluster.up()
        try:
            assert nodes(cluster) == ["n1"]
            slurm.say("scontrol", "update", "partitionname=main", "nodes=n1,n2")
            until(lambda: nodes(cluster) == ["n1", "n2"], "a node to join")
            wide = cluster.submit(shell("echo $ALLOT_NODE", count=2, resources={"gpu": 4}))
            cluster.wait_for(wide, "succeeded")
            assert set(cluster.nodes_of(wide)) == {"n1", "n2"}
            slurm.say("scontrol", "update", "partitionname=main", "nodes=n1")
            until(lambda: nodes(cluster) == ["n1"], "a node to leave")
            until(lambda: not slurm.say("squeue", "-h", "-w", "n2"), "it to be given back")
        finally:
            cluster.down()
            slurm.clear()
            slurm.say("scontrol", "update", "partitionname=main", "nodes=n1,n2")


def test_a_node_that_slurm_forgot_is_lost_with_its_jobs_and_leaves() -> None:
    """And one that changed meanwhile is as it is now."""
    with a_slurm(nodes=3) as slurm, a_shared_folder() as made:
        slurm.say("scontrol", "update", "partitionname=main", "nodes=n1,n2")
        cluster = Mixed(made / "state", slurm, CONFIG)
        cluster.up()
        try:
            _forget(slurm, cluster)
        finally:
            cluster.down()


def _forget(slurm: Slurm, cluster: Mixed) -> None:
    slurm.say("scontrol", "update", "nodename=n2", "state=drain", "reason=the job goes to n1")
    until(lambda: _node(cluster, "n2")["state"] == "drained", "the drain to be seen")
    job = cluster.submit(shell(LONG))
    cluster.wait_for(job, "running")
    assert cluster.nodes_of(job) == ["n1"]
    text = re.sub(r"(?m)^NodeName=n1 .*\n", "", slurm.conf.read_text())
    text = text.replace("Nodes=n[1-3]", "Nodes=n[2-3]").replace("Nodes=n1 ", "Nodes=n2 ")
    slurm.kill("slurmctld")
    slurm.conf.write_text(text.replace("RealMemory=2000", "RealMemory=1500"))
    _without_switches(slurm)
    slurm.start_controller()
    slurm.say("scontrol", "update", "nodename=n2", "state=resume")
    until(lambda: nodes(cluster) == ["n2", "n3"], "a node to leave")
    assert _node(cluster, "n2")["total"]["memory"] == 1500 << 20
    cluster.wait_for(job, "running")
    assert cluster.nodes_of(job)[0] in {"n2", "n3"}
    assert len(cluster.job(job)["attempts"]) > 1


def _without_switches(slurm: Slurm) -> None:
    """Have the topology name only nodes that there are."""
    (slurm.folder / "topology.conf").write_text("SwitchName=top Nodes=n[2-3]\n")


def _node(cluster: Mixed, name: str) -> dict[str, Any]:
    return next(node for node in cluster.get("/v1/nodes") if node["name"] == name)
