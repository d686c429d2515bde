"""A task → its pod, made once, however often that is asked."""

from collections.abc import Callable, Coroutine, Mapping, Sequence
from math import ceil, inf
from secrets import token_hex
from time import monotonic
from typing import Any, TypeVar

import msgspec

from allotment.backends.kubernetes.beats import BeatsIn
from allotment.backends.kubernetes.binding import Bindings
from allotment.backends.kubernetes.claiming import Claiming
from allotment.backends.kubernetes.client import Denied
from allotment.backends.kubernetes.discover import device_of
from allotment.backends.kubernetes.ends import end_report
from allotment.backends.kubernetes.hearing import Hearing
from allotment.backends.kubernetes.named import NodesByName, has_names
from allotment.backends.kubernetes.objects import Pod
from allotment.backends.kubernetes.parts import sight_of
from allotment.backends.kubernetes.record import Launched
from allotment.backends.kubernetes.request import (
    LAUNCH,
    Names,
    Place,
    begun_on,
    missing_paths,
    name_of,
    pod_of,
    secret_of,
    secrets_of,
    variables_of,
)
from allotment.backends.kubernetes.site import Site
from allotment.backends.kubernetes.tasks import Tasks
from allotment.backends.kubernetes.visible import value_of
from allotment.backends.together import gather_all
from allotment.model.diagnosis import Diagnosis, Exit, Owner, RetryClass
from allotment.model.errors import BackendError, EngineAway
from allotment.model.ids import TaskKey
from allotment.model.reports import Seen, TaskReport
from allotment.service.ports import GangLaunch, Refused, Report, TaskLaunch

NO_IMAGE = Diagnosis(
    "no_image",
    "It names no image, and its engine has no default image.",
    Owner.USER,
    RetryClass.NEVER,
    "Name one: `image: …`. An administrator can set one for all under engines, `image`.",
)
UNSEEN_PATHS = Diagnosis(
    "path_not_in_pod",
    "It reads folders of the service's machine that its pod would not see.",
    Owner.USER,
    RetryClass.NEVER,
    "Put them on a disk that the nodes share, and name it under engines, `shared`.",
)

T = TypeVar("T")


class Launching:
    """Makes the pods of gangs."""

    def __init__(
        self,
        site: Site,
        tasks: Tasks,
        beats: BeatsIn,
        hearing: Hearing,
        bindings: Bindings,
        sink: Callable[[Report], None],
    ) -> None:
        self._sight = sight_of(site.setup)
        self._setup, self._prefix, self._spaces = site.setup, site.prefix, site.spaces
        self._client, self._cluster = site.client, site.cluster
        self._tasks, self._beats = tasks, beats
        self._hearing, self._bindings, self._sink = hearing, bindings, sink
        self._registered = site.registered
        self._claiming = Claiming(site, tasks)
        self._is_visible, self._nodes = site.is_visible, NodesByName(site.nodes)

    async def launch(self, gang: GangLaunch) -> Refused:
        """Make a gang's pods, then the Secrets that they share and the claims of their devices,
        and let go on what may; return which tasks are refused, and why. Raises EngineAway."""
        keys = [task.key for task in gang.tasks]
        secrets = secrets_of(self._prefix, gang, token_hex(8))
        makes = [
            _or_refusal(self._with_pod(gang, task, secrets.get(task.key, "")))
            for task in gang.tasks
        ]
        made = dict(zip(keys, await gather_all(makes), strict=True))
        refused = {key: why for key, why in made.items() if isinstance(why, str)}
        there = {key: each for key, each in made.items() if isinstance(each, Launched)}
        refused |= await self._hide(gang, there)
        refused |= await self._give(
            {key: record for key, record in there.items() if key not in refused}
        )
        goes = {
            key: _or_refusal(self._go_on(key, record, at_barrier=gang.at_barrier))
            for key, record in there.items()
            if key not in refused
        }
        went = zip(goes, await gather_all(list(goes.values())), strict=True)
        refused |= {key: why for key, why in went if why}
        await self._bind_held(keys, refused)
        return refused

    async def _bind_held(self, keys: Sequence[TaskKey], refused: Refused) -> None:
        """Have tasks of a gang wait in their pods, on their nodes, unless one was refused."""
        live = self._tasks.live
        held = [(key, record) for key in keys if (record := live.get(key)) is not None]
        held = [each for each in held if each[1].is_held and not each[1].is_bound]
        if refused:
            for key, record in held:  # it is there, on no node, and goes to none
                self._sink(TaskReport(key, Seen.READY, engine_job=record.name))
        else:
            await gather_all([self._bindings.bind(*each) for each in held])

    async def _with_pod(
        self, gang: GangLaunch, task: TaskLaunch, secret: str
    ) -> Launched | None:
        """Make a task's pod, or find it; return what is known of it. None where the task is
        over. `secret` is what a new one gets."""
        key = task.key
        record = self._tasks.record(key)
        devices = self._claiming.devices_of(task) if record is None else ()
        at_once = record is None and not (gang.at_barrier or secret or devices)
        if record is None:
            record = self._new(gang, task, secret, at_once=at_once)
            record = msgspec.structs.replace(record, devices=devices)
            if (refused := self._refusal(gang, key, record)) is not None:
                await self._tasks.keep_new(key, refused)
                self._sink(end_report(key, refused))
                return None
            if why := await self._registered.why_not(gang.data):
                raise BackendError(f"its pod cannot be shown its data: {why}")
            await self._tasks.keep_new(key, record)
        elif secret and not record.secret and not record.is_bound:
            # Begun before there was anything to hide, or by an older version, which named its
            # Secret so, and whose pod may wait for it.
            name = f"{record.name}-{record.token}"
            record = msgspec.structs.replace(record, secret=name)
        if record.exit is not None:
            return None
        if not record.is_bound:
            record = await self._make(gang, task, record, at_once=at_once)
            if self._tasks.has_ended(key):
                return None
        self._tasks.adopt(key, record)
        return record

    async def _hide(self, gang: GangLaunch, there: Mapping[TaskKey, Launched]) -> Refused:
        """Make the Secrets of tasks whose pods are there and on no node; return the refused."""
        sharing: dict[str, list[TaskLaunch]] = {}
        for task in gang.tasks:
            record = there.get(task.key)
            if record is not None and record.secret and not record.is_bound:
                sharing.setdefault(record.secret, []).append(task)
        makes = [
            _or_refusal(
                self._client.within(there[tasks[0].key].namespace).make_secret(
                    secret_of(
                        name,
                        variables_of(gang, tasks[0]).hidden,
                        [(there[task.key].name, there[task.key].uid) for task in tasks],
                    )
                )
            )
            for name, tasks in sharing.items()
        ]
        found = zip(sharing.values(), await gather_all(makes), strict=True)
        return {task.key: why for tasks, why in found if why for task in tasks}

    async def _give(self, there: Mapping[TaskKey, Launched]) -> Refused:
        """Allocate devices by name to tasks, where they have names; return the refused."""
        gives = [_or_refusal(self._claiming.give(record)) for record in there.values()]
        found = zip(there, await gather_all(gives), strict=True)
        return {key: why for key, why in found if why}

    async def _go_on(self, key: TaskKey, record: Launched, *, at_barrier: bool) -> None:
        """Keep which pod is a task's, and let it begin, or say that it is ready."""
        if record.is_bound:
            self._hearing.hear_now(key, record)
            return
        await self._tasks.keep(key, record)
        if self._tasks.has_ended(key):
            return
        if not at_barrier:
            await self._bindings.bind(key, record)
        elif not record.is_held:
            self._sink(TaskReport(key, Seen.READY, engine_job=record.name))

    def _new(
        self, gang: GangLaunch, task: TaskLaunch, secret: str, *, at_once: bool
    ) -> Launched:
        """Return what is kept of a task before anything of it is in Kubernetes."""
        node = task.binding.node
        self._cluster.need_nodes()
        if node not in self._cluster.nodes:
            raise BackendError(f"Kubernetes has no node {node}")
        # What command its image has, and whether that has a shell, nobody knows here.
        fence_ms = self._setup.fence_after_ms if task.argv else 0
        namespace = self._spaces.enter(dict(gang.labels).get("tenant", ""))
        self._cluster.need_pods(namespace)
        if fence_ms:
            self._beats.within(namespace).need(node)
        return Launched(
            name_of(self._prefix, task.key), node, token_hex(8), secret,
            log_bytes=gang.log_bytes, at_once=at_once, fence_ms=fence_ms,
            is_held=gang.at_barrier and fence_ms > 0,
            keep_s=ceil(gang.hold_on_failure_ms / 1000) if task.argv else 0,
            namespace=namespace, phases=gang.phases,
        )  # fmt: skip

    def _refusal(self, gang: GangLaunch, key: TaskKey, record: Launched) -> Launched | None:
        """Return the end of a task that cannot be a pod."""
        if not (gang.image or self._setup.image):
            exit_ = Exit(platform_error="it names no image")
            return msgspec.structs.replace(record, exit=exit_, diagnosis=NO_IMAGE)
        if missing := missing_paths(gang, key, self._sight):
            exit_ = Exit(platform_error=f"its pod does not see {', '.join(missing)}")
            told = msgspec.structs.replace(UNSEEN_PATHS, evidence=", ".join(missing))
            return msgspec.structs.replace(record, exit=exit_, diagnosis=told)
        return None

    async def _make(
        self, gang: GangLaunch, task: TaskLaunch, record: Launched, *, at_once: bool
    ) -> Launched:
        """Make a task's pod, or find the one that an earlier try made.

        One that begins `at_once` is made on its node. Each further try is by steps, and finds
        it by its name.
        """
        self._cluster.need_nodes()  # they say what its devices are called
        if record.fence_ms:
            self._beats.within(record.namespace).need(record.node)
        found = self._cluster.nodes.get(record.node)
        place = Place(
            self._prefix, gang.image or self._setup.image,
            device_of(found)[0] if found is not None else "", self._sight,
            self._beats.name, record.fence_ms // 1000, record.is_held, record.keep_s,
            has_names=bool(record.devices), visible=self._visible_to(task),
        )  # fmt: skip
        names = Names(record.name, record.token, record.secret)
        document = pod_of(gang, task, names, place)
        pod = None
        if at_once:
            on_node = begun_on(record.node, document)
            pod = await self._made_at_once(task.key, record, on_node)
        if pod is None:
            pod = await self._made_by_steps(task.key, record, document, is_first=at_once)
        if (pod.metadata.labels or {}).get(LAUNCH) != record.token:
            raise BackendError(
                f"pod {record.name} in namespace {pod.metadata.namespace} was not "
                "made by this service: check who else may make pods there"
            )
        record = msgspec.structs.replace(record, uid=pod.metadata.uid)
        if pod.spec.node_name == record.node:
            boot = self._cluster.boot_of(record.node)
            record = msgspec.structs.replace(record, is_bound=True, boot=boot)
            await self._tasks.keep(task.key, record)
            self._tasks.note_placed(task.key)
        return record

    def _visible_to(self, task: TaskLaunch) -> str | None:
        """Return which devices a task is told that it has; None where it is not told."""
        node = self._nodes.find(task.binding.node)
        if node is None or has_names(node) or not self._is_visible(node.name):
            return None
        return value_of(node, task.binding.devices)

    async def _made_at_once(
        self, key: TaskKey, record: Launched, document: Mapping[str, Any]
    ) -> Pod | None:
        """Make a pod on its node; None where only a scheduler may say where pods are."""
        asked_at = self._tasks.asked_at
        asked_at[key] = monotonic()
        try:
            pod = await self._client.within(record.namespace).make_pod(document)
        except Denied as error:
            asked_at[key] = -inf  # and nothing was asked before
            if error.status in (403, 422):
                return None
            raise
        asked_at.pop(key, None)
        return pod

    async def _made_by_steps(
        self, key: TaskKey, record: Launched, document: Mapping[str, Any], *, is_first: bool
    ) -> Pod:
        """Make a pod on no node, or find that of an earlier try, which may be on its own.

        A refusal does not count while an earlier try may be carried out: its pod would run.
        """
        try:
            return await self._client.within(record.namespace).make_pod(document)
        except Denied:
            if not is_first:
                self._tasks.need_answer(key, record)
            raise


async def _or_refusal(doing: Coroutine[Any, Any, T]) -> T | str:
    """Return what is done, or why it is refused. Raises EngineAway."""
    try:
        return await doing
    except EngineAway:
        raise
    except BackendError as error:
        return str(error)
