"""Jobs that bring images, on nodes that pilots hold: each fetches into a store of its own.

The nodes see neither the service's folder nor its users' homes, so what they are to know of a
registry comes with the job.
"""

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.slurm.test_data_on_pilots import WithData
from tests.integration.slurm.test_own_disks import with_own_disks
from tests.support.cluster import until
from tests.support.credential_helpers import SAYS, configure, install
from tests.support.on_pilots import runners
from tests.support.on_slurm import shell
from tests.support.registry import (
    PASSWORD,
    USERS,
    Registry,
    a_file,
    a_registry,
    busybox,
    layer,
    login,
)
from tests.support.scripted import Scripted, a_scripted_registry
from tests.support.slurm import TOOLS, Slurm

pytestmark = [
    pytest.mark.needs_root,
    pytest.mark.needs_tool(
        *TOOLS, "openssl", "unshare", "docker-registry", "htpasswd", "busybox"
    ),
    pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning"),
]

CONFIG = """\
engines:
  gpus: {{type: pilot, partition: main, folder: {disk}/pilots}}
nodes:
- {{names: [n1, n2], cpu: 4, memory: 2000MiB, disk: 1TiB, gpu: {{type: a100, count: 4}}}}
tenants:
  ann: {{users: [ann, root]}}
  ben: {{users: [ben, root]}}
visibility: private
limits: {{backoff: {{first: 100ms, most: 200ms}}, platform_retries: 1}}
"""


class OnNodes(WithData):
    """A service whose users have homes, and that sees no disk of its nodes."""

    disk: Path

    def says(self, image: str, script: str, user: str, **more: Any) -> str:  # pyright: ignore
        """Run a job to its good end; give what it wrote."""
        job = self.submitted(image, script, user, **more)
        self.wait_for(job, "succeeded", "failed", "cancelled")
        assert self.state_of(job) == "succeeded", self.job(job)
        return self.output(job)

    def phases(self, job: int) -> list[str]:
        return [each["name"] for each in self.job(job)["attempts"][-1]["tasks"][0]["phases"]]

    def stores(self, node: str) -> list[Path]:
        """Return where a node has images."""
        return list(self.slurm.seen_by(node, self.disk).glob("pilots/*/images"))


@pytest.fixture(scope="module")
def service() -> Iterator[OnNodes]:
    def made(ours: Path, disk: Path, slurm: Slurm) -> OnNodes:
        running = OnNodes(ours / "state", slurm, CONFIG.format(disk=disk))
        running.disk = disk
        return running

    with with_own_disks(made) as running:
        yield running


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[Registry]:
    with a_registry(tmp_path / "registry") as made:
        yield made


@pytest.fixture
def private(tmp_path: Path) -> Iterator[Registry]:
    with a_registry(tmp_path / "registry", users=["ann"]) as made:
        yield made


@pytest.fixture
def scripted() -> Iterator[Scripted]:
    with a_scripted_registry() as made:
        yield made


def on_each(**more: Any) -> dict[str, Any]:
    """Describe a gang of a task on each of the two nodes."""
    return {"count": 2, "resources": {"gpu": 4}, **more}


def test_a_job_goes_to_the_node_that_has_its_image(
    cluster: OnNodes, registry: Registry
) -> None:
    registry.push("there", [busybox(), layer(a_file("srv/note", "there\n"))])
    image, one = f"{registry.host}/there:1", {"resources": {"gpu": 1}}
    filling = cluster.submit(shell("sleep 1000", tenant="ann", resources={"gpu": 4}))
    cluster.wait_for(filling, "running")
    (first,) = nodes_of(cluster, filling)
    fetched = cluster.submitted(image, f"cat /srv/note; {until_told()}", "ann", **one)
    cluster.wait_for(fetched, "running")
    (second,) = nodes_of(cluster, fetched)
    assert second != first
    until(lambda: is_seen(cluster, image), "the service to hear which node has it")
    cluster.allot("exec", str(fetched), "--", "sh", "-c", "touch $TMPDIR/go")
    cluster.wait_for(fetched, "succeeded")
    cluster.allot("cancel", str(filling))
    cluster.wait_for(filling, "cancelled")
    again = cluster.submitted(image, "cat /srv/note", "ann", **one)
    cluster.wait_for(again, "succeeded")
    assert nodes_of(cluster, again) == {second}
    assert cluster.job(again)["attempts"][-1]["with_image"] == 1
    plain = cluster.submit(shell("true", tenant="ann"))
    cluster.wait_for(plain, "succeeded")
    assert nodes_of(cluster, plain) == {first}


def is_seen(cluster: OnNodes, image: str) -> bool:
    """Whether an event says that some node has an image."""
    told = cluster.get("/v1/events?limit=1000")
    return any(f"image {image}" in event["text"] for event in told)


def nodes_of(cluster: OnNodes, job: int) -> set[str]:
    return {task["node"] for task in cluster.job(job)["attempts"][-1]["tasks"]}


def test_a_gang_runs_in_its_image_on_both_nodes(cluster: OnNodes, registry: Registry) -> None:
    exact = registry.push("bb", [busybox(), layer(a_file("srv/note", "from above\n"))])
    script = """
    echo $RANK uid=$(id -u) name=$(id -un) $(cat /srv/note)
    test -e /usr/bin/python3 || echo no-host; echo out-$RANK > $ALLOT_OUTPUT_DIR/made-$RANK
    """
    job = cluster.submitted(f"{registry.host}/bb:1", script, "ann", **on_each())
    cluster.wait_for(job, "succeeded", "failed")
    view = cluster.job(job)
    assert view["row"]["state"] == "succeeded", view
    said = cluster.output(job)
    for rank in (0, 1):
        assert f"{rank} uid={USERS['ann']} name=ann" in said
        assert "from above" in said
        assert "no-host" in said
    assert view["spec"]["image"] == f"{registry.host}/bb:1@{exact}"
    assert {"pull", "unpack"} <= set(cluster.phases(job))
    assert all(cluster.stores(node) for node in ("n1", "n2"))
    assert not list(cluster.state.glob("images/layers/*")), "the service's disk was used"
    again = cluster.submitted(f"{registry.host}/bb:1", "true", "ann")
    cluster.wait_for(again, "succeeded")
    assert "pull" not in cluster.phases(again)


def test_a_task_in_an_image_has_its_devices_and_can_be_entered(
    cluster: OnNodes, registry: Registry
) -> None:
    registry.push("bb", [busybox()])
    script = f"ls {cluster.slurm.devices}; {until_told()}"
    job = cluster.submitted(f"{registry.host}/bb:1", script, "ben", resources={"gpu": 2})
    cluster.wait_for(job, "running")
    until(lambda: "gpu" in cluster.output(job), "the job to list its devices")
    assert len(cluster.output(job).split()) == 2
    inside = "cat /etc/system; touch $TMPDIR/go; test -e /usr/bin/python3 || echo no-host"
    done = cluster.allot("exec", str(job), "--", "sh", "-c", inside)
    assert done.stdout.splitlines() == ["busybox", "no-host"], done.stderr
    cluster.wait_for(job, "succeeded")


def until_told() -> str:
    return "while ! test -e $TMPDIR/go; do sleep 0.1; done"


def test_a_private_image_comes_with_a_password_that_nobody_else_sees(
    cluster: OnNodes, private: Registry
) -> None:
    private.push("model", [busybox(), layer(a_file("secret", "the weights\n"))])
    name = f"{private.host}/model:1"
    assert "you have no login" in cluster.refused(name, "ann")
    cluster.log_in("ann", private)
    script = f"cat /secret; {until_told()}"
    job = cluster.submitted(name, script, "ann", **on_each())
    cluster.wait_for(job, "running")
    secrets = [PASSWORD.encode(), login("ann").encode()]
    for entry in Path("/proc").iterdir():
        for kind in ("cmdline", "environ"):
            text = read(entry / kind) if entry.name.isdecimal() else b""
            assert not any(secret in text for secret in secrets), entry
    for node in ("n1", "n2"):
        assert written_in(cluster.slurm.seen_by(node, cluster.disk), secrets) == []
    assert written_in(cluster.state, secrets) == []
    assert "may not read" in cluster.refused(name, "ben")
    assert in_use(cluster, "ann", name) == [True]
    assert in_use(cluster, "ben", name) == []
    for task in ("0", "1"):
        cluster.allot("exec", str(job), "--task", task, "--", "sh", "-c", "touch $TMPDIR/go")
    cluster.wait_for(job, "succeeded")
    assert cluster.output(job).count("the weights") == 2


def test_nodes_get_what_a_helper_says_and_what_the_image_runs(
    cluster: OnNodes, private: Registry
) -> None:
    own = {"Entrypoint": ["/bin/sh", "-c"], "Cmd": ["cat /secret"]}
    top = layer(a_file("secret", "the weights\n"))
    private.push("entry", [busybox(), top], config=own)
    home = cluster.home("ben")
    configure(home, credsStore="vault")
    install(home, "vault", SAYS)
    spec = {"name": "x", "image": f"{private.host}/entry:1", "tenant": "ben", **on_each()}
    status, made = cluster.ask_as("ben", "POST", "/v1/jobs", spec)
    assert status == 201, made
    cluster.wait_for(made["id"], "succeeded", "failed")
    assert cluster.output(made["id"]).count("the weights") == 2


def in_use(cluster: OnNodes, user: str, name: str) -> list[bool]:
    """Return of the images of a name that a user is shown whether they are in use."""
    status, rows = cluster.ask_as(user, "GET", "/v1/images")
    assert status == 200
    return [row["in_use"] for row in rows or () if row["image"].startswith(name)]


def read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def written_in(folder: Path, secrets: list[bytes]) -> list[Path]:
    """Return the files in a folder that have a secret in them."""
    files = [path for path in folder.rglob("*") if path.is_file() and not path.is_symlink()]
    assert files
    return [path for path in files if any(secret in read(path) for secret in secrets)]


def test_images_are_fetched_ahead_listed_and_removed_on_all_nodes(
    cluster: OnNodes, registry: Registry
) -> None:
    registry.push("ahead", [busybox(), layer(a_file("n", "ahead"))])
    name = f"{registry.host}/ahead:1"
    done = cluster.allot("image", "pull", name)
    assert done.returncode == 0, done.stderr
    until(lambda: cluster.get(f"/v1/images:inspect?image={name}")["is_here"], "it on all nodes")
    assert name in cluster.allot("image", "ls").stdout
    job = cluster.submitted(name, "cat /n", "ann", **on_each())
    cluster.wait_for(job, "succeeded")
    assert "pull" not in cluster.phases(job)
    assert cluster.allot("image", "rm", name).returncode == 0
    assert name not in cluster.allot("image", "ls").stdout
    again = cluster.allot("image", "rm", name)
    assert again.returncode != 0
    assert "is not in the store" in again.stderr


def test_a_job_is_cancelled_while_its_image_comes(cluster: OnNodes, scripted: Scripted) -> None:
    scripted.image("slow", busybox())
    scripted.pause.clear()
    job = cluster.submitted(f"{scripted.host}/slow:1", "true", "ann")
    until(lambda: blob_asked(scripted), "a layer to come")
    cluster.ask("POST", f"/v1/jobs/{job}:cancel", {})
    cluster.wait_for(job, "cancelled")


def blob_asked(registry: Scripted) -> bool:
    return sum("GET" in line and "/blobs/" in line for line in registry.asked) >= 2


def test_a_service_that_is_killed_while_an_image_comes_finds_it_coming(
    cluster: OnNodes, scripted: Scripted
) -> None:
    scripted.image("slow", busybox())
    scripted.pause.clear()
    job = cluster.submitted(f"{scripted.host}/slow:1", "cat /etc/system", "ann")
    until(lambda: blob_asked(scripted), "a layer to come")
    cluster.kill()
    cluster.up()
    cluster.until_held()
    scripted.pause.set()
    cluster.wait_for(job, "succeeded")
    assert len(cluster.job(job)["attempts"]) == 1
    assert "busybox" in cluster.output(job)


def test_a_runner_that_is_killed_while_an_image_comes_costs_an_attempt(
    cluster: OnNodes, scripted: Scripted
) -> None:
    scripted.image("slow", busybox())
    scripted.pause.clear()
    job = cluster.submitted(f"{scripted.host}/slow:1", "cat /etc/system", "ann")
    until(lambda: blob_asked(scripted), "a layer to come")
    for pid in runners(cluster.disk):
        os.kill(pid, signal.SIGKILL)
    scripted.pause.set()
    cluster.wait_for(job, "succeeded", "failed")
    first, *rest = cluster.job(job)["attempts"]
    assert "its runner ended while its image was fetched" in json.dumps(first), first
    assert len(rest) == 1
    assert "busybox" in cluster.output(job)


def test_what_keeps_an_image_from_a_node_is_told(cluster: OnNodes, scripted: Scripted) -> None:
    scripted.image("bad", busybox(), diff_ids=("sha256:" + "0" * 64,))
    job = cluster.submitted(f"{scripted.host}/bad:1", "true", "ann")
    cluster.wait_for(job, "failed")
    why = cluster.job(job)["attempts"][-1]["diagnosis"] or cluster.job(job)["diagnosis"]
    assert why["code"] == "image_broken"
    told = json.loads(cluster.allot("doctor", "--json").stdout)
    assert not any("jobs with an image" in each["text"] for each in told)
