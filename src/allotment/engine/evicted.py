"""For which job another was evicted or demoted, and by what right, in words."""

from msgspec.structs import replace

from allotment.engine.exit_codes import BY_STOP
from allotment.engine.records import AttemptRecord, JobRecord
from allotment.engine.state import State
from allotment.model.diagnosis import Diagnosis
from allotment.model.gains import MoveFor
from allotment.model.ids import JobId
from allotment.model.reasons import StopCause
from allotment.model.spec import JobSpec


def for_whom(state: State, job: JobRecord, found: Diagnosis | None) -> Diagnosis | None:
    """Return the diagnosis of an evicted task, with the job that got its place, if known."""
    if found is None or found.code != BY_STOP[StopCause.EVICTED].code:
        return found
    return replace(found, cause=evicted_for(state, job) or found.cause)


def evicted_for(state: State, job: JobRecord) -> str:
    """Return for which job another was evicted, in a sentence; '' if that is not known."""
    shrink = job.attempts[-1].shrink if job.attempts else None
    if shrink is not None and shrink.wanted_by is None:
        return "With more tasks its job was slower, so it continues without this one."
    wanted_by = _wanted_by(job.attempts[-1]) if job.attempts else None
    other = state.jobs.get(wanted_by) if wanted_by is not None else None
    if other is None:
        return ""
    mine, theirs = job.spec, other.spec
    if other is job:
        return _for_itself(job.attempts[-1])
    if took_turn(state, job.id, other.id):
        return f"Its turn was over, and job {other.id} of its queue had its own."
    if _ranks_displace(state):
        return f"Its place went to job {other.id}, which comes before it in the job order."
    if mine.tenant != theirs.tenant:
        return _reclaimed(job.attempts[-1], other)
    if _is_more_urgent(theirs, mine):
        return f"A more urgent job of its own tenant got its place: job {other.id}."
    queue = _of_queue(theirs, mine)
    return f"Another job of its own tenant got its place: job {other.id}{queue}."


def took_turn(state: State, one: JobId, other: JobId) -> bool:
    """Whether two jobs take turns on the devices of their queue."""
    jobs = [state.jobs.get(job) for job in (one, other)]
    lines = {(job.spec.tenant, job.spec.queue) for job in jobs if job is not None}
    return None not in jobs and len(lines) == 1 and lines <= state.cluster.slices.keys()


def _ranks_displace(state: State) -> bool:
    """Whether gangs make way by their ranks alone: in simulations, where no queue says how."""
    cluster = state.cluster
    return cluster.rescheduler is not None and not any(
        queue.time_slice_ms or queue.migrates or queue.by_affinity
        for tenant in cluster.tenants.values()
        for queue in tenant.queues
    )


def demoted_for(state: State, id: JobId, wanted_by: JobId) -> str:
    """Return to which job of its tenant a job lost its guarantee, and by what right."""
    job, other = state.jobs.get(id), state.jobs.get(wanted_by)
    if job is None or other is None:
        return f"its guarantee goes to job {wanted_by} of its tenant"
    if job is other:
        return "it continues elsewhere, in cells of its tenant"
    if took_turn(state, id, wanted_by):
        return f"it is the turn of job {wanted_by}"
    if _is_more_urgent(other.spec, job.spec):
        return f"job {wanted_by} of its tenant is more urgent"
    queue = _of_queue(other.spec, job.spec)
    return f"its guarantee goes to another job of its tenant: job {wanted_by}{queue}"


def _is_more_urgent(theirs: JobSpec, mine: JobSpec) -> bool:
    return theirs.priority > mine.priority


def _of_queue(theirs: JobSpec, mine: JobSpec) -> str:
    """Name the queue of the other job, if it is another one."""
    return f" of queue {theirs.queue}" if theirs.queue != mine.queue else ""


def _reclaimed(attempt: AttemptRecord, other: JobRecord) -> str:
    """Return what another tenant reclaimed for a job of its own."""
    tenant = other.spec.tenant
    if attempt.suspended_at:
        return (
            "It was suspended, and what it kept of its machine was reclaimed for "
            f"job {other.id} of {tenant}."
        )
    return f"It borrowed, and tenant {tenant} reclaimed its guarantee for job {other.id}."


def _for_itself(attempt: AttemptRecord) -> str:
    """Return for what a gang was told to go that has its place itself."""
    gain = attempt.stop.gain if attempt.stop is not None else None
    match gain.why if gain is not None else MoveFor.NEARER:
        case MoveFor.TASKS if gain is not None and gain.expected:
            return f"Devices were idle, and it continues with up to {gain.tasks} tasks."
        case MoveFor.BACK:
            return "It was faster at its old place, and continues there."
        case MoveFor.IDLE:
            return "Others take turns on its devices, and it continues on idle ones."
        case MoveFor.ROOM:
            return "It leaves a nearly empty node to others, and continues elsewhere."
        case _:
            return "A better place became free, and it continues there."


def _wanted_by(attempt: AttemptRecord) -> JobId | None:
    told = attempt.stop or attempt.shrink
    return told.wanted_by if told else None
