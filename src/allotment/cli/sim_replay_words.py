"""A replay beside what really happened: for people, and for programs."""

from allotment.cli.instants import date
from allotment.cli.output import paint, say
from allotment.cli.sim_words import BOUND, marked, never_words
from allotment.cli.sim_words import machine_form as run_form
from allotment.cli.table import Column, print_table
from allotment.cli.words import count
from allotment.model.quantity import SECOND, show_millis
from allotment.sim.history import History
from allotment.sim.outcome import Run
from allotment.sim.replayed import Course, SideBySide
from allotment.wiring.history import OWN

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


def in_words(run: Run, compared: SideBySide, first: int, last: int, *, changed: bool) -> None:
    """Print the two courses, and what differs; `changed` are machines, tenants or settings."""
    told = ", which knew every run time beforehand" if run.clairvoyant else ""
    say(paint(f"{run.policy} on {run.cluster}{told}", "bold"))
    say(f"  from {date(first)} to {date(last)}, {count(len(run.jobs), 'job')} ran")
    for why, number in run.dropped:
        say(f"  left out: {count(number, 'job')}: {why}")
    if never := run.summary.never_schedulable:
        say(f"  {count(never, 'job')} can never run on these machines")
        for reason in never_words(run):
            say(f"    {reason}")
    say()
    if not compared.jobs:
        say("  None of them ended in both, so there is nothing to compare.")
        return
    history, replay = compared.history, compared.replay
    print_table(COLUMNS, [_row("as it was", history), _row(marked(run), replay)])
    if run.clairvoyant:
        say(f"* clairvoyant: {BOUND}.")
    say()
    wait = _change(history.avg_queue_delay_s, replay.avg_queue_delay_s)
    jct = _change(history.avg_jct_s, replay.avg_jct_s)
    say(f"  mean wait {wait}, mean completion {jct}")
    same = compared.jobs - compared.earlier - compared.later
    say(
        f"  of {count(compared.jobs, 'job')} that ended: {compared.earlier} earlier, "
        f"{compared.later} later, {same} at the same instant"
    )

    say(f"  {trusted(run, compared, changed=changed)}")


ALIKE = 0.01
"""Up to this part of the mean completion a replay is as it was."""


def trusted(run: Run, compared: SideBySide, *, changed: bool) -> str:
    """Return how far a replay under the present policy can be trusted, or how to find out."""
    was, would = compared.history.avg_jct_s, compared.replay.avg_jct_s
    if run.policy != OWN or changed:
        return f"how far replays of this history are off: allot sim replay --policy {OWN}"
    off = abs(would - was) / was if was else 0.0
    if off <= ALIKE:
        return (
            "this is the policy that was in force, and its replay is like the history: "
            "replays can be trusted"
        )
    return (
        f"this is the policy that was in force, and it is {off:.1%} off in mean completion: "
        "replays of this history cannot show smaller differences"
    )


def machine_form(run: Run, compared: SideBySide, first: int, last: int) -> dict[str, object]:
    """Return what `--json` prints: both courses, and the run as `allot sim run` gives it."""
    return {"since": first, "until": last, "compared": compared, "run": run_form(run)}


def nothing_ran(history: History, first: int, last: int) -> str:
    """Return a message that there is nothing to replay."""
    never = sum(number for _, number in history.trace.dropped)
    also = f" {count(never, 'job')} came and never ran." if never else ""
    return f"No job ran between {date(first)} and {date(last)}.{also}"


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
