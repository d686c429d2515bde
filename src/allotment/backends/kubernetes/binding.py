"""Our own pods and their nodes: put there, let begin, and taken back."""

import asyncio
from collections.abc import Sequence

import msgspec
import structlog

from allotment.backends.kubernetes.client import Client, Denied
from allotment.backends.kubernetes.cluster import Cluster
from allotment.backends.kubernetes.ends import Ends, delete, free
from allotment.backends.kubernetes.hearing import Hearing
from allotment.backends.kubernetes.record import Launched
from allotment.backends.kubernetes.request import binding_of
from allotment.backends.kubernetes.runner import GO
from allotment.backends.kubernetes.tasks import Tasks
from allotment.model.diagnosis import Exit
from allotment.model.errors import BackendError, EngineAway
from allotment.model.ids import TaskKey

log = structlog.get_logger("allot.kubernetes")


class Bindings:
    """Puts the pods of tasks on their nodes."""

    def __init__(
        self, client: Client, cluster: Cluster, tasks: Tasks, hearing: Hearing, ends: Ends
    ) -> None:
        self._client, self._cluster = client, cluster
        self._tasks, self._hearing, self._ends = tasks, hearing, ends

    async def open_barrier(self, keys: Sequence[TaskKey]) -> None:
        """Let tasks begin that are ready. Raises EngineAway."""
        found = ((key, self._tasks.record(key)) for key in keys)
        waiting = [(key, record) for key, record in found if record is not None]
        await asyncio.gather(*(self._let_begin(key, record) for key, record in waiting))

    async def _let_begin(self, key: TaskKey, record: Launched) -> None:
        """Put a task's pod on its node, or let it go on where it waits. Raises EngineAway."""
        if not record.is_held:
            await self.bind(key, record)
            return
        if record.exit is not None or self._tasks.has_ended(key):
            return
        # It may begin, and even end, before the answer is here.
        self._tasks.adopt(key, msgspec.structs.replace(record, is_held=False))
        live = self._tasks.live
        try:
            client = self._client.within(record.namespace)
            await client.annotate_pod(record.name, record.uid, {GO: "yes"})
        except BackendError as error:  # it waits on, or is told again
            if key in live:
                live[key] = msgspec.structs.replace(live[key], is_held=True)
            raise EngineAway(str(error)) from error
        record = msgspec.structs.replace(live.get(key, record), is_held=False)
        await self._tasks.keep(key, record)
        self._hearing.hear_now(key, record)

    async def bind(self, key: TaskKey, record: Launched) -> None:
        """Put a task's pod on its node. Where that is refused, the task has ended."""
        if record.is_bound or record.exit is not None or not record.uid:
            return
        self._cluster.need_nodes()
        boot = self._cluster.boot_of(record.node)
        if refused := await self._refused(record):
            log.warning("a pod is not put on its node", pod=record.name, why=refused)
            why = Exit(platform_error=f"it was not put on its node: {refused}")
            await self.take_back(key, record, why)
            return
        await self.note(key, record, boot)
        self._hearing.hear_now(key, record)

    async def _refused(self, record: Launched) -> str:
        """Bind a pod; return why that is refused, '' where it is not."""
        if record.node not in self._cluster.nodes:
            return f"Kubernetes has no node {record.node}"
        document = binding_of(record.name, record.uid, record.node)
        try:
            await self._client.within(record.namespace).bind(record.name, document)
        except Denied as error:
            return str(error)
        return ""

    async def note(self, key: TaskKey, record: Launched, boot: str = "") -> Launched:
        """Note that a task's pod is on its node, from which start of that on."""
        known = self._tasks.live.get(key, record)
        record = msgspec.structs.replace(known, is_bound=True, boot=boot)
        await self._tasks.keep(key, record)
        self._tasks.note_placed(key)
        return record

    async def as_it_is(self, key: TaskKey, record: Launched) -> Launched:
        """Return what is known of a task whose pod was not put on a node, as far as we heard.

        It may be on one: where the answer did not reach us, or was not kept.
        """
        pod = await self._client.within(record.namespace).pod(record.name)
        is_there = pod is not None and pod.metadata.uid == record.uid
        if pod is None or not is_there or not pod.spec.node_name:
            return record
        return await self.note(key, record)

    async def take_back(self, key: TaskKey, record: Launched, why: Exit) -> None:
        """Delete a pod that is on no node, which ends its task.

        Where it came to be on one meanwhile, its end is waited for: it is told to end, with a
        grace. Without, Kubernetes forgets a pod whose processes run.
        """
        self._tasks.taken.add(key)
        try:
            await delete(self._client, record, 1)
            if not (await self.as_it_is(key, record)).is_bound:
                await free(self._client, record)
                self._ends.end(key, why)
        finally:
            self._tasks.taken.discard(key)
