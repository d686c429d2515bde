"""Nodes that are silent: when what ran there is known to be dead; pods that end themselves."""

import asyncio
from math import inf
from pathlib import Path
from typing import Any, cast

import pytest
from msgspec.structs import replace

from allotment.backends import contact as contact_of
from allotment.backends.contact import Contact
from allotment.backends.kubernetes import backend as backend_of
from allotment.backends.kubernetes import beats, logs, outputs, silent_nodes, watch
from allotment.backends.kubernetes import client as client_of
from allotment.backends.kubernetes.backend import KubernetesBackend
from allotment.backends.kubernetes.cluster import Cluster
from allotment.backends.kubernetes.runner import BEAT, GO, UNGUARDED, UNHEARD
from allotment.backends.kubernetes.silent_nodes import SilentNodes
from allotment.model.diagnosis import Exit
from allotment.model.errors import EngineAway
from allotment.model.ids import AttemptNo
from allotment.model.quantity import Millis
from allotment.model.reports import Seen
from tests.support.kube_api import LOST
from tests.support.kube_world import GANG, KEY, TASK, World, until

MAPS = "/api/v1/namespaces/ns/configmaps"


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_of, "PAUSE_S", 0)
    monkeypatch.setattr(logs, "PAUSE_S", 0)
    monkeypatch.setattr(watch, "FIRST_PAUSE_S", 0)
    monkeypatch.setattr(backend_of, "LOOK_EVERY_S", 0)
    monkeypatch.setattr(outputs, "LAST_S", 0)
    monkeypatch.setattr(beats, "MARGIN_S", 0.2)
    monkeypatch.setattr(beats, "LATE_S", 0)


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quick: None) -> World:
    """A world whose tasks end themselves after three seconds."""
    return a_world(tmp_path, monkeypatch, fence_after_ms=Millis(3000))


def a_world(folder: Path, monkeypatch: pytest.MonkeyPatch, **setup: Any) -> World:
    made = World(folder, **setup)
    monkeypatch.setattr(client_of, "Http", made.api.opened)
    return made


async def launched(
    world: World, backend: KubernetesBackend, *, at_barrier: bool = False
) -> None:
    """Launch a task; its pod is on its node, and its container runs."""
    gang = replace(GANG, at_barrier=at_barrier)

    async def is_taken() -> bool:
        try:
            return await backend.launch(gang) == {}
        except EngineAway:
            return False

    while not await is_taken():
        await asyncio.sleep(0)
    assert world.api.our_pod()["spec"]["nodeName"] == "n1"
    world.api.run()


def silent_in(world: World, backend: KubernetesBackend) -> str:
    """Return which nodes the last beat leaves out."""
    told = world.api.patched.get(f"{MAPS}/{backend._beats.name}", {})
    return told["data"][BEAT].split("\n")[1] if told else ""


def only_end(world: World) -> Exit:
    (end,) = world.ends()
    assert end.exit is not None
    return end.exit


# ── taken for dead, by rule ─────────────────────────────────────────────────────────────


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


def test_while_kubernetes_is_away_no_node_is_silent_for_longer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No kubelet can report to it then: what runs would be taken for dead, and run twice."""
    now = [0.0]
    for module in (contact_of, silent_nodes):
        monkeypatch.setattr(module, "monotonic", lambda: now[0])
    contact = Contact("Kubernetes", "pods")
    silent = SilentNodes(cast("Cluster", None), contact, Millis(60_000))

    def at(seconds: float) -> bool:
        now[0] = seconds
        return silent.is_given_up("n1")

    silent.note("n1", is_silent=True)
    assert not at(10)
    contact.answered()
    contact.missed("it is being renewed")
    assert not at(500)
    contact.answered()
    assert not at(549)
    assert at(550)


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


# ── known to be dead ────────────────────────────────────────────────────────────────────


def test_a_task_that_ends_itself_is_over_some_time_after_its_node_was_left_out(
    world: World,
) -> None:
    async def story() -> None:
        async with world.service() as backend:
            await launched(world, backend)
            await until(lambda: world.said(Seen.RUNNING))
            assert silent_in(world, backend) == ""
            world.api.silence_node("n1")
            await until(lambda: silent_in(world, backend) == "n1")
            assert not world.ends()
            await until(world.ends)
            assert only_end(world).lost
            assert "ended itself" in only_end(world).platform_error

    asyncio.run(story())


def test_a_node_that_comes_back_in_time_is_told_again(world: World) -> None:
    async def story() -> None:
        async with world.service() as backend:
            await launched(world, backend)
            world.api.silence_node("n1")
            await until(lambda: silent_in(world, backend) == "n1")
            world.api.add_node("n1")
            await until(lambda: silent_in(world, backend) == "")
            assert not backend._beats.within("").is_over("n1", 0)
            assert not world.ends()

    asyncio.run(story())


def test_a_task_is_not_over_while_no_beat_could_leave_its_node_out(world: World) -> None:
    async def story() -> None:
        async with world.service() as backend:
            await launched(world, backend)
            path = f"{MAPS}/{backend._beats.name}"
            world.api.forbids.add(("PATCH", path))
            world.api.silence_node("n1")
            await until(lambda: backend.silence("n1"))
            before = world.asks("PATCH", path)
            await until(lambda: world.asks("PATCH", path) > before + 10)
            assert not backend._beats.within("").is_over("n1", 0)
            assert not world.ends()

    asyncio.run(story())


def test_a_beat_that_nobody_answered_may_come_after_one_that_leaves_a_node_out(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        async with world.service() as backend:
            await launched(world, backend)
            path = f"{MAPS}/{backend._beats.name}"
            monkeypatch.setattr(beats, "LATE_S", 1000)
            world.api.says["PATCH", path] = [LOST]
            before = world.asks("PATCH", path)
            await until(lambda: world.asks("PATCH", path) > before)
            world.api.silence_node("n1")
            await until(lambda: silent_in(world, backend) == "n1")
            assert not backend._beats.within("").is_over("n1", -100)
            assert backend._beats.within("").is_over("n1", -1000 - beats.MARGIN_S)

    asyncio.run(story())


def test_beats_of_the_service_before_may_still_come(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        monkeypatch.setattr(beats, "LATE_S", 1000)
        async with world.service() as backend:
            await launched(world, backend)
            world.api.silence_node("n1")
            await until(lambda: silent_in(world, backend) == "n1")
            assert not backend._beats.within("").is_over("n1", -100)

    asyncio.run(story())


def test_nothing_starts_on_a_node_that_came_back_before_a_beat_counts_there(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        async with world.service() as backend:
            await launched(world, backend)
            path = f"{MAPS}/{backend._beats.name}"
            world.api.silence_node("n1")
            await until(lambda: silent_in(world, backend) == "n1")
            monkeypatch.setattr(backend._beats.within(""), "_next_at", inf)
            other = replace(TASK, key=replace(KEY, attempt=AttemptNo(3)))
            with pytest.raises(EngineAway, match="not been told yet that it is back"):
                await backend.launch(replace(GANG, tasks=(other,)))
            before = world.asks("PATCH", path)
            world.api.add_node("n1")
            await until(lambda: world.asks("PATCH", path) > before)
            assert silent_in(world, backend) == "", "none was due"
            world.api.remove()
            assert await backend.launch(replace(GANG, tasks=(other,))) == {}

    asyncio.run(story())


@pytest.mark.parametrize("code", [0, 75, 143])
def test_an_end_for_want_of_the_service_is_the_platforms(world: World, code: int) -> None:
    async def story() -> None:
        async with world.service() as backend:
            await launched(world, backend)
            world.api.finish(code, "Error", f"{UNHEARD}\n")
            await until(world.ends)
            assert only_end(world).lost
            assert not only_end(world).ok

    asyncio.run(story())


@pytest.mark.parametrize("code", [0, 143])
def test_a_task_that_left_its_guard_no_process_has_not_succeeded(
    world: World, code: int
) -> None:
    async def story() -> None:
        async with world.service() as backend:
            await launched(world, backend)
            world.api.finish(code, "Error", f"{UNGUARDED}\n")
            await until(world.ends)
            assert (only_end(world).pids_limit_hit, only_end(world).ok) == (True, False)
            (told,) = world.said(Seen.ENDED)
            assert told.diagnosis is not None
            assert told.diagnosis.code == "pids_limit"

    asyncio.run(story())


def test_no_task_has_the_platforms_excuse_that_does_not_end_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quick: None
) -> None:
    world = a_world(tmp_path, monkeypatch)

    async def story() -> None:
        async with world.service() as backend:
            await launched(world, backend)
            assert not world.api.patched, "nobody reads beats"
            world.api.finish(3, "Error", UNHEARD)
            await until(world.ends)
            assert (only_end(world).code, only_end(world).lost) == (3, False)

    asyncio.run(story())


def test_tasks_are_told_of_the_service_after_it_began_to_do_without(world: World) -> None:
    async def story() -> None:
        async with world.service() as backend:
            await launched(world, backend)
        world.setup = {}
        world.api.patched.clear()
        async with world.service() as backend:
            await backend.observe([KEY])
            await until(lambda: f"{MAPS}/{backend._beats.name}" in world.api.patched)

    asyncio.run(story())


def test_nothing_is_started_that_would_soon_end_itself(world: World) -> None:
    async def story() -> None:
        name = world.folder / "kubernetes" / "name"
        name.parent.mkdir()
        name.write_text("allot-1")
        world.api.forbids.add(("PATCH", f"{MAPS}/allot-1-beat"))
        async with world.service() as backend:
            await until(lambda: "HTTP 403" in backend._beats.within("")._trouble)
            with pytest.raises(
                EngineAway, match=r"cannot be told .* \(`fence_after`\).*HTTP 403"
            ):
                await backend.launch(GANG)
            assert not world.api.pods
            world.api.forbids.clear()
            await launched(world, backend)

    asyncio.run(story())


def test_the_first_beat_makes_its_object(world: World) -> None:
    async def story() -> None:
        name = world.folder / "kubernetes" / "name"
        name.parent.mkdir()
        name.write_text("allot-1")
        world.api.says["PATCH", f"{MAPS}/allot-1-beat"] = [404]
        async with world.service():
            await until(lambda: world.asks("POST", MAPS))

    asyncio.run(story())


def test_a_task_without_a_command_of_its_own_is_as_without_fence_after(world: World) -> None:
    async def story() -> None:
        async with world.service() as backend:
            gang = replace(GANG, tasks=(replace(TASK, argv=()),), at_barrier=True)
            assert await backend.launch(gang) == {}
            assert world.said(Seen.READY), "it is not on its node before its gang may begin"
            assert "command" not in world.api.our_pod()["spec"]["containers"][0]

    asyncio.run(story())


# ── a gang that waits in its pods ───────────────────────────────────────────────────────


def test_a_gang_is_ready_when_its_containers_run_and_is_let_go_by_a_word(world: World) -> None:
    async def story() -> None:
        async with world.service() as backend:
            await launched(world, backend, at_barrier=True)
            await until(lambda: world.said(Seen.READY))
            assert not world.said(Seen.RUNNING)
            await backend.open_barrier([KEY])
            await until(lambda: world.said(Seen.RUNNING))
            assert world.api.patched[world.pod]["metadata"]["annotations"] == {GO: "yes"}

    asyncio.run(story())


def test_a_gang_that_waits_is_found_again_and_let_go(world: World) -> None:
    async def story() -> None:
        async with world.service() as backend:
            await launched(world, backend, at_barrier=True)
            await until(lambda: world.said(Seen.READY))
        world.reports.clear()
        async with world.service() as backend:
            (now,) = await backend.observe([KEY])
            assert now.seen is Seen.READY
            world.api.says["PATCH", world.pod] = [403]
            with pytest.raises(EngineAway):
                await backend.open_barrier([KEY])
            await backend.open_barrier([KEY])
            await until(lambda: world.said(Seen.RUNNING))

    asyncio.run(story())


def test_a_task_that_ends_as_soon_as_it_may_begin_has_run(world: World) -> None:
    async def story() -> None:
        async with world.service() as backend:
            await launched(world, backend, at_barrier=True)
            await until(lambda: world.said(Seen.READY))
            world.api.before["PATCH", world.pod] = lambda: world.api.finish(0, "Completed")
            await backend.open_barrier([KEY])
            await until(world.ends)
            assert len(world.said(Seen.RUNNING)) == 1

    asyncio.run(story())


def test_a_task_that_ends_while_it_waits_for_its_gang_never_ran(world: World) -> None:
    async def story() -> None:
        async with world.service() as backend:
            await launched(world, backend, at_barrier=True)
            await until(lambda: world.said(Seen.READY))
            world.api.finish(75, "Error", UNHEARD)
            await until(world.ends)
            assert not world.said(Seen.RUNNING)
            assert only_end(world).lost

    asyncio.run(story())


def test_pods_that_wait_go_to_no_node_before_all_are_there(world: World) -> None:
    other = replace(
        TASK, key=replace(KEY, index=KEY.index + 1), binding=replace(TASK.binding, node="n9")
    )

    async def story() -> None:
        async with world.service() as backend:
            await launched(world, backend)
            world.api.remove()
            gang = replace(
                GANG, tasks=(replace(TASK, key=replace(KEY, attempt=3)), other), at_barrier=True
            )
            assert list(await backend.launch(gang)) == [other.key]
            assert "nodeName" not in world.api.our_pod()["spec"]

    asyncio.run(story())
