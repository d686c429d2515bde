"""Nodes that cannot join now: they are tried again ever more seldom, and that is told once."""

import asyncio
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest
from structlog.testing import capture_logs

from allotment.model.cluster import Node
from allotment.model.engines import EngineSetup, EngineType
from allotment.model.errors import BadInput, Code, Problem, Rejected
from allotment.model.tenancy import Config
from allotment.service.joining import Joining
from tests.support.builders import a_node

LOOKS = 100
SETUPS = (EngineSetup("gpus", EngineType.SLURM, "main"),)
IN_USE = Rejected(Code.CONFLICT, "Node n1: job 7 still uses it.")


class Cluster:
    """Finds nodes, and refuses to put them in force as the test says."""

    committer = SimpleNamespace(trouble="")
    state = SimpleNamespace(config=Config((), (), engines=SETUPS))

    def __init__(self, why: Exception | None) -> None:
        self.why = why
        self.nodes: tuple[Node, ...] = (a_node(0),)
        self.tries = 0
        self.one_at_a_time = asyncio.Lock()

    def found_nodes(self) -> Mapping[str, Sequence[Node]]:
        return {"": self.nodes}

    def found(self, engine: str, nodes: Sequence[Node]) -> tuple[Config, tuple[Problem, ...]]:
        self.tries += 1
        if isinstance(self.why, BadInput):
            raise self.why
        return Config(tuple(nodes), ()), (Problem("a warning"),)

    async def command(self, *_: object) -> None:
        if self.why is not None:
            raise self.why


def told(cluster: Cluster, joining: Joining, looks: int = LOOKS) -> list[str]:
    async def story() -> None:
        for _ in range(looks):
            await joining.look()

    with capture_logs() as logs:
        asyncio.run(story())
    return [str(log.get("because", log.get("but"))) for log in logs]


def made(cluster: Cluster) -> Joining:
    each = cast("Any", cluster)
    return Joining(each, each, each)


def test_a_refusal_is_told_once_and_tried_again_ever_more_seldom() -> None:
    cluster = Cluster(IN_USE)
    joining = made(cluster)
    assert told(cluster, joining) == [str(IN_USE)]
    assert 5 <= cluster.tries <= 10
    cluster.why = None
    assert told(cluster, joining) == ["a warning"]


def test_other_nodes_are_tried_at_once() -> None:
    cluster = Cluster(IN_USE)
    joining = made(cluster)
    told(cluster, joining)
    tries, cluster.nodes = cluster.tries, (a_node(0), a_node(1))
    assert told(cluster, joining, looks=1) == [str(IN_USE)]
    assert cluster.tries == tries + 1


@pytest.mark.parametrize("looks", [1, LOOKS])
def test_what_cannot_be_read_is_not_tried_again(looks: int) -> None:
    cluster = Cluster(BadInput((Problem("more than there is"),)))
    assert told(cluster, made(cluster), looks) == ["more than there is"]
    assert cluster.tries == 1
