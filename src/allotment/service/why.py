"""Why a job waits, complete: what the engine knows about it, then what the books say."""

from collections.abc import Collection, Sequence
from heapq import nsmallest

import msgspec

from allotment.core.bounds import overtaken_words
from allotment.core.caps import charged_alike
from allotment.core.cluster import Cluster
from allotment.core.entitle import may_borrow
from allotment.core.explain import explain, explain_resume, judge
from allotment.core.free_of import free_for, types_wanted
from allotment.core.request import shape_of, total_of
from allotment.core.share_words import in_use_by, on_its_kind
from allotment.engine.records import JobRecord
from allotment.engine.state import State
from allotment.model.ids import JobId
from allotment.model.lifecycle import JobState
from allotment.model.quantity import Instant, show_millis
from allotment.model.reasons import Blocked, Holder, Reason
from allotment.model.spec import JobSpec

MOST_HOLDERS = 5

NOBODY_HOLDS = frozenset(
    {Reason.PENDING, Reason.BUDGET, Reason.QUEUE_STOPPED, Reason.NEVER_FITS_NOW}
)
"""Reasons that nobody's leaving would end."""


def why(state: State, job: JobRecord, now: Instant) -> Blocked | None:
    """Give the dominant reason why a job does not run; None when it does, or is over."""
    blocked = _reason(state, job, now)
    if blocked is None:
        return None
    said = (overtaken_words(state.cluster, job.id), state.foretelling.words(job))
    notes = tuple(words for words in said if words)
    if state.budgets.exist and blocked.reason is not Reason.BUDGET:
        notes = (*state.budgets.warnings(job.spec, job.owner.user, now), *notes)
    return msgspec.structs.replace(blocked, notes=notes) if notes else blocked


def _reason(state: State, job: JobRecord, now: Instant) -> Blocked | None:
    if job.state is JobState.SUSPENDED and job.attempts[-1].wants_resume:
        blocked = explain_resume(state.cluster, state.cluster.gangs[job.id], now)
        return _with_holders(state, job, blocked)
    if not job.state.waiting:
        return None
    own = _own_reason(state, job, now)
    if own is not None:
        return own
    if job.id not in state.cluster.pending:
        return Blocked(Reason.PENDING, "Its turn comes in the next cycle.")
    blocked = explain(state.cluster, state.cluster.pending[job.id], now)
    return _with_holders(state, job, blocked)


def reason_of(state: State, job: JobRecord, now: Instant) -> Reason | None:
    """Give the reason alone, as for a line of a table: `why` without its sums and holders."""
    if job.state.waiting:
        if (own := _kept_out(state, job, now)) is not None:
            return own.reason
        waiting = state.cluster.pending
        if job.id in waiting:
            return judge(state.cluster, waiting[job.id], now).reason
    blocked = why(state, job, now)
    return blocked.reason if blocked else None


def _own_reason(state: State, job: JobRecord, now: Instant) -> Blocked | None:
    """Give the reason that keeps a job out of the line, if one does."""
    blocked = _kept_out(state, job, now)
    if blocked is None:
        return None
    requests = shape_of(job.spec).requests
    return msgspec.structs.replace(
        blocked, need=total_of(requests), free=free_for(state.cluster, requests)
    )


def _kept_out(state: State, job: JobRecord, now: Instant) -> Blocked | None:
    """Say what keeps a job out of the line, if anything does, without any sums."""
    if job.state is JobState.HELD:
        return Blocked(
            Reason.HELD, "It is held.", hint=f"To let it go: `allot release {job.id}`."
        )
    unmet = state.unmet(job)
    if unmet:
        return _after(state, unmet)
    if job.not_before > now:
        return Blocked(
            Reason.BACKOFF,
            f"Its last attempt failed; the next may start in "
            f"{show_millis(job.not_before - now)}.",
            until=job.not_before,
            hint=f"For what went wrong: `allot show {job.id}`.",
        )
    if state.array_full(job) and job.spec.array is not None:
        return Blocked(
            Reason.ARRAY_CAP,
            f"Its array runs at most {job.spec.array.max_running} jobs at a time.",
        )
    return None


def after_others(state: State, spec: JobSpec) -> Blocked | None:
    """Say what a job that is no more than asked for would depend on, if on anything."""
    alive = [d.job for d in spec.depends_on if not state.jobs[d.job].state.finished]
    return _after(state, alive) if alive else None


def _after(state: State, unmet: Sequence[JobId]) -> Blocked:
    names = ", ".join(f"{other} ({state.jobs[other].state.value})" for other in unmet[:5])
    return Blocked(Reason.DEPENDENCY, f"It starts after job {names}.")


def _with_holders(state: State, job: JobRecord, blocked: Blocked) -> Blocked:
    """Add who holds what it waits for: those on their way out, or the largest holders."""
    reservation = state.cluster.reservations.get(job.id)
    if reservation is not None:
        holders = [victim for victim in reservation.victims if victim in state.cluster.gangs]
    elif blocked.reason in NOBODY_HOLDS:
        holders = []
    else:
        holders = _largest(state, job, _who_counts(state, job, blocked.reason))
    return Blocked(
        reason=blocked.reason,
        message=blocked.message,
        need=blocked.need,
        free=blocked.free,
        holders=tuple(_holder(state, holder) for holder in holders[:MOST_HOLDERS]),
        position=blocked.position,
        ahead=blocked.ahead,
        until=blocked.until,
        hint=blocked.hint,
    )


def _who_counts(state: State, job: JobRecord, reason: Reason) -> Collection[JobId] | None:
    """Say whose leaving could help; None where it is everybody's."""
    cluster, shape = state.cluster, state.cluster.shape_of(job.id)
    if reason in (Reason.USER_CAP, Reason.QUEUE_LIMIT):
        return charged_alike(cluster, shape)
    if cluster.cells is not None:
        borrows = may_borrow(cluster, shape)
        return (on_its_kind if borrows else in_use_by)(cluster, shape)
    if reason in (Reason.QUOTA, Reason.QUEUE_SHARE):
        return [gang.id for gang in cluster.gangs.values() if gang.tenant == shape.tenant]
    if types := types_wanted(cluster, shape.requests):
        type_of = cluster.ledger.type_of
        return [
            gang.id
            for gang in cluster.gangs.values()
            if any(type_of(s.node, index) in types for s in gang.slots for index in s.devices)
        ]
    return None


def _largest(state: State, job: JobRecord, jobs: Collection[JobId] | None) -> list[JobId]:
    """Name the largest holders, largest first."""
    cluster = state.cluster
    wants_devices = any(role.resources.gpu_milli for role in job.spec.roles)
    if jobs is None and wants_devices:
        return _largest_of_all(cluster, job.id)
    gangs = cluster.gangs
    sizes = (
        (-(held.gpu_milli if wants_devices else held.cpu_milli), gang.id)
        for other in (gangs if jobs is None else jobs)
        if (gang := gangs.get(other)) is not None and gang.id != job.id
        for held in (gang.held(),)
    )
    return [holder for size, holder in nsmallest(MOST_HOLDERS, sizes) if size]


def _largest_of_all(cluster: Cluster, besides: JobId) -> list[JobId]:
    """Name the gangs with the most devices. O(sizes + gangs of the largest sizes)."""
    found: list[JobId] = []
    for size in sorted(cluster.by_devices, reverse=True):
        if not size or len(found) >= MOST_HOLDERS:
            break
        alike = (gang for gang in cluster.by_devices[size] if gang != besides)
        found += nsmallest(MOST_HOLDERS, alike)
    return found[:MOST_HOLDERS]


def _holder(state: State, job_id: JobId) -> Holder:
    job, gang = state.jobs[job_id], state.cluster.gangs[job_id]
    return Holder(
        job_id, job.spec.name, gang.tenant, job.owner.user, gang.entitlement, gang.held()
    )
