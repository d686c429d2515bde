"""A task → its pod, made once, however often that is asked."""

from collections.abc import Callable, Mapping
from secrets import token_hex
from time import monotonic
from typing import Any

import msgspec

from allotment.backends.kubernetes.beats import Beats
from allotment.backends.kubernetes.binding import Bindings
from allotment.backends.kubernetes.client import Denied
from allotment.backends.kubernetes.discover import device_of
from allotment.backends.kubernetes.ends import end_report
from allotment.backends.kubernetes.hearing import Hearing
from allotment.backends.kubernetes.objects import Pod
from allotment.backends.kubernetes.record import Launched
from allotment.backends.kubernetes.request import (
    LAUNCH,
    Place,
    begun_on,
    missing_paths,
    name_of,
    open_env,
    pod_of,
    secret_of,
)
from allotment.backends.kubernetes.site import Site
from allotment.backends.kubernetes.tasks import Tasks
from allotment.backends.together import gather_all
from allotment.model.diagnosis import Diagnosis, Exit, Owner, RetryClass
from allotment.model.errors import BackendError, EngineAway
from allotment.model.ids import TaskKey
from allotment.model.reports import Seen, TaskReport
from allotment.service.ports import GangLaunch, Refused, Report, TaskLaunch

NO_IMAGE = Diagnosis(
    "no_image",
    "It names no image, and its engine has none for jobs that do not.",
    Owner.USER,
    RetryClass.NEVER,
    "Name one: `image: …`. An administrator can set one for all under engines, `image`.",
)
UNSEEN_PATHS = Diagnosis(
    "path_not_in_pod",
    "It reads folders of the service's machine that its pod would not see.",
    Owner.USER,
    RetryClass.NEVER,
    "Put them on a disk that the nodes share, and name it under engines, `volumes`.",
)


class Launching:
    """Makes the pods of gangs."""

    def __init__(
        self,
        site: Site,
        tasks: Tasks,
        beats: Beats,
        hearing: Hearing,
        bindings: Bindings,
        sink: Callable[[Report], None],
    ) -> None:
        self._setup, self._prefix = site.setup, site.prefix
        self._client, self._cluster = site.client, site.cluster
        self._tasks, self._beats = tasks, beats
        self._hearing, self._bindings, self._sink = hearing, bindings, sink

    async def launch(self, gang: GangLaunch) -> Refused:
        """Make a gang's pods; return which of its tasks are refused, and why."""
        found = await gather_all([self._launch_or_refuse(gang, task) for task in gang.tasks])
        keys = [task.key for task in gang.tasks]
        refused = {key: why for key, why in zip(keys, found, strict=True) if why}
        live = self._tasks.live
        held = [(key, record) for key in keys if (record := live.get(key)) is not None]
        held = [each for each in held if each[1].is_held and not each[1].is_bound]
        if refused:
            for key, record in held:  # it is there, on no node, and goes to none
                self._sink(TaskReport(key, Seen.READY, engine_job=record.name))
        else:
            await gather_all([self._bindings.bind(*each) for each in held])
        return refused

    async def _launch_or_refuse(self, gang: GangLaunch, task: TaskLaunch) -> str:
        """Return why a task is refused; '' where it is not. Raises EngineAway."""
        try:
            await self._launch(gang, task)
        except EngineAway:
            raise
        except BackendError as error:
            return str(error)
        return ""

    async def _launch(self, gang: GangLaunch, task: TaskLaunch) -> None:
        key = task.key
        record = self._tasks.record(key)
        at_once = record is None and not gang.at_barrier and open_env(gang, task) is not None
        if record is None:
            record = self._new(gang, task, at_once=at_once)
            if (refused := self._refusal(gang, key, record)) is not None:
                await self._tasks.keep_new(key, refused)
                self._sink(end_report(key, refused))
                return
            await self._tasks.keep_new(key, record)
        if record.exit is not None:
            return
        if not record.is_bound:
            record = await self._make(gang, task, record, at_once=at_once)
            if self._tasks.has_ended(key):
                return
        self._tasks.adopt(key, record)
        if record.is_bound:
            self._hearing.hear_now(key, record)
        if not gang.at_barrier:
            await self._bindings.bind(key, record)
        elif not (record.is_bound or record.is_held):
            self._sink(TaskReport(key, Seen.READY, engine_job=record.name))

    def _new(self, gang: GangLaunch, task: TaskLaunch, *, at_once: bool) -> Launched:
        """Return what is kept of a task before anything of it is in Kubernetes."""
        node = task.binding.node
        self._cluster.need_nodes()
        if node not in self._cluster.nodes:
            raise BackendError(f"Kubernetes has no node {node}")
        # What command its image has, and whether that has a shell, nobody knows here.
        fence_ms = self._setup.fence_after_ms if task.argv else 0
        if fence_ms:
            self._beats.need(node)
        return Launched(
            name_of(self._prefix, task.key), node, token_hex(8), log_bytes=gang.log_bytes,
            at_once=at_once, fence_ms=fence_ms, is_held=gang.at_barrier and fence_ms > 0,
        )  # fmt: skip

    def _refusal(self, gang: GangLaunch, key: TaskKey, record: Launched) -> Launched | None:
        """Return the end of a task that cannot be a pod."""
        if not (gang.image or self._setup.image):
            exit_ = Exit(platform_error="it names no image")
            return msgspec.structs.replace(record, exit=exit_, diagnosis=NO_IMAGE)
        if missing := missing_paths(gang, key, dict(self._setup.volumes)):
            exit_ = Exit(platform_error=f"its pod does not see {', '.join(missing)}")
            told = msgspec.structs.replace(UNSEEN_PATHS, evidence=", ".join(missing))
            return msgspec.structs.replace(record, exit=exit_, diagnosis=told)
        return None

    async def _make(
        self, gang: GangLaunch, task: TaskLaunch, record: Launched, *, at_once: bool
    ) -> Launched:
        """Make a task's pod and its Secret, or find those that an earlier try made.

        One that begins `at_once` is made on its node, and needs no Secret. Each further try is
        by steps, and finds it by its name.
        """
        self._cluster.need_nodes()  # they say what its devices are called
        if record.fence_ms:
            self._beats.need(record.node)
        found = self._cluster.nodes.get(record.node)
        place = Place(
            self._prefix, gang.image or self._setup.image,
            device_of(found)[0] if found is not None else "", dict(self._setup.volumes),
            self._beats.name, record.fence_ms // 1000, record.is_held,
        )  # fmt: skip
        document = pod_of(gang, task, record.name, record.token, place)
        env = open_env(gang, task) if at_once else None
        pod = None
        if env is not None:
            begun = begun_on(record.node, env, document)
            pod = await self._made_at_once(task.key, begun)
        if pod is None:
            pod = await self._made_by_steps(task.key, record, document, is_first=at_once)
        if (pod.metadata.labels or {}).get(LAUNCH) != record.token:
            raise BackendError(
                f"pod {record.name} in namespace {self._client.namespace} is not ours: who "
                "else may make pods there?"
            )
        uid = pod.metadata.uid
        record = msgspec.structs.replace(record, uid=uid)
        if pod.spec.node_name == record.node:
            boot = self._cluster.boot_of(record.node)
            record = msgspec.structs.replace(record, is_bound=True, boot=boot)
            await self._tasks.keep(task.key, record)
            self._tasks.note_placed(task.key)
            return record
        secret = secret_of(gang, task, record.name, uid, record.token)
        await gather_all([self._tasks.keep(task.key, record), self._client.make_secret(secret)])
        return record

    async def _made_at_once(self, key: TaskKey, document: Mapping[str, Any]) -> Pod | None:
        """Make a pod on its node; None where only a scheduler may say where pods are."""
        asked_at = self._tasks.asked_at
        asked_at[key] = monotonic()
        try:
            pod = await self._client.make_pod(document)
        except Denied as error:
            asked_at.pop(key, None)
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
            return await self._client.make_pod(document)
        except Denied:
            if not is_first:
                self._tasks.need_answer(key, record)
            raise
