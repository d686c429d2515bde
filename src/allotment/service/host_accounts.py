"""Host accounts of those whose tasks start: asked of the host where nobody waits for it.

A directory service behind the host's user list may be slow, or not answer at all. So it is
asked in a thread, and an answer is used for a minute, or for longer where no newer one comes.
"""

from functools import partial
from time import monotonic

from allotment.model.errors import BackendError
from allotment.model.ids import Actor
from allotment.service.folders import account_of
from allotment.service.launch import Account
from allotment.service.threads import Threads

KEEP_S = 60.0
PATIENCE_S = 10.0
MOST_KNOWN = 1024


class HostAccounts:
    """Remembers accounts."""

    def __init__(self) -> None:
        self._known: dict[Actor, tuple[float, Account]] = {}
        self._threads = Threads("accounts")

    async def of(self, owner: Actor) -> Account:
        """Return the account that a user's jobs run under. Raises BackendError."""
        known = self._known.get(owner)
        if known is not None and monotonic() < known[0]:
            return known[1]
        try:
            found = await self._threads.run(owner.user, partial(account_of, owner), PATIENCE_S)
        except TimeoutError:
            if known is not None:
                return known[1]
            raise BackendError(
                f"the host did not say in {PATIENCE_S:.0f} s who {owner.user} is: its user "
                "directory does not answer"
            ) from None
        if len(self._known) >= MOST_KNOWN:
            self._known.clear()
        self._known[owner] = (monotonic() + KEEP_S, found)
        return found
