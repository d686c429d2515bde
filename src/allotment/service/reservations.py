"""Reservations of nodes: what was asked for as a command, what is set as a view."""

from collections.abc import Callable

from allotment.core.gang import Gang
from allotment.engine.state import State
from allotment.model.commands import ReserveNodes
from allotment.model.ids import NodeId
from allotment.model.quantity import Instant, Millis, WallTime
from allotment.model.reservations import Reservation
from allotment.service.reservation_view import ReservationNote, ReservationView


def command_of(note: ReservationNote, node_id: Callable[[str], NodeId]) -> ReserveNodes:
    """Return a note as a command. Raises Rejected where a node is unknown."""
    return ReserveNodes(
        name=note.name,
        begin=WallTime(note.begin),
        end=WallTime(note.end),
        nodes=tuple(node_id(name) for name in note.nodes),
        devices=note.devices,
        type=note.type,
        users=note.users,
        tenants=note.tenants,
        queues=note.queues,
        evict=note.evict,
        notice_ms=Millis(note.notice_ms),
        reason=note.reason,
    )


def reservation_views(state: State, now: Instant) -> list[ReservationView]:
    """Return the reservations, the earliest first."""
    return [_view(state, reservation, now) for reservation in state.cluster.reservations.all]


def _ends_before(gang: Gang, reservation: Reservation, now: Instant) -> bool:
    """Whether a job's own time limit ends it before a reservation begins."""
    limit = gang.standing.limit_ms
    return (
        limit >= 0
        and reservation.begin > now
        and gang.standing.end_of(limit, gang.placed_at, now) <= reservation.begin
    )


def _view(state: State, reservation: Reservation, now: Instant) -> ReservationView:
    nodes = {node.id: node for node in state.config.nodes if node.id in reservation.nodes}
    jobs = tuple(
        job
        for job, gang in sorted(state.cluster.gangs.items())
        if not _ends_before(gang, reservation, now)
        and any(slot.node in nodes for slot in gang.slots)
        and not reservation.admits(gang.tenant, state.jobs[job].spec.queue, gang.user)
    )
    return ReservationView(
        name=reservation.name,
        begin=state.reservations[reservation.name].begin,
        end=state.reservations[reservation.name].end,
        begun=reservation.begin <= now,
        nodes=tuple(node.name for node in nodes.values()),
        devices=sum(len(node.devices) for node in nodes.values()),
        users=reservation.users,
        tenants=reservation.tenants,
        queues=reservation.queues,
        evict=reservation.evict,
        notice_ms=reservation.notice_ms,
        reason=reservation.reason,
        engine=reservation.engine,
        jobs=jobs,
    )
