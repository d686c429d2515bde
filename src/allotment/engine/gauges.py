"""How fast jobs are in queues that ask for it (grow, migrate, pack), for the books."""

from collections.abc import Mapping

from allotment.engine.records import AttemptRecord, JobRecord, Stop
from allotment.model.gains import Gauge, MoveFor
from allotment.model.quantity import Instant
from allotment.model.tenancy import Tenant

MOST_BAD_MOVES = 2
"""A job that failed so often to grow, or to move otherwise, or once was slower for it, does so
no more."""


def gauge_of(tenants: Mapping[str, Tenant], job: JobRecord) -> Gauge | None:
    """Return how fast a placed job was measured to be; None where its queue does not ask."""
    tenant, role = tenants.get(job.spec.tenant), job.spec.roles[-1]
    queue = tenant.queue(job.spec.queue) if tenant is not None else None
    if queue is None or not (queue.grow_ms or queue.migrates or queue.packs):
        return None
    most = job.spec.task_count if role.elastic and queue.grow_ms else 0
    back = _back(job)
    stops = (each.stop for each in job.attempts if each.stop is not None)
    moved = (stop.at for stop in stops if stop.wanted_by == job.id)
    return Gauge(
        most,
        job.attempts[-1].pace,
        tuple(sorted(job.rates.items())),
        max(moved, default=Instant(0)),
        stays=job.bad_moves >= MOST_BAD_MOVES,
        is_grown=job.bad_growths >= MOST_BAD_MOVES,
        together=tuple(sorted(other for other, gained in job.beside.items() if gained)),
        apart=tuple(sorted(other for other, gained in job.beside.items() if not gained)),
        on_nodes=_on_nodes(job),
        back=back.slots if back is not None else (),
        back_rate=back.pace.rate if back is not None and back.pace is not None else 0,
    )


def _on_nodes(job: JobRecord) -> tuple[tuple[int, int], ...]:
    """Return the newest rate on each number of nodes, with the tasks that a job has now."""
    tasks, rates = job.attempts[-1].staying, dict[int, int]()
    for attempt in job.attempts:
        if attempt.pace is not None and attempt.pace.tasks == tasks:
            rates[len({slot.node for slot in attempt.slots[:tasks]})] = attempt.pace.rate
    return tuple(sorted(rates.items()))


def _back(job: JobRecord) -> AttemptRecord | None:
    """Return how a job was before its last move if it was faster; once at most."""
    *before, now = job.attempts
    if now.gained is None or now.gained.kept or now.staying != len(before[-1].slots):
        return None
    went_back = any(each.gained is not None and not each.gained.kept for each in before)
    return None if went_back else before[-1]


def packs(tenants: Mapping[str, Tenant], job: JobRecord) -> bool:
    """Whether the gangs of a job's queue may run at once on the same devices."""
    tenant = tenants.get(job.spec.tenant)
    queue = tenant.queue(job.spec.queue) if tenant is not None else None
    return queue is not None and queue.packs


def move_before(job: JobRecord) -> Stop | None:
    """Return the move by which a job came to its present attempt; None if it came otherwise."""
    stop = job.attempts[-2].stop if len(job.attempts) > 1 else None
    return stop if stop is not None and stop.wanted_by == job.id else None


def came_to_nothing(job: JobRecord, times: int) -> None:
    """Count the last move of a job as a bad one, among those of its way."""
    move = move_before(job)
    if move is not None and move.gain is not None and move.gain.why is MoveFor.TASKS:
        job.bad_growths += times
    elif move is not None:
        job.bad_moves += times
