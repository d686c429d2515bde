"""The end of the demo: who waited, who got what, and what was checked."""

import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from allotment.demo.cast import NAMES, PROCESSES, team_of
from allotment.demo.checks import Check
from allotment.demo.facts import Facts
from allotment.demo.setting import TEAMS, Setting
from allotment.model import events as e
from allotment.model.ledger import Entitlement
from allotment.model.quantity import DEVICE, SECOND, show_milli

FINISHED = (e.JobSucceeded, e.JobFailed, e.JobCancelled, e.JobTimedOut)


class Course(msgspec.Struct):
    """One job's way through the log, in milliseconds."""

    waited: int = 0
    ran: int = 0
    lost: int = 0
    attempts: int = 0
    took: int = 0
    end: str = "unfinished"


def course_of(facts: Facts, name: str) -> Course:
    """Add up a job's waits (back-offs too), runs and losses."""
    course = Course()
    began = waiting_since = running_since = 0
    for fact, event in facts.each(e.Event, name):
        match event:
            case e.JobSubmitted():
                began = waiting_since = fact.at
            case e.AttemptPlaced():
                course.waited += fact.at - waiting_since
                course.attempts += 1
            case e.AttemptStarted():
                running_since = fact.at
            case e.AttemptEnded(_, _, _, _, lost_ms):
                course.ran += fact.at - running_since
                course.lost += lost_ms
            case e.JobRequeued():
                waiting_since = fact.at
            case _ if isinstance(event, FINISHED):
                course.took = fact.at - began
                course.end = type(event).__name__.removeprefix("Job").lower()
            case _:
                continue
    return course


class Use(msgspec.Struct):
    """What one team had, in thousandths of a device × milliseconds."""

    own: int = 0
    borrowed: int = 0


def use_of(facts: Facts) -> dict[str, Use]:
    """Add up device time by team, what was guaranteed apart from what was borrowed."""
    uses = {team: Use() for team in TEAMS}
    held: dict[int, tuple[int, int, Entitlement]] = {}
    for fact in facts.all:
        job = fact.job
        if job is None:
            continue
        if job in held and isinstance(fact.event, (e.AttemptPromoted, e.AttemptEnded)):
            since, milli, grounds = held.pop(job)
            _add(uses[team_of(facts.names[job])], grounds, milli * (fact.at - since))
            if isinstance(fact.event, e.AttemptPromoted):
                held[job] = (fact.at, milli, Entitlement.GUARANTEED)
        elif isinstance(fact.event, e.AttemptPlaced):
            milli = sum(slot.gpu_milli for slot in fact.event.slots)
            held[job] = (fact.at, milli, fact.event.entitlement)
    return uses


def _add(use: Use, grounds: Entitlement, amount: int) -> None:
    if grounds is Entitlement.GUARANTEED:
        use.own += amount
    else:
        use.borrowed += amount


def show(
    console: Console, facts: Facts, setting: Setting, checks: list[Check], took_s: float
) -> None:
    """Print the report."""
    console.print()
    console.print(Text("Report", style="bold"))
    console.print(_jobs(facts))
    console.print()
    console.print(_teams(facts, setting))
    console.print()
    for check in checks:
        sign, style = ("✓", "green") if check.ok else ("✗", "bold red")
        console.print(
            Text.assemble((f"{sign} ", style), check.what, (f" — {check.proof}", "dim")),
            soft_wrap=True,
        )
    good = sum(check.ok for check in checks)
    console.print()
    console.print(
        Text(f"{good} of {len(checks)} checks hold; the story took {took_s:.0f} s.", "bold")
    )


def _jobs(facts: Facts) -> Table:
    table = _table("JOB", "RANKS", "TRIES", "WAITED", "RAN", "LOST", "TOOK", "END")
    for name in NAMES:
        course = course_of(facts, name)
        table.add_row(
            name,
            str(PROCESSES[name]),
            str(course.attempts),
            _seconds(course.waited),
            _seconds(course.ran),
            _seconds(course.lost),
            _seconds(course.took),
            course.end,
        )
    return table


def _teams(facts: Facts, setting: Setting) -> Table:
    kind = "virtual GPU" if setting.virtual else "GPU"
    total = f"IN ALL ({kind} seconds)"
    table = _table("TEAM", f"GUARANTEED {kind}s", "OWN USE", "BORROWED", total)
    guaranteed = show_milli(2 * setting.place.gpu_milli)
    for team, use in use_of(facts).items():
        table.add_row(
            team,
            guaranteed,
            _amount(use.own),
            _amount(use.borrowed),
            _amount(use.own + use.borrowed),
        )
    return table


def _table(first: str, *others: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column(first)
    for heading in others:
        table.add_column(heading, justify="right")
    return table


def _seconds(ms: int) -> str:
    return f"{ms / SECOND:.1f} s"


def _amount(milli_ms: int) -> str:
    return f"{milli_ms / DEVICE / SECOND:.1f}"
