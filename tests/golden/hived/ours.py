"""The door to `allotment.core.cells`: the book is filled, asked, and audited.

What the cells do not decide by themselves is done here in the plainest way, and says nothing
about the product: preemption within a tenant (try without those of lower priority, least
first, then take back whoever need not go), lazy preemption (the same, but the victim stays as
a borrower), and taking up after a restart (one after the other, as long as shares allow).
"""

from collections.abc import Sequence
from itertools import groupby

from allotment.core.cells.audit import flaws
from allotment.core.cells.book import Cells
from allotment.core.cells.borrow import find_idle
from allotment.core.cells.quota import shortages
from allotment.core.cells.search import Found, find
from allotment.core.request import Request
from allotment.model.ids import JobId, NodeId
from allotment.model.ledger import Slot
from allotment.model.quantity import Resources
from tests.golden.hived import geometry
from tests.golden.hived.cluster import CPU_MILLI, MEMORY, Cluster
from tests.golden.hived.words import Answer, Ask, Book, Held, Placed, Refused, Task, Waits


class Roomy:
    """Hosts that always have CPU and memory: HiveD takes no heed of them."""

    def host_fits(self, node: NodeId, need: Resources) -> bool:
        return True


class Gang:
    """One gang or reservation as it lies in the book."""

    def __init__(self, held: Held, guaranteed: Sequence[Task], lent: Sequence[Task]) -> None:
        self.held = held
        self.taken, self.lent = list(guaranteed), list(lent)
        self.reserved = False


class Ours:
    """Implements `adapter.UnderTest`."""

    def __init__(self) -> None:
        self.cluster: Cluster
        self.cells: Cells
        self.book = Book()
        self.gangs: dict[str, Gang] = {}
        self.ids: list[str] = []

    def open(self, cluster: Cluster) -> str:
        self.cluster = cluster
        missing = shortages(cluster.topology, cluster.tenants)
        if not missing:
            self._empty()
        return "; ".join(f"{each.type}: {each.wanted} of {each.available}" for each in missing)

    def _empty(self) -> None:
        topology, nodes, tenants = (
            self.cluster.topology,
            self.cluster.nodes,
            self.cluster.tenants,
        )
        self.cells = Cells(topology, nodes, tenants)
        self.gangs, self.ids = {}, []

    # ── loading ─────────────────────────────────────────────────────────────────────────

    def load(self, book: Book) -> list[str]:
        self.book = book
        self._empty()
        for node in book.bad:
            self.cells.set_bad(node, frozenset(d.index for d in self._devices(node)))
        kept = {leaf for r in book.reserved for leaf in geometry.leaves_of(r.tasks)}
        for held in book.held:
            self._hold(held, kept)
        for reserved in book.reserved:
            held = Held(
                reserved.gang,
                reserved.tenant,
                reserved.priority,
                guaranteed=True,
                tasks=reserved.tasks,
                pin=reserved.pin,
            )
            name = f"for {reserved.gang}"
            self.gangs[name] = Gang(held, held.tasks, ())
            self.gangs[name].reserved = True
            self._enter(name)
        return list(flaws(self.cells))

    def _devices(self, node: NodeId):
        return next(each.devices for each in self.cluster.nodes if each.id == node)

    def _hold(self, held: Held, kept: set[tuple[NodeId, int]]) -> None:
        """Enter a gang; where its leaves are reserved it sits as one who is leaving."""
        taken: list[Task] = []
        lent: list[Task] = []
        for task in held.tasks:
            leaving = tuple(d for d in task.devices if (task.node, d) in kept)
            staying = tuple(d for d in task.devices if d not in leaving)
            if not held.guaranteed:
                leaving, staying = task.devices, ()
            if leaving:
                lent.append(Task(task.node, leaving))
            if staying:
                taken.append(Task(task.node, staying, task.cell))
        self.gangs[held.gang] = Gang(held, taken, lent)
        self._enter(held.gang)

    def _enter(self, name: str) -> None:
        gang = self.gangs[name]
        self._take(gang.held, gang.taken)
        if gang.lent:
            if name not in self.ids:
                self.ids.append(name)
            job = JobId(self.ids.index(name))
            self.cells.lend(job, [_slot(t) for t in gang.lent], [_need(t) for t in gang.lent])

    def _take(self, held: Held, tasks: Sequence[Task]) -> None:
        if tasks:
            slots, needs = [_slot(t) for t in tasks], [_need(t) for t in tasks]
            quota = tuple(task.cell for task in tasks)
            self.cells.take(held.tenant, held.pin, slots, needs, quota)

    def _give(self, gang: Gang) -> None:
        if gang.taken:
            slots, needs = [_slot(t) for t in gang.taken], [_need(t) for t in gang.taken]
            quota = tuple(task.cell for task in gang.taken)
            self.cells.give(gang.held.tenant, gang.held.pin, slots, needs, quota)

    # ── placing ─────────────────────────────────────────────────────────────────────────

    def place(self, ask: Ask) -> Answer:
        why = self._refusal(ask)
        if why:
            return Refused(why)
        own = next((each for each in self.book.reserved if each.gang == ask.gang), None)
        if own is not None:
            nodes = geometry.nodes_of(own.tasks)
            if not nodes & self.book.bad and (ask.nodes is None or nodes <= ask.nodes):
                return Placed(own.tasks, own.victims)
            others = tuple(each for each in self.book.reserved if each is not own)
            self.load(Book(self.book.held, others, self.book.bad))
        barred = [
            n.id for n in self.cluster.nodes if ask.nodes is not None and n.id not in ask.nodes
        ]
        for node in barred:
            self.cells.set_open(node, is_open=False)
        answer = self._decide(ask)
        for node in barred:
            self.cells.set_open(node, is_open=True)
        return answer

    def _refusal(self, ask: Ask) -> str:
        tenant = next((t for t in self.cluster.tenants if t.name == ask.tenant), None)
        if tenant is None:
            return f"no tenant {ask.tenant}"
        if ask.pin and (ask.pin not in tenant.pins or ask.priority < 0):
            return f"{ask.pin} is not for this job"
        leaves = {chain.names[0] for chain in self.cluster.chains.values()}
        if ask.types and not leaves & set(ask.types):
            return f"no {ask.types} in the cluster"
        if ask.types and ask.priority >= 0 and not ask.pin:
            owed = {
                self.cluster.chains[cell.chain].names[0]
                for cell in self.cluster.owed[ask.tenant]
                if not cell.pin
            }
            if not owed & set(ask.types):
                return f"{ask.tenant} is owed no cells of {ask.types}"
        return ""

    def _decide(self, ask: Ask) -> Answer:
        types = () if ask.pin else ask.types
        requests = tuple(
            Request(len(list(alike)), _amount(size), types)
            for size, alike in groupby(ask.sizes)
        )
        if ask.priority < 0:
            slots = find_idle(self.cells, requests, Roomy())
            if slots is None:
                return Waits("nothing idle")
            return Placed(tuple(Task(slot.node, slot.devices) for slot in slots))
        return self._guaranteed(ask, requests)

    def _guaranteed(self, ask: Ask, requests: tuple[Request, ...]) -> Answer:
        gone: list[str] = []
        found = self._look(ask, requests)
        for name in self._lower(ask):
            if found is not None:
                break
            self._send_away(name)
            gone.append(name)
            found = self._look(ask, requests)
        for name in gone[::-1] if found is not None else ():
            self._bring_back(name)
            spared = self._look(ask, requests)
            if spared is None:
                self._send_away(name)
            else:
                found = spared
                gone.remove(name)
        answer = self._found(found, gone) if found is not None else Waits("no room")
        for name in gone:
            self._bring_back(name)
        return answer

    def _look(self, ask: Ask, requests: tuple[Request, ...]) -> Found | None:
        return find(self.cells, ask.tenant, ask.pin, requests)

    def _lower(self, ask: Ask) -> list[str]:
        """Name those of the tenant who yield: reservations first, then by priority."""
        names = [
            name
            for name, gang in self.gangs.items()
            if gang.taken
            and gang.held.gang != ask.gang
            and (gang.held.tenant, gang.held.pin) == (ask.tenant, ask.pin)
            and gang.held.priority < ask.priority
        ]
        return sorted(
            names, key=lambda n: (not self.gangs[n].reserved, self.gangs[n].held.priority, n)
        )

    def _send_away(self, name: str) -> None:
        """Who agrees to stay without a guarantee stays as a borrower."""
        gang = self.gangs[name]
        self._give(gang)
        if not gang.reserved:
            if name not in self.ids:
                self.ids.append(name)
            job = JobId(self.ids.index(name))
            slots = [_slot(task) for task in gang.taken]
            self.cells.lend(job, slots, [_need(task) for task in gang.taken])

    def _bring_back(self, name: str) -> None:
        gang = self.gangs[name]
        if not gang.reserved:
            job = JobId(self.ids.index(name))
            slots = [_slot(task) for task in gang.taken]
            self.cells.call_in(job, slots, [_need(task) for task in gang.taken])
        self._take(gang.held, gang.taken)

    def _found(self, found: Found, gone: Sequence[str]) -> Placed:
        many = len(found.quota) > 1
        tasks = tuple(
            Task(slot.node, slot.devices, found.quota[at if many else 0])
            for at, slot in enumerate(found.slots)
        )
        sent = {self.ids[job] for job in found.borrowers}
        running = {name for name in gone if not self.gangs[name].reserved}
        lazy = {name for name in running if self.gangs[name].held.lazy}
        return Placed(
            tasks, tuple(sorted(sent | (running - lazy))), demoted=tuple(sorted(lazy))
        )

    # ── afterwards ──────────────────────────────────────────────────────────────────────

    def settle(self, ask: Ask, answer: Answer) -> list[str]:
        if not isinstance(answer, Placed):
            return list(flaws(self.cells))
        wanted = geometry.leaves_of(answer.tasks)
        for name, gang in list(self.gangs.items()):
            overlaps = wanted & geometry.leaves_of(gang.taken)
            if gang.reserved and (gang.held.gang == ask.gang or overlaps):
                self._give(gang)
            elif name in answer.victims:
                self._give(gang)
                self._call_in(name)
            elif name in answer.demoted:
                self._send_away(name)
        held = Held(
            ask.gang, ask.tenant, ask.priority, ask.priority >= 0, answer.tasks, ask.pin
        )
        self._hold(held, set())
        return list(flaws(self.cells))

    def _call_in(self, name: str) -> None:
        gang = self.gangs[name]
        if gang.lent:
            slots = [_slot(task) for task in gang.lent]
            job = JobId(self.ids.index(name))
            self.cells.call_in(job, slots, [_need(task) for task in gang.lent])

    def recover(self, reported: tuple[Held, ...], bad: frozenset[NodeId]) -> frozenset[str]:
        self.load(Book(bad=bad))
        kept: set[str] = set()
        for held in sorted(reported, key=lambda each: (-each.priority, each.gang)):
            if held.guaranteed and held.tasks and self._fits(held):
                self._hold(held, set())
                kept.add(held.gang)
        return frozenset(kept)

    def _fits(self, held: Held) -> bool:
        """Tell whether a gang may keep its guarantee where it runs."""
        chains = self.cluster.chains
        for task in held.tasks:
            spot = geometry.spots_of(self.cluster, task)[0]
            if task.cell not in chains[spot.chain].names:
                return False
        bound = geometry.bound_by(self.cluster, held.tenant, held.pin, held.tasks)
        known = {
            each
            for gang in self.gangs.values()
            for each in geometry.bound_by(
                self.cluster, gang.held.tenant, gang.held.pin, gang.taken
            )
        }
        every = bound | known | geometry.bound_in(self.cluster, Book())
        return held.tenant in self.cluster.owed and not geometry.broken_shares(
            self.cluster, every
        )


def _amount(devices: int) -> Resources:
    """What a task of so many devices needs: just their share of the host."""
    return Resources(
        gpu_milli=1000 * devices, cpu_milli=CPU_MILLI * devices, memory=MEMORY * devices
    )


def _need(task: Task) -> Resources:
    return _amount(len(task.devices))


def _slot(task: Task) -> Slot:
    return Slot(task.node, task.devices, 1000 * len(task.devices))
