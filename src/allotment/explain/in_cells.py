"""Why a job waits where shares are cells, in words.

Nothing is said that does not hold: each sentence is the answer to a question put to the
book of cells, or to a trial on it.
"""

from collections.abc import Callable

from allotment.core.cells.search import find
from allotment.core.cluster import Cluster
from allotment.core.own_cells import book_of, guaranteed_place
from allotment.core.plan import Evict
from allotment.core.request import Shape, total_of
from allotment.core.sharing import may_borrow
from allotment.core.trial import Trial
from allotment.explain.cell_shares import (
    chains_for,
    down_words,
    in_use_by,
    kept_words,
    leaves_of,
    need_words,
    room_for,
    share_words,
)
from allotment.explain.cell_words import listed, owned
from allotment.explain.mended import mend_all
from allotment.explain.question import Question
from allotment.model.ledger import Entitlement, Slot
from allotment.model.reasons import Blocked, Reason


def why_soon_in_cells(asked: Question) -> str:
    """Return how a job starts that nothing keeps."""
    if asked.entitled is not Entitlement.GUARANTEED:
        return "it borrows what is idle"
    if not isinstance(asked.place, Evict):
        return "it starts"
    nodes = _nodes(asked.cluster, asked.place.place.slots)
    return f"it reclaims its place on {nodes} from borrowers"


# ── hardware ────────────────────────────────────────────────────────────────────────────


def fits_mended_cells(
    cluster: Cluster, shape: Shape, mend: Callable[[Trial], None] = mend_all
) -> bool:
    """Whether a job without a place would have one if all hardware were up."""
    cells = book_of(cluster)
    if guaranteed_place(cluster, shape) is not None:
        return False  # What it needs beside its cells others keep.
    if not any(space.broken for space in cells.spaces):
        return False
    with Trial(cluster) as trial:
        mend(trial)
        # Not `guaranteed_place`: what holds only in a trial is not to be remembered.
        if not shape.opportunistic and find(cells, shape.tenant, shape.pin, shape.requests):
            return True
        return (
            may_borrow(cluster, shape)
            and cluster.guarantee.idle_place(shape.requests) is not None
        )


def why_mended_cells(cluster: Cluster, shape: Shape) -> Blocked:
    """Name the hardware that is missing."""
    message = f"{need_words(cluster, shape)} {share_words(cluster, shape)}"
    if not may_borrow(cluster, shape) and (kept := kept_words(cluster, shape)):
        message += f" {kept}"
    return Blocked(
        Reason.NODES_UNAVAILABLE,
        f"It would fit if all hardware were up. {message}",
        hint=f"Out of use are {down_words(cluster, shape)}. See `allot nodes`.",
    )


# ── its own share ───────────────────────────────────────────────────────────────────────


def why_never_in_cells(cluster: Cluster, shape: Shape) -> Blocked:
    """Report that a job is too large for what its tenant owns, and may not go beyond."""
    have = owned(book_of(cluster), shape.tenant, shape.pin)
    whose = f"the pinned cell {shape.pin}" if shape.pin else f"tenant {shape.tenant}"
    if shape.opportunistic:
        own = "It runs only on idle resources"
    elif have:
        own = f"It is larger than the cells that {whose} has now ({have})"
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


def why_no_right_in_cells(cluster: Cluster, shape: Shape) -> Blocked:
    """Report how the cells of its tenant stand, which alone it may have."""
    message = " ".join(
        (need_words(cluster, shape), share_words(cluster, shape), _may_not(cluster, shape))
    )
    if not _fits_without_own(cluster, shape):
        return Blocked(
            Reason.CAPACITY,
            f"{message} Even without jobs of its own tenant, too little lies together: "
            "cells of other tenants lie between its own.",
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
    return "The policy in force allows no borrowing."


def why_no_cells(asked: Question) -> Blocked:
    """Report what others hold of what it needs: beside its own cells, or of what is idle."""
    cluster, shape = asked.cluster, asked.asking.shape
    found = guaranteed_place(cluster, shape)
    if found is None or asked.entitled is not Entitlement.GUARANTEED:
        return _nothing_idle(cluster, shape)
    return Blocked(
        Reason.CAPACITY,
        f"Its tenant's cells have room for it on {_nodes(cluster, found.slots)}, but other "
        "jobs, also suspended ones, keep too much of the CPU, memory, disk or device memory "
        "there.",
    )


def _nodes(cluster: Cluster, slots: tuple[Slot, ...]) -> str:
    return listed(list(dict.fromkeys(cluster.nodes[slot.node].name for slot in slots)))


def _nothing_idle(cluster: Cluster, shape: Shape) -> Blocked:
    """Report what is idle, for which it waits as for its own tenant's jobs."""
    cells = book_of(cluster)
    chains = chains_for(cells, shape)
    own = f"{need_words(cluster, shape)} {_why_borrow(cluster, shape)}"
    idle = {at: sum(m.bit_count() for m in cells.uses[at].idle.leaves) for at in chains}
    there = listed([f"{n:,} {cells.chains[at].names[0]}" for at, n in idle.items() if n])
    wanted = leaves_of(shape)
    if wanted:
        in_sum = max(idle.values()) >= wanted
    else:
        in_sum = total_of(shape.requests).fits_in(cluster.ledger.free())
    if in_sum:
        return Blocked(
            Reason.FRAGMENTED,
            f"{own} Enough is idle in sum ({there or 'CPU and memory'}), but not together, "
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
        return "It runs only on idle resources."
    if cluster.guarantee.could_fit(shape):
        return share_words(cluster, shape)
    have = owned(book_of(cluster), shape.tenant, "")
    if not have:
        return "Its tenant owns no cells, so it can only borrow."
    return f"It is larger than its tenant's cells ({have}), so it can only borrow."
