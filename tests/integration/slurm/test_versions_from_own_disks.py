"""What jobs leave on nodes with disks of their own becomes versions of datasets.

Neither the service's folder nor its users' homes are on the nodes.
"""

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.integration.service.test_data import as_user
from tests.integration.service.test_saving import REPORT, is_settled
from tests.integration.service.test_store_checkpoints import create, wait_kept
from tests.integration.slurm.test_data_on_pilots import ENDED
from tests.integration.slurm.test_files_on_own_disks import (
    BOTH,
    CONFIG,
    OnNodes,
    on_nodes,
    size_of,
)
from tests.support.cluster import until
from tests.support.disks import mounted
from tests.support.exchange import owned
from tests.support.object_stores import BUCKET, Rclone, a_store, log_in
from tests.support.on_pilots import gated, runners
from tests.support.patience import PATIENCE_S
from tests.support.registry import USERS
from tests.support.slurm import TOOLS

pytestmark = [
    pytest.mark.needs_root,
    pytest.mark.needs_tool(*TOOLS, "openssl", "unshare"),
    pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning"),
]
LIMITS = "data_store: 400MiB, keep_finished: 1"
"""A job leaves memory as soon as it may: not before its outputs are saved."""
ROOM = "size=2g"
WHOLE = {"gpu": 4, "memory": "700MiB"}
IN_PARTS = "head -c 80M /dev/zero | tr '\\0' y"
LARGE = "head -c 200M /dev/zero | tr '\\0' y"


@pytest.fixture(scope="module")
def service() -> Iterator[OnNodes]:
    """Start a service whose datasets have a file system of their own."""

    def begin(running: OnNodes) -> None:
        data = running.state / "data"
        data.mkdir()
        mounts.enter_context(mounted(data, "-t", "tmpfs", "-o", ROOM, "small"))

    limited = CONFIG.replace("limits: {{", f"limits: {{{{{LIMITS}, ")
    mounts = ExitStack()
    with on_nodes(limited, OnNodes, begin) as running, mounts:
        yield running


def saving(cluster: OnNodes, name: str, script: str, user: str = "ann", **more: Any) -> int:
    """Submit a job whose outputs become a version of a dataset, which is made if need be."""
    if not any(each["name"] == name for each in cluster.get("/v1/data")["datasets"]):
        as_user(cluster, user, "create", name)
    # The nodes' disks are of memory, too.
    large = {"resources": {"cpu": 0.1, "memory": "700MiB"}, **more}
    return cluster.submitted(user, f"cd $ALLOT_OUTPUT_DIR; {script}", save=name, **large)


def saved(cluster: OnNodes, job: int) -> str:
    found = settled(cluster, job)
    assert found["saved"], found["unsaved"]
    return found["saved"]


def settled(cluster: OnNodes, job: int) -> dict[str, Any]:
    """Wait until it is known what became of a job's outputs."""
    cluster.wait_for(job, *ENDED)
    assert cluster.state_of(job) == "succeeded", cluster.job(job)
    until(lambda: is_settled(cluster, job), "what became of the outputs")
    return cluster.job(job)


# ── outputs ─────────────────────────────────────────────────────────────────────────────


def test_outputs_of_a_node_are_the_next_version(cluster: OnNodes) -> None:
    """Links, pipes and devices are left out, and no name leads anywhere else."""
    gate = cluster.seen / "hostile"
    script = (
        "mkdir -p sub/..deep; echo one >sub/..deep/a; printf '#!/bin/sh\necho ran' >run; "
        "chmod +x run; : >empty; echo odd >'a b\nc'; ln -s /etc/shadow link; ln -s / sub/root; "
        f"mkfifo pipe; echo $PWD; {gated(gate)}"
    )
    job = saving(cluster, "results", script)
    cluster.wait_for(job, "running")
    until(lambda: bool(cluster.output(job)), "its folder")
    (folder,) = cluster.output(job).split()
    os.mknod(
        cluster.slurm.seen_by(cluster.node_of(job), Path(folder)) / "device",
        0o020666,
        os.makedev(1, 5),
    )
    gate.touch()
    assert saved(cluster, job) == "ann/results@1"
    assert not list(cluster.state.glob("outputs/*")), "the service's own disk was used"
    look = (
        "cd /d; find . -type f -print0 | sort -z | tr '\\n\\0' '? '; cat sub/..deep/a; ./run; "
        "find . -type l"
    )
    said = cluster.says("ann", look, data={"results": "/d"})
    assert said == "./a b?c ./empty ./run ./sub/..deep/a one\nran\n"
    assert "ann/results@1" in cluster.allot("show", str(job)).stdout
    assert "its outputs are saved as" in cluster.allot("events", str(job)).stdout


def test_a_gang_has_one_version_of_the_files_of_all_its_nodes(cluster: OnNodes) -> None:
    script = "echo $RANK >same; mkdir -p of; echo $RANK >of/$RANK"
    job = saving(cluster, "gang", script, **BOTH)
    assert saved(cluster, job) == "ann/gang@1"
    tasks = cluster.job(job)["attempts"][0]["tasks"]
    assert {task["node"] for task in tasks} == {"n1", "n2"}
    said = cluster.says("ann", "cd /d; ls . of; cat same of/1", data={"gang": "/d"})
    assert said.split() == [".:", "of", "same", "of:", "0", "1", "0", "1"]


def test_what_the_dataset_has_is_not_sent_again(cluster: OnNodes) -> None:
    def read() -> int:
        (line, *_) = Path(f"/proc/{cluster.address['pid']}/io").read_text().splitlines()
        return int(line.split()[1])

    before = read()
    saved(cluster, saving(cluster, "again", f"{LARGE} >large; echo 1 >small"))
    first, before = read() - before, read()
    again = saving(cluster, "again", f"{LARGE} >large; echo 2 >small")
    assert saved(cluster, again) == "ann/again@2"
    assert first > 200 << 20, "all of it came"
    assert read() - before < 100 << 20
    said = cluster.says("ann", "cat /d/small; tail -c 1 /d/large", data={"again": "/d"})
    assert said == "2\ny"
    as_user(cluster, "ann", "rm", "again")


def test_what_may_not_or_cannot_be_kept_is_told(cluster: OnNodes) -> None:
    job = saving(cluster, "odd", "echo 1 >a; echo 2 >b; chmod 0 b")
    assert "ann may not read b" in settled(cluster, job)["unsaved"]
    job = saving(cluster, "odd", "touch a $(printf 'b\\377')")
    assert "The name of 'b\\ufffd' is not UTF-8" in settled(cluster, job)["unsaved"]
    job = saving(cluster, "odd", "true")
    assert settled(cluster, job)["unsaved"] == "There is no file in its output folder."
    job = saving(cluster, "odd", "truncate -s 10T holes")
    told = settled(cluster, job)["unsaved"]
    assert told == "They have 10 TiB; the datasets of one tenant may have 400 MiB."
    job = saving(cluster, "odd", "head -c 300M /dev/zero | tr '\\0' a >a; cp a b; echo 1 >>b")
    assert "may have 400 MiB" in settled(cluster, job)["unsaved"]
    assert "@1" not in as_user(cluster, "ann", "show", "odd")


def test_a_tenant_has_no_more_than_its_room(cluster: OnNodes) -> None:
    job = saving(cluster, "first", f"{LARGE} >a", user="ben")
    assert saved(cluster, job) == "ben/first@1"
    job = saving(cluster, "second", "head -c 250M /dev/zero >a", user="ben")
    told = settled(cluster, job)["unsaved"]
    assert "tenant ben take all the room there is" in told
    as_user(cluster, "ben", "rm", "first")


def test_a_full_disk_of_the_service_keeps_nothing_half(cluster: OnNodes) -> None:
    used = sum(size_of(path) for path in (cluster.state / "data").rglob("*") if path.is_file())
    small = f"remount,size={(used >> 20) + 100}m"
    subprocess.run(["mount", "-o", small, str(cluster.state / "data")], check=True)
    job = saving(cluster, "full", f"{LARGE} >large; echo 1 >small")
    cluster.wait_for(job, "succeeded")
    other = saving(cluster, "fits", "echo 1 >small")
    assert saved(cluster, other) == "ann/fits@1"
    assert not is_settled(cluster, job)
    assert "@1" not in as_user(cluster, "ann", "show", "full")
    subprocess.run(["mount", "-o", f"remount,{ROOM}", str(cluster.state / "data")], check=True)
    assert saved(cluster, job) == "ann/full@1"
    as_user(cluster, "ann", "rm", "full")


def wait_for_the_middle(cluster: OnNodes, below: str = "data/new/*") -> None:
    """Wait until a large file is on its way to the service: that does not take long."""
    end = time.monotonic() + PATIENCE_S
    while not any(size_of(each) > 5 << 20 for each in cluster.state.glob(below)):
        assert time.monotonic() < end


def kill(cluster: OnNodes, who: str) -> None:
    if who == "service":
        cluster.kill()
        cluster.up()
        return
    for pid in runners(cluster.disk):
        os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("who", ["runner", "service"])
def test_what_is_cut_begins_again_and_is_never_half_there(cluster: OnNodes, who: str) -> None:
    small = "for n in $(seq 50); do echo $n >small-$n; done"
    name = f"cut-{who}"
    job = saving(cluster, name, f"{small}; {LARGE} >z-large")
    cluster.wait_for(job, "succeeded")
    wait_for_the_middle(cluster)
    kill(cluster, who)
    assert "@1" not in as_user(cluster, "ann", "show", name)
    assert saved(cluster, job) == f"ann/{name}@1"
    cluster.age()
    look = "ls /d | wc -l; cat /d/small-50; wc -c </d/z-large; tr -d y </d/z-large | wc -c"
    said = cluster.says("ann", look, data={name: "/d"})
    assert said.split() == ["51", "50", str(200 << 20), "0"]
    assert not list((cluster.state / "data/new").iterdir()), "nothing half-made stays"
    as_user(cluster, "ann", "rm", name)


def test_a_node_that_is_silent_holds_up_no_other(cluster: OnNodes) -> None:
    gates = {name: cluster.seen / name for name in ("slow", "quick")}
    jobs = {
        name: saving(cluster, name, f"{make} >a; {gated(gates[name])}", resources=WHOLE)
        for name, make in (("slow", LARGE), ("quick", "echo 1"))
    }
    for job in jobs.values():
        cluster.wait_for(job, "running")
    gates["slow"].touch()
    cluster.wait_for(jobs["slow"], "succeeded")
    (silent,) = (pid for pid in runners(cluster.disk) if is_on(cluster, pid, jobs["slow"]))
    os.kill(silent, signal.SIGSTOP)
    try:
        gates["quick"].touch()
        assert saved(cluster, jobs["quick"]) == "ann/quick@1"
        assert not is_settled(cluster, jobs["slow"])
    finally:
        os.kill(silent, signal.SIGCONT)
    assert saved(cluster, jobs["slow"]) == "ann/slow@1"
    as_user(cluster, "ann", "rm", "slow")


def test_a_node_that_is_drained_gives_its_outputs_first(cluster: OnNodes) -> None:
    """One that goes in the middle gives the rest when it comes back."""
    gate = cluster.seen / "drained"
    job = saving(cluster, "drained", f"{LARGE} >z-large; {gated(gate)}")
    cluster.wait_for(job, "running")
    with cluster.drained(job) as node:
        gate.touch()
        cluster.wait_for(job, "succeeded")
        wait_for_the_middle(cluster)
        cluster.slurm.say("scancel", cluster.pilots()[node])
        until(lambda: "tried again: They cannot" in shown(cluster, job), "a word of it")
        assert "saved      not yet: its outputs go to ann/drained" in shown(cluster, job)
    assert saved(cluster, job) == "ann/drained@1"
    assert "tried again" not in shown(cluster, job)
    gate.unlink()
    job = saving(cluster, "drained", f"echo 1 >a; {gated(gate)}")
    cluster.wait_for(job, "running")
    with cluster.drained(job) as node:
        gate.touch()
        assert saved(cluster, job) == "ann/drained@2"
        until(lambda: node not in cluster.pilots(), "the node to be given back")
    as_user(cluster, "ann", "rm", "drained")
    cluster.says("ann", "true", **BOTH)  # The node is held again.


def shown(cluster: OnNodes, job: int) -> str:
    return cluster.allot("show", str(job)).stdout


def is_on(cluster: OnNodes, runner: int, job: int) -> bool:
    """Whether a runner is that of a job's node: its folder says of which it is."""
    (name,) = Path(f"/proc/{runner}/root{cluster.disk}").glob("pilots/*/node")
    return name.read_text() == cluster.node_of(job)


# ── checkpoints ─────────────────────────────────────────────────────────────────────────


def training(cluster: OnNodes, name: str, script: str, **more: Any) -> int:
    """Submit a job whose checkpoints become versions of a dataset."""
    if not any(each["name"] == name for each in cluster.get("/v1/data")["datasets"]):
        as_user(cluster, "ann", "create", name)
    how = {"resources": {"cpu": 0.1, "memory": "700MiB"}, **more}
    how["checkpoint"] = {"save": name, "keep": 2, **more.get("checkpoint", {})}
    return cluster.submitted("ann", REPORT + script, **how)


RESUMES = (
    'if test -n "$ALLOT_RESUME_FROM"; then echo from $ALLOT_RESUME_FROM on $ALLOT_NODE; '
    "cat $ALLOT_RESUME_FROM/deep/of-$RANK; ls $ALLOT_RESUME_FROM/deep; exit 0; fi; "
)


def test_checkpoints_become_versions_while_their_job_runs(cluster: OnNodes) -> None:
    steps = "; ".join(
        f"mkdir c{n}; echo {n} >c{n}/model; ln -s /etc/shadow c{n}/link; report c{n} {n}; "
        f"{gated(cluster.seen / f'kept-{n}')}"
        for n in (1, 2, 3)
    )
    job = training(cluster, "weights", steps)
    for n in (1, 2, 3):
        wait_for_kept(cluster, job, f"ann/weights@{n}")
        assert cluster.state_of(job) == "running"
        said = cluster.says("ann", "cd /d; find . -type f; cat */model", data={"weights": "/d"})
        assert said.split() == [f"./c{n}/model", str(n)]
        (cluster.seen / f"kept-{n}").touch()
    cluster.wait_for(job, "succeeded")
    shown = as_user(cluster, "ann", "show", "weights")
    assert f"checkpoint of job {job} at step 3" in shown
    assert "@1 " not in shown, "as many stay as the job keeps"
    assert "kept       ann/weights@3" in cluster.allot("show", str(job)).stdout


def wait_for_kept(cluster: OnNodes, job: int, version: str) -> None:
    """Wait until a version is a checkpoint of a job; on the way others may be."""
    until(lambda: cluster.job(job)["kept"] == version, f"{version}")


@pytest.mark.parametrize("is_lost", [False, True])
def test_a_gang_that_goes_to_other_nodes_finds_its_checkpoint(
    cluster: OnNodes, is_lost: bool
) -> None:
    """Also where what the service kept of it on its own disk is lost: from the version."""
    name = f"moved-{is_lost}".lower()
    script = (
        f"{RESUMES} mkdir -p c1/deep; echo part-$RANK >c1/deep/of-$RANK; "
        "test $RANK = 0 && { sleep 1; report c1 1; }; sleep 1000"
    )
    job = training(cluster, name, script, **BOTH)
    wait_kept(cluster, job, f"ann/{name}@1")
    if is_lost:
        kept = cluster.state / f"engines/gpus/pilot/checkpoints/{job}"
        subprocess.run(["rm", "-r", kept], check=True)
        for node in ("n1", "n2"):
            where = cluster.slurm.seen_by(node, cluster.disk)
            (folder,) = where.glob(f"pilots/*/checkpoints/{job}")
            subprocess.run(["rm", "-r", folder], check=True)
    # A node that is lost again and again gets no work for a while.
    cluster.slurm.say("scancel", cluster.pilots()["n2" if is_lost else "n1"])
    cluster.wait_for(job, "succeeded", "failed")
    said = cluster.output(job)
    assert cluster.state_of(job) == "succeeded", said
    assert said.count("/c1 on n") == 2, said
    assert (said.count("part-0"), said.count("part-1")) == (1, 1)
    assert (said.count("of-0"), said.count("of-1")) == (2, 2)
    told = cluster.allot("events", str(job)).stdout
    assert (f"continues from step 1: its checkpoint in ann/{name}@1" in told) == is_lost


def test_a_killed_service_keeps_the_old_one_and_then_the_new(cluster: OnNodes) -> None:
    gates = [cluster.seen / f"killed-{n}" for n in range(2)]
    script = (
        f"echo one >a; report a 1; {gated(gates[0])}; {LARGE} >b; report b 2; {gated(gates[1])}"
    )
    job = training(cluster, "killed", script)
    wait_kept(cluster, job, "ann/killed@1")
    gates[0].touch()
    until(lambda: cluster.job(job)["checkpoint"]["step"] == 2, "the second")
    cluster.kill()
    cluster.up()
    wait_for_kept(cluster, job, "ann/killed@2")
    gates[1].touch()
    cluster.wait_for(job, "succeeded")
    assert as_user(cluster, "ann", "show", "killed").count("checkpoint of job") == 2
    cluster.age()
    said = cluster.says("ann", "wc -c </d/b", data={"killed": "/d"})
    assert said.split() == [str(200 << 20)]
    as_user(cluster, "ann", "rm", "killed")


@pytest.mark.parametrize("who", ["runner", "service"])
def test_a_checkpoint_that_is_cut_on_its_way_is_kept_as_a_whole(
    cluster: OnNodes, who: str
) -> None:
    name, gate = f"on-its-way-{who}", cluster.seen / f"on-its-way-{who}"
    script = f"mkdir c; {LARGE} >c/z; echo 1 >c/a; report c 1; {gated(gate)}"
    job = training(cluster, name, script)
    wait_for_the_middle(cluster, f"engines/gpus/pilot/checkpoints/{job}/*/c/z")
    kill(cluster, who)
    assert not cluster.job(job)["kept"]
    wait_kept(cluster, job, f"ann/{name}@1")
    gate.touch()
    cluster.wait_for(job, "succeeded")
    cluster.age()
    said = cluster.says("ann", "ls /d/c; wc -c </d/c/z", data={name: "/d"})
    assert said.split() == ["a", "z", str(200 << 20)]
    as_user(cluster, "ann", "rm", name)


def test_a_checkpoint_that_changes_while_it_is_read_is_no_version(cluster: OnNodes) -> None:
    """Its folder is one that all nodes see, so nothing of it is on the service's disk."""
    ours, gate = cluster.seen / "ckpt", cluster.seen / "still"
    owned(ours, USERS["ann"])
    one = "head -c 30M /dev/zero | tr '\\0'"
    script = (
        f"{one} a >model; report model 1; until test -e {gate}; do "
        f"for l in a b c d; do {one} $l | dd of=model bs=1M conv=notrunc status=none; done; "
        f"done; {gated(cluster.seen / 'end')}"
    )
    job = training(cluster, "torn", script, checkpoint={"dir": str(ours)})
    wait_for_the_middle(cluster)
    until(lambda: not list((cluster.state / "data/new").iterdir()), "it to be thrown away")
    assert not cluster.job(job)["kept"]
    gate.touch()
    wait_kept(cluster, job, "ann/torn@1")
    look = "tr -d $(head -c 1 /d/model) </d/model | wc -c; wc -c </d/model"
    said = cluster.says("ann", look, data={"torn": "/d"})
    assert said.split() == ["0", str(30 << 20)]
    (cluster.seen / "end").touch()
    cluster.wait_for(job, "succeeded")


def test_outputs_and_checkpoints_go_to_an_object_store(cluster: OnNodes) -> None:
    log_in(cluster, "ann")
    with a_store(Rclone, cluster.state.parent / "rclone") as store:
        create(cluster, store.endpoint, "far")
        create(cluster, store.endpoint, "outputs")
        script = (
            f"{RESUMES} mkdir -p c1/deep; echo part >c1/deep/of-0; report c1 1; "
            f"{gated(cluster.seen / 'far')}; rm -r c1; exit 3"
        )
        job = training(cluster, "far", script, retry=1)
        wait_kept(cluster, job, "ann/far@1")
        kept = cluster.state / f"engines/gpus/pilot/checkpoints/{job}"
        subprocess.run(["rm", "-r", kept], check=True)
        (cluster.seen / "far").touch()
        cluster.wait_for(job, "succeeded", "failed")
        assert "part" in cluster.output(job), cluster.job(job)
        job = saving(cluster, "outputs", f"echo 1 >a; {IN_PARTS} >large")
        assert saved(cluster, job) == "ann/outputs@1"
        found = store.folder / "objects" / BUCKET / "outputs"
        (large,) = found.glob("*/large")
        assert large.stat().st_size == 80 << 20
        assert set(large.read_bytes()) == {ord("y")}
