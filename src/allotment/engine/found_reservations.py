"""The reservations that an engine has made itself are kept here as it tells of them."""

from collections.abc import Iterator
from itertools import islice

from allotment.engine.reservations import MOST_RESERVATIONS
from allotment.engine.state import State
from allotment.model import events as e
from allotment.model.commands import FindReservations
from allotment.model.ids import NodeId
from allotment.model.quantity import Instant
from allotment.model.reservations import FoundReservation, Reservation


def find_reservations(
    state: State, command: FindReservations, now: Instant
) -> Iterator[e.AnyEvent]:
    """Set what is new or has changed of an engine's reservations; end what is gone.

    Its nodes that we do not have are left out, and so is what is over, or on none of ours. Of
    very many the first to begin are kept: the rest follow as these end.
    """
    known = {
        name: reservation
        for name, reservation in state.reservations.items()
        if reservation.engine == command.engine
    }
    some = islice(_wanted(state, command, now), MOST_RESERVATIONS)
    wanted = {its.name: its for its in some}
    for name in sorted(known.keys() - wanted.keys()):
        yield e.ReservationEnded(name)
    for name, reservation in wanted.items():
        if known.get(name) != reservation:
            yield e.ReservationSet(reservation)


def _wanted(state: State, command: FindReservations, now: Instant) -> Iterator[Reservation]:
    ids = {
        node.name: node.id for node in state.config.nodes if node.engine in ("", command.engine)
    }
    for its in sorted(command.found, key=lambda its: (its.begin, its.name)):
        nodes = tuple(sorted({ids[name] for name in its.nodes if name in ids}))
        if nodes and its.begin < its.end and its.end > state.wall(now):
            yield _reservation(command.engine, its, nodes)


def _reservation(engine: str, its: FoundReservation, nodes: tuple[NodeId, ...]) -> Reservation:
    """Return it under a name that no reservation of ours can have."""
    return Reservation(
        name=f"{its.name}@{engine}",
        begin=its.begin,
        end=its.end,
        nodes=nodes,
        users=its.users,
        tenants=its.tenants,
        notice_ms=its.notice_ms,
        reason=its.reason,
        engine=engine,
        shut=its.shut,
    )
