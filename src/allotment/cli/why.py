"""`allot why`: what keeps a job from running."""

import time

from allotment.cli.options import AsJson
from allotment.cli.output import paint, say, say_json
from allotment.cli.selecting import OPTIONS, Choice, choosing, must_choose
from allotment.cli.show_attempts import held_up_lines, suspension_lines
from allotment.cli.table import Column, aligned
from allotment.cli.why_history import history_lines
from allotment.cli.words import borrows, count, not_heard, plain, show_span
from allotment.client import Client
from allotment.model.ledger import Entitlement
from allotment.model.lifecycle import JobState
from allotment.model.quantity import NOTHING, Resources, show_bytes, show_milli, show_resources
from allotment.model.reasons import Blocked, Holder, Reason
from allotment.service.views import JobView

FIELDS = (
    ("GPU", "gpu_milli"),
    ("GPU MEMORY", "gpu_memory"),
    ("CPU", "cpu_milli"),
    ("MEMORY", "memory"),
    ("DISK", "disk"),
)


@choosing(OPTIONS)
def why(choice: Choice, as_json: AsJson = False) -> None:
    """Show why a job waits: the main reason, its needs, what is free, which jobs hold it.

    Of a job that starts: what is brought for it. Of one that ends: what does not die.
    Then show its past, also of a running or finished job: its states, and the reasons for
    which it waited, with their times. A reason that held for seconds in a long wait is left
    out. For several jobs: show how many wait for each reason.

    Examples:
      allot why 12
      allot why last --json
      allot why 8
      allot why --mine
    """
    must_choose(choice)
    with Client(state=choice.folder) as client:
        chosen = client.choose(choice.jobs)
        if chosen.count != 1:
            _sum_up(client, choice, as_json)
            return
        found = client.job(chosen.ids[0][0])
        past = client.waits(found.id)
    if as_json:
        say_json(past)
        return
    for line in (*why_lines(found, int(time.time() * 1000)), *history_lines(past)):
        say(line)


MOST_LOOKED_AT = 10_000


def _sum_up(client: Client, choice: Choice, as_json: bool) -> None:
    """Print how many of the chosen jobs wait for what, with one of each as an example."""
    jobs = choice.jobs
    nobody = not (jobs.names_jobs or jobs.all or jobs.user)
    rows = client.jobs(
        refs=jobs.refs, tenant=jobs.tenant, user=jobs.user, mine=jobs.mine or nobody,
        pattern=jobs.name, states=jobs.states, labels=jobs.labels, limit=MOST_LOOKED_AT,
    )  # fmt: skip
    waiting: dict[str, list[int]] = {}
    for row in rows:
        if row.state.waiting or row.state is JobState.SUSPENDED:
            waiting.setdefault(row.reason, []).append(row.id)
    if as_json:
        say_json({reason: sorted(ids) for reason, ids in waiting.items()})
        return
    say(f"{sum(map(len, waiting.values())):,} of {count(len(rows), 'job')} wait.")
    for reason, ids in sorted(waiting.items(), key=lambda item: -len(item[1])):
        told = client.why(min(ids))
        words = f" {told.message}" if told else ""
        say(f"  {len(ids):,} {plain(reason) or 'about to start'}, such as {min(ids)}:{words}")


def why_lines(job: JobView, now: int) -> list[str]:
    """Return the whole answer as lines."""
    head = f"Job {job.id} ({job.row.name})"
    how = [f"  {line}" for attempt in job.attempts[-1:] for line in suspension_lines(attempt)]
    if job.why is None:
        how += [f"  {words}" for words in held_up_lines(job)]
        return [f"{head} is not waiting: it {_stands(job)}.", *how, *_next(job)]
    return [
        f"{head} waits: {paint(plain(job.why.reason), 'bold yellow')}.",
        *how,
        *reason_lines(job.why, now),
        *_failure(job, job.why),
    ]


def _failure(job: JobView, why: Blocked) -> list[str]:
    """Write what went wrong with a job that is about to be tried again."""
    last = job.attempts[-1].diagnosis if job.attempts else None
    if why.reason is not Reason.BACKOFF or last is None or last.cause in why.message:
        return []
    return ["", f"  {last.cause}", *([f"  {last.evidence}"] if last.evidence else [])]


def reason_lines(why: Blocked, now: int) -> list[str]:
    """Write a reason without its subject; shared with `show`."""
    lines = [f"  {why.message}"]
    if why.until and why.until > now:
        lines.append(f"  It may start in {show_span(why.until - now)}.")
    if why.need != NOTHING:
        lines += ["", *(f"  {line}" for line in _amounts(why.need, why.free))]
    if why.holders:
        lines += ["", *(f"  {line}" for line in _holders(why.holders))]
    if why.position:
        ahead = f", behind job {why.ahead}" if why.ahead is not None else ""
        lines += ["", f"  It is number {why.position} in its queue{ahead}."]
    if why.hint:
        lines += ["", f"  {why.hint}"]
    if why.notes:
        lines += ["", *(f"  {note}" for note in why.notes)]
    return lines


def _amounts(need: Resources, free: Resources) -> list[str]:
    """Write what is needed against what is free, and mark what is short."""
    rows = [["", "NEEDS", "FREE", ""]]
    for name, field in FIELDS:
        wanted, there = getattr(need, field), getattr(free, field)
        if wanted:
            write = show_milli if field.endswith("milli") else show_bytes
            note = "too little" if wanted > there else ""
            rows.append([name, write(wanted), write(max(0, there)), note])
    right = Column("", right=True)
    return aligned(rows, [Column(""), right, right, Column("")])


def _holders(holders: tuple[Holder, ...]) -> list[str]:
    rows = [["HELD BY", "NAME", "TENANT", "USER", "", "HOLDS"]]
    for holder in holders:
        lent = borrows(holder.borrowed) if holder.borrowed else _grounds(holder)
        held = show_resources(holder.held)
        rows.append([str(holder.job), holder.name, holder.tenant, holder.user, lent, held])
    return aligned(rows, [Column("")] * 6)


def _grounds(holder: Holder) -> str:
    return "borrowed" if holder.entitlement is Entitlement.OPPORTUNISTIC else "guaranteed"


def _stands(job: JobView) -> str:
    match job.state:
        case state if state.finished:
            return plain(state)
        case state if job.row.unheard:
            words = f"{not_heard(job.row.unheard)}; running tasks continue"
            return f"was {state} when its engine was last heard. {words}"
        case state:
            lent = f" and {borrows(job.row.borrowed)}" if job.row.borrowed else ""
            return f"is {state}{lent}"


def _next(job: JobView) -> list[str]:
    if job.state.finished:
        return [f"  How it went: allot show {job.id}"]
    return [f"  Its output: allot logs -f {job.id}"]
