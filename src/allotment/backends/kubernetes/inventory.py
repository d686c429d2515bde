"""The devices of a cluster by name, and which claims hold them: kept by three watches."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec
import structlog

from allotment.backends.kubernetes.client import Client
from allotment.backends.kubernetes.device_objects import (
    CLAIMS,
    CLASSES,
    SLICES,
    ClaimSpec,
    DeviceClass,
    ResourceClaim,
    ResourceSlice,
)
from allotment.backends.kubernetes.objects import Meta, Thing, read
from allotment.backends.kubernetes.request import SERVICE
from allotment.backends.kubernetes.selectors import NotUnderstood
from allotment.backends.kubernetes.slices import (
    Kind,
    NamedDevice,
    devices_in,
    in_order,
    is_wanted,
    kind_of,
    newest,
)
from allotment.backends.kubernetes.watch import Watch
from allotment.model.errors import BackendError, EngineAway

log = structlog.get_logger("allot.kubernetes")

AGAIN_S = 300.0
"""How often a cluster without such devices is asked again, which an upgrade gives it."""
PAUSE_S = 5.0
MOST_OWNERS = 8
"""Of a claim, that are kept."""

T = TypeVar("T", bound=Thing)
PoolName = tuple[str, str]
"""Of a driver, and of its pool."""


class Held(msgspec.Struct, frozen=True, gc=False):
    """A claim that holds devices."""

    name: str
    """NAMESPACE/NAME."""
    service: str
    """The service whose task's it says to be."""
    devices: tuple[str, ...]
    pods: tuple[str, ...]
    """The uids of those that may use them."""


class Meant(msgspec.Struct, frozen=True):
    """What a class of devices means in a cluster."""

    types: frozenset[str]
    not_types: frozenset[str]
    """Those of devices that it does not mean."""
    counts: frozenset[int]
    """How many a node has that has any."""


NONE_MEANT = Meant(frozenset(), frozenset(), frozenset())


class Inventory:
    """What slices, classes and claims say. `on_nodes` is told of nodes whose devices changed,
    `on_use` of those of which claims hold more, or less."""

    def __init__(
        self,
        on_nodes: Callable[[Iterable[str]], None] = lambda nodes: None,
        on_use: Callable[[Iterable[str]], None] = lambda nodes: None,
    ) -> None:
        self._on_nodes, self._on_use = on_nodes, on_use
        self.on_claim: Callable[[str], None] = lambda claim: None
        """Told of each claim that changed, by NAMESPACE/NAME."""
        self._claims: dict[str, ResourceClaim] = {}
        """By NAMESPACE/NAME."""
        self._pools: dict[PoolName, dict[str, ResourceSlice]] = {}
        """Of each pool the slices, by name."""
        self._devices: dict[PoolName, dict[str, tuple[NamedDevice, ...]]] = {}
        """Of each pool those that count, by node."""
        self._pools_on: dict[str, set[PoolName]] = {}
        self._in_order: dict[str, Sequence[NamedDevice]] = {}
        """By node, where that was asked since it changed."""
        self._node_of: dict[str, str] = {}
        """By the id of a device."""
        self._classes: dict[str, DeviceClass] = {}
        self._kinds: list[Kind] = []
        self.unused: dict[PoolName, str] = {}
        """Why a pool is not used."""
        self.unread: dict[str, str] = {}
        """Why a class of accelerators is not used."""
        self._meant: dict[str, Meant] = {}
        """By class, where that was asked since devices changed."""
        self._held: dict[str, Held] = {}
        """By uid."""
        self._holders: dict[str, set[str]] = {}
        """The uids of claims, by device."""

    # ── asking ──────────────────────────────────────────────────────────────────────────

    def on(self, node: str) -> Sequence[NamedDevice]:
        """Return the devices of a node, in order; none where they have no names."""
        pools = self._pools_on.get(node)
        if not pools:
            return ()
        found = self._in_order.get(node)
        if found is None:
            both = (each for pool in pools for each in self._devices[pool][node])
            found = self._in_order[node] = in_order(both)
        return found

    def nodes(self) -> Iterable[str]:
        """Return the nodes whose devices have names."""
        return self._pools_on

    def held_by(self, device: str) -> Iterable[Held]:
        """Return the claims that hold a device."""
        return (self._held[uid] for uid in self._holders.get(device, ()))

    def config_of(self, name: str) -> Sequence[dict[str, Any]]:
        """Return how devices of a class are set up."""
        found = self._classes.get(name)
        return found.spec.config or () if found is not None else ()

    def claim(self, name: str) -> ResourceClaim | None:
        """Return a claim, by NAMESPACE/NAME."""
        return self._claims.get(name)

    def meant_by(self, name: str) -> Meant:
        """Return the devices that a class means; none where tasks get none of it."""
        if name not in (kind.name for kind in self._kinds):
            return NONE_MEANT
        if name not in self._meant:
            self._meant[name] = self._count(name)
        return self._meant[name]

    def _count(self, name: str) -> Meant:
        inside, outside, by_node = set[str](), set[str](), Counter[str]()
        for nodes in self._devices.values():
            for node, devices in nodes.items():
                for each in devices:
                    is_meant = name in each.classes
                    (inside if is_meant else outside).add(each.type)
                    by_node[node] += is_meant
        counts = {count for count in by_node.values() if count}
        return Meant(frozenset(inside), frozenset(outside), frozenset(counts))

    # ── slices ──────────────────────────────────────────────────────────────────────────

    def take_slices(self, found: Sequence[ResourceSlice]) -> None:
        """Note which slices there are."""
        self._pools, before = {}, self._pools.keys()
        for each in found:
            self._pools.setdefault(_pool_of(each), {})[each.metadata.name] = each
        self._weigh(self._pools.keys() | before)

    def take_slice(self, found: ResourceSlice, is_gone: bool) -> None:
        """Note a slice that changed."""
        pool = _pool_of(found)
        there = self._pools.setdefault(pool, {})
        if is_gone:
            there.pop(found.metadata.name, None)
        else:
            there[found.metadata.name] = found
        if not there:
            del self._pools[pool]
        self._weigh([pool])

    def _weigh(self, pools: Iterable[PoolName]) -> None:
        """Find the devices of pools anew, and tell of the nodes where they are others."""
        changed: set[str] = set()
        self._meant.clear()
        for pool in list(pools):
            slices, why = newest(self._pools.get(pool, {}).values())
            self.unused.pop(pool, None)
            if why and pool in self._pools:
                self.unused[pool] = why
            before = self._devices.pop(pool, {})
            now = devices_in(slices, self._kinds)
            for node in before.keys() | now.keys():
                if before.get(node) != now.get(node):
                    changed.add(node)
            self._put(pool, before, now)
        if changed:
            self._on_nodes(changed)

    def _put(
        self,
        pool: PoolName,
        before: Mapping[str, tuple[NamedDevice, ...]],
        now: dict[str, tuple[NamedDevice, ...]],
    ) -> None:
        for node in before.keys() | now.keys():
            self._in_order.pop(node, None)
        for node, devices in before.items():
            self._pools_on[node].discard(pool)
            if not self._pools_on[node]:
                del self._pools_on[node]
            for each in devices:
                self._node_of.pop(each.id, None)
        for node, devices in now.items():
            self._pools_on.setdefault(node, set()).add(pool)
            self._node_of |= dict.fromkeys((each.id for each in devices), node)
        if now:
            self._devices[pool] = now

    # ── classes ─────────────────────────────────────────────────────────────────────────

    def take_classes(self, found: Sequence[DeviceClass]) -> None:
        """Note which classes there are."""
        self._classes = {each.metadata.name: each for each in found}
        self._read_classes()

    def take_class(self, found: DeviceClass, is_gone: bool) -> None:
        """Note a class that changed."""
        self._classes.pop(found.metadata.name, None)
        if not is_gone:
            self._classes[found.metadata.name] = found
        self._read_classes()

    def _read_classes(self) -> None:
        before, self._kinds, self.unread = self._kinds, [], {}
        for name in sorted(self._classes):
            if not is_wanted(self._classes[name]):
                continue
            try:
                self._kinds.append(kind_of(self._classes[name]))
            except NotUnderstood as error:
                self.unread[name] = str(error)
        if self._kinds != before:  # of thousands of nodes each device is looked at anew
            self._weigh(self._pools)

    # ── claims ──────────────────────────────────────────────────────────────────────────

    def take_claims(self, found: Sequence[ResourceClaim]) -> None:
        """Note which claims there are."""
        before = {device for held in self._held.values() for device in held.devices}
        names = self._claims.keys()
        self._claims = {_name_of(each): _slim(each) for each in found}
        self._held.clear()
        self._holders.clear()
        for each in found:
            self._hold(each)
        self._tell_use(before | self._holders.keys())
        for name in names | self._claims.keys():
            self.on_claim(name)

    def take_claim(self, found: ResourceClaim, is_gone: bool) -> None:
        """Note a claim that changed."""
        before = self._held.pop(found.metadata.uid, None)
        for device in before.devices if before is not None else ():
            self._holders[device].discard(found.metadata.uid)
            if not self._holders[device]:
                del self._holders[device]
        self._claims.pop(_name_of(found), None)
        if not is_gone:
            self._claims[_name_of(found)] = _slim(found)
            self._hold(found)
        now = self._held.get(found.metadata.uid)
        if before != now:
            both = (each.devices for each in (before, now) if each is not None)
            self._tell_use(device for devices in both for device in devices)
        self.on_claim(_name_of(found))

    def _hold(self, found: ResourceClaim) -> None:
        if not (devices := found.devices):
            return
        meta = found.metadata
        pods = [each.uid for each in found.status.reserved_for or () if each.resource == "pods"]
        service = (meta.labels or {}).get(SERVICE, "")
        self._held[meta.uid] = Held(_name_of(found), service, devices, tuple(pods))
        for device in devices:
            self._holders.setdefault(device, set()).add(meta.uid)

    def _tell_use(self, devices: Iterable[str]) -> None:
        if nodes := {self._node_of[each] for each in devices if each in self._node_of}:
            self._on_use(nodes)


def _slim(found: ResourceClaim) -> ResourceClaim:
    """Return of a claim what is kept: its maker may have written much into it."""
    meta, asking = found.metadata, found.spec.devices
    owners = (meta.owner_references or ())[:MOST_OWNERS]
    return msgspec.structs.replace(
        found,
        metadata=Meta(meta.name, meta.namespace, meta.uid, owner_references=owners),
        spec=ClaimSpec(msgspec.structs.replace(asking, config=None)),
    )


def _name_of(found: ResourceClaim) -> str:
    return f"{found.metadata.namespace}/{found.metadata.name}"


def _pool_of(found: ResourceSlice) -> PoolName:
    return found.spec.driver, found.spec.pool.name


class Keeping:
    """Keeps an inventory in step with its cluster, where that has resource.k8s.io/v1."""

    def __init__(self, client: Client, inventory: Inventory) -> None:
        self._client = client
        self.slices = Watch(
            client, SLICES, ResourceSlice, inventory.take_slices, inventory.take_slice
        )
        self._classes = Watch(
            client, CLASSES, DeviceClass, inventory.take_classes, inventory.take_class
        )
        self.claims = Watch(
            client, CLAIMS, ResourceClaim, inventory.take_claims, inventory.take_claim
        )
        self.listed = asyncio.Event()
        """All of it was listed, or may not be, or there is nothing of the kind."""
        self.are_there = False
        """Whether the cluster has such objects."""

    async def run(self) -> None:
        """Go on until cancelled."""
        while not await self._are_there():
            await asyncio.sleep(AGAIN_S if self.listed.is_set() else PAUSE_S)
        self.are_there = True
        watches = (self._classes, self.slices, self.claims)
        running = [asyncio.create_task(watch.run()) for watch in watches]
        try:
            for watch in watches:
                await watch.listed.wait()
            self.listed.set()
            await asyncio.gather(*running)
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)

    async def _are_there(self) -> bool:
        try:
            found = await self._client.has_named_devices()
        except BackendError as error:
            log.warning("whether devices have names is not known", why=str(error))
            return False
        if not found:
            self.listed.set()
        return found

    def need(self) -> None:
        """Raise EngineAway while it is not known which devices there are, and who has them."""
        for watch, what in ((self.slices, "devices"), (self.claims, "claims")):
            if not watch.listed.is_set() or watch.refused:
                why = watch.refused or "they have not been listed yet"
                raise EngineAway(f"Kubernetes does not list its {what}: {why}")


async def looked_at(client: Client) -> Inventory:
    """Return the devices that there are now; none where they have no names, or may not be
    seen. Raises EngineAway."""
    found = Inventory()
    if not await client.has_named_devices():
        return found
    try:
        found.take_classes(await all_of(client, CLASSES, DeviceClass))
        found.take_slices(await all_of(client, SLICES, ResourceSlice))
    except EngineAway:
        raise
    except BackendError as error:
        log.warning("devices by name are not looked at", why=str(error))
    return found


async def all_of(client: Client, path: str, kind: type[T]) -> list[T]:
    """Return all objects of a list. Raises Denied, EngineAway."""
    found: list[T] = []
    token = ""
    while True:
        page = await client.page(path, token)
        found += [each for raw in page.items or () if (each := read(raw, kind)) is not None]
        token = page.metadata.next
        if not token:
            return found
