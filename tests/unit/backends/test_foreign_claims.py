"""Resource claims of pods that others made: what is granted, and how devices are given."""

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator, Callable, Coroutine
from pathlib import Path
from typing import Any

import msgspec
import pytest

from allotment.backends.kubernetes import backend as backend_of
from allotment.backends.kubernetes import client as client_of
from allotment.backends.kubernetes import foreign_pods, telling, watch
from allotment.backends.kubernetes.asked_claims import wanted_by
from allotment.backends.kubernetes.backend import KubernetesBackend
from allotment.backends.kubernetes.device_objects import (
    PROTECTION,
    DeviceClass,
    ResourceClaim,
    ResourceSlice,
)
from allotment.backends.kubernetes.foreign import Flaw, Rules, Wanted, claim_of
from allotment.backends.kubernetes.inventory import Inventory
from allotment.backends.kubernetes.objects import Pod, read
from allotment.model.cluster import Device, Node
from allotment.model.engines import EngineSetup, EngineType
from allotment.model.errors import EngineAway
from allotment.model.ids import AttemptNo, DeviceIndex, JobId, NodeId, TaskIndex, TaskKey
from allotment.model.quantity import GIB, NOTHING, Millis
from allotment.model.reports import OthersReport, Seen, TaskReport
from allotment.model.spec import Offered
from allotment.service.ports import Binding, GangLaunch, Report, TaskLaunch
from tests.support.kube_api import LOST, KubeApi
from tests.support.kube_devices import API, NVIDIA, a_device, a_request, a_slice
from tests.support.kube_world import a_kubeconfig, until

GPU = "gpu.nvidia.com/n1/gpu-{}"
KEY = TaskKey(JobId(7), AttemptNo(1), TaskIndex(0))
AT = f"{API}/namespaces/team/resourceclaims/c"
BINDING = "/api/v1/namespaces/team/pods/a/binding"

# ── what is granted ─────────────────────────────────────────────────────────────────────


def a_pod(
    *claims: dict[str, str], made: tuple[dict[str, str | None], ...] = (), **spec: Any
) -> Pod:
    tree = {
        "metadata": {"name": "p", "namespace": "team", "uid": "u"},
        "spec": {
            "schedulerName": "allotment",
            "containers": [{}],
            "resourceClaims": list(claims),
            **spec,
        },
        "status": {"resourceClaimStatuses": list(made)},
    }
    pod = read(json.dumps(tree).encode(), Pod)
    assert pod is not None
    return pod


NAMED_C = {"name": "x", "resourceClaimName": "c"}


def an_inventory(*requests: dict[str, Any], **more: Any) -> Inventory:
    """Return two nodes with three GPUs each, and the claim `c` in namespace `team`."""
    found = Inventory()
    found.take_classes([msgspec.convert(NVIDIA, DeviceClass)])
    gpus = [a_device(f"gpu-{each}") for each in range(3)]
    slices = [more.pop("slice", a_slice("n1", *gpus)), a_slice("n2", *gpus)]
    found.take_slices([msgspec.convert(each, ResourceSlice) for each in slices])
    meta = {"name": "c", "namespace": "team", "uid": "cu", **more.pop("meta", {})}
    spec = {"devices": {"requests": list(requests), **more.pop("devices", {})}}
    claim = msgspec.convert({"metadata": meta, "spec": spec, **more}, ResourceClaim)
    found.take_claims([claim])
    return found


def flaw_of(pod: Pod, inventory: Inventory) -> str:
    with pytest.raises(Flaw) as flaw:
        wanted_by(pod, inventory)
    return flaw.value.reason


def test_claims_ask_for_devices_of_the_types_that_their_class_means() -> None:
    wanted = Wanted(3, ("nvidia-a100-sxm4-80gb",))
    both = a_request("a", 2), a_request("b", 1)
    assert wanted_by(a_pod(NAMED_C), an_inventory(*both)) == wanted
    every = a_request(allocationMode="All", count=0)
    assert wanted_by(a_pod(NAMED_C), an_inventory(every)) == wanted
    assert wanted_by(a_pod(), an_inventory(a_request())) == Wanted()


def test_a_claim_of_a_template_is_known_once_it_is_made() -> None:
    inventory = an_inventory(a_request())
    asked = {"name": "x", "resourceClaimTemplateName": "t"}
    assert flaw_of(a_pod(asked), inventory) == "ClaimNotMade"
    made = a_pod(asked, made=({"name": "x", "resourceClaimName": "c"},))
    assert wanted_by(made, inventory).devices == 1
    none = a_pod(asked, made=({"name": "x", "resourceClaimName": None},))
    assert wanted_by(none, inventory) == Wanted()
    other = a_pod(asked, made=({"name": "x", "resourceClaimName": "d"},))
    assert flaw_of(other, inventory) == "ClaimMissing"


CEL = {"cel": {"expression": "true"}}
GIVEN = {"request": "gpu", "driver": "gpu.nvidia.com", "pool": "n1", "device": "gpu-0"}
USED = {"allocation": {"devices": {"results": [GIVEN]}}}


@pytest.mark.parametrize(
    ("request_", "more", "reason"),
    [
        ({"name": "x", "firstAvailable": [{}]}, {}, "ClaimChoice"),
        (a_request(selectors=[CEL]), {}, "ClaimShape"),
        (a_request(adminAccess=True), {}, "ClaimShape"),
        (a_request(tolerations=[{"operator": "Exists"}]), {}, "ClaimShape"),
        (a_request(capacity={"requests": {"memory": "1Gi"}}), {}, "ClaimShape"),
        (a_request(allocationMode="Some"), {}, "ClaimShape"),
        (a_request(count=2**62), {}, "ClaimTooLarge"),
        (a_request(deviceClassName="nic.example.org"), {}, "ClaimClass"),
        (
            a_request(),
            {"devices": {"constraints": [{"matchAttribute": "a/b"}]}},
            "ClaimConstraints",
        ),
        (a_request(), {"status": USED}, "ClaimTaken"),
        (
            a_request(),
            {"status": {"reservedFor": [{"resource": "pods", "name": "q", "uid": "other"}]}},
            "ClaimTaken",
        ),
        (
            a_request(),
            {
                "meta": {
                    "ownerReferences": [{"kind": "PodGroup", "uid": "g", "controller": True}]
                }
            },
            "ClaimShared",
        ),
        (
            a_request(allocationMode="All"),
            {"slice": a_slice("n1", a_device("gpu-0"))},
            "ClaimAll",
        ),
    ],
)
def test_what_is_no_plain_claim_of_one_pod_is_refused_with_its_reason(
    request_: dict[str, Any], more: dict[str, Any], reason: str
) -> None:
    assert flaw_of(a_pod(NAMED_C), an_inventory(request_, **more)) == reason


def test_a_claim_that_has_its_devices_for_this_very_pod_is_granted() -> None:
    user = {"resource": "pods", "name": "p", "uid": "u"}
    status = {**USED, "reservedFor": [user]}
    assert wanted_by(a_pod(NAMED_C), an_inventory(a_request(), status=status)).devices == 1


def test_a_class_that_means_some_devices_of_a_type_only_cannot_be_planned() -> None:
    inventory = an_inventory(a_request(deviceClassName="some"))
    label = {"allotment.io/devices": "true"}
    test = "device.attributes['gpu.nvidia.com'].uuid == 'GPU-gpu-1'"
    some = {"metadata": {"name": "some", "labels": label},
            "spec": {"selectors": [{"cel": {"expression": test}}]}}  # fmt: skip
    inventory.take_class(msgspec.convert(some, DeviceClass), False)
    assert flaw_of(a_pod(NAMED_C), inventory) == "ClaimClass"


def test_devices_are_asked_for_in_one_way_and_of_types_that_fit() -> None:
    def claimed(**spec: Any) -> Any:
        rules = Rules("k8s", {"team": ("lab",)}, None, lambda pod: Wanted(2, ("a100", "h100")))
        return claim_of(a_pod(NAMED_C, **spec), rules)

    claim = claimed()
    assert (claim.need.gpu_milli, claim.types, claim.device) == (2000, ("a100", "h100"), "")
    label = "nvidia.com/gpu.product"
    assert claimed(nodeSelector={label: "H100"}).types == ("h100",)
    with pytest.raises(Flaw, match="its nodeSelector is for b200"):
        claimed(nodeSelector={label: "B200"})
    asking = {"resources": {"limits": {"nvidia.com/gpu": "1"}}}
    with pytest.raises(Flaw, match="by number, and by resourceClaims"):
        claimed(containers=[asking])


# ── how it is given ─────────────────────────────────────────────────────────────────────


class World:
    """A node with three GPUs that have names, and a pod `a` with the claim `c`."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.api = folder, KubeApi()
        self.reports: list[Report] = []
        self.key = ""
        """Of an offer."""
        self.resumed: dict[str, dict[TaskKey, Offered]] = {}
        """Tasks that have a place at the start."""
        self.api.add_node("n1")
        devices = self.api.devices
        devices.is_there = True
        devices.define(NVIDIA)
        devices.publish(a_slice("n1", *(a_device(f"gpu-{each}") for each in range(3))))
        self.pod = Offered("team/a", self.api.offer("a"))
        self.api.pods["team/a"]["spec"]["resourceClaims"] = [NAMED_C]

    @contextlib.asynccontextmanager
    async def service(self) -> AsyncGenerator[KubernetesBackend]:
        setup = EngineSetup(
            "k8s", EngineType.KUBERNETES, kubeconfig=str(a_kubeconfig(self.folder)),
            namespaces=(("team", ("lab",)), ("other", ("lab",))),
        )  # fmt: skip
        devices = tuple(
            Device(
                DeviceIndex(each), "nvidia-a100-sxm4-80gb", uuid=GPU.format(each), virtual=False
            )
            for each in range(3)
        )
        nodes = [Node(NodeId(0), "n1", 8000, 32 * GIB, 0, devices)]
        backend = KubernetesBackend(self.folder, setup, lambda: nodes)
        backend.resume(self.resumed)
        await backend.start(self.reports.append)
        try:
            yield backend
        finally:
            await backend.close()

    @property
    def claim(self) -> dict[str, Any]:
        return self.api.devices.claims["team/c"]

    def given(self) -> list[str]:
        allocation = self.claim.get("status", {}).get(
            "allocation", {"devices": {"results": []}}
        )
        return [
            "/".join((each["driver"], each["pool"], each["device"]))
            for each in allocation["devices"]["results"]
        ]

    def node(self) -> str:
        return self.api.pods["team/a"]["spec"].get("nodeName", "")

    def ends(self) -> list[TaskReport]:
        told = [each for each in self.reports if isinstance(each, TaskReport)]
        return [each for each in told if each.seen is Seen.ENDED]

    def others(self) -> tuple[int, ...]:
        told = [each for each in self.reports if isinstance(each, OthersReport)]
        return told[-1].use.indexes if told else ()

    def gang(self, *devices: int) -> GangLaunch:
        task = TaskLaunch(KEY, "pods.0", Binding("n1", devices), (), (), NOTHING, self.pod)
        return GangLaunch((task,), workdir="")


Story = Callable[[World, KubernetesBackend], Coroutine[Any, Any, None]]


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    made = World(tmp_path)
    monkeypatch.setattr(client_of, "Http", made.api.opened)
    monkeypatch.setattr(client_of, "PAUSE_S", 0)
    monkeypatch.setattr(watch, "FIRST_PAUSE_S", 0)
    for name in ("LOOK_EVERY_S", "SIZES_EVERY_S", "RIGHTS_EVERY_S"):
        monkeypatch.setattr(foreign_pods, name, 0.01)
    monkeypatch.setattr(backend_of, "LOOK_EVERY_S", 0.01)
    monkeypatch.setattr(telling, "AFTER_S", 0.0)
    return made


def play(world: World, story: Story) -> None:
    async def run() -> None:
        async with world.service() as backend:
            await until(backend._cluster.devices.listed.is_set)
            await story(world, backend)

    asyncio.run(run())


def test_a_pod_is_offered_once_its_claim_is_there(world: World) -> None:
    async def story(world: World, backend: KubernetesBackend) -> None:
        await until(lambda: "there is no ResourceClaim c" in backend.why_not_offered("team/a"))
        world.api.devices.ask_for("team/c", a_request(count=2))
        (offer,) = await backend.next_offers()
        (role,) = offer.spec.roles
        assert role.resources.gpu_milli == 2000
        assert role.gpu_types == ("nvidia-a100-sxm4-80gb",)

    play(world, story)


def test_after_a_start_nothing_is_taken_back_before_claims_are_known(world: World) -> None:
    world.api.devices.ask_for("team/c", a_request())

    async def first(world: World, backend: KubernetesBackend) -> None:
        (offer,) = await backend.next_offers()
        world.key = offer.key

    async def again() -> None:
        world.api.before["GET", API] = lambda: world.api.says["GET", API].extend([503] * 3)
        async with world.service() as backend:
            more = asyncio.create_task(backend.next_offers())  # as the service does
            said: list[bool | None] = []
            while not said or said[-1] is None:
                said.append(backend.is_offered(world.key))
                await asyncio.sleep(0.001)
            assert said[0] is None
            assert said[-1] is True
            more.cancel()

    play(world, first)
    asyncio.run(again())


def test_a_pod_is_weighed_again_when_devices_come_or_its_claim_changes(world: World) -> None:
    world.api.devices.ask_for("team/c", a_request())
    world.api.devices.withdraw("n1-slice")

    async def story(world: World, backend: KubernetesBackend) -> None:
        await until(lambda: "no node has a device" in backend.why_not_offered("team/a"))
        world.api.devices.publish(a_slice("n1", a_device("gpu-0")))
        (offer,) = await backend.next_offers()
        assert backend.is_offered(offer.key) is True
        more = asyncio.create_task(backend.next_offers())
        world.api.devices.give("team/c", GPU.format(0))
        await until(lambda: "is given to others" in backend.why_not_offered("team/a"))
        await until(lambda: backend.is_offered(offer.key) is False)
        more.cancel()

    play(world, story)


def test_of_what_others_write_into_their_claims_little_is_kept() -> None:
    long = {"annotations": {"a": "x" * 100_000}, "labels": {"b": "y"}}
    config = {"opaque": {"driver": "d", "parameters": {"z": "z" * 10_000}}}
    inventory = an_inventory(a_request(), meta=long, devices={"config": [config] * 32})
    kept = inventory.claim("team/c")
    assert kept is not None
    assert len(msgspec.json.encode(kept)) < 1_000


def test_a_claim_is_given_just_what_was_planned_and_then_its_pod_is_bound(world: World) -> None:
    opaque = {"driver": "gpu.nvidia.com", "parameters": {}}
    config = [{"requests": ["gpu"], "opaque": opaque}]
    world.api.devices.ask_for("team/c", a_request(count=2), devices={"config": config})

    async def story(world: World, backend: KubernetesBackend) -> None:
        await backend.launch(world.gang(2, 0))
        assert world.node() == "n1"
        assert world.given() == [GPU.format(2), GPU.format(0)]
        assert world.claim["metadata"]["finalizers"] == [PROTECTION]
        (user,) = world.claim["status"]["reservedFor"]
        assert user == {"resource": "pods", "name": "a", "uid": world.pod.uid}
        found = world.claim["status"]["allocation"]["devices"]["config"]
        assert found == [{"source": "FromClaim", **config[0]}]
        asked = world.api.asked
        assert asked.index(("PATCH", f"{AT}/status")) < asked.index(("POST", BINDING))
        await until(lambda: list(backend._cluster.inventory.held_by(GPU.format(2))))
        assert world.others() == (), "it is a task of ours that has them"

    play(world, story)


@pytest.mark.parametrize("where", [("PATCH", AT), ("PATCH", f"{AT}/status"), ("POST", BINDING)])
def test_a_lost_answer_gives_nothing_twice(world: World, where: tuple[str, str]) -> None:
    world.api.devices.ask_for("team/c", a_request())

    async def story(world: World, backend: KubernetesBackend) -> None:
        world.api.says[where] = [LOST]
        with pytest.raises(EngineAway):
            await backend.launch(world.gang(1))
        await backend.launch(world.gang(1))
        assert (world.given(), world.node()) == ([GPU.format(1)], "n1")
        assert not world.ends()

    play(world, story)


def why(world: World) -> str:
    (end,) = world.ends()
    assert end.exit is not None
    return end.exit.platform_error


def test_a_pod_that_is_put_on_no_node_has_no_devices(world: World) -> None:
    world.api.devices.ask_for("team/c", a_request())
    world.api.forbids.add(("POST", BINDING))

    async def story(world: World, backend: KubernetesBackend) -> None:
        await backend.launch(world.gang(1))
        assert "not put on its node" in why(world)
        await until(lambda: not world.given())
        await until(lambda: world.others() == ())
        world.api.forbids.clear()
        world.reports.clear()
        await backend.launch(world.gang(2))
        assert (world.given(), world.node()) == ([GPU.format(2)], "n1")

    play(world, story)


@pytest.mark.parametrize(
    ("request_", "devices", "said"),
    [
        (a_request(count=2), (0,), "asks for 2 devices, and 1 of those planned are for it"),
        (a_request(), (0, 1), "its claims ask for 1 devices fewer"),
        (a_request(selectors=[CEL]), (0,), "has selectors, which Allotment does not keep"),
        (
            a_request(allocationMode="All", count=0),
            (0, 1),
            "asks for 3 devices, and 2 of those",
        ),
    ],
)
def test_claims_that_ask_for_something_else_by_now_are_not_given(
    world: World, request_: dict[str, Any], devices: tuple[int, ...], said: str
) -> None:
    world.api.devices.ask_for("team/c", request_)

    async def story(world: World, backend: KubernetesBackend) -> None:
        await backend.launch(world.gang(*devices))
        assert said in why(world)
        assert (world.given(), world.node()) == ([], "")

    play(world, story)


def test_a_device_that_another_scheduler_gave_away_is_not_given(world: World) -> None:
    world.api.devices.ask_for("team/c", a_request())
    world.api.devices.give("other/b", GPU.format(1))

    async def story(world: World, backend: KubernetesBackend) -> None:
        await backend.launch(world.gang(1))
        assert "ResourceClaim other/b has device" in why(world)

    play(world, story)


def test_devices_of_a_pod_that_ended_are_taken_until_its_claim_is_empty(world: World) -> None:
    world.api.devices.ask_for("team/c", a_request())

    async def story(world: World, backend: KubernetesBackend) -> None:
        await backend.launch(world.gang(1))
        await until(lambda: list(backend._cluster.inventory.held_by(GPU.format(1))))
        world.api.show("team/a", "Succeeded")
        await until(world.ends)
        await until(lambda: world.others() == (1,))
        world.api.devices.take_away("team/c")
        await until(lambda: world.others() == ())

    play(world, story)


def test_a_pod_with_claims_that_is_stopped_before_it_is_bound_lets_go(world: World) -> None:
    world.api.devices.ask_for("team/c", a_request())

    async def story(world: World, backend: KubernetesBackend) -> None:
        world.api.says["POST", BINDING] = [503] * 4
        with pytest.raises(EngineAway):
            await backend.launch(world.gang(1))
        assert world.given() == [GPU.format(1)]
        await backend.stop(KEY, "TERM", Millis(1000))
        assert world.ends()
        await until(lambda: not world.given())

    play(world, story)


def test_devices_of_a_pod_that_is_stopped_after_a_restart_are_let_go_of(world: World) -> None:
    world.api.devices.ask_for("team/c", a_request())

    async def first(world: World, backend: KubernetesBackend) -> None:
        world.api.says["POST", BINDING] = [503] * 4
        with pytest.raises(EngineAway):
            await backend.launch(world.gang(1))
        assert world.given() == [GPU.format(1)]

    async def again(world: World, backend: KubernetesBackend) -> None:
        await backend.stop(KEY, "TERM", Millis(1000))
        assert world.ends()
        await until(lambda: not world.given())
        await until(lambda: world.others() == ())

    play(world, first)
    world.resumed = {"k8s": {KEY: world.pod}}
    play(world, again)


@pytest.mark.parametrize("were_known", [True, False])
def test_a_namespace_that_takes_our_rights_away_has_no_other_wait(
    world: World, *, were_known: bool
) -> None:
    world.api.devices.ask_for("team/c", a_request())
    world.api.devices.withdraw("n1-slice")
    world.api.offer("b", "other")
    world.api.pods["other/b"]["spec"]["resourceClaims"] = [NAMED_C]
    world.api.devices.ask_for("other/c", a_request())

    async def story(world: World, backend: KubernetesBackend) -> None:
        for name in ("team/a", "other/b"):
            await until(lambda at=name: "no node has a device" in backend.why_not_offered(at))
        world.api.forbids.add(("GET", "/api/v1/namespaces/team/pods/a"))
        if not were_known:  # as after a start
            backend._client._allowed.clear()
        world.api.devices.publish(a_slice("n1", a_device("gpu-0")))
        (offer,) = await backend.next_offers()
        assert [pod.name for pod in offer.spec.offered] == ["other/b"]
        said = "no node has a device" if were_known else "may not read it"
        assert said in backend.why_not_offered("team/a")
        world.api.forbids.clear()
        (offer,) = await backend.next_offers()
        assert [pod.name for pod in offer.spec.offered] == ["team/a"]

    play(world, story)
