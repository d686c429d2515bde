"""What `WaitCauses` keeps of jobs, of their tenants, and of queues without overtaking."""

from heapq import heappop, heappush
from itertools import islice

import msgspec

from allotment.metrics.jobs import JobOutcome
from allotment.metrics.rights import Cap, Right, User
from allotment.metrics.shortage import Shortage
from allotment.model.ledger import GUARANTEED, Entitlement
from allotment.model.quantity import Instant
from allotment.model.tenancy import QueueOrder, Tenant


class Share(Right):
    """What a tenant has a right to, and its queues."""

    def __init__(self) -> None:
        super().__init__()
        self.queues: dict[str, Queue] = {}

    def set_up(self, tenant: Tenant) -> bool:
        """Take what the configuration says; return whether queues are bounded otherwise now."""
        for queue in tenant.queues:
            self.queue(queue.name).skips = queue.order is QueueOrder.SKIP
        return self.configure(tenant)

    def queue(self, name: str) -> "Queue":
        """Return one of its queues."""
        queue = self.queues.get(name)
        if queue is None:
            queue = self.queues[name] = Queue(name)
        return queue


class Waits(msgspec.Struct, gc=False):
    """Waiting time by cause, in ms."""

    own: int = 0
    quota: int = 0
    capacity: int = 0
    shape: int = 0
    order: int = 0

    def add(self, other: "Waits") -> None:
        """Add another's."""
        self.own += other.own
        self.quota += other.quota
        self.capacity += other.capacity
        self.shape += other.shape
        self.order += other.order


class Array:
    """A capped array: members eligible or placed, and those its cap keeps out, in order."""

    def __init__(self, cap: int) -> None:
        self._cap = cap
        self._inside: set[int] = set()
        self._outside: dict[int, Ask] = {}

    def lets_in(self, ask: "Ask") -> bool:
        """Let a member be eligible, or note that it waits for another to leave."""
        if ask.job not in self._inside and len(self._inside) >= self._cap:
            self._outside[ask.job] = ask
            return False
        self._inside.add(ask.job)
        return True

    def leave(self, job: int) -> "list[Ask]":
        """Take a member out; return those that may come in for it."""
        self._inside.discard(job)
        self._outside.pop(job, None)
        room = max(0, self._cap - len(self._inside))
        return [self._outside.pop(member) for member in list(islice(self._outside, room))]


class Ask(msgspec.Struct):
    """An unfinished job: what it asks for, in thousandths of a device, and since when."""

    job: int
    need: int
    loose: bool
    """Whether any free device will do for each of its tasks: nothing can be fragmented."""
    priority: int
    share: Share
    queue: "Queue"
    enough: Shortage
    """Tells when there was not enough for it, by whatever entitlement."""
    right: Shortage | None
    """Tells when it had no right to as much, by its tenant's share or its user's cap; None
    when it may borrow and there is no cap."""
    user: User
    borrows: bool
    """Whether it may hold more than its tenant is guaranteed."""
    caps: tuple[Cap, ...] = ()
    """Of its queue and those around it."""
    waits_for: int = -1
    """What it needs while it waits, if it may hold more; else -1."""
    parts: tuple[int, ...] = ()
    """What each of its tasks holds, if their number may vary."""
    array: Array | None = None
    """None unless it is a member of a capped one."""
    hindrances: int = 0
    """What keeps it back, beside its array: a hold, dependencies, a back-off."""
    queued: bool = True
    eligible: bool = False
    """Queued, and nothing keeps it back."""
    row: JobOutcome | None = None
    """Its row, once it was placed for the first time."""
    waited: Waits | None = None
    """None while it has not."""
    placed: bool = False
    """Whether it has a place now, whether it holds devices there (suspended it does not), and
    whether out of its tenant's right."""
    holds: bool = False
    owns: bool = False
    out_since: int = 0
    since: int = 0
    """Eligible since when, and how long there had not been enough by then."""
    lacked: int = 0
    lacked_right: int = 0
    first_since: int = 0
    """The same since it was the first of its queue."""
    lacked_first: int = 0
    kept_as_first: int = 0
    """Time it was the first of its queue, had enough, and was not placed."""

    def waits(self) -> Waits:
        """Return what it waited so far, to add to."""
        if self.waited is None:
            self.waited = Waits()
        return self.waited

    def take(self, entitlement: Entitlement) -> None:
        """Let it hold its devices, on its tenant's right or as a borrower."""
        self.holds = True
        self.owns = entitlement is GUARANTEED
        self.hold(self.need)

    def hold(self, more: int) -> None:
        """Count what it holds more than before, wherever that is limited."""
        self.user.held += more
        if self.owns:
            self.share.used += more
        for cap in self.caps:
            cap.held += more

    def place(self, more: int) -> None:
        """Count a place that it has now (+1), or gave up (-1)."""
        self.placed = more > 0
        for cap in self.caps:
            cap.jobs += more

    def count_under(self, caps: tuple[Cap, ...]) -> None:
        """Let it be counted under other caps of queues."""
        for sign, each in ((-1, self.caps), (1, caps)):
            for cap in each:
                cap.held += sign * self.need * self.holds
                cap.jobs += sign * self.placed
        self.caps = caps


class Queue:
    """A queue's waiting jobs; if none may overtake, the first is known. O(log n) a change."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.skips = False
        self.watched = False
        """Whether its first is known: not before a job comes to which it matters."""
        self.first: Ask | None = None
        """The one that all others wait for: by priority, then by submission."""
        self._heap: list[tuple[int, int, int, Ask]] = []
        self._joined = 0

    def join(self, ask: Ask) -> bool:
        """Add an eligible job. Tells whether another is first now."""
        self._joined += 1
        heappush(self._heap, (-ask.priority, ask.job, self._joined, ask))
        return self._heap[0][3] is not self.first

    def find_first(self) -> Ask | None:
        """Find the first now."""
        heap = self._heap
        while heap:
            priority, _, _, ask = heap[0]
            if ask.eligible and ask.queue is self and ask.priority == -priority:
                self.first = ask
                return ask
            heappop(heap)
        self.first = None
        return None

    def hand_on(self, at: Instant) -> None:
        """Pass the first place on; keep what the old one waited."""
        old, new = self.first, self.find_first()
        if old is not None and not old.loose:
            lacked = old.enough.below(old.need, at) - old.lacked_first
            old.kept_as_first += at - old.first_since - lacked
        if new is not None and not new.loose:
            new.first_since = at
            new.lacked_first = new.enough.below(new.need, at)
