"""What does not happen: tasks that do not begin or end, and pods that no task stands behind."""

import contextlib
from signal import SIGTERM
from time import monotonic

import structlog

from allotment.backends.kubernetes.ends import Ends, delete
from allotment.backends.kubernetes.fence import Fence
from allotment.backends.kubernetes.hearing import Hearing
from allotment.backends.kubernetes.objects import Pod
from allotment.backends.kubernetes.record import Launched
from allotment.backends.kubernetes.request import deletion_of
from allotment.backends.kubernetes.silent_nodes import SilentNodes
from allotment.backends.kubernetes.site import Site
from allotment.backends.kubernetes.status import hindrance, is_over
from allotment.backends.kubernetes.tasks import Tasks
from allotment.model.diagnosis import Exit
from allotment.model.errors import BackendError
from allotment.model.ids import TaskKey

log = structlog.get_logger("allot.kubernetes")

KILL_AGAIN_S = 15.0
"""How often a task that is overdue is ended once more."""
STRAY_S = 30.0
"""How long a pod of ours may be there that no task stands behind."""


class Looking:
    """Looks after our own pods now and then."""

    def __init__(
        self,
        site: Site,
        tasks: Tasks,
        hearing: Hearing,
        ends: Ends,
        silent: SilentNodes,
        fence: Fence,
    ) -> None:
        self._prefix, self._client, self._contact = site.prefix, site.client, site.contact
        self._cluster, self._tasks, self._hearing = site.cluster, tasks, hearing
        self._ends, self._silent, self._fence = ends, silent, fence
        self._strays: dict[str, float] = {}
        self.is_adopted = False
        """Whether all tasks are known: a pod without one is then a stray."""

    async def look(self) -> None:
        """Look once, where it is known which pods there are."""
        if self._contact.trouble or not self._cluster.is_listed:
            return
        for key, record in list(self._tasks.live.items()):
            try:
                await self._look_at(key, record)
            except BackendError as error:  # of one task, and no others have to wait for it
                log.warning("a task is looked at again later", task=str(key), why=str(error))
        await self._ends.delete_left()
        if self.is_adopted:
            await self._end_strays()

    async def _look_at(self, key: TaskKey, record: Launched) -> None:
        tasks, silent = self._tasks, self._silent.since
        pod = self._cluster.pods.get(record.uid) if record.uid else None
        now = monotonic()
        if key in tasks.fenced or (pod is None and record.is_bound):
            await self._look_for(key, record)
        elif pod is not None and record.is_bound and key not in tasks.ending:
            if tasks.heard.get(key) is not pod:
                self._hearing.hear(key, pod)
            if record.node in silent and not is_over(pod):
                self._give_up(key, record, pod)
            overdue = tasks.overdue.get(key)
            if overdue is not None and now >= overdue:
                tasks.overdue[key] = now + KILL_AGAIN_S
                await delete(self._client, record, 1)
            elif key in tasks.waits and record.node not in silent:
                await self._weigh(key, record, pod, now - tasks.waits[key])

    def _give_up(self, key: TaskKey, record: Launched, pod: Pod) -> None:
        """End a task on a node that is silent, if it is known to be dead or taken for it."""
        if why := self._fence.why_lost(record):
            exit_ = Exit(lost=True, platform_error=why)
            self._ends.end(key, Exit(signal=SIGTERM) if record.is_stopped else exit_, pod=pod)

    async def _look_for(self, key: TaskKey, record: Launched) -> None:
        """Look for a pod that no watch has told of; it may be gone for good."""
        pod = await self._client.within(record.namespace).pod(record.name)
        if pod is None or pod.metadata.uid != record.uid:
            known = self._tasks.fenced.pop(key, None)
            self._hearing.gone(key, known)
        else:
            self._tasks.fenced.pop(key, None)
            self._tasks.gone_at.pop(key, None)
            self._hearing.hear(key, pod)

    async def _weigh(self, key: TaskKey, record: Launched, pod: Pod, waited_s: float) -> None:
        """End a task that will not begin."""
        refused = self._tasks.pull_refused.get(key, "")
        why, diagnosis = hindrance(pod, waited_s, refused)
        if not why:
            return
        await delete(self._client, record, 1)
        self._ends.end(key, Exit(platform_error=why), diagnosis, pod)

    async def _end_strays(self) -> None:
        """End pods of ours that no task stands behind, such as one whose making was never
        answered and that is not wanted any more."""
        now = monotonic()
        strays = {
            uid: pod
            for uid, pod in self._cluster.pods.items()
            if uid not in self._tasks.keys
            and pod.metadata.name.startswith(f"{self._prefix}-")
            and not pod.metadata.deletion_timestamp  # its node has to confirm, if it ever does
        }
        self._strays = {uid: self._strays.get(uid, now) for uid in strays}
        for uid, since in self._strays.items():
            if now - since >= STRAY_S:
                name, namespace = strays[uid].metadata.name, strays[uid].metadata.namespace
                log.warning("a pod without a task is ended", pod=name)
                with contextlib.suppress(BackendError):
                    await self._client.within(namespace).delete_pod(name, deletion_of(uid, 1))
