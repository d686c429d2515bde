"""`allot pools`: the pools of nodes, and which waiting jobs more of their nodes would help."""

from collections.abc import Iterator

from allotment.cli.options import AsJson, State
from allotment.cli.output import say, say_json, talk
from allotment.cli.table import Column, print_table
from allotment.cli.words import count
from allotment.client import Client
from allotment.model.quantity import show_resources
from allotment.service.pools_view import HelpedJob, MoreNodes, PoolView, WayView

POOLS = (
    Column("POOL"),
    Column("NODES", right=True),
    Column("WANTED", right=True),
    Column("MOST", rank=3, right=True),
    Column("PRICE/H", rank=1, right=True),
    Column("TYPE", rank=2, flexible=True),
    Column("EACH", rank=4, flexible=True),
)
JOBS = (
    Column("JOB", right=True),
    Column("NAME", rank=2, flexible=True),
    Column("TENANT", rank=3, flexible=True),
    Column("NEEDS", rank=4, flexible=True),
    Column("MORE NODES"),
    Column("PRICE/H", right=True),
    Column("OR", rank=1, flexible=True),
)
MOST_WAYS = 3
"""Other ways that are named; `--json` has them all."""


def pools(state: State = "", as_json: AsJson = False) -> None:
    """List the pools of nodes, and the jobs that more of their nodes would let start.

    WANTED is the number of nodes that the planner would use in addition. The second table lists
    each waiting job that they would let start, in the order of the queues; earlier jobs keep
    their nodes. A job is not listed if no node would help it: it waits for its turn, for quota
    or for a place that others are leaving. If there are several ways, the cheapest counts.

    The label `pool` of a node names its pool; on Kubernetes it is the label of the cloud.
    `pools` in the configuration adds prices, limits, and pools without nodes.

    Examples:
      allot pools
      allot pools --json
    """
    with Client(state=state) as client:
        found = client.pools()
    if as_json:
        say_json(found)
        return
    if not found.pools:
        talk("no node has the label `pool`, and the configuration names no `pools`")
        return
    print_table(POOLS, [_row(pool) for pool in found.pools])
    if found.jobs:
        say()
        print_table(JOBS, [_job_row(job) for job in found.jobs])
    for note in _notes(found):
        talk(note)


def _row(pool: PoolView) -> tuple[str, ...]:
    return (
        pool.name,
        str(pool.nodes),
        str(pool.wanted) if pool.wanted else "-",
        "-" if pool.most is None else str(pool.most),
        price(pool.price_milli),
        pool.device_type or "-",
        show_resources(pool.each),
    )


def _job_row(job: HelpedJob) -> tuple[str, ...]:
    first, *others = job.ways or (None,)
    more = [f"{_added(way)} ({price(way.price_milli)})" for way in others[:MOST_WAYS] if way]
    return (
        str(job.job),
        job.name,
        job.tenant,
        show_resources(job.need),
        _added(first) if first else "those above",
        price(first.price_milli) if first else "-",
        ", ".join(more),
    )


def _added(way: WayView) -> str:
    return " and ".join(f"{add.nodes} of {add.pool}" for add in way.add)


def price(milli: int | None) -> str:
    """Return a price for an hour as people write it; `-` where it is not known."""
    if milli is None:
        return "-"
    whole, part = divmod(milli, 1000)
    return f"{whole:,}.{part:03d}".removesuffix("0")


def _notes(found: MoreNodes) -> Iterator[str]:
    """Return what the tables do not say."""
    if found.looked_at < found.waiting:
        yield f"looked at the first {found.looked_at:,} of {found.waiting:,} waiting jobs"
    rest = found.looked_at - len(found.jobs)
    if found.jobs and rest:
        yield f"{count(rest, 'other waiting job')} would not start by more nodes alone"
    elif rest:
        yield f"{count(rest, 'job')} waiting, and more nodes would let none of them start"
