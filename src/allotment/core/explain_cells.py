"""Why a job waits where shares are cells: the cycle's questions, asked for one job.

Nothing is said that does not hold: each sentence is the answer to a question put to the
book of cells, or to a trial on it.
"""

from allotment.core.caps import capped_out
from allotment.core.cells.search import Found, find
from allotment.core.cells.words import listed, owned
from allotment.core.cluster import Cluster
from allotment.core.conservative import beside_promises
from allotment.core.discipline import first_delayed
from allotment.core.entitle import due_of
from allotment.core.gang import Standing
from allotment.core.guarantee import guarantee_of, may_borrow
from allotment.core.head_of_line import discipline_of, promised_ahead
from allotment.core.owed import owed_place
from allotment.core.preemption.owner import clear_cells
from allotment.core.preemption.tenant import preempt_lower
from allotment.core.request import Shape, total_of
from allotment.core.share_words import (
    book_of,
    chains_for,
    down_words,
    in_use_by,
    leaves_of,
    need_words,
    room_for,
    share_words,
)
from allotment.core.trial import Trial
from allotment.model.ledger import Entitlement, Slot
from allotment.model.quantity import Instant
from allotment.model.reasons import Blocked, Reason
from allotment.model.tenancy import QueueOrder

NEXT = "in the next cycle"


def judge_in_cells(cluster: Cluster, waiting: Standing, now: Instant) -> Blocked:
    """Return the dominant reason why a job in line, with no place reserved, has not started."""
    shape = waiting.shape
    if not guarantee_of(cluster).ever_starts(shape):
        return _never(cluster, shape)
    if owed_place(cluster, shape) is not None:
        return _owed(cluster, waiting, now)
    borrows = may_borrow(cluster, shape)
    if borrows and guarantee_of(cluster).idle_place(shape.requests) is not None:
        return _behind(cluster, waiting, Entitlement.OPPORTUNISTIC, now) or Blocked(
            Reason.PENDING, f"Nothing is in its way; it borrows what is idle {NEXT}."
        )
    if preempt_lower(cluster, waiting, now) is not None:
        return _behind(cluster, waiting, Entitlement.GUARANTEED, now) or Blocked(
            Reason.PENDING, f"Less urgent jobs of its own tenant make way for it {NEXT}."
        )
    if _fits_when_mended(cluster, shape, borrows=borrows):
        return Blocked(
            Reason.NODES_UNAVAILABLE,
            f"It would fit if all hardware were up. {need_words(cluster, shape)} "
            f"{share_words(cluster, shape)}",
            hint=f"Down or drained: {down_words(cluster, shape)}. See `allot nodes`.",
        )
    if not borrows:
        return _own_share(cluster, shape)
    return _behind(cluster, waiting, Entitlement.OPPORTUNISTIC, now) or _nothing_idle(
        cluster, shape
    )


# ── it could start ──────────────────────────────────────────────────────────────────────


def _owed(cluster: Cluster, waiting: Standing, now: Instant) -> Blocked:
    """Its tenant's cells have room for it: say what else there is."""
    shape = waiting.shape
    found = owed_place(cluster, shape)
    assert found is not None, "it was found a moment ago"
    if (behind := _behind(cluster, waiting, Entitlement.GUARANTEED, now)) is not None:
        return behind
    if not found.borrowers and cluster.slots_free(found.slots, shape.requests):
        return Blocked(Reason.PENDING, f"Nothing is in its way; it starts {NEXT}.")
    nodes = listed(list(dict.fromkeys(cluster.nodes[s.node].name for s in found.slots)))
    if _may_be_cleared(cluster, shape, found, now):
        return Blocked(
            Reason.PENDING,
            f"Its tenant's cells have room for it on {nodes}; who borrows there is told to go "
            f"{NEXT}.",
        )
    return Blocked(
        Reason.CAPACITY,
        f"Its tenant's cells have room for it on {nodes}, but other jobs, suspended ones among "
        "them, keep too much of the CPU, memory, disk or device memory there.",
    )


def _behind(
    cluster: Cluster, waiting: Standing, grounds: Entitlement, now: Instant
) -> Blocked | None:
    """Name the first in its queue that holds it up, if one does."""
    shape = waiting.shape
    order = cluster.orders.of(shape)
    if order is QueueOrder.SKIP:
        return None
    head = next(
        (s for s in _ahead(cluster, waiting) if _closes(cluster, s, grounds, now)), None
    )
    if head is None:
        return None
    hint = f"See `allot why {head.id}`."
    if order is QueueOrder.STRICT:
        return Blocked(
            Reason.BEHIND,
            f"Job {head.id} is before it in queue {shape.queue}, which is first come, first "
            "served.",
            hint=hint,
        )
    conservative = order is QueueOrder.CONSERVATIVE
    heads = promised_ahead(cluster, waiting, grounds) if conservative else [head]
    if not heads:
        return None
    made = discipline_of(cluster, heads[0], now, grounds)
    ahead = first_delayed(made, heads, waiting, lambda job: _place(cluster, job.shape, grounds))
    if ahead is None:
        return None
    if conservative:
        return beside_promises(ahead, shape.queue)
    return Blocked(
        Reason.BEHIND,
        f"Job {head.id} is before it in queue {shape.queue}, and could start later if this "
        "one went first.",
        hint=hint,
    )


def _place(cluster: Cluster, shape: Shape, grounds: Entitlement) -> tuple[Slot, ...] | None:
    """Find a place for a gang on these grounds."""
    if grounds is Entitlement.OPPORTUNISTIC:
        return guarantee_of(cluster).idle_place(shape.requests)
    found = owed_place(cluster, shape)
    return None if found is None else found.slots


def _ahead(cluster: Cluster, waiting: Standing) -> list[Standing]:
    """Return the first job of every shape before this one in its queue that has no promise."""
    pending = cluster.pending
    found = [
        first
        for group in pending.ahead(waiting)
        if (first := next((s for s in group if s.id not in cluster.reserved), None))
    ]
    return sorted(found, key=lambda standing: pending.key(standing.id))


def _closes(cluster: Cluster, other: Standing, grounds: Entitlement, now: Instant) -> bool:
    """Whether a job that cannot start holds up those behind it that are due alike."""
    shape = other.shape
    if capped_out(cluster, shape) or not guarantee_of(cluster).ever_starts(shape):
        return False
    with cluster.fenced(shape, now):
        return _cannot_start(cluster, shape, grounds, now)


def _cannot_start(cluster: Cluster, shape: Shape, grounds: Entitlement, now: Instant) -> bool:
    """Whether a gang holds its queue up, as the books are now."""
    due = due_of(cluster, shape)
    if grounds is Entitlement.OPPORTUNISTIC:
        return due is grounds and guarantee_of(cluster).idle_place(shape.requests) is None
    if due is not grounds:
        return guarantee_of(cluster).could_fit(shape)
    found = owed_place(cluster, shape)
    if found is None or (
        not found.borrowers and cluster.slots_free(found.slots, shape.requests)
    ):
        return False
    return not _may_be_cleared(cluster, shape, found, now)


def _may_be_cleared(cluster: Cluster, shape: Shape, found: Found, now: Instant) -> bool:
    """Whether borrowers that leave make enough room at a place."""
    with Trial(cluster) as trial:
        return clear_cells(trial, shape, found, now) is not None


# ── hardware ────────────────────────────────────────────────────────────────────────────


def _fits_when_mended(cluster: Cluster, shape: Shape, *, borrows: bool) -> bool:
    """Whether it would have a place if all hardware were up, and all jobs as they are."""
    cells = book_of(cluster)
    if not any(space.broken for space in cells.spaces):
        return False
    with Trial(cluster) as trial:
        trial.open_all()
        # Not `owed_place`: what holds only in a trial is not to be remembered.
        if not shape.opportunistic and find(cells, shape.tenant, shape.pin, shape.requests):
            return True
        return borrows and guarantee_of(cluster).idle_place(shape.requests) is not None


# ── its own share ───────────────────────────────────────────────────────────────────────


def _never(cluster: Cluster, shape: Shape) -> Blocked:
    have = owned(book_of(cluster), shape.tenant, shape.pin)
    whose = f"the pinned cell {shape.pin}" if shape.pin else f"tenant {shape.tenant}"
    if shape.opportunistic:
        own = "It runs only on what is idle"
    elif have:
        own = f"It is larger than what {whose} owns now ({have})"
    else:
        own = (
            "Its pinned cell is gone"
            if shape.pin
            else f"Tenant {shape.tenant} owns no cells now"
        )
    if may_borrow(cluster, shape):
        beyond = "the whole cluster has no room for it"
    else:
        beyond = "with `pin` it runs nowhere else" if shape.pin else "it may not borrow"
    return Blocked(
        Reason.NEVER_FITS_NOW,
        f"{own}, and {beyond}.",
        hint="Change the job (allot edit) or ask the administrator for more.",
    )


def _own_share(cluster: Cluster, shape: Shape) -> Blocked:
    """It waits for its own tenant alone."""
    if shape.tenant not in cluster.tenants:
        return Blocked(
            Reason.QUOTA,
            f"Tenant {shape.tenant} is no longer in the configuration.",
            hint="Move the job: allot edit JOB --set tenant=NAME.",
        )
    message = " ".join(
        (need_words(cluster, shape), share_words(cluster, shape), _may_not(cluster, shape))
    )
    if not _fits_without_own(cluster, shape):
        return Blocked(
            Reason.CAPACITY,
            f"{message} Even without them nothing lies together as it needs: what other "
            "tenants have of their own is in between.",
        )
    if room_for(cluster, shape) >= leaves_of(shape) > 0:
        return Blocked(
            Reason.FRAGMENTED,
            f"Enough is free in its tenant's cells in sum, but not together. {message}",
            hint="Smaller tasks (fewer devices each) would fit sooner.",
        )
    return Blocked(Reason.QUOTA, message, hint="It starts when jobs of the same tenant end.")


def _fits_without_own(cluster: Cluster, shape: Shape) -> bool:
    """Whether it would fit now if all jobs of its tenant in such cells were gone."""
    with Trial(cluster) as trial:
        for job in in_use_by(cluster, shape):
            trial.unreserve(job)
            if job in cluster.gangs:
                trial.drop(job)
        found = find(book_of(cluster), shape.tenant, shape.pin, shape.requests)
        return found is not None


def _may_not(cluster: Cluster, shape: Shape) -> str:
    tenant = cluster.tenants[shape.tenant]
    if shape.pin:
        return "With `pin` it runs nowhere else."
    if not tenant.borrow:
        return "The tenant may not borrow."
    if not shape.preemptible:
        return "This job may not be preempted, so it may not borrow."
    return "Nobody may borrow under the policy in force."


def _nothing_idle(cluster: Cluster, shape: Shape) -> Blocked:
    """It waits for whoever comes first: its own tenant's jobs, or others on idle cells."""
    cells = book_of(cluster)
    chains = chains_for(cells, shape)
    own = f"{need_words(cluster, shape)} {_why_borrow(cluster, shape)}"
    idle = {at: sum(m.bit_count() for m in cells.idle[at].leaves) for at in chains}
    there = listed([f"{n:,} {cells.chains[at].names[0]}" for at, n in idle.items() if n])
    wanted = leaves_of(shape)
    if wanted:
        in_sum = max(idle.values()) >= wanted
    else:
        in_sum = total_of(shape.requests).fits_in(cluster.ledger.free())
    if in_sum:
        return Blocked(
            Reason.FRAGMENTED,
            f"{own} Enough is idle in sum ({there or 'CPU and memory'}), but not together and "
            "with the CPU and memory that it needs.",
            hint="Smaller tasks (fewer devices or less memory each) would fit sooner.",
        )
    return Blocked(
        Reason.CAPACITY,
        f"{own} Too little is idle to borrow: {there or 'nothing'}.",
    )


def _why_borrow(cluster: Cluster, shape: Shape) -> str:
    """Return why it does not start in its tenant's own cells."""
    if shape.opportunistic:
        return "It runs only on what is idle."
    if guarantee_of(cluster).could_fit(shape):
        return share_words(cluster, shape)
    have = owned(book_of(cluster), shape.tenant, "")
    if not have:
        return "Its tenant owns no cells, so it can only borrow."
    return f"It is larger than what its tenant owns ({have}), so it can only borrow."
