"""Jobs go to the node that has their data and image on its own disk, among nodes alike."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from allotment.engine.apply import apply
from allotment.engine.engine import Engine
from allotment.engine.state import State
from allotment.service.pipeline import load
from allotment.store.sqlite import SqliteStore
from tests.integration.slurm.test_data_on_pilots import ENDED, SMALL
from tests.integration.slurm.test_files_on_own_disks import CONFIG, OnNodes, on_nodes
from tests.support.builders import POLICIES
from tests.support.cluster import until
from tests.support.registry import a_file, a_registry, busybox, layer
from tests.support.slurm import TOOLS

pytestmark = [
    pytest.mark.needs_root,
    pytest.mark.needs_tool(*TOOLS, "openssl", "unshare", "docker-registry", "busybox"),
    pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning"),
]

USE = {"words": "/data/w"}
ONE = {"resources": {**SMALL, "gpu": 1}}


class Choosing(OnNodes):
    """A service whose names would choose n1."""

    def run_on_n2(self, user: str, **more: object) -> int:
        """Run a job while n1 is full, and hear what n2 has then."""
        filling = self.submitted(user, "sleep 1000", resources={"gpu": 4})
        self.wait_for(filling, "running")
        assert self.node_of(filling) == "n1"
        job = self.ran(user, **more)
        assert self.node_of(job) == "n2"
        self.allot("cancel", str(filling))
        self.wait_for(filling, "cancelled")
        return job

    def ran(self, user: str, **more: object) -> int:
        job = self.submitted(user, "true", **ONE, **more)
        self.wait_for(job, *ENDED)
        assert self.state_of(job) == "succeeded", self.job(job)
        return job

    def with_(self, job: int) -> tuple[int, int]:
        attempt = self.job(job)["attempts"][-1]
        return attempt["with_image"], attempt["with_data"]

    def has(self, node: str) -> set[str]:
        """Return what a node said last that it has, by kind."""
        told = json.loads(self.told_by(node) or "{}")
        return {"image" if "@" in name else name.partition("/")[0] for name in told}

    def told_by(self, node: str) -> str:
        """Return what the service noted of what a node has; '' for nothing yet."""
        noted = self.state / f"engines/gpus/pilot/nodes/{node}/content.json"
        return noted.read_text() if noted.exists() else ""


@pytest.fixture
def cluster() -> Iterator[Choosing]:
    with on_nodes(CONFIG, Choosing) as running:
        running.until_held()
        yield running


def test_a_job_goes_to_the_node_that_has_its_data(cluster: Choosing) -> None:
    cluster.put("ann", "words", {"a": "x" * (100 << 20)})
    cluster.put("ann", "other", {"a": "y" * (250 << 20)})
    first = cluster.run_on_n2("ann", data=USE)
    assert cluster.with_(first) == (0, 0)
    until(lambda: cluster.has("n2") == {"data"}, "n2 to say what it has")
    again = cluster.ran("ann", data=USE)
    assert (cluster.node_of(again), cluster.with_(again)) == ("n2", (0, 1))
    assert cluster.node_of(cluster.ran("ann")) == "n1"
    said = cluster.allot("show", str(again), user="ann").stdout
    assert "where its data is already" in said
    for words in (["show", str(again)], ["events"], ["events", str(again)], ["nodes"]):
        for_others = cluster.allot(*words, user="ben").stdout
        assert "words" not in for_others
        assert "already" not in for_others
    told = cluster.allot("events").stdout
    assert "data ann/words@1 is on 1 node(s)" in told
    # A service that begins anew knows it.
    cluster.kill()
    from_log, engine = State(POLICIES), Engine(State(POLICIES))
    store = SqliteStore.open(cluster.state)
    load(engine, store)
    for record in store.records():
        apply(from_log, record)
    store.close()
    assert engine.state.image() == from_log.image()
    cluster.up()
    cluster.until_held()
    again = cluster.ran("ann", data=USE)
    assert (cluster.node_of(again), cluster.with_(again)) == ("n2", (0, 1))
    cluster.allot("down")  # All nodes are given back.
    cluster.up()
    cluster.until_held()
    again = cluster.ran("ann", data=USE)
    assert (cluster.node_of(again), cluster.with_(again)) == ("n2", (0, 1))
    # What the node removed it has no longer.
    cluster.age()
    before = cluster.told_by("n2")
    cluster.run_on_n2("ann", data={"other": "/data/o"})
    until(lambda: cluster.told_by("n2") not in (before, "{}"), "n2 to say what it has")
    last = cluster.ran("ann", data=USE)
    assert (cluster.node_of(last), cluster.with_(last)) == ("n1", (0, 0))


def test_large_data_count_for_more_than_a_small_image(
    cluster: Choosing, tmp_path: Path
) -> None:
    with a_registry(tmp_path / "registry") as registry:
        registry.push("small", [busybox(), layer(a_file("srv/note", "x\n"))])
        image = f"{registry.host}/small:1"
        cluster.put("ann", "words", {"a": "x" * (200 << 20)})
        cluster.put("ann", "few", {"a": "x"})
        cluster.ran("ann", image=image)
        until(lambda: cluster.has("n1") == {"image"}, "n1 to say what it has")
        cluster.run_on_n2("ann", data={**USE, "few": "/data/f"})
        until(lambda: cluster.has("n2") == {"data"}, "n2 to say what it has")
        both = cluster.ran("ann", image=image, data={"few": "/data/f"})
        assert (cluster.node_of(both), cluster.with_(both)) == ("n1", (1, 0))
        both = cluster.ran("ann", image=image, data=USE)
        assert (cluster.node_of(both), cluster.with_(both)) == ("n2", (0, 1))
