"""The ledger of the machines: what is free where, and where a gang would fit.

Counting is a topology of one level: nodes with devices on them. Nodes stand in buckets by
how many whole devices they have free, per device type, so that a search looks only at
buckets that can serve. `take` may drive a counter below zero: that is how a place is
reserved while its present holders are on their way out; a negative counter is simply
not free, and a slot is *settled* once none of its counters is negative.
"""

from bisect import bisect_left, insort
from collections.abc import Iterator, Sequence

from allotment.core.ports import Placing
from allotment.core.request import Request
from allotment.model.cluster import Node
from allotment.model.ids import NodeId
from allotment.model.ledger import Slot
from allotment.model.quantity import DEVICE, Resources
from allotment.model.spec import Arch

ANY_TYPE = ""


class NodeBook:
    """One node's open accounts. Mutable; only the ledger writes it."""

    __slots__ = (
        "arch", "cpu", "device_memory", "device_milli", "disk", "id", "memory", "open",
        "types", "whole",
    )  # fmt: skip

    def __init__(self, node: Node) -> None:
        self.id = node.id
        self.arch = node.arch
        self.open = True
        self.cpu = node.cpu_milli
        self.memory = node.memory
        self.disk = node.disk
        self.types = tuple(device.type for device in node.devices)
        self.device_milli = [DEVICE] * len(node.devices)
        self.device_memory = [device.memory for device in node.devices]
        self.whole: dict[str, int] = {ANY_TYPE: len(node.devices)}
        for kind in self.types:
            self.whole[kind] = self.whole.get(kind, 0) + 1

    def host_fits(self, need: Resources) -> bool:
        """Tell whether CPU, memory and disk suffice for one task."""
        return (
            need.cpu_milli <= self.cpu and need.memory <= self.memory and need.disk <= self.disk
        )

    def free(self) -> Resources:
        """Sum up what is free, counting no negative account."""
        return Resources(
            gpu_milli=sum(milli for milli in self.device_milli if milli > 0),
            cpu_milli=max(0, self.cpu),
            memory=max(0, self.memory),
            disk=max(0, self.disk),
            gpu_memory=sum(size for size in self.device_memory if size > 0),
        )

    def pick_devices(self, need: Resources, kind: str) -> tuple[int, ...] | None:
        """Choose devices for one task: lowest indexes first, fractions on the fullest."""
        if need.gpu_milli == 0:
            return ()
        if need.gpu_milli < DEVICE:
            return self._pick_fraction(need, kind)
        wanted = need.gpu_milli // DEVICE
        if self.whole.get(kind, 0) < wanted:
            return None
        picked: list[int] = []
        for index, milli in enumerate(self.device_milli):
            if milli == DEVICE and self._serves(index, need, kind):
                picked.append(index)
                if len(picked) == wanted:
                    return tuple(picked)
        return None

    def _pick_fraction(self, need: Resources, kind: str) -> tuple[int, ...] | None:
        rooms = [
            (milli, index)
            for index, milli in enumerate(self.device_milli)
            if milli >= need.gpu_milli and self._serves(index, need, kind)
        ]
        return (min(rooms)[1],) if rooms else None

    def _serves(self, index: int, need: Resources, kind: str) -> bool:
        return (kind in (ANY_TYPE, self.types[index])) and (
            need.gpu_memory == 0 or need.gpu_memory <= self.device_memory[index]
        )

    def change(self, slot: Slot, need: Resources, sign: int) -> None:
        """Add (+1) or subtract (-1) one task's need."""
        self.cpu += sign * need.cpu_milli
        self.memory += sign * need.memory
        self.disk += sign * need.disk
        if not slot.devices:
            return
        each = sign * need.gpu_milli // len(slot.devices)
        for index in slot.devices:
            before = self.device_milli[index]
            after = before + each
            self.device_milli[index] = after
            self.device_memory[index] += sign * need.gpu_memory
            step = (after == DEVICE) - (before == DEVICE)
            if step:
                self.whole[ANY_TYPE] += step
                self.whole[self.types[index]] += step

    def settled(self, slot: Slot) -> bool:
        return (
            self.open
            and self.cpu >= 0
            and self.memory >= 0
            and self.disk >= 0
            and all(
                self.device_milli[index] >= 0 and self.device_memory[index] >= 0
                for index in slot.devices
            )
        )


class Ledger:
    """Every node's accounts, and the index that finds room without looking everywhere."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self.books: dict[NodeId, NodeBook] = {node.id: NodeBook(node) for node in nodes}
        self.version = 0
        """Grows whenever something is given back or opened: what did not fit may fit now."""
        self._buckets: dict[str, dict[int, list[NodeId]]] = {}
        self._whole: dict[str, int] = {}
        """Whole free devices on all nodes, by type."""
        for book in self.books.values():
            self._enter(book)

    # ── writing ─────────────────────────────────────────────────────────────────────────

    def take(self, slot: Slot, need: Resources) -> None:
        """Hold one task's need; the counters may go below zero."""
        self._change(slot, need, -1)

    def give(self, slot: Slot, need: Resources) -> None:
        """Let go of what `take` took."""
        self._change(slot, need, +1)
        self.version += 1

    def set_open(self, node: NodeId, is_open: bool) -> None:
        """Let a node take new work, or keep new work off it."""
        self.books[node].open = is_open
        self.version += 1

    def _change(self, slot: Slot, need: Resources, sign: int) -> None:
        book = self.books[slot.node]
        if not slot.devices:
            book.change(slot, need, sign)
            return
        before = book.whole.copy()
        book.change(slot, need, sign)
        if book.whole != before:
            for kind, count in before.items():
                now = book.whole[kind]
                if now != count:
                    self._move(book.id, kind, count, now)

    def _enter(self, book: NodeBook) -> None:
        for kind, count in book.whole.items():
            insort(self._buckets.setdefault(kind, {}).setdefault(count, []), book.id)
            self._whole[kind] = self._whole.get(kind, 0) + count

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
        self._whole[kind] += after - before

    # ── reading ─────────────────────────────────────────────────────────────────────────

    def settled(self, slots: Sequence[Slot]) -> bool:
        """Tell whether a reserved place is really there now. O(tasks)."""
        return all(self.books[slot.node].settled(slot) for slot in slots)

    def free(self) -> Resources:
        """Sum up what is free on open nodes. O(nodes)."""
        total = Resources()
        for book in self.books.values():
            if book.open:
                total += book.free()
        return total

    @property
    def whole_free(self) -> int:
        """Whole free devices of all nodes."""
        return self._whole.get(ANY_TYPE, 0)

    def may_hold(self, requests: Sequence[Request]) -> bool:
        """Tell, at once, when there are too few free devices in all, wherever they are."""
        wanted = 0
        for request in requests:
            wanted += request.count * (request.need.gpu_milli // DEVICE)
        return wanted <= self._whole.get(ANY_TYPE, 0)

    def find(self, requests: Sequence[Request], placing: Placing) -> tuple[Slot, ...] | None:
        """Find what `place` would take, and take nothing."""
        if len(requests) == 1 and requests[0].count == 1:
            slot = self._find_one(requests[0], placing) if self.may_hold(requests) else None
            return None if slot is None else (slot,)
        slots = self.place(requests, placing)
        if slots is not None:
            place = iter(slots)
            for request in requests:
                self._untake([next(place) for _ in range(request.count)], request.need)
        return slots

    def _find_one(self, request: Request, placing: Placing) -> Slot | None:
        need = request.need
        for kind in request.types or (ANY_TYPE,):
            for book in self._candidates(request, kind, placing):
                if book.host_fits(need):
                    devices = book.pick_devices(need, kind)
                    if devices is not None:
                        return Slot(book.id, devices, need.gpu_milli)
        return None

    def place(self, requests: Sequence[Request], placing: Placing) -> tuple[Slot, ...] | None:
        """Find room for a gang and take it: one slot a task, in rank order; None if none.

        Roles with the most devices choose first. Whole gangs get one device type, the
        first of the preference list with room for all. Greedy: it may miss a place that
        only another order of the tasks would find, and then says no on an idle cluster
        too, so such a job is refused when it is submitted.
        """
        if not self.may_hold(requests):
            return None
        if len(requests) == 1:
            slots = self._place_role(requests[0], placing)
            return tuple(slots) if slots is not None else None
        order = sorted(range(len(requests)), key=lambda i: (-requests[i].need.gpu_milli, i))
        chosen: dict[int, list[Slot]] = {}
        for i in order:
            slots = self._place_role(requests[i], placing)
            if slots is None:
                for j, placed in chosen.items():
                    self._untake(placed, requests[j].need)
                return None
            chosen[i] = slots
        return tuple(slot for i in range(len(requests)) for slot in chosen[i])

    def _place_role(self, request: Request, placing: Placing) -> list[Slot] | None:
        for kind in request.types or (ANY_TYPE,):
            slots = self._place_tasks(request, kind, placing)
            if slots is not None:
                return slots
        return None

    def _place_tasks(self, request: Request, kind: str, placing: Placing) -> list[Slot] | None:
        slots: list[Slot] = []
        need = request.need
        for book in self._candidates(request, kind, placing):
            while len(slots) < request.count and book.host_fits(need):
                devices = book.pick_devices(need, kind)
                if devices is None:
                    break
                slot = Slot(book.id, devices, need.gpu_milli)
                self.take(slot, need)
                slots.append(slot)
            if len(slots) == request.count:
                return slots
        self._untake(slots, need)
        return None

    def _untake(self, slots: Sequence[Slot], need: Resources) -> None:
        for slot in slots:
            self._change(slot, need, +1)

    def _candidates(self, request: Request, kind: str, placing: Placing) -> Iterator[NodeBook]:
        """Give open nodes that may serve, best bucket first, lower id first within one.

        Lazy on purpose: a small gang is placed after looking at one or two nodes. A node
        that serves leaves its bucket meanwhile, hence the copy; it may come up again in a
        later one, and has no more room then.
        """
        buckets = self._buckets.get(kind, {})
        whole = request.need.gpu_milli // DEVICE
        usable = [(placing.rank(count, whole), count) for count in buckets if count >= whole]
        usable.sort()
        for _, count in usable:
            for node in tuple(buckets.get(count, ())):
                book = self.books[node]
                if book.open and request.arch in (Arch.ANY, book.arch):
                    yield book
