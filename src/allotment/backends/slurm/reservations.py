"""Slurm's reservations: which are ours to use, and until when a job may run beside the others.

Pure: time comes in. Slurm starts no job on a node if its time limit reaches into a reservation
there that it does not use, nor one that uses a reservation and could outlast it.
"""

import re
from collections.abc import Collection, Iterator
from datetime import datetime
from typing import NamedTuple

import msgspec

from allotment.backends.slurm.switches import names_of
from allotment.model.engines import EngineSetup, EngineType
from allotment.model.errors import BackendError
from allotment.model.quantity import MINUTE, WallTime
from allotment.model.reservations import FoundReservation

SLURM = "slurm"
"""What an engine without a name is called in the names of its reservations."""
START = " StartTime="
WORD = re.compile(r"(\w+)=(\S+)")
TIME = "%Y-%m-%dT%H:%M:%S"
FLOAT_MS = 10 * MINUTE
"""One that stays ahead by the clock (TIME_FLOAT) is told of in steps of this."""
ROOT = "root"


class SlurmReservation(msgspec.Struct, frozen=True):
    """A reservation as Slurm tells of it; times in milliseconds since the epoch."""

    name: str
    begin: int
    end: int
    nodes: tuple[str, ...]
    users: tuple[str, ...] = ()
    accounts: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()

    @property
    def is_maintenance(self) -> bool:
        return "MAINT" in self.flags


class Holder(NamedTuple):
    """Whose job it is."""

    user: str
    tenant: str = ""


class Uses(msgspec.Struct, frozen=True):
    """Who of ours may use a reservation while it lasts."""

    users: tuple[str, ...] = ()
    tenants: tuple[str, ...] = ()
    all: bool = False

    def admits(self, holder: Holder) -> bool:
        """Whether a job may use it."""
        return self.all or holder.user in self.users or holder.tenant in self.tenants


def reservations_of(text: str) -> tuple[SlurmReservation, ...]:
    """Read `scontrol --oneliner show reservations`, whose times are UTC; what has no times or
    no nodes, such as one of licenses, is left out."""
    return tuple(filter(None, map(_read, text.splitlines())))


def _read(line: str) -> SlurmReservation | None:
    head, start, rest = line.partition(START)
    name = head.removeprefix("ReservationName=")
    told = dict(WORD.findall(start + rest))
    begin, end = _instant(told.get("StartTime", "")), _instant(told.get("EndTime", ""))
    nodes = tuple(names_of(_said(told.get("Nodes", ""))))
    if name == head or begin is None or end is None or not nodes:
        return None
    users, accounts, groups, flags = (
        words_of(_said(told.get(key, ""))) for key in ("Users", "Accounts", "Groups", "Flags")
    )
    return SlurmReservation(name, begin, end, nodes, users, accounts, groups, flags)


def _said(word: str) -> str:
    return "" if word == "(null)" else word


def words_of(text: str) -> tuple[str, ...]:
    """Return the words of a list with commas between."""
    return tuple(word for word in text.split(",") if word)


def _instant(text: str) -> int | None:
    try:
        return int(datetime.strptime(f"{text}+0000", f"{TIME}%z").timestamp()) * 1000
    except ValueError:
        return None


class Calendar(msgspec.Struct, frozen=True):
    """The reservations that Slurm told of last, for an engine whose service is `user`'s."""

    setup: EngineSetup
    user: str
    all: tuple[SlurmReservation, ...] = ()

    def uses(self, its: SlurmReservation) -> Uses:
        """Return who may use a reservation.

        Maintenance, and what is root's, is used only where the configuration names it: most
        of what keeps nodes free has root for its user. One for users and accounts both, for a
        group, or for all but some is used only so, too: Slurm alone knows whom it means.
        """
        if its.name == self.setup.reservation:
            return Uses(all=True)
        named = its.users + its.accounts
        is_clear = not (its.groups or (its.users and its.accounts))
        if its.is_maintenance or not is_clear or any(word[:1] == "-" for word in named):
            return Uses()
        if self.user != ROOT or self.setup.type is EngineType.PILOT:
            return Uses(all=self.user in its.users and self.user != ROOT)
        tenants = (name for name, account in self.setup.accounts if account in its.accounts)
        return Uses(tuple(user for user in its.users if user != ROOT), tuple(tenants))

    def found(self, now: WallTime) -> Iterator[FoundReservation]:
        """Return what is to be planned around: all but those that everybody here may use now.

        Before it begins, nobody's job may reach into one, not even by those who may use it.
        """
        for its in self.all:
            uses, has_begun = self.uses(its), its.begin <= now
            if not (uses.all and has_begun) and its.end > now:
                yield _found(its, uses, shut=not has_begun or uses == Uses())

    def named(self, nodes: Collection[str], holder: Holder, now: WallTime) -> str:
        """Return the reservation with which a job on these nodes is submitted; '' for none."""
        return next(
            (
                its.name
                for its in self.all
                if its.begin <= now < its.end
                and set(nodes) <= set(its.nodes)
                and self.uses(its).admits(holder)
            ),
            "",
        )

    def bound(
        self, nodes: Collection[str], named: str, now: WallTime
    ) -> tuple[int, str] | None:
        """Return until when a job on these nodes may run that is in the reservation `named`,
        and the reservation because of which; None without an end."""
        ends = (
            (its.end if its.name == named else its.begin, its.name)
            for its in self.all
            if its.end > now and not set(nodes).isdisjoint(its.nodes)
        )
        return min(ends, default=None)

    def minutes(self, nodes: Collection[str], named: str, now: WallTime) -> int | None:
        """Return for how many minutes a job may run on these nodes; None without an end.

        Raises BackendError where that is not even one.
        """
        bound = self.bound(nodes, named, now)
        if bound is None:
            return None
        until, name = bound
        if until - now < MINUTE:
            where = ", ".join(sorted(nodes))
            raise BackendError(f"Slurm's reservation {name} is in force on {where}")
        return (until - now) // MINUTE


def _found(its: SlurmReservation, uses: Uses, *, shut: bool) -> FoundReservation:
    begin, end = its.begin, its.end
    if "TIME_FLOAT" in its.flags:
        begin, end = begin - begin % FLOAT_MS, end - end % FLOAT_MS
    whose = "maintenance in Slurm" if its.is_maintenance else "in Slurm"
    who = its.users if shut else uses.users
    who += tuple(f"account {name}" for name in its.accounts)
    who += tuple(f"group {name}" for name in its.groups)
    return FoundReservation(
        its.name,
        WallTime(begin),
        WallTime(end),
        its.nodes,
        () if its.is_maintenance else who,
        uses.tenants,
        shut=shut,
        reason=whose,
    )
