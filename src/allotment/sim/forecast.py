"""When will this job start? Three runs of a copy of the state: all short, likely, all long."""

from collections import Counter
from collections.abc import Callable, Sequence

import msgspec

from allotment.core.policies import Policies
from allotment.engine.engine import Engine
from allotment.engine.records import JobRecord
from allotment.engine.state import Image, State
from allotment.model import events as e
from allotment.model.errors import Rejected
from allotment.model.forecast import Answer, Counted, Ground, Question, RunOutcome
from allotment.model.ids import SYSTEM, JobId
from allotment.model.quantity import Instant
from allotment.sim.ahead import (
    Ahead,
    leaves_as_told,
    leaves_at_once,
    leaves_by_force,
)
from allotment.sim.run_times import Left, RunTimes

UNSEEN = RunOutcome(None, Instant(0))

RUNS = 3

LEAVING = (leaves_at_once, leaves_as_told, leaves_by_force)
"""How long evicted jobs take to go, in each run."""

Patience = Callable[[int], Callable[[], bool]]
"""Begins to wait for so many milliseconds of real time; the result tells when they are over."""


class Ran(msgspec.Struct, frozen=True):
    """One run, and the grounds of the jobs that held places in it."""

    course: RunOutcome
    basis: tuple[Counted, ...]


RunAll = Callable[[Callable[[int], Ran]], Sequence[Ran]]
"""Carries out the runs 0, 1 and 2, in any way; gives what they came to in that order."""


def one_by_one(run: Callable[[int], Ran]) -> Sequence[Ran]:
    """Carry the runs out here."""
    return [run(which) for which in range(RUNS)]


def answer(
    question: Question,
    policies: Callable[[], Policies],
    patience: Patience,
    run_all: RunAll = one_by_one,
) -> Answer:
    """Run the state ahead, each time only until the job starts.

    `policies` makes the service's own, afresh for each run.
    """
    image, job = question.image, question.job
    if question.submit is not None:
        try:
            job, image = _with_job(question, policies())
        except Rejected as refusal:
            return Answer(UNSEEN, UNSEEN, UNSEEN, refusal=str(refusal))
    past = [msgspec.msgpack.decode(each, type=JobRecord) for each in question.past]

    def prepared() -> tuple[State, dict[JobId, Left]]:
        state = State.from_image(msgspec.msgpack.decode(image, type=Image), policies())
        return state, run_times(state, past, question.now)

    # A run uses its state up; but each process that is forked from this one has its own.
    ready = [prepared()]

    def run(which: int) -> Ran:
        state, left = ready.pop() if ready else prepared()
        lengths = {each: left[each].all[which] for each in left}
        ahead = Ahead(state, lengths, question.now, leaving=LEAVING[which])
        horizon = ahead.now + question.horizon_ms
        course = ahead.until_start(job, horizon, patience(question.patience_ms))
        grounds = Counter(left[each].ground for each in ahead.placed if each != job)
        basis = tuple(Counted(each, grounds[each]) for each in Ground if grounds[each])
        return Ran(course, basis)

    low, expected, high = run_all(run)
    return Answer(low.course, expected.course, high.course, expected.basis)


def run_times(state: State, past: Sequence[JobRecord], now: Instant) -> dict[JobId, Left]:
    """Predict what every job has left, from what the state and the archive remember."""
    recent = [state.jobs[each] for each in reversed(state.finished)]
    times = RunTimes([*recent, *past], state.foretelling.history)
    return {
        job.id: times.left(job, now) for job in state.jobs.values() if not job.state.finished
    }


def _with_job(question: Question, policies: Policies) -> tuple[JobId, bytes]:
    """Submit the job to a copy; return its id and the copy. Raises Rejected."""
    assert question.submit is not None, "there is a job to be submitted"
    state = State.from_image(msgspec.msgpack.decode(question.image, type=Image), policies)
    engine = Engine(state)
    records = engine.command(question.submit, question.actor or SYSTEM, question.now)
    event = records[0].event
    assert isinstance(event, e.JobSubmitted)
    return event.job, msgspec.msgpack.encode(state.image())
