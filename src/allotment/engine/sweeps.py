"""Sweeps, folded from the log: which jobs are trials, what they reported, what follows.

A sweep is an array, all of whose jobs are there from the beginning: nothing is submitted
later, so nothing can be submitted twice or be lost. What its trials report is an event where
it decides something, and the decision is made of these events alone (`allotment.sweeps`).
Both are recorded together, so a crash leaves both or none.
"""

from collections.abc import Iterator

from msgspec.structs import replace

from allotment.engine.cancelling import cancel
from allotment.engine.records import AttemptRecord, JobRecord
from allotment.engine.state import State
from allotment.engine.sweep_records import SweepRecord
from allotment.model import commands as c
from allotment.model import events as e
from allotment.model.errors import Code, Rejected
from allotment.model.grid import Parameters, with_parameters
from allotment.model.ids import SYSTEM, Actor, JobId
from allotment.model.lifecycle import AttemptState, JobState
from allotment.model.quantity import MINUTE, Instant, Resources
from allotment.model.reports import TrialReport
from allotment.model.sweeps import Came, Halving, Range, Tried
from allotment.sweeps.halving import Verdict, crossed, losers

Emit = Iterator[e.AnyEvent]

PATIENCE = MINUTE
"""So long after a rung of run time a trial counts as worst that has reported no value."""
MOST_KEPT = 1_000
"""Sweeps in memory: of those that are over the oldest are forgotten first."""
MOST_IN_ALL = 100_000
"""Likewise their trials and the values of their parameters, all together."""


def sweep_of(state: State, job: JobRecord) -> SweepRecord | None:
    """Return the sweep that a job is a trial of."""
    array = job.spec.array
    return state.sweeps.get(array.parent) if array is not None and state.sweeps else None


def trials_left(state: State, sweep: SweepRecord) -> list[JobRecord]:
    """Return the trials that are not over, in the order of their indices."""
    jobs = (state.jobs.get(JobId(job)) for job in sweep.ids)
    return [job for job in jobs if job is not None and not job.state.finished]


# ── what trials report ──────────────────────────────────────────────────────────────────


def trial_heard(state: State, report: TrialReport, now: Instant) -> Emit:
    """Note what a trial told where that is new, and stop the trials that lose by it."""
    job = state.jobs.get(report.job)
    sweep = sweep_of(state, job) if job is not None else None
    attempt = job.attempt if job is not None else None
    if job is None or sweep is None or attempt is None or attempt.no != report.attempt:
        return
    if (rule := sweep.sweep.halving) is not None:
        for step, value in _news(rule, sweep, job, attempt, report, now):
            rung = len(sweep.reached.get(job.id, ()))
            yield e.RungReached(job.id, rung, step, value)
            yield from _judged(state, sweep, job, now, has_ended=report.is_last)
    told = (report.step, report.value)
    if report.is_last and report.known and sweep.measured.get(job.id) != told:
        yield e.TrialMeasured(job.id, *told)


def _news(
    rule: Halving,
    sweep: SweepRecord,
    job: JobRecord,
    attempt: AttemptRecord,
    report: TrialReport,
    now: Instant,
) -> list[tuple[int, float | None]]:
    """Return step and value at each rung that a trial has come to since."""
    so_far = len(sweep.reached.get(job.id, ()))
    if job.id in sweep.stopped or sweep.ended is not None:
        return []
    if not rule.by_time:
        last = ((report.step, report.value),) if report.known else ()
        return crossed(rule.rungs, so_far, (*report.at, *last))
    if attempt.state is AttemptState.STARTING:
        return []
    # Where it tells of nothing, its file may just not have been read yet; or it was started
    # again, and does not train yet.
    told = (report.step, report.value)
    if not report.known:
        told = sweep.measured.get(job.id, told)
    ran = job.served_ms + attempt.ran_until(now) - (0 if report.known else PATIENCE)
    passed = sum(1 for rung in rule.rungs if rung <= ran)
    return [told] * (passed - so_far)


def _judged(
    state: State, sweep: SweepRecord, newcomer: JobRecord, now: Instant, *, has_ended: bool
) -> Emit:
    """Stop the trials that lose now; not one that has ended by itself meanwhile."""

    def runs(trial: JobId) -> bool:
        job = state.jobs.get(trial)
        if job is None or job.state.finished or trial in sweep.stopped:
            return False
        return trial in sweep.ids and not (has_ended and trial == newcomer.id)

    for verdict in losers(sweep.sweep, sweep.reached, newcomer.id, runs):
        yield from _stopped(state, verdict, now)


def _stopped(state: State, verdict: Verdict, now: Instant) -> Emit:
    yield e.TrialStopped(verdict.job, verdict.rung, verdict.place, verdict.of)
    yield from cancel(state, state.jobs[verdict.job], SYSTEM, now)


# ── studies: trials whose parameters are proposed one after the other ───────────────────


def awaits_proposal(state: State, job: JobRecord) -> bool:
    """Whether a job is a trial that has no parameters yet."""
    sweep = sweep_of(state, job)
    if sweep is None or not sweep.sweep.is_study:
        return False
    return job.id in sweep.ids and job.id not in sweep.proposed


def next_trial(state: State, sweep: SweepRecord) -> JobRecord | None:
    """Return the trial of a study whose turn it is; None while enough are under way.

    One that cannot run (it is over, or its secrets were lost) is passed over; one that its
    owner holds is under way, so that who holds all of them holds up the study.

    O(trials that were proposed): each study is asked every second.
    """
    if not sweep.sweep.is_study or sweep.is_over or sweep.ended is not None:
        return None
    first = next(_waiting(state, sweep), None)
    array = first.spec.array if first is not None else None
    busy = len(sweep.proposed.keys() - sweep.over.keys())
    return first if array is not None and busy < array.max_running else None


def _waiting(state: State, sweep: SweepRecord) -> Iterator[JobRecord]:
    """Yield the trials of a study that wait for their parameters and could run with them."""
    for job in map(JobId, sweep.ids):
        if job not in sweep.proposed and job not in sweep.over:
            record = state.jobs.get(job)
            if record is not None and not record.spec.withheld:
                yield record


def history(sweep: SweepRecord) -> list[Tried]:
    """Return what is recorded of the trials of a study, in the order of their indices."""
    return [
        Tried(params, _came(sweep, job), tuple(_values(sweep, job)))
        for job, params in sorted(sweep.proposed.items())
    ]


def _came(sweep: SweepRecord, job: JobId) -> Came:
    if sweep.over.get(job):
        return Came.TO_ITS_END
    gone = job in sweep.over or job in sweep.stopped
    return Came.NOT_SO_FAR if gone else Came.UNDER_WAY


def _values(sweep: SweepRecord, job: JobId) -> Iterator[tuple[int, float | None]]:
    rule = sweep.sweep.halving
    if rule is not None:
        yield from zip(rule.rungs, sweep.reached.get(job, ()), strict=False)
    by_time = rule is not None and rule.by_time
    if job in sweep.measured and (not by_time or sweep.over.get(job)):
        yield sweep.measured[job]


def propose(state: State, job: JobRecord, params: Parameters) -> Emit:
    """Return the events by which a trial gets its parameters; none where it has them."""
    if job.state is JobState.HELD and awaits_proposal(state, job):
        yield e.TrialProposed(job.id, params)
        array = job.spec.array
        assert array is not None, "each trial is of an array"
        filled = with_parameters(job.spec, params)
        yield e.JobEdited(job.id, replace(filled, array=replace(array, params=params)))
        yield e.JobReleased(job.id)


# ── the whole ───────────────────────────────────────────────────────────────────────────


def stop_sweep(state: State, command: c.StopSweep, actor: Actor, now: Instant) -> Emit:
    """Return the events that end all trials of a sweep. Raises Rejected."""
    sweep = state.sweeps.get(command.sweep)
    if sweep is None:
        raise no_such_sweep(str(command.sweep))
    if sweep.is_over:
        message = f"Sweep {sweep.id} ({sweep.name}) is over already."
        raise Rejected(Code.WRONG_STATE, message, f"See `allot sweep show {sweep.id}`.")
    if sweep.ended is None:
        yield e.SweepStopped(sweep.id, command.why)
    # The last first: else each that waits lets the next of its array into the queue.
    for job in reversed(trials_left(state, sweep)):
        yield from cancel(state, job, actor, now)


def no_such_sweep(named: str) -> Rejected:
    """Make the refusal of a sweep that is not there."""
    return Rejected(
        Code.NO_SUCH_JOB,
        f"There is no sweep {named[:200]}.",
        "See `allot sweep ls`; finished ones are forgotten after a while.",
    )


def spent(state: State, sweep: SweepRecord, now: Instant) -> tuple[int, int]:
    """Return what the trials have used up to now, of devices and CPUs: thousandths × ms."""
    gpu, cpu = sweep.gpu_spent, sweep.cpu_spent
    for job in trials_left(state, sweep):
        if (attempt := job.attempt) is not None:
            held = _held(job, attempt)
            ran = attempt.ran_until(now)
            gpu, cpu = gpu + held.gpu_milli * ran, cpu + held.cpu_milli * ran
    return gpu, cpu


def _held(job: JobRecord, attempt: AttemptRecord) -> Resources:
    return job.spec.sized(len(attempt.slots)).total()


# ── the state ───────────────────────────────────────────────────────────────────────────


def submitted(state: State, record: e.Record, event: e.SweepSubmitted) -> None:
    """Begin a sweep, and forget the oldest beyond the limit."""
    state.sweeps[event.job] = SweepRecord(
        id=event.job,
        name=event.name,
        tenant=event.tenant,
        owner=record.actor,
        sweep=event.sweep,
        trials=event.trials,
        submitted_at=record.at,
        left=event.trials,
    )
    kept, size = len(state.sweeps), sum(map(_size, state.sweeps.values()))
    for old in [sweep for sweep in state.sweeps.values() if sweep.is_over]:
        if kept <= MOST_KEPT and size <= MOST_IN_ALL:
            break
        kept, size = kept - 1, size - _size(old)
        del state.sweeps[old.id]


def _size(sweep: SweepRecord) -> int:
    axes = [axis for _, axis in sweep.sweep.space]
    own = sweep.trials * len(axes) if sweep.sweep.is_study else 0
    return sweep.trials + own + sum(len(axis) for axis in axes if not isinstance(axis, Range))


def proposed(state: State, record: e.Record, event: e.TrialProposed) -> None:
    """Note the parameters of a trial."""
    _of_trial(state, event).proposed[event.job] = event.params


def reached(state: State, record: e.Record, event: e.RungReached) -> None:
    """Note the value of a trial at a rung."""
    sweep = _of_trial(state, event)
    sweep.reached.setdefault(event.job, []).append(event.value)
    sweep.measured[event.job] = (event.step, event.value)


def measured(state: State, record: e.Record, event: e.TrialMeasured) -> None:
    """Note the last value of a trial."""
    _of_trial(state, event).measured[event.job] = (event.step, event.value)


def trial_stopped(state: State, record: e.Record, event: e.TrialStopped) -> None:
    """Note that a trial lost."""
    _of_trial(state, event).stopped[event.job] = (event.rung, event.place, event.of)


def sweep_stopped(state: State, record: e.Record, event: e.SweepStopped) -> None:
    """Note why no trial continues."""
    sweep = state.sweeps[event.job]
    sweep.ended, sweep.ended_by = event.why, record.actor.user


def attempt_over(state: State, job: JobRecord, attempt: AttemptRecord) -> None:
    """Charge what an attempt that ended has used to its sweep, if it is of one."""
    sweep = sweep_of(state, job)
    if sweep is not None:
        held = _held(job, attempt)
        sweep.gpu_spent += held.gpu_milli * attempt.ran_ms
        sweep.cpu_spent += held.cpu_milli * attempt.ran_ms
        sweep.ran[job.id] = job.served_ms


def trial_over(state: State, job: JobRecord, now: Instant) -> None:
    """Count that a job is over, if it is a trial."""
    sweep = sweep_of(state, job)
    if sweep is not None and job.id in sweep.ids:
        sweep.left -= 1
        if sweep.sweep.is_study:
            sweep.over[job.id] = job.state is JobState.SUCCEEDED
        if sweep.is_over:
            sweep.finished_at = now


def _of_trial(state: State, event: e.JobEvent) -> SweepRecord:
    sweep = sweep_of(state, state.jobs[event.job])
    assert sweep is not None, "only trials are heard of"
    return sweep
