"""`allot sim replay`: what the cluster's own history would have been under another policy."""

import time
from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer

from allotment.cli.options import AsJson, State
from allotment.cli.output import paint, say, say_json, warn
from allotment.cli.sim_options import (
    JobsOut,
    Misused,
    Report,
    Seed,
    Set,
    progress,
    told_as_misuse,
)
from allotment.cli.sim_words import machine_form
from allotment.cli.table import Column, print_table
from allotment.cli.words import count
from allotment.client import Client
from allotment.model.quantity import SECOND, show_millis
from allotment.sim.history import History, history_of
from allotment.sim.outcome import Run
from allotment.sim.replayed import Course, SideBySide, side_by_side
from allotment.sim.settings import BadSetting, read_length, read_settings

EVERYTHING = 1 << 62

EXAMPLES = (
    "\b\nExamples:\n"
    "  allot sim replay --since 30d --policy las2d\n"
    "  allot sim replay --since 7d --policy easy --report week.html\n"
    "  allot sim replay --since 2026-10-01 --until 2026-11-01 --policy fifo --cluster 20x8xA100"
)

OwnCluster = Annotated[
    str,
    typer.Option(
        "--cluster",
        metavar="16x8|FILE",
        help="Other machines than the service's own.",
        show_default=False,
    ),
]


def replay(  # noqa: PLR0913, PLR0917 - a flag each
    since: Annotated[
        str, typer.Option("--since", metavar="30d|DATE", help="How far back, or a date.")
    ],
    policy: Annotated[str, typer.Option("--policy", metavar="NAME")],
    until: Annotated[
        str,
        typer.Option(
            "--until",
            metavar="7d|DATE",
            help="Up to when; now when left out.",
            show_default=False,
        ),
    ] = "",
    cluster: OwnCluster = "",
    set_: Set = None,
    seed: Seed = 0,
    jobs_out: JobsOut = "",
    report: Report = "",
    state: State = "",
    as_json: AsJson = False,
) -> None:
    """Play the service's own history under another policy, and compare.

    Its event log is the trace: what ran comes again when it came, runs as long as it ran,
    on the same machines. Compared are the jobs that have ended. docs/guide/replay.md says
    what is counted and how.
    """  # fmt: skip
    from allotment.wiring import history as past  # noqa: PLC0415 - a whole world, only here
    from allotment.wiring import sim as world  # noqa: PLC0415

    now = round(time.time() * SECOND)
    pairs = tuple(set_ or ())
    with told_as_misuse():
        world.recipe(policy)
        read_settings(pairs)
        first, last = _instant("--since", since, now), _instant("--until", until or "0", now)
        if first >= last:
            raise Misused("--since is not before --until, so nothing lies between them.")
        if cluster:
            world.open_cluster(cluster)
        with Client(state=state) as client:
            records = past.records_of(client.events(after=0, limit=EVERYTHING))
            history = history_of(records, first, last)
        _refuse_empty(history, first, last)
        scenario = past.replayed(history, policy, cluster, pairs, seed)
        with progress(len(history.trace.jobs)) as told:
            run = world.run(scenario, told)
        if jobs_out:
            world.write_jobs(Path(jobs_out), run.jobs)
        if report:
            world.write_report(Path(report), [run])
    for warning in run.warnings:
        warn(warning)
    compared = side_by_side(history.happened, run.jobs)
    if as_json:
        parts = {"since": first, "until": last, "compared": compared}
        say_json({**parts, "run": machine_form(run)})
        return
    _tell(run, compared, first, last)


def _instant(option: str, text: str, now: int) -> int:
    """Read a length of time before now, or a date and time of here. Gives ms."""
    try:
        return round(datetime.fromisoformat(text).timestamp() * SECOND)
    except (ValueError, OverflowError):
        pass
    try:
        ago = read_length(text)
    except BadSetting as error:
        raise Misused(
            f"{option}: {text!r} is neither a length of time nor a date.",
            "Write how long ago, as 30d or 12h, or a date, as 2026-10-01.",
        ) from error
    if ago < 0:
        raise Misused(f"{option}: {text!r} lies ahead.", "Write how long ago, as 30d.")
    return now - ago


def _refuse_empty(history: History, first: int, last: int) -> None:
    if history.trace.jobs:
        return
    never = sum(number for _, number in history.trace.dropped)
    also = f" {count(never, 'job')} came and never ran." if never else ""
    raise Misused(
        f"No job ran between {_date(first)} and {_date(last)}.{also}",
        "Look further back with --since, or see `allot events`.",
    )


# ── in words ────────────────────────────────────────────────────────────────────────────

COLUMNS = (
    Column(""),
    Column("mean wait", right=True),
    Column("p50", rank=3, right=True),
    Column("p90", rank=1, right=True),
    Column("mean JCT", right=True),
    Column("p50", rank=4, right=True),
    Column("p90", rank=2, right=True),
    Column("preempted", rank=2, right=True),
)


def _tell(run: Run, compared: SideBySide, first: int, last: int) -> None:
    told = ", told every run time beforehand" if run.clairvoyant else ""
    say(paint(f"{run.policy} on {run.cluster}{told}", "bold"))
    say(f"  from {_date(first)} to {_date(last)}, {count(len(run.jobs), 'job')} ran")
    for why, number in run.dropped:
        say(f"  left out: {count(number, 'job')}: {why}")
    summary = run.summary
    if summary is not None and summary.never_schedulable:
        say(f"  {count(summary.never_schedulable, 'job')} can never run on these machines")
    say()
    if not compared.jobs:
        say("  None of them ended in both, so there is nothing to compare.")
        return
    history, replay = compared.history, compared.replay
    print_table(COLUMNS, [_row("as it was", history), _row(run.policy, replay)])
    say()
    wait = _change(history.avg_queue_delay_s, replay.avg_queue_delay_s)
    jct = _change(history.avg_jct_s, replay.avg_jct_s)
    say(f"  mean wait {wait}, mean completion {jct}")
    same = compared.jobs - compared.earlier - compared.later
    say(
        f"  of {count(compared.jobs, 'job')} that ended: {compared.earlier} earlier, "
        f"{compared.later} later, {same} at the same instant"
    )


def _row(name: str, course: Course) -> list[str]:
    lengths = [
        course.avg_queue_delay_s, course.p50_queue_delay_s, course.p90_queue_delay_s,
        course.avg_jct_s, course.p50_jct_s, course.p90_jct_s,
    ]  # fmt: skip
    return [
        name,
        *(show_millis(round(length * SECOND)) for length in lengths),
        f"{course.preemptions:,}",
    ]


def _change(before: float, after: float) -> str:
    if before == after:
        return "unchanged"
    if not before:
        return f"up from nothing to {show_millis(round(after * SECOND))}"
    share = (after - before) / before
    return f"{'down' if share < 0 else 'up'} {abs(share):.1%}"


def _date(ms: int) -> str:
    return datetime.fromtimestamp(ms / SECOND).astimezone().strftime("%Y-%m-%d %H:%M")
