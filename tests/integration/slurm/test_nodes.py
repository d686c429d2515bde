"""Nodes of a real Slurm: drained from either side, and not known while it does not answer."""

import re

import pytest

from allotment.backends.slurm.backend import START_S
from tests.support.cluster import until
from tests.support.on_slurm import OnSlurm, shell
from tests.support.slurm import TOOLS

pytestmark = [pytest.mark.needs_root, pytest.mark.needs_tool(*TOOLS)]


def in_slurm(cluster: OnSlurm, node: str) -> tuple[str, str]:
    """Return state and reason of a node as Slurm shows them."""
    state, _, reason = cluster.slurm.say("sinfo", "-h", "-n", node, "-o", "%T|%E").partition(
        "|"
    )
    return state.rstrip("*"), reason


def here(cluster: OnSlurm, node: str) -> tuple[str, str]:
    """Return state and reason of a node as Allotment shows them."""
    (found,) = (each for each in cluster.get("/v1/nodes") if each["name"] == node)
    return found["state"], found["reason"]


def test_a_drain_is_one_in_slurm_too_and_ends_there(cluster: OnSlurm) -> None:
    done = cluster.allot("drain", "n1", "--reason", 'new "fan" | now')
    assert done.returncode == 0, done.stderr
    drained = ("drained", "allotment: new 'fan' / now")
    until(lambda: in_slurm(cluster, "n1") == drained, "a drain in Slurm")
    assert here(cluster, "n1") == ("drained", 'new "fan" | now')
    assert cluster.allot("undrain", "n1").returncode == 0
    until(lambda: in_slurm(cluster, "n1")[0] == "idle", "its end in Slurm")
    until(lambda: here(cluster, "n1")[0] == "ready", "its end")


def test_what_an_administrator_drained_in_slurm_stays_drained(cluster: OnSlurm) -> None:
    say = cluster.slurm.say
    say("scontrol", "update", "nodename=n1", "state=drain", "reason=bad fan")
    by_slurm = ("drained", "engine: drained in Slurm: bad fan")
    until(lambda: here(cluster, "n1") == by_slurm, "the drain to be seen")
    done = cluster.allot("undrain", "n1")
    assert done.returncode != 0
    assert "drained in Slurm: bad fan: not by Allotment" in done.stderr
    cluster.allot("drain", "n1", "--reason", "ours, too")
    assert here(cluster, "n1") == ("drained", "ours, too")
    assert cluster.allot("undrain", "n1").returncode == 0
    until(lambda: here(cluster, "n1") == by_slurm, "the other drain to be seen again")
    assert in_slurm(cluster, "n1") == ("drained", "bad fan")
    say("scontrol", "update", "nodename=n1", "state=resume")
    until(lambda: here(cluster, "n1")[0] == "ready", "the node to be back")


def test_a_drain_that_ended_while_the_service_was_away_ends_in_slurm(cluster: OnSlurm) -> None:
    cluster.allot("drain", "n2", "--reason", "x")
    until(lambda: in_slurm(cluster, "n2")[0] == "drained", "a drain in Slurm")
    cluster.slurm.kill("slurmctld")
    cluster.allot("undrain", "n2")
    cluster.kill()
    cluster.slurm.start_controller()
    cluster.up()
    until(lambda: in_slurm(cluster, "n2")[0] == "idle", "its end in Slurm")
    until(lambda: here(cluster, "n2")[0] == "ready", "its end")


def test_a_drain_of_ours_that_slurm_did_not_end_is_ended_later(cluster: OnSlurm) -> None:
    """As where it refuses to resume a node that has not reported to it yet."""
    cluster.allot("drain", "n1", "--reason", "x")
    until(lambda: in_slurm(cluster, "n1")[0] == "drained", "a drain in Slurm")
    cluster.allot("undrain", "n1")
    until(lambda: in_slurm(cluster, "n1")[0] == "idle", "its end in Slurm")
    cluster.slurm.say("scontrol", "update", "nodename=n1", "state=drain", "reason=allotment: x")
    until(lambda: in_slurm(cluster, "n1")[0] == "idle", "its end once more")
    until(lambda: here(cluster, "n1")[0] == "ready", "its end")


def test_a_job_that_came_to_a_node_just_drained_is_taken_back_soon(cluster: OnSlurm) -> None:
    """It waits in Slurm's queue for ever else, or a minute: while other nodes are free."""
    first = cluster.submit(shell("sleep 1000", resources={"gpu": 4}))
    cluster.wait_for(first, "running")
    (taken,) = cluster.job(first)["row"]["nodes"]
    (free,) = {"n1", "n2"} - {taken}
    cluster.slurm.say("scontrol", "update", f"nodename={free}", "state=drain", "reason=fan")
    job = cluster.submit(
        shell("sleep 1000", resources={"gpu": 4})
    )  # Not seen yet, most likely.
    until(lambda: here(cluster, free)[0] == "drained", "the drain to be seen")
    until(lambda: cluster.state_of(job) == "queued", "it to be taken back")
    cluster.allot("cancel", str(first))
    cluster.wait_for(job, "running")
    *early, last = cluster.job(job)["attempts"]
    assert {task["node"] for task in last["tasks"]} == {taken}
    for attempt in early:
        found = re.search(r"not started in (\d+) s", str(attempt))
        assert found is None or int(found[1]) < START_S


def test_jobs_of_a_slurm_that_is_away_are_shown_as_not_known(cluster: OnSlurm) -> None:
    job = cluster.submit(shell("sleep 1000"))
    cluster.wait_for(job, "running")
    (node,) = cluster.job(job)["row"]["nodes"]
    cluster.slurm.until_saved()
    cluster.slurm.kill("slurmctld")
    until(lambda: cluster.job(job)["row"]["unheard"], "it to be noticed")
    unheard = cluster.job(job)["row"]["unheard"]
    assert unheard["engine"] == "Slurm"
    assert unheard["for_ms"] > 0
    told = "Slurm has not answered for "
    for words in (("ps",), ("show", str(job)), ("why", str(job)), ("nodes",)):
        assert told in cluster.allot(*words).stdout, words
    assert "running?" in cluster.allot("ps").stdout
    assert "running tasks continue" in cluster.allot("why", str(job)).stdout
    assert all(told_of["unheard"] for told_of in cluster.get("/v1/nodes"))
    cluster.slurm.start_controller()
    until(lambda: cluster.job(job)["row"]["unheard"] is None, "Slurm to be heard again")
    assert cluster.state_of(job) == "running"
    assert (node,) == tuple(cluster.job(job)["row"]["nodes"])


def test_jobs_go_on_while_munge_is_away_and_nothing_runs_twice(cluster: OnSlurm) -> None:
    ran = cluster.state.parent / "ran"
    job = cluster.submit(shell(f"sleep 2; echo first >>{ran}"))
    cluster.wait_for(job, "running")
    cluster.slurm.stop("munged")
    waits = cluster.submit(shell(f"echo later >>{ran}"))
    try:
        cluster.wait_for(job, "succeeded")
        until(
            lambda: "unge" in str(cluster.get("/v1/nodes")[0]["unheard"]), "munge to be named"
        )
    finally:
        cluster.slurm.start_munge()
    cluster.wait_for(waits, "succeeded")
    assert len(cluster.job(job)["attempts"]) == 1
    # What Slurm refused meanwhile is tried again. Its answer may be lost with munge: then there
    # is a second job in Slurm, which is ended, or finds that it is not wanted.
    began = [attempt for attempt in cluster.job(waits)["attempts"] if attempt["started_at"]]
    assert len(began) == 1
    until(lambda: not cluster.slurm_jobs(), "Slurm to be empty")
    assert ran.read_text().split() == ["first", "later"]
