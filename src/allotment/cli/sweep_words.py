"""Sweeps and their trials, as tables and lines."""

from collections.abc import Sequence

from allotment.cli.output import paint
from allotment.cli.selecting import in_states
from allotment.cli.table import Column
from allotment.cli.words import NOTHING_THERE, harmless, pairs, show_age, show_span
from allotment.model.lifecycle import JobState
from allotment.model.quantity import show_millis
from allotment.model.sweeps import CPU_HOUR, GPU_HOUR, Sweep
from allotment.service.sweep_view import SweepRow, SweepView, TrialView

SWEEPS = (
    Column("ID", right=True),
    Column("NAME", flexible=True),
    Column("USER", rank=4),
    Column("STATE"),
    Column("AGE", rank=3, right=True),
    Column("GPU-HOURS", rank=2, right=True),
    Column("TRIALS", flexible=True),
    Column("BEST", rank=1, flexible=True),
)
STATES = {
    "asked": "stopped",
    "gpu_hours": "GPU-hours used up",
    "cpu_hours": "CPU-hours used up",
}


def sweep_cells(one: SweepRow, now: int) -> tuple[str, ...]:
    """Return one line of `allot sweep ls`."""
    best = one.best
    return (
        str(one.id),
        one.name,
        one.user,
        STATES.get(one.state, one.state),
        show_age(one.submitted_at, now),
        hours(one.gpu_ms, GPU_HOUR),
        in_states(one.counts),
        f"{number(best.value)} {harmless(pairs(best.params))}" if best else NOTHING_THERE,
    )


def trial_table(found: SweepView) -> tuple[Sequence[Column], list[tuple[str, ...]]]:
    """Return the table of a sweep's trials, the best first."""
    names = list(dict.fromkeys(name for trial in found.trials for name in trial.params))
    metric = found.sweep.metric if found.sweep is not None else ""
    rungs = found.sweep is not None and found.sweep.halving is not None
    columns = [
        Column("JOB", right=True),
        *(Column(harmless(name), flexible=True) for name in names),
        *([Column(harmless(metric), right=True)] if metric else []),
        *([Column("STEP", rank=2, right=True)] if metric else []),
        *([Column("RUNG", rank=1, right=True)] if rungs else []),
        Column("RAN", rank=3, right=True),
        Column("STATE"),
        Column("WHY", rank=4, flexible=True),
    ]
    study = found.sweep is not None and found.sweep.is_study
    rows = [_cells(trial, names, bool(metric), rungs) for trial in found.trials]
    whys = [_why(trial, study) for trial in found.trials]
    return columns, [(*cells, why) for cells, why in zip(rows, whys, strict=True)]


def _cells(trial: TrialView, names: list[str], compared: bool, rungs: bool) -> tuple[str, ...]:
    state = "stopped" if trial.stopped and trial.state.finished else trial.state.value
    return (
        str(trial.job),
        *(harmless(trial.params.get(name, "")) for name in names),
        *((number(trial.value), str(trial.step or NOTHING_THERE)) if compared else ()),
        *((str(trial.rung),) if rungs else ()),
        show_span(trial.ran_ms) if trial.ran_ms else NOTHING_THERE,
        state,
    )


def _why(trial: TrialView, study: bool) -> str:
    """Return what a trial waits for, or why it was stopped, as far as its sweep knows."""
    waits = study and not trial.params and trial.state is JobState.HELD
    return "no parameters yet" if waits else trial.stopped


def lines_of(found: SweepView, now: int) -> list[str]:
    """Return what stands above that table."""
    row = found.row
    lines = [
        f"{paint(f'Sweep {row.id}', 'bold')}  {harmless(row.name)}, {row.user}, "
        f"{STATES.get(row.state, row.state)}, submitted {show_age(row.submitted_at, now)} ago",
        f"  {in_states(row.counts)}"
        + (f"; {row.stopped} stopped by comparison" if row.stopped else ""),
    ]
    if found.private or found.sweep is None:
        return [*lines, "  Its parameters and metrics are its owner's.", ""]
    lines.append("  " + _rule(found.sweep, found.max_running))
    lines.append("  " + _used(row, found.sweep))
    if row.best is not None:
        of = f"{harmless(found.sweep.metric)} {number(row.best.value)}"
        params = harmless(pairs(row.best.params))
        lines.append(f"{paint('Best', 'bold')}  {of}: {params} (job {row.best.job})")
    if found.hint:
        lines.append(f"  {harmless(found.hint)}")
    return [*lines, ""]


def _rule(sweep: Sweep, max_running: int) -> str:
    chosen = "proposed by Optuna" if sweep.is_study else "drawn"
    how = (
        f"{sweep.draws} {chosen} with seed {sweep.seed}" if sweep.draws else "all combinations"
    )
    parts = [how]
    if sweep.metric:
        parts.append(f"{sweep.goal.value} {harmless(sweep.metric)}")
    if (rule := sweep.halving) is not None:
        at = ", ".join(show_millis(each) if rule.by_time else str(each) for each in rule.rungs)
        parts.append(f"one in {rule.eta} continues at {'' if rule.by_time else 'step '}{at}")
    if max_running:
        parts.append(f"{max_running} at a time")
    return "; ".join(parts)


def _used(row: SweepRow, sweep: Sweep) -> str:
    used: list[str] = []
    for name, amount, limit, unit in (
        ("GPU", row.gpu_ms, sweep.gpu_hours, GPU_HOUR),
        ("CPU", row.cpu_ms, sweep.cpu_hours, CPU_HOUR),
    ):
        if amount or limit:
            of = f" of {hours(limit, unit)}" if limit else ""
            used.append(f"{hours(amount, unit)}{of} {name}-hours")
    return f"used {', '.join(used)}" if used else "nothing used yet"


def hours(amount: int, unit: int) -> str:
    """Write an amount in hours, small ones with three places."""
    found = amount / unit
    return f"{found:,.1f}" if found >= 100 else f"{found:.3f}"


def number(value: float | None) -> str:
    """Write a value of a metric."""
    return NOTHING_THERE if value is None else f"{value:.6g}"
