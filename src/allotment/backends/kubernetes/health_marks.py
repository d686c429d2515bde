"""Hardware that is out of use here is marked in Kubernetes, and no longer once it is healthy.

* A node: a taint, NoSchedule.
* A device that has a name: a DeviceTaintRule, where the API server has such.
* Another device: kubelets pick devices by themselves, and nobody can tell them of one. So its
  node is tainted PreferNoSchedule. That keeps others off it as long as there is room elsewhere,
  and takes none of its healthy devices away.

Nothing that runs is ended. A mark is written when health changes, so one that somebody takes
off stays off until then, or a restart; and only marks of this service are taken off.
"""

from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from math import inf

import msgspec
import structlog

from allotment.backends.kubernetes.client import FORBIDDEN, Client, Denied
from allotment.backends.kubernetes.device_objects import GROUP, RULES, parts_of
from allotment.backends.kubernetes.discover import UNHEALTHY
from allotment.backends.kubernetes.inventory import all_of
from allotment.backends.kubernetes.named import has_names
from allotment.backends.kubernetes.objects import KubeNode, Thing
from allotment.backends.kubernetes.request import SERVICE
from allotment.model.cluster import Node
from allotment.model.errors import BackendError, EngineAway
from allotment.model.health import WHOLE, Condition, Part
from allotment.model.ids import NodeId

log = structlog.get_logger("allot.kubernetes")

Health = Callable[[], Mapping[Part, Condition]]
"""What is out of use."""
AGAIN_S = 300.0
"""After how long a mark that could not be written is tried again."""
MOST_CHANGES = 20
"""Marks that are written at a look."""


class Mark(msgspec.Struct, frozen=True):
    """The effect of a node's taint, and why it has it."""

    effect: str
    why: str


class Marks(msgspec.Struct, frozen=True):
    """The marks that health asks for: of nodes by name, and of devices by their ids."""

    nodes: Mapping[str, Mark]
    devices: frozenset[str]


def wanted(nodes: Sequence[Node], out: Mapping[Part, Condition], *, has_rules: bool) -> Marks:
    """Return the marks that hardware out of use is to have."""
    by_node: dict[NodeId, list[Condition]] = {}
    for (node, _), condition in sorted(out.items()):
        by_node.setdefault(node, []).append(condition)
    marks, devices = dict[str, Mark](), set[str]()
    for node in nodes:
        found = by_node.get(node.id, ())
        whole = [each for each in found if each.part[1] == WHOLE]
        parts = [each for each in found if each.part[1] != WHOLE]
        if has_rules and has_names(node):
            ids = {int(device.index): device.uuid for device in node.devices}
            devices |= {ids[each.part[1]] for each in parts if each.part[1] in ids}
            parts = []
        if whole or parts:
            effect = "NoSchedule" if whole else "PreferNoSchedule"
            marks[node.name] = Mark(effect, ", ".join(map(_words, (*whole, *parts))))
    return Marks(marks, frozenset(devices))


def _words(condition: Condition) -> str:
    what = "node" if condition.device is None else f"device {condition.device}"
    code = f" ({condition.code})" if condition.code else ""
    return f"{what} {condition.health}{code}"


def patch_of(found: KubeNode, service: str, mark: Mark | None) -> list[object]:
    """Return what puts our mark on a node, or takes it off; nothing where there is none, or
    where that is another service's. All else of the node stays as it is."""
    taints = found.spec.taints or ()
    at = next((at for at, taint in enumerate(taints) if taint.key == UNHEALTHY), None)
    if at is not None and taints[at].value != service:
        return []
    taint = mark and {"key": UNHEALTHY, "value": service, "effect": mark.effect}
    patch: list[object] = []
    if at is not None and mark is None:
        patch.append({"op": "remove", "path": f"/spec/taints/{at}"})
    elif at is not None:
        patch.append({"op": "replace", "path": f"/spec/taints/{at}", "value": taint})
    elif mark is not None and taints:
        patch.append({"op": "add", "path": "/spec/taints/-", "value": taint})
    elif mark is not None:
        patch.append({"op": "add", "path": "/spec/taints", "value": [taint]})
    patch += _note(found, mark)
    version = found.metadata.resource_version
    test = {"op": "test", "path": "/metadata/resourceVersion", "value": version}
    return [test, *patch] if patch else []


def _note(found: KubeNode, mark: Mark | None) -> list[object]:
    there = found.metadata.annotations
    path = f"/metadata/annotations/{UNHEALTHY.replace('/', '~1')}"
    if mark is None:
        return [{"op": "remove", "path": path}] if UNHEALTHY in (there or ()) else []
    if there is None:
        return [{"op": "add", "path": "/metadata/annotations", "value": {UNHEALTHY: mark.why}}]
    return [{"op": "add", "path": path, "value": mark.why}]


def rule_of(service: str, device: str) -> dict[str, object]:
    """Return the rule that taints a device, by its id."""
    driver, pool, name = parts_of(device)
    return {
        "apiVersion": f"{GROUP}/v1beta2",
        "kind": "DeviceTaintRule",
        "metadata": {"name": name_of(service, device), "labels": {SERVICE: service}},
        "spec": {
            "deviceSelector": {"driver": driver, "pool": pool, "device": name},
            "taint": {"key": UNHEALTHY, "value": service, "effect": "NoSchedule"},
        },
    }


def name_of(service: str, device: str) -> str:
    """Return what the rule of a device is called."""
    return f"{service}-{sha256(device.encode()).hexdigest()[:16]}"


class HealthMarks:
    """Keeps the marks of a cluster in step with `health`. They are those of `service`."""

    def __init__(
        self,
        client: Client,
        service: str,
        nodes: Callable[[], Sequence[Node]],
        health: Health,
        clock: Callable[[], float],
    ) -> None:
        self._client, self._service, self._clock = client, service, clock
        self._nodes, self._health = nodes, health
        self._marks: dict[str, Mark] | None = None
        """The marks that were written on nodes; None before it was looked which there are."""
        self._rules: set[str] | None = None
        """The names of the rules that were made; None where there are none to be had."""
        self._rest = 0.0
        """Until when nothing is tried that was refused."""
        self._no_rules = -inf
        """Until when no rule is made, as that was refused."""

    async def look(self, there: Mapping[str, KubeNode]) -> None:
        """Write the marks of what changed since the last look; `there` are the nodes. Raises
        EngineAway."""
        if self._clock() < self._rest:
            return
        try:
            if self._marks is None:
                self._rules = await self._rules_there()
                self._marks = {
                    name: mark for name, node in there.items() if (mark := self._on(node))
                }
            want = await self._with_rules(wanted(self._nodes(), self._health(), has_rules=True))
            await self._mark_nodes(self._marks, want.nodes, there)
        except EngineAway:
            raise
        except BackendError as error:
            self._rest = self._clock() + AGAIN_S
            log.warning(
                "hardware that is out of use is not marked in Kubernetes", why=str(error)
            )

    async def _with_rules(self, want: Marks) -> Marks:
        """Mark devices by rules; return the marks that nodes are to have. Devices are marked by
        their nodes where rules may not be made."""
        if self._rules is not None and self._clock() >= self._no_rules:
            try:
                await self._mark_devices(self._rules, want.devices)
            except Denied as error:
                if error.status != FORBIDDEN:
                    raise
                self._no_rules = self._clock() + AGAIN_S
                log.warning("devices are marked by their nodes", why=str(error))
            else:
                return want
        return wanted(self._nodes(), self._health(), has_rules=False)

    def _on(self, node: KubeNode) -> Mark | None:
        for taint in node.spec.taints or ():
            if (taint.key, taint.value) == (UNHEALTHY, self._service):
                return Mark(taint.effect, (node.metadata.annotations or {}).get(UNHEALTHY, ""))
        return None

    def _is_taken(self, node: KubeNode) -> bool:
        """Whether another service has its mark there: ours is written once that is gone."""
        taints = node.spec.taints or ()
        return any(each.key == UNHEALTHY and each.value != self._service for each in taints)

    async def _mark_nodes(
        self, told: dict[str, Mark], want: Mapping[str, Mark], there: Mapping[str, KubeNode]
    ) -> None:
        for name in told.keys() - there.keys():
            del told[name]  # It left, and its mark with it.
        changed = [
            name
            for name, node in there.items()
            if told.get(name) != want.get(name) and not self._is_taken(node)
        ]
        for name in sorted(changed)[:MOST_CHANGES]:
            mark, found = want.get(name), await self._client.node(name)
            patch = patch_of(found, self._service, mark) if found is not None else []
            if patch and not await self._client.patch_node(name, patch):
                continue  # somebody else changed it meanwhile: again at the next look
            if mark is None:
                told.pop(name, None)
            elif patch:
                told[name] = mark

    async def _mark_devices(self, told: set[str], want: frozenset[str]) -> None:
        names = {name_of(self._service, device): device for device in want}
        for name in sorted(names.keys() - told)[:MOST_CHANGES]:
            await self._ask("POST", RULES, rule_of(self._service, names[name]), there=409)
            told.add(name)
        for name in sorted(told - names.keys())[:MOST_CHANGES]:
            await self._ask("DELETE", f"{RULES}/{name}", None, there=404)
            told.discard(name)

    async def _ask(self, method: str, path: str, document: object, there: int) -> None:
        try:
            await self._client.ask(method, path, document)
        except Denied as error:
            if error.status != there:
                raise

    async def _rules_there(self) -> set[str] | None:
        """Return the rules of ours that there are; None where there is no such thing, or it may
        not be seen: devices are marked by their nodes then."""
        try:
            found = await all_of(self._client, RULES, Thing)
        except Denied as error:
            if error.status not in (FORBIDDEN, 404):
                raise
            return None
        return {
            each.metadata.name
            for each in found
            if (each.metadata.labels or {}).get(SERVICE) == self._service
        }
