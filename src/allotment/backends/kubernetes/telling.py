"""The reasons on pods that others made: a condition and an event on the pod.

Only what is news, a few a second, and nothing that holds for moments only. Namespaces take
turns: who makes very many pods has his own told later, and nobody else's.
"""

import asyncio
from collections import Counter
from datetime import UTC, datetime
from secrets import token_hex
from time import monotonic

import msgspec
import structlog

from allotment.backends.kubernetes.client import Client, Denied
from allotment.backends.kubernetes.gangs import Word
from allotment.model.errors import BackendError
from allotment.model.spec import Offered
from allotment.service.in_turns import in_turns

log = structlog.get_logger("allot.kubernetes")

AFTER_S = 2.0
"""For so long it has to hold."""
PAUSE_S = 0.05
LONGEST = 1000
MOST_KEPT = 5_000
"""Of each namespace."""
MOST_AT_ONCE = 100
"""Then it is looked whose turn it is."""
FORBIDDEN_S = 300.0
"""How long a namespace is left alone in which we may not write."""


class _Due(msgspec.Struct, frozen=True):
    pod: Offered
    word: Word
    at: float

    @property
    def namespace(self) -> str:
        return self.pod.name.partition("/")[0]


class Telling:
    """Keeps what is to be told of each pod last, and what was."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._due: dict[str, _Due] = {}
        self._kept: Counter[str] = Counter()
        """How many are due, by namespace."""
        self._said: dict[str, Word] = {}
        self._shut: dict[str, float] = {}
        """Namespaces in which we may not write, until when."""

    def say(self, pod: Offered, word: Word) -> None:
        """Have this told, unless it was or is overtaken."""
        word = Word(word.reason, word.message[:LONGEST])
        if self._said.get(pod.uid) == word:
            self._take(pod.uid)
        elif (before := self._due.get(pod.uid)) is not None:
            self._due[pod.uid] = _Due(pod, word, before.at)
        else:
            self._keep(_Due(pod, word, monotonic() + AFTER_S))

    def _keep(self, due: _Due) -> None:
        if self._kept[due.namespace] < MOST_KEPT:
            self._due[due.pod.uid] = due
            self._kept[due.namespace] += 1

    def _take(self, uid: str) -> _Due | None:
        due = self._due.pop(uid, None)
        if due is not None:
            self._kept[due.namespace] -= 1
        return due

    def forget(self, uid: str) -> None:
        """Have nothing told of a pod any more."""
        self._take(uid)
        self._said.pop(uid, None)

    def word_of(self, uid: str) -> Word | None:
        """Return what is, or will be, told of a pod."""
        due = self._due.get(uid)
        return due.word if due is not None else self._said.get(uid)

    async def run(self) -> None:
        """Send some of what is due, one after the other."""
        now = monotonic()
        due = (each for each in self._due.values() if each.at <= now)
        for was in in_turns(due, lambda each: each.namespace)[:MOST_AT_ONCE]:
            each = self._take(was.pod.uid)
            if each is None:
                continue
            self._said[each.pod.uid] = each.word
            await self._tell(each)
            await asyncio.sleep(PAUSE_S)

    async def _tell(self, due: _Due) -> None:
        namespace, _, name = due.pod.name.partition("/")
        if self._shut.get(namespace, 0.0) > monotonic():
            return
        client = self._client.within(namespace)
        try:
            await client.note_condition(name, due.pod.uid, condition_of(due.word))
            await client.note_event(event_of(due.pod, due.word))
        except Denied as error:
            if error.status == 403:
                self._shut[namespace] = monotonic() + FORBIDDEN_S
                log.warning(
                    "pods are not told why they wait", namespace=namespace, why=str(error)
                )
        except BackendError:
            self._said.pop(due.pod.uid, None)
            if due.pod.uid not in self._due:
                self._keep(msgspec.structs.replace(due, at=monotonic() + 5))


def condition_of(word: Word) -> dict[str, str]:
    """Return the condition that a pod is not placed, and why."""
    return {
        "type": "PodScheduled", "status": "False", "reason": word.reason,
        "message": word.message, "lastTransitionTime": _now(),
    }  # fmt: skip


def disruption_of(message: str) -> dict[str, str]:
    """Return the condition that a pod is ended for another's sake, not by its own fault."""
    return {
        "type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler",
        "message": message, "lastTransitionTime": _now(),
    }  # fmt: skip


def event_of(pod: Offered, word: Word, kind: str = "Warning") -> dict[str, object]:
    """Return an event about a pod."""
    namespace, _, name = pod.name.partition("/")
    at = _now()
    short = name[:200].rstrip("-.")
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{short}.{token_hex(8)}", "namespace": namespace},
        "involvedObject": {
            "apiVersion": "v1", "kind": "Pod", "namespace": namespace, "name": name,
            "uid": pod.uid,
        },
        "reason": word.reason,
        "message": word.message,
        "type": kind,
        "source": {"component": "allotment"},
        "firstTimestamp": at,
        "lastTimestamp": at,
        "count": 1,
    }  # fmt: skip


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
