"""The Kubernetes backend: each task a pod, found again by its name and by a record of ours.

A pod is made first (`launch.py`), and bound to its node when its gang may begin (`binding.py`):
so that either all pods of a gang are there, or none runs. Where devices have names, a task gets
the very ones that the core planned (`claiming.py`); elsewhere the kubelet picks as many.
"""

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from time import monotonic

import structlog

from allotment.backends.contact import Contact
from allotment.backends.kubernetes import cordon
from allotment.backends.kubernetes.beats import BeatsIn
from allotment.backends.kubernetes.binding import Bindings
from allotment.backends.kubernetes.client import Client
from allotment.backends.kubernetes.cluster import Cluster
from allotment.backends.kubernetes.ends import Ends, end_report
from allotment.backends.kubernetes.enter import enter_argv
from allotment.backends.kubernetes.fence import Fence
from allotment.backends.kubernetes.foreign import ReadHived, Rules
from allotment.backends.kubernetes.foreign_pods import ForeignPods
from allotment.backends.kubernetes.health_marks import Health, HealthMarks
from allotment.backends.kubernetes.hearing import Hearing
from allotment.backends.kubernetes.kubeconfig import access_of, found_file
from allotment.backends.kubernetes.launch import Launching
from allotment.backends.kubernetes.looking import Looking
from allotment.backends.kubernetes.mpi import with_agents
from allotment.backends.kubernetes.node_news import NodeNews
from allotment.backends.kubernetes.objects import Pod
from allotment.backends.kubernetes.parts import abilities_by, sight_of
from allotment.backends.kubernetes.pod_folders import PodFolders
from allotment.backends.kubernetes.preparing import Preparing
from allotment.backends.kubernetes.record import Launched, Records
from allotment.backends.kubernetes.registered import Registered
from allotment.backends.kubernetes.silent_nodes import SilentNodes
from allotment.backends.kubernetes.site import Site
from allotment.backends.kubernetes.spaces import Spaces
from allotment.backends.kubernetes.stopping import Stopping
from allotment.backends.kubernetes.tasks import Tasks
from allotment.backends.kubernetes.versions import why_too_old
from allotment.backends.kubernetes.visible import visible_in
from allotment.model.cells import Topology
from allotment.model.cluster import Node
from allotment.model.content import Content, ContentKind
from allotment.model.engines import Ability, EngineSetup
from allotment.model.errors import BackendError, EngineAway
from allotment.model.ids import JobId, TaskKey
from allotment.model.quantity import Millis
from allotment.model.reasons import StopCause
from allotment.model.reports import Seen, TaskReport
from allotment.model.spec import Offered
from allotment.service.forever import forever
from allotment.service.ports import (
    DataMount,
    GangLaunch,
    Having,
    LogChunk,
    Offer,
    Refused,
    Report,
    Silence,
)
from allotment.service.workspace import Workspace

FIRST_S = 5.0
"""How long a start waits for the first answers."""
LOOK_EVERY_S = 1.0
REST = 3.0
"""Times as long as it took to look at nodes others have the time."""
NOT_YET = "a tenant that had it still has tasks there: restart the service when they have ended"
log = structlog.get_logger("allot.kubernetes")


def abilities_on(setup: EngineSetup, kept: Path) -> frozenset[Ability]:
    """Return what can be done in pods that see some of the service's folder, or nothing."""
    return KubernetesBackend.abilities | abilities_by(setup, kept)


class KubernetesBackend:
    """Runs tasks in one namespace. `nodes` are those of the configuration."""

    name = "kubernetes"
    abilities = frozenset({Ability.ENTERS, Ability.IMAGES})
    """A pod that is paused would keep its devices, and which it gets its kubelet decides."""

    def __init__(  # noqa: PLR0913 - one a setting
        self,
        state_dir: Path,
        setup: EngineSetup,
        nodes: Callable[[], Sequence[Node]],
        read_hived: ReadHived | None = None,
        *,
        topology: Callable[[], Topology] = Topology,
        kept: Path | None = None,
        health: Health = dict,
    ) -> None:
        """`kept` is the service's folder, of which `shared` shows pods some."""
        kept = kept or state_dir
        self.abilities = abilities_on(setup, kept)
        self.default_image = setup.image
        self.leads_commands = setup.fence_after_ms > 0
        self._setup, self._nodes, self._topology = setup, nodes, topology
        self._health = health
        self._kubeconfig = found_file(setup.kubeconfig)
        self._records = Records(state_dir / "kubernetes")
        self._registered = Registered(kept)
        self._in_pods = (
            None if setup.volumes else PodFolders(str(state_dir), str(kept.absolute()))
        )
        self._contact = Contact("Kubernetes", "pods")
        self._tasks = Tasks(self._records)
        self._rules = Rules(setup.name, dict(setup.namespaces), read_hived)
        self._resumed: Mapping[TaskKey, Offered] = {}
        self._loops: list[asyncio.Task[None]] = []
        self._news = asyncio.Event()
        self._is_version_known = False

    # ── life ────────────────────────────────────────────────────────────────────────────

    async def start(self, sink: Callable[[Report], None]) -> None:
        self._connect(sink)
        first = asyncio.create_task(self._cluster.start())
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FIRST_S):
                await asyncio.shield(first)
        with contextlib.suppress(TimeoutError, EngineAway):
            async with asyncio.timeout(FIRST_S):
                await self._ask_version()
        self._node_news.look(monotonic())
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FIRST_S):
                await self._fence.beat()  # without, nothing that ends itself could be started
        loops = [
            forever(self._look, LOOK_EVERY_S, "tasks on Kubernetes"),
            forever(self._on_news, 0.2, "Kubernetes' nodes"),
            forever(self._fence.beat, LOOK_EVERY_S, "beats for pods"),
            forever(self._mark_health, LOOK_EVERY_S, "marks of unhealthy hardware"),
            *self._foreign.loops(),
        ]
        self._loops = [first, *(asyncio.create_task(loop) for loop in loops)]

    def _connect(self, sink: Callable[[Report], None]) -> None:
        """Put together what asks the cluster, and what hears of it."""
        setup, records, tasks = self._setup, self._records, self._tasks
        prefix = records.prepare()
        access = access_of(self._kubeconfig, setup.context)
        namespace = setup.namespace or access.namespace
        self._client = client = Client(access, namespace, self._contact)
        spaces = Spaces(namespace, dict(setup.tenant_namespaces), records.spaces)
        if stay := spaces.leave([each for each, _ in setup.namespaces], records.spaces_in_use):
            log.warning("no pods of others are placed in namespaces", names=stay, why=NOT_YET)
        self._cluster = cluster = Cluster(
            client, prefix, self._on_pod, self._news.set, self._on_foreign, self._on_list
        )
        cluster.is_own, cluster.own_labels = spaces.is_own, setup.labels
        is_visible = visible_in(setup.visible)
        site = Site(
            setup, prefix, client, self._contact, cluster, self._nodes, spaces,
            self._registered, is_visible,
        )  # fmt: skip
        self._silent = silent = SilentNodes(cluster, self._contact, setup.force_after_ms)
        self._node_news = NodeNews(
            cluster, silent, self._nodes, sink, is_visible, self._topology
        )
        self._health_marks = HealthMarks(client, prefix, self._nodes, self._health, monotonic)
        self._beats = beats = BeatsIn(client, f"{prefix}-beat")
        self._fence = fence = Fence(beats, tasks, silent, setup.fence_after_ms)
        self._ends = ends = Ends(client, records, tasks, sink)
        self._hearing = hearing = Hearing(cluster, tasks, ends, fence, sink)
        self._bindings = bindings = Bindings(client, cluster, tasks, hearing, ends)
        self._launching = Launching(site, tasks, beats, hearing, bindings, sink)
        self._stopping = Stopping(site, tasks, bindings, ends, silent, self._entering)
        self._looking = Looking(site, tasks, hearing, ends, silent, fence)
        self._preparing = Preparing(client, tasks, sink)
        self._foreign = ForeignPods(site, self._rules, silent, sink, self._resumed)

    async def close(self) -> None:
        await self._cluster.close()
        for task in self._loops:
            task.cancel()
        await asyncio.gather(*self._loops, return_exceptions=True)
        await self._stopping.close()
        await self._ends.close()
        await self._records.close()
        self._client.close()

    # ── hearing and looking ─────────────────────────────────────────────────────────────

    def _on_pod(self, pod: Pod, is_gone: bool) -> None:
        self._hearing.on_pod(pod, is_gone)

    def _on_foreign(self, pod: Pod, is_gone: bool) -> bool:
        return self._foreign.on_pod(pod, is_gone)

    def _on_list(self, there: set[str]) -> None:
        self._foreign.on_list(there)

    async def _on_news(self) -> None:
        await self._news.wait()
        self._news.clear()
        began = monotonic()
        self._node_news.look(monotonic())
        await asyncio.sleep(REST * (monotonic() - began))

    async def _look(self) -> None:
        if self._node_news.is_due(monotonic()):
            self._news.set()
        if self._contact.trouble:
            # Nothing else may be asked for minutes, and looks wait for it.
            try:
                await self._client.version()
            except EngineAway:  # which is told already
                return
        if self._node_news.too_old or not self._is_version_known:
            await self._ask_version()
        await self._looking.look()
        await self._preparing.look()

    async def _ask_version(self) -> None:
        """Close all nodes while their cluster is too old. Raises EngineAway."""
        news = self._node_news
        before = news.too_old
        try:
            news.too_old = why_too_old(await self._client.version())
        except EngineAway:
            raise
        except BackendError:  # It may be kept from us: then nothing speaks against it.
            news.too_old = ""
        self._is_version_known = True
        if news.too_old != before:
            news.tell_closed_again()
            self._news.set()

    async def _mark_health(self) -> None:
        if self._cluster.nodes_known and not self._contact.trouble:
            await self._health_marks.look(self._cluster.nodes)

    # ── tasks ───────────────────────────────────────────────────────────────────────────

    async def launch(self, gang: GangLaunch) -> Refused:
        if gang.tasks[0].offered is not None:
            return await self._foreign.launch(gang)
        return await self._launching.launch(with_agents(gang, self._records.secret))

    async def open_barrier(self, keys: Sequence[TaskKey]) -> None:
        guests = self._foreign.guests
        own = [key for key in keys if not guests.has(key)]
        if len(own) < len(keys):
            await guests.bind(keys)
        await self._bindings.open_barrier(own)

    async def stop(
        self, key: TaskKey, signal: str, grace_ms: Millis, cause: StopCause | None = None
    ) -> None:
        if self._foreign.guests.has(key):
            await self._foreign.stop(key, grace_ms, cause)
        else:
            await self._stopping.stop(key, signal, grace_ms, cause)

    async def freeze(self, keys: Sequence[TaskKey], no: int) -> None:
        """Do nothing: it is never asked, as it is not able to."""

    async def thaw(self, key: TaskKey) -> None:
        """Do nothing, as `freeze`."""

    async def highest_job(self) -> JobId:
        return JobId(max(self._records.jobs(), default=0))

    async def observe(self, keys: Sequence[TaskKey]) -> Sequence[TaskReport]:
        found = self._foreign.guests.observe(keys)
        for key in keys:
            record = self._tasks.record(key)
            if record is None:
                continue
            if record.exit is not None:
                found.append(end_report(key, record))
                continue
            if not record.uid:  # launched or stopped again, its pod is found by its name
                found.append(TaskReport(key, Seen.UNKNOWN, engine_job=record.name))
                continue
            self._tasks.adopt(key, record)
            found.append(self._hearing.state_of(key, record))
        self._looking.is_adopted = True
        return found

    def enter_argv(self, key: TaskKey, argv: Sequence[str]) -> list[str]:
        record = self._tasks.record(key)
        if record is None or not record.is_bound:
            raise BackendError(f"task {key} has no pod that runs")
        return self._entering(record, argv)

    def _entering(self, record: Launched, argv: Sequence[str]) -> list[str]:
        return enter_argv(
            self._kubeconfig, self._setup.context,
            self._client.within(record.namespace).namespace, record.name, argv,
        )  # fmt: skip

    async def read_log(self, key: TaskKey, stream: str, offset: int, size: int) -> LogChunk:
        return self._ends.outputs.read(key, stream, offset, size)

    def workspace_of(self, node: str) -> Workspace | None:  # noqa: ARG002 - all alike
        """Return where the files of jobs are; None where pods have volumes, of which the
        service may see some."""
        return self._in_pods

    def shows(self, path: str) -> bool:
        return bool(sight_of(self._setup).claim_of(path)[0])

    async def why_no_mounts(self, mounts: Sequence[DataMount]) -> str:
        """Return why pods cannot be shown some datasets; '' where they can."""
        why = sight_of(self._setup).why_not(mounts) or await self._registered.why_not(mounts)
        return f"No pod can be shown the data: {why}." if why else ""

    async def forget(self, job: JobId) -> None:
        await self._ends.forget(job)

    # ── pods of others ──────────────────────────────────────────────────────────────────

    def resume(self, tasks: Mapping[str, Mapping[TaskKey, Offered]]) -> None:
        self._resumed = tasks.get(self._setup.name, {})

    async def next_offers(self) -> Sequence[Offer]:
        return await self._foreign.finder.next()

    def is_offered(self, offer: str) -> bool | None:
        return self._foreign.is_offered(offer)

    def end_offer(self, offer: str) -> None:
        self._foreign.finder.gangs.end(offer)

    def say(self, engine: str, offered: Sequence[Offered], reason: str, message: str) -> None:
        self._foreign.say(offered, reason, message)

    def why_not_offered(self, name: str) -> str:
        return self._foreign.finder.why_not(name)

    # ── nodes ───────────────────────────────────────────────────────────────────────────

    async def close_node(self, node: str, reason: str) -> None:
        await cordon.close(self._client, node, reason)

    async def open_node(self, node: str) -> None:
        await cordon.open_again(self._client, node)
        self._node_news.tell_closed_again()
        self._news.set()

    def found_nodes(self) -> Mapping[str, Sequence[Node]]:
        return {"": self._node_news.found}

    def nodes_with(self, contents: Sequence[Content]) -> Mapping[Content, Having]:
        images = [each for each in contents if each.kind is ContentKind.IMAGE]
        there = self._cluster.images.nodes_with([each.name for each in images], self._nodes())
        return {each: Having(there[each.name]) for each in images}

    def silence(self, node: str) -> Silence | None:
        away = self._contact
        if away.trouble:
            return Silence("Kubernetes", Millis(int(away.silent_s * 1000)), away.trouble)
        return self._silent.silence(node)
