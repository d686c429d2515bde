"""The policy protocols: one method each, defined where they are consumed.

A policy chooses among legal options and can never make an illegal one legal: capacity,
gang atomicity and guarantees are checked by the core after every policy has spoken.
"""

from typing import TYPE_CHECKING, Protocol

import msgspec

from allotment.model.ledger import Entitlement
from allotment.model.quantity import Instant, Resources
from allotment.model.tenancy import Tenant

if TYPE_CHECKING:
    from allotment.core.gang import Gang, Waiting


class Ordering(Protocol):
    """Which waiting job comes first: the smaller key. Ties go to the lower id.

    A key may use only what does not change while a job waits.
    """

    def key(self, job: "Waiting") -> tuple[int, ...]: ...


class Sharing(Protocol):
    """On what grounds a gang may have `need` now, if any."""

    def entitle(
        self, need: Resources, used: Resources, tenant: Tenant, *, preemptible: bool
    ) -> Entitlement | None:
        """`used` is what the tenant already holds out of its own guarantee."""
        ...


class Placing(Protocol):
    """Of the nodes that could serve, which to try first: the smaller rank."""

    def rank(self, free: int, need: int) -> int:
        """`free` whole devices on the node, `need` whole devices for one task."""
        ...


class Victims(Protocol):
    """Who yields first: the smaller key. Ties go to the higher id, the newer job."""

    def key(self, gang: "Gang", now: Instant) -> tuple[int, ...]: ...


class Policies(msgspec.Struct, frozen=True):
    """One policy of each kind, as chosen in `wiring`."""

    ordering: Ordering
    sharing: Sharing
    placing: Placing
    victims: Victims
