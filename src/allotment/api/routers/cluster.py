"""Nodes and tenants."""

from typing import Annotated

from fastapi import Query
from starlette.requests import Request
from starlette.responses import Response

from allotment.api.body import read_as
from allotment.api.openapi import a_router, body_of, returns
from allotment.api.render import Caller, TheService, reply
from allotment.api.shapes import Done, Drain
from allotment.api.streams import at_length
from allotment.model.commands import DrainNode, UndrainNode
from allotment.service.cells_view import CellTree
from allotment.service.hardware_view import HardwareView, HealthNote
from allotment.service.pools_view import MoreNodes
from allotment.service.queue_view import TenantQueues
from allotment.service.views import NodeView, TenantView

router = a_router("cluster")


@router.get("/v1/nodes", responses=returns(list[NodeView]), name="nodes")
async def list_nodes(service: TheService) -> Response:
    """List the nodes, and the jobs that hold their devices."""
    return reply(service.nodes())


@router.post(
    "/v1/nodes/{name}:drain",
    responses=returns(Done),
    openapi_extra=body_of(Drain),
    name="drain_node",
)
async def drain_node(
    name: str, request: Request, service: TheService, caller: Caller
) -> Response:
    """Keep new work off a node; running jobs continue. For the administrator."""
    drain = await read_as(request, Drain)
    await service.act(DrainNode(service.node_id(name), drain.reason), caller)
    return reply(Done())


@router.post("/v1/nodes/{name}:undrain", responses=returns(Done), name="undrain_node")
async def undrain_node(name: str, service: TheService, caller: Caller) -> Response:
    """Let a drained node take work again. For the administrator."""
    await service.act(UndrainNode(service.node_id(name)), caller)
    return reply(Done())


@router.get("/v1/pools", responses=returns(MoreNodes), name="pools")
async def list_pools(request: Request, service: TheService) -> Response:
    """Return the pools of nodes, and which waiting jobs more of their nodes would let start.

    Worked out in a process of its own, which ends with the request.
    """
    return reply(service.shown(await at_length(request, "sums", service.more_nodes.more)))


@router.get("/v1/health", responses=returns(list[HardwareView]), name="hardware_health")
async def list_hardware(service: TheService) -> Response:
    """List the nodes and devices that are not healthy: since when, and by which source."""
    return reply(service.shown(service.hardware()))


@router.post(
    "/v1/health",
    responses=returns(list[HardwareView]),
    openapi_extra=body_of(HealthNote),
    name="note_health",
)
async def note_health(request: Request, service: TheService, caller: Caller) -> Response:
    """Report a node, a device or a cell as in trouble, or as ok. For the administrator.

    It gets no new work while it is not healthy; running jobs continue.
    """
    note = await read_as(request, HealthNote)
    return reply(service.shown(await service.note_health(note, caller)))


@router.get("/v1/tenants", responses=returns(list[TenantView]), name="tenants")
async def list_tenants(service: TheService) -> Response:
    """List the tenants: what each is guaranteed, has, borrows and lends."""
    return reply(service.tenants())


OfTenant = Annotated[
    str, Query(max_length=200, description="The name of a tenant: only its queues.")
]


@router.get("/v1/queues", responses=returns(list[TenantQueues]), name="queues")
async def list_queues(service: TheService, caller: Caller, tenant: OfTenant = "") -> Response:
    """Return the queues of each tenant as a tree: guarantee, use, what each lends and borrows,
    its limits, its jobs and the longest wait."""
    return reply(await service.queues(tenant, caller))


Level = Annotated[
    str,
    Query(
        max_length=200,
        description="How far down: a type of cell, the last part of one (`socket`), `node`, or "
        "`leaf`; left out, `node`, and `leaf` for those of one node.",
    ),
]
Under = Annotated[
    str, Query(max_length=200, description="The name of a root or a node: only what is in it.")
]


@router.get("/v1/cells", responses=returns(CellTree), name="cells")
async def list_cells(service: TheService, level: Level = "", under: Under = "") -> Response:
    """Return the tree of cells: the tenant and the jobs of each, and what is down.

    At most 10,000 cells at a time. No cells where shares are counted.
    """
    return reply(service.shown(service.cells(level, under)))
