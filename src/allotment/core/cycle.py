"""One scheduling cycle: the live books in, a plan out.

The stages are numbered as in docs/scheduling.md. The cycle works on the live state through
a trial, so that each decision sees those before it, and leaves the state as it found it.
"""

from allotment.core.cluster import MOST_MEMOS, Cluster
from allotment.core.gang import Gang, Reservation, Waiting
from allotment.core.plan import Decision, Evict, Place, Plan, Promote, Resume, Unreserve
from allotment.core.preemption import clear_leases, make_room
from allotment.core.request import Shape, held_by, lease_part, needs_of, total_of
from allotment.core.trial import Trial
from allotment.model.ledger import Entitlement, Placement, Slot
from allotment.model.quantity import NOTHING, Instant, Resources

GUARANTEED, OPPORTUNISTIC = Entitlement.GUARANTEED, Entitlement.OPPORTUNISTIC


def plan(cluster: Cluster, now: Instant, budget: int = 256) -> Plan:
    """Decide who starts, resumes, is promoted or must go; at most `budget` decisions."""
    with Trial(cluster) as trial:
        cycle = _Cycle(trial, now, budget)
        # 1. Promises: hand over places whose last holder left; drop those on closed nodes.
        cycle.keep_promises()
        # 2. Promote borrowers whose tenant has room in its guarantee again.
        cycle.promote()
        # 3. Suspended gangs that want to go on get their own devices first.
        cycle.resume()
        # 4. In order: what tenants are owed, by eviction of borrowers if need be.
        # 5. In order: what is left, to whoever may borrow.
        cycle.place_waiting()
        return Plan(tuple(cycle.decisions), cycle.complete)


class _Cycle:
    """The state of one pass."""

    def __init__(self, trial: Trial, now: Instant, budget: int) -> None:
        self.trial = trial
        self.cluster = trial.cluster
        self.now = now
        self.budget = budget
        self.decisions: list[Decision] = []
        self.complete = True

    def _spent(self) -> bool:
        if len(self.decisions) < self.budget:
            return False
        self.complete = False
        return True

    # ── 1 ───────────────────────────────────────────────────────────────────────────────

    def keep_promises(self) -> None:
        for _, reservation in sorted(self.cluster.reservations.items()):
            kept = self.cluster.slots_open(reservation.slots) and is_due(
                self.cluster, reservation
            )
            if not kept:
                self.trial.unreserve(reservation.job)
                self.decisions.append(Unreserve(reservation.job))
            elif self.cluster.ledger.settled(reservation.slots):
                self._hand_over(reservation)

    def _hand_over(self, reservation: Reservation) -> None:
        job = reservation.job
        self.trial.unreserve(job)
        gang = self.cluster.gangs.get(job)
        if gang is not None:
            self.trial.resume(gang, reservation.entitlement)
            self.decisions.append(Resume(job, reservation.entitlement, reserved=True))
            return
        waiting = self.cluster.pending[job]
        gang = gang_of(waiting, reservation.slots, reservation.entitlement, self.now)
        self.trial.restore(gang)
        placement = Placement(job, reservation.slots, reservation.entitlement)
        self.decisions.append(Place(placement, reserved=True))

    # ── 2 ───────────────────────────────────────────────────────────────────────────────

    def promote(self) -> None:
        for tenant, gangs in sorted(self.cluster.borrowers.items()):
            for gang in sorted(gangs.values(), key=lambda gang: (gang.placed_at, gang.id)):
                if gang.leaving or self._entitle(tenant, gang.held()) is not GUARANTEED:
                    continue
                self.trial.promote(gang)
                self.decisions.append(Promote(gang.id))

    # ── 3 ───────────────────────────────────────────────────────────────────────────────

    def resume(self) -> None:
        for _, gang in sorted(self.cluster.resuming.items()):
            if gang.id in self.cluster.reservations or gang.leaving:
                continue
            leases = tuple(lease_part(need) for need in gang.needs)
            entitlement = resume_entitlement(self.cluster, gang)
            if entitlement is None:
                continue
            if self._leases_free(gang):
                self.trial.resume(gang, entitlement)
                self.decisions.append(Resume(gang.id, entitlement))
            elif entitlement is GUARANTEED:
                room = clear_leases(self.trial, gang, _sum(leases), self.now)
                if room is not None:
                    self._evict(
                        Reservation(gang.id, gang.slots, leases, entitlement, room.victims)
                    )

    def _leases_free(self, gang: Gang) -> bool:
        mark = self.trial.mark()
        self.trial.take_leases(gang)
        free = self.cluster.ledger.settled(gang.slots)
        self.trial.rollback(mark)
        return free

    # ── 4 and 5 ─────────────────────────────────────────────────────────────────────────

    def place_waiting(self) -> None:
        """Walk the line once for what tenants are owed, and again for what may be borrowed."""
        if len(self.cluster.blocked) > MOST_MEMOS:
            self.cluster.blocked.clear()
        if self._walk(GUARANTEED) and not self._spent():
            self._walk(OPPORTUNISTIC)

    def _walk(self, entitlement: Entitlement) -> bool:
        """Serve waiting jobs of one entitlement in order; tell whether others were passed.

        All jobs of a shape have the same entitlement, and only its loss can come while we
        walk, so a shape is left out from its first job on that is not due or does not fit.
        """
        skip = self._skippable(entitlement)
        closed: set[tuple[str, str]] = set()
        others = False
        for waiting in self.cluster.pending.in_order(skip):
            if self._spent():
                return others
            shape = waiting.shape
            if waiting.id in self.cluster.reservations or waiting.id in self.cluster.gangs:
                continue
            due = self._entitle(shape.tenant, total_of(shape.requests), shape.preemptible)
            if due is not entitlement:
                others = others or due is OPPORTUNISTIC
                skip.add(shape)
            elif _line(shape) in closed:
                skip.add(shape)
            elif self._known_blocked(shape, entitlement) or not self._serve(
                waiting, entitlement
            ):
                skip.add(shape)
                self.cluster.blocked[shape, entitlement] = self.trial.version
                if self.cluster.is_strict(shape):
                    closed.add(_line(shape))
        return others

    def _known_blocked(self, shape: Shape, entitlement: Entitlement) -> bool:
        """Tell whether nothing has changed for this shape since it did not fit."""
        return self.cluster.blocked.get((shape, entitlement)) == self.trial.version

    def _skippable(self, entitlement: Entitlement) -> set[Shape]:
        """Give the known blocked shapes that nobody else has to queue behind."""
        return {
            shape
            for (shape, kind), seen in self.cluster.blocked.items()
            if kind is entitlement
            and seen == self.trial.version
            and not self.cluster.is_strict(shape)
        }

    def _serve(self, waiting: Waiting, entitlement: Entitlement) -> bool:
        requests = waiting.shape.requests
        slots = self.trial.find(requests)
        if slots is not None:
            self.trial.enter(gang_of(waiting, slots, entitlement, self.now))
            self.decisions.append(Place(Placement(waiting.id, slots, entitlement)))
            return True
        if entitlement is not GUARANTEED:
            return False
        room = make_room(self.trial, requests, total_of(requests), self.now)
        if room is None:
            return False
        self._evict(
            Reservation(waiting.id, room.slots, needs_of(requests), entitlement, room.victims)
        )
        return True

    def _evict(self, reservation: Reservation) -> None:
        tell = tuple(
            victim for victim in reservation.victims if not self.cluster.gangs[victim].leaving
        )
        for victim in tell:
            self.trial.mark_leaving(victim)
        self.trial.reserve(reservation)
        self.decisions.append(Evict(reservation, tell))

    def _entitle(
        self, tenant_name: str, need: Resources, preemptible: bool = True
    ) -> Entitlement | None:
        return entitle(self.cluster, tenant_name, need, preemptible=preemptible)


def _line(shape: Shape) -> tuple[str, str]:
    return (shape.tenant, shape.queue)


def entitle(
    cluster: Cluster, tenant_name: str, need: Resources, *, preemptible: bool
) -> Entitlement | None:
    """Ask the sharing policy on what grounds a tenant may have `need` more now."""
    tenant = cluster.tenants.get(tenant_name)
    if tenant is None:
        return None
    used = cluster.guaranteed_use.get(tenant_name, NOTHING)
    if cluster.reservations:
        used += cluster.reserved_use(tenant_name)
    return cluster.policies.sharing.entitle(need, used, tenant, preemptible=preemptible)


def is_due(cluster: Cluster, reservation: Reservation) -> bool:
    """Tell whether a promise is still within its tenant's guarantee, which may have shrunk."""
    name = cluster.tenant_of(reservation.job)
    tenant = cluster.tenants.get(name)
    if tenant is None:
        return False
    used = cluster.guaranteed_use.get(name, NOTHING)
    used += cluster.reserved_use(name, besides=reservation.job)
    need = _sum(reservation.needs)
    gang = cluster.gangs.get(reservation.job)
    if gang is not None and gang.entitlement is OPPORTUNISTIC:
        need += gang.held()
    due = cluster.policies.sharing.entitle(need, used, tenant, preemptible=False)
    return due is reservation.entitlement


def resume_entitlement(cluster: Cluster, gang: Gang) -> Entitlement | None:
    """Say on what grounds a suspended gang may go on; what it kept counts already."""
    leases = _sum(tuple(lease_part(need) for need in gang.needs))
    if gang.entitlement is OPPORTUNISTIC:
        leases += gang.held()
    return entitle(cluster, gang.tenant, leases, preemptible=gang.preemptible)


def _sum(needs: tuple[Resources, ...]) -> Resources:
    total = NOTHING
    for need in needs:
        total += held_by(need)
    return total


def gang_of(
    waiting: Waiting, slots: tuple[Slot, ...], entitlement: Entitlement, now: Instant
) -> Gang:
    """Make the gang that a waiting job becomes once it is placed."""
    shape = waiting.shape
    return Gang(
        id=waiting.id,
        tenant=shape.tenant,
        priority=waiting.priority,
        requests=shape.requests,
        slots=slots,
        needs=needs_of(shape.requests),
        entitlement=entitlement,
        placed_at=now,
        preemptible=shape.preemptible,
        saved_at=now,
    )
