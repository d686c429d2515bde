"""A failed task whose pod is kept: told once, known after a restart, and kept no longer."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from allotment.backends.kubernetes import backend as backend_of
from allotment.backends.kubernetes import client as client_of
from allotment.backends.kubernetes import logs, outputs, watch
from allotment.backends.kubernetes import tasks as tasks_of
from allotment.backends.kubernetes.backend import KubernetesBackend
from allotment.backends.kubernetes.runner import KEPT, TELL_ALL
from allotment.model.quantity import Millis
from allotment.model.reports import Seen
from tests.support.kube_world import GANG, KEY, TASK, World, until


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setattr(client_of, "PAUSE_S", 0)
    monkeypatch.setattr(logs, "PAUSE_S", 0)
    monkeypatch.setattr(watch, "FIRST_PAUSE_S", 0)
    monkeypatch.setattr(backend_of, "LOOK_EVERY_S", 0)
    monkeypatch.setattr(outputs, "LAST_S", 0)
    made = World(tmp_path)
    monkeypatch.setattr(client_of, "Http", made.api.opened)
    return made


async def begun(world: World, backend: KubernetesBackend, keep_ms: int = 3_600_000) -> None:
    """Launch a task that wants to be kept when it fails; it runs."""
    gang = replace(GANG, hold_on_failure_ms=Millis(keep_ms))
    assert await backend.launch(gang) == {}
    world.api.run()
    await until(lambda: world.said(Seen.RUNNING))


async def writes(backend: KubernetesBackend, code: int, token: str = "") -> None:
    """Hear the line with which a first process says that its command failed."""
    record = backend._tasks.record(KEY)
    assert record is not None
    line = KEPT.format(code, record.keep_s, token or record.token)
    await backend._hearing._read_output(KEY, f"half {line}\n".encode())


def container(world: World) -> dict[str, Any]:
    return world.api.our_pod()["spec"]["containers"][0]


def test_it_is_told_with_its_code_and_known_after_a_restart(world: World) -> None:
    async def story() -> None:
        async with world.service() as backend:
            await begun(world, backend)
            assert container(world)["lifecycle"] == {"preStop": TELL_ALL}
            await writes(backend, 3)
            await writes(backend, 4)
            (told,) = world.said(Seen.HOLDING)
            assert told.exit is not None
            assert told.exit.code == 3
        world.reports.clear()
        async with world.service() as backend:
            await until(lambda: backend._cluster.pods)
            (seen,) = await backend.observe([KEY])
            assert (seen.seen, seen.exit) == (Seen.HOLDING, told.exit)
            world.api.finish(137)
            await until(world.ends)
            (end,) = world.ends()
            assert end.exit is not None
            assert end.exit.code == 3
            assert not world.said(Seen.RUNNING)

    asyncio.run(story())


def test_that_its_memory_did_not_suffice_is_told_by_its_node(world: World) -> None:
    async def story() -> None:
        async with world.service() as backend:
            await begun(world, backend)
            await writes(backend, 137)
            world.api.finish(137, "OOMKilled")
            await until(world.ends)
            (end,) = world.ends()
            assert end.exit is not None
            assert end.exit.oom

    asyncio.run(story())


def test_words_without_the_right_token_are_a_tasks_own(world: World) -> None:
    async def story() -> None:
        async with world.service() as backend:
            await begun(world, backend)
            await writes(backend, 3, "guessed")
            assert not world.said(Seen.HOLDING)

    asyncio.run(story())


def test_one_that_only_says_so_is_ended_when_its_time_is_over(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tasks_of, "KEPT_S", 0.0)

    async def story() -> None:
        async with world.service() as backend:
            await begun(world, backend, keep_ms=1)
            await writes(backend, 3)
            await until(lambda: world.asks("DELETE", world.pod))

    asyncio.run(story())


def test_what_was_told_to_stop_is_not_kept(world: World) -> None:
    async def story() -> None:
        async with world.service() as backend:
            await begun(world, backend)
            await backend.stop(KEY, "TERM", Millis(30_000))
            await writes(backend, 85)
            assert not world.said(Seen.HOLDING)

    asyncio.run(story())


def test_the_command_of_an_image_is_not_kept(world: World) -> None:
    bare = replace(TASK, argv=())

    async def story() -> None:
        async with world.service() as backend:
            gang = replace(GANG, tasks=(bare,), hold_on_failure_ms=Millis(1000))
            assert await backend.launch(gang) == {}
            assert "lifecycle" not in container(world)
            assert "command" not in container(world)

    asyncio.run(story())
