"""Why jobs waited, of five causes. docs/metrics.md says exactly what goes to which.

Nothing is looked at while jobs wait. For each number of devices ever asked for, the time is
added up during which fewer were free; a job's part of it is the difference between its
being eligible and its not being so.
"""

from collections import defaultdict
from heapq import heappop, heappush
from weakref import WeakValueDictionary

from msgspec.structs import astuple

from allotment.metrics.devices import wanted_by
from allotment.metrics.fold import FINISHED, Handlers
from allotment.metrics.jobs import JobOutcome, Jobs
from allotment.metrics.rights import Room
from allotment.metrics.shortage import Shortage
from allotment.metrics.summary import WaitParts
from allotment.metrics.usage import Usage
from allotment.metrics.waiting import Array, Ask, Queue, Share, Waits
from allotment.model import events as e
from allotment.model.dependencies import choices
from allotment.model.quantity import SECOND, Instant
from allotment.model.spec import Dependency, JobSpec


class WaitCauses:
    """Splits the time that eligible jobs wait. `usage` and `jobs` belong to the same `Folds`.

    O(log n) an event at most; a tenant whose jobs may not borrow costs O(1) an instant, and
    so do each user whose tenant caps users, and each queue with a limit.
    """

    def __init__(self, usage: Usage, jobs: Jobs) -> None:
        self._usage = usage
        self._jobs = jobs
        self._at = Instant(0)
        self._asks: dict[int, Ask] = {}
        self._shares: defaultdict[str, Share] = defaultdict(Share)
        self._rooms: list[Room] = []
        self._owner = ""
        self._free = Shortage(usage.free_milli())
        self._backoffs: list[tuple[Instant, int]] = []
        self._after: dict[int, list[tuple[Ask, Dependency, list[bool]]]] = {}
        """The jobs that wait for a job, and whether what each waits for was met already."""
        """Jobs that wait for a job to end."""
        self._arrays: WeakValueDictionary[int, Array] = WeakValueDictionary()
        """Capped ones, by their first job, while any member is unfinished."""
        self._waits: dict[str, Waits] = {}

    def by_tenant(self) -> dict[str, WaitParts]:
        """Return the waits of completed jobs, for each tenant of the rows."""
        return {
            tenant: WaitParts(*(ms / SECOND for ms in astuple(waits)))
            for tenant, waits in self._waits.items()
        }

    def owned_by(self, user: str) -> None:
        """Take note whose the job is whose submission comes next."""
        self._owner = user

    def handlers(self) -> Handlers:
        """Return the methods by the kind of event they take."""
        return {
            e.ConfigApplied: self._configured,
            e.NodesFound: self._configured,
            e.JobSubmitted: self._submitted,
            e.JobEdited: self._edited,
            e.JobHeld: self._held,
            e.JobReleased: self._released,
            e.JobRequeued: self._requeued,
            e.AttemptPlaced: self._placed,
            e.AttemptPromoted: self._promoted,
            e.AttemptSuspended: self._gave_up,
            e.AttemptResumed: self._took_again,
            e.AttemptShrunk: self._shrunk,
            e.AttemptEnded: self._ended,
            **dict.fromkeys(FINISHED, self._finished),
        }

    def pass_to(self, at: Instant) -> None:
        """Take note that nothing changed until `at`, but that back-offs ended."""
        then, free = self._at, self._usage.free_milli()
        self._at = at
        if free != self._free.level:
            self._free.change(free, then)
        for room in self._rooms:
            room.settle(free, then)
        while self._backoffs and self._backoffs[0][0] <= at:
            due, job = heappop(self._backoffs)
            ask = self._asks.get(job)
            if ask is not None:
                self._unhinder(ask, due)

    # ── events ──────────────────────────────────────────────────────────────────────────

    def _configured(self, at: Instant, event: e.ConfigApplied) -> None:
        for tenant in event.config.tenants:
            share = self._shares[tenant.name]
            if share.set_up(tenant):
                self._bound_anew(share, at)

    def _bound_anew(self, share: Share, at: Instant) -> None:
        """Let the jobs of a tenant wait for what bounds them now. O(unfinished jobs)."""
        self._rooms = [room for room in self._rooms if room.of is not share]
        for ask in self._asks.values():
            if ask.share is share:
                lined_up = ask.eligible
                if lined_up:
                    self._leave(ask, at)
                ask.count_under(share.caps(ask.queue.name, ask.user.name))
                self._bound(ask)
                if lined_up:
                    self._join(ask, at)

    def _submitted(self, at: Instant, event: e.JobSubmitted) -> None:
        ask = self._asks[event.job] = self._ask(event.job, event.spec, self._owner)
        ask.out_since = at
        array = event.spec.array
        if array is not None and array.max_running:
            ask.array = self._arrays.setdefault(array.parent, Array(array.max_running))
        if event.held:
            ask.hindrances += 1
        for choice in choices(event.spec.depends_on) if event.spec.depends_on else ():
            unfinished = [need for need in choice if need.job in self._asks]
            ask.hindrances += bool(unfinished)
            met: list[bool] = []
            for need in unfinished:
                self._after.setdefault(need.job, []).append((ask, need, met))
        self._line_up(ask, at)

    def _edited(self, at: Instant, event: e.JobEdited) -> None:
        """A job that asks for something else begins a new wait; the old one is counted."""
        ask = self._asks.get(event.job)
        if ask is None:
            return
        self._step_out(ask, at)
        new = self._ask(event.job, event.spec, ask.user.name)
        ask.count_under(new.caps)
        ask.need, ask.loose, ask.priority = new.need, new.loose, new.priority
        ask.share, ask.queue, ask.user = new.share, new.queue, new.user
        ask.enough, ask.right, ask.waits_for = new.enough, new.right, new.waits_for
        ask.borrows = new.borrows
        self._line_up(ask, at)

    def _held(self, at: Instant, event: e.JobHeld) -> None:
        ask = self._asks.get(event.job)
        if ask is not None:
            self._step_out(ask, at)
            ask.hindrances += 1

    def _released(self, at: Instant, event: e.JobReleased) -> None:
        ask = self._asks.get(event.job)
        if ask is not None:
            self._unhinder(ask, at)

    def _requeued(self, at: Instant, event: e.JobRequeued) -> None:
        ask = self._asks.get(event.job)
        if ask is None:
            return
        ask.queued = True
        ask.out_since = at
        if ask.waits_for >= 0:
            ask.need = ask.waits_for
        if event.not_before > at:
            ask.hindrances += 1
            heappush(self._backoffs, (event.not_before, ask.job))
        self._line_up(ask, at)

    def _placed(self, at: Instant, event: e.AttemptPlaced) -> None:
        ask = self._asks.get(event.job)
        if ask is None:
            return
        if ask.eligible:
            self._leave(ask, at)
        elif at > ask.out_since:
            ask.waits().own += at - ask.out_since
        ask.queued = False
        if ask.row is None:
            ask.row = self._jobs.row(event.job)
        if ask.waits_for >= 0:
            ask.parts = tuple(slot.gpu_milli for slot in event.slots)
            ask.need = sum(ask.parts)
        ask.take(event.entitlement)
        ask.place(1)

    def _promoted(self, at: Instant, event: e.AttemptPromoted) -> None:
        ask = self._asks.get(event.job)
        if ask is not None and ask.holds and not ask.owns:
            ask.owns = True
            ask.share.used += ask.need

    def _took_again(self, at: Instant, event: e.AttemptResumed) -> None:
        ask = self._asks.get(event.job)
        if ask is None or ask.holds:
            return
        ask.take(event.entitlement)

    def _gave_up(self, at: Instant, event: e.AttemptEvent) -> None:
        ask = self._asks.get(event.job)
        if ask is not None and ask.holds:
            ask.holds = False
            ask.hold(-ask.need)

    def _shrunk(self, at: Instant, event: e.AttemptShrunk) -> None:
        ask = self._asks.get(event.job)
        if ask is None:
            return
        less = sum(ask.parts[event.tasks :])
        ask.parts = ask.parts[: event.tasks]
        ask.need -= less
        if ask.holds:
            ask.hold(-less)

    def _ended(self, at: Instant, event: e.AttemptEnded) -> None:
        ask = self._asks.get(event.job)
        if ask is None:
            return
        if ask.holds:
            ask.holds = False
            ask.hold(-ask.need)
        if ask.placed:
            ask.place(-1)
        if ask.array is not None:
            self._step_out(ask, at)

    def _finished(self, at: Instant, event: e.JobEvent) -> None:
        ask = self._asks.pop(event.job, None)
        if ask is None:
            return
        if not ask.eligible and ask.queued and at > ask.out_since:
            ask.waits().own += at - ask.out_since
        if ask.eligible or ask.array is not None:
            self._step_out(ask, at)
        if type(event) is e.JobSucceeded and ask.waited is not None:
            self._count(ask.row, ask.waited)
        if event.job in self._after:
            for other, need, met in self._after.pop(event.job):
                does = not need.any_of or need.met_by(type(event) is e.JobSucceeded)
                if other.job in self._asks and does and not met:
                    met.append(True)
                    self._unhinder(other, at)

    def _count(self, row: JobOutcome | None, waited: Waits) -> None:
        """Add the waits of a job that succeeded to its tenant's, if it counts as completed."""
        if row is None or row.censored:
            return
        waits = self._waits.get(row.tenant)
        if waits is None:
            waits = self._waits[row.tenant] = Waits()
        waits.add(waited)

    # ── waiting ────────────────────────────────────────────────────────────────────────

    def _unhinder(self, ask: Ask, at: Instant) -> None:
        ask.hindrances -= 1
        self._line_up(ask, at)

    def _line_up(self, ask: Ask, at: Instant) -> None:
        """Let a job be eligible if nothing keeps it back."""
        if ask.queued and not ask.hindrances and (not ask.array or ask.array.lets_in(ask)):
            self._join(ask, at)

    def _step_out(self, ask: Ask, at: Instant) -> None:
        """Let a job be eligible no longer, if it was, and let the next of its array in."""
        if ask.eligible:
            self._leave(ask, at)
        if ask.array is not None:
            for other in ask.array.leave(ask.job):
                self._line_up(other, at)

    def _join(self, ask: Ask, at: Instant) -> None:
        if at > ask.out_since:
            ask.waits().own += at - ask.out_since
        ask.eligible = True
        ask.since = at
        ask.lacked = ask.enough.below(ask.need, at)
        if ask.right is not None:
            ask.lacked_right = ask.right.below(ask.need, at)
        queue = ask.queue
        if queue.watched and queue.join(ask):
            queue.hand_on(at)

    def _leave(self, ask: Ask, at: Instant) -> None:
        """Let a job be eligible no longer, and say what it waited for."""
        ask.eligible = False
        ask.out_since = at
        if ask.queue.first is ask:
            ask.queue.hand_on(at)
        wait = at - ask.since
        if not wait:
            return
        waited = ask.waits()
        lacked = ask.enough.below(ask.need, at) - ask.lacked
        rest = wait - lacked
        if ask.right is not None:
            lacked_right = ask.right.below(ask.need, at) - ask.lacked_right
            waited.quota += lacked_right
            lacked -= lacked_right
        waited.capacity += lacked
        if not ask.need:
            waited.capacity += rest
        elif ask.loose:
            waited.order += rest
        else:
            shape = rest if ask.queue.skips else ask.kept_as_first
            waited.shape += shape
            waited.order += rest - shape
        ask.kept_as_first = 0

    def _ask(self, job: int, spec: JobSpec, owner: str) -> Ask:
        share = self._shares[spec.tenant]
        queue = share.queues.get(spec.queue) or share.queue(spec.queue)
        user = share.users.get(owner) or share.user(owner)
        wanted = wanted_by(spec.roles)
        need, loose = wanted.milli, wanted.loose
        if not (loose or queue.skips or queue.watched):
            self._watch(queue)
        borrows = share.borrows and spec.preemptible
        ask = Ask(
            job, need, loose, spec.priority, share, queue, self._free, None, user, borrows
        )
        if wanted.varies:
            ask.waits_for = need
        if share.bounds_queues:
            ask.caps = share.caps(queue.name, user.name)
        if share.cap or not borrows or ask.caps:
            self._bound(ask)
        return ask

    def _watch(self, queue: Queue) -> None:
        """Begin to follow the first of a queue. O(unfinished jobs), once a queue."""
        queue.watched = True
        for ask in self._asks.values():
            if ask.eligible and ask.queue is queue:
                queue.join(ask)
        queue.hand_on(self._at)

    def _bound(self, ask: Ask) -> None:
        """Watch what limits a job beside the devices that are free, if anything does."""
        share, user = ask.share, ask.user if ask.share.cap and ask.need else None
        if user is None and ask.borrows and not ask.caps:
            ask.enough, ask.right = self._free, None
            return
        key = (ask.borrows, user.name if user else "", ask.caps)
        room = share.rooms.get(key)
        if room is None:
            free = self._usage.free_milli()
            room = share.rooms[key] = Room(share, user, ask.caps, free, borrows=ask.borrows)
            self._rooms.append(room)
        ask.enough, ask.right = room.both, room.right
