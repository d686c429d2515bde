"""Allocates the claims of pods that others made: just the devices that were planned.

The claims are others' as well: they are only allocated, as kube-scheduler does it, and emptied
where their pod is put on no node.
"""

from collections.abc import Sequence

from allotment.backends.kubernetes.asked_claims import asked_by, names_of
from allotment.backends.kubernetes.claiming import to_be_had
from allotment.backends.kubernetes.claims import NOTHING_GIVEN, Tree, status_of
from allotment.backends.kubernetes.client import Client, Denied
from allotment.backends.kubernetes.cluster import Cluster
from allotment.backends.kubernetes.device_objects import Request, ResourceClaim
from allotment.backends.kubernetes.foreign import Flaw
from allotment.backends.kubernetes.inventory import Held
from allotment.backends.kubernetes.named import NamedDevice
from allotment.backends.kubernetes.objects import Pod
from allotment.model.errors import BackendError, EngineAway

ALL = "All"
Given = list[tuple[str, NamedDevice]]
"""Devices, each with the request that it is for."""


class GuestClaims:
    """Allocates the claims of pods. Each call may be repeated."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def give(self, client: Client, pod: Pod, node: str, devices: Sequence[str]) -> None:
        """Allocate these devices of a node to a pod on no node. `client` is for its namespace.
        Raises BackendError where it cannot have them, EngineAway where that is not known."""
        self._cluster.devices.need()
        uid = pod.metadata.uid
        left = to_be_had(devices, node, self._cluster, lambda held: self._may_hold(held, uid))
        claims = [await self._claim(client, name, pod) for name in _names(pod)]
        there = self._cluster.inventory.on(node)
        plans = [(claim, _dealt(claim, left, there)) for claim in claims]
        if left:
            raise BackendError(
                f"its claims ask for {len(left)} devices fewer than it was to have"
            )
        for claim, given in plans:
            try:
                await self._allocate(client, claim, given, pod, node)
            except Denied as error:
                if error.status == 409:
                    name = claim.metadata.name
                    raise EngineAway(f"ResourceClaim {name} is changed by others") from error
                raise

    def _may_hold(self, held: Held, uid: str) -> bool:
        return not set(held.pods) - {uid} and bool(held.pods)

    async def _claim(self, client: Client, name: str, pod: Pod) -> ResourceClaim:
        """Return a claim as it is now: another may have been made under its name."""
        claim = await client.claim(name)
        if claim is None:
            raise BackendError(f"there is no ResourceClaim {name} any more")
        try:
            asked_by(claim, pod, self._cluster.inventory)
        except Flaw as flaw:
            raise BackendError(str(flaw)) from None
        return claim

    async def _allocate(
        self, client: Client, claim: ResourceClaim, given: Given, pod: Pod, node: str
    ) -> None:
        """Write what a claim is given, unless it has that. Raises Denied."""
        if sorted(claim.devices) == sorted(device.id for _, device in given) and given:
            return
        if claim.devices:  # of an earlier place, where its pod did not come to be
            claim = await client.allocate_claim(claim, NOTHING_GIVEN)
        claim = await client.protect_claim(claim)
        config = self._config(claim)
        user = (pod.metadata.name, pod.metadata.uid)
        await client.allocate_claim(claim, status_of(given, config, node, user))

    def _config(self, claim: ResourceClaim) -> list[Tree]:
        """Return how its devices are set up: by their classes, and then by the claim."""
        asking = claim.spec.devices
        of_classes = [
            {"source": "FromClass", "requests": [request.name], **each}
            for request in asking.requests or ()
            if request.exactly is not None
            for each in self._cluster.inventory.config_of(request.exactly.device_class_name)
        ]
        return of_classes + [{"source": "FromClaim", **each} for each in asking.config or ()]

    async def free(self, client: Client, pod: Pod) -> None:
        """Take the devices of a pod away that is on no node. Raises BackendError."""
        for name in _names(pod):
            claim = await client.claim(name)
            if claim is not None and claim.devices and claim.users == {pod.metadata.uid}:
                await client.allocate_claim(claim, NOTHING_GIVEN)


def _names(pod: Pod) -> list[str]:
    try:
        return names_of(pod)
    except Flaw as flaw:
        raise BackendError(str(flaw)) from None


def _is_for(device: NamedDevice, request: Request) -> bool:
    return request.exactly is not None and request.exactly.device_class_name in device.classes


def _dealt(
    claim: ResourceClaim, left: list[NamedDevice], there: Sequence[NamedDevice]
) -> Given:
    """Take the devices of a claim out of those that are left. Raises BackendError."""
    given: Given = []
    for request in claim.spec.devices.requests or ():
        mine = [each for each in left if _is_for(each, request)]
        count = sum(_is_for(each, request) for each in there)
        if request.exactly is not None and request.exactly.allocation_mode != ALL:
            count = max(1, request.exactly.count)
        if len(mine) < count or not count:
            raise BackendError(
                f"request {request.name} of ResourceClaim {claim.metadata.name} asks for "
                f"{count} devices, and {len(mine)} of those planned are for it"
            )
        given += [(request.name, each) for each in mine[:count]]
        left[:] = [each for each in left if each not in mine[:count]]
    return given
