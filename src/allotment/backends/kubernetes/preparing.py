"""What nodes do with pods of ours that have not begun, such as pulling an image.

Their status says little more than that they wait. So of a few at a time it is asked what their
kubelets said of them: not watched, and not while nothing waits.
"""

import contextlib
from collections.abc import Callable, Sequence
from time import monotonic

from allotment.backends.kubernetes.client import Client
from allotment.backends.kubernetes.events import Said, said_of
from allotment.backends.kubernetes.objects import Pod
from allotment.backends.kubernetes.record import Launched
from allotment.backends.kubernetes.status import is_pull_refused, waits_for
from allotment.backends.kubernetes.tasks import Tasks
from allotment.model.errors import BackendError
from allotment.model.ids import TaskKey
from allotment.model.reports import Seen, TaskReport
from allotment.service.ports import Report

FIRST_S, AGAIN_S = 2.0, 10.0
"""After how long a task that waits is asked about, and then again."""
AT_ONCE = 2
"""Tasks that are asked about at a look, each second."""
LONGEST = 1000


class Preparing:
    """Tells `sink` what nodes do with tasks of ours."""

    def __init__(self, client: Client, tasks: Tasks, sink: Callable[[Report], None]) -> None:
        self._client, self._tasks, self._sink = client, tasks, sink
        self._asked: dict[TaskKey, float] = {}
        self._doing: dict[TaskKey, str] = {}
        self._told: dict[TaskKey, str] = {}

    async def look(self) -> None:
        """Ask about some tasks that wait, and tell what is new of them. Raises nothing of
        Kubernetes'."""
        waits, now = self._tasks.waits, monotonic()
        for key in self._asked.keys() - waits.keys():
            self._asked.pop(key)
            self._doing.pop(key, None)
        due = [
            (self._asked.get(key, since), key)
            for key, since in waits.items()
            if now - self._asked.get(key, since + FIRST_S - AGAIN_S) >= AGAIN_S
        ]
        for _, key in sorted(due)[:AT_ONCE]:
            self._asked[key] = now
            record, pod = self._tasks.live.get(key), self._tasks.heard.get(key)
            if record is not None and pod is not None and waits_for(pod):
                await self._ask(key, record)
        self._tell()

    async def _ask(self, key: TaskKey, record: Launched) -> None:
        with contextlib.suppress(BackendError):
            said = await said_of(self._client.within(record.namespace), record.uid)
            self._doing[key] = doing(said)

    def _tell(self) -> None:
        before, self._told = self._told, {}
        for key in self._tasks.waits:
            if words := self._words_of(key):
                self._told[key] = words
        for key in before | self._told:
            words = self._told.get(key, "")
            if words != before.get(key, ""):
                self._sink(TaskReport(key, Seen.UNKNOWN, held_up=words))

    def _words_of(self, key: TaskKey) -> str:
        """Return what a task's node does before it begins; '' where that is not known."""
        record, pod = self._tasks.live.get(key), self._tasks.heard.get(key)
        if record is None or pod is None:
            return ""
        words = self._words(key, pod)
        return f"{record.node} {words}"[:LONGEST] if words else ""

    def _words(self, key: TaskKey, pod: Pod) -> str:
        if not is_pull_refused(pod):
            return self._doing.get(key, "")
        why = self._tasks.pull_refused.get(key) or waits_for(pod)
        return f"could not pull its image, and tries again: {why}"


def doing(said: Sequence[Said]) -> str:
    """Return what a node does, by the newest event that says it; '' for nothing special."""
    for each in reversed(said):
        match each.reason:
            case "Pulling":
                return f"pulls its image {_quoted(each.message)}".strip()
            case "FailedMount" | "FailedAttachVolume":
                return f"cannot mount its folders yet: {each.message}"
            case "FailedCreatePodSandBox" | "FailedPrepareDynamicResources":
                return f"cannot prepare it yet: {each.message}"
            case "Pulled" | "Created" | "Started":
                return ""
            case _:
                continue
    return ""


def _quoted(message: str) -> str:
    """Return what stands in quotation marks in a message: `Pulling image "busybox:1"`."""
    return message.partition('"')[2].partition('"')[0]
