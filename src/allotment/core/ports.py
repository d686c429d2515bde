"""The policy protocols: one method each, defined where they are consumed.

A policy chooses among legal options and can never make an illegal one legal: capacity,
gang atomicity and guarantees are checked by the core after every policy has spoken.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

import msgspec

from allotment.core.rank import Rank
from allotment.model.ids import JobId, NodeId
from allotment.model.ledger import Entitlement, Slot
from allotment.model.quantity import Instant, Resources
from allotment.model.tenancy import RankBy, ShareBy, Tenant

if TYPE_CHECKING:
    from allotment.core.claimant import Claimant
    from allotment.core.gang import Gang, Standing


class Ordering(Protocol):
    """Which job comes first: the smaller key. Ties go to the lower id.

    Asked when a job joins the line and when it is placed, not in between: a rank may use
    only what is true until then, or until the instant it names.
    """

    def rank(self, job: "Standing", now: Instant) -> Rank: ...


class Turns(Protocol):
    """When running gangs give way to waiting ones of their tenant that rank before them."""

    def next(self, now: Instant) -> Instant:
        """Return the first such moment from now on; `now` itself when it is one."""
        ...


class Fairness(Protocol):
    """Which of those who share something has least, and so comes next."""

    @property
    def rescales(self) -> bool:
        """Whether parts count for no more than the least of them that can go on."""
        ...

    def share(self, claimant: "Claimant", now: Instant) -> int:
        """Return how much a claimant has, or has had, for its weight."""
        ...


class Estimates(Protocol):
    """How long jobs run: known, promised by their users, or guessed from history."""

    def run_ms(self, job: "Standing") -> int | None:
        """Return the run time of a job from start to end, or None when nothing is known."""
        ...


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
        """`free` whole devices on the node, `need` whole devices for one task.

        Asked for the devices of one node too, when a task needs a part of one: then both
        are thousandths of a device.
        """
        ...


class Victims(Protocol):
    """Who yields first: the smaller key. Ties go to the higher id, the newer job."""

    def key(self, gang: "Gang", now: Instant) -> tuple[int, ...]: ...


class Devices(Protocol):
    """What may be asked of devices, by their nodes and indexes."""

    def type_of(self, node: NodeId, index: int) -> str: ...

    def free_milli(self, node: NodeId, index: int) -> int:
        """Return what is free of one, in thousandths."""
        ...


class Hosts(Protocol):
    """What may be asked of machines besides their devices."""

    def host_fits(self, node: NodeId, need: Resources) -> bool:
        """Whether CPU, memory and disk of an open node suffice for so much more."""
        ...

    def free_memory(self, node: NodeId, index: int) -> int:
        """Return the bytes of a device's memory that nobody holds; negative when promised."""
        ...


class Moving(Protocol):
    """Whether a running gang is better off on other devices, asked at turns."""

    def content(self, gang: "Gang", devices: Devices) -> bool:
        """Whether no place at all could be better, so that none need be looked for."""
        ...

    def better(self, gang: "Gang", slots: Sequence[Slot], devices: Devices) -> bool:
        """`slots` are free, and where it would be put if it came now."""
        ...


class Recounting(Protocol):
    """An ordering that begins to count anew at some turns."""

    def recount(self, jobs: "Sequence[Standing]", now: Instant) -> bool:
        """Count anew if it is time, for all jobs that wait or have a place.

        Tells whether it did: then everybody's rank is asked anew.
        """
        ...


class Packing(Protocol):
    """Which two jobs share devices. Everybody else has its devices to itself."""

    def deal(self, jobs: "Sequence[Standing]", now: Instant) -> None:
        """Make up pairs, at a turn, of all jobs that wait or have a place, by their ids."""
        ...

    def partner(self, job: JobId) -> JobId | None:
        """Return whom a job shares with. Both ask for the same, and for parts of devices."""
        ...


class Policies(msgspec.Struct, frozen=True):
    """One policy of each kind, as chosen in `wiring` or for a simulation."""

    ordering: Ordering
    sharing: Sharing
    placing: Placing
    victims: Victims
    turns: Turns | None = None
    """None: whoever runs is never sent away for a job of its own tenant."""
    moving: Moving | None = None
    """None: who runs stays where it is."""
    recounting: Recounting | None = None
    """None: a rank depends on its job alone."""
    packing: Packing | None = None
    """None: a device is shared by all who find room on it."""
    estimates: Estimates | None = None
    """What backfilling with a reservation (`QueueOrder.EASY`) goes by."""
    predicts: bool = False
    """Whether run times that nobody promised are predicted from finished jobs."""
    fairness: Mapping[ShareBy, Fairness] = {}
    """How those who share are compared, for each rule that a configuration may name."""
    ranking: Mapping[RankBy, Ordering] = {}
    """The order of queues that name one; of all others it is `ordering`."""
