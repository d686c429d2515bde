"""One simulation from a scenario to its result."""

from collections.abc import Callable, Sequence

import msgspec

from allotment.metrics.fold import Folds
from allotment.metrics.jobs import JobOutcome, Jobs
from allotment.metrics.summarise import summarise
from allotment.metrics.usage import Usage
from allotment.metrics.waits import WaitCauses
from allotment.model import events as e
from allotment.model.ids import JobId
from allotment.model.quantity import DAY, DEVICE, Instant, Millis
from allotment.sim.charting import Charting
from allotment.sim.cluster import words_of
from allotment.sim.nothing import why_nothing_ran
from allotment.sim.outcome import Run
from allotment.sim.scenario import Scenario
from allotment.sim.settings import chosen, untouched
from allotment.sim.simulation import Simulation
from allotment.sim.trace import Ending, TraceJob

Progress = Callable[[int, int], None]
"""Told how many jobs of how many have come."""

Tap = Callable[[Sequence[e.Record]], None]
"""Sees the records of the run, in order."""


def untold(_: int, __: int) -> None:
    """Report no progress."""


def simulate(scenario: Scenario, told: Progress = untold, tap: Tap | None = None) -> Run:
    """Play a scenario. Raises UnknownPolicy, and Standstill when its nodes only fail."""
    trace, settings = scenario.trace, scenario.settings
    jobs, shift = _shifted(trace.jobs)

    usage = Usage()

    def begin(at: Instant, event: e.JobSubmitted) -> JobOutcome:
        job = simulation.machines.works[event.job].job
        return _row(job, at)

    rows = Jobs(usage, begin)
    causes = WaitCauses(usage, rows)
    chart = _charting(scenario, jobs, lambda job: simulation.machines.works[job].place)
    folds = Folds(usage, rows, causes, *chart)

    def both(records: Sequence[e.Record]) -> None:
        folds.feed(records)
        if tap is not None:
            tap(records)

    simulation = Simulation(scenario, folds.feed if tap is None else both)
    for come in simulation.run(jobs):
        told(come, len(jobs))
    outcomes = _with_refused(rows.rows, simulation, jobs)
    capacity = DEVICE * sum(len(node.devices) for node in scenario.nodes)
    summary = summarise(outcomes, usage.totals(), capacity, causes=causes.by_tenant())
    if nothing := why_nothing_ran(outcomes, trace, capacity, words_of(scenario.nodes)):
        summary = msgspec.structs.replace(summary, nothing_ran=nothing)
    if shift:
        _unshift(outcomes, shift)
    return Run(
        policy=scenario.policy,
        clairvoyant=scenario.is_clairvoyant(),
        cluster=scenario.cluster(),
        nodes=len(scenario.nodes),
        capacity_milli=capacity,
        jobs=tuple(outcomes),
        samples=tuple(
            msgspec.structs.replace(sample, at_ms=sample.at_ms - shift)
            for sample in usage.samples()
        ),
        chart=chart[0].result(shift) if chart else None,
        rule=scenario.rule(),
        settings=chosen(settings),
        defaults=untouched(settings),
        trace=trace.source,
        trace_digest=trace.digest,
        dropped=trace.dropped,
        warnings=scenario.warnings(),
        seed=scenario.seed,
        events=simulation.events,
        summary=summary,
    )


def _charting(
    scenario: Scenario, jobs: tuple[TraceJob, ...], place_of: Callable[[JobId], int]
) -> tuple[Charting, ...]:
    return (Charting(jobs, scenario.nodes, place_of),) if scenario.drawn else ()


def _row(job: TraceJob, at: int) -> JobOutcome:
    return JobOutcome(
        job.id,
        job.tenant,
        job.gpu_milli,
        at,
        Millis(job.run_ms),
        censored=job.ending is Ending.CENSORED,
    )


def _shifted(jobs: tuple[TraceJob, ...]) -> tuple[tuple[TraceJob, ...], int]:
    """Move a trace that begins near 0 by a day: the engine's clock begins above it."""
    if not jobs or jobs[0].submit_ms >= DAY:
        return jobs, 0
    shift = DAY - jobs[0].submit_ms
    moved = [msgspec.structs.replace(job, submit_ms=job.submit_ms + shift) for job in jobs]
    return tuple(moved), shift


def _unshift(rows: list[JobOutcome], shift: int) -> None:
    for row in rows:
        row.submit_ms -= shift
        row.start_ms -= shift if row.start_ms >= 0 else 0
        row.end_ms -= shift if row.end_ms >= 0 else 0


def _with_refused(
    rows: list[JobOutcome], simulation: Simulation, jobs: tuple[TraceJob, ...]
) -> list[JobOutcome]:
    """Put jobs that could never run where they stood in the trace."""
    if not simulation.refused:
        return rows
    refused = {refusal.place: refusal for refusal in simulation.refused}
    taken = iter(rows)
    whole: list[JobOutcome] = []
    for place, job in enumerate(jobs):
        if place in refused:
            row = _row(job, job.submit_ms)
            row.never = refused[place].reason
            whole.append(row)
        else:
            whole.append(next(taken))
    return whole
