"""How jobs are cancelled: at once where they wait, else with their grace time."""

from collections.abc import Iterator

from allotment.engine.completion import finish
from allotment.engine.records import JobRecord
from allotment.engine.report import grace_of
from allotment.engine.state import State
from allotment.model import events as e
from allotment.model.ids import Actor
from allotment.model.quantity import Instant, Millis
from allotment.model.reasons import StopCause

AGAIN_MS = 1000
"""Asked again so long after, there is no more grace."""


def cancel(state: State, job: JobRecord, actor: Actor, now: Instant) -> Iterator[e.AnyEvent]:
    """Return the events that end a job which is not over."""
    if job.state.waiting:
        yield from finish(state, job, e.JobCancelled(job.id, by=actor.user))
        return
    attempt = job.attempts[-1]
    if attempt.stop is None or attempt.stop.cause is not StopCause.CANCELLED:
        yield e.StopRequested(
            job.id, attempt.no, StopCause.CANCELLED, signal="TERM", grace_ms=grace_of(job)
        )
    elif now >= attempt.stop.at + AGAIN_MS:
        yield e.StopRequested(
            job.id, attempt.no, StopCause.CANCELLED, signal="KILL", grace_ms=Millis(0)
        )
