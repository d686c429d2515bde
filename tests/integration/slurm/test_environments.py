"""Environments of packages on a real Slurm: on nodes that are held, and in jobs of its own.

Both see the service's folder. On the first a task sees its environment read-only; on the second
nothing is mounted, and the rights of the files are all that there is.
"""

import json
import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from pwd import getpwnam
from typing import Any, cast

import pytest

from tests.integration.api.test_guard import as_user as asked_as
from tests.integration.service.test_saving import REPORT, is_settled, wait_for_file
from tests.integration.service.test_store_checkpoints import wait_kept
from tests.support.cluster import RealCluster, until
from tests.support.exchange import owned
from tests.support.image_python import host_python
from tests.support.on_pilots import Piloted
from tests.support.on_slurm import a_shared_folder, as_user
from tests.support.package_index import Index, a_package_index
from tests.support.python_mirror import HERE, Mirror
from tests.support.registry import Asking, Job, a_registry, busybox
from tests.support.slurm import TOOLS, Slurm

pytestmark = [
    pytest.mark.needs_root,
    pytest.mark.needs_tool(*TOOLS, "openssl"),
    pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning"),
]

CONFIG = """\
engines:
  held: {{type: pilot, partition: main}}
  jobs: {{type: slurm, partition: short}}
nodes:
- {{name: n1, cpu: 4, memory: 1000MiB, disk: 1TiB, engine: jobs}}
- {{name: n2, cpu: 4, memory: 1000MiB, disk: 1TiB, engine: held}}
tenants:
  ann: {{users: [nobody, root]}}
  ben: {{users: [games, root]}}
visibility: private
pythons: {pythons}
limits: {{backoff: {{first: 100ms, most: 200ms}}}}
"""
ANN, BEN = "nobody", "games"
"""Users that Slurm knows, too."""
TENANTS = {ANN: "ann", BEN: "ben"}
ENDED = ("succeeded", "failed", "cancelled")
VERSION = "python -c 'import framework; print(framework.version, framework.__file__)'"


class OnBoth(Piloted):
    """A service whose nodes are held, or run jobs of Slurm."""

    def up(self) -> None:
        RealCluster.up(self)

    def ask_as(self, user: str, spec: dict[str, Any]) -> tuple[int, Any]:
        """Submit a job as a user of this machine; return the status and the answer."""
        answer = asked_as(
            getpwnam(user).pw_uid, cast("Any", Asking(self)), "POST", "/v1/jobs", spec
        )
        return answer.status, json.loads(answer.body)

    def ended(self, user: str, engine: str, command: str, **more: Any) -> Job:
        """Run a job of a user to its end."""
        small = {"cpu": 0.1, "memory": "64MiB"}
        spec = {"name": "t", "tenant": TENANTS[user], "command": command, "engine": engine,
                "resources": small, **more}  # fmt: skip
        status, answer = self.ask_as(user, spec)
        assert status == 201, answer
        self.wait_for(answer["id"], *ENDED)
        return Job(self, answer["id"])

    def says(self, user: str, engine: str, command: str, **more: Any) -> str:
        """Run a job of a user to its good end; return what it wrote."""
        job = self.ended(user, engine, command, **more)
        said = self.output(job.id)
        assert job.state == "succeeded", (str(job.diagnosis), said)
        return said


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    with a_shared_folder() as made:
        yield made


@pytest.fixture(scope="module")
def index(folder: Path) -> Iterator[Index]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(folder / "home"))
        with a_package_index(folder / "home") as made:
            for version in ("1.0", "2.0"):
                made.wheel("framework", version, f"version = {version!r}\n")
            yield made


@pytest.fixture(scope="module")
def service(slurm: Slurm, folder: Path, index: Index) -> Iterator[OnBoth]:
    mirror = Mirror(folder / "pythons")
    mirror.add(98)
    made = OnBoth(folder / "state", slurm, CONFIG.format(pythons=mirror.list.as_uri()))
    made.up()
    try:
        yield made
    finally:
        made.down()
        slurm.clear()


def wish(*requirements: str, **more: str) -> dict[str, object]:
    return {"requirements": list(requirements), **more}


def test_one_is_built_once_for_all_nodes_and_users(service: OnBoth, index: Index) -> None:
    found = {
        service.says(user, engine, VERSION, environment=wish("framework<2"))
        for user, engine in ((ANN, "held"), (ANN, "jobs"), (BEN, "jobs"), (BEN, "held"))
    }
    (words,) = found
    assert words.split()[0] == "1.0"
    assert f"{service.state}/environments/made/" in words
    assert sum(path.endswith(".whl") for path in index.asked) == 1
    for row in service.get("/v1/jobs")["items"]:
        assert "environment" in Job(service, row["id"]).phases


@pytest.mark.parametrize("engine", ["held", "jobs"])
def test_a_python_that_the_nodes_lack_comes_along(service: OnBoth, engine: str) -> None:
    script = "python -c 'import sys, framework; print(sys.base_prefix)'"
    asked = wish("framework", python=f"{HERE}.98")
    assert f"{service.state}/environments/pythons/" in service.says(
        ANN, engine, script, environment=asked
    )


@pytest.mark.parametrize("engine", ["held", "jobs"])
def test_no_user_of_a_node_can_change_one_or_find_that_of_others(
    service: OnBoth, engine: str
) -> None:
    service.says(ANN, engine, VERSION, environment=wish("framework<2"))
    (theirs,) = [
        path for path in (service.state / "environments/made").iterdir()
        if (path / "lib" / f"python{HERE}/site-packages/framework-1.0.dist-info").exists()
    ]  # fmt: skip
    before = sorted((path, path.lstat().st_mtime_ns) for path in theirs.rglob("*"))
    made = service.state / "environments"
    spoil = (
        f"id -u; echo x >>{theirs}/lib/python{HERE}/site-packages/framework.py; "
        f"chmod u+w {theirs} {theirs}/bin; rm -rf {theirs}/lib; mv {theirs} {theirs}.x; "
        f"ln -sf /bin/sh {theirs}/bin/python; mkdir {made}/made/mine; "
        f"touch {made}/new/x {made}/uv/cache/x {made}/pythons/x; "
        f"ls {made}/made {made}/new {made}/known {made}/uv; "
        f"cat {made}/salt {made}/known/*; true"
    )
    said = service.says(BEN, engine, spoil)
    assert said.split()[0] != "0"
    assert theirs.name not in said.partition("\n")[2].replace(f"made/{theirs.name}", "")
    assert "framework==" not in said
    after = sorted((path, path.lstat().st_mtime_ns) for path in theirs.rglob("*"))
    assert after == before
    assert "1.0" in service.says(ANN, engine, VERSION, environment=wish("framework<2"))


def test_what_a_job_of_slurm_leaves_becomes_a_version(service: OnBoth) -> None:
    as_user(ANN, service, "data", "create", "results")
    script = 'echo kept >"$ALLOT_OUTPUT_DIR/words"'
    job = service.ended(ANN, "jobs", script, save="results")
    until(lambda: is_settled(service, job.id), "what became of the outputs")
    view = service.job(job.id)
    assert view["saved"] == "ann/results@1", str(view["unsaved"])
    assert "kept" in service.says(ANN, "held", "cat /w/words", data={"results": "/w"})


def test_a_checkpoint_of_a_job_of_slurm_becomes_a_version_and_comes_back(
    service: OnBoth,
) -> None:
    as_user(ANN, service, "data", "create", "weights")
    gone = service.state.parent / "gone"
    script = (
        'if test -n "$ALLOT_RESUME_FROM"; then cat $ALLOT_RESUME_FROM; exit 0; fi; '
        f"echo step-one >a; report a 1; {wait_for_file(str(gone))}; rm a; exit 3"
    )
    spec = {"name": "t", "tenant": TENANTS[ANN], "engine": "jobs", "command": REPORT + script,
            "resources": {"cpu": 0.1, "memory": "64MiB"}, "retry": 1,
            "checkpoint": {"save": "weights"}}  # fmt: skip
    status, answer = service.ask_as(ANN, spec)
    assert status == 201, answer
    wait_kept(service, answer["id"], "ann/weights@1")
    gone.touch()
    service.wait_for(answer["id"], *ENDED)
    assert "step-one" in service.output(answer["id"]), str(service.job(answer["id"]))


def asks(data: dict[str, Any], user: str = ANN, command: str = "true") -> dict[str, Any]:
    """Describe a job of Slurm that uses datasets."""
    return {"name": "t", "tenant": TENANTS[user], "command": command, "engine": "jobs",
            "resources": {"cpu": 0.1, "memory": "64MiB"}, "data": data}  # fmt: skip


def register(service: OnBoth, name: str, owner: str, mode: int) -> Path:
    """Register a folder of a user's that service and nodes see."""
    place = service.state.parent / name
    place.mkdir()
    (place / "a").write_text("by-nfs\n")
    uid = getpwnam(owner).pw_uid
    os.chown(place, uid, uid)
    place.chmod(mode)
    words = ("create", place.name, "--folder", str(place), "--tenant", "ann")
    made = service.allot("data", *words)
    assert made.returncode == 0, made.stderr
    return place


@pytest.mark.needs_tool("bwrap")
def test_a_registered_folder_is_in_jobs_of_slurm_at_its_place(service: OnBoth) -> None:
    place = register(service, "nfs", ANN, 0o755)
    look = (
        "cat /data/n/a $ALLOT_DATA_NFS/a; ! echo x >/data/n/a || exit 1; "
        "ls -d /usr /etc/passwd; id -un; pwd; exit 7"
    )
    job = service.ended(ANN, "jobs", look, data={"nfs": "/data/n"})
    said = service.output(job.id)
    assert said.count("by-nfs") == 2, said
    assert ANN in said.split()
    assert f"/outputs/{job.id}/" in said
    assert service.job(job.id)["attempts"][0]["tasks"][0]["exit"]["code"] == 7
    assert not Path("/data/n").exists()
    status, refused = service.ask_as(BEN, asks({"ann/nfs": "/n"}, BEN))
    assert (status, refused["code"]) == (404, "data_missing")
    service.allot("data", "grant", "ann/nfs", f"user:{ANN}", "--write")
    use = {"nfs": {"at": "/data/n", "write": True}}
    service.says(ANN, "jobs", "echo new >/data/n/b", data=use)
    assert (place / "b").read_text() == "new\n"


@pytest.mark.needs_tool("bwrap")
def test_a_job_with_a_folder_is_told_to_save(service: OnBoth) -> None:
    if not (service.state.parent / "nfs").exists():
        register(service, "nfs", ANN, 0o755)
    script = "trap 'cat /data/n/a; exit 0' TERM; echo up; while :; do sleep 0.1; done"
    status, job = service.ask_as(ANN, asks({"nfs": "/data/n"}, command=script))
    assert status == 201, job
    until(lambda: "up" in service.output(job["id"]), "the job to be up")
    inside = service.allot("exec", str(job["id"]), "--", "cat", "/data/n/a")
    assert inside.stdout == "by-nfs\n", inside.stderr
    service.allot("cancel", str(job["id"]))
    service.wait_for(job["id"], "cancelled")
    assert "by-nfs" in service.output(job["id"]), "its folder was there as long as it was"


@pytest.mark.needs_tool("bwrap")
def test_a_folder_that_a_node_lacks_is_no_fault_of_the_job(service: OnBoth) -> None:
    place = register(service, "lacked", ANN, 0o755)
    uid = getpwnam(ANN).pw_uid
    ask = partial(asked_as, uid, cast("Any", Asking(service)), "POST")
    answer = ask("/v1/jobs?held=true", asks({"lacked": "/data/g"}))
    assert answer.status == 201, answer.body
    job = json.loads(answer.body)["id"]
    (place / "a").unlink()
    place.rmdir()
    assert ask(f"/v1/jobs/{job}:release", None).status == 200
    until(lambda: len(service.get(f"/v1/jobs/{job}")["attempts"]) > 1, "another attempt")
    diagnosis = service.get(f"/v1/jobs/{job}")["attempts"][0]["diagnosis"]
    assert (diagnosis["code"], diagnosis["retry"]) == ("folder_away", "platform")
    assert f"{place} on " in diagnosis["evidence"]
    ask(f"/v1/jobs/{job}:cancel", None)


@pytest.mark.needs_tool("bwrap")
def test_a_folder_that_its_user_may_not_read_is_refused_at_once(service: OnBoth) -> None:
    """Where root mounts it, only the folder's own rights count, not those above it."""
    (service.state.parent / "above").mkdir(mode=0o700)
    place = register(service, "above/closed", BEN, 0o755)
    status, refused = service.ask_as(ANN, asks({"closed": "/data/c"}))
    assert (status, refused["code"]) == (403, "forbidden"), refused
    assert f"{place}: permission denied" in refused["detail"]
    by_mpirun = {**asks({"closed": "/data/c"}), "mpi": "mpirun"}
    status, refused = service.ask_as(ANN, by_mpirun)
    assert (status, refused["code"]) == (501, "not_supported"), refused
    assert "ranks that mpirun starts" in refused["detail"]
    for engine in ("held", "any"):
        said = service.says(ANN, engine, "cat /data/c/a", data={"closed": "/data/c"})
        assert "by-nfs" in said


@pytest.mark.needs_tool("apptainer", "docker-registry", "busybox")
@pytest.mark.may_skip("Debian 12 has no package of Apptainer")
def test_apptainer_shows_an_image_all_that_its_job_brings(
    service: OnBoth, tmp_path: Path
) -> None:
    """Packages with a Python that comes along, code, a registered folder, and a version."""
    home = service.state.parent / "home-of-ann"
    uid = getpwnam(ANN).pw_uid
    owned(home, uid, 0o700)
    project = owned(service.state.parent / "project", uid, 0o755)
    (project / "code.py").write_text("import framework; print('code', framework.version)\n")
    if not (service.state.parent / "nfs").exists():
        register(service, "nfs", ANN, 0o755)
    with a_registry(tmp_path / "registry") as registry:
        registry.push("libc", [busybox(), host_python()[0]])
        registry.push("bare", [busybox()])
        words = service.state.parent / "words"
        words.write_text("from a version\n")
        as_user(ANN, service, "data", "create", "words")
        as_user(ANN, service, "data", "put", "words", str(words))
        script = (
            "python code.py; pwd; cat /srv/n/a /w/words; echo x >/srv/n/a || echo read-only; "
            "touch /w/new || echo closed; "
            "python -c 'import sys; print(sys.base_prefix)'; "
            "test -e /usr/bin/apt || echo no-host"
        )
        spec = {
            **asks({"nfs": "/srv/n", "words": "/w"}, command=script),
            "image": f"{registry.host}/libc:1",
            "environment": wish("framework<2", python=f"{HERE}.98"), "code": {"take": "."},
            "env": {"HOME": str(home)},
        }  # fmt: skip
        file = project / "job.yaml"
        file.write_text(json.dumps(spec))
        sent = as_user(ANN, service, "submit", str(file), "--json")
        assert sent.returncode == 0, sent.stderr
        job = json.loads(sent.stdout)["id"]
        service.wait_for(job, *ENDED)
        said = service.output(job)
        assert service.state_of(job) == "succeeded", (str(service.job(job)["diagnosis"]), said)
        assert "code 1.0" in said
        assert f"{service.state}/working/{job}/attempt-1" in said
        assert "by-nfs" in said
        assert "read-only" in said
        assert "from a version" in said
        assert "closed" in said
        assert f"{service.state}/environments/pythons/" in said
        assert "no-host" in said
        bare = {**spec, "image": f"{registry.host}/bare:1", "data": {}, "command": "echo began"}
        file.write_text(json.dumps(bare))
        job = json.loads(as_user(ANN, service, "submit", str(file), "--json").stdout)["id"]
        service.wait_for(job, *ENDED)
        assert service.job(job)["diagnosis"]["code"] == "environment_unfit"
        assert "began" not in service.output(job)
