"""Lists that come in pages: one that breaks at a late page goes on with that page."""

import asyncio
from pathlib import Path

import pytest

from allotment.backends.kubernetes import client as client_of
from allotment.backends.kubernetes import watch
from tests.support.kube_api import LOST, NODES
from tests.support.kube_world import World, until


@pytest.mark.parametrize(
    ("said", "tokens"),
    [
        ([200, 200, LOST], ["0", "2", "4", "4"]),
        ([200, LOST, 200, LOST], ["0", "2", "2", "4", "4"]),
        ([200, 200, 410], ["0", "2", "4", "0", "2", "4"]),  # its moment is kept no more
        ([200, 200, 504], ["0", "2", "4", "4"]),
    ],
)
def test_only_a_list_whose_moment_is_gone_begins_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: list[int], tokens: list[str]
) -> None:
    world = World(tmp_path)
    for number in range(2, 6):
        world.api.add_node(f"n{number}")
    world.api.page = 2
    world.api.says["GET", NODES] = said
    monkeypatch.setattr(client_of, "Http", world.api.opened)
    monkeypatch.setattr(client_of, "PAUSE_S", 0)
    monkeypatch.setattr(watch, "FIRST_PAUSE_S", 0)

    async def story() -> None:
        async with world.service() as backend:
            await until(lambda: backend._cluster.nodes_known)
            assert len(backend._cluster.nodes) == 5

    asyncio.run(story())
    asked = [token for path, token in world.api.tokens if path == NODES]
    assert asked[: len(tokens)] == tokens
