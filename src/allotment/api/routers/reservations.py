"""Nodes that are set aside: maintenance, and reservations for some users."""

from starlette.requests import Request
from starlette.responses import Response

from allotment.api.body import read_as
from allotment.api.openapi import a_router, body_of, returns
from allotment.api.render import Caller, TheService, reply
from allotment.api.shapes import Done
from allotment.model.commands import EndReservation
from allotment.service.reservation_view import ReservationNote, ReservationView

router = a_router("cluster")


@router.get("/v1/reservations", responses=returns(list[ReservationView]), name="reservations")
async def list_reservations(service: TheService) -> Response:
    """List the reservations: nodes, times, and for whom they are."""
    return reply(service.reservations())


@router.post(
    "/v1/reservations",
    responses=returns(list[ReservationView]),
    openapi_extra=body_of(ReservationNote),
    name="reserve_nodes",
)
async def reserve_nodes(request: Request, service: TheService, caller: Caller) -> Response:
    """Set nodes aside for a time, for maintenance or for some users. For the administrator.

    Jobs that could still run when it begins are kept off before; what runs there goes on,
    unless `evict` says otherwise. Gives all that are set then.
    """
    note = await read_as(request, ReservationNote)
    return reply(await service.reserve(note, caller))


@router.post("/v1/reservations/{name}:end", responses=returns(Done), name="end_reservation")
async def end_reservation(name: str, service: TheService, caller: Caller) -> Response:
    """End a reservation, so that all jobs may use its nodes. For the administrator."""
    await service.act(EndReservation(name), caller)
    return reply(Done())
