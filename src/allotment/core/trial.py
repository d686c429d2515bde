"""A scratch change of the live books that undoes itself, exactly.

    with Trial(cluster) as trial:
        trial.drop(…); trial.hold(…)
    # everything is as it was

Savepoints nest: `mark` and `rollback` undo a part. Deciding on the live state this way
costs what is changed, where a copy would cost what exists.
"""

from collections.abc import Callable, Sequence

from allotment.core.cluster import Cluster
from allotment.core.gang import Gang, ReservedPlace
from allotment.model.ids import JobId, NodeId
from allotment.model.ledger import OPPORTUNISTIC, Slot
from allotment.model.quantity import Resources


class Trial:
    """What-if on a cluster: drop, hold, scale down, demote, reserve, and take it all back."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self._undo: list[Callable[[], object]] = []
        self._away: dict[JobId, Gang] = {}
        """Gangs that are thought away: they may have reserved places."""
        self.version = cluster.ledger.version
        """The version of the books before anything was tried."""

    def __enter__(self) -> "Trial":
        return self

    def __exit__(self, *_: object) -> None:
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
        self._undo.append(lambda: self.cluster.add(gang))
        return gang

    def suspend(self, gang: Gang) -> None:
        """Let a gang be gone but for what it keeps while it is suspended."""
        self.drop(gang.id)
        self.hold(gang.slots, gang.memory())

    def wake(self, gang: Gang) -> None:
        """Bring back a gang that was suspended in this trial."""
        self.cluster.ledger.give(gang.slots, gang.memory())
        self._undo.append(lambda: self.cluster.ledger.take(gang.slots, gang.memory()))
        self.restore(gang)

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
        """Let a gang continue with so many tasks: the others are still there."""
        self.scale_down(gang, tasks)
        self.cluster.add(gang.surplus(tasks))
        self._undo.append(lambda: self.cluster.parted(gang.id))

    def restore(self, gang: Gang) -> None:
        """Restore a dropped gang."""
        self.cluster.add(gang)
        self._undo.append(lambda: self.cluster.drop(gang.id))

    def demote(self, gang: Gang) -> None:
        before, quota = gang.entitlement, gang.quota
        self.cluster.entitle(gang, OPPORTUNISTIC)
        self._undo.append(lambda: self.cluster.entitle(gang, before, quota))

    def reserve(self, place: ReservedPlace) -> None:
        """Record a reserved place whose slots are not taken yet."""
        self.cluster.reserve(place, self._away.get(place.job))
        self._undo.append(lambda: self.cluster.unreserve(place.job))

    def unreserve(self, job: JobId) -> None:
        place = self.cluster.unreserve(job)
        if place is not None:
            away = self._away.get(job)
            self._undo.append(lambda: self.cluster.reserve(place, away))

    def open(self, node: NodeId) -> None:
        """Let a closed node take work."""
        self.cluster.set_open(node, True)
        self._undo.append(lambda: self.cluster.set_open(node, False))

    def set_bad(self, node: NodeId, devices: frozenset[int]) -> None:
        """Set which devices of a node are not to be used."""
        bad = self.cluster.ledger.books[node].bad
        self.cluster.set_bad(node, devices)
        self._undo.append(lambda: self.cluster.set_bad(node, bad))

    def set_others(self, node: NodeId, host: Resources, taken: frozenset[int]) -> None:
        """Set what others use of a node beside Allotment."""
        ledger = self.cluster.ledger
        was = ledger.books[node].others, ledger.books[node].taken
        ledger.set_others(node, host, taken)
        self._undo.append(lambda: ledger.set_others(node, *was))
