"""Nodes that are silent: when what ran there is taken for dead."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from allotment.backends.kubernetes import backend as backend_of
from allotment.backends.kubernetes import client as client_of
from allotment.backends.kubernetes import logs, watch
from allotment.backends.kubernetes.backend import KubernetesBackend
from allotment.model.diagnosis import Exit
from allotment.model.quantity import Millis
from allotment.model.reports import Seen
from tests.support.kube_world import GANG, KEY, World, until


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_of, "PAUSE_S", 0)
    monkeypatch.setattr(logs, "PAUSE_S", 0)
    monkeypatch.setattr(watch, "FIRST_PAUSE_S", 0)
    monkeypatch.setattr(backend_of, "LOOK_EVERY_S", 0)
    monkeypatch.setattr(backend_of, "LOG_S", 0)


def a_world(folder: Path, monkeypatch: pytest.MonkeyPatch, **setup: Any) -> World:
    made = World(folder, **setup)
    monkeypatch.setattr(client_of, "Http", made.api.opened)
    return made


async def launched(world: World, backend: KubernetesBackend) -> None:
    """Launch a task; its pod is on its node, and its container runs."""
    assert await backend.launch(GANG) == {}
    world.api.run()


def only_end(world: World) -> Exit:
    (end,) = world.ends()
    assert end.exit is not None
    return end.exit


def test_what_a_silent_node_ran_is_over_after_force_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quick: None
) -> None:
    world = a_world(tmp_path, monkeypatch, force_after_ms=Millis(300))

    async def story() -> None:
        async with world.service() as backend:
            await launched(world, backend)
            await until(lambda: world.said(Seen.RUNNING))
            world.api.silence_node("n1")
            await until(lambda: backend.silence("n1"))
            assert not world.ends()
            await until(world.ends)
            assert only_end(world).lost
            assert "force_after" in only_end(world).platform_error
            assert world.api.our_pod()["metadata"]["deletionTimestamp"], "it may be there still"

    asyncio.run(story())


def test_what_is_told_to_end_on_a_silent_node_has_ended_by_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quick: None
) -> None:
    world = a_world(tmp_path, monkeypatch, force_after_ms=Millis(300))

    async def story() -> None:
        async with world.service() as backend:
            await launched(world, backend)
            world.api.silence_node("n1")
            await until(lambda: backend.silence("n1"))
            await backend.stop(KEY, "TERM", Millis(1000))
            await until(world.ends)
            assert (only_end(world).signal, only_end(world).lost) == (15, False)

    asyncio.run(story())
