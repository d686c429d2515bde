"""Gives tasks their devices by name: one ResourceClaim each, made and allocated by us.

The API server does not look whether two claims have one device: the core plans that, and it is
looked at here once more. A claim is made after its pod, which owns it, and allocated
before that is put on its node.
"""

from collections.abc import Sequence

from allotment.backends.kubernetes.claims import MOST, claim_of, status_of
from allotment.backends.kubernetes.client import Denied
from allotment.backends.kubernetes.device_objects import ResourceClaim
from allotment.backends.kubernetes.named import NamedDevice, by_id, has_names
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
        self._tasks, self._nodes = tasks, site.nodes

    def devices_of(self, task: TaskLaunch) -> tuple[str, ...]:
        """Return the devices that were chosen for a task, by name; () where they are counted.
        Raises BackendError, EngineAway."""
        devices = self._cluster.devices
        if not task.binding.devices:
            return ()
        if not devices.listed.is_set():
            raise EngineAway("Kubernetes has not told yet which devices have names")
        if not devices.are_there:
            return ()
        node = next((each for each in self._nodes() if each.name == task.binding.node), None)
        if node is None or not has_names(node):
            return ()
        if len(task.binding.devices) > MOST:
            raise BackendError(
                f"it is to have {len(task.binding.devices)} devices of node {node.name}, and a "
                f"ResourceClaim has {MOST} at most: ask for fewer a task"
            )
        return tuple(node.devices[index].uuid for index in task.binding.devices)

    async def give(self, record: Launched) -> None:
        """Give a task that is on no node its devices, if it has not got them. Raises
        BackendError where it cannot have them, EngineAway where that is not known."""
        if not record.devices or record.is_bound:
            return
        self._cluster.devices.need()
        for _ in range(TRIES):
            devices = self._to_be_had(record)
            claim = await self._client.make_claim(claim_of(record, self._prefix, devices))
            if not await self._is_usable(claim, record):
                continue
            if self._has(claim, record):
                return
            status = status_of(record, devices, self._cluster.inventory.config_of)
            try:
                await self._client.allocate_claim(claim, status)
            except Denied as error:
                if error.status not in (404, 409):  # gone, or somebody else wrote it
                    raise
            else:
                return
        raise EngineAway(f"ResourceClaim {record.name} is changed by others all the time")

    async def _is_usable(self, claim: ResourceClaim, record: Launched) -> bool:
        """Whether a claim is this task's. One of an earlier pod of its name is taken away.
        Raises BackendError."""
        meta = claim.metadata
        if (meta.labels or {}).get(LAUNCH) != record.token:
            raise BackendError(
                f"ResourceClaim {record.name} in namespace {self._client.namespace} is not "
                "ours: who else may make claims there?"
            )
        owners = [owner.uid for owner in meta.owner_references or ()]
        if owners == [record.uid]:
            return True
        await self._client.delete_claim(record.name, meta.uid)
        return False

    @staticmethod
    def _has(claim: ResourceClaim, record: Launched) -> bool:
        """Whether a claim has been given what its task is to have. Raises BackendError where it
        has been given something else."""
        if claim.status.allocation is None:
            return False
        pods = [each.uid for each in claim.status.reserved_for or ()]
        if sorted(claim.devices) == sorted(record.devices) and record.uid in pods:
            return True
        raise BackendError(
            f"ResourceClaim {record.name} was given {', '.join(claim.devices) or 'nothing'} by "
            "another scheduler"
        )

    def _to_be_had(self, record: Launched) -> list[NamedDevice]:
        """Return the devices that a task is to have. Raises BackendError where one is not
        offered, or another has it."""
        there = by_id(self._cluster.inventory.on(record.node))
        for device in record.devices:
            found = there.get(device)
            if found is None:
                raise BackendError(f"node {record.node} does not offer device {device} now")
            if found.shut:
                raise BackendError(f"device {device} is tainted in Kubernetes: {found.shut}")
            for held in self._cluster.inventory.held_by(device):
                if held.name == f"{self._client.namespace}/{record.name}":
                    continue
                if self._cluster.is_own_claim(held) and not self._is_live(held.pods):
                    continue  # of a task that has ended: it is about to go
                raise BackendError(f"ResourceClaim {held.name} has device {device}")
        return [there[device] for device in record.devices]

    def _is_live(self, pods: Sequence[str]) -> bool:
        return any(uid in self._tasks.keys for uid in pods)
