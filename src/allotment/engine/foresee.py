"""What a new configuration would do to the jobs there are, found out on a copy of the state.

The copy is configured for real, by the code that will configure the state; then the two
are compared. Nothing here is an estimate.
"""

import hashlib
from collections.abc import Iterator

import msgspec

from allotment.core.sharing import may_borrow
from allotment.engine.decide import decide, with_stable_ids
from allotment.engine.foresee_waiting import Stuck, stuck
from allotment.engine.state import Image, State
from allotment.model.commands import ApplyConfig
from allotment.model.dated import as_written, in_force
from allotment.model.errors import Rejected
from allotment.model.ids import SYSTEM, JobId
from allotment.model.ledger import Entitlement
from allotment.model.lifecycle import JobState
from allotment.model.quantity import Instant
from allotment.model.tenancy import Config


class Loss(msgspec.Struct, frozen=True):
    """A running job that would borrow what its tenant is guaranteed now."""

    job: JobId
    tenant: str


class Foresight(msgspec.Struct, frozen=True):
    """What would become of jobs under another configuration."""

    refusal: str = ""
    """Why it cannot be applied now; then nothing else is said."""
    demoted: tuple[Loss, ...] = ()
    """Would lose their guarantee, and run on as borrowers."""
    unreserved: tuple[JobId, ...] = ()
    """Have a place reserved that could no longer be kept."""
    stranded: tuple[JobId, ...] = ()
    """Wait, and would fit nowhere any more."""
    borrowing: tuple[JobId, ...] = ()
    """Wait, and would fit only on what others leave idle, not in their tenant's share."""
    stuck: tuple[Stuck, ...] = ()
    """Wait, and would be kept from starting by their queue, by their tenant's share, which
    they may not exceed, or as their tenant is gone."""


def digest(config: Config) -> str:
    """Name a configuration by what is in it: 12 hexadecimal digits.

    Node ids do not count: they tell in which order nodes came, not which there are.
    """
    afresh = with_stable_ids(_NONE, as_written(config))
    return hashlib.sha256(repr(afresh).encode()).hexdigest()[:12]


_NONE = Config(nodes=(), tenants=())


def foresee(image: bytes, config: Config, state: State, now: Instant) -> Foresight:
    """Apply a configuration to a copy of the state, given as a snapshot's bytes.

    Of `state` only the policies are used. O(jobs); takes as long as a restart does.
    """
    before = State.from_image(msgspec.msgpack.decode(image, type=Image), state.policies)
    after = State.from_image(msgspec.msgpack.decode(image, type=Image), state.policies)
    now = max(now, after.at)
    stable = with_stable_ids(before.config, config, before.next_node)
    config = in_force(stable, after.wall(now))
    try:
        list(decide(after, ApplyConfig(config), SYSTEM, now))
    except Rejected as refusal:
        return Foresight(refusal=str(refusal))
    after.configure(config)
    stranded, borrowing = _waiting(before, after)
    return Foresight(
        demoted=tuple(_demoted(before, after)),
        unreserved=tuple(
            job for job in before.cluster.reserved if job not in after.cluster.reserved
        ),
        stranded=stranded,
        borrowing=borrowing,
        stuck=tuple(stuck(before, after)),
    )


def _demoted(before: State, after: State) -> Iterator[Loss]:
    for job, gang in sorted(before.cluster.gangs.items()):
        now = after.cluster.gangs[job].entitlement
        if gang.entitlement is Entitlement.GUARANTEED and now is Entitlement.OPPORTUNISTIC:
            yield Loss(job, gang.tenant)


def _waiting(before: State, after: State) -> tuple[tuple[JobId, ...], tuple[JobId, ...]]:
    stranded: list[JobId] = []
    borrowing: list[JobId] = []
    for job in before.jobs.values():
        if job.state not in (JobState.QUEUED, JobState.HELD):
            continue
        shape = before.standing(job).shape
        fitted, fits = (
            before.cluster.guarantee.fits_machines(shape),
            after.cluster.guarantee.fits_machines(shape),
        )
        if fitted and not fits:
            stranded.append(job.id)
        elif (
            after.cluster.cells is not None
            and not shape.opportunistic
            and (before.cluster.cells is None or before.cluster.guarantee.could_fit(shape))
            and not after.cluster.guarantee.could_fit(shape)
            and may_borrow(after.cluster, shape)
        ):
            borrowing.append(job.id)
    return tuple(stranded), tuple(borrowing)
