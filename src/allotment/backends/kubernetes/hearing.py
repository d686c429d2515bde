"""What Kubernetes says of our own pods → reports on their tasks."""

import contextlib
from collections.abc import Callable
from functools import partial
from math import inf
from signal import SIGTERM
from time import monotonic, time

import msgspec

from allotment.backends.kubernetes.cluster import Cluster
from allotment.backends.kubernetes.disruption import shortage
from allotment.backends.kubernetes.ends import Ends
from allotment.backends.kubernetes.fence import Fence
from allotment.backends.kubernetes.objects import Pod
from allotment.backends.kubernetes.record import Launched
from allotment.backends.kubernetes.runner import failure_in
from allotment.backends.kubernetes.status import Told, is_over, may_run, pull_error, report
from allotment.backends.kubernetes.tasks import Tasks
from allotment.model.diagnosis import Exit
from allotment.model.errors import BackendError
from allotment.model.ids import TaskKey
from allotment.model.reports import Seen, TaskReport
from allotment.service.ports import Report


class Hearing:
    """Tells `sink` what becomes of tasks."""

    def __init__(
        self,
        cluster: Cluster,
        tasks: Tasks,
        ends: Ends,
        fence: Fence,
        sink: Callable[[Report], None],
    ) -> None:
        self._cluster, self._tasks = cluster, tasks
        self._ends, self._fence, self._sink = ends, fence, sink

    def on_pod(self, pod: Pod, is_gone: bool) -> None:
        """Note a pod of ours that changed."""
        key = self._tasks.keys.get(pod.metadata.uid)
        if key is None:
            return
        if is_gone:
            self.gone(key, pod)
        else:
            self.hear(key, pod)

    def hear_now(self, key: TaskKey, record: Launched) -> None:
        """Note what is known by now of a task's pod."""
        if (pod := self._cluster.pods.get(record.uid)) is not None:
            self.hear(key, pod)

    def hear(self, key: TaskKey, pod: Pod) -> None:
        """Note how a task's pod is."""
        record = self._tasks.live.get(key)
        if record is None or key in self._tasks.ending:
            return
        self._tasks.heard[key] = pod
        if why := pull_error(pod):
            self._tasks.pull_refused[key] = why
        told = self._read(key, record, pod)
        if told is None:
            return
        self._tasks.waits.pop(key, None)
        read = partial(self._read_output, key) if record.keep_s else None
        has_run = told.pid > 0 or told.seen in (Seen.RUNNING, Seen.HOLDING)
        self._ends.outputs.follow(key, record, read, has_run=has_run)
        known = self._tasks.told
        if told.seen is Seen.ENDED and told.exit is not None:
            if told.pid and known.get(key, Seen.READY) is Seen.READY:  # short, so not seen
                began = TaskReport(key, Seen.RUNNING, told.pid, engine_job=record.name)
                self._sink(msgspec.structs.replace(began, phases=record.phases))
            known[key] = Seen.ENDED
            if what := shortage(pod):
                self._cluster.note_short(record.node, what, monotonic())
            self._ends.end(key, told.exit, told.diagnosis, pod)
        elif known.get(key) is not told.seen:
            known[key] = told.seen
            self._sink(told)

    async def _read_output(self, key: TaskKey, text: bytes) -> None:
        """Look in what a task writes whether it has failed, and is kept as it is.

        A job can write that itself. It is then kept no longer than one that failed.
        """
        record = self._tasks.live.get(key)
        if record is None or record.failed is not None or record.is_stopped:
            return
        code = failure_in(text, record.token)
        if code is None or self._tasks.has_ended(key):
            return
        record = msgspec.structs.replace(
            record, failed=Exit(code=code), kept_until=time() + record.keep_s
        )
        self._tasks.adopt(key, record)
        self._tasks.told[key] = Seen.HOLDING
        with contextlib.suppress(BackendError):  # then a later start takes it for running
            await self._tasks.keep(key, record)
        if not self._tasks.has_ended(key):
            kept = TaskReport(key, Seen.HOLDING, 1, exit=record.failed, engine_job=record.name)
            self._sink(kept)

    def gone(self, key: TaskKey, pod: Pod | None) -> None:
        """Note that a pod is not there any more: whether its task has ended depends."""
        record = self._tasks.live.get(key)
        if record is None or key in self._tasks.ending or key in self._tasks.taken:
            return
        if pod is not None and is_over(pod):
            self.hear(key, pod)
            return
        # Its binding may not be kept yet, or was not answered.
        is_bound = record.is_bound or (pod is not None and bool(pod.spec.node_name))
        gone_at = -inf
        if pod is None or may_run(pod):
            gone_at = self._tasks.gone_at.setdefault(key, monotonic())
        if is_bound and not self._fence.is_over(record, gone_at):
            self._tasks.fenced.setdefault(key, pod)
            return
        if record.failed is not None:
            exit_ = record.failed
        elif record.is_stopped:
            exit_ = Exit(signal=SIGTERM)
        else:
            why = "its pod is gone from Kubernetes: somebody deleted it, or its node is gone"
            exit_ = Exit(lost=True, platform_error=why)
        self._ends.end(key, exit_, pod=pod)

    def state_of(self, key: TaskKey, record: Launched) -> TaskReport:
        """Return how a task is that has a pod and was not heard to end."""
        pod = self._cluster.pods.get(record.uid)
        if not record.is_bound:  # where it waits in itself, it is launched again
            seen = Seen.UNKNOWN if record.is_held else Seen.READY
            return TaskReport(key, seen, engine_job=record.name)
        told = self._read(key, record, pod) if pod is not None else None
        if told is None or told.seen is Seen.ENDED:  # its output comes first
            return TaskReport(key, Seen.UNKNOWN, engine_job=record.name)
        return told

    def _read(self, key: TaskKey, record: Launched, pod: Pod) -> TaskReport | None:
        node = self._cluster.nodes.get(record.node)
        told = Told(record.is_stopped, record.boot, record.is_held, record.fence_ms > 0)
        found = report(key, pod, told, node)
        if found is not None and found.seen is Seen.RUNNING:
            found = msgspec.structs.replace(found, phases=record.phases)
        if found is None or record.failed is None:
            return found
        seen = Seen.HOLDING if found.seen is Seen.RUNNING else found.seen
        was_oom = (
            found.exit is not None and found.exit.oom
        )  # which its first process cannot know
        exit_ = found.exit if was_oom else record.failed
        return msgspec.structs.replace(found, seen=seen, exit=exit_)
