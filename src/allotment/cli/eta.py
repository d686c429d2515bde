"""`allot eta`: when a job starts, as a range; and how true such estimates were."""

from datetime import datetime
from textwrap import wrap
from typing import Annotated

import typer

from allotment.cli.options import JOB_HELP, AsJson, State, complete_job
from allotment.cli.output import paint, say, say_json
from allotment.cli.sim_options import Misused
from allotment.cli.words import borrows, count, show_span
from allotment.client import Client
from allotment.model.forecast import Counted, Ground
from allotment.model.ids import JobId
from allotment.model.ledger import Entitlement
from allotment.model.quantity import DAY, SECOND
from allotment.service.estimate_view import Accuracy, Outlook, Place, StartEstimate

WIDTH = 80
MOST_NODES = 4
"""Nodes that are named; of the others only the number is told."""

GROUNDS = {
    Ground.SAME_NAME: "earlier jobs of the same user and name",
    Ground.LIMIT_USED: "what the tenant's jobs use of their time limits",
    Ground.TENANT: "other jobs of the tenant",
    Ground.LIMIT: "time limits alone",
    Ground.UNKNOWN: "nothing known",
}

OptionalJob = Annotated[
    str,
    typer.Argument(
        metavar="JOB", help=JOB_HELP, autocompletion=complete_job, show_default=False
    ),
]


def eta(
    job: OptionalJob = "",
    accuracy: Annotated[
        bool, typer.Option("--accuracy", help="Show how good earlier estimates were.")
    ] = False,
    state: State = "",
    as_json: AsJson = False,
) -> None:
    """Estimate when a job starts: a range, and the basis of the estimate.

    The service simulates the future of a copy of its state three times, with short, likely
    and long run times of the jobs in the way. These are the run times of earlier jobs of the
    same user and name, else of the tenant, within max_run_time. The estimate assumes that no
    new job is submitted.

    Examples:
      allot eta 12
      allot eta last --json
      allot eta --accuracy
    """
    if bool(job) is accuracy:
        raise Misused("Name a job, or ask for --accuracy.", "For example: allot eta last")
    with Client(state=state) as client:
        found = client.accuracy() if accuracy else client.eta(job)
    if as_json:
        say_json(found)
        return
    for line in accuracy_lines(found) if isinstance(found, Accuracy) else eta_lines(found):
        say(line)


# ── an estimate ─────────────────────────────────────────────────────────────────────────


def eta_lines(found: StartEstimate) -> list[str]:
    """Return a whole estimate as lines; shared with `submit --dry-run`."""
    lines = [f"{_subject(found)} {paint(_verdict(found), 'bold')}"]
    if found.note:
        lines += _folded(found.note)
    lines += _range(found)
    if found.places:
        lines += _folded(f"Where: {_where(found.places)}{_right(found)}.")
    if found.basis and found.outlook is not Outlook.NOW:
        lines += ["", *_folded(f"Run times of jobs before it: {_basis(found.basis)}.")]
    if found.confidence:
        lines += _folded(f"Confidence: {found.confidence}.")
    if found.assumptions:
        lines += _folded(f"Assumed: {' '.join(found.assumptions)}")
    return lines


def _subject(found: StartEstimate) -> str:
    return f"Job {found.job} ({found.name})" if found.job is not None else f"Job {found.name}"


def _verdict(found: StartEstimate) -> str:
    would = "would start" if found.job is None else "starts"
    match found.outlook:
        case Outlook.STARTED:
            return f"has started, at {_clock(found.expected, found.asked_at)}."
        case Outlook.NOW:
            return f"{would} now."
        case Outlook.LATER:
            return f"{would} {_ahead(found.expected, found.asked_at)}."
        case Outlook.UNKNOWN:
            return "waits, and its start cannot be estimated."
        case Outlook.NEVER:
            return "cannot start as things are now."


def _range(found: StartEstimate) -> list[str]:
    if found.outlook is Outlook.LATER:
        early, late = (_ahead(at, found.asked_at) for at in (found.earliest, found.latest))
        last = (
            f"at the latest {late}" if found.latest is not None else "the latest is not known"
        )
        return _folded(f"At the earliest {early}, {last}.")
    if found.outlook is Outlook.UNKNOWN:
        early = _ahead(found.earliest, found.asked_at)
        if_so = f", if {_they(found.endless)} ended at once" if found.endless else ""
        known = [f"At the earliest {early}{if_so}."] if found.earliest is not None else []
        if found.not_before is not None and found.not_before > found.asked_at:
            known.append(f"Likely not before {_clock(found.not_before, found.asked_at)}.")
        return _folded(" ".join(known)) if known else []
    return []


def _they(jobs: tuple[JobId, ...]) -> str:
    return f"job {jobs[0]}" if len(jobs) == 1 else "they"


def _ahead(at: int | None, now: int) -> str:
    if at is None:
        return "at no known time"
    if at - now < SECOND:
        return "now"
    return f"in {show_span(at - now)} ({_clock(at, now)})"


def _clock(at: int | None, now: int) -> str:
    if at is None:
        return "some time"
    then = datetime.fromtimestamp(at / SECOND).astimezone()
    return then.strftime("%H:%M" if abs(at - now) < DAY else "%Y-%m-%d %H:%M")


def _where(places: tuple[Place, ...]) -> str:
    named = [
        f"{place.node} {_devices(place.devices)}" if place.devices else place.node
        for place in places[:MOST_NODES]
    ]
    more = len(places) - MOST_NODES
    return ", ".join(named) + (f" and {count(more, 'more node')}" if more > 0 else "")


def _devices(devices: tuple[int, ...]) -> str:
    in_a_row = devices == tuple(range(devices[0], devices[0] + len(devices)))
    if in_a_row and len(devices) > 2:
        return f"GPU {devices[0]}-{devices[-1]}"
    return "GPU " + ",".join(map(str, devices))


def _right(found: StartEstimate) -> str:
    match found.entitlement:
        case Entitlement.GUARANTEED:
            return ", within its tenant's guarantee"
        case Entitlement.OPPORTUNISTIC:
            what = f"it {borrows(found.borrowed)}" if found.borrowed else "borrowed"
            return f"; {what}, until another tenant reclaims it"
        case None:
            return ""


def _basis(basis: tuple[Counted, ...]) -> str:
    total = sum(each.jobs for each in basis)
    told = "; ".join(f"{each.jobs} from {GROUNDS[each.ground]}" for each in basis)
    return f"{total}, {told}" if len(basis) > 1 else told


def _folded(text: str) -> list[str]:
    return wrap(text, WIDTH, initial_indent="  ", subsequent_indent="  ")


# ── accuracy ────────────────────────────────────────────────────────────────────────────


def accuracy_lines(found: Accuracy) -> list[str]:
    """Return as lines how good estimates were."""
    if not found.given:
        return ["No estimate was given yet.", "  To get one: allot eta JOB"]
    told = count(found.given, "estimate")
    lines = [f"Of {told}, {found.judged} can be judged: their jobs have started."]
    if found.median_error_ms is not None:
        lines.append(f"  Median error: {show_span(found.median_error_ms)}, either way.")
    if found.ranges:
        lines.append(
            f"  Within the range told: {found.within} of {found.ranges} "
            f"({found.within * 100 // found.ranges}%)."
        )
    rest = [
        f"{number} {words}"
        for number, words in (
            (found.waiting, "of jobs that still wait"),
            (found.never, "of jobs that ended without having started"),
        )
        if number
    ]
    return [*lines, *(f"  {each}." for each in rest)]
