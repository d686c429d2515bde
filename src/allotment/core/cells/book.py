"""The book of cells: the gangs that hold them, tenants that own them, borrowers on them.

A guaranteed task *takes* leaves in cells of its tenant; an opportunistic one is *lent*
leaves that no guaranteed task takes, and is in no tenant's way: a tenant gets its cell as if
the borrower were not there. That is what keeps the shares safe: at every moment each tenant
can have all the healthy cells it is guaranteed by sending borrowers away (HiveD, OSDI'20,
theorem 1; `tests/support/audit_cells.py` tries it).

The book follows from what is taken, lent and shut, whatever the order in which it came.
"""

from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager

import msgspec

from allotment.core.book import Holder
from allotment.core.cells.chain import Spot, chains_of
from allotment.core.cells.holding import NO_JOB, Holding
from allotment.core.cells.space import Space
from allotment.core.cells.use import Use
from allotment.core.gang import Gang, ReservedPlace
from allotment.core.request import Request
from allotment.model.cells import Topology
from allotment.model.cluster import Node
from allotment.model.errors import InvariantViolated
from allotment.model.ids import JobId, NodeId
from allotment.model.ledger import GUARANTEED, Quota, Slot
from allotment.model.quantity import DEVICE, NOTHING, Resources, is_part_of_device
from allotment.model.tenancy import Tenant


class Found(msgspec.Struct, frozen=True, gc=False):
    """A place for a guaranteed gang, and the gangs on it that may be evicted."""

    slots: tuple[Slot, ...]
    quota: Quota
    borrowers: tuple[JobId, ...] = ()


class Cells:
    """All chains of a cluster, and every tenant's account in them."""

    def __init__(
        self, topology: Topology, nodes: Sequence[Node], tenants: Sequence[Tenant]
    ) -> None:
        self.chains = chains_of(topology, nodes)
        self.spaces = tuple(Space(chain) for chain in self.chains)
        self.uses = tuple(Use(space) for space in self.spaces)
        """Which gangs use which leaves, and what is idle."""
        self._at: dict[NodeId, tuple[tuple[int, int], ...]] = {}
        for at, chain in enumerate(self.chains):
            for number, node in enumerate(chain.nodes):
                self._at[node] = (*self._at.get(node, ()), (at, number))
        self.last: tuple[object, Found | None] | None = None
        """What was looked for last, and what was found, while the book stays as it was."""
        self._claims: list[dict[Resources, int]] = [{} for _ in self.chains]
        self._by_host = [
            some
            for devices in (False, True)
            if (some := [at for at, c in enumerate(self.chains) if c.has_devices is devices])
        ]
        """All chains: those without devices, then those with."""
        self._closed: set[NodeId] = set()
        self._bad: dict[NodeId, frozenset[int]] = {}
        """Devices that are not to be used, by node."""
        self.holdings: dict[tuple[str, str], dict[int, Holding]] = {}
        """By tenant and pinned cell, '' for none; then by chain."""
        self._deal(topology, tenants)

    def _deal(self, topology: Topology, tenants: Sequence[Tenant]) -> None:
        """Open every tenant's accounts: pinned cells first, they are the same for ever."""
        pins = {pin.id: pin for pin in topology.pins}
        for tenant in tenants:
            for name in tenant.pins:
                pin = pins[name]
                for at, number in self._at[pin.node]:
                    chain = self.chains[at]
                    if pin.type in chain.names:
                        holding = Holding(chain, self.spaces[at], {})
                        holding.pin(
                            chain.cell_at(chain.names.index(pin.type), number, pin.leaf)
                        )
                        self.holdings[tenant.name, name] = {at: holding}
                        break
        for tenant in tenants:
            guaranteed: dict[int, dict[int, int]] = {}
            for share in tenant.cells:
                at = self.chain_of(share.type, share.chain)
                levels = guaranteed.setdefault(at, {})
                level = self.chains[at].names.index(share.type)
                levels[level] = levels.get(level, 0) + share.count
            self.holdings[tenant.name, ""] = {
                at: Holding(self.chains[at], self.spaces[at], levels)
                for at, levels in sorted(guaranteed.items())
            }

    def chain_of(self, kind: str, chain: str = "") -> int:
        """Find the chain that has cells of a type. Raises InvariantViolated if none has."""
        for at, each in enumerate(self.chains):
            if kind in each.names and chain in ("", each.names[-1]):
                return at
        raise InvariantViolated(f"no chain has cells of type {kind}")

    # ── writing ─────────────────────────────────────────────────────────────────────────

    def take(
        self,
        tenant: str,
        pin: str,
        slots: Sequence[Slot],
        needs: Sequence[Resources],
        quota: Quota,
        job: JobId = NO_JOB,
    ) -> None:
        """Let a guaranteed gang sit in its tenant's cells. O(tasks)."""
        self.last = None
        holdings = self.holdings[tenant, pin]
        for spot, level in self.spots(slots, needs, quota):
            holdings[spot.chain].take(level, spot, job)
            self.uses[spot.chain].take(spot.node, spot.mask)

    def give(
        self,
        tenant: str,
        pin: str,
        slots: Sequence[Slot],
        needs: Sequence[Resources],
        quota: Quota,
        job: JobId = NO_JOB,
    ) -> None:
        """Undo `take`."""
        self.last = None
        holdings = self.holdings[tenant, pin]
        for spot, level in self.spots(slots, needs, quota):
            holding = holdings[spot.chain]
            holding.give(level, spot, job)
            left = holding.used.get(spot.node, 0) & spot.mask
            self.uses[spot.chain].give(spot.node, spot.mask, left)

    def lend(
        self,
        job: JobId,
        slots: Sequence[Slot],
        needs: Sequence[Resources],
        *,
        costly: bool = False,
    ) -> None:
        """Let an opportunistic gang sit on leaves that no guaranteed task takes.

        It is `costly` to evict unless it asked to run on idle cells alone. What of it lies in
        no cell is in no share: a configuration may have taken the cell away from under it.
        """
        self.last = None
        for spot in self.leaves_of(slots, needs):
            self.uses[spot.chain].lend(job, spot, costly=costly)

    def call_in(self, job: JobId, slots: Sequence[Slot], needs: Sequence[Resources]) -> None:
        """Undo `lend`."""
        self.last = None
        for spot in self.leaves_of(slots, needs):
            self.uses[spot.chain].call_in(job, spot)

    def set_aside(
        self, slots: Sequence[Slot], needs: Sequence[Resources], times: int = +1
    ) -> None:
        """Keep other borrowers off leaves reserved for one of them; owners take them."""
        self.last = None
        for spot in self.leaves_of(slots, needs):
            if spot.mask:  # Else it needs the host alone.
                self.uses[spot.chain].set_aside(spot.node, spot.mask, times)

    def put_back(self, slots: Sequence[Slot], needs: Sequence[Resources]) -> None:
        """Undo `set_aside`."""
        self.set_aside(slots, needs, -1)

    def set_open(self, node: NodeId, is_open: bool) -> None:
        """Let a node take new work, or keep new work off it."""
        if is_open:
            self._closed.discard(node)
        else:
            self._closed.add(node)
        self._shut(node)

    def set_bad(self, node: NodeId, devices: frozenset[int]) -> None:
        """Set which devices of a node are not to be used."""
        self._bad[node] = devices
        self._shut(node)

    def _shut(self, node: NodeId) -> None:
        self.last = None
        for at, number in self._at.get(node, ()):
            chain = self.chains[at]
            if node in self._closed:
                shut = chain.full
            else:
                leaf = chain.leaf[number]
                shut = chain.mask(number, [d for d in self._bad.get(node, ()) if d in leaf])
            self.spaces[at].set_shut(number, shut)
            for holdings in self.holdings.values():
                if (holding := holdings.get(at)) is not None:
                    holding.rate_all(number)
            self.uses[at].rate(number)

    @contextmanager
    def keeping(self, tenant: str, pin: str) -> Generator[None, None, None]:
        """Let a tenant's cells stay bound while a trial preempts its own gangs in them.

        A job that takes such a place takes it at once: at no moment are the cells free.
        """
        holdings = self.holdings.get((tenant, pin), {}).values()
        for holding in holdings:
            holding.keeps = True
        try:
            yield
        finally:
            for holding in holdings:
                holding.keeps = False

    # ── reading ─────────────────────────────────────────────────────────────────────────

    def at(self, node: NodeId) -> tuple[tuple[int, int], ...]:
        """Return the chains a node lies in, and its number in each."""
        return self._at.get(node, ())

    def spot(self, slot: Slot, need: Resources, kind: str = "") -> Spot | None:
        """Return where a slot lies; None if not all of it lies in cells of one chain."""
        for at, number in self._at.get(slot.node, ()):
            chain = self.chains[at]
            beside = chain.leaves_at(slot.beside) if slot.beside else 0
            if slot.devices:
                leaf, mask = chain.leaf[number], chain.full
                if slot.devices[0] not in leaf:
                    continue
                if slot.devices != chain.devices[number]:
                    if any(device not in leaf for device in slot.devices):
                        return None
                    mask = chain.mask(number, slot.devices)
                milli, is_part = chain.part_of(need), is_part_of_device(need)
                claim, beside = self.claim(at, need), beside & ~mask
                return Spot(at, number, mask, milli, claim, beside, is_part)
            if kind in ("", *chain.names):
                return Spot(at, number, 0, DEVICE, self.claim(at, need), beside)
        return None

    def leaves_of(self, slots: Sequence[Slot], needs: Sequence[Resources]) -> Iterator[Spot]:
        """Return the leaves that slots lie on, of as many chains as they lie in.

        One that lies on no leaf of its node is there all the same: it uses the host.
        """
        for slot, need in zip(slots, needs, strict=True):
            is_part, on_leaves = is_part_of_device(need), False
            chains = self._at.get(slot.node, ())
            for at, number in chains:
                leaf, mask = self.chains[at].leaf[number], 0
                for device in slot.devices:
                    if device in leaf:
                        mask |= 1 << leaf[device]
                if mask:
                    on_leaves = True
                    milli = self.chains[at].part_of(need)
                    yield Spot(at, number, mask, milli, 0, is_part=is_part)
            if chains and not on_leaves:
                claim = 0 if slot.devices else self.used_beside(chains[0][0], need)
                yield Spot(*chains[0], 0, DEVICE, claim)

    def claim(self, chain: int, need: Resources) -> int:
        """Count the leaves whose share of the host a task uses up beside its own.

        A share of the host goes with each leaf, pro rata: a job that needs more of it is
        guaranteed it only as far as cells of its tenant's cover it. What a chain's poorest
        machine has nothing of goes with no leaf: then that is more than any machine has.
        """
        known = self._claims[chain].get(need)
        if known is None:
            share = self.chains[chain].share
            if any(want and not has for want, has in _of_host(need, share)):
                known = self.chains[chain].width + 1
            else:
                known = self.used_beside(chain, need)
            self._claims[chain][need] = known
        return known

    def used_beside(self, chain: int, need: Resources) -> int:
        """Count them for a borrower too, which may have what goes with no leaf."""
        own = need.gpu_milli
        if is_part_of_device(need):
            own = self.chains[chain].part_of(need)
        pairs = _of_host(need, self.chains[chain].share)
        most = max((-(-want * DEVICE // has) for want, has in pairs if has), default=0)
        return max(0, -(-(most - own) // DEVICE))

    def spots(
        self, slots: Sequence[Slot], needs: Sequence[Resources], quota: Quota
    ) -> Iterator[tuple[Spot, int]]:
        """Return every slot's place, and the level of the cells it lies in.

        Raises InvariantViolated where there is no such cell: `are_in_cells` tells before.
        """
        for at, (slot, need) in enumerate(zip(slots, needs, strict=True)):
            kind = quota[at if len(quota) > 1 else 0] if quota else ""
            spot = self.spot(slot, need, kind)
            if spot is None:
                raise InvariantViolated(f"node {slot.node} has no such leaf in a cell")
            yield spot, self.chains[spot.chain].names.index(kind) if kind else 0

    def are_in_cells(self, slots: Sequence[Slot]) -> bool:
        """Whether each slot lies in cells of one chain, be it not in the same."""
        return all(self.spot(slot, NOTHING) is not None for slot in slots)

    def chains_for(self, requests: Sequence[Request]) -> list[list[int]]:
        """Number the chains whose leaves are of the types a gang asks for, best liked first.

        Those of one type, or all of them where none is named, are as good as each other; but
        a job without devices goes to machines without any first.
        """
        types = requests[0].types
        if not types:
            if len(self._by_host) > 1 and not any(r.need.gpu_milli for r in requests):
                return self._by_host
            return [list(range(len(self.chains)))]
        return [
            [at for at, chain in enumerate(self.chains) if chain.names[0] == kind]
            for kind in types
        ]

    def stands(self, tenant: str, pin: str, slots: Sequence[Slot], quota: Quota) -> bool:
        """Whether a reserved place can still be used: it is guaranteed, and healthy."""
        holdings = self.holdings.get((tenant, pin), {})
        for slot in slots:
            for at, number in self._at.get(slot.node, ()):
                holding = holdings.get(at)
                if holding is None or any(cells < 0 for cells in holding.unbound.values()):
                    return False
                chain = self.chains[at]
                mask = chain.mask(number, [d for d in slot.devices if d in chain.leaf[number]])
                if (mask | chain.leaves_at(slot.beside)) & self.spaces[at].shut[number]:
                    return False
        return bool(quota)

    def room_of(self, tenant: str, pin: str) -> int:
        """Count the leaves a tenant could have now, wherever they are."""
        held = self.holdings.get((tenant, pin), {})
        return sum(holding.room_in_all() for holding in held.values())

    def is_lent(self, slots: Sequence[Slot], needs: Sequence[Resources]) -> bool:
        """Whether any borrower sits on the leaves of some slots."""
        return any(
            self.spaces[spot.chain].lent[spot.node] & spot.mask
            for spot in self.leaves_of(slots, needs)
        )

    def extent(self, chain: int, slots: Sequence[Slot]) -> int:
        """Count the leaves of the smallest cell that holds all slots; all of them if none."""
        geometry = self.chains[chain]
        numbers = sorted({geometry.number[slot.node] for slot in slots})
        if len(numbers) == 1:
            mask = 0
            for slot in slots:
                mask |= geometry.mask(numbers[0], slot.devices)
            return geometry.size[geometry.common_level(mask)] if mask else 0
        for level in range(geometry.node_level + 1, geometry.top + 1):
            if numbers[0] // geometry.per[level] == numbers[-1] // geometry.per[level]:
                return geometry.size[level]
        return len(geometry.nodes) * geometry.width

    def borrowers_on(
        self, chain: int, places: Sequence[tuple[int, int, int, int]]
    ) -> tuple[JobId, ...]:
        """Name the opportunistic gangs that sit on leaves: (level, node, leaves, _) each."""
        lent = self.uses[chain].borrowers
        found = {
            job
            for _, node, mask, _ in places
            if lent[node]
            for job, leaves in lent[node].items()
            if leaves & mask
        }
        return tuple(sorted(found))


def _of_host(need: Resources, share: Resources) -> tuple[tuple[int, int], ...]:
    """Pair what a task needs of each part of the host with what a leaf brings of it."""
    return (
        (need.cpu_milli, share.cpu_milli),
        (need.memory, share.memory),
        (need.disk, share.disk),
    )


class PlacedInCells:
    """Enters in the book of cells what gangs take. A suspended gang has no cells."""

    def __init__(self, cells: Cells) -> None:
        self._cells = cells
        self._tenants: dict[JobId, str] = {}
        """Of reserved places that take cells."""

    def enter(self, gang: Gang) -> None:
        """Take a gang's cells, or lend it leaves that no guaranteed task takes."""
        if gang.suspended:
            return
        if gang.entitlement is GUARANTEED:
            self._cells.take(gang.tenant, gang.pin, gang.slots, gang.needs, gang.quota, gang.id)
        else:
            costly = not (gang.opportunistic or gang.is_surplus)
            self._cells.lend(gang.id, gang.slots, gang.needs, costly=costly)

    def leave(self, gang: Gang) -> None:
        """Undo `enter`."""
        if gang.suspended:
            return
        if gang.entitlement is GUARANTEED:
            self._cells.give(gang.tenant, gang.pin, gang.slots, gang.needs, gang.quota, gang.id)
        else:
            self._cells.call_in(gang.id, gang.slots, gang.needs)

    def reserve(self, place: ReservedPlace, holder: Holder) -> None:
        """Take the cells of a reserved place, or set its leaves aside."""
        if place.entitlement is not GUARANTEED:
            self._cells.set_aside(place.slots, place.needs)
        elif place.quota:
            tenant = self._tenants[place.job] = holder.shape.tenant
            self._cells.take(
                tenant, place.pin, place.slots, place.needs, place.quota, place.job
            )

    def release(self, place: ReservedPlace) -> None:
        """Undo `reserve`."""
        if place.entitlement is not GUARANTEED:
            self._cells.put_back(place.slots, place.needs)
        elif place.quota:
            tenant = self._tenants.pop(place.job)
            self._cells.give(
                tenant, place.pin, place.slots, place.needs, place.quota, place.job
            )
