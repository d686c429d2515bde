"""The ledger of the machines: what is free where, and where a gang would fit.

Counting is a topology of one level: nodes with devices on them. Nodes stand in buckets by
how many whole devices they have free, per device type, so that a search looks only at
buckets that can serve. `take` may drive a counter below zero: that is how a place is
reserved while its present holders are on their way out; a negative counter is simply
not free, and a slot is *settled* once none of its counters is negative.
"""

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, chain
from typing import Any, Protocol

from allotment.core.regions import Regions
from allotment.core.request import Request, bound_to, devices_of, one_group
from allotment.model.amounts import Vector, add, of_types
from allotment.model.cluster import Node
from allotment.model.engines import ANY_ENGINE, Ability
from allotment.model.ids import NodeId
from allotment.model.ledger import Slot
from allotment.model.quantity import DEVICE, NOTHING, Resources
from allotment.model.spec import ANY_ARCH

ANY_TYPE = ""

EMPTY: frozenset[Any] = frozenset()
"""One for all nodes: Python makes each empty set anew, of 216 bytes."""


class Placing(Protocol):
    """Of the nodes that could serve, which to try first: the smaller rank."""

    def rank(self, free: int, need: int) -> int:
        """`free` whole devices on the node, `need` whole devices for one task.

        Asked for the devices of one node too, when a task needs a part of one: then both
        are thousandths of a device.
        """
        ...


class NodeBook:
    """One node's open accounts. Mutable; only the ledger writes it."""

    __slots__ = (
        "_by_type",
        "arch",
        "awaited",
        "bad",
        "cpu",
        "device_memory",
        "device_milli",
        "disk",
        "engine",
        "id",
        "lacks",
        "leaving",
        "memory",
        "of_one_type",
        "open",
        "others",
        "parts",
        "reserved",
        "taken",
        "types",
        "whole",
    )  # fmt: skip

    def __init__(self, node: Node, *, by_type: bool) -> None:
        self.id = node.id
        self.arch = node.arch
        self.engine = node.engine
        self.lacks: frozenset[Ability] = frozenset(node.lacks) or EMPTY
        self.open = True
        self.bad: frozenset[int] = EMPTY
        """Devices that are not to be used: they are not free; a task on them stays."""
        self.taken: frozenset[int] = EMPTY
        """Those of them that work beside Allotment uses; `WHOLE` for the node."""
        self.others = NOTHING
        """What others use of the host."""
        self.awaited = 0
        """Devices that are reserved for a gang before their holder is gone."""
        self.cpu = node.cpu_milli
        self.memory = node.memory
        self.disk = node.disk
        self.leaving = NOTHING
        """What of it gangs hold that were told to go."""
        self.reserved = NOTHING
        """What of it is reserved for jobs that come when others are gone."""
        self.types = tuple(device.type for device in node.devices)
        self.parts = of_types(self.types)
        """The parts of a vector that count its devices by type."""
        self.of_one_type = len(set(self.types)) == 1
        self.device_milli = [DEVICE] * len(node.devices)
        self.device_memory = [device.memory for device in node.devices]
        self.whole: dict[str, int] = {ANY_TYPE: len(node.devices)}
        self._by_type = by_type
        """Whether devices are counted by type too; of one type alone they need not be."""
        if by_type:
            for kind in self.types:
                self.whole[kind] = self.whole.get(kind, 0) + 1

    def suits(self, request: Request) -> bool:
        """Whether it is such a node as a task asks for."""
        is_such = request.arch is ANY_ARCH or request.arch is self.arch
        return is_such and self.serves(request)

    def serves(self, request: Request) -> bool:
        """Whether it is on an engine that a task asks for, and that can do what it asks."""
        is_there = not request.engine or request.engine in (self.engine, ANY_ENGINE)
        return is_there and self.lacks.isdisjoint(request.asks)

    def host_fits(self, need: Resources) -> bool:
        """Whether CPU, memory and disk suffice for one task.

        What is reserved for another matters only to a gang that needs some of it. What
        is reserved while others leave is taken twice, and needed once: a reserved place is
        handed over when they are gone.
        """
        cpu, memory, disk = self.cpu, self.memory, self.disk
        going, coming = self.leaving, self.reserved
        if going is not NOTHING and coming is not NOTHING:
            cpu += min(going.cpu_milli, coming.cpu_milli)
            memory += min(going.memory, coming.memory)
            disk += min(going.disk, coming.disk)
        return (
            (need.cpu_milli <= cpu or not need.cpu_milli)
            and (need.memory <= memory or not need.memory)
            and (need.disk <= disk or not need.disk)
        )

    def note_leaving(self, need: Resources, sign: int) -> None:
        """Note (+1) that a task will leave that is there, or (-1) that it is gone."""
        self.leaving = _noted(self.leaving, need, sign)

    def note_reserved(self, need: Resources, sign: int) -> None:
        """Note (+1) that a task has its place here reserved, or (-1) no longer."""
        self.reserved = _noted(self.reserved, need, sign)

    def free(self) -> Resources:
        """Sum up what is free, counting no negative account."""
        return Resources(
            gpu_milli=sum(
                milli
                for index, milli in enumerate(self.device_milli)
                if milli > 0 and index not in self.bad
            ),
            cpu_milli=max(0, self.cpu),
            memory=max(0, self.memory),
            disk=max(0, self.disk),
            gpu_memory=sum(
                size
                for index, size in enumerate(self.device_memory)
                if size > 0 and index not in self.bad
            ),
        )

    def free_by_type(self) -> Vector:
        """Sum up thousandths of free devices of each type."""
        free: Vector = {}
        for index, milli in enumerate(self.device_milli):
            if milli > 0 and index not in self.bad:
                part = self.parts[index]
                free[part] = free.get(part, 0) + milli
        return free

    def by_type(self, devices: Sequence[int], milli: int) -> Vector:
        """Return what a task holds of which types that has so much on these devices."""
        found: Vector = {}
        for index in devices:
            part = self.parts[index]
            found[part] = found.get(part, 0) + milli // len(devices)
        return found

    def fit(
        self, need: Resources, kind: str, most: int, placing: Placing
    ) -> list[tuple[int, ...]]:
        """Choose devices for as many alike tasks as fit, up to `most`: one entry a task.

        Lowest indexes first; fractions where the placing policy says.
        """
        if need.cpu_milli and need.cpu_milli * most > self.cpu:
            most = max(0, self.cpu // need.cpu_milli)
        if need.memory and need.memory * most > self.memory:
            most = max(0, self.memory // need.memory)
        if need.disk and need.disk * most > self.disk:
            most = max(0, self.disk // need.disk)
        if need.gpu_milli == 0 or most == 0:
            return [()] * most
        if need.gpu_milli < DEVICE:
            return self._fit_fractions(need, kind, most, placing)
        wanted = need.gpu_milli // DEVICE
        room = self.whole.get(kind, 0) // wanted
        most = room if room < most else most
        picked = [index for index, milli in enumerate(self.device_milli) if milli == DEVICE]
        if kind != ANY_TYPE or need.gpu_memory or self.bad:
            picked = [index for index in picked if self._serves(index, need, kind)]
        free = iter(picked[: most * wanted])
        return list(zip(*[free] * wanted, strict=False))  # What is too few for a task is left.

    def _fit_fractions(
        self, need: Resources, kind: str, most: int, placing: Placing
    ) -> list[tuple[int, ...]]:
        milli, memory = self.device_milli.copy(), self.device_memory.copy()
        serve = [
            index
            for index, type_ in enumerate(self.types)
            if kind in (ANY_TYPE, type_) and index not in self.bad
        ]
        found: list[tuple[int, ...]] = []
        while len(found) < most:
            rooms = [
                (placing.rank(milli[index], need.gpu_milli), index)
                for index in serve
                if milli[index] >= need.gpu_milli
                and (need.gpu_memory == 0 or need.gpu_memory <= memory[index])
            ]
            if not rooms:
                break
            index = min(rooms)[1]
            milli[index] -= need.gpu_milli
            memory[index] -= need.gpu_memory
            found.append((index,))
        return found

    def _serves(self, index: int, need: Resources, kind: str) -> bool:
        return (
            index not in self.bad
            and kind in (ANY_TYPE, self.types[index])
            and (need.gpu_memory == 0 or need.gpu_memory <= self.device_memory[index])
        )

    def change(self, devices: Sequence[int], need: Resources, tasks: int, sign: int) -> None:
        """Add (+1) or subtract (-1) what so many alike tasks need, on all their devices."""
        times = sign * tasks
        self.cpu += times * need.cpu_milli
        self.memory += times * need.memory
        self.disk += times * need.disk
        if not devices:
            return
        each = times * need.gpu_milli // len(devices)
        milli, whole, bad, device, more = self.device_milli, self.whole, self.bad, DEVICE, 0
        for index in devices:
            before = milli[index]
            after = milli[index] = before + each
            if before == device or after == device:
                if before != after and index not in bad:
                    step = 1 if after == device else -1
                    more += step
                    if self._by_type:
                        whole[self.types[index]] += step
            elif before < 0 or after < 0:
                self.awaited += (after < 0) - (before < 0)
        if more:
            whole[ANY_TYPE] += more
        if need.gpu_memory:
            for index in devices:
                self.device_memory[index] += sign * need.gpu_memory

    def set_bad(self, devices: frozenset[int]) -> None:
        """Set which devices are not to be used, and count the whole free ones anew."""
        for index in sorted(self.bad ^ devices):
            if self.device_milli[index] == DEVICE:
                step = 1 if index in self.bad else -1
                self.whole[ANY_TYPE] += step
                if self._by_type:
                    self.whole[self.types[index]] += step
        self.bad = devices

    def set_others(self, host: Resources, taken: frozenset[int]) -> None:
        """Set what others use of the host, and which of its bad devices are theirs."""
        self.cpu -= host.cpu_milli - self.others.cpu_milli
        self.memory -= host.memory - self.others.memory
        self.others, self.taken = host, taken

    def sound(self, devices: Sequence[int]) -> bool:
        """Whether none of these devices is broken."""
        return not self.bad or self.bad.isdisjoint(devices)

    def has(self, slot: Slot, need: Resources) -> bool:
        """Whether a slot is free here for one task."""
        devices, size = slot.devices, need.gpu_memory
        if not (self.open and self.host_fits(need)) or (self.bad and not self.sound(devices)):
            return False
        milli, memory = self.device_milli, self.device_memory
        each = need.gpu_milli // len(devices) if devices else 0
        if each <= DEVICE and not size and self.whole[ANY_TYPE] == len(milli):
            return True  # The whole node is free.
        for index in devices:
            if milli[index] < each or (size and memory[index] < size):
                return False
        return True

    def host_short(self, wanted: Resources, held: Resources) -> bool:
        """Whether some of the host is reserved too often that is wanted, and held."""
        return bool(
            (self.cpu < 0 and wanted.cpu_milli and held.cpu_milli)
            or (self.memory < 0 and wanted.memory and held.memory)
            or (self.disk < 0 and wanted.disk and held.disk)
        )

    def device_short(self, index: int, wanted: Resources, held: Resources) -> bool:
        """Whether some of a device is reserved too often that is wanted, and held."""
        return bool(
            (self.device_milli[index] < 0 and wanted.gpu_milli and held.gpu_milli)
            or (self.device_memory[index] < 0 and wanted.gpu_memory and held.gpu_memory)
        )

    def settled(self, slot: Slot) -> bool:
        """Whether no other gang has to leave a slot that was taken."""
        if not self.open or self.cpu < 0 or self.memory < 0 or self.disk < 0:
            return False
        milli, memory = self.device_milli, self.device_memory
        for index in slot.devices:
            if milli[index] < 0 or memory[index] < 0:
                return False
        return self.sound(slot.devices)


class Ledger:
    """Every node's accounts, and the index that finds room without looking everywhere."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        types = dict.fromkeys(device.type for node in nodes for device in node.devices)
        self.types = tuple(types)
        """The types of devices there are, in the order of nodes."""
        self._sole = self.types[0] if len(types) == 1 else None
        """The type of all devices, if they have but one."""
        self.books: dict[NodeId, NodeBook] = {
            node.id: NodeBook(node, by_type=self._sole is None) for node in nodes
        }
        self.engines = {node.engine: frozenset(node.lacks) for node in nodes}
        """What the engines of nodes cannot do, in the order of these."""
        self.regions = Regions(nodes)
        self.total = sum((node.total() for node in nodes), start=NOTHING)
        """All there is, in use or not."""
        self.closed: set[NodeId] = set()
        """Nodes that take no new work."""
        self.shared: set[NodeId] = set()
        """Nodes of which work beside Allotment uses a part."""
        self.version = 0
        """Grows whenever something is given back or opened: what did not fit may fit now."""
        self._buckets: dict[str, dict[int, list[NodeId]]] = {}
        self._widest = max((len(node.devices) for node in nodes), default=0)
        self._preferred: dict[tuple[Placing, int], list[int]] = {}
        """Which buckets could serve, best first, by how many whole devices a task needs."""
        self.awaited = 0
        """Devices of all nodes that are reserved before their holders are gone."""
        self.whole_free = 0
        """Whole free devices of all nodes, but those that are broken."""
        self._free_at: dict[NodeId, Resources] = {}
        """What was free on each open node when it was last asked for."""
        self._free = NOTHING
        """The sum of that."""
        self._changed: set[NodeId] = set(self.books)
        """Nodes whose accounts changed since."""
        for book in self.books.values():
            self._enter(book)

    # ── writing ─────────────────────────────────────────────────────────────────────────

    def take(self, slots: Sequence[Slot], needs: Sequence[Resources]) -> None:
        """Hold what tasks need where they sit; the counters may go below zero."""
        self._change(slots, needs, -1)

    def give(self, slots: Sequence[Slot], needs: Sequence[Resources]) -> None:
        """Let go of what `take` took."""
        self._change(slots, needs, +1)
        self.version += 1

    def set_open(self, node: NodeId, is_open: bool) -> None:
        """Let a node take new work, or keep new work off it."""
        self.books[node].open = is_open
        (self.closed.discard if is_open else self.closed.add)(node)
        self._changed.add(node)
        self.version += 1

    def set_bad(self, node: NodeId, devices: frozenset[int]) -> None:
        """Keep new work off some devices of a node, and let it on all others. O(devices)."""
        book = self.books[node]
        counts = book.whole.copy()
        book.set_bad(devices)
        for kind, count in counts.items():
            if book.whole[kind] != count:
                self._move(node, kind, count, book.whole[kind])
        self._changed.add(node)
        self.version += 1

    def set_others(self, node: NodeId, host: Resources, taken: frozenset[int]) -> None:
        """Take what others use of a node off what is free; their devices are set as bad."""
        self.books[node].set_others(host, taken)
        is_shared = bool(taken) or host != NOTHING
        (self.shared.add if is_shared else self.shared.discard)(node)
        self._changed.add(node)
        self.version += 1

    def _change(self, slots: Sequence[Slot], needs: Sequence[Resources], sign: int) -> None:
        """Change the accounts, alike neighbours together, and the index once for each node."""
        if len(slots) == 1:
            self._change_at(slots[0].node, slots[0].devices, needs[0], 1, sign)
            return
        node, need, tasks = slots[0].node, needs[0], 0
        devices: list[int] = []
        for slot, each in zip(slots, needs, strict=True):
            if slot.node != node or each is not need:
                self._change_at(node, devices, need, tasks, sign)
                node, need, tasks = slot.node, each, 0
                devices = []
            devices += slot.devices
            tasks += 1
        self._change_at(node, devices, need, tasks, sign)

    def _change_at(
        self, node: NodeId, devices: Sequence[int], need: Resources, tasks: int, sign: int
    ) -> None:
        book = self.books[node]
        self._changed.add(node)
        whole, awaited = book.whole, book.awaited
        if self._sole is not None:
            before = whole[ANY_TYPE]
            book.change(devices, need, tasks, sign)
            after = whole[ANY_TYPE]
            if after != before:
                self._move(node, ANY_TYPE, before, after)
        else:
            counts = whole.copy()
            book.change(devices, need, tasks, sign)
            for kind, count in counts.items():
                if whole[kind] != count:
                    self._move(node, kind, count, whole[kind])
        self.awaited += book.awaited - awaited

    def _enter(self, book: NodeBook) -> None:
        for kind, count in book.whole.items():
            insort(self._buckets.setdefault(kind, {}).setdefault(count, []), book.id)
        self.whole_free += book.whole[ANY_TYPE]

    def _move(self, node: NodeId, kind: str, before: int, after: int) -> None:
        buckets = self._buckets[kind]
        old = buckets[before]
        del old[bisect_left(old, node)]
        if not old:
            del buckets[before]
        new = buckets.get(after)
        if new is None:
            buckets[after] = [node]
        else:
            insort(new, node)
        if kind == ANY_TYPE:
            self.whole_free += after - before

    # ── reading ─────────────────────────────────────────────────────────────────────────

    def settled(self, slots: Sequence[Slot]) -> bool:
        """Whether a reserved place is really there now. O(tasks)."""
        books = self.books
        return all(books[slot.node].settled(slot) for slot in slots)

    def free(self) -> Resources:
        """Sum up what is free on open nodes. O(nodes that changed since it was last asked)."""
        for node in self._changed:
            book = self.books[node]
            before = self._free_at.pop(node, None)
            if before is not None:
                self._free -= before
            if book.open:
                self._free_at[node] = now = book.free()
                self._free += now
        self._changed.clear()
        return self._free

    def free_by_type(self) -> Vector:
        """Sum up thousandths of devices of each type that are free on open nodes. O(nodes).

        In the order of nodes: of several types the first that is free is taken.
        """
        free = dict.fromkeys(of_types(self.types), 0)
        self.free()
        for node, there in self._free_at.items():
            book = self.books[node]
            if book.of_one_type:
                free[book.parts[0]] += there.gpu_milli
            elif there.gpu_milli:
                add(free, book.free_by_type())
        return free

    def whole_free_of(self, kind: str) -> int:
        """Count the whole free devices of a type on open nodes. O(nodes that are closed)."""
        if self._sole is not None:
            kind = ANY_TYPE if kind == self._sole else kind
        buckets = self._buckets.get(kind, {})
        free = sum(count * len(nodes) for count, nodes in buckets.items())
        return free - sum(self.books[node].whole.get(kind, 0) for node in self.closed)

    def can(self, ability: Ability, slots: Iterable[Slot]) -> bool:
        """Whether all engines of these slots are able to do something."""
        return all(ability not in self.books[slot.node].lacks for slot in slots)

    def type_of(self, node: NodeId, index: int) -> str:
        return self.books[node].types[index]

    def free_milli(self, node: NodeId, index: int) -> int:
        """Return what is free of one device, in thousandths; negative when it is reserved.

        Nothing is free of a broken one.
        """
        book = self.books[node]
        milli = book.device_milli[index]
        return min(0, milli) if index in book.bad else milli

    def free_memory(self, node: NodeId, index: int) -> int:
        """Return the bytes of a device's memory that no task holds; negative when reserved."""
        return self.books[node].device_memory[index]

    def host_fits(self, node: NodeId, need: Resources) -> bool:
        """Whether CPU, memory and disk of an open node suffice for so much more."""
        book = self.books[node]
        return book.open and book.host_fits(need)

    def find(self, requests: tuple[Request, ...], placing: Placing) -> tuple[Slot, ...] | None:
        """Find room for a gang: one slot a task, in rank order; None if none. Takes nothing.

        Roles with the most devices choose first. Whole gangs get one engine and one device
        type, the first of the preference list with room for all. Greedy: it may miss a place
        that only another order of the tasks would find, and then says no on an idle cluster
        too, so such a job is refused when it is submitted.
        """
        if devices_of(requests) > self.whole_free:
            return None
        is_one = len(requests) == 1 == requests[0].count
        if is_one or requests[0].engine or len(self.engines) < 2:
            return self._find(requests, placing)
        each = (self._find(bound_to(name, requests), placing) for name in self.engines)
        found = [slots for slots in each if slots is not None]
        return min(found, key=lambda slots: self._disliked(requests, slots), default=None)

    def _disliked(self, requests: tuple[Request, ...], slots: tuple[Slot, ...]) -> list[int]:
        """Return how far down its list of types each role had to go."""
        firsts = accumulate((request.count for request in requests), initial=0)
        return [
            request.types.index(self.type_of(slot.node, slot.devices[0]))
            for request, at in zip(requests, firsts, strict=False)
            if (slot := slots[at]).devices and request.types
        ]

    def _find(self, requests: tuple[Request, ...], placing: Placing) -> tuple[Slot, ...] | None:
        """Find room for a gang in the region and on the engine that it asks for."""
        first = requests[0]
        if first.within or first.prefer:
            for level in (first.within, first.prefer):
                if level:
                    slots = self._find_together(requests, placing, level)
                    if slots is not None or level == first.within:
                        return slots
        return self._find_among(requests, placing, None)

    def _find_together(
        self, requests: tuple[Request, ...], placing: Placing, level: str
    ) -> tuple[Slot, ...] | None:
        """Find room within one region of a level: regions are ranked as nodes are."""
        for nodes in self._rooms_for(devices_of(requests), level, ANY_TYPE, placing, None):
            slots = self._find_among(requests, placing, nodes)
            if slots is not None:
                return slots
        return None

    def _find_among(
        self,
        requests: tuple[Request, ...],
        placing: Placing,
        among: tuple[NodeId, ...] | None,
    ) -> tuple[Slot, ...] | None:
        """Find room on some nodes; on any when `among` is None."""
        if len(requests) == 1:
            slots = self._find_role(requests[0], placing, among)
            return None if slots is None else tuple(slots)
        order = sorted(range(len(requests)), key=lambda i: (-_together(requests[i]), i))
        chosen: dict[int, list[Slot]] = {}
        for i in order:
            slots = self._find_role(requests[i], placing, among)
            if slots is None:
                break
            # Held while the other roles look for theirs.
            self._change(slots, [requests[i].need] * len(slots), -1)
            chosen[i] = slots
        for i, slots in chosen.items():
            self._change(slots, [requests[i].need] * len(slots), +1)
        if len(chosen) < len(requests):
            return None
        return tuple(slot for i in range(len(requests)) for slot in chosen[i])

    def _find_role(
        self, request: Request, placing: Placing, among: tuple[NodeId, ...] | None
    ) -> list[Slot] | None:
        for kind in request.types or (ANY_TYPE,):
            asked = ANY_TYPE if kind == self._sole else kind
            if request.group:
                slots = self._find_groups(request, asked, placing, among)
                if slots is not None:
                    return slots
                continue
            books = (
                self._candidates(request, asked, placing)
                if among is None
                else self._ranked(request, asked, placing, among)
            )
            slots = _fill(request, asked, books, placing)
            if slots is not None:
                return slots
        return None

    def _find_groups(
        self,
        request: Request,
        kind: str,
        placing: Placing,
        among: tuple[NodeId, ...] | None,
    ) -> list[Slot] | None:
        """Find room for groups of a role, each within one region: as many as fit in each.

        Regions do not overlap and groups are alike, so none that fits is missed.
        """
        one, slots = one_group(request), list[Slot]()
        wanted, level = devices_of((one,)), request.group_within
        for nodes in self._rooms_for(wanted, level, kind, placing, among):
            while len(slots) < request.count:
                books = self._ranked(one, kind, placing, nodes)
                group = _fill(one, kind, books, placing)
                if group is None:
                    break
                # Held while the other groups look for theirs.
                self._change(group, [one.need] * one.count, -1)
                slots += group
        if slots:
            self._change(slots, [one.need] * len(slots), +1)
        return slots[: request.count] if len(slots) >= request.count else None

    def _rooms_for(
        self,
        wanted: int,
        level: str,
        kind: str,
        placing: Placing,
        among: tuple[NodeId, ...] | None,
    ) -> Iterator[tuple[NodeId, ...]]:
        """Return regions with enough whole devices for a gang or a group, ranked as nodes."""
        kept = None if among is None else frozenset(among)
        rooms: list[tuple[int, int, tuple[NodeId, ...]]] = []
        for place, region in enumerate(self.regions.of(level)):
            nodes = region if kept is None else tuple(n for n in region if n in kept)
            free = sum(self.books[node].whole.get(kind, 0) for node in nodes)
            if nodes and free >= wanted:
                rooms.append((placing.rank(free, wanted), place, nodes))
        yield from (nodes for _, _, nodes in sorted(rooms))

    def _candidates(self, request: Request, kind: str, placing: Placing) -> Iterator[NodeBook]:
        """Return nodes with enough devices, best bucket first, lower id first within one.

        Lazy on purpose: a small gang is placed after looking at one or two nodes.
        """
        buckets, key = self._buckets.get(kind, {}), (placing, request.need.gpu_milli // DEVICE)
        order = self._preferred.get(key)
        if order is None:
            counts = range(key[1], self._widest + 1)
            order = sorted(counts, key=lambda count: (placing.rank(count, key[1]), count))
            self._preferred[key] = order
        nodes = chain.from_iterable([buckets[count] for count in order if count in buckets])
        return map(self.books.__getitem__, nodes)

    def _ranked(
        self, request: Request, kind: str, placing: Placing, among: tuple[NodeId, ...]
    ) -> list[NodeBook]:
        """Return those of some nodes with enough devices, in the same order. O(n log n)."""
        whole = request.need.gpu_milli // DEVICE
        rooms = [
            (placing.rank(free, whole), free, node)
            for node in among
            for free in (self.books[node].whole.get(kind, 0),)
            if free >= whole
        ]
        rooms.sort()
        return [self.books[node] for _, _, node in rooms]


def _noted(amount: Resources, need: Resources, sign: int) -> Resources:
    """Add what a task needs of a host, or subtract it; of nothing return `NOTHING` itself."""
    if need.cpu_milli or need.memory or need.disk:
        amount = amount + need if sign > 0 else amount - need
    return NOTHING if amount == NOTHING else amount


def _together(request: Request) -> int:
    """Return how much of a role must lie together: the largest need chooses first."""
    return request.need.gpu_milli * max(1, request.group)


def _fill(
    request: Request, kind: str, books: Iterable[NodeBook], placing: Placing
) -> list[Slot] | None:
    """Put tasks on nodes in their order until all have a slot; None when they do not fit."""
    slots: list[Slot] = []
    need, left = request.need, request.count
    any_will_do = request.arch is ANY_ARCH and not (request.engine or request.asks)
    for book in books:
        if not (book.open and (any_will_do or book.suits(request))):
            continue
        for devices in book.fit(need, kind, left, placing):
            slots.append(Slot(book.id, devices, need.gpu_milli))
            left -= 1
        if not left:
            return slots
    return None
