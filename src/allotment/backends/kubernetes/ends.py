"""The end of a task of ours: kept and told once all is there that it wrote."""

import asyncio
import contextlib
from collections.abc import Callable

import msgspec
import structlog

from allotment.backends.kubernetes.client import Client
from allotment.backends.kubernetes.disruption import DELETED, deletion
from allotment.backends.kubernetes.events import said_of
from allotment.backends.kubernetes.objects import Pod
from allotment.backends.kubernetes.outputs import Outputs
from allotment.backends.kubernetes.record import Launched, Records
from allotment.backends.kubernetes.request import deletion_of
from allotment.backends.kubernetes.status import is_over, runs_on, words_of
from allotment.backends.kubernetes.tasks import Tasks
from allotment.model.diagnosis import Diagnosis, Exit
from allotment.model.errors import BackendError
from allotment.model.ids import JobId, TaskKey
from allotment.model.reports import Seen, TaskReport
from allotment.service.ports import Report

log = structlog.get_logger("allot.kubernetes")

FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 15.0
"""Between tries to keep an end."""


class Ends:
    """Ends tasks. `report` is told of each end."""

    def __init__(
        self,
        client: Client,
        records: Records,
        tasks: Tasks,
        report: Callable[[Report], None],
    ) -> None:
        self._client, self._records = client, records
        self._tasks, self._report = tasks, report
        self.outputs = Outputs(client, records)
        self._left: dict[str, tuple[Launched, int]] = {}
        """Pods of tasks that ended that could not be deleted, by name, and with which grace. No
        watch may tell of them: who may change pods may take the words from it that say whose
        it is."""

    def end(
        self, key: TaskKey, exit_: Exit, why: Diagnosis | None = None, pod: Pod | None = None
    ) -> None:
        """Report the end of a task, once all is there that it wrote."""
        if key not in self._tasks.ending:
            finish = self._finish_or_again(key, exit_, why, pod)
            self._tasks.ending[key] = asyncio.create_task(finish)

    async def _finish_or_again(
        self, key: TaskKey, exit_: Exit, why: Diagnosis | None, pod: Pod | None
    ) -> None:
        """Report an end, once it can be kept: a disk may be full for a while."""
        pause = FIRST_PAUSE_S
        try:
            while True:
                try:
                    await self._finish(key, exit_, why, pod)
                except BackendError as error:
                    log.warning("an end is told later", task=str(key), why=str(error))
                else:
                    return
                await asyncio.sleep(pause)
                pause = min(pause * 2, LONGEST_PAUSE_S)
        except Exception:
            log.exception("an end is not told; it is looked for again", task=str(key))
        finally:
            self._tasks.ending.pop(key, None)
            self._tasks.heard.pop(key, None)

    async def _finish(
        self, key: TaskKey, exit_: Exit, why: Diagnosis | None, pod: Pod | None
    ) -> None:
        record = self._tasks.live.get(key)
        if record is None:
            return
        dropped = await self.outputs.finish(
            key,
            is_there=pod is not None and pod.metadata.deletion_timestamp is None,
            runs_on=pod is not None and runs_on(pod),
        )
        if exit_.platform_error == DELETED:
            exit_, why = await self._by_whom(record, exit_)
        exit_ = msgspec.structs.replace(exit_, log_dropped=dropped)
        if pod is not None and (words := words_of(pod)):
            self.outputs.add_words(key, words)
        record = msgspec.structs.replace(record, exit=exit_, diagnosis=why)
        await self._tasks.keep(key, record)
        self._tasks.over.setdefault(key.job, set()).add(key)
        if pod is not None:
            self._left[record.name] = record, 0 if is_over(pod) else 1
            await self._delete_left(record.name)
            if is_over(pod):
                await free(self._client, record)
        self._part(key)
        self._report(end_report(key, record))

    async def _by_whom(self, record: Launched, exit_: Exit) -> tuple[Exit, Diagnosis | None]:
        """Return the end of a task whose pod was deleted, with the cause if that is told."""
        with contextlib.suppress(BackendError):
            said = await said_of(self._client.within(record.namespace), record.uid)
            if (found := deletion(said)) is not None:
                return msgspec.structs.replace(exit_, platform_error=found.why), found.diagnosis
        return exit_, None

    async def delete_left(self) -> None:
        """Delete the pods of tasks that ended, where that did not work before."""
        for name in list(self._left):
            await self._delete_left(name)

    async def _delete_left(self, name: str) -> None:
        with contextlib.suppress(BackendError):
            await delete(self._client, *self._left[name])
            self._left.pop(name, None)

    def _part(self, key: TaskKey) -> None:
        self._tasks.part(key)
        self.outputs.drop(key)

    async def forget(self, job: JobId) -> None:
        """Keep nothing of a job any more."""
        for key in [key for key in self._tasks.live if key.job == job]:
            self._part(key)
        self._tasks.forget(job)
        await self._records.forget(job)

    async def close(self) -> None:
        running = list(self._tasks.ending.values())
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        await self.outputs.close()


def end_report(key: TaskKey, record: Launched) -> TaskReport:
    """Return the report on a task whose end is kept."""
    return TaskReport(
        key, Seen.ENDED, exit=record.exit, diagnosis=record.diagnosis,
        stopped_for=record.cause, engine_job=record.name,
    )  # fmt: skip


async def delete(client: Client, record: Launched, grace_s: int) -> bool:
    """End a task's pod. Whether it was there to be ended."""
    own = client.within(record.namespace)
    return await own.delete_pod(record.name, deletion_of(record.uid, grace_s))


async def free(client: Client, record: Launched) -> None:
    """Let go of the devices by name of a task whose pod runs no more. Where that does not work,
    its claim goes with its pod, a moment later."""
    if record.devices:
        with contextlib.suppress(BackendError):
            await client.within(record.namespace).delete_claim(record.name)
