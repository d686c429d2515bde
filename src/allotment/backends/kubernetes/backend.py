"""The Kubernetes backend: each task a pod, found again by its name and by a record of ours.

A pod is made first, and bound to its node when its gang may begin: so that either all pods of
a gang are there, or none runs. The kubelet picks the devices; how many, the core plans.
"""

import asyncio
import contextlib
import shutil
from collections.abc import Callable, Mapping, Sequence
from math import ceil, inf
from pathlib import Path
from secrets import token_hex
from signal import SIGTERM
from time import monotonic
from typing import Any

import msgspec
import structlog

from allotment.backends.contact import Contact
from allotment.backends.kubernetes.beats import Beats
from allotment.backends.kubernetes.client import LATE_S, NOTE, Client, Denied
from allotment.backends.kubernetes.cluster import Cluster, News
from allotment.backends.kubernetes.discover import (
    device_of,
    is_silent,
    joined,
    others_of,
    report_of,
)
from allotment.backends.kubernetes.enter import enter_argv
from allotment.backends.kubernetes.foreign import ReadHived, Rules
from allotment.backends.kubernetes.gangs import Word
from allotment.backends.kubernetes.guests import Guests
from allotment.backends.kubernetes.kubeconfig import access_of, found_file
from allotment.backends.kubernetes.logs import FILE, Follower
from allotment.backends.kubernetes.objects import KubeNode, Pod
from allotment.backends.kubernetes.offers import Finder
from allotment.backends.kubernetes.record import Launched, Records
from allotment.backends.kubernetes.request import (
    LAUNCH,
    SCHEDULER,
    Place,
    begun_on,
    binding_of,
    deletion_of,
    missing_paths,
    name_of,
    open_env,
    pod_of,
    secret_of,
)
from allotment.backends.kubernetes.runner import GO
from allotment.backends.kubernetes.status import (
    Told,
    hindrance,
    is_over,
    is_running,
    may_run,
    report,
    words_of,
)
from allotment.backends.together import gather_all
from allotment.model.cluster import Node
from allotment.model.diagnosis import Diagnosis, Exit, Owner, RetryClass
from allotment.model.engines import Ability, EngineSetup
from allotment.model.errors import BackendError, EngineAway
from allotment.model.ids import JobId, NodeId, TaskKey
from allotment.model.others import Others
from allotment.model.quantity import Millis
from allotment.model.reasons import StopCause
from allotment.model.reports import NodeReport, OthersReport, Seen, TaskReport
from allotment.model.spec import Offered
from allotment.service.forever import forever
from allotment.service.ports import (
    GangLaunch,
    LogChunk,
    Offer,
    Refused,
    Report,
    Silence,
    TaskLaunch,
)

log = structlog.get_logger("allot.kubernetes")

FIRST_S = 5.0
"""How long a start waits for the first answers."""
LOOK_EVERY_S = 1.0
REST = 3.0
"""Times as long as it took to look at nodes others have the time."""
SIZES_EVERY_S, RIGHTS_EVERY_S = 2.0, 5.0
LOG_S = 15.0
"""How long the end of a task waits for the last of its output."""
STRAY_S = 30.0
"""How long a pod of ours may be there that no task stands behind."""
BACK_S = 30.0
"""After a node reports again, or a pod was taken away under its kubelet: what the node still
ran of pods that are gone, it has ended by then."""
STREAMS = ("stdout", "stderr")
TERM, KILL = "TERM", "KILL"

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


class KubernetesBackend:
    """Runs tasks in one namespace. `nodes` are those of the configuration."""

    name = "kubernetes"
    abilities = frozenset({Ability.ENTERS, Ability.IMAGES})
    """A pod that is paused would keep its devices, and which it gets its kubelet decides."""

    def __init__(
        self,
        state_dir: Path,
        setup: EngineSetup,
        nodes: Callable[[], Sequence[Node]],
        read_hived: ReadHived | None = None,
    ) -> None:
        self.default_image = setup.image
        self._root = state_dir / "kubernetes"
        self._setup, self._nodes = setup, nodes
        self._kubeconfig = found_file(setup.kubeconfig)
        self._records = Records(self._root)
        self._prefix = ""
        self._contact = Contact("Kubernetes", "pods")
        self._sink: Callable[[Report], None] = lambda report: None
        self._live: dict[TaskKey, Launched] = {}
        self._keys: dict[str, TaskKey] = {}
        """Of live tasks, by the uid of their pods."""
        self._told: dict[TaskKey, Seen] = {}
        self._told_nodes: dict[tuple[NodeId, str], NodeReport] = {}
        """By id and name: the id of one that left is given again."""
        self._found: tuple[Node, ...] = ()
        self._looked_at: tuple[Node, ...] = ()
        """The nodes in force of which all is told that is known."""
        self._told_others: dict[tuple[NodeId, str], Others] = {}
        self._waits: dict[TaskKey, float] = {}
        """Since when a bound task has not begun."""
        self._overdue: dict[TaskKey, float] = {}
        """When a task that got another signal than TERM is to be ended."""
        self._fenced: dict[TaskKey, Pod | None] = {}
        """Tasks whose pods are gone, on nodes of which nobody knows what they do."""
        self._gone_at: dict[TaskKey, float] = {}
        """When we heard that a pod is gone of which nobody said that it had ended."""
        self._taken: set[TaskKey] = set()
        """Tasks whose pods we take back just now: that one is gone is no news."""
        self._back: dict[str, float] = {}
        """When a node that was silent reported again."""
        self._silent: dict[str, float] = {}
        """Since when a node has been silent."""
        self._strays: dict[str, float] = {}
        self._asked_at: dict[TaskKey, float] = {}
        """When a pod was asked for that runs once it is made, and nothing was answered."""
        self._began = monotonic()
        self._follows: dict[TaskKey, tuple[Follower, asyncio.Task[None]]] = {}
        self._ending: dict[TaskKey, asyncio.Task[None]] = {}
        self._over: dict[JobId, set[TaskKey]] = {}
        """Tasks that ended since the start, of jobs that are not forgotten."""
        self._is_adopted = False
        self._rules = Rules(setup.name, dict(setup.namespaces), read_hived)
        self._resumed: Mapping[TaskKey, Offered] = {}
        self._loops: list[asyncio.Task[None]] = []
        self._news = asyncio.Event()

    # ── life ────────────────────────────────────────────────────────────────────────────

    async def start(self, sink: Callable[[Report], None]) -> None:
        self._sink = sink
        self._prefix = self._records.prepare()
        access = access_of(self._kubeconfig, self._setup.context)
        namespace = self._setup.namespace or access.namespace
        self._client = Client(access, namespace, self._contact)
        self._beats = Beats(self._client, f"{self._prefix}-beat")
        self._cluster = Cluster(
            self._client, self._prefix, self._on_pod, self._news.set,
            self._on_foreign, self._on_list,
        )  # fmt: skip
        self._guests = Guests(
            self._client, self._cluster, self._sink, self._is_certain, self._let_go
        )
        self._finder = Finder(self._client, self._rules, self._guests.types_of)
        self._guests.resume(self._resumed)
        self._finder.resume(pod.uid for pod in self._resumed.values())
        first = asyncio.create_task(self._cluster.start())
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FIRST_S):
                await asyncio.shield(first)
        self._look_at_nodes()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FIRST_S):
                await self._beat()  # without, nothing that ends itself could be started yet
        self._loops = [
            first,
            asyncio.create_task(forever(self._look, LOOK_EVERY_S, "tasks on Kubernetes")),
            asyncio.create_task(forever(self._on_news, 0.2, "Kubernetes' nodes")),
            asyncio.create_task(forever(self._beat, LOOK_EVERY_S, "beats for pods")),
        ]
        if self._setup.namespaces or self._resumed:  # those run on that are named no more
            self._loops += [
                asyncio.create_task(forever(self._look_at_guests, LOOK_EVERY_S, "guests")),
                asyncio.create_task(forever(self._finder.ask_sizes, SIZES_EVERY_S, "gangs")),
                asyncio.create_task(
                    forever(self._finder.look_at_rights, RIGHTS_EVERY_S, "rights")
                ),
                asyncio.create_task(forever(self._finder.read_on, 0, "documents of pods")),
                asyncio.create_task(forever(self._finder.telling.run, LOOK_EVERY_S, "words")),
            ]

    async def close(self) -> None:
        follows = [task for _, task in self._follows.values()]
        await self._cluster.close()
        running = [*self._loops, *follows, *self._ending.values()]
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        self._client.close()

    # ── tasks ───────────────────────────────────────────────────────────────────────────

    async def launch(self, gang: GangLaunch) -> Refused:
        if gang.tasks[0].offered is not None:
            for task in gang.tasks:
                if task.offered is not None:
                    self._finder.gangs.hold(task.offered.uid)
            return await self._guests.launch(gang)
        found = await gather_all([self._launch_or_refuse(gang, task) for task in gang.tasks])
        keys = [task.key for task in gang.tasks]
        refused = {key: why for key, why in zip(keys, found, strict=True) if why}
        held = [(key, record) for key in keys if (record := self._live.get(key)) is not None]
        held = [each for each in held if each[1].is_held and not each[1].is_bound]
        if refused:
            for key, record in held:  # it is there, on no node, and goes to none
                self._sink(TaskReport(key, Seen.READY, engine_job=record.name))
        else:
            await gather_all([self._bind(*each) for each in held])
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
        record = self._record(key)
        at_once = record is None and not gang.at_barrier and open_env(gang, task) is not None
        if record is None:
            record = self._new(gang, task, at_once=at_once)
            if (refused := self._refusal(gang, key, record)) is not None:
                await self._records.keep(key, refused)
                self._sink(self._end_report(key, refused))
                return
            await self._records.keep(key, record)
        if record.exit is not None:
            return
        if not record.is_bound:
            record = await self._make(gang, task, record, at_once=at_once)
            if self._has_ended(key):
                return
        self._adopt(key, record)
        if record.is_bound:
            self._hear_now(key, record)
        if not gang.at_barrier:
            await self._bind(key, record)
        elif not (record.is_bound or record.is_held):
            self._sink(TaskReport(key, Seen.READY, engine_job=record.name))

    def _new(self, gang: GangLaunch, task: TaskLaunch, *, at_once: bool) -> Launched:
        """Return what is kept of a task before anything of it is in Kubernetes."""
        node = task.binding.node
        self._need_nodes()
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
        self._need_nodes()  # they say what its devices are called
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
            boot = self._boot_of(record.node)
            record = msgspec.structs.replace(record, is_bound=True, boot=boot)
            await self._keep(task.key, record)
            self._waits.setdefault(task.key, monotonic())
            return record
        secret = secret_of(gang, task, record.name, uid, record.token)
        await gather_all([self._keep(task.key, record), self._client.make_secret(secret)])
        return record

    async def _made_at_once(self, key: TaskKey, document: Mapping[str, Any]) -> Pod | None:
        """Make a pod on its node; None where only a scheduler may say where pods are."""
        self._asked_at[key] = monotonic()
        try:
            pod = await self._client.make_pod(document)
        except Denied as error:
            self._asked_at.pop(key, None)
            if error.status in (403, 422):
                return None
            raise
        self._asked_at.pop(key, None)
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
                self._need_answer(key, record)
            raise

    def _boot_of(self, node: str) -> str:
        found = self._cluster.nodes.get(node)
        return found.status.node_info.boot_id if found is not None else ""

    def _adopt(self, key: TaskKey, record: Launched) -> None:
        self._live[key] = record
        if record.uid:
            self._keys[record.uid] = key

    async def open_barrier(self, keys: Sequence[TaskKey]) -> None:
        own = [key for key in keys if not self._guests.has(key)]
        if len(own) < len(keys):
            await self._guests.bind(keys)
        waiting = [(key, record) for key in own if (record := self._record(key)) is not None]
        await asyncio.gather(*(self._let_begin(key, record) for key, record in waiting))

    async def _let_begin(self, key: TaskKey, record: Launched) -> None:
        """Put a task's pod on its node, or let it go on where it waits. Raises EngineAway."""
        if not record.is_held:
            await self._bind(key, record)
            return
        if record.exit is not None or self._has_ended(key):
            return
        # It may begin, and even end, before the answer is here.
        self._adopt(key, msgspec.structs.replace(record, is_held=False))
        try:
            await self._client.annotate_pod(record.name, record.uid, {GO: "yes"})
        except BackendError as error:  # it waits on, or is told again
            if key in self._live:
                self._live[key] = msgspec.structs.replace(self._live[key], is_held=True)
            raise EngineAway(str(error)) from error
        record = msgspec.structs.replace(self._live.get(key, record), is_held=False)
        await self._keep(key, record)
        self._hear_now(key, record)

    async def _bind(self, key: TaskKey, record: Launched) -> None:
        """Put a task's pod on its node. Where that is refused, the task has ended."""
        if record.is_bound or record.exit is not None or not record.uid:
            return
        self._need_nodes()
        boot = self._boot_of(record.node)
        if refused := await self._refused_to_bind(record):
            log.warning("a pod is not put on its node", pod=record.name, why=refused)
            why = Exit(platform_error=f"it was not put on its node: {refused}")
            await self._take_back(key, record, why)
            return
        await self._note_bound(key, record, boot)
        self._hear_now(key, record)

    def _hear_now(self, key: TaskKey, record: Launched) -> None:
        """Hear what is known by now of a task's pod."""
        if (pod := self._cluster.pods.get(record.uid)) is not None:
            self._hear(key, pod)

    def _need_nodes(self) -> None:
        """Raise EngineAway while it is not known which nodes there are."""
        if not self._cluster.nodes_known:
            why = self._cluster.node_watch.refused or "its nodes have not been listed yet"
            raise EngineAway(f"Kubernetes does not tell its nodes: {why}")

    async def _note_bound(self, key: TaskKey, record: Launched, boot: str = "") -> Launched:
        record = msgspec.structs.replace(self._live.get(key, record), is_bound=True, boot=boot)
        await self._keep(key, record)
        self._waits.setdefault(key, monotonic())
        return record

    async def _as_it_is(self, key: TaskKey, record: Launched) -> Launched:
        """Return what is known of a task whose pod was not put on a node, as far as we heard.

        It may be on one: where the answer did not reach us, or was not kept.
        """
        pod = await self._client.pod(record.name)
        is_there = pod is not None and pod.metadata.uid == record.uid
        if pod is None or not is_there or not pod.spec.node_name:
            return record
        return await self._note_bound(key, record)

    async def _take_back(self, key: TaskKey, record: Launched, why: Exit) -> None:
        """Delete a pod that is on no node, which ends its task.

        Where it came to be on one meanwhile, its end is waited for: it is told to end, with a
        grace. Without, Kubernetes forgets a pod whose processes run.
        """
        self._taken.add(key)
        try:
            await self._delete(record, 1)
            if not (await self._as_it_is(key, record)).is_bound:
                self._end(key, why)
        finally:
            self._taken.discard(key)

    async def _refused_to_bind(self, record: Launched) -> str:
        """Bind a pod; return why that is refused, '' where it is not."""
        if record.node not in self._cluster.nodes:
            return f"Kubernetes has no node {record.node}"
        document = binding_of(record.name, record.uid, record.node)
        try:
            await self._client.bind(record.name, document)
        except Denied as error:
            return str(error)
        return ""

    async def stop(
        self, key: TaskKey, signal: str, grace_ms: Millis, cause: StopCause | None = None
    ) -> None:
        if self._guests.has(key):
            self._finder.gangs.stop(self._guests.gang_pod(key))
            await self._guests.stop(key, grace_ms, cause)
            return
        record = self._record(key)
        if record is None or record.exit is not None:
            return
        if not record.is_stopped or (cause is not None and record.cause is None):
            cause = cause if record.cause is None else record.cause
            record = msgspec.structs.replace(record, is_stopped=True, cause=cause)
            await self._keep(key, record)
        if self._has_ended(key):
            return
        self._adopt(key, record)
        if not record.uid:
            found = await self._sought(key, record)
            if found is None:
                return
            record = found
        if not record.is_bound:
            record = await self._as_it_is(key, record)
        if not record.is_bound:
            await self._take_back(key, record, Exit(signal=SIGTERM))
            return
        pod = self._cluster.pods.get(record.uid)
        can_hear = pod is not None and is_running(pod)
        if signal.removeprefix("SIG") in (TERM, KILL) or not can_hear or grace_ms <= 0:
            await self._delete(record, max(1, ceil(grace_ms / 1000)))
            return
        await self._signal(record, signal.removeprefix("SIG"))
        self._overdue[key] = monotonic() + grace_ms / 1000

    async def _sought(self, key: TaskKey, record: Launched) -> Launched | None:
        """Look for the pod of a task that was asked for and never heard of; its task is over
        where there is none. Raises EngineAway where that does not say so."""
        pod = await self._client.pod(record.name)
        if pod is not None and (pod.metadata.labels or {}).get(LAUNCH) == record.token:
            record = msgspec.structs.replace(record, uid=pod.metadata.uid)
            await self._keep(key, record)
            self._adopt(key, record)
            return record
        if record.at_once and not self._is_certain(record.node):
            raise EngineAway(
                f"node {record.node} is silent: whether it runs pod {record.name} is not known"
            )
        self._need_answer(key, record)
        self._end(key, Exit(signal=SIGTERM))
        return None

    def _need_answer(self, key: TaskKey, record: Launched) -> None:
        """Raise EngineAway while a pod that runs once it is made may still be made."""
        if record.at_once and monotonic() - self._asked_at.get(key, self._began) < LATE_S:
            raise EngineAway(
                f"pod {record.name} was asked for, and may still be made: nothing was answered"
            )

    async def _delete(self, record: Launched, grace_s: int) -> bool:
        return await self._client.delete_pod(record.name, deletion_of(record.uid, grace_s))

    async def _signal(self, record: Launched, signal: str) -> None:
        """Send all processes of a task a signal, by a command inside it."""
        argv = self._entering(record, ["/bin/sh", "-c", f"kill -{signal} -1"])
        process = await asyncio.create_subprocess_exec(
            *argv, cwd="/", stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        _, wrong = await process.communicate()
        if process.returncode not in (0, 137):
            text = wrong.decode(errors="replace").strip()[:300]
            log.warning("a signal did not reach a task", pod=record.name, why=text)

    async def freeze(self, key: TaskKey) -> None:
        """Do nothing: it is never asked, as it is not able to."""

    async def thaw(self, key: TaskKey) -> None:
        """Do nothing, as `freeze`."""

    async def highest_job(self) -> JobId:
        return JobId(max(self._records.jobs(), default=0))

    async def observe(self, keys: Sequence[TaskKey]) -> Sequence[TaskReport]:
        found = self._guests.observe(keys)
        for key in keys:
            record = self._record(key)
            if record is None:
                continue
            if record.exit is not None:
                found.append(self._end_report(key, record))
                continue
            if not record.uid:  # launched or stopped again, its pod is found by its name
                found.append(TaskReport(key, Seen.UNKNOWN, engine_job=record.name))
                continue
            self._adopt(key, record)
            found.append(self._now(key, record))
        self._is_adopted = True
        return found

    def _now(self, key: TaskKey, record: Launched) -> TaskReport:
        pod = self._cluster.pods.get(record.uid)
        if not record.is_bound:  # where it waits in itself, it is launched again
            seen = Seen.UNKNOWN if record.is_held else Seen.READY
            return TaskReport(key, seen, engine_job=record.name)
        told = self._read(key, record, pod) if pod is not None else None
        if told is None or told.seen is Seen.ENDED:  # its output comes first
            return TaskReport(key, Seen.UNKNOWN, engine_job=record.name)
        return told

    def enter_argv(self, key: TaskKey, argv: Sequence[str]) -> list[str]:
        record = self._record(key)
        if record is None or not record.is_bound:
            raise BackendError(f"task {key} has no pod that runs")
        return self._entering(record, argv)

    def _entering(self, record: Launched, argv: Sequence[str]) -> list[str]:
        return enter_argv(
            self._kubeconfig, self._setup.context,
            self._client.namespace, record.name, argv,
        )  # fmt: skip

    # ── pods of others ──────────────────────────────────────────────────────────────────

    def resume(self, tasks: Mapping[str, Mapping[TaskKey, Offered]]) -> None:
        self._resumed = tasks.get(self._setup.name, {})

    async def next_offers(self) -> Sequence[Offer]:
        return await self._finder.next()

    def is_offered(self, offer: str) -> bool | None:
        return self._finder.is_offered(offer) if self._cluster.sees_all else None

    def end_offer(self, offer: str) -> None:
        self._finder.gangs.end(offer)

    def say(self, engine: str, offered: Sequence[Offered], reason: str, message: str) -> None:
        for pod in offered:
            self._finder.telling.say(pod, Word(reason, message))

    def why_not_offered(self, name: str) -> str:
        return self._finder.why_not(name)

    def _is_for_us(self, pod: Pod) -> bool:
        """Whether its maker wants a pod placed by us: by a further name of ours, only where we
        place anything, as elsewhere that may be another scheduler."""
        if pod.spec.scheduler_name in self._setup.schedulers:
            return pod.metadata.namespace in self._rules.namespaces
        return pod.spec.scheduler_name == SCHEDULER

    def _on_foreign(self, pod: Pod, is_gone: bool) -> bool:
        is_task = self._guests.is_guest(pod.metadata.uid)
        if not is_task and not self._is_for_us(pod):
            return False
        self._finder.weigh(pod, is_gone)
        if is_task:
            self._guests.hear(pod, is_gone)
        return is_task

    def _on_list(self, there: set[str]) -> None:
        self._finder.listed(there)
        self._guests.listed(there)

    def _let_go(self, uid: str) -> None:
        self._finder.let_go(uid)

    async def _look_at_guests(self) -> None:
        if not self._contact.trouble and self._cluster.is_listed:
            await self._guests.look()

    # ── nodes ───────────────────────────────────────────────────────────────────────────

    async def close_node(self, node: str, reason: str) -> None:
        """Cordon a node, unless it is: whose doing that was, stays."""
        found = await self._client.node(node)
        if found is not None and not found.spec.unschedulable:
            await self._cordon(node, closed=True, note=reason or "no reason given")

    async def open_node(self, node: str) -> None:
        """Undo our own cordon of a node."""
        found = await self._client.node(node)
        if found is not None and NOTE in (found.metadata.annotations or {}):
            await self._cordon(node, closed=False, note=None)
        self._told_nodes = {
            at: told for at, told in self._told_nodes.items() if not told.closed
        }
        self._looked_at = ()
        self._news.set()

    async def _cordon(self, node: str, *, closed: bool, note: str | None) -> None:
        try:
            await self._client.cordon(node, closed=closed, note=note)
        except Denied as error:
            if error.status != 403:
                raise
            log.warning("a node is closed here, and not in Kubernetes", why=str(error))

    def found_nodes(self) -> Mapping[str, Sequence[Node]]:
        return {"": self._found}

    def silence(self, node: str) -> Silence | None:
        away = self._contact
        if away.trouble:
            return Silence("Kubernetes", Millis(int(away.silent_s * 1000)), away.trouble)
        since = self._silent.get(node)
        if since is None:
            return None
        for_ms = Millis(int((monotonic() - since) * 1000))
        return Silence(f"Kubernetes node {node}", for_ms, "its kubelet does not report")

    async def _on_news(self) -> None:
        await self._news.wait()
        self._news.clear()
        began = monotonic()
        self._look_at_nodes()
        await asyncio.sleep(REST * (monotonic() - began))

    def _look_at_nodes(self) -> None:
        """Report what is new of nodes: all of it where other nodes are in force than before."""
        if not self._cluster.nodes_known or self._cluster.node_watch.refused:
            return
        nodes = tuple(self._nodes())
        news, self._cluster.news = self._cluster.news, News()
        is_anew = nodes != self._looked_at
        if news.nodes or is_anew:
            found_now = joined(nodes, list(self._cluster.nodes.values()))
            if found_now != self._found:
                self._found = found_now
        if is_anew:
            self._forget_nodes_but({(node.id, node.name) for node in nodes})
        self._looked_at = nodes
        for node in nodes:
            if is_anew or node.name in news.nodes or node.name in news.use:
                self._tell_of(node)

    def _forget_nodes_but(self, there: set[tuple[NodeId, str]]) -> None:
        self._told_nodes = {at: told for at, told in self._told_nodes.items() if at in there}
        self._told_others = {at: told for at, told in self._told_others.items() if at in there}

    def _tell_of(self, node: Node) -> None:
        found = self._cluster.nodes.get(node.name)
        self._note_silence(node.name, found is not None and is_silent(found))
        told = report_of(node, found)
        if self._told_nodes.get((node.id, node.name)) != told:
            self._told_nodes[node.id, node.name] = told
            self._sink(told)
        if found is not None:
            self._tell_others(node, found)

    def _tell_others(self, node: Node, found: KubeNode) -> None:
        others = others_of(node, found, self._cluster.others_on(node.name))
        if self._told_others.get((node.id, node.name)) != others:
            self._told_others[node.id, node.name] = others
            self._sink(OthersReport(node.id, others))

    def _note_silence(self, node: str, is_now: bool) -> None:
        if is_now:
            self._back.pop(node, None)
            self._silent.setdefault(node, monotonic())
        elif self._silent.pop(node, None) is not None:
            self._back[node] = monotonic()

    def _is_certain(self, node: str, gone_at: float = -inf) -> bool:
        """Whether what is gone in Kubernetes does not run on a node any more.

        It does not where the node is gone itself, or has reported for a while since it came
        back, and since `gone_at`; or where the rule of its engine says that it has been silent
        for long enough.
        """
        if node not in self._cluster.nodes:
            return self._cluster.nodes_known
        since = self._silent.get(node)
        if since is not None:
            force_s = self._setup.force_after_ms / 1000
            return bool(force_s) and monotonic() - since >= force_s
        return monotonic() - max(self._back.get(node, -inf), gone_at) >= BACK_S

    # ── what it keeps ───────────────────────────────────────────────────────────────────

    async def read_log(self, key: TaskKey, stream: str, offset: int, size: int) -> LogChunk:
        if stream not in STREAMS:
            raise BackendError(f"there is no stream {stream!r}; there are stdout and stderr")
        path = self._records.folder(key) / (FILE if stream == "stdout" else "stderr.log")
        try:
            with path.open("rb") as file:
                end = file.seek(0, 2)
                at = max(0, end + offset) if offset < 0 else offset
                file.seek(at)
                data = file.read(size)
        except FileNotFoundError:
            return LogChunk(b"", max(offset, 0))
        return LogChunk(data, at + len(data))

    async def forget(self, job: JobId) -> None:
        for key in [key for key in self._live if key.job == job]:
            self._part(key)
        self._over.pop(job, None)
        await asyncio.to_thread(shutil.rmtree, self._records.job(job), ignore_errors=True)

    def _record(self, key: TaskKey) -> Launched | None:
        return self._live.get(key) or self._records.read(key)

    def _has_ended(self, key: TaskKey) -> bool:
        """Whether a task's end was kept, or is about to be, while we run."""
        return key in self._ending or key in self._over.get(key.job, ())

    async def _keep(self, key: TaskKey, record: Launched) -> None:
        """Keep what became of a task. Raises EngineAway, as its pod is there: try again.

        An end that was heard meanwhile stays.
        """
        if record.exit is None and self._has_ended(key):
            return
        try:
            await self._records.keep(key, record)
        except BackendError as error:
            raise EngineAway(str(error)) from error
        known = self._live.get(key)
        if known is not None and (known.exit is None or record.exit is not None):
            self._live[key] = record

    # ── hearing ─────────────────────────────────────────────────────────────────────────

    def _on_pod(self, pod: Pod, is_gone: bool) -> None:
        key = self._keys.get(pod.metadata.uid)
        if key is None:
            return
        if is_gone:
            self._gone(key, pod)
        else:
            self._hear(key, pod)

    def _read(self, key: TaskKey, record: Launched, pod: Pod) -> TaskReport | None:
        node = self._cluster.nodes.get(record.node)
        told = Told(record.is_stopped, record.boot, record.is_held, record.fence_ms > 0)
        return report(key, pod, told, node)

    def _hear(self, key: TaskKey, pod: Pod) -> None:
        record = self._live.get(key)
        if record is None or key in self._ending:
            return
        told = self._read(key, record, pod)
        if told is None:
            return
        self._waits.pop(key, None)
        self._follow(key, record)
        if told.seen is Seen.ENDED and told.exit is not None:
            if told.pid and self._told.get(key, Seen.READY) is Seen.READY:  # short, so not seen
                self._sink(TaskReport(key, Seen.RUNNING, told.pid, engine_job=record.name))
            self._told[key] = Seen.ENDED
            self._end(key, told.exit, pod=pod)
        elif self._told.get(key) is not told.seen:
            self._told[key] = told.seen
            self._sink(told)

    def _gone(self, key: TaskKey, pod: Pod | None) -> None:
        """Hear that a pod is not there any more: whether its task has ended depends."""
        record = self._live.get(key)
        if record is None or key in self._ending or key in self._taken:
            return
        if pod is not None and is_over(pod):
            self._hear(key, pod)
            return
        # Its binding may not be kept yet, or was not answered.
        is_bound = record.is_bound or (pod is not None and bool(pod.spec.node_name))
        gone_at = -inf
        if pod is None or may_run(pod):
            gone_at = self._gone_at.setdefault(key, monotonic())
        is_certain = self._is_certain(record.node, gone_at) or self._has_run_out(record)
        if is_bound and not is_certain:
            self._fenced.setdefault(key, pod)
            return
        if record.is_stopped:
            exit_ = Exit(signal=SIGTERM)
        else:
            why = "its pod is gone from Kubernetes: somebody deleted it, or its node is gone"
            exit_ = Exit(lost=True, platform_error=why)
        self._end(key, exit_, pod=pod)

    def _follow(self, key: TaskKey, record: Launched) -> None:
        if key not in self._follows:
            folder, most = self._records.folder(key), record.log_bytes
            follower = Follower(self._client, record.name, folder, most)
            self._follows[key] = (follower, asyncio.create_task(follower.run()))

    def _end(
        self, key: TaskKey, exit_: Exit, why: Diagnosis | None = None, pod: Pod | None = None
    ) -> None:
        """Report the end of a task, once all is there that it wrote."""
        if key not in self._ending:
            finish = self._finish_or_again(key, exit_, why, pod)
            self._ending[key] = asyncio.create_task(finish)

    async def _finish_or_again(
        self, key: TaskKey, exit_: Exit, why: Diagnosis | None, pod: Pod | None
    ) -> None:
        """Report an end, once it can be kept: a disk may be full for a while."""
        pause = LOOK_EVERY_S
        try:
            while True:
                try:
                    await self._finish(key, exit_, why, pod)
                except BackendError as error:
                    log.warning("an end is told later", task=str(key), why=str(error))
                else:
                    return
                await asyncio.sleep(pause)
                pause = min(pause * 2, LOG_S)
        except Exception:
            log.exception("an end is not told; it is looked for again", task=str(key))
        finally:
            self._ending.pop(key, None)

    async def _finish(
        self, key: TaskKey, exit_: Exit, why: Diagnosis | None, pod: Pod | None
    ) -> None:
        record = self._live.get(key)
        if record is None:
            return
        follow = self._follows.get(key)
        if follow is not None:
            follow[0].is_over = True
            await asyncio.wait({follow[1]}, timeout=LOG_S)
            exit_ = msgspec.structs.replace(exit_, log_dropped=follow[0].dropped)
        if pod is not None and (words := words_of(pod)):
            with contextlib.suppress(OSError):  # its end counts more
                (self._records.folder(key) / "stderr.log").write_text(f"{words}\n")
        record = msgspec.structs.replace(record, exit=exit_, diagnosis=why)
        await self._keep(key, record)
        self._over.setdefault(key.job, set()).add(key)
        if pod is not None:
            with contextlib.suppress(BackendError):  # then it is a stray later
                await self._delete(record, 0 if is_over(pod) else 1)
        self._part(key)
        self._sink(self._end_report(key, record))

    def _end_report(self, key: TaskKey, record: Launched) -> TaskReport:
        return TaskReport(
            key, Seen.ENDED, exit=record.exit, diagnosis=record.diagnosis,
            stopped_for=record.cause, engine_job=record.name,
        )  # fmt: skip

    def _part(self, key: TaskKey) -> None:
        record = self._live.pop(key, None)
        if record is not None:
            self._keys.pop(record.uid, None)
        follow = self._follows.pop(key, None)
        if follow is not None:
            follow[1].cancel()
        for known in (
            self._told, self._waits, self._overdue, self._fenced, self._gone_at, self._ending,
            self._asked_at,
        ):  # fmt: skip
            known.pop(key, None)

    # ── looking ─────────────────────────────────────────────────────────────────────────

    async def _beat(self) -> None:
        """Write what pods with a lease read: that we are there, and which nodes are silent."""
        if not (self._beats.is_due or self._beats.left_out - self._silent.keys()):
            return
        ending = [record for record in self._live.values() if record.fence_ms]
        times = {self._setup.fence_after_ms, *(record.fence_ms for record in ending)} - {0}
        if times:
            nodes = {record.node for record in ending}
            await self._beats.write(min(times) / 1000, nodes & self._silent.keys())

    async def _look(self) -> None:
        """Look for what does not happen: tasks that do not begin, or do not end."""
        if tuple(self._nodes()) != self._looked_at:
            self._news.set()
        if self._contact.trouble or not self._cluster.is_listed:
            return
        for key, record in list(self._live.items()):
            try:
                await self._look_at(key, record)
            except BackendError as error:  # of one task, and no others have to wait for it
                log.warning("a task is looked at again later", task=str(key), why=str(error))
        if self._is_adopted:
            await self._end_strays()

    async def _look_at(self, key: TaskKey, record: Launched) -> None:
        pod = self._cluster.pods.get(record.uid) if record.uid else None
        now = monotonic()
        if key in self._fenced or (pod is None and record.is_bound):
            await self._look_for(key, record)
        elif pod is not None and record.is_bound and key not in self._ending:
            self._hear(key, pod)
            if record.node in self._silent and not is_over(pod):
                self._give_up(key, record, pod)
            overdue = self._overdue.get(key)
            if overdue is not None and now >= overdue:
                self._overdue[key] = now + LOG_S
                await self._delete(record, 1)
            elif key in self._waits and record.node not in self._silent:
                await self._weigh(key, record, pod, now - self._waits[key])

    def _give_up(self, key: TaskKey, record: Launched, pod: Pod) -> None:
        """End a task on a node that is silent, if it is known to be dead or taken for it."""
        if self._has_run_out(record):
            why = f"node {record.node} was cut off, and what ran there has ended itself"
        elif self._is_certain(record.node):
            why = f"node {record.node} was silent for longer than `force_after`"
        else:
            return
        exit_ = Exit(lost=True, platform_error=why)
        self._end(key, Exit(signal=SIGTERM) if record.is_stopped else exit_, pod=pod)

    def _has_run_out(self, record: Launched) -> bool:
        """Whether a task has heard nothing of us for so long that it ended itself."""
        fence_s = record.fence_ms / 1000
        return fence_s > 0 and self._beats.is_over(record.node, fence_s)

    async def _look_for(self, key: TaskKey, record: Launched) -> None:
        """Look for a pod that no watch has told of; it may be gone for good."""
        pod = await self._client.pod(record.name)
        if pod is None or pod.metadata.uid != record.uid:
            known = self._fenced.pop(key, None)
            self._gone(key, known)
        else:
            self._fenced.pop(key, None)
            self._gone_at.pop(key, None)
            self._hear(key, pod)

    async def _weigh(self, key: TaskKey, record: Launched, pod: Pod, waited_s: float) -> None:
        """End a task that will not begin."""
        why, diagnosis = hindrance(pod, waited_s)
        if not why:
            return
        await self._delete(record, 1)
        self._end(key, Exit(platform_error=why), diagnosis, pod)

    async def _end_strays(self) -> None:
        """End pods of ours that no task stands behind, such as one whose making was never
        answered and that is not wanted any more."""
        now = monotonic()
        strays = {
            uid: pod
            for uid, pod in self._cluster.pods.items()
            if uid not in self._keys
            and pod.metadata.name.startswith(f"{self._prefix}-")
            and not pod.metadata.deletion_timestamp  # its node has to confirm, if it ever does
        }
        self._strays = {uid: self._strays.get(uid, now) for uid in strays}
        for uid, since in self._strays.items():
            if now - since >= STRAY_S:
                name = strays[uid].metadata.name
                log.warning("a pod without a task is ended", pod=name)
                with contextlib.suppress(BackendError):
                    await self._client.delete_pod(name, deletion_of(uid, 1))
