"""A cluster whose Kubernetes is too old takes nothing new, and says why."""

import asyncio
from pathlib import Path

import pytest

from allotment.backends.kubernetes import backend, watch
from allotment.backends.kubernetes import client as client_of
from allotment.model.reports import NodeReport
from tests.support.kube_world import World, until


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    made = World(tmp_path)
    monkeypatch.setattr(client_of, "Http", made.api.opened)
    monkeypatch.setattr(client_of, "PAUSE_S", 0)
    monkeypatch.setattr(watch, "FIRST_PAUSE_S", 0)
    monkeypatch.setattr(backend, "LOOK_EVERY_S", 0.02)
    return made


def closed(world: World) -> str:
    """Return why the one node is closed, as was told last."""
    told = [each for each in world.reports if isinstance(each, NodeReport)]
    return told[-1].closed


def test_no_node_of_a_cluster_that_is_too_old_is_open_until_it_is_not(world: World) -> None:
    world.api.objects["/version"] = {"major": "1", "minor": "18+"}

    async def story() -> None:
        async with world.service():
            assert closed(world) == "Kubernetes 1.18 is too old: 1.20 or newer is needed"
            world.api.objects["/version"] = {"major": "1", "minor": "20"}
            await until(lambda: not closed(world))

    asyncio.run(story())


@pytest.mark.parametrize("status", [403, 404, 500])
def test_a_version_that_is_kept_from_us_closes_nothing(world: World, status: int) -> None:
    world.api.says["GET", "/version"] = [status] * 1000

    async def story() -> None:
        async with world.service():
            assert not closed(world)

    asyncio.run(story())
