"""Pods that others made, and that Allotment only puts in their place.

Nothing of them is kept on disk: the event log has which pods a job is, by uid, and Kubernetes
has where they are. A pod of the same name with another uid is another pod.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from math import ceil, inf
from signal import SIGTERM
from time import monotonic

import msgspec
import structlog

from allotment.backends.kubernetes.claiming import chosen_for
from allotment.backends.kubernetes.client import Client
from allotment.backends.kubernetes.discover import TYPES, device_of, type_of
from allotment.backends.kubernetes.disruption import was_deleted
from allotment.backends.kubernetes.guest_claims import GuestClaims
from allotment.backends.kubernetes.guest_end import DELETED, TAKEN, end_of, lost
from allotment.backends.kubernetes.named import NodesByName
from allotment.backends.kubernetes.objects import Pod
from allotment.backends.kubernetes.request import NO_NOTES, binding_of, deletion_of
from allotment.backends.kubernetes.silent_nodes import SilentNodes
from allotment.backends.kubernetes.site import Site
from allotment.backends.kubernetes.status import may_run
from allotment.backends.kubernetes.telling import Word, disruption_of, event_of
from allotment.backends.kubernetes.usage import use_of
from allotment.backends.kubernetes.visible import notes_of, value_of
from allotment.backends.together import gather_all
from allotment.model.diagnosis import Diagnosis, Exit
from allotment.model.errors import BackendError, EngineAway
from allotment.model.ids import TaskKey
from allotment.model.quantity import Millis
from allotment.model.reasons import StopCause
from allotment.model.reports import Seen, TaskReport
from allotment.model.spec import Offered
from allotment.service.ports import GangLaunch, Refused, TaskLaunch

log = structlog.get_logger("allot.kubernetes")

BUDGET_S = 60.0
"""For how long disruption budgets may keep a pod that has to go."""
AGAIN_S = 5.0
"""How often a pod is told to end that a budget keeps."""
KEEP_S = 600.0
"""How long it is remembered that a gang did its work, for pods that are cleared up after it."""


NAMED = (
    "node {} gives its devices by name (DRA), and the pod asks for a number of them: it runs "
    "on nodes with a device plugin only"
)
TOLD = (
    "pods on node {} are told their devices, as those of HiveD are; the pod asks for a number "
    "of them, or by resourceClaims"
)
COUNTED = "node {} gives its devices by number, and the pod asks for them by resourceClaims"


class Guest(msgspec.Struct):
    """A pod of others that is a task of ours."""

    key: TaskKey
    pod: Offered
    in_gang: bool = False
    """Whether its job is of several pods."""
    devices: tuple[str, ...] = ()
    """By name those that were chosen for it, where those of its node have names."""
    visible: str | None = None
    """Those that it is told it has; None where it is not told."""
    is_counted: bool = False
    """Whether it was to have a number of devices of its node."""
    node: str = ""
    """Where it is to be; '' after a restart, until it is launched again or heard of."""
    is_bound: bool = False
    is_running: bool = False
    is_stopped: bool = False
    cause: StopCause | None = None
    grace_s: int = 0
    again_at: float = 0.0
    """When it is told to end once more; 0 where that is not needed."""
    force_at: float = 0.0
    """From when budgets do not count any more."""
    is_gone: bool = False
    """It is not in Kubernetes any more, and its node does not say whether it still runs."""
    gone_at: float = -inf
    """When we heard so, where nobody said that it had ended."""


class Guests:
    """Does with pods of others what a backend does with its own. `let_go` is told of each whose
    task is over."""

    def __init__(
        self,
        site: Site,
        report: Callable[[TaskReport], None],
        silent: SilentNodes,
        let_go: Callable[[str], None],
    ) -> None:
        self._client, self._cluster = site.client, site.cluster
        self._nodes, self._is_visible = NodesByName(site.nodes), site.is_visible
        self._claims = GuestClaims(site.cluster)
        self._loose: dict[str, Guest] = {}
        """By uid: pods on no node that may have devices."""
        self._report, self._silent, self._let_go = report, silent, let_go
        self._guests: dict[TaskKey, Guest] = {}
        self._keys: dict[str, TaskKey] = {}
        """By the uid of their pods."""
        self._done: dict[int, float] = {}
        """Jobs of which a pod has succeeded, and when."""
        self._types: dict[str, tuple[str, ...]] = {}
        self._types_at = 0
        """At which version of the nodes that was found."""

    # ── hearing ─────────────────────────────────────────────────────────────────────────

    def has(self, key: TaskKey) -> bool:
        return key in self._guests

    def gang_pod(self, key: TaskKey) -> str:
        """Return the uid of a task's pod; '' where its job is of no other."""
        guest = self._guests.get(key)
        return guest.pod.uid if guest is not None and guest.in_gang else ""

    def is_guest(self, uid: str) -> bool:
        return uid in self._keys

    def hear(self, pod: Pod, is_gone: bool) -> None:
        """Note a pod that is a task."""
        guest = self._guests[self._keys[pod.metadata.uid]]
        node = pod.spec.node_name or ""
        if node and guest.node and node != guest.node:
            self._end(guest, Exit(lost=True, platform_error=f"it is on {node}"), TAKEN)
        elif pod.is_over and was_deleted(pod) and not guest.is_stopped:
            self._deleted(guest)
        elif pod.is_over:
            self._end(guest, *end_of(pod, is_stopped=guest.is_stopped))
        elif is_gone:
            self._gone(guest, runs_on=may_run(pod))
        else:
            guest.is_gone, guest.gone_at = False, -inf
            guest.node, guest.is_bound = node or guest.node, guest.is_bound or bool(node)
            if node and pod.status.phase == "Running" and not guest.is_running:
                guest.is_running = True
                running = TaskReport(guest.key, Seen.RUNNING, 1, engine_job=guest.pod.name)
                self._report(running)

    def listed(self, there: set[str]) -> None:
        """Note which pods there are: all others are gone."""
        for guest in [each for each in self._guests.values() if each.pod.uid not in there]:
            self._gone(guest)

    def _gone(self, guest: Guest, *, runs_on: bool = True) -> None:
        """Note that a pod is not there any more: whether it has ended depends on its node, and
        on whether that said so."""
        if runs_on and not guest.is_gone:
            guest.gone_at = monotonic()
        if (
            guest.is_bound
            and guest.node
            and not self._silent.is_certain(guest.node, guest.gone_at)
        ):
            guest.is_gone = True
        elif guest.is_stopped:
            self._end(guest, Exit(signal=SIGTERM))
        else:
            self._deleted(guest)

    def _deleted(self, guest: Guest) -> None:
        """End the task of a pod that others deleted, as operators clear up after a gang."""
        if guest.key.job in self._done:
            self._end(guest, Exit(code=0))
        else:
            guest.cause = guest.cause or StopCause.CANCELLED
            self._end(guest, Exit(lost=True, platform_error=DELETED.cause), DELETED)

    def _end(self, guest: Guest, exit_: Exit, why: Diagnosis | None = None) -> None:
        if exit_.ok:
            self._done[guest.key.job] = monotonic()
        del self._guests[guest.key]
        if self._keys.get(guest.pod.uid) == guest.key:
            del self._keys[guest.pod.uid]
        self._let_go(guest.pod.uid)
        if guest.devices:
            self._cluster.note_use([guest.node])  # its claims have them until they are emptied
        # After a restart it is not known what its claims were given.
        if not guest.is_bound and (guest.devices or any(self._cluster.inventory.nodes())):
            self._loose[guest.pod.uid] = guest
        told = TaskReport(
            guest.key, Seen.ENDED, int(guest.is_running), exit=exit_, diagnosis=why,
            stopped_for=guest.cause, engine_job=guest.pod.name,
        )  # fmt: skip
        self._report(told)

    # ── tasks ───────────────────────────────────────────────────────────────────────────

    def resume(self, tasks: Mapping[TaskKey, Offered]) -> None:
        """Note the tasks that have a place."""
        sizes = Counter(key.job for key in tasks)
        for key, pod in tasks.items():
            self._adopt(key, pod, in_gang=sizes[key.job] > 1)

    def _adopt(self, key: TaskKey, pod: Offered, *, in_gang: bool, node: str = "") -> Guest:
        guest = self._guests.get(key)
        if guest is None:
            guest = self._guests[key] = Guest(key, pod, in_gang)
            self._keys[pod.uid] = key
        guest.node = guest.node or node
        return guest

    async def launch(self, gang: GangLaunch) -> Refused:
        """Take the pods of a gang; put one that is no gang on its node."""
        for task in gang.tasks:
            other = self._keys.get(task.offered.uid, task.key) if task.offered else task.key
            if other != task.key:
                raise EngineAway(f"a pod of job {task.key.job} is still one of job {other.job}")
        refused = await gather_all([self._take(task, gang) for task in gang.tasks])
        keys = (task.key for task in gang.tasks)
        return {key: why for key, why in zip(keys, refused, strict=True) if why}

    async def _take(self, task: TaskLaunch, gang: GangLaunch) -> str:
        assert task.offered is not None, "others made it"
        guest = self._adopt(
            task.key, task.offered, in_gang=len(gang.tasks) > 1, node=task.binding.node
        )
        try:
            guest.devices = chosen_for(task, self._cluster, self._nodes)
        except EngineAway:
            raise
        except BackendError as error:
            return str(error)
        node = self._nodes.find(task.binding.node)
        if node is not None and self._is_told(node.name):
            guest.visible = value_of(node, task.binding.devices)
        guest.is_counted = bool(task.binding.devices) and not guest.devices
        if not gang.at_barrier:
            await self._bind(guest)
        elif not guest.is_bound:
            self._report(TaskReport(task.key, Seen.READY, engine_job=guest.pod.name))
        return ""

    async def bind(self, keys: Sequence[TaskKey]) -> None:
        """Put the pods of a gang on their nodes."""
        there = [guest for key in keys if (guest := self._guests.get(key)) is not None]
        await gather_all([self._bind(guest) for guest in there])

    async def _bind(self, guest: Guest) -> None:
        """Put a pod on its node; where that is refused, end its task. Raises EngineAway."""
        await self._cluster.until_listed()  # after a start most are where they are to be
        if guest.is_bound or guest.is_stopped:
            return
        if not self._cluster.nodes_known:
            raise EngineAway("Kubernetes does not list its nodes")
        client, name = self._at(guest)
        if guest.node not in self._cluster.nodes:
            self._end(guest, Exit(platform_error=f"Kubernetes has no node {guest.node}"))
            return
        try:
            await self._give(guest)
            notes = NO_NOTES if guest.visible is None else notes_of(guest.visible)
            await client.bind(name, binding_of(name, guest.pod.uid, guest.node, notes))
        except EngineAway:
            raise
        except BackendError as error:
            log.warning("a pod is not put on its node", pod=guest.pod.name, why=str(error))
            await self._refused(guest, str(error))
        else:
            guest.is_bound = True

    async def _give(self, guest: Guest) -> None:
        """Allocate the devices of a pod's claims, where it has any. Raises BackendError."""
        is_mixed = guest.is_counted and any(self._cluster.inventory.nodes())
        if not (guest.devices or guest.visible or is_mixed):
            return
        client, name = self._at(guest)
        pod = await client.pod(name)
        if pod is None or pod.metadata.uid != guest.pod.uid or pod.spec.node_name:
            return  # what it is bound to says the rest
        if guest.visible and (pod.spec.resource_claims or use_of(pod).devices):
            raise BackendError(TOLD.format(guest.node))
        has_names = bool(guest.devices or self._cluster.inventory.on(guest.node))
        if bool(pod.spec.resource_claims) is not has_names:
            raise BackendError((NAMED if has_names else COUNTED).format(guest.node))
        if has_names:
            await self._claims.give(client, pod, guest.node, guest.devices)

    async def _refused(self, guest: Guest, why: str) -> None:
        """End the task of a pod that could not be put on its node."""
        client, name = self._at(guest)
        pod = await client.pod(name)
        if self._guests.get(guest.key) is not guest:
            return  # its end was heard meanwhile
        if pod is None or pod.metadata.uid != guest.pod.uid:
            self._gone(guest)
        elif pod.spec.node_name and pod.spec.node_name != guest.node:
            error = f"it is on {pod.spec.node_name}"
            self._end(guest, Exit(lost=True, platform_error=error), TAKEN)
        elif pod.spec.node_name:
            guest.is_bound = True
        else:
            self._end(guest, Exit(platform_error=f"it was not put on its node: {why}"))

    async def stop(self, key: TaskKey, grace_ms: Millis, cause: StopCause | None) -> None:
        """Remove a pod from its node. One that is on none stays as it is."""
        guest = self._guests.get(key)
        if guest is None:
            return
        now = monotonic()
        if not guest.is_stopped:
            guest.force_at = now + BUDGET_S
        guest.is_stopped, guest.cause = True, guest.cause or cause
        guest.grace_s = max(1, ceil(grace_ms / 1000))
        if grace_ms <= 0:
            guest.force_at = now
        if not guest.is_bound:
            await self._as_it_is(guest)
        if self._guests.get(key) is guest:
            await self._tell_to_go(guest)

    async def _as_it_is(self, guest: Guest) -> None:
        """Look whether a pod is on its node after all; its task is over where it is not."""
        client, name = self._at(guest)
        pod = await client.pod(name)
        if self._guests.get(guest.key) is not guest:
            return
        if pod is not None and pod.metadata.uid == guest.pod.uid and pod.spec.node_name:
            guest.is_bound, guest.node = True, pod.spec.node_name
        else:
            self._end(guest, Exit(signal=SIGTERM))

    async def _tell_to_go(self, guest: Guest) -> None:
        client, name = self._at(guest)
        uid, is_first = guest.pod.uid, guest.again_at == 0
        guest.again_at = monotonic() + AGAIN_S
        if monotonic() >= guest.force_at:
            if not is_first:
                log.warning("a pod goes in spite of its disruption budget", pod=guest.pod.name)
            await client.delete_pod(name, deletion_of(uid, guest.grace_s))
            guest.again_at = guest.force_at = monotonic() + guest.grace_s + BUDGET_S
            return
        if is_first and guest.cause is StopCause.EVICTED:
            await self._note_disruption(guest)
        if kept := await client.evict_pod(name, uid, guest.grace_s):
            log.info("a disruption budget keeps a pod", pod=guest.pod.name, why=kept)
        else:
            guest.again_at = guest.force_at = monotonic() + guest.grace_s + BUDGET_S

    async def _note_disruption(self, guest: Guest) -> None:
        """Let who made a pod know that it is not its own fault. That it ends counts more."""
        client, name = self._at(guest)
        words = Word("Preempted", "Allotment needs its place for another job")
        try:
            await client.note_condition(name, guest.pod.uid, disruption_of(words.message))
            await client.note_event(event_of(guest.pod, words))
        except BackendError as error:
            log.warning("a pod is not told why it ends", pod=guest.pod.name, why=str(error))

    def observe(self, keys: Sequence[TaskKey]) -> list[TaskReport]:
        """Return which of these tasks are pods of others: how they are is heard of anyway."""
        there = (self._guests[key] for key in keys if key in self._guests)
        return [
            TaskReport(guest.key, Seen.UNKNOWN, engine_job=guest.pod.name)
            for guest in there
            if guest.is_bound or not self._cluster.sees_all
        ]

    def _at(self, guest: Guest) -> tuple[Client, str]:
        namespace, _, name = guest.pod.name.partition("/")
        return self._client.within(namespace), name

    # ── looking ─────────────────────────────────────────────────────────────────────────

    async def look(self) -> None:
        """Look after pods that do not go, and those whose nodes did not say what they do."""
        now = monotonic()
        await self._free_loose()
        self._done = {job: at for job, at in self._done.items() if now - at < KEEP_S}
        for guest in list(self._guests.values()):
            if guest.is_gone:
                self._gone(guest)
            elif guest.is_bound and self._silent.is_given_up(guest.node):
                await self._give_up(guest)
            elif guest.again_at and now >= guest.again_at:
                try:
                    await self._tell_to_go(guest)
                except BackendError as error:
                    log.warning(
                        "a pod is told to end later", pod=guest.pod.name, why=str(error)
                    )

    async def _free_loose(self) -> None:
        """Empty the claims of pods that were put on no node, and are no task now."""
        for uid, guest in list(self._loose.items()):
            if uid not in self._keys:
                client, name = self._at(guest)
                try:
                    pod = await client.pod(name)
                    if pod is not None and pod.metadata.uid == uid and not pod.spec.node_name:
                        await self._claims.free(client, pod)
                except BackendError as error:
                    log.warning("devices are freed later", pod=guest.pod.name, why=str(error))
                    continue
            self._loose.pop(uid, None)

    async def _give_up(self, guest: Guest) -> None:
        """End the task of a pod whose node is taken for dead. The pod is told to end as well:
        should its node come back, no other knows that it is to."""
        client, name = self._at(guest)
        try:
            await client.delete_pod(name, deletion_of(guest.pod.uid, None))
        except EngineAway as error:
            log.warning("a pod is given up later", pod=guest.pod.name, why=str(error))
            return
        except BackendError as error:
            words = "a pod is given up, and may not be told to end"
            log.warning(words, pod=guest.pod.name, why=str(error))
        if self._guests.get(guest.key) is guest:
            told = Exit(signal=SIGTERM), None
            silent = lost(f"node {guest.node} was silent for longer than `force_after`")
            self._end(guest, *(told if guest.is_stopped else silent))

    def _is_told(self, node: str) -> bool:
        """Whether pods on a node are told their devices, which have no names there."""
        return self._is_visible(node) and not self._cluster.inventory.on(node)

    def types_of(self) -> dict[str, tuple[str, ...]]:
        """Return the types of devices by their resource, where nodes have more than one."""
        if self._types_at != self._cluster.version:
            self._types_at, self._types = self._cluster.version, self._types_now()
        return self._types

    def _types_now(self) -> dict[str, tuple[str, ...]]:
        found: dict[str, dict[str, None]] = {}
        is_mixed = any(self._cluster.inventory.nodes())
        for node in self._cluster.nodes.values():
            name, _ = device_of(node)
            if self._cluster.inventory.on(node.metadata.name):
                continue
            if self._is_visible(node.metadata.name):
                is_mixed = True
                continue
            labels = node.metadata.labels or {}
            kind = next((type_of(labels[each]) for each in TYPES if labels.get(each)), "gpu")
            if name:
                found.setdefault(name, {})[kind] = None
        # Devices with names, and those that pods are told, are of no such resource.
        is_mixed = is_mixed or len(found) > 1
        return {name: tuple(kinds) for name, kinds in found.items()} if is_mixed else {}
