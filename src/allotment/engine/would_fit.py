"""What would fit, in place of a gang that is too large: told with a refusal."""

from collections.abc import Callable

import msgspec

from allotment.core.cells.search import find, serves
from allotment.core.request import Request, Shape
from allotment.engine.state import State
from allotment.model.quantity import DEVICE, show_resources

Fits = Callable[[tuple[Request, ...]], bool]


def asks_for(shape: Shape) -> str:
    """Say what a gang needs, task by task: `2 × (8 GPU, 4 CPU, 1 GiB memory)`."""
    words = " and ".join(
        (f"{r.count:,} × ({show_resources(r.need)})" if r.count > 1 else show_resources(r.need))
        + (f", each {r.group:,} within one {r.group_within}" if r.group else "")
        for r in shape.requests
    )
    within = shape.requests[0].within
    return words + (f", all within one {within}" if within else "")


def would_fit(state: State, shape: Shape) -> str:
    """Say what of this kind the tenant's own cells would hold if empty; '' when nothing."""
    empty = state.cluster.empty_cells()
    return _tried(
        state, shape, lambda asked: find(empty, shape.tenant, shape.pin, asked) is not None
    )


def would_fit_anywhere(state: State, shape: Shape) -> str:
    """Say what of this kind the whole cluster would hold if empty; '' when nothing."""

    def fits(asked: tuple[Request, ...]) -> bool:
        return state.cluster.ever_fits(msgspec.structs.replace(shape, requests=asked))

    return _tried(state, shape, fits)


def _tried(state: State, shape: Shape, fits: Fits) -> str:
    """Try fewer tasks like these, then a smaller task."""
    first = shape.requests[0]
    unit = first.group or 1

    def several(units: int) -> tuple[Request, ...]:
        return (msgspec.structs.replace(first, count=units * unit),)

    if len(shape.requests) == 1 and fits(several(1)):
        most = unit * _most(first.count // unit, lambda units: fits(several(units)))
        return f"Of its {first.count:,} tasks, {most:,} would fit together."
    alone = [
        msgspec.structs.replace(r, count=1, group=0, group_within="") for r in shape.requests
    ]
    hardest = max(alone, key=lambda r: (r.need.gpu_milli, r.need.cpu_milli, r.need.memory))
    for leaves in range(hardest.devices, 0, -1):
        smaller = _smaller(hardest, leaves)
        for task in (smaller, _with_its_share(state, smaller)):
            if fits((task,)):
                return f"A task of {show_resources(task.need)} would fit."
    return ""


def _smaller(request: Request, leaves: int) -> Request:
    """Ask for fewer devices, with CPU, memory and disk in proportion."""
    need = request.need
    part = min(leaves * DEVICE, need.gpu_milli)

    def scaled(amount: int) -> int:
        return amount * part // need.gpu_milli

    smaller = msgspec.structs.replace(
        need,
        gpu_milli=part,
        cpu_milli=scaled(need.cpu_milli),
        memory=scaled(need.memory),
        disk=scaled(need.disk),
    )
    return msgspec.structs.replace(request, need=smaller)


def _with_its_share(state: State, request: Request) -> Request:
    """Ask for no more of the host than what comes with the devices."""
    cells, need = state.cluster.cells, request.need
    assert cells is not None, "asked only where shares are cells"
    for chain in cells.chains:
        if serves(chain, (request,)):
            share = chain.share * request.devices
            need = msgspec.structs.replace(
                need,
                cpu_milli=min(need.cpu_milli, share.cpu_milli),
                memory=min(need.memory, share.memory),
                disk=min(need.disk, share.disk),
            )
    return msgspec.structs.replace(request, need=need)


def _most(most: int, fits: Callable[[int], bool]) -> int:
    """Find the largest number that fits, where 1 does."""
    least = 1
    while least < most:
        middle = (least + most + 1) // 2
        if fits(middle):
            least = middle
        else:
            most = middle - 1
    return least
