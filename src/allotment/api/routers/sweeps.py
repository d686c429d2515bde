"""Sweeps: trials of parameters. They are submitted as jobs with `sweep`."""

from starlette.responses import Response

from allotment.api.openapi import a_router, returns
from allotment.api.render import Caller, TheService, reply
from allotment.service.sweep_view import SweepRow, SweepView

router = a_router("jobs")


@router.get("/v1/sweeps", responses=returns(list[SweepRow]), name="sweeps")
async def list_sweeps(service: TheService, caller: Caller) -> Response:
    """List the newest hundred sweeps, the newest first."""
    return reply(service.shown(await service.sweeping.sweeps(caller)))


@router.get("/v1/sweeps/{ref}", responses=returns(SweepView), name="show_sweep")
async def show_sweep(ref: str, service: TheService, caller: Caller) -> Response:
    """Return a sweep with its trials, the best first.

    `ref` is its id, its name, `last`, or a job that is one of its trials.
    """
    return reply(service.shown(await service.sweeping.sweep(ref, caller)))


@router.post("/v1/sweeps/{ref}:stop", responses=returns(SweepView), name="stop_sweep")
async def stop_sweep(ref: str, service: TheService, caller: Caller) -> Response:
    """End all trials of a sweep: those that run get their grace time."""
    return reply(service.shown(await service.sweeping.stop(ref, caller)))
