"""The policies of one cluster, and what asks running gangs to move."""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import msgspec

from allotment.core.book import Book
from allotment.core.gang import Gang, Standing
from allotment.core.ledger import Placing
from allotment.core.plan import PreemptionPlan, Proposals
from allotment.core.ports import Estimates, Fairness, Ordering, Sharing, Victims
from allotment.core.rank import Key
from allotment.model.quantity import Instant
from allotment.model.tenancy import RankBy, ShareBy


class Rescheduler(Protocol):
    """What asks running gangs for places though no other tenant is guaranteed these.

    It is made for one cluster. At moments of its own it finds places for waiting jobs in those
    of gangs of their tenant that rank behind them. It may also propose decisions before,
    between and after those of the queue pass. Each is checked like any other.
    """

    @property
    def order(self) -> Book:
        """Return placed gangs as it has them sorted: one of the cluster's books."""
        ...

    def looks(self, now: Instant) -> bool:
        """Whether gangs may be displaced, and move, now."""
        ...

    def next_look(self, now: Instant) -> Instant | None:
        """Return when it looks next, or its order changes, though nothing happens."""
        ...

    def rerank(self, now: Instant) -> bool:
        """Ask anew for every rank that holds no longer; return whether there was one."""
        ...

    def around(self, decisions: Proposals, now: Instant) -> Proposals:
        """Yield the decisions of the queue pass, and between them its own."""
        ...

    def reach(self, now: Instant) -> Callable[[Key], bool]:
        """Return whether any gang ranks behind a place in job order. Cheap."""
        ...

    def deals(self, gang: Gang) -> bool:
        """Whether a suspended gang waits for its turn; others go first, before any job."""
        ...

    def plan(self, job: Standing, now: Instant) -> PreemptionPlan | None:
        """Find a place for a job that found none by itself, and the gangs displaced for it.

        For a suspended gang it is the place that it has.
        """
        ...

    def suspended(self, now: Instant) -> Sequence[tuple[Key, Gang]]:
        """Return the suspended gangs that want their devices back, in job order."""
        ...


class Policies(msgspec.Struct, frozen=True):
    """One policy of each kind, as chosen in `wiring` or for a simulation."""

    ordering: Ordering
    sharing: Sharing
    placing: Placing
    victims: Victims
    rescheduler: Callable[..., Rescheduler | None] | None = None
    """Makes that of a `Cluster`, if it needs one. Without, no gang moves, or is displaced for
    one of its own tenant that is no more urgent."""
    exclusive: bool = False
    """Whether each gang is given whole devices, even where it asks for parts of them."""
    estimates: Estimates | None = None
    """What backfilling with a reservation (`QueueOrder.EASY`) goes by."""
    predicts: bool = False
    """Whether run times that users did not give are predicted from finished jobs."""
    fairness: Mapping[ShareBy, Fairness] = {}
    """How claimants are compared, for each sharing rule that a configuration may name."""
    ranking: Mapping[RankBy, Ordering] = {}
    """The order of queues that name one; of all others it is `ordering`."""
