"""Code and datasets on nodes with disks of their own: sent once, and seen by whom they may be.

Neither the service's folder nor its users' homes are on the nodes.
"""

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest

from tests.integration.service.test_data import as_user
from tests.integration.service.test_store_checkpoints import create
from tests.integration.slurm.test_data_on_pilots import ENDED, SMALL, WithData
from tests.integration.slurm.test_own_disks import CONFIG as OF_A_USER
from tests.integration.slurm.test_own_disks import NOBODY, a_folder, with_own_disks
from tests.support.cluster import until
from tests.support.exchange import owned, written
from tests.support.object_stores import Rclone, a_store, log_in
from tests.support.on_pilots import OfAUser, runners
from tests.support.patience import PATIENCE_S
from tests.support.registry import USERS
from tests.support.slurm import TOOLS, Slurm

pytestmark = [
    pytest.mark.needs_root,
    pytest.mark.needs_tool(*TOOLS, "openssl", "unshare", "git"),
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
limits: {{backoff: {{first: 100ms, most: 200ms}}, platform_retries: 2, data_cache: 300MiB}}
"""
BOTH = {"count": 2, "resources": {"gpu": 4}}


class OnNodes(WithData):
    """A service of several users, that sees no disk of its nodes."""

    disk: Path
    seen: Path
    """A folder that both see."""

    def submitted(self, user: str, script: str, **more: Any) -> int:  # pyright: ignore
        spec = {"name": "t", "tenant": user, "command": script, "resources": SMALL, **more}
        status, answer = self.ask_as(user, "POST", "/v1/jobs", spec)
        assert status == 201, answer
        return answer["id"]

    def put(self, user: str, name: str, files: dict[str, str]) -> None:
        """Close a version of files, in a dataset that is made if need be."""
        folder = owned(self.home(user) / f"set-{os.urandom(4).hex()}", USERS[user], 0o755)
        for path, text in files.items():
            written(folder / path, text, USERS[user], 0o644)
        if not any(each["name"] == name for each in self.get("/v1/data")["datasets"]):
            as_user(self, user, "create", name)
        as_user(self, user, "put", name, str(folder))

    def kept(self, below: str) -> list[Path]:
        """Return what the nodes keep below a folder."""
        return [
            path
            for node in ("n1", "n2")
            for path in self.slurm.seen_by(node, self.disk).glob(f"pilots/*/{below}")
        ]

    def age(self) -> None:
        """Have what the nodes keep of data be used long ago."""
        for each in self.kept("data/*/trees/*"):
            os.utime(each, (1000, 1000))

    def project(self, user: str, **files: str) -> Path:
        """Write files of a user's project."""
        folder = self.home(user) / "project"
        if not folder.exists():
            owned(folder, USERS[user], 0o755)
        for name, text in files.items():
            written(folder / name, text, USERS[user], 0o755)
        return folder

    def takes(self, user: str, *words: str) -> str:
        """Run a command with the project's code to its good end; return what it wrote."""
        small = ("--cpus", "0.1", "--memory", "64MiB", "--tenant", user)
        ran = self.allot(
            "run", "-q", "--code", ".", *small, "--", *words,
            user=user, cwd=self.home(user) / "project",
        )  # fmt: skip
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    def last(self) -> int:
        return max(row["id"] for row in self.get("/v1/jobs")["items"])

    def phases(self, job: int) -> list[str]:
        return [each["name"] for each in self.job(job)["attempts"][-1]["tasks"][0]["phases"]]


N = TypeVar("N", bound=OnNodes)


@contextmanager
def on_nodes(
    config: str, kind: type[N], begin: Callable[[N], object] = lambda _: None
) -> Iterator[N]:
    """Run a service of several users, that sees no disk of its nodes. `begin` is done first."""

    def made(ours: Path, disk: Path, slurm: Slurm) -> N:
        running = kind(ours / "state", slurm, config.format(disk=disk))
        running.disk, running.seen = disk, seen
        running.make_homes()
        begin(running)
        return running

    with a_folder("seen") as seen, with_own_disks(made) as running:
        yield running


@pytest.fixture(scope="module")
def service() -> Iterator[OnNodes]:
    with on_nodes(CONFIG, OnNodes) as running:
        yield running


# ── datasets ────────────────────────────────────────────────────────────────────────────


def test_data_come_to_each_node_once_and_stay_as_they_are(cluster: OnNodes) -> None:
    cluster.put("ann", "words", {"a": "one\n", "b": "two\n"})
    look = "cat /data/w/a /data/w/b; touch /data/w/c && exit 1; echo x >/data/w/a && exit 1; "
    said = cluster.says("ann", f"{look} true", data={"words": "/data/w"}, **BOTH)
    assert said.count("one") == said.count("two") == 2
    assert "data" in cluster.phases(cluster.last())
    first = {path: path.stat().st_ino for path in cluster.kept("data/*/trees/*/a")}
    assert len(first) == 2, "it is on both nodes"
    again = cluster.says("ann", f"{look} ls -ln /data/w/a", data={"words": "/data/w"}, **BOTH)
    assert again.count("-r--r--r-- 2 0 0") == 2
    assert {path: path.stat().st_ino for path in first} == first
    assert not Path("/data/w").exists()
    cluster.put("ann", "words", {"a": "one\n", "b": "new\n"})
    newest = cluster.says("ann", "cat /data/w/b", data={"words": "/data/w"}, **BOTH)
    assert newest.count("new") == 2
    assert {path.stat().st_nlink for path in first} == {3}, "what is in both came once"
    older = cluster.says("ann", "cat /data/w/b", data={"words@1": "/data/w"})
    assert "two" in older


def test_who_has_no_grant_finds_nothing_on_a_node(cluster: OnNodes) -> None:
    cluster.put("ann", "secret", {"a": "only-for-ann\n"})
    gate = cluster.seen / "over"
    script = f"cat /data/s/a; until [ -e {gate} ]; do sleep 0.1; done"
    job = cluster.submitted("ann", script, data={"secret": "/data/s"}, count=2,
                            resources={"gpu": 1})  # fmt: skip
    cluster.wait_for(job, "running")
    spec = {"name": "t", "tenant": "ben", "command": "true", "data": {"ann/secret": "/d"}}
    status, refused = cluster.ask_as("ben", "POST", "/v1/jobs", spec)
    assert (status, refused["code"]) == (404, "data_missing")
    (tree, *_) = cluster.kept("data/*/trees/*")
    below = str(tree).partition("/root")[2]
    assert below.startswith(str(cluster.disk))
    look = (
        f"id -u; ls -d {below} {below}/a; ls {Path(below).parents[2]}; cat {below}/a; "
        f"grep -rsa 'onl[y]-for-ann' {cluster.disk} /data; ls /data; "
        "cat /proc/[0-9]*/environ /proc/[0-9]*/mountinfo 2>/dev/null | grep -c 'secre[t]'; true"
    )
    said = cluster.says("ben", look, count=2, resources={"gpu": 1})
    assert said.count(str(USERS["ben"])) == 2
    assert "only-for-ann" not in said
    as_user(cluster, "ann", "grant", "secret", "user:ben")
    read = cluster.says("ben", "cat /d/a", data={"ann/secret": "/d"})
    assert "only-for-ann" in read
    gate.touch()
    cluster.wait_for(job, "succeeded")


def test_a_grant_that_is_taken_back_starts_no_more(cluster: OnNodes) -> None:
    cluster.put("ann", "lent", {"a": "lent\n"})
    as_user(cluster, "ann", "grant", "lent", "user:ben")
    assert "lent" in cluster.says("ben", "cat /d/a", data={"ann/lent": "/d"}, **BOTH)
    filling = cluster.submitted("ann", "sleep 1000", **BOTH)
    cluster.wait_for(filling, "running")
    job = cluster.submitted("ben", "cat /d/a", data={"ann/lent": "/d"}, resources={"gpu": 1})
    as_user(cluster, "ann", "revoke", "lent", "user:ben")
    cluster.allot("cancel", str(filling))
    cluster.wait_for(job, *ENDED)
    assert cluster.job(job)["diagnosis"]["code"] == "data_missing"
    assert "lent" not in cluster.output(job)


def test_a_version_that_no_node_may_keep_is_refused_and_old_ones_go(cluster: OnNodes) -> None:
    large = "x" * (110 << 20)
    names = ["one", "two", "three"]
    for name in names:
        cluster.put("ann", name, {name: large})
    for name in names[:2]:
        cluster.says("ann", "true", data={name: "/d"}, **BOTH)
    for each in cluster.kept("data/*/trees/*"):
        os.utime(each, (1, 1) if (each / "one").exists() else (1000, 1000))
    cluster.says("ann", "true", data={"three": "/d"}, **BOTH)
    left = {path.name for path in cluster.kept("data/*/trees/*/*")}
    assert {"two", "three"} <= left
    assert "one" not in left
    every = {name: f"/d/{name}" for name in names}
    job = cluster.submitted("ann", "true", data=every)
    cluster.wait_for(job, *ENDED)
    told = cluster.job(job)["diagnosis"]
    assert told["code"] == "data_too_large", told
    assert "330 MiB; a node keeps 300 MiB" in told["cause"]


def test_a_runner_that_is_killed_while_data_come_takes_the_rest_later(
    cluster: OnNodes,
) -> None:
    small = {f"small-{number}": str(number) for number in range(50)}
    cluster.put("ann", "much", {**small, "large": "y" * (200 << 20)})
    cluster.age()
    job = cluster.submitted("ann", "ls /d | wc -l; tail -c 1 /d/large", data={"much": "/d"})
    wait_for_the_middle(cluster, job)
    for pid in runners(cluster.disk):
        os.kill(pid, signal.SIGKILL)
    cluster.wait_for(job, *ENDED)
    assert cluster.output(job).split() == ["51", "y"], cluster.job(job)
    until(lambda: not cluster.kept("data/new/*"), "nothing half-made to stay")


def test_a_service_that_is_killed_while_data_go_sends_the_rest_later(
    cluster: OnNodes,
) -> None:
    cluster.put("ann", "more", {"small": "s", "large": "v" * (200 << 20)})
    cluster.age()
    job = cluster.submitted("ann", "ls /d; tail -c 1 /d/large", data={"more": "/d"})
    wait_for_the_middle(cluster, job)
    cluster.kill()
    cluster.up()
    cluster.wait_for(job, *ENDED)
    assert cluster.output(job).split() == ["large", "small", "v"], cluster.job(job)
    until(lambda: not cluster.kept("data/new/*"), "nothing half-made to stay")


def wait_for_the_middle(cluster: OnNodes, job: int) -> None:
    """Wait until data are on their way to a node: that does not take long."""
    folders = cluster.kept("data/new")
    end = time.monotonic() + PATIENCE_S
    while not any(size_of(each) for folder in folders for each in folder.iterdir()):
        assert time.monotonic() < end, cluster.job(job)["attempts"]


def size_of(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def test_a_cancelled_job_takes_no_more_of_its_data(cluster: OnNodes) -> None:
    cluster.put("ann", "huge", {"large": "z" * (250 << 20)})
    cluster.age()
    job = cluster.submitted("ann", "true", data={"huge": "/d"})
    wait_for_the_middle(cluster, job)
    cluster.allot("cancel", str(job))
    cluster.wait_for(job, "cancelled")
    until(lambda: not cluster.kept("data/new/*"), "what is not whole to go")
    assert 250 << 20 not in map(size_of, cluster.kept("data/*/trees/*/large"))


def test_what_is_in_a_store_comes_to_the_nodes(cluster: OnNodes) -> None:
    log_in(cluster, "ann")
    with a_store(Rclone, cluster.state.parent / "rclone") as store:
        store.put({"bert/a": "one", "bert/deep/b": "two"})
        create(cluster, store.endpoint, "bert")
        said = cluster.says("ann", "cat /d/a /d/deep/b; echo", data={"bert": "/d"}, **BOTH)
    assert said.count("onetwo") == 2


def test_a_registered_folder_is_that_of_the_node(cluster: OnNodes) -> None:
    for place in (cluster.seen / "nfs", cluster.state.parent / "elsewhere"):
        owned(place, USERS["ann"], 0o755)
        (place / "a").write_text("by-nfs\n")
        made = cluster.allot(
            "data", "create", place.name, "--folder", str(place), "--tenant", "ann"
        )
        assert made.returncode == 0, made.stderr
    use = {"nfs": {"at": "/d", "write": True}}
    cluster.allot("data", "grant", "ann/nfs", "user:ann", "--write")
    assert "by-nfs" in cluster.says("ann", "cat /d/a; echo new >/d/b", data=use)
    assert (cluster.seen / "nfs/b").read_text() == "new\n"
    job = cluster.submitted("ann", "ls /d", data={"elsewhere": "/d"})
    cluster.wait_for(job, *ENDED)
    assert cluster.state_of(job) == "failed"
    diagnosis = cluster.job(job)["attempts"][-1]["diagnosis"]
    assert diagnosis["code"] == "folder_away"
    assert "/elsewhere on " in diagnosis["evidence"]


# ── code ────────────────────────────────────────────────────────────────────────────────


def test_code_comes_to_a_node_and_is_its_users(cluster: OnNodes) -> None:
    run = (
        "#!/bin/sh\nid -u; stat -c '%u %a' . run; cat a.py; echo $ALLOT_CODE_DIR; echo >made\n"
    )
    cluster.project("ann", **{"a.py": "first\n", "run": run})
    uid = USERS["ann"]
    said = cluster.takes("ann", "./run").splitlines()
    assert said[:4] == [str(uid), f"{uid} 755", f"{uid} 755", "first"]
    assert said[4].startswith(f"{cluster.disk}/pilots/")
    first = cluster.last()
    assert "code" in cluster.phases(first)
    assert cluster.job(first)["attempts"][0]["tasks"][0]["node"] in ("n1", "n2")
    cluster.project("ann", **{"a.py": "second\n"})
    cloned = cluster.allot("clone", str(first), user="ann", cwd=cluster.home("ann"))
    assert cloned.returncode == 0, cloned.stderr
    cluster.wait_for(cluster.last(), "succeeded")
    assert "first" in cluster.output(cluster.last()), "a clone runs the same code"
    assert "second" in cluster.takes("ann", "./run")
    project = cluster.home("ann") / "project"
    newer = cluster.allot("clone", str(first), "--code", ".", user="ann", cwd=project)
    assert newer.returncode == 0, newer.stderr
    cluster.wait_for(cluster.last(), "succeeded")
    assert "second" in cluster.output(cluster.last())


def test_nobody_else_finds_code_on_a_node(cluster: OnNodes) -> None:
    cluster.project("ann", **{"a.py": "secret-of-ann\n"})
    cluster.project("ben", **{"b.py": "\n"})
    for _ in range(2):
        cluster.takes("ann", "true")
    job = cluster.last()
    look = (
        f"cd {cluster.disk}/pilots/*/ || cd {cluster.disk}; "
        f"ls code working/{job} 2>&1; grep -rs 'secret-o[f]-ann' {cluster.disk}; true"
    )
    said = cluster.takes("ben", "sh", "-c", look)
    assert "secret-of-ann" not in said
    assert "a.py" not in said


def test_an_attempt_begins_with_fresh_code_on_each_node(cluster: OnNodes) -> None:
    script = "cat a.py; echo spoiled >a.py; [ $ALLOT_ATTEMPT = 2 ] || exit 3\n"
    cluster.project("ann", **{"a.py": "fresh\n", "go": script})
    job = taken(cluster, "ann", "sh ./go", retry=1, **BOTH)
    cluster.wait_for(job, "succeeded")
    said = cluster.output(job)
    assert said.count("fresh") == 2, said
    assert "spoiled" not in said


def taken(cluster: OnNodes, user: str, command: str, **more: Any) -> int:
    """Submit a job that takes the project along."""
    spec = {"name": "t", "tenant": user, "command": command, "resources": SMALL,
            "code": {"take": "."}, **more}  # fmt: skip
    project = cluster.home(user) / "project"
    written(project / "job.yaml", json.dumps(spec), USERS[user], 0o644)
    done = cluster.allot("submit", "job.yaml", "--json", user=user, cwd=project)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["id"]


# ── without root ────────────────────────────────────────────────────────────────────────


class OfAUserAlone(OfAUser):
    """A service of an ordinary user, that sees no disk of its nodes."""

    disk: Path
    project: Path

    def up(self) -> None:
        self.until_up(self.allot("up", "--config", str(self.config)))


@pytest.mark.needs_tool("bwrap")
def test_pilots_of_a_user_get_code_and_data_and_give_outputs_too() -> None:
    def made(ours: Path, disk: Path, slurm: Slurm) -> OfAUserAlone:
        for node in ("n1", "n2"):
            slurm.seen_by(node, disk).chmod(0o1777)
        running = OfAUserAlone(ours / "state", slurm, OF_A_USER.format(disk=disk))
        running.disk, running.project = disk, owned(ours / "project", NOBODY)
        written(running.project / "a", "in-code\n", NOBODY)
        return running

    with with_own_disks(made) as running:
        running.until_held()
        project = str(running.project)
        for words in (("create", "words"), ("put", "words", project)):
            done = running.allot("data", *words)
            assert done.returncode == 0, done.stderr
        assert running.allot("data", "create", "results").returncode == 0
        script = (
            "cat a /data/w/a; pwd; id -u; echo x >a; echo x >/data/w/a || echo read-only; "
            "echo of-a-user >$ALLOT_OUTPUT_DIR/a"
        )
        small = (
            "--cpus",
            "0.1",
            "--memory",
            "64MiB",
            "--data",
            "words=/data/w",
            "--save",
            "results",
        )
        words = ("run", "-q", "--code", project, *small, "--", "sh", "-c", script)
        ran = running.allot(*words)
        assert ran.returncode == 0, ran.stderr
        said = ran.stdout.splitlines()
        assert said[:2] == ["in-code", "in-code"]
        assert said[2].startswith(f"{running.disk}/pilots/")
        assert said[3:] == [str(NOBODY), "read-only"]
        until(lambda: bool(running.job(1)["saved"]), "its outputs to be saved")
        got = running.allot("data", "get", "results", str(running.state / "got"))
        assert got.returncode == 0, got.stderr
        assert (running.state / "got/a").read_text() == "of-a-user\n"
