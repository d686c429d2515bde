"""Why a job waits, complete: what the engine knows about it, then what the books say."""

from collections.abc import Iterator, Sequence
from itertools import islice

import msgspec

from allotment.core.request import shape_of, total_of
from allotment.engine.pools import fits_when_grown
from allotment.engine.records import JobRecord
from allotment.engine.state import State
from allotment.engine.sweeps import awaits_proposal
from allotment.explain.free import borrowed_by, free_for
from allotment.explain.queues import overtaken_words
from allotment.explain.waiting import explain, explain_resume, judge
from allotment.model.ids import JobId
from allotment.model.lifecycle import JobState
from allotment.model.quantity import Instant, show_millis
from allotment.model.reasons import Blocked, Holder, Reason
from allotment.model.spec import JobSpec
from allotment.service.gain_words import beside_words
from allotment.service.holders import holders_of
from allotment.service.withheld import held_for_secrets


def why(state: State, job: JobRecord, now: Instant) -> Blocked | None:
    """Return the main reason why a job does not run; None when it runs, or is over."""
    blocked = _reason(state, job, now)
    if blocked is None:
        return None
    if (grown := waits_for_nodes(state, job.spec, blocked)) is not None:
        blocked = msgspec.structs.replace(grown, reason=blocked.reason)
    said = (overtaken_words(state.cluster, job.id), state.foretelling.words(job))
    notes = tuple(words for words in said if words)
    if blocked.reason is Reason.NODES_UNAVAILABLE:
        notes = (*_closed_words(state), *notes)
    if state.budgets.exist and blocked.reason is not Reason.BUDGET:
        notes = (
            *state.budgets.warnings(job.spec, job.owner.user, state.cluster, now),
            *notes,
        )
    return msgspec.structs.replace(blocked, notes=notes) if notes else blocked


MOST_NODES = 4


def _closed_words(state: State) -> Iterator[str]:
    """Return why some nodes take no work, in words."""
    closed = (
        f"{node.name}: {state.nodes[node.id][1]}"
        for node in state.config.nodes
        if state.nodes.get(node.id, ("", ""))[1]
    )
    yield from islice(closed, MOST_NODES)
    if more := sum(1 for _ in closed):
        yield f"… and {more:,} more nodes: `allot nodes`"


def _reason(state: State, job: JobRecord, now: Instant) -> Blocked | None:
    if job.state is JobState.SUSPENDED and job.attempts[-1].wants_resume:
        packing = job.attempts[-1].packing
        if packing is not None:
            return Blocked(Reason.RESUMING, beside_words(packing))
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


def waits_for_nodes(state: State, spec: JobSpec, blocked: Blocked | None) -> Blocked | None:
    """Return that what no machine here can hold waits for more of them; None if it does not."""
    if blocked is None or blocked.reason is not Reason.NEVER_FITS_NOW:
        return None
    if not fits_when_grown(state, shape_of(spec)):
        return None
    message = (
        "It waits for more nodes: the present ones cannot hold it, but a pool may have more."
    )
    hint = "To see which nodes are missing: `allot pools`."
    reason = Reason.NODES_UNAVAILABLE  # not for good
    return msgspec.structs.replace(blocked, reason=reason, message=message, hint=hint)


def reason_of(state: State, job: JobRecord, now: Instant) -> Reason | None:
    """Return the reason of `why` alone, as for a line of a table."""
    if job.state.waiting:
        if (own := _kept_out(state, job, now)) is not None:
            return own.reason
        waiting = state.cluster.pending
        if job.id in waiting:
            return judge(state.cluster, waiting[job.id], now).reason
    blocked = why(state, job, now)
    return blocked.reason if blocked else None


def _own_reason(state: State, job: JobRecord, now: Instant) -> Blocked | None:
    """Return the reason why a job is not eligible, if it is not."""
    blocked = _kept_out(state, job, now)
    if blocked is None:
        return None
    requests = shape_of(job.spec).requests
    return msgspec.structs.replace(
        blocked, need=total_of(requests), free=free_for(state.cluster, requests)
    )


def _kept_out(state: State, job: JobRecord, now: Instant) -> Blocked | None:
    """Return why a job is not eligible, if it is not, without any sums."""
    if job.state is JobState.HELD and job.spec.withheld:
        return held_for_secrets(job)
    if job.state is JobState.HELD and awaits_proposal(state, job):
        return Blocked(
            Reason.HELD,
            "This trial has no parameters yet: they are proposed when its turn comes.",
            hint=f"To see how far its sweep is: `allot sweep show {job.id}`.",
        )
    if job.state is JobState.HELD:
        return Blocked(
            Reason.HELD, "It is held.", hint=f"To release it: `allot release {job.id}`."
        )
    unmet = state.unmet(job)
    if unmet:
        one = all(need.any_of for need in job.spec.depends_on if need.job in unmet)
        return _after(state, unmet, one_of=one and len(unmet) > 1)
    if job.not_before > now and (failed := _failed(job)):
        return Blocked(Reason.BACKOFF, failed, until=job.not_before)
    if job.not_before > now:
        return Blocked(
            Reason.BACKOFF,
            f"Its last attempt failed; the next may start in "
            f"{show_millis(job.not_before - now)}.",
            until=job.not_before,
            hint=f"To see what failed: `allot show {job.id}`.",
        )
    if state.array_full(job) and job.spec.array is not None:
        return Blocked(
            Reason.ARRAY_CAP,
            f"Its array runs at most {job.spec.array.max_running} jobs at a time.",
        )
    return None


def _failed(job: JobRecord) -> str:
    """Return what went wrong with work that others made: here it printed nothing of its own."""
    last = job.attempts[-1].diagnosis if job.spec.offered and job.attempts else None
    return f"Its last attempt failed: {last.cause} {last.evidence}".strip() if last else ""


def after_others(state: State, spec: JobSpec) -> Blocked | None:
    """Return for which jobs a job not yet submitted would wait; None if for none."""
    alive = [d.job for d in spec.depends_on if not state.jobs[d.job].state.finished]
    return _after(state, alive) if alive else None


def _after(state: State, unmet: Sequence[JobId], *, one_of: bool = False) -> Blocked:
    names = ", ".join(f"{other} ({state.jobs[other].state.value})" for other in unmet[:5])
    more = f" and {len(unmet) - 5:,} more" if len(unmet) > 5 else ""
    what = "one of the jobs" if one_of else "job"
    return Blocked(Reason.DEPENDENCY, f"It starts after {what} {names}{more}.")


def _with_holders(state: State, job: JobRecord, blocked: Blocked) -> Blocked:
    """Add the jobs that hold what it waits for: those being evicted, or the largest."""
    holders = holders_of(state.cluster, job.id, blocked)
    return Blocked(
        reason=blocked.reason,
        message=blocked.message,
        need=blocked.need,
        free=blocked.free,
        holders=tuple(_holder(state, holder) for holder in holders),
        position=blocked.position,
        ahead=blocked.ahead,
        until=blocked.until,
        hint=blocked.hint,
    )


def _holder(state: State, job_id: JobId) -> Holder:
    job, gang = state.jobs[job_id], state.cluster.gangs[job_id]
    return Holder(
        job_id, job.spec.name, gang.tenant, job.owner.user, gang.entitlement, gang.held(),
        borrowed_by(state.cluster, gang),
    )  # fmt: skip
