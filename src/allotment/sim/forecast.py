"""When will this job start? Three runs of a copy of the state: all short, likely, all long."""

from collections import Counter
from collections.abc import Callable

import msgspec

from allotment.core.ports import Policies
from allotment.engine.engine import Engine
from allotment.engine.records import JobRecord
from allotment.engine.state import Image, State
from allotment.model import events as e
from allotment.model.errors import Rejected
from allotment.model.forecast import Answer, Counted, Course, Ground, Question
from allotment.model.ids import SYSTEM, JobId
from allotment.model.quantity import Instant
from allotment.sim.ahead import Ahead
from allotment.sim.run_times import Left, RunTimes

UNSEEN = Course(None, Instant(0))

Patience = Callable[[int], Callable[[], bool]]
"""Begins to wait for so many milliseconds of real time; the result tells when they are over."""


def answer(question: Question, policies: Callable[[], Policies], patience: Patience) -> Answer:
    """Run the state ahead, each time only until the job starts.

    `policies` makes the service's own, afresh for each run.
    """
    image = question.image
    job = question.job
    if question.submit is not None:
        try:
            job, image = _with_job(question, policies())
        except Rejected as refusal:
            return Answer(UNSEEN, UNSEEN, UNSEEN, refusal=str(refusal))
    left: dict[JobId, Left] | None = None
    courses: list[Course] = []
    basis: Counter[Ground] = Counter()
    for which in range(3):
        state = State.from_image(msgspec.msgpack.decode(image, type=Image), policies())
        if left is None:
            left = run_times(state, question)
        lengths = {each: left[each].all[which] for each in left}
        ahead = Ahead(state, lengths, question.now)
        horizon = ahead.now + question.horizon_ms
        courses.append(ahead.until_start(job, horizon, patience(question.patience_ms)))
        if which == 1:
            basis.update(left[each].ground for each in ahead.placed if each != job)
    low, expected, high = courses
    return Answer(low, expected, high, tuple(Counted(g, basis[g]) for g in Ground if basis[g]))


def run_times(state: State, question: Question) -> dict[JobId, Left]:
    """Predict what every job has left, from what the state and the archive remember."""
    past = [msgspec.msgpack.decode(each, type=JobRecord) for each in question.past]
    recent = [state.jobs[each] for each in reversed(state.finished)]
    times = RunTimes([*recent, *past])
    return {
        job.id: times.left(job, question.now)
        for job in state.jobs.values()
        if not job.state.finished
    }


def _with_job(question: Question, policies: Policies) -> tuple[JobId, bytes]:
    """Submit the job to a copy; give its id and the copy. Raises Rejected."""
    assert question.submit is not None, "there is a job to be submitted"
    state = State.from_image(msgspec.msgpack.decode(question.image, type=Image), policies)
    engine = Engine(state)
    records = engine.command(question.submit, question.actor or SYSTEM, question.now)
    event = records[0].event
    assert isinstance(event, e.JobSubmitted)
    return event.job, msgspec.msgpack.encode(state.image())
