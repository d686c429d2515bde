"""What Kubernetes says of its nodes → nodes of ours, and whether they take work. Pure."""

from collections.abc import Callable, Collection, Sequence
from functools import lru_cache

import msgspec

from allotment.backends.kubernetes.disruption import SHORTAGES
from allotment.backends.kubernetes.named import (
    MOST_DEVICES,
    NamedDevice,
    NamedOn,
    devices_of,
    has_names,
    kept,
    nothing_on,
    taken,
)
from allotment.backends.kubernetes.objects import KubeNode, Taint, Words, milli, whole
from allotment.backends.kubernetes.usage import DEVICES, Use
from allotment.backends.kubernetes.visible import COUNT, IsVisible, nowhere
from allotment.backends.kubernetes.visible import taken as told_to_others
from allotment.model.cells_by_label import word_of
from allotment.model.cluster import Device, Node
from allotment.model.ids import DeviceIndex, NodeId
from allotment.model.others import NOBODY, Others
from allotment.model.pools import POOL, PRICE
from allotment.model.quantity import MIB
from allotment.model.reports import NodeReport
from allotment.model.spec import Arch

TYPES = ("nvidia.com/gpu.product", "amd.com/gpu.product-name", "gpu.intel.com/product")
"""Labels that name the type of a node's devices."""
UNTYPED = "gpu"
WHERE = "Kubernetes"
POOLS = (
    "allotment.io/pool",
    "cloud.google.com/gke-nodepool",
    "eks.amazonaws.com/nodegroup",
    "karpenter.sh/nodepool",
    "kubernetes.azure.com/agentpool",
    "agentpool",
    "alpha.eksctl.io/nodegroup-name",
    "node.kubernetes.io/instance-type",
)
"""Labels that name the pool of a node: the first that it has."""
PRICE_LABEL = "allotment.io/price"
"""A label: what the node costs for an hour."""
MEMORY = "nvidia.com/gpu.memory"
"""A label: what a device has, in MiB."""
ARCHS = {"amd64": Arch.X86_64, "arm64": Arch.ARM64}
CONTROL = ("node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master")
UNHEALTHY = "allotment.io/unhealthy"
"""The key of a taint, and of a note why: what is out of use in a service, by its name."""
LOOKED_AT = frozenset(
    f"node.kubernetes.io/{key}" for key in ("not-ready", "unreachable", "unschedulable")
)
"""The keys of taints by which Kubernetes repeats what a node says otherwise."""
OWN_TAINT = "allotment"
"""The key of a taint by which a node is kept for Allotment."""
MOST_LABEL = 63


def device_of(found: KubeNode) -> tuple[str, int]:
    """Return the resource that a node's devices are counted by, and how many there are."""
    there = found.status.allocatable or {}
    for name in DEVICES:
        if count := min(whole(there.get(name, 0)), MOST_DEVICES):
            return name, count
    return "", 0


def told_count(found: KubeNode) -> int:
    """Return how many devices a node has whose pods are told theirs: as its labels say, else as
    a device plugin offers them."""
    labels = found.metadata.labels or {}
    return min(whole(labels.get(COUNT, 0)), MOST_DEVICES) or device_of(found)[1]


def nodes_of(
    found: Sequence[KubeNode],
    named_on: NamedOn = nothing_on,
    is_visible: IsVisible = nowhere,
    own: Sequence[str] = (),
) -> tuple[Node, ...]:
    """Return the nodes that may run tasks, by name: all but those of the control plane. Where
    devices have names, these are a node's. `own` are labels that are kept, too."""
    mine = sorted(
        (node for node in found if not _is_control(node)), key=lambda node: node.metadata.name
    )
    return tuple(
        _node(place, node, named_on(node.metadata.name), is_visible(node.metadata.name), own)
        for place, node in enumerate(mine)
    )


def _is_control(found: KubeNode) -> bool:
    return any(taint.key in CONTROL for taint in found.spec.taints or ())


def _node(
    place: int,
    found: KubeNode,
    named: Sequence[NamedDevice],
    is_visible: bool,
    own: Sequence[str],
) -> Node:
    there, labels = found.status.allocatable or {}, found.metadata.labels or {}
    count = told_count(found) if is_visible else device_of(found)[1]
    kind = next((_word(labels[name]) for name in TYPES if labels.get(name)), UNTYPED)
    memory = whole(labels.get(MEMORY, 0)) * MIB
    return Node(
        id=NodeId(place),
        name=found.metadata.name,
        cpu_milli=milli(there.get("cpu", 0)),
        memory=whole(there.get("memory", 0)),
        disk=whole(there.get("ephemeral-storage", 0)),
        devices=devices_of(named) or _devices(kind, memory, count),
        arch=ARCHS.get(found.status.node_info.architecture, Arch.ANY),
        address=_address(found),
        labels=tuple(sorted((_word(name), value) for name, value in _kept(labels, own))),
    )


@lru_cache(256)  # most nodes of a cluster are alike
def _devices(kind: str, memory: int, count: int) -> tuple[Device, ...]:
    return tuple(
        Device(DeviceIndex(index), kind, memory, virtual=False) for index in range(count)
    )


PLACES = (
    "topology.kubernetes.io/",
    "network.topology.nvidia.com/",
    "fabric.topograph.run/",
    "accelerator.topograph.run/",
    "cloud.google.com/gce-topology-",
    "topology.k8s.aws/",
    "topology.nebius.com/",
    "nvidia.com/gpu.clique",
)
"""How labels begin that say where a node stands; of two with one name the first counts."""
SAID = frozenset({*TYPES, MEMORY, COUNT, *POOLS, PRICE_LABEL})


def telling(found: KubeNode, own: Sequence[str] = ()) -> Words:
    """Return the labels of a node that say what it has and where it stands, and no others;
    `own` are further ones that the configuration names."""
    labels = found.metadata.labels or {}
    return {
        name: value
        for name, value in labels.items()
        if name in SAID or name.startswith(PLACES) or name in own
    }


def _kept(labels: Words, own: Sequence[str]) -> list[tuple[str, str]]:
    """Return the labels that people and topologies go by: where a node stands, of which pool it
    is, and what it costs. Each is called by the last part of its key."""
    places: dict[str, str] = {}
    for start in (*own, *PLACES):
        for name, value in labels.items():
            if value and (name == start if start in own else name.startswith(start)):
                places.setdefault(word_of(name), value)
    kept = list(places.items())
    pool = next((labels[name] for name in POOLS if labels.get(name)), "")
    price = labels.get(PRICE_LABEL, "")
    more = [(name, value) for name, value in ((POOL, pool), (PRICE, price)) if value]
    named = {name for name, _ in more}
    return [each for each in kept if each[0] not in named] + more


@lru_cache(4096)
def _word(text: str) -> str:
    """Return a label as a name of ours: letters, digits, and what joins them."""
    plain = "".join(each if each.isalnum() or each in "-_." else "-" for each in text)
    return plain.strip("-_.")[:MOST_LABEL].lower() or UNTYPED


def type_of(product: str) -> str:
    """Return the type of devices whose maker calls them so."""
    return _word(product)


def _address(found: KubeNode) -> str:
    for address in found.status.addresses or ():
        if address.type == "InternalIP":
            return address.address
    return found.metadata.name


SILENT = "silent: its kubelet does not report, so what runs there may run on"


def is_silent(found: KubeNode) -> bool:
    """Whether it is not known what a node does: it has not reported for a while."""
    return found.ready.status == "Unknown"


UNNAMED = (
    "its devices have names in Kubernetes (DRA), and the configuration lists it without their "
    "`uuids`: take `nodes` out there, so that it is found"
)


def report_of(
    node: Node,
    found: KubeNode | None,
    named: Sequence[NamedDevice] = (),
    amiss: str = "",
    service: str = "",
) -> NodeReport:
    """Return how a node is: lost with all that runs there, or only closed to new work.

    Lost is only one that is not there any more. One that went silent may run what it ran.
    `amiss` is what else keeps new work off it. What `service` itself has marked as
    unhealthy is not closed for that.
    """
    if found is None:
        reason = "; ".join(filter(None, ("Kubernetes has no such node any more", amiss)))
        return NodeReport(node.id, alive=False, reason=reason)
    unnamed = UNNAMED if named and node.devices and not has_names(node) else ""
    return NodeReport(node.id, alive=True, closed=_closed(found, service) or unnamed or amiss)


def _closed(found: KubeNode, service: str = "") -> str:
    ready = found.ready
    if ready.status == "Unknown":
        return f"{SILENT} (Kubernetes: {ready.reason or 'NodeStatusUnknown'})"
    if ready.status != "True":
        return f"not ready in Kubernetes: {ready.message or ready.reason}"
    if found.spec.unschedulable:
        return "cordoned in Kubernetes"
    for condition in found.status.conditions or ():
        if condition.status == "True" and (what := SHORTAGES.get(condition.type)):
            return f"short of {what}, so its kubelet evicts pods (Kubernetes: {condition.type})"
    for taint in found.spec.taints or ():
        if (taint.key, taint.value) == (UNHEALTHY, service):
            continue
        if taint.effect in ("NoSchedule", "NoExecute") and not tolerated(taint):
            value = f"={taint.value}" if taint.value else ""
            return f"tainted in Kubernetes: {taint.key}{value}:{taint.effect}"
    return ""


def tolerated(taint: Taint) -> bool:
    """Whether our pods go to a node in spite of this: it is kept for devices, or for us, or
    says what was looked at already."""
    own = taint.key in DEVICES or taint.key.partition("/")[0] == OWN_TAINT
    return own or taint.key in LOOKED_AT


def joined(
    known: Sequence[Node],
    found: Sequence[KubeNode],
    named_on: NamedOn = nothing_on,
    is_visible: IsVisible = nowhere,
    own: Sequence[str] = (),
) -> tuple[Node, ...]:
    """Return the nodes there are, as they come into force.

    A new one counts from when it takes work. One that takes none, or whose devices are not
    offered for a while, as when its kubelet starts again, stays as it was known.
    """
    before, there = (
        {node.name: node for node in known},
        {each.metadata.name: each for each in found},
    )
    mine: list[Node] = []
    for node in nodes_of(found, named_on, is_visible, own):
        old, is_closed = before.get(node.name), _closed(there[node.name]) != ""
        if old is None and not is_closed:
            mine.append(node)
        elif old is not None:
            now = _still(old, node)
            is_fewer = len(now.devices) < len(old.devices)
            stays = is_closed or (is_fewer and has_names(now) is has_names(old))
            mine.append(as_found(old) if stays else now)
    return tuple(mine)


def as_found(node: Node) -> Node:
    """Return a node in force as it was found."""
    return msgspec.structs.replace(node, engine="", lacks=())


def as_known(found: Sequence[Node], before: Sequence[Node]) -> tuple[Node, ...]:
    """Return nodes that were found anew after a while, as by a start: devices with names are in
    the places that they had, as tasks that run have them by index."""
    known = {node.name: node for node in before}
    return tuple(
        _still(known[each.name], each) if each.name in known else each for each in found
    )


def _still(old: Node, node: Node) -> Node:
    """Return a node that was known as it is now: its devices in the places that they had, where
    they have names."""
    if not has_names(old) or not (has_names(node) or not node.devices):
        return node
    return msgspec.structs.replace(node, devices=kept(old.devices, node.devices))


def others_of(
    node: Node,
    found: KubeNode,
    use: Use,
    named: Sequence[NamedDevice] = (),
    is_held: Callable[[str], bool] = lambda device: False,
    picked: Collection[str] | None = None,
) -> Others:
    """Return what of a node is not ours to use: what pods of others ask for, and devices that
    it had and does not offer any more. Of devices with names it is known which: those that
    claims of others hold, as `is_held` says. So it is where pods are told their devices:
    `picked` are those of others, None on nodes where they are not told."""
    _, there = device_of(found)
    known: tuple[int, ...] = ()
    where = WHERE
    if has_names(node):
        known = taken(node, named, is_held)
        count = min(use.devices, there, len(node.devices) - len(known))
    elif picked is not None:
        known, count = told_to_others(node, use.devices, picked), 0
    else:
        missing = max(0, len(node.devices) - there)
        count = min(use.devices + missing, len(node.devices))
        if missing:
            where = f"{WHERE}, {missing} of them not offered there now"
    kind = node.devices[0].type if node.devices else ""
    counted = ((kind, count),) if count else ()
    others = Others(counted, use.cpu_milli, use.memory, indexes=known)
    return msgspec.structs.replace(others, where=where) if others != NOBODY else NOBODY


def all_used(node: Node, others: Others) -> Others:
    """Return what is not ours to use of a node of whose devices nobody knows which are free."""
    every = tuple(device.index for device in node.devices)
    if not every:
        return others
    return msgspec.structs.replace(others, devices=(), indexes=every, where=WHERE)
