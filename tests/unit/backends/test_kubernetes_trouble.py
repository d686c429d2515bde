"""The Kubernetes backend where answers are lost or refused: no task is given up that runs."""

import asyncio
import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest

from allotment.backends.contact import Contact
from allotment.backends.kubernetes import backend as backend_of
from allotment.backends.kubernetes import client as client_of
from allotment.backends.kubernetes import cluster as cluster_of
from allotment.backends.kubernetes import (
    ends,
    hearing,
    logs,
    looking,
    silent_nodes,
    stopping,
    tasks,
    watch,
)
from allotment.backends.kubernetes.backend import KubernetesBackend
from allotment.backends.kubernetes.client import Client, Denied
from allotment.backends.kubernetes.kubeconfig import Access
from allotment.backends.kubernetes.objects import KubeNode, Pod
from allotment.backends.kubernetes.record import Launched, Records
from allotment.backends.kubernetes.status import Told, may_run, report
from allotment.backends.records import TaskRecords
from allotment.model.errors import BackendError, EngineAway
from allotment.model.ids import TaskKey
from allotment.model.quantity import Millis
from allotment.model.reports import NodeReport, OthersReport, Seen, TaskReport
from allotment.service.ports import GangLaunch
from tests.support.kube_api import ALL_PODS, LOST, NODES, PODS, SECRETS, KubeApi
from tests.support.kube_world import GANG, KEY, TASK, World, a_node, until
from tests.support.patience import PATIENCE_S


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    made = World(tmp_path)
    monkeypatch.setattr(client_of, "Http", made.api.opened)
    monkeypatch.setattr(client_of, "PAUSE_S", 0)
    monkeypatch.setattr(logs, "PAUSE_S", 0)
    monkeypatch.setattr(watch, "FIRST_PAUSE_S", 0)
    monkeypatch.setattr(backend_of, "LOOK_EVERY_S", 0)
    monkeypatch.setattr(ends, "FIRST_PAUSE_S", 0)
    monkeypatch.setattr(cluster_of, "FIRST_AGAIN_S", 0.01)
    return made


async def looked(world: World, path: str) -> None:
    """Wait until a pod was looked for more than once."""
    before = world.asks("GET", path)
    await until(lambda: world.asks("GET", path) >= before + 3)


# ── a pod that is bound, though nobody said so ──────────────────────────────────────────


def test_a_task_whose_binding_was_not_answered_is_stopped_as_one_that_runs(
    world: World,
) -> None:
    async def story() -> None:
        async with world.service() as backend:
            pod = f"{PODS}/{(await launched_at_barrier(world, backend))}"
            world.api.says["POST", f"{pod}/binding"] = [LOST]
            with pytest.raises(EngineAway):
                await backend.open_barrier([KEY])
            await backend.stop(KEY, "TERM", Millis(5000))
            assert world.api.graces == [5]
            assert not world.ends(), "its devices would be given on"
            world.api.finish(143)
            await until(world.ends)

    asyncio.run(story())


async def launched_at_barrier(world: World, backend: KubernetesBackend) -> str:
    """Launch a task whose pod is made and not bound; return the pod's name."""
    gang = GangLaunch(tasks=(TASK,), workdir="/w", image="pytorch:1", at_barrier=True)
    assert await backend.launch(gang) == {}
    return world.api.our_pod()["metadata"]["name"]


def test_a_binding_that_arrives_late_does_not_end_a_task_that_runs(world: World) -> None:
    async def story() -> None:
        async with world.service() as backend:
            pod = f"{PODS}/{await launched_at_barrier(world, backend)}"
            world.api.before["DELETE", pod] = lambda: world.api.put_on_node("n1")
            await backend.stop(KEY, "KILL", Millis(0))
            assert world.api.graces == [1]
            assert not world.ends()
            world.api.finish(137)
            await until(world.ends)

    asyncio.run(story())


def test_a_refused_binding_ends_a_task_unless_an_earlier_one_got_through(
    world: World,
) -> None:
    async def story() -> None:
        async with world.service() as backend:
            pod = f"{PODS}/{await launched_at_barrier(world, backend)}"
            world.api.says["POST", f"{pod}/binding"] = [LOST, 422]
            with pytest.raises(EngineAway):
                await backend.open_barrier([KEY])
            await backend.open_barrier([KEY])
            assert world.api.graces == [1]
            assert not world.ends()
            world.api.finish(143)
            await until(world.ends)

    asyncio.run(story())


def test_a_pod_on_no_node_is_taken_back_at_once(world: World) -> None:
    async def story() -> None:
        async with world.service() as backend:
            await launched_at_barrier(world, backend)
            await backend.stop(KEY, "TERM", Millis(5000))
            assert 0 not in world.api.graces
            await until(world.ends)
            assert not world.api.pods

    asyncio.run(story())


# ── a pod that begins as soon as it is made ─────────────────────────────────────────────


def test_a_task_that_stands_alone_is_one_request(world: World) -> None:
    async def story() -> None:
        async with world.service() as backend:
            assert await backend.launch(GANG) == {}
            assert [each for each in world.api.asked if each[0] != "GET"] == [("POST", PODS)]
            assert world.api.our_pod()["spec"]["nodeName"] == "n1"
            world.api.finish(3)
            await until(world.ends)

    asyncio.run(story())


NAMED = msgspec.structs.replace(TASK, env=(("TOKEN", "x"),))


def a_gang(count: int) -> GangLaunch:
    """Return a gang whose user has named a variable."""
    tasks = (
        msgspec.structs.replace(NAMED, key=msgspec.structs.replace(KEY, index=index))
        for index in range(count)
    )
    return msgspec.structs.replace(
        GANG, tasks=tuple(tasks), named=frozenset({"TOKEN"}), at_barrier=True
    )


def test_a_gang_shares_one_secret_that_is_made_once_its_pods_are_there(world: World) -> None:
    async def story() -> None:
        gang = a_gang(3)
        keys = [each.key for each in gang.tasks]
        async with world.service() as backend:
            world.api.says["POST", PODS] = [LOST]
            with pytest.raises(EngineAway):
                await backend.launch(gang)
            assert world.asks("POST", SECRETS) == 0, "it would name too few pods"
            assert not world.said(Seen.READY)
            assert await backend.launch(gang) == {}
            assert world.asks("POST", SECRETS) == 1
            (secret,) = world.api.secrets.values()
            pods = {pod["metadata"]["uid"] for pod in world.api.pods.values()}
            assert {each["uid"] for each in secret["metadata"]["ownerReferences"]} == pods
            named = {
                pod["spec"]["containers"][0]["envFrom"][0]["secretRef"]["name"]
                for pod in world.api.pods.values()
            }
            assert named == {secret["metadata"]["name"]}
            assert {each.key for each in world.said(Seen.READY)} == set(keys)
        async with world.service() as backend:
            assert {each.seen for each in await backend.observe(keys)} == {Seen.READY}
            await backend.open_barrier(keys)
            bound = [each for each in world.api.asked if each[1].endswith("/binding")]
            assert len(bound) == 3

    asyncio.run(story())


def test_a_gang_whose_secret_was_not_answered_is_not_ready(world: World) -> None:
    async def story() -> None:
        gang = a_gang(2)
        keys = [each.key for each in gang.tasks]
        async with world.service() as backend:
            world.api.says["POST", SECRETS] = [503] * client_of.TRIES
            with pytest.raises(EngineAway):
                await backend.launch(gang)
        async with world.service() as backend:
            known = await backend.observe(keys)
            assert {each.seen for each in known} == {Seen.UNKNOWN}, "it is launched again"
            assert await backend.launch(gang) == {}
            assert len(world.said(Seen.READY)) == 2
            assert len(world.api.secrets) == 1
            world.api.says["POST", SECRETS] = [403]
            other = msgspec.structs.replace(NAMED, key=msgspec.structs.replace(KEY, job=8))
            refused = await backend.launch(gang.only((other,)))
            assert list(refused) == [other.key]

    asyncio.run(story())


def test_a_task_that_has_variables_of_its_user_is_bound_when_its_secret_is_there(
    world: World,
) -> None:
    gang = msgspec.structs.replace(GANG, tasks=(NAMED,), named=frozenset({"TOKEN"}))

    async def story() -> None:
        async with world.service() as backend:
            assert await backend.launch(gang) == {}
            made = [each for each in world.api.asked if each[0] == "POST"]
            assert made == [("POST", PODS), ("POST", SECRETS), ("POST", f"{world.pod}/binding")]

    asyncio.run(story())


def test_what_is_to_be_hidden_since_the_first_try_is_not_left_out(world: World) -> None:
    gang = msgspec.structs.replace(GANG, tasks=(NAMED,), named=frozenset({"TOKEN"}))

    async def story() -> None:
        async with world.service() as backend:
            world.api.says["POST", PODS] = [503] * 8
            with pytest.raises(EngineAway):
                await backend.launch(GANG)
            world.api.says.clear()
            assert await backend.launch(gang) == {}
            (pod,), (secret,) = world.api.pods.values(), world.api.secrets.values()
            (source,) = pod["spec"]["containers"][0]["envFrom"]
            assert source["secretRef"]["name"] == secret["metadata"]["name"]

    asyncio.run(story())


def test_where_only_a_scheduler_may_name_nodes_a_pod_is_bound(world: World) -> None:
    async def story() -> None:
        async with world.service() as backend:
            world.api.says["POST", PODS] = [403]
            assert await backend.launch(GANG) == {}
            assert world.asks("POST", f"{world.pod}/binding") == 1
            world.api.says["POST", PODS] = [403, 403]
            world.api.because = "exceeded quota"
            other = msgspec.structs.replace(TASK, key=msgspec.structs.replace(KEY, job=8))
            refused = await backend.launch(GANG.only((other,)))
            assert "exceeded quota" in refused[other.key]

    asyncio.run(story())


def test_a_pod_whose_making_was_not_answered_is_found_where_it_runs(world: World) -> None:
    async def story() -> None:
        async with world.service() as backend:
            world.api.says["POST", PODS] = [LOST]
            with pytest.raises(EngineAway):
                await backend.launch(GANG)
        async with world.service() as backend:  # its uid was not kept
            (known,) = await backend.observe([KEY])
            assert known.seen is Seen.UNKNOWN, "it may run"
            assert await backend.launch(GANG) == {}
            assert world.asks("POST", f"{world.pod}/binding") == 0
            world.api.finish(3)
            await until(world.ends)
            assert len(world.ends()) == 1

    asyncio.run(story())


def test_a_task_whose_making_was_not_answered_is_stopped_as_one_that_runs(
    world: World,
) -> None:
    async def story() -> None:
        async with world.service() as backend:
            world.api.says["POST", PODS] = [LOST]
            with pytest.raises(EngineAway):
                await backend.launch(GANG)
        async with world.service() as backend:
            await backend.stop(KEY, "TERM", Millis(5000))
            assert world.api.graces == [5]
            assert not world.ends(), "its devices would be given on"
            world.api.finish(143)
            await until(world.ends)

    asyncio.run(story())


def test_a_task_that_may_run_on_a_silent_node_has_not_ended(world: World) -> None:
    async def story() -> None:
        async with world.service() as backend:
            world.api.says["POST", PODS] = [LOST]
            with pytest.raises(EngineAway):
                await backend.launch(GANG)
            world.api.silence_node("n1")
            await until(lambda: "n1" in backend._silent.since)
            world.api.remove()
            with pytest.raises(EngineAway, match="is not known"):
                await backend.stop(KEY, "TERM", Millis(5000))
            assert not world.ends(), "it would be run a second time"

    asyncio.run(story())


def test_a_pod_that_may_still_be_made_is_waited_for(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its job would run elsewhere by then."""

    async def story() -> None:
        async with world.service() as backend:
            world.api.says["POST", PODS] = [503] * client_of.TRIES
            with pytest.raises(EngineAway):
                await backend.launch(GANG)
            with pytest.raises(EngineAway, match="may still be made"):
                await backend.stop(KEY, "TERM", Millis(5000))
        async with world.service() as backend:
            with pytest.raises(EngineAway, match="may still be made"):
                await backend.stop(KEY, "TERM", Millis(5000))
            monkeypatch.setattr(tasks, "LATE_S", 0)
            await backend.stop(KEY, "TERM", Millis(5000))
            await until(world.ends)

    asyncio.run(story())


def test_a_refusal_does_not_count_while_an_earlier_try_may_be_carried_out(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Refused, its job would run elsewhere, and then here too."""

    async def story() -> None:
        async with world.service() as backend:
            world.api.says["POST", PODS] = [503] * client_of.TRIES + [403] * 2
            with pytest.raises(EngineAway):
                await backend.launch(GANG)
            with pytest.raises(EngineAway, match="may still be made"):
                await backend.launch(GANG)
            monkeypatch.setattr(tasks, "LATE_S", 0)
            assert list(await backend.launch(GANG)) == [KEY]

    asyncio.run(story())


def test_a_pod_that_does_not_change_is_not_read_at_each_look(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There may be thousands."""
    looked, read = [], []
    look_at = looking.Looking._look_at

    async def counted(self: looking.Looking, key: TaskKey, record: Launched) -> None:
        looked.append(key)
        await look_at(self, key, record)

    def heard(key: TaskKey, pod: Pod, told: Told, node: KubeNode | None) -> TaskReport | None:
        read.append(key)
        return report(key, pod, told, node)

    monkeypatch.setattr(looking.Looking, "_look_at", counted)
    monkeypatch.setattr(hearing, "report", heard)

    async def story() -> None:
        async with world.service() as backend:
            assert await backend.launch(GANG) == {}
            world.api.run()
            await until(lambda: world.said(Seen.RUNNING))
            before, times = len(looked), len(read)
            await until(lambda: len(looked) > before + 5)
            assert len(read) == times
            world.api.finish(3)
            await until(world.ends)

    asyncio.run(story())


def test_a_task_whose_signal_never_arrives_is_ended_after_its_grace(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What carries it there waits for a kubelet that does not answer."""
    monkeypatch.setattr(stopping, "SIGNAL_S", 0.05)

    async def story() -> None:
        async with world.service() as backend:
            assert await backend.launch(GANG) == {}
            world.api.run()
            await until(lambda: world.said(Seen.RUNNING))
            monkeypatch.setattr(backend._stopping, "_entering", lambda *_: ["sleep", "600"])
            await backend.stop(KEY, "USR1", Millis(10))
            await until(lambda: world.api.graces)

    asyncio.run(story())


def test_no_other_task_waits_for_a_signal_that_does_not_arrive(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of a gang are told one after the other; its devices are wanted."""

    async def story() -> None:
        async with world.service() as backend:
            assert await backend.launch(GANG) == {}
            world.api.run()
            await until(lambda: world.said(Seen.RUNNING))
            monkeypatch.setattr(backend._stopping, "_entering", lambda *_: ["sleep", "600"])
            async with asyncio.timeout(10):
                await backend.stop(KEY, "USR1", Millis(60_000))
            assert not world.api.graces
            await backend.stop(KEY, "KILL", Millis(0))
            assert world.api.graces == [1]

    asyncio.run(story())


def test_what_did_not_answer_is_asked_again_though_nothing_else_is(world: World) -> None:
    """Watches may say nothing for minutes, and no look is taken while nobody answers."""

    async def story() -> None:
        async with world.service() as backend:
            backend._contact.missed("a connection broke")
            await until(lambda: not backend._contact.trouble)

    asyncio.run(story())


# ── what is not known ───────────────────────────────────────────────────────────────────


def test_nothing_is_launched_until_nodes_were_listed(world: World) -> None:
    async def story() -> None:
        world.api.forbids.add(("GET", NODES))
        async with world.service() as backend:
            with pytest.raises(EngineAway, match="does not list its nodes"):
                await backend.launch(GANG)
            assert not world.api.pods
            world.api.forbids.clear()
            listed = world.asks("GET", NODES)
            await until(lambda: world.asks("GET", NODES) > listed)
            await until(lambda: world.reports)
            assert await backend.launch(GANG) == {}
            assert world.api.our_pod()["spec"]["nodeName"] == "n1"

    asyncio.run(story())


def test_nothing_is_bound_until_nodes_were_listed(world: World) -> None:
    async def story() -> None:
        async with world.service() as backend:
            await launched_at_barrier(world, backend)
        world.api.forbids.add(("GET", NODES))
        async with world.service() as backend:
            await backend.observe([KEY])
            with pytest.raises(EngineAway, match="does not list its nodes"):
                await backend.open_barrier([KEY])
            assert not world.ends()

    asyncio.run(story())


def test_a_pod_that_is_gone_is_not_run_again_while_its_node_is_not_known(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(silent_nodes, "BACK_S", 0)

    async def story() -> None:
        async with world.service() as backend:
            assert await backend.launch(GANG) == {}
        pod = world.pod
        world.api.remove()
        world.api.forbids.add(("GET", NODES))
        async with world.service() as backend:
            await backend.observe([KEY])
            await looked(world, pod)
            assert not world.ends()
            world.api.forbids.clear()
            await until(world.ends)
            (end,) = world.ends()
            assert end.exit is not None
            assert end.exit.lost

    asyncio.run(story())


def test_a_pod_taken_from_under_its_kubelet_may_run_on_for_a_while(world: World) -> None:
    """As by `kubectl delete --force`: Kubernetes forgets it before its node hears of it."""

    async def story() -> None:
        async with world.service() as backend:
            assert await backend.launch(GANG) == {}
            pod = world.pod
            world.api.remove()
            await until(lambda: KEY in backend._tasks.fenced)
            await looked(world, pod)
            assert not world.ends(), "it would be run a second time"
            backend._tasks.gone_at[KEY] -= silent_nodes.BACK_S
            await until(world.ends)

    asyncio.run(story())


def test_a_pod_that_was_told_to_end_and_is_gone_has_ended(world: World) -> None:
    async def story() -> None:
        async with world.service() as backend:
            assert await backend.launch(GANG) == {}
            world.api.our_pod()["metadata"]["deletionTimestamp"] = "now"
            world.api.remove()
            await until(world.ends)

    asyncio.run(story())


@pytest.mark.parametrize(
    ("deleted", "state", "is_so"),
    [
        ("", "running", True),
        ("", "waiting", True),
        ("now", "running", True),
        ("now", "waiting", False),
        ("now", "terminated", False),
    ],
)
def test_only_what_its_kubelet_has_ended_has_ended(
    deleted: str, state: str, is_so: bool
) -> None:
    status = {"name": "task", "state": {state: {}}}
    tree = {
        "metadata": {"name": "p", **({"deletionTimestamp": deleted} if deleted else {})},
        "status": {"phase": "Running", "containerStatuses": [status]},
    }
    assert may_run(msgspec.convert(tree, Pod)) is is_so


def test_pods_of_others_are_counted_again_soon_once_they_may_be_listed(world: World) -> None:
    """An API server that has just started refuses what it has not yet read that we may."""

    async def story() -> None:
        world.api.says["GET", ALL_PODS] = [403] * 3
        world.api.add_pod("theirs", "p", "n1")
        async with world.service():
            await until(
                lambda: any(
                    isinstance(each, OthersReport) and each.use.devices
                    for each in world.reports
                )
            )

    asyncio.run(story())


# ── a full disk ─────────────────────────────────────────────────────────────────────────


def test_an_end_that_cannot_be_kept_is_told_once_it_can(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries: list[TaskKey] = []
    keep = Records.keep

    async def full(self: Records, key: TaskKey, record: Launched) -> None:
        if record.exit is not None and len(tries) < 3:
            tries.append(key)
            raise BackendError("no space left on device")
        await keep(self, key, record)

    async def story() -> None:
        async with world.service() as backend:
            assert await backend.launch(GANG) == {}
            (world.folder / "kubernetes" / "tasks" / "7" / "2" / "1" / "stderr.log").mkdir(
                parents=True, exist_ok=True
            )
            world.api.finish(3, "OOMKilled", "too much")
            await until(world.ends)
            assert len(tries) == 3

    monkeypatch.setattr(Records, "keep", full)
    asyncio.run(story())


@pytest.mark.parametrize("what", ["uid", "is_bound", "is_stopped"])
def test_orders_are_given_again_while_nothing_can_be_kept_of_a_pod(
    world: World, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    keep = Records.keep
    full = [what]

    async def kept(self: Records, key: TaskKey, record: Launched) -> None:
        if full and getattr(record, what):
            raise BackendError("no space left on device")
        await keep(self, key, record)

    async def order(backend: KubernetesBackend) -> None:
        assert await backend.launch(GANG) == {}
        await backend.stop(KEY, "TERM", Millis(5000))

    async def story() -> None:
        async with world.service() as backend:
            with pytest.raises(EngineAway, match="no space left"):
                await order(backend)
            full.clear()
            await order(backend)
            world.api.finish(143)
            await until(world.ends)

    monkeypatch.setattr(Records, "keep", kept)
    asyncio.run(story())


def test_an_end_that_is_heard_while_a_disk_is_slow_is_what_stays(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit, at_disk, disk = TaskRecords._commit, threading.Event(), threading.Event()

    def slow(self: TaskRecords[Launched], group: list[Any]) -> None:
        for *_, data in (words for _, words in group):
            record = msgspec.json.decode(data, type=Launched)
            if record.is_bound and record.exit is None:
                at_disk.set()
                assert disk.wait(PATIENCE_S)
        commit(self, group)

    async def story() -> None:
        async with world.service() as backend:
            await launched_at_barrier(world, backend)
            binding = asyncio.create_task(backend.open_barrier([KEY]))
            await until(at_disk.is_set)
            world.api.finish(3)
            await until(lambda: key_is_ending(backend))
            disk.set()
            await binding
            await until(world.ends)
            await backend.stop(KEY, "TERM", Millis(5000))
            kept = Records(world.folder / "kubernetes").read(KEY)
            assert kept is not None
            assert kept.exit is not None
            assert kept.exit.code == 3
            assert len(world.ends()) == 1

    monkeypatch.setattr(TaskRecords, "_commit", slow)
    asyncio.run(story())


def test_a_pod_that_is_gone_from_a_silent_node_may_run_though_its_binding_is_not_kept_yet(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit, at_disk, disk = TaskRecords._commit, threading.Event(), threading.Event()

    def slow(self: TaskRecords[Launched], group: list[Any]) -> None:
        for *_, data in (words for _, words in group):
            record = msgspec.json.decode(data, type=Launched)
            if record.is_bound and record.exit is None:
                at_disk.set()
                assert disk.wait(PATIENCE_S)
        commit(self, group)

    async def story() -> None:
        async with world.service() as backend:
            await launched_at_barrier(world, backend)
            binding = asyncio.create_task(backend.open_barrier([KEY]))
            await until(at_disk.is_set)
            pod = world.pod
            world.api.silence_node("n1")
            await until(lambda: backend.silence("n1"))
            world.api.remove()
            await until(lambda: KEY in backend._tasks.fenced)
            disk.set()
            await binding
            await looked(world, pod)
            assert not world.ends(), "it would be run a second time"

    monkeypatch.setattr(TaskRecords, "_commit", slow)
    asyncio.run(story())


def key_is_ending(backend: KubernetesBackend) -> bool:
    return KEY in backend._tasks.ending


# ── what the server answers ─────────────────────────────────────────────────────────────


def asked(api: KubeApi, *calls: tuple[str, str]) -> tuple[Contact, list[BaseException | bytes]]:
    """Ask one thing after the other; return what came of it."""

    async def story() -> list[BaseException | bytes]:
        found: list[BaseException | bytes] = []
        for method, path in calls:
            document = {"gracePeriodSeconds": 1} if method == "DELETE" else None
            found += await asyncio.gather(
                client.ask(method, path, document), return_exceptions=True
            )
        return found

    contact = Contact("Kubernetes", "pods")
    client = Client(Access("http://k"), "ns", contact)
    return contact, asyncio.run(story())


def test_a_server_says_no_more_than_seconds_to_wait(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []
    sleep = asyncio.sleep

    async def noted(for_s: float) -> None:
        pauses.append(for_s)
        await sleep(0)

    monkeypatch.setattr(asyncio, "sleep", noted)
    world.api.headers = {"retry-after": "3600"}
    world.api.says["GET", NODES] = [429]
    asked(world.api, ("GET", NODES))
    assert max(pauses) == client_of.LONGEST_PAUSE_S


@pytest.mark.parametrize(("status", "is_noted"), [(503, True), (429, False)])
def test_a_server_in_trouble_is_noted_at_its_first_answer(
    world: World, status: int, is_noted: bool
) -> None:
    troubles: list[str] = []

    class Noting(Contact):
        def missed(self, why: str) -> None:
            troubles.append(why)

    async def story() -> None:
        await Client(Access("http://k"), "ns", Noting("Kubernetes", "pods")).ask("GET", NODES)

    world.api.says["GET", NODES] = [status]
    asyncio.run(story())
    assert bool(troubles) is is_noted


@pytest.mark.parametrize(
    ("because", "what"),
    [('Internal error occurred: failed calling webhook "a": EOF', Denied), ("", EngineAway)],
)
def test_a_webhook_that_is_broken_refuses_a_pod_and_the_server_is_not_away(
    world: World, because: str, what: type[BackendError]
) -> None:
    """A job would wait without a word for a server that answers."""
    troubles: list[str] = []

    class Noting(Contact):
        def missed(self, why: str) -> None:
            troubles.append(why)

    async def story() -> None:
        with pytest.raises(what, match=because or "HTTP 500"):
            await Client(Access("http://k"), "ns", Noting("Kubernetes", "pods")).ask(
                "POST", PODS, {}
            )

    world.api.because = because
    world.api.says["POST", PODS] = [500] * client_of.TRIES
    asyncio.run(story())
    assert bool(troubles) is (what is EngineAway)


def test_a_login_that_ran_out_is_no_refusal(world: World) -> None:
    world.api.says["GET", NODES] = [401, 401]
    contact, (away, answer) = asked(world.api, ("GET", NODES), ("GET", NODES))
    assert isinstance(away, EngineAway)
    assert isinstance(answer, bytes)
    assert world.api.forgotten == 1
    assert not contact.trouble


def test_a_right_that_was_there_is_waited_for(world: World) -> None:
    pod = f"{PODS}/p"
    world.api.add_pod("ns", "p", "n1")
    delete = ("DELETE", pod)
    world.api.says[delete] = [403, 200, 403]
    _, (never, done, later) = asked(world.api, delete, delete, delete)
    assert isinstance(never, Denied)
    assert "allot doctor" in str(never)
    assert isinstance(done, bytes)
    assert isinstance(later, EngineAway)


def test_a_quota_is_a_refusal_however_often_pods_were_made(world: World) -> None:
    world.api.says["POST", PODS] = [403]
    world.api.says["GET", f"{PODS}/p"] = [200]
    world.api.add_pod("ns", "p", "n1")
    _, (_, refused) = asked(world.api, ("GET", f"{PODS}/p"), ("POST", PODS))
    assert isinstance(refused, Denied)


# ── ids that are given again ────────────────────────────────────────────────────────────


def test_a_node_that_took_the_id_of_one_that_left_is_told_of(world: World) -> None:
    def told() -> int:
        return sum(isinstance(each, NodeReport | OthersReport) for each in world.reports)

    async def story() -> None:
        async with world.service():
            await until(lambda: told() == 2)
            for name in ("n2", "n1"):
                world.reports.clear()
                world.nodes = [a_node(name)]
                world.api.add_node(name, unschedulable=True)  # the same as before: a look
                await until(lambda: told() == 2)

    world.api.add_node("n1", unschedulable=True)
    world.api.add_node("n2", unschedulable=True)
    asyncio.run(story())


def test_a_pod_that_nobody_can_tell_for_ours_goes_though_it_could_not_be_deleted_at_once(
    world: World,
) -> None:
    async def story() -> None:
        async with world.service() as backend:
            assert await backend.launch(GANG) == {}
            world.api.run()
            await until(lambda: world.said(Seen.RUNNING))
            pod = world.pod
            world.api.says["DELETE", pod] = [403]
            world.api.our_pod()["metadata"]["labels"].clear()
            world.api.finish(3)
            await until(world.ends)
            await until(lambda: not world.api.pods)
            assert world.asks("DELETE", pod) > 1

    asyncio.run(story())
