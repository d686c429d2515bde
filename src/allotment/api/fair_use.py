"""How much of the service one user may use at once, so that no user holds up the others.

Requests beyond what is worked on for a user wait for their turn, in order; of those that wait
there are only so many. All else that is too much is refused at once with 429: before a body
is read, a file opened or a command started. The limits are those of the configuration in force.
"""

from collections import Counter
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from typing import TypeVar

from allotment.api.body import Gone
from allotment.api.connections import Place
from allotment.model.errors import Code, Rejected
from allotment.model.ids import Actor
from allotment.model.tenancy import PerUser
from allotment.service.fair_queue import FairQueue
from allotment.service.threads import Threads

T = TypeVar("T")

WAIT_FOR_EACH = 8
"""So many requests may wait for each that is worked on."""
LONG, LONG_AT_A_TIME = ("log", "sums"), 2
"""Reading the whole log; weighing the state, or running it ahead. One for each user."""
READERS, PATIENCE_S = 2, 60.0
"""Careful readers at a time: each takes a processor for up to a second. One for each user."""

WORDS = {
    "streams": ("streams open", "Close one"),
    "execs": ("commands in tasks", "End one"),
}


class FairUse:
    """What each user uses now."""

    def __init__(self, limits: Callable[[], PerUser]) -> None:
        self._limits = limits
        self.requests = FairQueue(lambda: limits().requests)
        self.held: dict[str, Counter[str]] = {kind: Counter() for kind in WORDS}
        self._long = {kind: FairQueue(lambda: 1, LONG_AT_A_TIME) for kind in LONG}
        self._readers = Threads("reader", each=1, total=READERS)

    async def begin(self, actor: Actor, place: Place) -> Callable[[], None]:
        """Wait until a request may be worked on; return the function that ends it.

        That function may be called more than once. Raises Rejected where too many requests of
        the user wait, and Gone when the client has left.
        """
        who, most = actor.user, self._limits().requests
        if self.requests.waiting(who) >= WAIT_FOR_EACH * most:
            raise Rejected(
                Code.TOO_MANY,
                f"{who} has {most} requests at work and {WAIT_FOR_EACH * most} waiting, which "
                "is all that one user may have.",
                _again("Try again in a second, with fewer at a time", "requests"),
            )
        await self.requests.turn(who)
        working = True

        def end() -> None:
            nonlocal working
            if working:
                working = False
                self.requests.leave(who)

        if place.is_gone:
            end()
            raise Gone
        return end

    @contextmanager
    def hold(self, kind: str, actor: Actor) -> Generator[None]:
        """Count one more of a kind while the context lasts. Raises Rejected at the limit."""
        held, most = self.held[kind], getattr(self._limits(), kind)
        what, todo = WORDS[kind]
        if held[actor.user] >= most:
            raise Rejected(
                Code.TOO_MANY,
                f"{actor.user} has {most} {what}, which is all that one user may have.",
                _again(todo, kind),
            )
        held[actor.user] += 1
        try:
            yield
        finally:
            held[actor.user] -= 1
            if not held[actor.user]:
                del held[actor.user]

    async def in_turn(self, kind: str, actor: Actor, work: Callable[[], Awaitable[T]]) -> T:
        """Do long work when it is the user's turn, and return its result."""
        queue = self._long[kind]
        await queue.turn(actor.user)
        try:
            return await work()
        finally:
            queue.leave(actor.user)

    async def read(self, actor: Actor, work: Callable[[], T]) -> T:
        """Read input that takes up to a second of a processor. Raises Rejected when busy."""
        try:
            return await self._readers.run(actor.user, work, PATIENCE_S)
        except TimeoutError:
            raise Rejected(
                Code.TOO_MANY,
                f"It has waited for {PATIENCE_S:.0f} s while other files of {actor.user} are "
                "read.",
                "Send this one again, and fewer at a time. Short JSON is read at once.",
            ) from None


def _again(todo: str, kind: str) -> str:
    return f"{todo}. The administrator sets this as `limits.per_user.{kind}`."
