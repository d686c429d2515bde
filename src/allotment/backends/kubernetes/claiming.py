"""Allocates devices by name to tasks: one ResourceClaim each, made by us.

The API server does not look whether two claims have one device: the core plans that, and it is
looked at here once more. A claim is made after its pod, which owns it, and allocated
before that is put on its node.
"""

from collections.abc import Callable, Sequence

from allotment.backends.kubernetes.claims import MOST, claim_of, own_status
from allotment.backends.kubernetes.client import Denied
from allotment.backends.kubernetes.cluster import Cluster
from allotment.backends.kubernetes.device_objects import ResourceClaim
from allotment.backends.kubernetes.inventory import Held
from allotment.backends.kubernetes.named import NamedDevice, NodesByName, by_id, has_names
from allotment.backends.kubernetes.record import Launched
from allotment.backends.kubernetes.request import LAUNCH
from allotment.backends.kubernetes.site import Site
from allotment.backends.kubernetes.tasks import Tasks
from allotment.model.errors import BackendError, EngineAway
from allotment.service.ports import TaskLaunch

TRIES = 3


class Claiming:
    """Makes the claims of tasks. The nodes in force say what an index means."""

    def __init__(self, site: Site, tasks: Tasks) -> None:
        self._prefix, self._client, self._cluster = site.prefix, site.client, site.cluster
        self._tasks, self._nodes = tasks, NodesByName(site.nodes)

    def devices_of(self, task: TaskLaunch) -> tuple[str, ...]:
        """Return the devices that were chosen for a task, as `chosen_for` does."""
        return chosen_for(task, self._cluster, self._nodes)

    async def give(self, record: Launched) -> None:
        """Allocate the devices of a task on no node, if it has not got them. Raises
        BackendError where it cannot have them, EngineAway where that is not known."""
        if not record.devices or record.is_bound:
            return
        self._cluster.devices.need()
        client = self._client.within(record.namespace)
        for _ in range(TRIES):
            devices = self._to_be_had(record)
            claim = await client.make_claim(claim_of(record, self._prefix, devices))
            if not await self._is_usable(claim, record):
                continue
            if self._has(claim, record):
                return
            status = own_status(record, devices, self._cluster.inventory.config_of)
            try:
                await client.allocate_claim(claim, status)
            except Denied as error:
                if error.status not in (404, 409):  # gone, or somebody else wrote it
                    raise
            else:
                return
        raise EngineAway(f"ResourceClaim {record.name} is changed by others all the time")

    async def _is_usable(self, claim: ResourceClaim, record: Launched) -> bool:
        """Whether a claim is this task's. One of an earlier pod of its name is taken away.
        Raises BackendError."""
        meta, client = claim.metadata, self._client.within(record.namespace)
        if (meta.labels or {}).get(LAUNCH) != record.token:
            raise BackendError(
                f"ResourceClaim {record.name} in namespace {client.namespace} was "
                "not made by this service: check who else may make claims there"
            )
        owners = [owner.uid for owner in meta.owner_references or ()]
        if owners == [record.uid]:
            return True
        await client.delete_claim(record.name, meta.uid)
        return False

    @staticmethod
    def _has(claim: ResourceClaim, record: Launched) -> bool:
        """Whether a claim has been given what its task is to have. Raises BackendError where it
        has been given something else."""
        if claim.status.allocation is None:
            return False
        if sorted(claim.devices) == sorted(record.devices) and record.uid in claim.users:
            return True
        raise BackendError(
            f"ResourceClaim {record.name} was given {', '.join(claim.devices) or 'nothing'} by "
            "another scheduler"
        )

    def _to_be_had(self, record: Launched) -> list[NamedDevice]:
        own = f"{self._client.within(record.namespace).namespace}/{record.name}"
        return to_be_had(
            record.devices,
            record.node,
            self._cluster,
            lambda held: held.name == own or self._is_over(held),
        )

    def _is_over(self, held: Held) -> bool:
        """Whether a claim is of a task that has ended: it is about to go."""
        is_live = any(uid in self._tasks.keys for uid in held.pods)
        return self._cluster.is_own_claim(held) and not is_live


def chosen_for(task: TaskLaunch, cluster: Cluster, nodes: NodesByName) -> tuple[str, ...]:
    """Return the devices that were chosen for a task, by name; () where they are counted.
    Raises BackendError, EngineAway."""
    if not task.binding.devices:
        return ()
    if not cluster.devices.listed.is_set():
        raise EngineAway("Kubernetes has not listed yet which devices have names")
    if not cluster.devices.are_there:
        return ()
    node = nodes.find(task.binding.node)
    if node is None or not has_names(node):
        return ()
    if len(task.binding.devices) > MOST:
        raise BackendError(
            f"it is to have {len(task.binding.devices)} devices of node {node.name}, and a "
            f"ResourceClaim has {MOST} at most: ask for fewer a task"
        )
    return tuple(node.devices[index].uuid for index in task.binding.devices)


def to_be_had(
    devices: Sequence[str], node: str, cluster: Cluster, may_hold: Callable[[Held], bool]
) -> list[NamedDevice]:
    """Return the devices of a node with these names. Raises BackendError where one is not
    offered, or a claim has it that may not."""
    there = by_id(cluster.inventory.on(node))
    for device in devices:
        found = there.get(device)
        if found is None:
            raise BackendError(f"node {node} does not offer device {device} now")
        if found.shut:
            raise BackendError(f"device {device} is tainted in Kubernetes: {found.shut}")
        for held in cluster.inventory.held_by(device):
            if not may_hold(held):
                raise BackendError(f"ResourceClaim {held.name} has device {device}")
    return [there[device] for device in devices]
