"""The policy protocols: mostly of one method, defined where they are consumed.

A policy chooses among legal options and can never make an illegal one legal: capacity,
gang atomicity and guarantees are checked by the core after every policy has spoken.
"""

from typing import Protocol

from allotment.core.claimant import Claimant
from allotment.core.gang import Gang, Standing
from allotment.core.rank import Rank
from allotment.model.ids import NodeId
from allotment.model.ledger import Entitlement
from allotment.model.quantity import Instant, Resources
from allotment.model.tenancy import Tenant


class Ordering(Protocol):
    """Which job comes first: the smaller key. Ties go to the lower id.

    Asked when a job joins its queue and when it is placed, not in between: a rank may use
    only what is true until then, or until the instant it names.
    """

    def rank(self, job: Standing, now: Instant) -> Rank: ...


class Fairness(Protocol):
    """Which of the claimants that share something has least, and so comes next."""

    @property
    def rescales(self) -> bool:
        """Whether parts count for no more than the least of them that can continue."""
        ...

    def share(self, claimant: Claimant, now: Instant) -> int:
        """Return how much a claimant has, or has had, for its weight."""
        ...


class Estimates(Protocol):
    """How long jobs run: known, by their time limits, or predicted from earlier jobs."""

    def run_ms(self, job: Standing) -> int | None:
        """Return the run time of a job from start to end, or None when nothing is known."""
        ...


class Sharing(Protocol):
    """By which entitlement a gang may have what it needs now, if any."""

    def entitle(self, tenant: Tenant, *, fits: bool, preemptible: bool) -> Entitlement | None:
        """`fits` says whether its tenant's guaranteed quota has room for it, as a whole."""
        ...


class Victims(Protocol):
    """Which gang yields first: the smaller key. Ties go to the higher id, the newer job."""

    def key(self, gang: Gang, now: Instant) -> tuple[int, ...]: ...


class Hosts(Protocol):
    """What may be asked of machines besides their devices."""

    def host_fits(self, node: NodeId, need: Resources) -> bool:
        """Whether CPU, memory and disk of an open node suffice for so much more."""
        ...

    def free_memory(self, node: NodeId, index: int) -> int:
        """Return the bytes of a device's memory that no task holds; negative when reserved."""
        ...
