"""A scratch change of the live books that undoes itself, exactly.

    with Trial(cluster) as trial:
        trial.drop(…); trial.hold(…)
    # everything is as it was

Savepoints nest: `mark` and `rollback` undo a part. Deciding on the live state this way
costs what is changed, where a copy would cost what exists.
"""

from collections.abc import Callable, Sequence
from functools import partial
from types import TracebackType

from allotment.core.cluster import Cluster
from allotment.core.gang import Gang, ReservedPlace
from allotment.core.request import lease_part
from allotment.model.health import WHOLE
from allotment.model.ids import JobId, NodeId
from allotment.model.ledger import OPPORTUNISTIC, Slot
from allotment.model.quantity import NOTHING, Resources


class Trial:
    """What-if on a cluster: drop, hold, scale down, demote, reserve, and take it all back."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self._undo: list[Callable[[], object]] = []
        self._away: dict[JobId, Gang] = {}
        """Gangs that are thought away: they may have promises."""
        self.version = cluster.ledger.version
        """The version of the books before anything was tried."""

    def __enter__(self) -> "Trial":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.rollback(0)
        self.cluster.ledger.version = self.version

    def mark(self) -> int:
        """Remember this point for `rollback`."""
        return len(self._undo)

    def rollback(self, mark: int) -> None:
        """Undo everything since the mark, newest first."""
        while len(self._undo) > mark:
            self._undo.pop()()

    # ── what can be tried ───────────────────────────────────────────────────────────────

    def hold(self, slots: tuple[Slot, ...], needs: tuple[Resources, ...]) -> None:
        """Take slots on the ledger, whether they are free or not."""
        ledger = self.cluster.ledger
        ledger.take(slots, needs)
        self._undo.append(lambda: ledger.give(slots, needs))

    def fits(self, slots: tuple[Slot, ...], needs: tuple[Resources, ...]) -> bool:
        """Whether slots are free now."""
        mark = self.mark()
        self.hold(slots, needs)
        free = self.cluster.ledger.settled(slots)
        self.rollback(mark)
        return free

    def drop(self, job: JobId) -> Gang:
        """Let a gang be gone."""
        gang = self.cluster.drop(job)
        self._away[job] = gang
        self._undo.append(lambda: self._put_back(gang))
        return gang

    def let_part(self, job: JobId) -> None:
        """Let what a shrinking gang gives up be gone."""
        surplus = self.cluster.parted(job)
        self._undo.append(lambda: self.cluster.add(surplus))

    def scale_down(self, gang: Gang, tasks: int) -> None:
        """Let a gang have its first so many tasks only."""
        self.drop(gang.id)
        self.restore(gang.of_size(tasks))

    def let_all_part(self) -> bool:
        """Let all that shrinking gangs give up be gone; return whether there was any."""
        parting = sorted(self.cluster.placed.parting)
        for job in parting:
            self.let_part(job)
        return bool(parting)

    def scale_all_down(self, shed: Sequence[tuple[JobId, int]]) -> None:
        """Let gangs have so many tasks only, and what others give up already be gone."""
        for job, tasks in shed:
            self.scale_down(self.cluster.gangs[job], tasks)
        self.let_all_part()

    def carry_out(
        self,
        evict: Sequence[JobId],
        revoke: Sequence[JobId],
        shrink: Sequence[tuple[JobId, int]],
    ) -> None:
        """Let gangs be gone, reserved places be given up, and elastic gangs be scaled down."""
        for job in revoke:
            self.unreserve(job)
        for job in evict:
            self.drop(job)
        self.scale_all_down(shrink)

    def part(self, gang: Gang, tasks: int) -> None:
        """Let a gang go on with so many tasks: the others are there as yet."""
        self.scale_down(gang, tasks)
        self.cluster.add(gang.surplus(tasks))
        self._undo.append(lambda: self.cluster.parted(gang.id))

    def restore(self, gang: Gang) -> None:
        """Bring a dropped gang back."""
        self._put_back(gang)
        self._undo.append(lambda: self.cluster.drop(gang.id))

    def demote(self, gang: Gang) -> None:
        before, quota = gang.entitlement, gang.quota
        self.cluster.entitle(gang, OPPORTUNISTIC)
        self._undo.append(lambda: self.cluster.entitle(gang, before, quota))

    def take_leases(self, gang: Gang) -> None:
        """Hold the leases of a suspended gang, without resuming it."""
        parts = tuple(lease_part(need) for need in gang.needs)
        self.cluster.ledger.take(gang.slots, parts)
        self._undo.append(lambda: self.cluster.ledger.give(gang.slots, parts))

    def reserve(self, place: ReservedPlace) -> None:
        """Record a promise whose slots are not taken yet."""
        self.cluster.reserve(place, self._away.get(place.job))
        self._undo.append(lambda: self.cluster.unreserve(place.job))

    def unreserve(self, job: JobId) -> None:
        place = self.cluster.unreserve(job)
        if place is not None:
            away = self._away.get(job)
            self._undo.append(lambda: self.cluster.reserve(place, away))

    def open_all(self) -> None:
        """Open closed nodes and mend broken devices, to ask what would fit if all were back."""
        ledger = self.cluster.ledger
        books = ledger.books
        closed = [n for n, book in books.items() if not book.open and WHOLE not in book.taken]
        broken = {node: book.bad for node, book in books.items() if book.bad - book.taken}
        for node in closed:
            self.cluster.set_open(node, True)
        for node, devices in broken.items():
            self.cluster.set_bad(node, devices & books[node].taken)
        self._undo.append(lambda: _close(self.cluster, closed, broken))

    def let_others_go(self) -> None:
        """Let what others use beside Allotment be free, to ask what would fit then."""
        cluster = self.cluster
        for node in sorted(cluster.ledger.shared):
            book = cluster.ledger.books[node]
            host, taken, bad, is_open = book.others, book.taken, book.bad, book.open
            if WHOLE in taken:
                cluster.set_open(node, True)
            cluster.set_bad(node, bad - taken)
            cluster.ledger.set_others(node, NOTHING, frozenset())
            self._undo.append(partial(_take_back, cluster, node, host, taken, bad, is_open))

    def _put_back(self, gang: Gang) -> None:
        self.cluster.add(gang)


def _take_back(
    cluster: Cluster,
    node: NodeId,
    host: Resources,
    taken: frozenset[int],
    bad: frozenset[int],
    is_open: bool,  # noqa: FBT001
) -> None:
    cluster.ledger.set_others(node, host, taken)
    cluster.set_bad(node, bad)
    if WHOLE in taken:
        cluster.set_open(node, is_open)


def _close(cluster: Cluster, nodes: list[NodeId], broken: dict[NodeId, frozenset[int]]) -> None:
    for node in nodes:
        cluster.set_open(node, False)
    for node, devices in broken.items():
        cluster.set_bad(node, devices)
