"""Pods of others as tasks: what is asked of Kubernetes, whatever is lost or refused between."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Coroutine
from functools import partial, wraps
from itertools import count
from pathlib import Path
from typing import ParamSpec

import msgspec
import pytest

from allotment.backends.kubernetes import backend as backend_of
from allotment.backends.kubernetes import client as client_of
from allotment.backends.kubernetes import (
    foreign_pods,
    guests,
    offers,
    silent_nodes,
    telling,
    watch,
)
from allotment.backends.kubernetes.backend import KubernetesBackend
from allotment.backends.kubernetes.foreign import (
    HIVED,
    VERSIONS,
    Claim,
    ReadHived,
    Rules,
    claim_of,
)
from allotment.backends.kubernetes.objects import Pod
from allotment.model.cluster import Device, Node
from allotment.model.engines import EngineSetup, EngineType
from allotment.model.errors import BadInput, Problem
from allotment.model.ids import AttemptNo, DeviceIndex, JobId, NodeId, TaskIndex, TaskKey
from allotment.model.quantity import GIB, NOTHING, Millis
from allotment.model.reasons import StopCause
from allotment.model.reports import Seen, TaskReport
from allotment.model.spec import JobSpec, Offered
from allotment.service.ports import Binding, GangLaunch, Report, TaskLaunch
from tests.support.kube_api import ALL_PODS, LOST, NODES, PODS, KubeApi
from tests.support.kube_devices import NVIDIA, a_device, a_slice
from tests.support.kube_world import a_kubeconfig
from tests.support.patience import PATIENCE_S

TEAM = "/api/v1/namespaces/team/pods"
REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


def key_of(index: int, attempt: int = 1) -> TaskKey:
    return TaskKey(JobId(7), AttemptNo(attempt), TaskIndex(index))


def the_gang(*pods: Offered, attempt: int = 1) -> GangLaunch:
    tasks = tuple(
        TaskLaunch(key_of(n, attempt), f"pods.{n}", Binding("n1"), (), (), NOTHING, pod)
        for n, pod in enumerate(pods)
    )
    return GangLaunch(tasks, workdir="", at_barrier=len(pods) > 1)


class World:
    """A backend that places the pods of a namespace, and what it reports."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.api = folder, KubeApi()
        self.reports: list[Report] = []
        self.api.add_node("n1")

    @contextlib.asynccontextmanager
    async def service(
        self,
        resumed: dict[TaskKey, Offered] | None = None,
        namespaces: tuple[str, ...] = ("crowd", "team"),
        schedulers: tuple[str, ...] = (),
        force_after_ms: Millis = Millis(0),
    ) -> AsyncGenerator[KubernetesBackend]:
        kubeconfig = a_kubeconfig(self.folder)
        setup = EngineSetup(
            "k8s", EngineType.KUBERNETES, kubeconfig=str(kubeconfig),
            namespaces=tuple((name, ("lab",)) for name in namespaces), schedulers=schedulers,
            force_after_ms=force_after_ms,
        )  # fmt: skip
        devices = tuple(Device(DeviceIndex(index), "gpu") for index in range(4))
        nodes = [Node(NodeId(0), "n1", 8000, 32 * GIB, 0, devices)]
        backend = KubernetesBackend(self.folder, setup, lambda: nodes)
        backend.resume({"k8s": resumed or {}})
        await backend.start(self.reports.append)
        try:
            yield backend
        finally:
            await backend.close()

    def offer(self, name: str, namespace: str = "team", **words: str) -> Offered:
        return Offered(f"{namespace}/{name}", self.api.offer(name, namespace, **words))

    def seen(self, seen: Seen) -> list[TaskReport]:
        told = [each for each in self.reports if isinstance(each, TaskReport)]
        return [each for each in told if each.seen is seen]

    def node_of(self, name: str) -> str:
        return self.api.pods[f"team/{name}"]["spec"].get("nodeName", "")

    def says(self, name: str) -> str:
        return self.api.conditions.get(f"team/{name}", {}).get("reason", "")

    def asks(self, method: str, path: str) -> int:
        return self.api.asked.count((method, path))


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    made = World(tmp_path)
    monkeypatch.setattr(client_of, "Http", made.api.opened)
    monkeypatch.setattr(client_of, "PAUSE_S", 0.001)
    monkeypatch.setattr(silent_nodes, "BACK_S", 0)
    for name in ("LOOK_EVERY_S", "SIZES_EVERY_S", "RIGHTS_EVERY_S"):
        monkeypatch.setattr(foreign_pods, name, 0.01)
    monkeypatch.setattr(backend_of, "LOOK_EVERY_S", 0.01)
    monkeypatch.setattr(guests, "AGAIN_S", 0.01)
    monkeypatch.setattr(guests, "BUDGET_S", 0.2)
    monkeypatch.setattr(telling, "AFTER_S", 0.0)
    return made


P = ParamSpec("P")


def in_loop(test: Callable[P, Coroutine[None, None, None]]) -> Callable[P, None]:
    @wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        asyncio.run(test(*args, **kwargs))

    return run


async def until(check: Callable[[], object]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not check():
            await asyncio.sleep(0.001)


@in_loop
async def test_each_offer_is_handed_over_once_and_what_waits_says_why(world: World) -> None:
    pod = world.offer("one")
    half = {"allotment.io/gang": "g", "allotment.io/gang-size": "2"}
    world.offer("half", **half)
    async with world.service() as backend:
        (offer,) = await backend.next_offers()
        assert (offer.spec.name, offer.spec.offered) == ("team/one", (pod,))
        assert backend.is_offered(offer.key)
        await until(lambda: "team/half" in world.api.conditions)
        assert world.api.conditions["team/half"]["reason"] == "GangIncomplete"
        assert "1 of its 2" in backend.why_not_offered("team/half")
        backend.say("k8s", offer.spec.offered, "Capacity", "all is taken")
        await until(lambda: "team/one" in world.api.conditions)
        world.api.take_away("team/one")
        more = asyncio.create_task(backend.next_offers())  # as the service does
        await until(lambda: backend.is_offered(offer.key) is False)
        more.cancel()


@in_loop
async def test_pods_that_name_another_scheduler_are_ours_where_that_is_said(
    world: World,
) -> None:
    pod = Offered("team/one", world.api.offer("one", scheduler="hivedscheduler"))
    world.api.offer("two", scheduler="volcano")
    world.api.offer("three", "elsewhere", scheduler="hivedscheduler")
    async with world.service(schedulers=("hivedscheduler",)) as backend:
        (offer,) = await backend.next_offers()
        assert offer.spec.offered == (pod,)
        world.offer("four")
        (offer,) = await backend.next_offers()
        assert offer.spec.name == "team/four"
        assert not backend.why_not_offered("team/two")
        assert not backend.why_not_offered("elsewhere/three")
        assert world.asks("PATCH", "/api/v1/namespaces/elsewhere/pods/three/status") == 0


@in_loop
async def test_a_task_of_a_scheduler_that_is_named_no_more_is_heard_of(world: World) -> None:
    pod = Offered("team/one", world.api.offer("one", scheduler="hivedscheduler"))
    world.api.pods["team/one"]["spec"]["nodeName"] = "n1"
    async with world.service({key_of(0): pod}) as backend:
        await backend.observe([key_of(0)])
        world.api.show("team/one", "Succeeded")
        await until(lambda: world.seen(Seen.ENDED))


@in_loop
async def test_while_rights_are_not_known_nothing_is_taken_for_gone(world: World) -> None:
    world.offer("one")
    async with world.service() as backend:
        (offer,) = await backend.next_offers()
    world.api.says["POST", REVIEWS] = [500] * 40
    async with world.service() as backend:
        assert backend.is_offered(offer.key) is None
        (again,) = await backend.next_offers()
        assert again.key == offer.key
        assert backend.is_offered(offer.key) is True


@in_loop
async def test_a_lost_answer_to_a_binding_does_no_harm(world: World) -> None:
    pod = world.offer("one")
    world.api.says["POST", f"{TEAM}/one/binding"] = [LOST, 200]
    async with world.service() as backend:
        with contextlib.suppress(Exception):
            await backend.launch(the_gang(pod))
        assert await backend.launch(the_gang(pod)) == {}
        assert world.node_of("one") == "n1"
        world.api.show("team/one", "Running")
        await until(lambda: world.seen(Seen.RUNNING))
        world.api.show("team/one", "Succeeded")
        await until(lambda: world.seen(Seen.ENDED))
    (end,) = world.seen(Seen.ENDED)
    assert end.exit is not None
    assert end.exit.ok


@in_loop
async def test_a_pod_made_anew_under_the_same_name_is_not_bound(world: World) -> None:
    pod = world.offer("one")
    async with world.service() as backend:
        world.api.pods.pop("team/one")  # nobody has told of it yet
        world.api.offer("one")
        await backend.launch(the_gang(pod))
        await until(lambda: world.seen(Seen.ENDED))
    assert world.node_of("one") == ""
    (end,) = world.seen(Seen.ENDED)
    assert end.stopped_for is StopCause.CANCELLED


@in_loop
async def test_a_pod_that_asks_for_a_number_is_not_put_where_devices_have_names(
    world: World,
) -> None:
    world.api.devices.is_there = True
    world.api.devices.define(NVIDIA)
    world.api.devices.publish(a_slice("n1", a_device("gpu-0")))
    pods = [world.offer(name) for name in ("a", "b")]
    async with world.service() as backend:
        await until(backend._cluster.devices.listed.is_set)
        (first,), (second,) = the_gang(pods[0]).tasks, the_gang(pods[1]).tasks
        asking = msgspec.structs.replace(first, binding=Binding("n1", (0,)))
        await backend.launch(GangLaunch((asking,), workdir=""))
        (end,) = world.seen(Seen.ENDED)
        assert end.exit is not None
        assert "n1 gives its devices by name (DRA)" in end.exit.platform_error
        assert world.node_of("a") == ""
        await backend.launch(GangLaunch((second,), workdir=""))
        assert world.node_of("b") == "n1"


@in_loop
async def test_a_gang_is_bound_when_it_may_begin_and_a_refusal_ends_only_that_pod(
    world: World,
) -> None:
    pods = [world.offer(name) for name in ("a", "b")]
    async with world.service() as backend:
        await backend.launch(the_gang(*pods))
        assert len(world.seen(Seen.READY)) == 2
        assert (world.node_of("a"), world.node_of("b")) == ("", "")
        world.api.says["POST", f"{TEAM}/b/binding"] = [403]
        await backend.open_barrier([key_of(0), key_of(1)])
        (end,) = world.seen(Seen.ENDED)
        assert (end.key, world.node_of("a"), world.node_of("b")) == (key_of(1), "n1", "")
        assert end.exit is not None
        assert "not put on its node" in end.exit.platform_error
        await backend.stop(key_of(0), "TERM", Millis(3000), StopCause.ROLE_FAILED)
        assert world.api.graces == [3]  # as the service does with the rest of a gang
        world.api.take_away("team/a")
        await until(lambda: len(world.seen(Seen.ENDED)) == 2)
        # What is left waits on, and may be part of another gang.
        assert "team/b" in world.api.pods


@in_loop
async def test_a_pod_on_no_node_stays_when_its_job_is_cancelled(world: World) -> None:
    pods = [world.offer(name) for name in ("a", "b")]
    async with world.service() as backend:
        await backend.launch(the_gang(*pods))
        await backend.stop(key_of(0), "TERM", Millis(1000), StopCause.CANCELLED)
        assert [end.key for end in world.seen(Seen.ENDED)] == [key_of(0)]
    assert "team/a" in world.api.pods
    assert world.api.graces == []


@in_loop
async def test_a_budget_keeps_a_pod_for_a_while_and_not_for_ever(
    world: World,
) -> None:
    pod = world.offer("one")
    evictions = f"{TEAM}/one/eviction"
    world.api.says["POST", evictions] = [429] * 10_000
    async with world.service() as backend:
        await backend.launch(the_gang(pod))
        await backend.stop(key_of(0), "TERM", Millis(2000), StopCause.EVICTED)
        assert world.api.conditions["team/one"]["type"] == "DisruptionTarget"
        await until(lambda: world.api.graces)
        assert world.api.graces[0] == 2
        assert world.asks("POST", evictions) > 1
        assert world.asks("DELETE", f"{TEAM}/one") >= 1
        world.api.take_away("team/one")
        await until(lambda: world.seen(Seen.ENDED))


@in_loop
async def test_a_pod_taken_from_under_its_kubelet_keeps_its_place_for_a_while(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by `kubectl delete --force`: its node hears later that it is to end."""
    monkeypatch.setattr(silent_nodes, "BACK_S", PATIENCE_S)
    pod = world.offer("one")
    async with world.service() as backend:
        await backend.launch(the_gang(pod))
        world.api.take_away("team/one")
        await until(lambda: backend._foreign.guests._guests[key_of(0)].is_gone)
        assert not world.seen(Seen.ENDED)
        monkeypatch.setattr(silent_nodes, "BACK_S", 0)
        await until(lambda: world.seen(Seen.ENDED))


@in_loop
async def test_a_pod_on_a_node_that_is_taken_for_dead_has_ended_and_is_told_so(
    world: World,
) -> None:
    """Its gang would hold its other nodes for ever."""
    pod = world.offer("one")
    path = f"{TEAM}/one"
    async with world.service() as backend:
        await backend.launch(the_gang(pod))
        world.api.silence_node("n1")
        await until(lambda: backend.silence("n1"))
        await backend._foreign.guests.look()
        assert not world.seen(Seen.ENDED), "by no rule it is taken for dead"
    resumed = {key_of(0): pod}
    world.api.says["DELETE", path] = [503] * 100_000
    async with world.service(resumed, force_after_ms=Millis(1)) as backend:
        await until(lambda: world.asks("DELETE", path) >= client_of.TRIES)
        assert not world.seen(Seen.ENDED), "it may be there still"
        world.api.says["DELETE", path].clear()
        backend._contact.answered()
        await until(lambda: world.seen(Seen.ENDED))
        assert world.api.graces == [30], "its own"
        (end,) = world.seen(Seen.ENDED)
        assert end.exit is not None
        assert end.exit.lost
        assert end.diagnosis is not None
        assert "force_after" in end.diagnosis.cause


@in_loop
async def test_after_a_restart_tasks_are_tasks_and_those_that_are_gone_have_ended(
    world: World,
) -> None:
    here, gone, waits = world.offer("here"), world.offer("gone"), world.offer("waits")
    async with world.service() as backend:
        for number, pod in enumerate((here, gone)):
            task = the_gang(here, gone).tasks[number]
            assert task.offered == pod
            await backend.launch(GangLaunch((task,), workdir=""))
        world.api.show("team/here", "Running")
        await until(lambda: world.seen(Seen.RUNNING))
    world.api.take_away("team/gone")
    world.reports.clear()
    resumed = {key_of(0): here, key_of(1): gone}
    async with world.service(resumed) as backend:
        await until(lambda: world.seen(Seen.ENDED))
        assert [end.key for end in world.seen(Seen.ENDED)] == [key_of(1)]
        assert [each.key for each in world.seen(Seen.RUNNING)] == [key_of(0)]
        assert [each.key for each in await backend.observe(list(resumed))] == [key_of(0)]
        assert await backend.launch(the_gang(here)) == {}
        (offer,) = await backend.next_offers()
        assert offer.spec.offered == (waits,)
    assert world.asks("POST", f"{TEAM}/here/binding") == 1


@in_loop
async def test_after_a_start_nothing_is_bound_again_before_pods_were_listed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    pod = world.offer("one")
    async with world.service() as backend:
        await backend.launch(the_gang(pod))
    monkeypatch.setattr(backend_of, "FIRST_S", 0.0)
    monkeypatch.setattr(watch, "FIRST_PAUSE_S", 0.01)
    world.api.says["GET", ALL_PODS] = [503] * 6
    async with world.service({key_of(0): pod}) as backend:
        await until(lambda: world.asks("GET", NODES) > 1)
        assert await backend.launch(the_gang(pod)) == {}
        assert await backend.observe([key_of(0)])
    assert world.asks("POST", f"{TEAM}/one/binding") == 1


@in_loop
async def test_while_only_our_own_pods_may_be_listed_no_others_are_taken_for_gone(
    world: World,
) -> None:
    pod = world.offer("one")
    world.offer("waits")
    async with world.service() as backend:
        await backend.launch(the_gang(pod))
        offers = [each for each in await backend.next_offers() if each.spec.offered != (pod,)]
    world.api.forbids.add(("GET", ALL_PODS))
    async with world.service({key_of(0): pod}) as backend:
        await until(lambda: world.asks("GET", PODS))
        assert not world.seen(Seen.ENDED)
        assert [each.key for each in await backend.observe([key_of(0)])] == [key_of(0)]
        assert [backend.is_offered(each.key) for each in offers] == [None]


TWO = {"allotment.io/gang": "g", "allotment.io/gang-size": "2"}


@in_loop
async def test_after_a_restart_a_running_gang_is_complete_and_makes_no_second(
    world: World,
) -> None:
    pods = [world.offer(name, **TWO) for name in ("a", "b")]
    async with world.service() as backend:
        await backend.launch(the_gang(*pods))
        await backend.open_barrier([key_of(0), key_of(1)])
    for name in ("c", "d"):
        world.offer(name, **TWO)
    async with world.service({key_of(0): pods[0], key_of(1): pods[1]}) as backend:
        offers = asyncio.create_task(backend.next_offers())
        await until(lambda: world.says("c") == "GangComplete")
        for name in ("a", "b"):
            world.api.show(f"team/{name}", "Succeeded")
        (offer,) = await offers
        assert [each.name for each in offer.spec.offered] == ["team/c", "team/d"]


@in_loop
async def test_after_a_restart_pods_of_a_gang_that_begins_are_in_no_other(
    world: World,
) -> None:
    pods = [world.offer(name, **TWO) for name in ("b", "c")]
    world.offer("a", **TWO)
    async with world.service({key_of(0): pods[0], key_of(1): pods[1]}) as backend:
        offers = asyncio.create_task(backend.next_offers())
        await until(lambda: world.says("a") == "GangComplete")
        assert not offers.done()
        offers.cancel()


@in_loop
async def test_while_a_gang_is_told_to_go_a_new_pod_does_not_join_it(world: World) -> None:
    group = {
        "pod-group.scheduling.sigs.k8s.io/name": "g",
        "pod-group.scheduling.sigs.k8s.io/min-available": "2",
    }
    pods = [world.offer(name, **group) for name in ("a", "b")]
    async with world.service() as backend:
        offers = asyncio.create_task(backend.next_offers())
        await offers
        await backend.launch(the_gang(*pods))
        await backend.open_barrier([key_of(0), key_of(1)])
        await backend.stop(key_of(0), "TERM", Millis(3000), StopCause.EVICTED)
        world.offer("c", **group)
        offers = asyncio.create_task(backend.next_offers())
        await until(lambda: world.says("c") == "GangComplete")
        assert not offers.done()
        offers.cancel()


@in_loop
async def test_a_pod_group_is_asked_in_the_version_that_the_server_has(world: World) -> None:
    for name in ("a", "b"):
        world.offer(name)
        world.api.pods[f"team/{name}"]["spec"]["schedulingGroup"] = {"podGroupName": "g"}
    where = "/apis/scheduling.k8s.io/{}/namespaces/team/podgroups/g"
    spec = {"schedulingPolicy": {"gang": {"minCount": 2}}}
    world.api.objects[where.format("v1alpha2")] = {"spec": spec}
    async with world.service() as backend:
        (offer,) = await backend.next_offers()
        assert [pod.name for pod in offer.spec.offered] == ["team/a", "team/b"]
        asked = [version for version in VERSIONS if world.asks("GET", where.format(version))]
        assert asked == list(VERSIONS)


GROUP = "scheduling.x-k8s.io/pod-group"
GROUPS = "/apis/scheduling.x-k8s.io/v1alpha1/namespaces/{}/podgroups/{}"


@in_loop
async def test_the_many_of_one_namespace_keep_no_other_waiting(world: World) -> None:
    for number in range(60):
        world.offer(f"p{number}", "crowd", **{GROUP: f"g{number}"})
    world.offer("one", **{GROUP: "mine"})
    async with world.service() as backend:
        more = asyncio.create_task(backend.next_offers())
        await until(lambda: world.says("one") == "GangUnknown")
        await until(lambda: world.asks("GET", GROUPS.format("team", "mine")))
        more.cancel()
    asked = [path for method, path in world.api.asked if method == "GET" and "podgr" in path]
    assert asked.index(GROUPS.format("team", "mine")) < 2
    told = [path for method, path in world.api.asked if method == "PATCH"]
    assert told.index(f"{TEAM}/one/status") < 4


@in_loop
async def test_that_a_pod_is_gone_is_known_while_others_ask_for_sizes(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.offer("one")
    async with world.service() as backend:
        (offer,) = await backend.next_offers()
        more = asyncio.create_task(backend.next_offers())  # as the service does
        await until(lambda: backend.is_offered("another") is False)
        monkeypatch.setattr(offers, "MOST_ASKED", 0)
        world.offer("p", "crowd", **{GROUP: "g"})
        await until(lambda: "looked up" in backend.why_not_offered("crowd/p"))
        world.api.take_away("team/one")
        await until(lambda: backend.is_offered(offer.key) is False)
        more.cancel()


@in_loop
async def test_while_the_size_of_a_gang_is_not_told_nothing_is_taken_for_gone(
    world: World,
) -> None:
    world.offer("one", **{GROUP: "mine"})
    path = GROUPS.format("team", "mine")
    world.api.says["GET", path] = [500] * 100_000
    async with world.service() as backend:
        more = asyncio.create_task(backend.next_offers())
        await until(lambda: world.asks("GET", path) > 8)
        assert backend.is_offered("of before the start") is None
        world.api.says["GET", path].clear()
        await until(lambda: backend.is_offered("of before the start") is False)
        more.cancel()


@in_loop
async def test_documents_of_pods_are_read_by_turns_and_not_at_once(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []

    def read_hived(data: bytes, name: str) -> tuple[JobSpec, int]:
        read.append(name)
        raise BadInput((Problem("is none", "here"),))

    monkeypatch.setattr(offers, "claim_of", partial(with_reader, read_hived))
    for number in range(20):
        world.offer(f"p{number}", "crowd", **{HIVED: "{}"})
    world.offer("one", **{HIVED: "{}"})
    async with world.service():
        await until(lambda: len(read) == 21)
        assert "one" in read[:2]
        assert world.says("one") in ("", "HiveDSpec")


def with_reader(read_hived: ReadHived, pod: Pod, rules: Rules) -> Claim:
    return claim_of(pod, msgspec.structs.replace(rules, read_hived=read_hived))


@in_loop
async def test_a_pod_of_a_namespace_that_is_named_no_more_runs_on_and_can_be_ended(
    world: World,
) -> None:
    pod = world.offer("one")
    async with world.service() as backend:
        await backend.launch(the_gang(pod))
    world.api.says["POST", f"{TEAM}/one/eviction"] = [429] * 10_000
    async with world.service({key_of(0): pod}, namespaces=()) as backend:
        more = asyncio.create_task(backend.next_offers())
        await until(lambda: backend.is_offered("another") is False)
        assert not world.seen(Seen.ENDED)
        await backend.stop(key_of(0), "TERM", Millis(2000), StopCause.EVICTED)
        await until(lambda: world.api.graces)
        world.api.take_away("team/one")
        await until(lambda: world.seen(Seen.ENDED))
        more.cancel()


@in_loop
async def test_rights_that_are_away_for_a_while_cost_what_waits_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(offers, "RIGHTS_S", 0.0)
    world.offer("one")
    async with world.service() as backend:
        (offer,) = await backend.next_offers()
        more = asyncio.create_task(backend.next_offers())
        world.api.allows = False
        numbers = count()

        def is_known() -> bool:
            new = world.offer(f"p{next(numbers)}").name
            first = (backend.why_not_offered(f"team/p{number}") for number in range(100))
            return bool(new) and any("no right" in why for why in first)

        await until(is_known)
        world.api.show("team/one", "Pending")
        world.offer("later")
        await until(lambda: "no right" in backend.why_not_offered("team/later"))
        assert backend.is_offered(offer.key) is True
        more.cancel()
