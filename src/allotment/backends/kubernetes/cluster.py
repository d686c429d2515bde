"""The nodes, pods and devices of a cluster as they are now, kept by watches.

Of pods of others only what they ask for is kept: there may be very many.
"""

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Sequence

import msgspec
import structlog

from allotment.backends.kubernetes.client import Client
from allotment.backends.kubernetes.discover import telling
from allotment.backends.kubernetes.held_images import HeldImages
from allotment.backends.kubernetes.inventory import Held, Inventory, Keeping
from allotment.backends.kubernetes.modes import Modes, mode_of
from allotment.backends.kubernetes.objects import KubeNode, Pod
from allotment.backends.kubernetes.request import SERVICE
from allotment.backends.kubernetes.short_nodes import ShortNodes
from allotment.backends.kubernetes.usage import NOTHING, Use, total, use_of
from allotment.backends.kubernetes.visible import picked_in
from allotment.backends.kubernetes.watch import Watch
from allotment.model.errors import EngineAway

log = structlog.get_logger("allot.kubernetes")

FIRST_AGAIN_S, WIDE_AGAIN_S = 1.0, 300.0
"""After how long it is tried whether all pods may be listed after all: soon at first, as an API
server that has just started refuses what it has not yet read that we may."""
LISTED_S = 5.0
"""How long whoever needs to know the pods waits for them at a time."""


class Others(msgspec.Struct, frozen=True, gc=False):
    """A pod that is not ours."""

    node: str
    use: Use
    picked: tuple[str, ...] = ()
    """The devices that it was told it has."""


class News(msgspec.Struct):
    """Names of nodes, of which something is new since somebody looked."""

    nodes: set[str] = msgspec.field(default_factory=set[str])
    """Those that are otherwise than before, or are there, or gone."""
    use: set[str] = msgspec.field(default_factory=set[str])
    """Those of which pods of others use more, or less, or tasks have devices otherwise."""


class Cluster:
    """What was heard of a cluster. `on_pod` is told of each of our pods that changed, and
    whether it is gone; `on_nodes` that `news` has something of nodes or of others' pods.
    `on_foreign` is told of pods of other namespaces, and says whether one is a task of ours;
    `on_list`, which pods there are in all namespaces, by uid."""

    def __init__(
        self,
        client: Client,
        service: str,
        on_pod: Callable[[Pod, bool], None],
        on_nodes: Callable[[], None],
        on_foreign: Callable[[Pod, bool], bool] = lambda pod, is_gone: False,
        on_list: Callable[[set[str]], None] = lambda there: None,
    ) -> None:
        self.service, self._namespace = service, client.namespace
        self.own_labels: Sequence[str] = ()
        """Labels of nodes that are kept because the configuration names them."""
        self.is_own: Callable[[str], bool] = self._namespace.__eq__
        """Whether pods in a namespace may be ours."""
        self._on_pod, self._on_nodes = on_pod, on_nodes
        self._on_foreign, self._on_list = on_foreign, on_list
        self.nodes: dict[str, KubeNode] = {}
        self.images = HeldImages()
        """Which of them have which images."""
        self.news = News()
        self.version = 0
        """Another one whenever nodes changed."""
        self.nodes_known = False
        """Whether they were ever listed: one that is not among them is not there."""
        self.pods: dict[str, Pod] = {}
        """Ours, by their uid."""
        self.is_listed = False
        """Whether it is known which pods of our namespace there are."""
        self.sees_all = False
        """Whether pods of all namespaces are heard of: one that is not there is gone."""
        self._others: dict[str, Others] = {}
        self._by_node: dict[str, set[str]] = {}
        self.modes = Modes()
        """How tasks have their devices."""
        self.short = ShortNodes()
        own = f"/api/v1/namespaces/{client.namespace}/pods"
        self.wide = Watch(client, "/api/v1/pods", Pod, self._all_pods, self._pod)
        self.narrow = Watch(client, own, Pod, self._take_list, self._pod)
        self.node_watch = Watch(client, "/api/v1/nodes", KubeNode, self._all_nodes, self._node)
        self.is_guest: Callable[[str], bool] = lambda uid: False
        """Whether a pod of others is a task of ours, by its uid."""
        self.inventory = Inventory(self._note_devices, self.note_use)
        self.devices = Keeping(client, self.inventory)
        self._running: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Begin to watch; return when all was listed once. Raises nothing."""
        watches = (self.node_watch.run(), self._watch_pods(), self.devices.run())
        self._running = [asyncio.create_task(watch) for watch in watches]
        await self.wide.listed.wait()
        if self.wide.refused:
            await self.narrow.listed.wait()
        await self.node_watch.listed.wait()
        await self.devices.listed.wait()

    async def until_listed(self) -> None:
        """Wait until pods were listed once, or may not be. Raises EngineAway where it takes
        long."""
        try:
            async with asyncio.timeout(LISTED_S):
                await self.wide.listed.wait()
        except TimeoutError:
            raise EngineAway("Kubernetes has not listed its pods yet") from None

    def need_nodes(self) -> None:
        """Raise EngineAway while it is not known which nodes there are."""
        if not self.nodes_known:
            why = self.node_watch.refused or "its nodes have not been listed yet"
            raise EngineAway(f"Kubernetes does not list its nodes: {why}")

    def need_pods(self, namespace: str) -> None:
        """Raise EngineAway where nothing would be heard of pods in a namespace, '' for that of
        the client."""
        if namespace and namespace != self._namespace and self.wide.refused:
            raise EngineAway(
                f"pods in namespace {namespace} would not be noticed: pods of all "
                f"namespaces may not be listed: {self.wide.refused}"
            )

    def boot_of(self, node: str) -> str:
        """Return which start of a node this is; '' where that is not known."""
        found = self.nodes.get(node)
        return found.status.node_info.boot_id if found is not None else ""

    async def _watch_pods(self) -> None:
        """Watch all pods, and where that is refused those of our namespace for a while."""
        told, pause_s = "", FIRST_AGAIN_S
        while True:
            await self.wide.run_until_refused()
            if self.sees_all:  # it was allowed until now
                pause_s = FIRST_AGAIN_S
            self.sees_all = False
            if self.wide.refused != told:
                told = self.wide.refused
                # What pods of other namespaces take is not counted; ours are heard of.
                log.warning("pods of other namespaces are not counted", why=told)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await self.narrow.run()
            pause_s = min(2 * pause_s, WIDE_AGAIN_S)

    async def close(self) -> None:
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)

    def others_on(self, node: str) -> Use:
        """Return what pods of others ask for on a node."""
        uids = self._by_node.get(node)
        return total(self._others[uid].use for uid in uids) if uids else NOTHING

    def picked_on(self, node: str) -> frozenset[str]:
        """Return the devices that pods of others on a node were told they have."""
        uids = self._by_node.get(node, ())
        return frozenset(each for uid in uids for each in self._others[uid].picked)

    # ── pods ────────────────────────────────────────────────────────────────────────────

    def _is_ours(self, pod: Pod) -> bool:
        labels, namespace = pod.metadata.labels or {}, pod.metadata.namespace
        return labels.get(SERVICE) == self.service and self.is_own(namespace)

    def _all_pods(self, found: Sequence[Pod]) -> None:
        self.sees_all = True
        self._take_list(found)
        self._on_list({pod.metadata.uid for pod in found})

    def _take_list(self, found: Sequence[Pod]) -> None:
        there = {pod.metadata.uid for pod in found}
        gone = [
            pod
            for uid, pod in self.pods.items()
            if uid not in there and (self.sees_all or pod.metadata.namespace == self._namespace)
        ]
        self._others.clear()
        self.news.use |= self._by_node.keys()
        self._by_node.clear()
        self.is_listed = True
        if self.sees_all:
            self.news.use.update(self.modes.keep(there))
        for pod in found:
            self._pod(pod, False)
        for pod in gone:
            self._pod(pod, True)
        self._on_nodes()

    def _pod(self, pod: Pod, is_gone: bool) -> None:
        uid = pod.metadata.uid
        if self._is_ours(pod) or uid in self.pods:
            if is_gone:
                self.pods.pop(uid, None)
            else:
                self.pods[uid] = pod
            self._note_mode(pod, is_gone, is_ours=True)
            self._on_pod(pod, is_gone)
            return
        before = self._others.pop(uid, None)
        if before is not None:
            self._by_node[before.node].discard(uid)
            self.news.use.add(before.node)
        # A scheduler that ends pods for another keeps their place for that.
        node = pod.spec.node_name or pod.status.nominated_node_name
        use = use_of(pod) if node else NOTHING
        picked = () if not node or pod.is_over else picked_in(pod.metadata.annotations)
        is_foreign = not self.is_own(pod.metadata.namespace)  # in ours, none is for us
        is_task = is_foreign and self._on_foreign(pod, is_gone)
        self._note_mode(pod, is_gone or not is_task, is_ours=False)
        if not is_gone and node and (use != NOTHING or picked) and not is_task:
            self._others[uid] = Others(node, use, picked)
            self._by_node.setdefault(node, set()).add(uid)
            self.news.use.add(node)
        elif before is None:
            return
        self._on_nodes()

    def _note_mode(self, pod: Pod, is_gone: bool, *, is_ours: bool) -> None:
        mode = None if is_gone else mode_of(pod, is_ours=is_ours)
        if changed := self.modes.note(pod.metadata.uid, pod.spec.node_name or "", mode):
            self.note_use(changed)

    # ── devices ─────────────────────────────────────────────────────────────────────────

    def _note_devices(self, nodes: Iterable[str]) -> None:
        self.news.nodes.update(nodes)
        self.version += 1
        self._on_nodes()

    def note_use(self, nodes: Iterable[str]) -> None:
        """Note that others use more of nodes, or less."""
        self.news.use.update(nodes)
        self._on_nodes()

    def note_short(self, node: str, what: str, now: float) -> None:
        """Note that a node evicted a pod of ours, as it is short of something."""
        self.short.note(node, what, now)
        self.news.nodes.add(node)
        self._on_nodes()

    def is_of_others(self, device: str) -> bool:
        """Whether a claim holds a device that is not of a task of ours."""
        return any(
            not (self.is_own_claim(held) or any(map(self.is_guest, held.pods)))
            for held in self.inventory.held_by(device)
        )

    def is_own_claim(self, held: Held) -> bool:
        """Whether a claim is of our tasks."""
        return self.is_own(held.name.partition("/")[0]) and held.service == self.service

    # ── nodes ───────────────────────────────────────────────────────────────────────────

    def _all_nodes(self, found: Sequence[KubeNode]) -> None:
        before, self.nodes = self.nodes, {node.metadata.name: node for node in found}
        self.news.nodes |= before.keys() ^ self.nodes.keys()
        self.news.nodes.update(
            name
            for name, node in self.nodes.items()
            if name in before and is_news(before[name], node, self.own_labels)
        )
        for name in before.keys() | self.nodes.keys():
            self._note_images(name, before.get(name), self.nodes.get(name))
        self.nodes_known = True
        self.version += 1
        self._on_nodes()

    def _node(self, node: KubeNode, is_gone: bool) -> None:
        name = node.metadata.name
        before = self.nodes.pop(name, None)
        self._note_images(name, before, None if is_gone else node)
        if not is_gone:
            self.nodes[name] = node
            if before is not None and not is_news(before, node, self.own_labels):
                return  # Each kubelet reports all the time.
        self.news.nodes.add(name)
        self.version += 1
        self._on_nodes()

    def _note_images(self, name: str, before: KubeNode | None, now: KubeNode | None) -> None:
        had = before.status.image_names if before is not None else ()
        has = now.status.image_names if now is not None else ()
        if had != has:
            self.images.note(name, had, has)


def is_news(before: KubeNode, now: KubeNode, own: Sequence[str] = ()) -> bool:
    """Whether anything of a node changed that bears on what may run there, or where it is."""
    was, is_ = before.status.but_images, now.status.but_images
    return (before.spec, was, telling(before, own)) != (now.spec, is_, telling(now, own))
