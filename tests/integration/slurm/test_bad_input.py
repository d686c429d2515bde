"""What is wrong with a Slurm is said where it is met, and no job is lost by it."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.cluster import until
from tests.support.on_pilots import Piloted
from tests.support.on_slurm import OnSlurm, shell
from tests.support.slurm import TOOLS, Slurm

pytestmark = [pytest.mark.needs_root, pytest.mark.needs_tool(*TOOLS)]


def test_a_first_start_without_munge_says_what_is_needed(slurm: Slurm, folder: Path) -> None:
    conf = folder / "slurm.conf"
    conf.write_text(slurm.conf.read_text().replace("munge.sock", "nothing.sock"))
    shutil.copy(slurm.folder / "gres.conf", folder)
    cluster = OnSlurm(folder / "state", slurm)
    done = cluster.allot("up", "--slurm", "main", env={"SLURM_CONF": str(conf)})
    assert done.returncode != 0
    assert "Slurm does not answer" in done.stderr
    assert "Did you start munged?" in done.stderr
    assert "Start munge here with the key of the cluster" in done.stderr


def test_a_node_that_slurm_does_not_have_is_named(slurm: Slurm, folder: Path) -> None:
    cluster = OnSlurm(folder / "state", slurm)
    cluster.config.write_text(cluster.config.read_text().replace("name: n2", "name: n7"))
    done = cluster.start("--slurm", "main", "--config", str(cluster.config))
    assert done.returncode != 0
    assert "Slurm's partition has no node n7" in done.stderr
    assert "there: n1, n2" in done.stderr


def here(cluster: OnSlurm, node: str) -> str:
    """Return why a node takes no work; '' where it does."""
    return next(each["reason"] for each in cluster.get("/v1/nodes") if each["name"] == node)


def test_gpus_without_files_close_their_node_and_doctor_says_what_to_do(
    slurm: Slurm, folder: Path
) -> None:
    for name in ("slurm.conf", "topology.conf"):
        shutil.copy(slurm.folder / name, folder)
    (folder / "gres.conf").write_text(
        "AutoDetect=off\nNodeName=n2 Name=gpu Type=a100 Count=4\n"
    )
    cluster = OnSlurm(folder / "state", slurm)
    slurm.stop("n2")
    slurm.start_node("n2", "-f", str(folder / "slurm.conf"))
    try:
        slurm.until(lambda: "inval" in of_slurm(slurm, "n2"))
        cluster.up()
        why = "gres/gpu count reported lower than configured (0 < 4)"
        until(lambda: why in here(cluster, "n2"), "the reason")
        doctor = cluster.allot("doctor", env={"SLURM_CONF": str(slurm.conf)})
        assert doctor.returncode != 0
        assert "a Count= alone is not enough" in doctor.stdout
        job = cluster.submit(shell("true", resources={"gpu": 4}))
        cluster.wait_for(job, "succeeded")
        assert cluster.job(job)["attempts"][0]["tasks"][0]["node"] == "n1"
    finally:
        cluster.down()
        slurm.stop("n2")
        slurm.start_node("n2")
        slurm.until(lambda: "inval" not in of_slurm(slurm, "n2"))
        slurm.clear()


def of_slurm(slurm: Slurm, node: str) -> str:
    return slurm.say("sinfo", "-h", "-n", node, "-o", "%T")


def test_a_full_spool_of_a_node_closes_it_and_its_job_runs_later(cluster: OnSlurm) -> None:
    slurm = cluster.slurm
    spool = slurm.folder / "spool.n1"
    slurm.stop("n1")
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", spool], check=True)
    slurm.start_node("n1")
    try:
        slurm.say("scontrol", "update", "nodename=n2", "state=drain", "reason=all to n1")
        until(lambda: bool(here(cluster, "n2")), "the drain to be seen")
        (spool / "filler").write_bytes(bytes(shutil.disk_usage(spool).free))
        job = cluster.submit(shell("true"))
        until(lambda: "SlurmdSpoolDir is full" in here(cluster, "n1"), "the reason")
        until(lambda: cluster.state_of(job) == "queued", "the job to be queued again")
        env = {"SLURM_CONF": str(slurm.conf)}
        assert "n1 (SlurmdSpoolDir is full)" in cluster.allot("doctor", env=env).stdout
        assert "before it began" in str(cluster.job(job)["attempts"][0])
        slurm.clear()
        cluster.wait_for(job, "succeeded")
    finally:
        slurm.clear()
        slurm.stop("n1")
        until(lambda: not subprocess.run(["umount", spool], check=False).returncode, "umount")
        slurm.start_node("n1")


def test_a_gang_too_large_for_the_partition_is_refused(cluster: OnSlurm) -> None:
    status, answer = cluster.ask(
        "POST", "/v1/jobs", shell("true", count=3, resources={"gpu": 4})
    )
    assert status == 422, answer
    assert "no arrangement on these 2 node(s) has room" in answer["detail"]


def test_a_job_that_no_pilot_could_end_is_refused(slurm: Slurm, folder: Path) -> None:
    cluster = Piloted(folder / "state", slurm)
    assert cluster.allot("up", "--slurm", "short", "--pilot").returncode == 0
    try:
        status, answer = cluster.ask("POST", "/v1/jobs", shell("true", max_run_time="1h"))
        assert status == 501
        assert "A pilot in Slurm's partition short lets a job run for 1 min" in answer["detail"]
    finally:
        cluster.down()
        slurm.clear()


def test_a_slurm_that_can_keep_no_more_jobs_is_named_and_the_job_runs_later(
    cluster: OnSlurm,
) -> None:
    """As with a full disk: slurmctld cannot write the script of a job."""
    spool = cluster.slurm.folder / "state"
    for number in range(10):
        shutil.rmtree(spool / f"hash.{number}", ignore_errors=True)
        (spool / f"hash.{number}").write_text("")
    job = cluster.submit(shell("true"))
    try:
        until(lambda: "I/O error" in str(cluster.job(job)["attempts"]), "the reason")
    finally:
        subprocess.run(["sh", "-c", f"rm -f {spool}/hash.?"], check=True)
    cluster.wait_for(job, "succeeded")
