"""Users of this machine: who stands behind a uid."""

import grp
import os
import pwd
from collections import Counter
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from time import monotonic

from allotment.model.errors import Code, Rejected
from allotment.model.ids import Actor
from allotment.service.threads import Threads

KEEP_S = 60.0
"""How long an answer is used: a directory service behind it may be slow."""

PATIENCE_S = 10.0


SUBORDINATES = Path("/etc/subuid")
"""Which numbers of users are whose, to be used in user namespaces: OWNER:FIRST:COUNT."""


def actor_of(uid: int) -> Actor:
    """Return the user behind a uid, with its name and groups. May block on a directory service.

    Raises Rejected for a subordinate uid, of which a user may have thousands: each would get a
    share of its own, and could confirm what the others claim.
    """
    try:
        entry = pwd.getpwuid(uid)
    except KeyError:
        if owner := _owner_of(uid):
            raise Rejected(
                Code.FORBIDDEN,
                f"User {uid} is a subordinate uid of {owner}.",
                f"Ask as {owner}, outside of the user namespace.",
            ) from None
        return Actor(str(uid), uid)
    gids = os.getgrouplist(entry.pw_name, entry.pw_gid)
    return Actor(entry.pw_name, uid, tuple(filter(None, map(_group_name, gids))))


def _owner_of(uid: int) -> str:
    """Return whose subordinate a number is; empty if nobody's."""
    try:
        lines = SUBORDINATES.read_text("utf-8", "replace").splitlines()
    except OSError:
        return ""
    for line in lines:
        owner, _, numbers = line.partition(":")
        first, _, count = numbers.partition(":")
        if first.isdecimal() and count.isdecimal() and 0 <= uid - int(first) < int(count):
            return owner
    return ""


def gids_of(uid: int) -> frozenset[int]:
    """Return the numbers of a user's groups. May block on a directory service."""
    try:
        entry = pwd.getpwuid(uid)
    except KeyError:
        return frozenset()
    return frozenset(os.getgrouplist(entry.pw_name, entry.pw_gid))


def _group_name(gid: int) -> str:
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return ""


FIRST_USER, LAST_USER = 1000, 59_999
"""Numbers of people and their groups, by the convention of Linux distributions."""

NO_SHELLS = ("nologin", "false")
"""Shells of accounts that are nobody's."""


def teams_here() -> list[str]:
    """Return the groups that a first configuration makes tenants of; none for a single user.

    A user's own service is for this user alone. Root's is for the people of the machine.
    """
    if os.geteuid() != 0:
        return []
    return teams_of({
        entry.pw_uid: gids_of(entry.pw_uid)
        for entry in pwd.getpwall()
        if FIRST_USER <= entry.pw_uid <= LAST_USER
        and not entry.pw_shell.endswith(NO_SHELLS)
    })  # fmt: skip


def teams_of(people: Mapping[int, frozenset[int]]) -> list[str]:
    """Return the groups that divide users into teams, by name: each group that two users share.

    A user that shares none stands for itself, by a group of its own. A single user needs no
    team. `people` has the gids of each uid.
    """
    if len(people) < 2:
        return []
    counts = Counter(gid for gids in people.values() for gid in gids if _is_of_people(gid))
    chosen: set[int] = set()
    for gids in people.values():
        theirs = {gid for gid in gids if _is_of_people(gid)}
        chosen |= {gid for gid in theirs if counts[gid] > 1} or set(sorted(theirs)[:1])
    return [name for gid in sorted(chosen) if (name := _group_name(gid))]


def _is_of_people(gid: int) -> bool:
    return FIRST_USER <= gid <= LAST_USER


class Accounts:
    """Asks the host for users without blocking the event loop, and remembers them."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[float, Actor]] = {}
        self._threads = Threads("callers")

    async def actor(self, uid: int) -> Actor:
        """Return the actor behind a uid. Raises Rejected when the host does not say."""
        known = self._known.get(uid)
        now = monotonic()
        if known is not None and known[0] > now:
            return known[1]
        try:
            found = await self._threads.run(uid, partial(actor_of, uid), PATIENCE_S)
        except TimeoutError:
            if known is not None:
                return known[1]
            raise Rejected(
                Code.UNAVAILABLE,
                f"The host did not say in {PATIENCE_S:.0f} s who user {uid} is.",
                "Check whether its user directory answers (`id`), and try again.",
            ) from None
        self._known[uid] = (now + KEEP_S, found)
        return found
