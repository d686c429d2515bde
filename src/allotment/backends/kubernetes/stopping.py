"""How a task of ours is told to end."""

import asyncio
from collections.abc import Callable, Sequence
from math import ceil
from signal import SIGTERM
from time import monotonic
from weakref import WeakValueDictionary

import msgspec
import structlog

from allotment.backends.kubernetes.binding import Bindings
from allotment.backends.kubernetes.ends import Ends, delete
from allotment.backends.kubernetes.record import Launched
from allotment.backends.kubernetes.request import LAUNCH
from allotment.backends.kubernetes.silent_nodes import SilentNodes
from allotment.backends.kubernetes.site import Site
from allotment.backends.kubernetes.status import is_running
from allotment.backends.kubernetes.tasks import Tasks
from allotment.backends.program import said_by
from allotment.model.diagnosis import Exit
from allotment.model.errors import EngineAway
from allotment.model.ids import JobId, TaskKey
from allotment.model.quantity import Millis
from allotment.model.reasons import StopCause

log = structlog.get_logger("allot.kubernetes")

TERM, KILL = "TERM", "KILL"
SIGNAL_S = 30.0
"""How long the command that signals a task may take; then its grace begins all the same."""
SIGNALS = 8
"""Such commands at a time for one job: each takes some 50 MB."""

Entering = Callable[[Launched, Sequence[str]], list[str]]
"""Return what runs a command inside a task."""


class Stopping:
    """Ends the pods of tasks, with a signal where one is named."""

    def __init__(
        self,
        site: Site,
        tasks: Tasks,
        bindings: Bindings,
        ends: Ends,
        silent: SilentNodes,
        entering: Entering,
    ) -> None:
        self._client, self._cluster, self._tasks = site.client, site.cluster, tasks
        self._bindings, self._ends, self._silent = bindings, ends, silent
        self._entering = entering
        self._signals: set[asyncio.Task[None]] = set()
        """Under way: the other tasks of a gang do not wait for them."""
        self._turns: WeakValueDictionary[JobId, asyncio.Semaphore] = WeakValueDictionary()

    async def stop(
        self, key: TaskKey, signal: str, grace_ms: Millis, cause: StopCause | None
    ) -> None:
        """Stop a task. Raises EngineAway."""
        record = self._tasks.record(key)
        if record is None or record.exit is not None:
            return
        if not record.is_stopped or (cause is not None and record.cause is None):
            cause = cause if record.cause is None else record.cause
            record = msgspec.structs.replace(record, is_stopped=True, cause=cause)
            await self._tasks.keep(key, record)
        if self._tasks.has_ended(key):
            return
        self._tasks.adopt(key, record)
        if not record.uid:
            found = await self._sought(key, record)
            if found is None:
                return
            record = found
        if not record.is_bound:
            record = await self._bindings.as_it_is(key, record)
        if not record.is_bound:
            await self._bindings.take_back(key, record, Exit(signal=SIGTERM))
            return
        pod = self._cluster.pods.get(record.uid)
        can_hear = pod is not None and is_running(pod)
        name, grace_s = signal.removeprefix("SIG"), grace_ms / 1000
        if name in (TERM, KILL) or not can_hear or grace_s <= 0:
            await delete(self._client, record, max(1, ceil(grace_s)))
            return
        argv = self._entering(record, ["/bin/sh", "-c", f"kill -{name} -1"])
        due = self._tasks.overdue[key] = monotonic() + SIGNAL_S + grace_s
        signals = asyncio.create_task(self._signal(key, argv, due, grace_s))
        self._signals.add(signals)
        signals.add_done_callback(self._signals.discard)

    async def _sought(self, key: TaskKey, record: Launched) -> Launched | None:
        """Look for the pod of a task that was asked for and never heard of; its task is over
        where there is none. Raises EngineAway where that does not say so."""
        pod = await self._client.within(record.namespace).pod(record.name)
        if pod is not None and (pod.metadata.labels or {}).get(LAUNCH) == record.token:
            record = msgspec.structs.replace(record, uid=pod.metadata.uid)
            await self._tasks.keep(key, record)
            self._tasks.adopt(key, record)
            return record
        if record.at_once and not self._silent.is_certain(record.node):
            raise EngineAway(
                f"node {record.node} is silent: whether it runs pod {record.name} is not known"
            )
        self._tasks.need_answer(key, record)
        self._ends.end(key, Exit(signal=SIGTERM))
        return None

    async def _signal(
        self, key: TaskKey, argv: Sequence[str], due: float, grace_s: float
    ) -> None:
        """Send all processes of a task a signal, by a command inside it; its grace begins then.
        It is `due` to end where that does not come to an end."""
        turn = self._turns.setdefault(key.job, asyncio.Semaphore(SIGNALS))
        try:
            async with turn:
                code, _, wrong = await said_by(*argv, patience_s=SIGNAL_S)
            why = wrong.decode(errors="replace").strip()[:300] if code not in (0, 137) else ""
        except TimeoutError:
            why = f"nothing was answered in {SIGNAL_S:.0f} s"
        except OSError as error:
            why = str(error)
        if why:
            log.warning("a signal did not reach a task", task=str(key), why=why)
        if self._tasks.overdue.get(key) == due:
            self._tasks.overdue[key] = monotonic() + grace_s

    async def close(self) -> None:
        signals = list(self._signals)
        for each in signals:
            each.cancel()
        await asyncio.gather(*signals, return_exceptions=True)
