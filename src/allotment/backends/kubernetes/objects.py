"""What we read of Kubernetes' objects: some fields, and none that has to be there.

An object of anybody's may have odd values in them, and a newer server more fields. So each is
read by itself, and one that cannot be read is passed over, alone.
"""

import sys
from collections.abc import Mapping
from decimal import Decimal
from functools import lru_cache
from itertools import islice
from typing import TypeVar

import msgspec

Words = Mapping[str, str]


class Object(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """A part of an object, with names as the API writes them.

    What was read refers to nothing that refers to it. There may be a million of such parts, and
    the garbage collector has no need to look at them.
    """


class Owner(Object, frozen=True):
    """What made an object, and ends it."""

    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None


class Meta(Object, frozen=True):
    """What every object has."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    deletion_grace_period_seconds: int | None = None
    labels: Words | None = None
    annotations: Words | None = None
    owner_references: tuple[Owner, ...] | None = None
    finalizers: tuple[str, ...] | None = None


class Thing(Object, frozen=True):
    """An object that is there by itself, not a part of one."""

    metadata: Meta = Meta()


class Asked(Object, frozen=True):
    """What a container asks for: amounts as text or numbers."""

    requests: Mapping[str, str | int | float] | None = None
    limits: Mapping[str, str | int | float] | None = None


class Container(Object, frozen=True):
    """A container of a pod."""

    image: str = ""
    resources: Asked = Asked()
    restart_policy: str | None = None


class Named(Object, frozen=True):
    """Something that is only named."""

    name: str = ""


class PodClaim(Object, frozen=True):
    """A claim of a pod: one that is there, or made for it by a template."""

    name: str = ""
    resource_claim_name: str | None = None
    resource_claim_template_name: str | None = None


class Required(Object, frozen=True):
    """Where a pod must run, or must not: that there are such rules, whatever they say."""

    required: object = msgspec.field(
        default=None, name="requiredDuringSchedulingIgnoredDuringExecution"
    )


class Affinity(Object, frozen=True):
    """Rules on nodes, and on pods that are near."""

    node_affinity: Required | None = None
    pod_affinity: Required | None = None
    pod_anti_affinity: Required | None = None


class Spread(Object, frozen=True):
    """A rule on how alike pods are spread."""

    when_unsatisfiable: str = ""


class WorkloadRef(Object, frozen=True):
    """The gang of a pod, as the Workload API of Kubernetes 1.35 has it."""

    name: str = ""
    pod_group: str = ""
    pod_group_replica_key: str = ""


class SchedulingGroup(Object, frozen=True):
    """The gang of a pod, as the Workload API has it from Kubernetes 1.36 on."""

    pod_group_name: str | None = None


class PodSpec(Object, frozen=True):
    """What a pod is to be."""

    scheduler_name: str = ""
    node_name: str | None = None
    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] | None = None
    overhead: Mapping[str, str | int | float] | None = None
    node_selector: Words | None = None
    affinity: Affinity | None = None
    topology_spread_constraints: tuple[Spread, ...] | None = None
    scheduling_gates: tuple[Named, ...] | None = None
    workload_ref: WorkloadRef | None = None
    scheduling_group: SchedulingGroup | None = None
    resources: Asked | None = None
    """Of all its containers together, whatever they ask for each."""
    resource_claims: tuple[PodClaim, ...] | None = None
    termination_grace_period_seconds: int | None = None


class Waiting(Object, frozen=True):
    """Why a container does not run yet."""

    reason: str = ""
    message: str = ""


class Running(Object, frozen=True):
    """Since when a container runs."""

    started_at: str | None = None


class Terminated(Object, frozen=True):
    """How a container ended."""

    exit_code: int = 0
    signal: int = 0
    finished_at: str | None = None
    reason: str = ""
    message: str = ""


class ContainerState(Object, frozen=True):
    """How a container is: at most one of these is there."""

    waiting: Waiting | None = None
    running: Running | None = None
    terminated: Terminated | None = None


class ContainerStatus(Object, frozen=True):
    """How a container is, and which it is."""

    name: str = ""
    state: ContainerState = ContainerState()


class Condition(Object, frozen=True):
    """One thing that is so, or is not, of a pod or a node."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""


class PodStatus(Object, frozen=True):
    """How a pod is."""

    phase: str = ""
    reason: str = ""
    message: str = ""
    nominated_node_name: str = ""
    """On which another scheduler makes room for it."""
    conditions: tuple[Condition, ...] | None = None
    container_statuses: tuple[ContainerStatus, ...] | None = None
    resource_claim_statuses: tuple[PodClaim, ...] | None = None
    """By the names that the pod has for them: those that were made of templates."""


class Pod(Thing, frozen=True):
    """A pod, of ours or of others."""

    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    @property
    def is_over(self) -> bool:
        return self.status.phase in ("Succeeded", "Failed")


class Taint(Object, frozen=True):
    """What keeps pods off a node."""

    key: str = ""
    value: str = ""
    effect: str = ""


class NodeSpec(Object, frozen=True):
    """What a node is to be."""

    unschedulable: bool = False
    taints: tuple[Taint, ...] | None = None


class Address(Object, frozen=True):
    """Where a node is reached."""

    type: str = ""
    address: str = ""


class NodeInfo(Object, frozen=True):
    """What a node's kubelet says of it."""

    architecture: str = ""
    boot_id: str = msgspec.field(default="", name="bootID")


class HeldImage(Object, frozen=True):
    """An image that a node has, by all its names."""

    names: tuple[str, ...] | None = None


MOST_NAMES = 256
"""Of images of one node that are kept."""


class NodeStatus(Object, frozen=True):
    """How a node is."""

    allocatable: Mapping[str, str | int | float] | None = None
    conditions: tuple[Condition, ...] | None = None
    addresses: tuple[Address, ...] | None = None
    node_info: NodeInfo = NodeInfo()
    images: tuple[HeldImage, ...] | None = None
    """As it is read only: a thousand nodes have the same names, which are kept once."""
    image_names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.images:
            names = (name for image in self.images for name in image.names or ())
            kept = tuple(map(sys.intern, islice(names, MOST_NAMES)))
            msgspec.structs.force_setattr(self, "image_names", kept)
            msgspec.structs.force_setattr(self, "images", None)

    @property
    def but_images(self) -> tuple[object, ...]:
        """Return all of it that bears on what may run there."""
        return self.allocatable, self.conditions, self.addresses, self.node_info


class KubeNode(Thing, frozen=True):
    """A node as Kubernetes shows it."""

    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()

    @property
    def ready(self) -> Condition:
        """Whether its kubelet is ready: True, False, or Unknown where it went silent."""
        for condition in self.status.conditions or ():
            if condition.type == "Ready":
                return condition
        return Condition("Ready", "False", message="its kubelet has not reported yet")


T = TypeVar("T", bound=Thing)


def read(data: bytes | msgspec.Raw, kind: type[T]) -> T | None:
    """Read an object; None where it cannot be read."""
    try:
        return msgspec.json.decode(data, type=kind, strict=False)
    except msgspec.DecodeError:
        return None


UNITS: Mapping[str, int | Decimal] = {
    "n": Decimal("1e-9"), "u": Decimal("1e-6"), "m": Decimal("1e-3"), "": 1,
    "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15, "E": 10**18,
    "Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "Ti": 1 << 40, "Pi": 1 << 50, "Ei": 1 << 60,
}  # fmt: skip
MOST = 2**53
MOST_DIGITS = 40


def milli(amount: str | int | float) -> int:
    """Return thousandths of an amount such as `1500m` or `2`; 0 of what is none."""
    return _amount(amount, 1000)


def whole(amount: str | int | float) -> int:
    """Return an amount such as `16Gi` as a whole number; 0 of what is none."""
    return _amount(amount, 1)


LONGEST_KEPT = 32


def _amount(amount: str | int | float, by: int) -> int:
    text = str(amount)
    return _known(text, by) if len(text) <= LONGEST_KEPT else _scaled(text, by)


@lru_cache(4096)  # most pods and nodes ask for, and have, the same few amounts
def _known(text: str, by: int) -> int:
    return _scaled(text, by)


def _scaled(text: str, by: int) -> int:
    digits = text.rstrip("numkKMGTPEi")
    factor = UNITS.get(text[len(digits) :], 0)
    try:
        number = Decimal(digits)
        if number.adjusted() > MOST_DIGITS:  # written out, `1e999999` would take a while
            return MOST if number > 0 and factor else 0
        return min(max(0, int(number * factor * by)), MOST)
    except (ArithmeticError, ValueError):
        return 0
