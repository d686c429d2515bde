"""`allot reserve`, `unreserve` and `reservations`: nodes set aside for a time."""

import time
from datetime import UTC, datetime
from typing import Annotated

import typer

from allotment.cli.instants import ahead, length
from allotment.cli.options import AsJson, State
from allotment.cli.output import say_json, talk
from allotment.cli.sim_options import Misused
from allotment.cli.table import Column, print_table
from allotment.client import Client
from allotment.model.quantity import SECOND, show_millis
from allotment.model.reservations import NOTICE_MS
from allotment.service.reservation_view import ReservationNote, ReservationView

COLUMNS = (
    Column("NAME"),
    Column("FOR", rank=1, flexible=True),
    Column("BEGINS"),
    Column("LASTS", right=True),
    Column("GPU", rank=2, right=True),
    Column("NODES", rank=3, flexible=True),
    Column("JOBS", rank=4, flexible=True),
    Column("NOTE", rank=5, flexible=True),
)
Name = Annotated[str, typer.Argument(metavar="NAME", help="The name of the reservation.")]
Many = list[str] | None


def reserve(  # noqa: PLR0913, PLR0917 - one an option
    name: Name,
    start: Annotated[
        str,
        typer.Option(
            "--from", metavar="WHEN", help="A date and time, how far ahead (2h), or now."
        ),
    ] = "now",
    until: Annotated[
        str, typer.Option("--until", metavar="WHEN", help="A date and time.")
    ] = "",
    lasting: Annotated[
        str, typer.Option("--for", metavar="LENGTH", help="How long: 4h, 2d.")
    ] = "",
    node: Annotated[Many, typer.Option("--node", help="A node; may be repeated.")] = None,
    devices: Annotated[
        int, typer.Option("--devices", help="Instead of --node: whole nodes with this many.")
    ] = 0,
    kind: Annotated[str, typer.Option("--type", help="The type of these devices.")] = "",
    user: Annotated[
        Many, typer.Option("--user", help="A user who may use it; repeatable.")
    ] = None,
    tenant: Annotated[Many, typer.Option("--tenant", help="A tenant that may use it.")] = None,
    queue: Annotated[
        Many, typer.Option("--queue", help="A TENANT/QUEUE whose jobs may use it.")
    ] = None,
    evict: Annotated[
        bool, typer.Option("--evict", help="Evict jobs that still run there when it begins.")
    ] = False,
    notice: Annotated[
        str,
        typer.Option(
            "--notice",
            metavar="LENGTH",
            help="Jobs without a time limit stay off these nodes for this long before it.",
        ),
    ] = "",
    reason: Annotated[
        str,
        typer.Option("--reason", "-r", metavar="TEXT", help="The reason. Other users see it."),
    ] = "",
    state: State = "",
    as_json: AsJson = False,
) -> None:
    """Set nodes aside for a time: for maintenance, or for some users.

    No job that could still run when the reservation begins is placed on these nodes. When it
    ends, all jobs may use the nodes again.

    Examples:
      allot reserve fans --node n1 --node n2 --from "2026-12-01 08:00" --for 4h
      allot reserve demo --devices 16 --type A100 --tenant vision --for 2d
    """
    now = time.time_ns() // 1_000_000
    begin = ahead("--from", start, now)
    if bool(until) is bool(lasting):
        raise Misused("Say when it ends: --until or --for, one of them.", "As in --for 4h.")
    note = ReservationNote(
        name=name,
        begin=begin,
        end=ahead("--until", until, now) if until else begin + length("--for", lasting),
        nodes=tuple(node or ()),
        devices=devices,
        type=kind,
        users=tuple(user or ()),
        tenants=tuple(tenant or ()),
        queues=tuple(queue or ()),
        evict=evict,
        notice_ms=length("--notice", notice) if notice else NOTICE_MS,
        reason=reason,
    )
    with Client(state=state) as client:
        found = client.reserve(note)
    mine = next((one for one in found if one.name == name), None)
    if as_json:
        say_json(mine)
        return
    if mine is None:
        talk(f"reservation {name} is over already")
        return
    talk(f"{', '.join(mine.nodes)}: set aside for {_whom(mine)}, {_when(mine, now)}")
    if mine.jobs:
        fate = "are evicted when it begins" if evict else "run on"
        talk(f"Jobs there now that may not use it {fate}: {_jobs(mine)}")
    talk(f"To undo it: allot unreserve {name}")


def unreserve(name: Name, state: State = "", as_json: AsJson = False) -> None:
    """End a reservation now, so that all jobs may use its nodes again.

    Examples:
      allot unreserve fans
    """
    with Client(state=state) as client:
        client.end_reservation(name)
        left = client.reservations()
    if as_json:
        say_json(left)
        return
    talk(f"reservation {name} is over")


def reservations(state: State = "", as_json: AsJson = False) -> None:
    """List the nodes that are set aside, now or later, and for which users.

    JOBS lists jobs on these nodes that may not use them during the reservation, without jobs
    whose time limit ends them before it begins.

    Examples:
      allot reservations
    """
    with Client(state=state) as client:
        found = client.reservations()
    if as_json:
        say_json(found)
    elif found:
        now = time.time_ns() // 1_000_000
        print_table(COLUMNS, [_row(one, now) for one in found])
    else:
        talk("nothing is set aside")


def _row(one: ReservationView, now: int) -> tuple[str, ...]:
    return (
        one.name,
        _whom(one),
        _when(one, now),
        show_millis(one.end - one.begin),
        str(one.devices),
        ", ".join(one.nodes),
        _jobs(one) + (" (evicted)" if one.jobs and one.evict else ""),
        one.reason,
    )


def _whom(one: ReservationView) -> str:
    who = [*one.users, *one.tenants, *one.queues]
    return ", ".join(who) if who else "maintenance"


def _when(one: ReservationView, now: int) -> str:
    if one.begun:
        return f"now, for another {show_millis(max(0, one.end - now))}"
    begin = datetime.fromtimestamp(one.begin / SECOND, tz=UTC).astimezone()
    return f"{begin:%Y-%m-%d %H:%M}"


def _jobs(one: ReservationView) -> str:
    most = 5
    shown = ", ".join(map(str, one.jobs[:most]))
    more = len(one.jobs) - most
    return f"{shown} and {more} more" if more > 0 else shown
