"""Environments and datasets in pods, on a real Kubernetes whose nodes see the service's disk.

Environments are on the nodes' own path, datasets on a claim: both ways there are.
"""

import json
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from pwd import getpwnam
from typing import Any, cast

import pytest

from tests.integration.api.test_guard import as_user as asked_as
from tests.support.image_mpi import archive_of
from tests.support.image_python import host_python
from tests.support.kubernetes import IMAGE as BUSYBOX
from tests.support.kubernetes import MARKS, NAMESPACE, Kubernetes
from tests.support.on_kubernetes import OVER, OnKubernetes
from tests.support.on_slurm import as_user
from tests.support.package_index import a_package_index
from tests.support.python_mirror import HERE, Mirror
from tests.support.registry import Asking, busybox

pytestmark = MARKS

IMAGE = "localhost/libc:1"
CLAIM = "allot-data"
ANN, BEN = "nobody", "games"
TENANTS = f"tenants: {{ann: {{users: [{ANN}, root]}}, ben: {{users: [{BEN}, root]}}}}"


class Sharing(OnKubernetes):
    """A service of several users, which shows pods parts of its folder."""

    def ask_as(self, user: str, spec: dict[str, Any]) -> tuple[int, Any]:
        asking = cast("Any", Asking(self))
        answer = asked_as(getpwnam(user).pw_uid, asking, "POST", "/v1/jobs", spec)
        return answer.status, json.loads(answer.body)

    def ended(self, user: str, command: str, **more: Any) -> int:
        """Run a job of a user to its end."""
        spec = {"name": "t", "tenant": {ANN: "ann", BEN: "ben"}[user], "command": command,
                "resources": {"cpu": 0.1, "memory": "64MiB"}, **more}  # fmt: skip
        status, answer = self.ask_as(user, spec)
        assert status == 201, answer
        self.wait_for(answer["id"], *OVER)
        return answer["id"]

    def says(self, user: str, command: str, **more: Any) -> str:
        """Run a job of a user to its good end; return what it wrote."""
        job = self.ended(user, command, **more)
        said = self.output(job)
        assert self.state_of(job) == "succeeded", (str(self.job(job)["diagnosis"]), said)
        return said


@pytest.fixture(scope="module")
def sharing(
    kubernetes: Kubernetes, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Sharing]:
    folder = Path(tempfile.mkdtemp(prefix="allot-test-", dir="/var/tmp"))
    folder.chmod(0o755)
    state = folder / "state"
    for each in (state, state / "data"):
        each.mkdir()
    archive = tmp_path_factory.mktemp("image") / "image.tar"
    archive.write_bytes(archive_of(IMAGE, [busybox(), host_python()[0]]))
    for node in kubernetes.nodes:
        assert kubernetes.ctr(node, "images", "import", str(archive)) is not None
    for each in claimed(state / "data"):
        kubernetes.apply(each)
    mirror = Mirror(folder / "pythons")
    mirror.add(98)
    shared = (
        f", shared: {{{state}/environments: host, {state}/data: {CLAIM}, "
        f"{state}/working: host, {folder}/nfs: host}}"
    )
    with pytest.MonkeyPatch.context() as patch, a_package_index(folder / "home") as index:
        patch.setenv("HOME", str(folder / "home"))
        index.wheel("framework", "1.0", "version = '1.0'\n")
        made = Sharing(state, kubernetes, shared)
        text = made.config.read_text().replace(BUSYBOX, IMAGE)
        text = text.replace("tenants: {lab: {}}", TENANTS)
        made.config.write_text(f"{text}pythons: {mirror.list.as_uri()}\nvisibility: private\n")
        made.up()
        try:
            yield made
        finally:
            made.down()
            kubernetes.clear()
            shutil.rmtree(folder, ignore_errors=True)


def claimed(path: Path) -> Iterator[dict[str, Any]]:
    """Describe a claim of a folder that all nodes see."""
    size = {"storage": "1Gi"}
    common = {"accessModes": ["ReadWriteMany"], "storageClassName": ""}
    yield {
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": CLAIM},
        "spec": {**common, "capacity": size, "hostPath": {"path": str(path)},
                 "persistentVolumeReclaimPolicy": "Retain",
                 "claimRef": {"namespace": NAMESPACE, "name": CLAIM}},
    }  # fmt: skip
    yield {
        "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": {"name": CLAIM, "namespace": NAMESPACE},
        "spec": {**common, "resources": {"requests": size}, "volumeName": CLAIM},
    }  # fmt: skip


VERSION = "python -c 'import sys, framework; print(framework.version, sys.base_prefix)'"
ASKED = {"requirements": ["framework"], "python": f"{HERE}.98"}


def test_a_pod_runs_packages_with_a_python_that_comes_along(sharing: Sharing) -> None:
    made = sharing.state / "environments"
    for user in (ANN, BEN):
        said = sharing.says(user, f"{VERSION}; echo $VIRTUAL_ENV", environment=ASKED)
        assert said.startswith(f"1.0 {made}/pythons/"), said
    (where,) = (made / "made").iterdir()
    assert str(where) in said
    phases = sharing.job(1)["attempts"][-1]["tasks"][0]["phases"]
    assert [phase["name"] for phase in phases] == ["environment"]
    spoil = (
        f"id -u; echo x >{where}/pyvenv.cfg; rm -rf {where}/lib; mv {where} {where}.x; "
        f"ls {made} {made}/made; ls {made}/new {made}/known {made}/uv; true"
    )
    said = sharing.says(BEN, spoil, environment=ASKED)
    assert str(getpwnam(BEN).pw_uid) in said.split(), "errors may come before it"
    assert "known" not in said.replace(f"{made}/known", ""), (
        "more is mounted than what it may use"
    )
    assert "1.0" in sharing.says(ANN, VERSION, environment=ASKED)


def test_an_image_that_cannot_run_it_is_told_so(sharing: Sharing) -> None:
    job = sharing.ended(ANN, "echo began", environment=ASKED, image=BUSYBOX)
    assert sharing.state_of(job) == "failed"
    said = sharing.output(job)
    assert "this image cannot run the Python of the environment" in said, said
    assert "began" not in said
    assert sharing.job(job)["diagnosis"]["code"] == "environment_unfit"


def test_data_are_in_the_pods_of_those_with_a_grant_alone(sharing: Sharing) -> None:
    words = sharing.state.parent / "words"
    words.write_text("only-for-ann\n")
    as_user(ANN, sharing, "data", "create", "words")
    put = as_user(ANN, sharing, "data", "put", "words", str(words))
    assert put.returncode == 0, put.stderr
    file = sharing.state.parent / "job.yaml"
    file.write_text("name: t\ntenant: ann\ncommand: 'true'\ndata: {words: /data/w}\n")
    planned = as_user(ANN, sharing, "submit", "--dry-run", str(file))
    assert "mounted at /data/w, read-only" in planned.stdout + planned.stderr, planned
    own = "cat /data/w/words $ALLOT_DATA_DIR/words; echo x >/data/w/words || echo read-only"
    said = sharing.says(ANN, own, data={"words": "/data/w"})
    assert said.count("only-for-ann") == 2
    assert "read-only" in said
    other = {"name": "t", "tenant": "ben", "command": "true", "data": {"ann/words": "/data/w"}}
    status, refused = sharing.ask_as(BEN, other)
    assert (status, refused["code"]) == (404, "data_missing")
    (tree,) = sharing.state.glob("data/*/trees/*")
    around = sharing.ended(BEN, f"cat {tree}/words", data=str(tree))
    assert "only-for-ann" not in sharing.output(around)
    assert sharing.job(around)["diagnosis"]["code"] == "path_not_in_pod"
    look = (
        f"id -u; ls -R {sharing.state} /data 2>&1; "
        "cat /proc/[0-9]*/mountinfo 2>/dev/null | grep -c trees; "
        f"grep -rs -e only-for-an[n] {sharing.state} /data; true"
    )
    said = sharing.says(BEN, look, environment=ASKED)
    assert "only-for-ann" not in said
    assert "\n0\n" in said, said


def test_a_registered_folder_is_in_pods_where_nodes_see_it(sharing: Sharing) -> None:
    for name in ("nfs", "elsewhere"):
        place = sharing.state.parent / name
        place.mkdir()
        (place / "a").write_text("by-nfs\n")
        made = sharing.allot("data", "create", name, "--folder", str(place), "--tenant", "ann")
        assert made.returncode == 0, made.stderr
    assert "by-nfs" in sharing.says(ANN, "cat /data/n/a", data={"nfs": "/data/n"})
    spec = {"name": "t", "tenant": "ann", "command": "true", "data": {"elsewhere": "/data/e"}}
    status, refused = sharing.ask_as(ANN, spec)
    assert (status, refused["code"]) == (501, "not_supported"), refused
    assert "nodes do not see" in refused["detail"]


def test_code_is_in_the_pods_of_its_user_alone(sharing: Sharing) -> None:
    project = sharing.state.parent / "project"
    project.mkdir()
    (project / "a").write_text("first\n")
    run = "id -u; stat -c '%u %a' . a; cat a; pwd; echo x >made && cat made; cat /proc/mounts"
    small = ("--cpus", "0.1", "--memory", "64MiB", "--tenant", "ann")
    words = ("run", "-q", "--code", str(project), *small, "--", "sh", "-c", run)
    ran = as_user(ANN, sharing, *words)
    assert ran.returncode == 0, ran.stderr
    uid, job = getpwnam(ANN).pw_uid, sharing.jobs()[0]["id"]
    place = f"{sharing.state}/working/{job}/attempt-1"
    said = ran.stdout.splitlines()
    assert said[:6] == [str(uid), f"{uid} 755", f"{uid} 644", "first", place, "x"]
    assert sum("/working/" in line for line in said[6:]) == 1, "only its own is mounted"
    (project / "a").write_text("second\n")
    cloned = as_user(ANN, sharing, "clone", str(job), "--json")
    assert cloned.returncode == 0, cloned.stderr
    clone = sharing.jobs()[0]["id"]
    assert clone != job
    sharing.wait_for(clone, *OVER)
    assert "first" in sharing.output(clone)
    assert "second" in as_user(ANN, sharing, *words).stdout
    other = f"ls {sharing.state}/working {place}; cat {place}/a; true"
    assert "first" not in sharing.says(BEN, other)
    end = sharing.job(job)["attempts"][-1]["tasks"][0]
    assert "code" in [phase["name"] for phase in end["phases"]]


def test_code_is_refused_where_pods_are_not_shown_its_folder(sharing: Sharing) -> None:
    shared = sharing.config.read_text()
    less = shared.replace(f"{sharing.state}/working: host, ", "")
    assert less != shared
    sharing.config.write_text(less)
    try:
        sharing.down()
        sharing.up()
        project = sharing.state.parent / "project"
        words = ("--code", str(project), "--tenant", "ann", "--", "true")
        ran = as_user(ANN, sharing, "run", *words)
        assert ran.returncode != 0
        assert f"do not see the service's folder {sharing.state}/working" in ran.stderr
    finally:
        sharing.config.write_text(shared)
        sharing.down()
        sharing.up()


def test_outputs_in_pods_cannot_be_saved(sharing: Sharing) -> None:
    spec = {"name": "t", "tenant": "ann", "command": "true", "save": "words"}
    status, refused = sharing.ask_as(ANN, spec)
    assert (status, refused["code"]) == (501, "not_supported"), refused
    assert "keep what it leaves as versions of a dataset" in refused["detail"]
