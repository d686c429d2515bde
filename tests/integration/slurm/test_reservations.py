"""Reservations of a real Slurm: jobs are planned around them, and in those that are theirs."""

import time
from collections.abc import Iterator

import pytest

from tests.integration.slurm.test_engines import Mixed
from tests.support.cluster import until
from tests.support.on_pilots import Piloted
from tests.support.on_slurm import OnSlurm, a_shared_folder, as_user, shell
from tests.support.slurm import REST_TOOLS, TOOLS, Slurm, a_slurm

pytestmark = [pytest.mark.needs_root, pytest.mark.needs_tool(*TOOLS)]

OURS = """\
engines: {gpus: {type: slurm, partition: main, reservation: for us}}
tenants: {lab: {}}
"""
OVER_REST = """\
engines:
  gpus: {{type: slurm, partition: main, rest: {{url: "{url}", token: {token}}}}}
tenants: {{lab: {{}}}}
"""
PILOTS = """\
engines: {gpus: {type: pilot, partition: main}}
tenants: {lab: {}}
"""
HALF = {"gpu": 2}


@pytest.fixture
def open_slurm(slurm: Slurm) -> Iterator[Slurm]:
    """The Slurm of all tests, with no reservation left of these."""
    yield slurm
    slurm.clear()
    _forget_all(slurm)


@pytest.fixture
def alone(cluster: OnSlurm) -> Iterator[OnSlurm]:
    """The service of this file, with no reservations left of other tests."""
    yield cluster
    cluster.clear()
    _forget_all(cluster.slurm)
    until(lambda: not told(cluster), "no reservation to be left")


def _forget_all(slurm: Slurm) -> None:
    for line in slurm.say("scontrol", "--oneliner", "show", "reservations").splitlines():
        name = line.partition(" StartTime=")[0].removeprefix("ReservationName=")
        slurm.say("scontrol", "delete", f"reservationname={name}")


def reserve(slurm: Slurm, name: str, nodes: str, minutes: int, **more: str) -> None:
    """Make a reservation that begins so many minutes from now, for an hour."""
    begin = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(time.time() + 60 * minutes))
    words = {"users": "root", "starttime": begin if minutes else "now", **more}
    said = slurm.say(
        "scontrol", "create", "reservation", f"reservationname={name}", f"nodes={nodes}",
        "duration=60", *(f"{key}={word}" for key, word in words.items()),
    )  # fmt: skip
    assert "created" in said


def told(cluster: Mixed | OnSlurm | Piloted) -> dict[str, list[str]]:
    """Return the nodes of each reservation as Allotment shows it."""
    return {each["name"]: each["nodes"] for each in cluster.get("/v1/reservations")}


def in_slurm(slurm: Slurm, node: str) -> tuple[str, str]:
    """Return the time limit and the reservation of the job on a node."""
    limit, _, name = slurm.say("squeue", "-h", "-w", node, "-o", "%l|%v").partition("|")
    return limit, name


def test_no_job_reaches_into_maintenance_and_who_asks_is_told(alone: OnSlurm) -> None:
    say = alone.slurm.say
    reserve(alone.slurm, "fans", "n[1-2]", 20, flags="maint")
    until(lambda: told(alone) == {"fans@slurm": ["n1", "n2"]}, "the reservation to be seen")
    short = alone.submit(shell("sleep 1000", max_run_time="17m", resources=HALF))
    alone.wait_for(short, "running")
    (node,) = alone.job(short)["row"]["nodes"]
    limit, _ = in_slurm(alone.slurm, node)
    assert int(limit.partition(":")[0]) < 20  # With the usual five to spare it is 22.
    long = alone.submit(shell("echo done", max_run_time="1h", resources=HALF))
    until(lambda: "fans@slurm" in alone.allot("why", str(long)).stdout, "the reason to be told")
    why = alone.allot("why", str(long)).stdout
    assert "are in maintenance in" in why
    assert "n1, n2: fans@slurm (maintenance in Slurm)" in " ".join(why.split())
    nodes = alone.allot("nodes").stdout
    assert nodes.count("set aside from ") == 2
    assert "fans@slurm, until " in nodes
    refused = alone.allot("unreserve", "fans@slurm")
    assert refused.returncode != 0
    assert "scontrol delete reservationname=fans" in refused.stderr
    say("scontrol", "update", "reservationname=fans", "nodes=n1")
    until(lambda: told(alone) == {"fans@slurm": ["n1"]}, "the change to be seen")
    alone.wait_for(long, "succeeded")
    assert alone.job(long)["attempts"][-1]["tasks"][0]["node"] == "n2"
    say("scontrol", "delete", "reservationname=fans")
    until(lambda: not told(alone), "its end to be seen")
    events = alone.allot("events").stdout
    assert "reservation fans@slurm of n1, n2: maintenance in Slurm" in events
    assert "reservation fans@slurm is over" in events


def test_those_whom_a_reservation_is_for_use_it_and_others_wait(alone: OnSlurm) -> None:
    reserve(alone.slurm, "night", "n[1-2]", 0, users="daemon")
    until(lambda: "night@slurm" in told(alone), "the reservation to be seen")
    waits = alone.submit(shell("echo done", max_run_time="2m", resources=HALF))
    until(lambda: "night@slurm" in alone.allot("why", str(waits)).stdout, "it to wait")
    alone.allot("hold", str(waits))
    done = as_user("daemon", alone, "run", "--detach", "--gpus", "1", "--", "sleep", "1000")
    assert done.returncode == 0, done.stderr
    theirs = int(done.stdout)
    alone.wait_for(theirs, "running")
    (node,) = alone.job(theirs)["row"]["nodes"]
    limit, name = in_slurm(alone.slurm, node)
    assert name == "night"
    assert int(limit.partition(":")[0]) < 60
    alone.allot("cancel", str(theirs))
    alone.wait_for(theirs, "cancelled")
    # We know it from its own word, before Slurm, which keeps what is in use.
    until(lambda: not alone.slurm_jobs(), "Slurm to know it, too")
    alone.allot("release", str(waits))
    alone.slurm.say("scontrol", "delete", "reservationname=night")
    alone.wait_for(waits, "succeeded")


def test_a_reservation_stays_known_while_slurm_and_the_service_are_away(alone: OnSlurm) -> None:
    before = alone.allot("events").stdout.count("reservation fans@slurm of n1, n2")
    reserve(alone.slurm, "fans", "n[1-2]", 20)
    until(lambda: told(alone) == {"fans@slurm": ["n1", "n2"]}, "the reservation to be seen")
    alone.slurm.stop("slurmctld")
    alone.kill()
    alone.up()
    waits = alone.submit(shell("echo done", max_run_time="1h", resources=HALF))
    until(lambda: "fans@slurm" in alone.allot("why", str(waits)).stdout, "it to wait")
    assert told(alone) == {"fans@slurm": ["n1", "n2"]}
    alone.slurm.start_controller()
    alone.slurm.say("scontrol", "delete", "reservationname=fans")
    until(lambda: not told(alone), "its end to be seen")
    alone.wait_for(waits, "succeeded")
    said = alone.allot("events").stdout
    assert said.count("reservation fans@slurm of n1, n2") == before + 1


def test_the_reservation_that_is_configured_is_for_all_jobs(open_slurm: Slurm) -> None:
    slurm = open_slurm
    reserve(slurm, "for us", "n[1-2]", 0)
    with a_shared_folder() as made:
        cluster = Mixed(made / "state", slurm, OURS)
        cluster.up()
        try:
            job = cluster.submit(shell("sleep 1000", max_run_time="2h", resources=HALF))
            cluster.wait_for(job, "running")
            assert not told(cluster)
            (node,) = cluster.nodes_of(job)
            limit, name = in_slurm(slurm, node)
            assert name == "for us"
            assert int(limit.partition(":")[0]) < 60
            env = {"SLURM_CONF": str(slurm.conf)}
            assert "for us: 2 nodes" in cluster.allot("doctor", env=env).stdout
        finally:
            cluster.down()


@pytest.mark.needs_tool(*REST_TOOLS)
def test_reservations_are_seen_and_used_over_rest() -> None:
    with a_slurm(rest=True) as slurm, a_shared_folder() as made:
        url = f"http://127.0.0.1:{slurm.rest_port}"
        config = OVER_REST.format(url=url, token=slurm.token)
        reserve(slurm, "mine", "n1", 0, users="daemon")
        reserve(slurm, "fans", "n2", 20, flags="maint")
        cluster = Mixed(made / "state", slurm, config)
        cluster.up()
        try:
            wanted = {"mine@gpus": ["n1"], "fans@gpus": ["n2"]}
            until(lambda: told(cluster) == wanted, "the reservations to be seen")
            short = cluster.submit(shell("sleep 1000", max_run_time="17m", resources=HALF))
            cluster.wait_for(short, "running")
            assert cluster.nodes_of(short) == ["n2"]
            long = ("run", "--detach", "--time", "2h", "--gpus", "1", "--", "sleep", "1000")
            done = as_user("daemon", cluster, *long)
            assert done.returncode == 0, done.stderr
            cluster.wait_for(int(done.stdout), "running")
            assert cluster.nodes_of(int(done.stdout)) == ["n1"]
            assert in_slurm(slurm, "n1")[1] == "mine"
        finally:
            cluster.down()


@pytest.mark.needs_tool("openssl")
def test_a_pilot_ends_before_a_reservation_and_is_not_held_in_one(
    open_slurm: Slurm,
) -> None:
    slurm = open_slurm
    reserve(slurm, "fans", "n1", 30, flags="maint")
    with a_shared_folder() as made:
        cluster = Piloted(made / "state", slurm, PILOTS)
        done = cluster.allot("up", "--config", str(cluster.config))
        assert done.returncode == 0, done.stderr
        try:
            cluster.until_held()
            until(lambda: "fans@gpus" in told(cluster), "the reservation to be seen")
            assert int(in_slurm(slurm, "n1")[0].partition(":")[0]) < 30
            assert in_slurm(slurm, "n2")[0] in {"UNLIMITED", "365-00:00:00"}  # Either is said.
            long = cluster.submit(shell("echo done", max_run_time="1h", resources=HALF))
            cluster.wait_for(long, "succeeded")
            assert cluster.job(long)["attempts"][-1]["tasks"][0]["node"] == "n2"
            reserve(slurm, "now", "n2", 0, flags="maint,ignore_jobs")
            until(lambda: set(cluster.pilots()) == {"n1"}, "the node to be given back")
            until(lambda: cluster.nodes()["n2"] == "drained", "the node to be closed")
            until(lambda: "now@gpus" in told(cluster), "the reservation to be seen")
        finally:
            cluster.down()
