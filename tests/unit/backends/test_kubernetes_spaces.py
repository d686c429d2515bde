"""Tenants with namespaces of their own: where pods are, and whose are ours."""

import asyncio
from pathlib import Path

import pytest
from msgspec.structs import replace

from allotment.backends.kubernetes import backend as backend_of
from allotment.backends.kubernetes import client as client_of
from allotment.backends.kubernetes import cluster as cluster_of
from allotment.backends.kubernetes import logs, watch
from allotment.backends.kubernetes.spaces import HOME, Spaces, space_of
from allotment.model.errors import BackendError, EngineAway
from allotment.model.quantity import Millis
from allotment.service.ports import GangLaunch
from tests.support.kube_api import ALL_PODS, PODS
from tests.support.kube_world import GANG, KEY, World, until

JOBS = "/api/v1/namespaces/jobs-lab/pods"
LAB = replace(GANG, labels=(("tenant", "lab"),))


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    made = World(tmp_path, tenant_namespaces=(("", "jobs-{tenant}"), ("ops", "ns")))
    made.api.objects["/api/v1/namespaces/jobs-lab"] = {}
    monkeypatch.setattr(client_of, "Http", made.api.opened)
    monkeypatch.setattr(client_of, "PAUSE_S", 0)
    monkeypatch.setattr(logs, "PAUSE_S", 0)
    monkeypatch.setattr(watch, "FIRST_PAUSE_S", 0)
    monkeypatch.setattr(backend_of, "LOOK_EVERY_S", 0)
    monkeypatch.setattr(cluster_of, "FIRST_AGAIN_S", 0.01)
    return made


def of(tenant: str) -> GangLaunch:
    return replace(GANG, labels=(("tenant", tenant),))


@pytest.mark.parametrize(
    ("tenant", "space"), [("lab", "jobs-lab"), ("ops", "special"), ("", HOME)]
)
def test_a_tenant_has_the_namespace_that_is_named_or_that_of_the_pattern(
    tenant: str, space: str
) -> None:
    assert space_of(tenant, {"": "jobs-{tenant}", "ops": "special"}) == space
    assert space_of(tenant, {"other": "x"}) == HOME


def test_namespaces_that_were_used_are_known_after_a_restart_and_no_others(
    tmp_path: Path,
) -> None:
    named, file = {"lab": "jobs-lab", "here": "home"}, tmp_path / "namespaces"
    spaces = Spaces("home", named, file)
    assert not spaces.is_own("jobs-lab"), "who makes pods there may write our label on them"
    assert [spaces.enter(each) for each in ("lab", "here", "else")] == ["jobs-lab", HOME, HOME]
    again = Spaces("home", {}, file)
    assert [again.is_own(each) for each in ("home", "jobs-lab", "x")] == [True, True, False]


def test_a_namespace_is_left_to_others_once_no_task_is_there(tmp_path: Path) -> None:
    file = tmp_path / "namespaces"
    spaces = Spaces("home", {"": "jobs-{tenant}"}, file)
    for tenant in ("a", "b", "c"):
        spaces.enter(tenant)
    assert spaces.leave(["x"], lambda: pytest.fail("nothing has to be read")) == ()
    assert spaces.leave(["jobs-a", "jobs-b", "x"], lambda: {"jobs-b", "jobs-c"}) == ["jobs-b"]
    for each in (spaces, Spaces("home", {}, file)):
        assert [each.is_own(f"jobs-{tenant}") for tenant in "abc"] == [False, True, True]


def test_what_cannot_be_noted_is_not_used(tmp_path: Path) -> None:
    spaces = Spaces("home", {"lab": "jobs-lab"}, tmp_path / "gone" / "namespaces")
    with pytest.raises(BackendError, match="cannot be written"):
        spaces.enter("lab")
    assert not spaces.is_own("jobs-lab")


def test_a_task_is_in_the_namespace_of_its_tenant_through_a_restart(world: World) -> None:
    async def story() -> None:
        async with world.service() as backend:
            assert await backend.launch(LAB) == {}
            assert [at.split("/")[0] for at in world.api.pods] == ["jobs-lab"]
            assert world.asks("POST", PODS) == 0
        world.setup = {}
        async with world.service() as backend:
            await backend.observe([KEY])
            world.api.finish(0, namespace="jobs-lab")
            await until(world.ends)
        (end,) = world.ends()
        assert end.exit is not None
        assert end.exit.ok
        assert not world.api.pods

    asyncio.run(story())


def test_pods_of_others_are_placed_where_a_tenants_were_once_those_have_ended(
    world: World,
) -> None:
    async def is_ours() -> bool:
        async with world.service() as backend:
            found = backend._cluster.is_own("jobs-lab")
            await backend.observe([KEY])
            return found

    async def story() -> None:
        async with world.service() as backend:
            await backend.launch(LAB)
        world.setup = {"namespaces": (("jobs-lab", ("lab",)),)}
        assert await is_ours(), "a task is there"
        async with world.service() as backend:
            await backend.observe([KEY])
            world.api.finish(0, namespace="jobs-lab")
            await until(world.ends)
        assert not await is_ours()

    asyncio.run(story())


def test_a_namespace_that_is_missing_is_named(world: World) -> None:
    del world.api.objects["/api/v1/namespaces/jobs-lab"]

    async def story() -> None:
        async with world.service() as backend:
            for _ in range(2):  # and not only once it could not be made any more
                world.api.says["POST", JOBS] = [403]
                (why,) = (await backend.launch(LAB)).values()
                assert "Kubernetes has no namespace jobs-lab" in why
            assert backend._tasks.asked_at
            await backend.forget(KEY.job)
            assert not backend._tasks.asked_at

    asyncio.run(story())


def test_nothing_is_started_of_which_nothing_would_be_heard(world: World) -> None:
    world.api.forbids.add(("GET", ALL_PODS))

    async def story() -> None:
        async with world.service() as backend:
            with pytest.raises(EngineAway, match="namespace jobs-lab would not be noticed"):
                await backend.launch(LAB)
            assert await backend.launch(of("ops")) == {}

    asyncio.run(story())


def test_a_task_is_not_gone_while_only_the_own_namespace_may_be_listed(world: World) -> None:
    async def story() -> None:
        async with world.service() as backend:
            await backend.launch(LAB)
            await until(lambda: backend._cluster.pods)
        world.api.forbids.add(("GET", ALL_PODS))
        async with world.service() as backend:
            await backend.observe([KEY])
            await until(lambda: backend._cluster.is_listed)
            backend._cluster._take_list([])
            at = f"{JOBS}/{world.api.our_pod('jobs-lab')['metadata']['name']}"
            before = world.asks("GET", at)
            await until(lambda: world.asks("GET", at) > before + 2)
            assert not world.ends()

    asyncio.run(story())


def test_each_namespace_hears_of_the_service_by_itself(world: World) -> None:
    """Who takes rights away in one holds up nobody in the others."""
    world.setup["fence_after_ms"] = Millis(300_000)

    async def story() -> None:
        async with world.service() as backend:
            maps = "/api/v1/namespaces/{}/configmaps/" + backend._beats.name
            world.api.forbids.add(("PATCH", maps.format("jobs-lab")))

            async def is_taken(tenant: str) -> bool:
                try:
                    return await backend.launch(of(tenant)) == {}
                except EngineAway:
                    return False

            assert not await is_taken("lab")
            await until(lambda: "HTTP 403" in backend._beats.within("jobs-lab")._trouble)
            while not await is_taken("ops"):
                await asyncio.sleep(0)
            assert maps.format("ns") in world.api.patched

    asyncio.run(story())
