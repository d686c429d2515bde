"""Tasks with devices by name: each claim is made once, has what was planned, and goes."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from allotment.backends.kubernetes import backend as backend_of
from allotment.backends.kubernetes import client as client_of
from allotment.backends.kubernetes import ends, logs, watch
from allotment.backends.kubernetes.backend import KubernetesBackend
from allotment.backends.kubernetes.request import LAUNCH, SERVICE
from allotment.model.cluster import Device, Node
from allotment.model.errors import EngineAway
from allotment.model.ids import DeviceIndex
from allotment.model.quantity import Millis
from allotment.model.reports import OthersReport, Seen
from allotment.service.ports import Binding, GangLaunch, Refused
from tests.support.kube_api import LOST, KubeApi
from tests.support.kube_devices import CLAIMS, NVIDIA, a_device, a_slice
from tests.support.kube_world import GANG, KEY, TASK, World, a_node, until

GPU = "gpu.nvidia.com/n1/gpu-{}"
Story = Callable[[World, KubernetesBackend], Coroutine[Any, Any, None]]


def named_node(count: int = 4) -> Node:
    devices = tuple(
        Device(DeviceIndex(each), "gpu", uuid=GPU.format(each), virtual=False)
        for each in range(count)
    )
    return msgspec.structs.replace(a_node(), devices=devices)


def a_gang(*devices: int, at_barrier: bool = False) -> GangLaunch:
    task = msgspec.structs.replace(TASK, binding=Binding("n1", devices))
    return msgspec.structs.replace(GANG, tasks=(task,), at_barrier=at_barrier)


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    made = World(tmp_path)
    made.nodes = [named_node()]
    made.api.devices.is_there = True
    made.api.devices.define(NVIDIA)
    made.api.devices.publish(a_slice("n1", *(a_device(f"gpu-{each}") for each in range(4))))
    monkeypatch.setattr(client_of, "Http", made.api.opened)
    monkeypatch.setattr(client_of, "PAUSE_S", 0)
    monkeypatch.setattr(logs, "PAUSE_S", 0)
    monkeypatch.setattr(watch, "FIRST_PAUSE_S", 0)
    monkeypatch.setattr(backend_of, "LOOK_EVERY_S", 0)
    monkeypatch.setattr(ends, "FIRST_PAUSE_S", 0)
    return made


def play(world: World, story: Story) -> None:
    async def run() -> None:
        async with known(world) as backend:
            await story(world, backend)

    asyncio.run(run())


@asynccontextmanager
async def known(world: World) -> AsyncGenerator[KubernetesBackend]:
    """Run a backend that knows which devices there are."""
    async with world.service() as backend:
        await until(backend._cluster.devices.listed.is_set)
        yield backend


def claim_in(api: KubeApi) -> dict[str, Any]:
    """Return the only claim of our namespace."""
    (claim,) = (each for at, each in api.devices.claims.items() if at.startswith("ns/"))
    return claim


def given(api: KubeApi) -> list[str]:
    results = claim_in(api)["status"]["allocation"]["devices"]["results"]
    return ["/".join((each["driver"], each["pool"], each["device"])) for each in results]


# ── what is written ─────────────────────────────────────────────────────────────────────


def test_a_task_gets_the_very_devices_that_were_chosen(world: World) -> None:
    async def story(world: World, backend: KubernetesBackend) -> None:
        assert await backend.launch(a_gang(3, 1)) == {}
        pod, claim = world.api.our_pod(), claim_in(world.api)
        name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
        assert given(world.api) == [GPU.format(3), GPU.format(1)]
        assert claim["spec"]["devices"]["requests"] == [
            {
                "name": "devices-0",
                "exactly": {
                    "deviceClassName": "gpu.nvidia.com",
                    "allocationMode": "ExactCount",
                    "count": 2,
                },
            }
        ]
        (owner,) = claim["metadata"]["ownerReferences"]
        assert (owner["uid"], owner["controller"]) == (uid, True)
        assert claim["status"]["reservedFor"] == [
            {"resource": "pods", "name": name, "uid": uid}
        ]
        (term,) = claim["status"]["allocation"]["nodeSelector"]["nodeSelectorTerms"]
        assert term["matchFields"] == [
            {"key": "metadata.name", "operator": "In", "values": ["n1"]}
        ]
        (container,) = pod["spec"]["containers"]
        assert container["resources"]["claims"] == [{"name": "devices"}]
        assert "nvidia.com/gpu" not in container["resources"]["limits"]
        assert {"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"} in container["env"]
        assert pod["spec"]["resourceClaims"] == [
            {"name": "devices", "resourceClaimName": claim["metadata"]["name"]}
        ]
        assert pod["spec"]["nodeName"] == "n1"

    play(world, story)


def test_a_claim_is_given_before_its_pod_is_put_on_its_node(world: World) -> None:
    async def story(world: World, backend: KubernetesBackend) -> None:
        await backend.launch(a_gang(0))
        asked = world.api.asked
        status, binding = f"{CLAIMS}/{name_of(world)}/status", f"{world.pod}/binding"
        assert asked.index(("PATCH", status)) < asked.index(("POST", binding))

    play(world, story)


def name_of(world: World) -> str:
    return world.api.our_pod()["metadata"]["name"]


def test_what_a_class_sets_up_is_said_with_the_devices(world: World) -> None:
    opaque = {"driver": "gpu.nvidia.com", "parameters": {"kind": "GpuConfig"}}
    spec = {**NVIDIA["spec"], "config": [{"opaque": opaque}]}
    world.api.devices.define({**NVIDIA, "spec": spec})

    async def story(world: World, backend: KubernetesBackend) -> None:
        await backend.launch(a_gang(0))
        assert claim_in(world.api)["status"]["allocation"]["devices"]["config"] == [
            {"source": "FromClass", "requests": ["devices-0"], "opaque": opaque}
        ]

    play(world, story)


def test_devices_of_two_classes_are_asked_for_one_by_one(world: World) -> None:
    other = {
        "metadata": {"name": "gpu.amd.com", "uid": "c2"},
        "spec": {"selectors": [{"cel": {"expression": "device.driver == 'gpu.amd.com'"}}]},
    }
    world.api.devices.define(other)
    world.api.devices.publish(
        a_slice("n1", {"name": "gpu-0"}, name="amd", driver="gpu.amd.com")
    )
    amd = Device(DeviceIndex(4), "gpu", uuid="gpu.amd.com/n1/gpu-0", virtual=False)
    node = named_node()
    world.nodes = [msgspec.structs.replace(node, devices=(*node.devices, amd))]

    async def story(world: World, backend: KubernetesBackend) -> None:
        assert await backend.launch(a_gang(0, 4)) == {}
        results = claim_in(world.api)["status"]["allocation"]["devices"]["results"]
        assert [(each["request"], each["driver"]) for each in results] == [
            ("devices-0", "gpu.nvidia.com"),
            ("devices-1", "gpu.amd.com"),
        ]

    play(world, story)


def test_a_task_without_devices_has_no_claim(world: World) -> None:
    async def story(world: World, backend: KubernetesBackend) -> None:
        await backend.launch(a_gang())
        assert not world.api.devices.claims
        assert "resourceClaims" not in world.api.our_pod()["spec"]

    play(world, story)


def test_where_the_cluster_has_no_such_devices_they_are_counted(world: World) -> None:
    world.api.devices.is_there = False
    world.nodes = [a_node()]

    async def story(world: World, backend: KubernetesBackend) -> None:
        await backend.launch(a_gang(0, 1))
        (container,) = world.api.our_pod()["spec"]["containers"]
        assert container["resources"]["limits"]["nvidia.com/gpu"] == "2"
        assert not world.api.devices.claims

    play(world, story)


# ── what breaks ─────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("where", ["claim", "status"])
def test_an_answer_that_is_lost_makes_nothing_twice(world: World, where: str) -> None:
    async def story(world: World, backend: KubernetesBackend) -> None:
        if where == "claim":
            world.api.says["POST", CLAIMS] = [LOST]
            with pytest.raises(EngineAway):
                await backend.launch(a_gang(2))
        else:
            await loses_the_status(world, backend)
        assert "nodeName" not in world.api.our_pod()["spec"]
        assert await backend.launch(a_gang(2)) == {}
        assert given(world.api) == [GPU.format(2)]
        assert world.api.our_pod()["spec"]["nodeName"] == "n1"

    play(world, story)


async def loses_the_status(world: World, backend: KubernetesBackend) -> None:
    """Launch a task whose claim is given devices, which is not answered."""

    def lose() -> None:
        world.api.says["PATCH", f"{CLAIMS}/{name_of(world)}/status"] = [LOST]

    world.api.before["POST", CLAIMS] = lose
    with pytest.raises(EngineAway):
        await backend.launch(a_gang(2))
    assert given(world.api) == [GPU.format(2)]


def test_a_service_that_starts_anew_goes_on_with_the_same_claim(world: World) -> None:
    async def before(world: World, backend: KubernetesBackend) -> None:
        await loses_the_status(world, backend)

    async def after(world: World, backend: KubernetesBackend) -> None:
        uid = claim_in(world.api)["metadata"]["uid"]
        await backend.observe([KEY])
        assert await backend.launch(a_gang(2)) == {}
        assert claim_in(world.api)["metadata"]["uid"] == uid
        assert world.asks("POST", f"{world.pod}/binding") == 1

    play(world, before)
    play(world, after)


def test_a_claim_of_an_earlier_pod_of_that_name_is_made_anew(world: World) -> None:
    async def story(world: World, backend: KubernetesBackend) -> None:
        await loses_the_status(world, backend)
        world.api.pods.pop(f"ns/{name_of(world)}")  # deleted, and nobody heard of it
        assert await backend.launch(a_gang(2)) == {}
        (owner,) = claim_in(world.api)["metadata"]["ownerReferences"]
        assert owner["uid"] == world.api.our_pod()["metadata"]["uid"]
        assert given(world.api) == [GPU.format(2)]

    play(world, story)


def test_a_claim_that_somebody_else_changed_is_looked_at_again(world: World) -> None:
    async def story(world: World, backend: KubernetesBackend) -> None:
        def change() -> None:
            at = f"ns/{name_of(world)}"
            world.api.before["PATCH", f"{CLAIMS}/{name_of(world)}/status"] = touch
            assert at not in world.api.devices.claims

        def touch() -> None:
            claim_in(world.api)["metadata"]["resourceVersion"] = "other"

        world.api.before["POST", CLAIMS] = change
        assert await backend.launch(a_gang(2)) == {}
        assert given(world.api) == [GPU.format(2)]

    play(world, story)


def refusal(refused: Refused) -> str:
    (why,) = refused.values()
    return why


def test_a_device_that_another_scheduler_gave_away_is_not_given(world: World) -> None:
    world.api.devices.give("team/a", GPU.format(2))

    async def story(world: World, backend: KubernetesBackend) -> None:
        why = refusal(await backend.launch(a_gang(1, 2)))
        assert why == f"ResourceClaim team/a has device {GPU.format(2)}"
        await backend.stop(KEY, "TERM", Millis(0))
        await until(world.ends)
        assert list(world.api.devices.claims) == ["team/a"]
        assert not any(at.startswith("ns/") for at in world.api.pods)

    play(world, story)


def test_a_device_that_is_not_offered_any_more_is_not_given(world: World) -> None:
    world.api.devices.publish(a_slice("n1", a_device("gpu-0")))

    async def story(world: World, backend: KubernetesBackend) -> None:
        why = refusal(await backend.launch(a_gang(1)))
        assert why == f"node n1 does not offer device {GPU.format(1)} now"

    play(world, story)


def test_a_claim_that_somebody_made_in_our_place_is_not_used(world: World) -> None:
    async def story(world: World, backend: KubernetesBackend) -> None:
        def intrude() -> None:
            world.api.devices.give(f"ns/{name_of(world)}", GPU.format(0), **{LAUNCH: "x"})

        world.api.before["POST", CLAIMS] = intrude
        why = refusal(await backend.launch(a_gang(1)))
        assert "was not made by this service: check who else may make claims there" in why
        assert "nodeName" not in world.api.our_pod()["spec"]

    play(world, story)


def test_claims_that_may_not_be_made_start_nothing(world: World) -> None:
    world.api.forbids.add(("POST", CLAIMS))

    async def story(world: World, backend: KubernetesBackend) -> None:
        assert "HTTP 403" in refusal(await backend.launch(a_gang(1)))
        assert world.asks("POST", f"{world.pod}/binding") == 0

    play(world, story)


def test_nothing_is_given_while_it_is_not_known_who_has_what(world: World) -> None:
    world.api.forbids.add(("GET", "/apis/resource.k8s.io/v1/resourceclaims"))

    async def story(world: World, backend: KubernetesBackend) -> None:
        with pytest.raises(EngineAway, match="does not list its claims"):
            await backend.launch(a_gang(1))

    play(world, story)


def test_more_devices_than_a_claim_can_have_are_refused(world: World) -> None:
    world.nodes = [named_node(40)]

    async def story(world: World, backend: KubernetesBackend) -> None:
        why = refusal(await backend.launch(a_gang(*range(33))))
        assert "a ResourceClaim has 32 at most" in why
        assert not world.api.pods

    play(world, story)


# ── the end ─────────────────────────────────────────────────────────────────────────────


def test_devices_are_free_when_the_end_of_their_task_is_told(world: World) -> None:
    async def story(world: World, backend: KubernetesBackend) -> None:
        await backend.launch(a_gang(1))
        world.api.run()
        world.api.finish(0)
        await until(world.ends)
        assert not world.api.devices.claims

    play(world, story)


def test_a_gang_that_waits_holds_its_devices_and_lets_go_of_them(world: World) -> None:
    async def story(world: World, backend: KubernetesBackend) -> None:
        await backend.launch(a_gang(1, at_barrier=True))
        assert world.said(Seen.READY)
        assert given(world.api) == [GPU.format(1)]
        await backend.stop(KEY, "TERM", Millis(5000))
        await until(world.ends)
        assert not world.api.devices.claims

    play(world, story)


def test_what_a_claim_of_a_task_that_ended_holds_is_given_on(world: World) -> None:
    async def story(world: World, backend: KubernetesBackend) -> None:
        stale = {SERVICE: backend._cluster.service, LAUNCH: "old"}
        world.api.devices.give("ns/stale", GPU.format(1), **stale)
        await until(lambda: list(backend._cluster.inventory.held_by(GPU.format(1))))
        assert await backend.launch(a_gang(1)) == {}

    play(world, story)


def test_what_claims_of_others_hold_is_told_by_index(world: World) -> None:
    world.api.devices.give("team/a", GPU.format(2))

    def told() -> tuple[int, ...] | None:
        found = [each for each in world.reports if isinstance(each, OthersReport)]
        return found[-1].use.indexes if found else None

    async def story(world: World, backend: KubernetesBackend) -> None:
        await until(lambda: told() == (2,))
        await backend.launch(a_gang(0))
        world.api.devices.take_away("team/a")
        await until(lambda: told() == ())
        world.api.devices.withdraw("n1-slice")
        await until(lambda: told() == (0, 1, 2, 3))

    play(world, story)
