"""Users of this machine: who stands behind a uid."""

import grp
import os
import pwd
from functools import partial
from time import monotonic

from allotment.model.errors import Code, Rejected
from allotment.model.ids import Actor
from allotment.service.threads import Threads

KEEP_S = 60.0
"""How long an answer is used: a directory service behind it may be slow."""

PATIENCE_S = 10.0


def actor_of(uid: int) -> Actor:
    """Ask the host for a user's name and groups. May block on a directory service."""
    try:
        entry = pwd.getpwuid(uid)
    except KeyError:
        return Actor(str(uid), uid)
    gids = os.getgrouplist(entry.pw_name, entry.pw_gid)
    return Actor(entry.pw_name, uid, tuple(filter(None, map(_group_name, gids))))


def gids_of(uid: int) -> frozenset[int]:
    """Ask the host for the numbers of a user's groups. May block."""
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


def groups_of_users() -> list[str]:
    """List the groups that a first configuration makes tenants of: ours; root's, everybody's.

    Groups of the system are left out.
    """
    uids = [os.geteuid()]
    if uids == [0]:
        uids = [e.pw_uid for e in pwd.getpwall() if FIRST_USER <= e.pw_uid <= LAST_USER]
    gids = {gid for uid in uids for gid in gids_of(uid) if FIRST_USER <= gid <= LAST_USER}
    return [name for gid in sorted(gids) if (name := _group_name(gid))]


class Accounts:
    """Remembers who stands behind a uid, and asks without holding up the event loop."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[float, Actor]] = {}
        self._threads = Threads("callers")

    async def actor(self, uid: int) -> Actor:
        """Give the actor behind a uid. Raises Rejected when the host does not say."""
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
                "Look whether its user directory answers (`id`), and try again.",
            ) from None
        self._known[uid] = (now + KEEP_S, found)
        return found
