"""Datasets and checkpoints on nodes that pilots hold, which see the service's folder.

The service asks the store and lays out; nodes mount. So a store's key is on no node.
"""

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.service.test_data import as_user
from tests.integration.service.test_saving import REPORT, wait_for_file
from tests.integration.service.test_store_checkpoints import create, wait_kept
from tests.support.cluster import RealCluster
from tests.support.object_stores import BUCKET, KEY, Rclone, a_store, log_in
from tests.support.on_pilots import Piloted
from tests.support.on_slurm import a_shared_folder
from tests.support.registry import WithUsers
from tests.support.slurm import TOOLS, Slurm

pytestmark = [
    pytest.mark.needs_root,
    pytest.mark.needs_tool(*TOOLS, "openssl"),
    pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning"),
]

CONFIG = """\
engines:
  gpus: {type: pilot, partition: main}
nodes:
- {names: [n1, n2], cpu: 4, memory: 2000MiB, disk: 1TiB, gpu: {type: a100, count: 4}}
tenants:
  ann: {users: [ann, root]}
  ben: {users: [ben, root]}
visibility: private
limits: {backoff: {first: 100ms, most: 200ms}}
"""
ENDED = ("succeeded", "failed", "cancelled")
SMALL = {"cpu": 0.1, "memory": "64MiB"}


class WithData(WithUsers, Piloted):
    """A service whose users have homes, on nodes that see its folder."""

    def allot(self, *words: str, **kwargs: Any) -> subprocess.CompletedProcess[str]:
        env = {"SLURM_CONF": str(self.slurm.conf), **kwargs.pop("env", {})}
        return super().allot(*words, env=env, **kwargs)

    def up(self) -> None:
        RealCluster.up(self)

    def says(self, user: str, script: str, **more: Any) -> str:
        """Run a job of a user to its good end; return what it wrote."""
        spec = {"name": "t", "tenant": user, "command": script, "resources": SMALL, **more}
        status, answer = self.ask_as(user, "POST", "/v1/jobs", spec)
        assert status == 201, answer
        self.wait_for(answer["id"], *ENDED)
        assert self.state_of(answer["id"]) == "succeeded", self.job(answer["id"])
        return self.output(answer["id"])


@pytest.fixture(scope="module")
def service(slurm: Slurm) -> Iterator[WithData]:
    with a_shared_folder() as folder:
        folder.chmod(0o755)
        made = WithData(folder / "state", slurm, CONFIG)
        made.make_homes()
        made.up()
        try:
            made.allot("ps")
            log_in(made, "ann")
            yield made
        finally:
            made.down()
            slurm.clear()


@pytest.fixture(scope="module")
def store(service: WithData) -> Iterator[Rclone]:
    with a_store(Rclone, service.state.parent / "rclone") as made:
        yield made


def test_what_is_in_a_store_is_read_on_each_node(service: WithData, store: Rclone) -> None:
    store.put({"bert/a": "one", "bert/deep/b": "two"})
    create(service, store.endpoint, "bert")
    script = 'test "$(cat /data/bert/a /data/bert/deep/b)" = onetwo && ! touch /data/bert/c'
    whole = {"count": 2, "resources": {"gpu": 4}}
    service.says("ann", script, data={"bert": "/data/bert"}, **whole)
    tasks = service.job(service.get("/v1/jobs")["items"][0]["id"])["attempts"][-1]["tasks"]
    assert {each["node"] for each in tasks} == {"n1", "n2"}
    assert not Path("/data/bert").exists()


def test_who_has_no_grant_finds_neither_data_nor_key(service: WithData, store: Rclone) -> None:
    """Looked for on the nodes, where the owner's data are in use, by another user's job."""
    store.put({"secret/a": "only-for-ann"})
    create(service, store.endpoint, "secret")
    home = service.home("ann")
    script = f"cat /data/s/a; {wait_for_file(f'{home}/seen')}"
    spec = {
        "name": "t", "tenant": "ann", "command": script,
        "resources": SMALL, "data": {"secret": "/data/s"},
    }  # fmt: skip
    status, answer = service.ask_as("ann", "POST", "/v1/jobs", spec)
    assert status == 201, answer
    service.wait_for(answer["id"], "running")
    status, refused = service.ask_as(
        "ben", "POST", "/v1/jobs", {**spec, "tenant": "ben", "data": {"ann/secret": "/data/s"}}
    )
    assert (status, refused["code"]) == (404, "data_missing")
    look = (
        "cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' '\\n'; "
        f"grep -rsah -e 'onl[y]-for-ann' -e '{KEY.secret[:-1]}[{KEY.secret[-1]}]' "
        f"{service.state} /data; "
        "ls /data; env; true"
    )
    said = service.says("ben", look)
    assert KEY.secret not in said
    assert "only-for-ann" not in said
    own = service.says("ann", "env; cat /proc/self/environ", data={"secret": "/data/s"})
    assert KEY.secret not in own
    Path(home, "seen").touch()
    service.wait_for(answer["id"], "succeeded")


def test_no_file_of_the_nodes_and_no_log_or_event_has_the_key(
    service: WithData, store: Rclone
) -> None:
    store.put({"quiet/a": "one"})
    create(service, store.endpoint, "quiet")
    service.says("ann", "cat /data/quiet/a", data={"quiet": "/data/quiet"})
    found = [
        path
        for path in service.state.rglob("*")
        if path.is_file() and KEY.secret.encode() in path.read_bytes()
    ]
    assert found == []


def test_what_the_service_keeps_is_mounted_too(service: WithData) -> None:
    (service.home("ann") / "words").write_text("kept\n")
    as_user(service, "ann", "create", "words")
    as_user(service, "ann", "put", "words", str(service.home("ann") / "words"))
    as_user(service, "ann", "grant", "words", "user:ben")
    assert "kept" in service.says("ben", "cat /w/words", data={"ann/words": "/w"})


def test_checkpoints_go_to_a_store_and_come_back(service: WithData, store: Rclone) -> None:
    home = service.home("ann")
    create(service, store.endpoint, "weights")
    script = (
        'if test -n "$ALLOT_RESUME_FROM"; then cat $ALLOT_RESUME_FROM; exit 0; fi; '
        f"echo step-one >a; report a 1; {wait_for_file(f'{home}/gone')}; rm a; exit 3"
    )
    spec = {
        "name": "t", "tenant": "ann", "command": REPORT + script, "resources": SMALL,
        "checkpoint": {"save": "weights", "keep": 2}, "retry": 1,
    }  # fmt: skip
    status, answer = service.ask_as("ann", "POST", "/v1/jobs", spec)
    assert status == 201, answer
    wait_kept(service, answer["id"], "ann/weights@1")
    Path(home, "gone").touch()
    service.wait_for(answer["id"], *ENDED)
    assert "step-one" in service.output(answer["id"]), service.job(answer["id"])
    place = store.folder / "objects" / BUCKET / "weights"
    assert [each.name for each in place.glob("allot-checkpoint-*/a")] == ["a"]
