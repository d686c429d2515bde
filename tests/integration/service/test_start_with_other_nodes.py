"""What an engine lost while the service was down does not keep it from starting."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from allotment.model import commands as c
from allotment.model.cluster import Node
from allotment.model.errors import BadInput, NoNodes, Problem
from allotment.model.ids import Actor
from allotment.model.lifecycle import JobState as S
from allotment.wiring import engines
from allotment.wiring.options import Options
from allotment.wiring.service import (
    Opened,
    _start,  # pyright: ignore[reportPrivateUsage]
    open_service,
)
from tests.integration.service.test_joining import CONFIG, nodes
from tests.integration.service.test_service import a_script, until
from tests.support.fake_backend import FakeBackend

ME = Actor("me", None, ())
LARGE = CONFIG.replace(b"gpu: 4", b"gpu: 12")
LISTED = b"""\
engines: {gpus: {type: slurm, partition: main}}
nodes:
- {name: n1, cpu: 64, memory: 512GiB, disk: 1TiB, gpu: {type: A100, count: 8}}
- {name: n2, cpu: 64, memory: 512GiB, disk: 1TiB, gpu: {type: A100, count: 8}}
tenants: {vision: {guaranteed: {gpu: 4}}}
"""


@pytest.fixture
def find(monkeypatch: pytest.MonkeyPatch) -> Callable[[tuple[Node, ...]], None]:
    """Make what Slurm says of its nodes; that there are none is an error."""

    def settle(there: tuple[Node, ...]) -> None:
        def discovered(*_: object, **__: object) -> tuple[Node, ...]:
            if not there:
                raise NoNodes((Problem("Slurm has no partition main with nodes"),))
            return there

        monkeypatch.setattr(engines, "_discovered", discovered)

    return settle


@pytest.fixture(autouse=True)
def faked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines.Engines, "backend", lambda *_: FakeBackend())


@contextmanager
def opened(folder: Path) -> Iterator[Opened]:
    made = open_service(Options(folder))
    try:
        yield made
    finally:
        made.lock.release()


def start(folder: Path, *, gpus: int = 0) -> tuple[dict[str, int], bytes]:
    """Start and stop; return the devices of each node, and the text that is in force."""

    async def story() -> tuple[dict[str, int], bytes]:
        with opened(folder) as made:
            service = made.service
            try:
                await _start(made)
                if gpus:
                    job = await service.submit(c.SubmitJob(a_script("fake forever", gpus)), ME)
                    await until(lambda: service.state.jobs[job.id].state is S.RUNNING)
                there = {node.name: len(node.devices) for node in service.state.config.nodes}
                return there, made.kept.text
            finally:
                await service.stop()

    return asyncio.run(story())


def write(folder: Path, text: bytes) -> None:
    folder.mkdir(mode=0o700, exist_ok=True)
    (folder / "config.yaml").write_bytes(text)


@pytest.mark.parametrize("text", [LARGE, LISTED], ids=["found", "listed"])
@pytest.mark.parametrize(
    "there",
    [nodes("n1"), (*nodes("n1"), *nodes("n2", gpus=0)), ()],
    ids=["one left", "one shows no GPUs", "none"],
)
def test_it_starts_with_the_nodes_in_force(
    tmp_path: Path,
    find: Callable[[tuple[Node, ...]], None],
    text: bytes,
    there: tuple[Node, ...],
) -> None:
    folder = tmp_path / "s"
    write(folder, text)
    find(nodes("n1", "n2"))
    assert start(folder)[0] == {"n1": 8, "n2": 8}
    find(there)
    with capture_logs() as logs:
        assert start(folder) == ({"n1": 8, "n2": 8}, text)
    words = "the nodes in force stay" if there else "Slurm shows no nodes"
    assert any(words in log["event"] for log in logs)
    find(nodes("n1", "n2", "n3"))
    assert len(start(folder)[0]) == (3 if text is LARGE else 2)


def test_what_is_wrong_with_any_nodes_still_keeps_it_from_starting(
    tmp_path: Path, find: Callable[[tuple[Node, ...]], None]
) -> None:
    folder = tmp_path / "s"
    write(folder, LARGE)
    find(())
    with pytest.raises(NoNodes), opened(folder):
        pass
    assert not (folder / "allot.db").exists()
    find(nodes("n1", "n2"))
    start(folder)
    find(nodes("n1"))
    write(folder, LARGE.replace(b"gpu: 12", b"gpu: 20"))
    with pytest.raises(BadInput, match="12 GPU more than there is"), opened(folder):
        pass


def test_what_follows_the_nodes_is_the_text_in_force_and_no_other(
    tmp_path: Path, find: Callable[[tuple[Node, ...]], None]
) -> None:
    """A job is on a node that is gone: the configuration in force stays."""
    folder = tmp_path / "s"
    write(folder, CONFIG)
    find(nodes("n1"))
    start(folder, gpus=8)
    find(nodes("n2"))
    assert start(folder, gpus=8) == ({"n1": 8}, CONFIG)
    write(folder, CONFIG.replace(b"gpu: 4", b"gpu: 2"))
    assert start(folder) == ({"n1": 8}, b"")
