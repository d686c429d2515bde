"""The part of `allot why` about the past: for what a job waited, and how long."""

from datetime import datetime

from allotment.cli.table import Column, aligned
from allotment.cli.words import plain, show_span
from allotment.metrics.reasons import LifePhase, Stretch
from allotment.model.quantity import SECOND
from allotment.service.wait_view import WaitHistory

MOST_LINES = 20
"""More stretches are counted, not listed; `--json` has them all."""

COLUMNS = (Column("SINCE"), Column("FOR", right=True), Column(""))

PHASES = {
    LifePhase.STARTING: "starting",
    LifePhase.BARRIER: "starting: waits for its other tasks",
    LifePhase.RUNNING: "running",
    LifePhase.STOPPING: "stopping",
}


def history_lines(found: WaitHistory) -> list[str]:
    """Return what is known of a job's past, as lines."""
    if not found.stretches:
        return []
    shown = found.stretches[-MOST_LINES:]
    rows = [["SINCE", "FOR", ""], *(_row(each) for each in shown)]
    lines = ["", *(f"  {line}" for line in aligned(rows, COLUMNS))]
    if more := len(found.stretches) - len(shown):
        lines.append(f"  … and {more} before that; --json lists them all.")
    if found.waited_ms >= SECOND:
        lines += ["", f"  {_sum(found)}"]
    return lines


def _row(each: Stretch) -> list[str]:
    at = datetime.fromtimestamp(each.since / SECOND).astimezone()
    return [at.strftime("%m-%d %H:%M:%S"), show_span(each.ms), _words(each)]


def _words(each: Stretch) -> str:
    words = PHASES.get(each.phase, "")
    if each.phase is LifePhase.WAITING:
        words = plain(each.reason) if each.reason else "waiting"
        if each.cause:
            words += f" (queued again: {plain(each.cause)})"
    elif each.phase is LifePhase.SUSPENDED:
        words = f"suspended: {plain(each.reason)}" if each.reason else "suspended"
    elif each.attempt > 1:
        words += f", attempt {each.attempt}"
    if each.merged:
        words += f"; {each.merged} shorter in between"
    return words


def _sum(found: WaitHistory) -> str:
    parts = [
        f"{plain(reason)} {show_span(ms)}"
        for reason, ms in found.waited_for.items()
        if ms >= SECOND
    ]
    return f"It waited {show_span(found.waited_ms)} in all: {', '.join(parts)}."
