"""What would fit, in place of a gang that is too large: told with a refusal."""

from collections.abc import Callable

import msgspec

from allotment.core.cells.search import find
from allotment.core.request import Request, Shape
from allotment.engine.state import State
from allotment.model.quantity import DEVICE, GIB, MIB, show_resources

Fits = Callable[[tuple[Request, ...]], bool]


def asks_for(shape: Shape) -> str:
    """Return what a gang needs, task by task: `2 × (8 GPU, 4 CPU, 1 GiB memory)`."""
    words = " and ".join(
        (f"{r.count:,} × ({show_resources(r.need)})" if r.count > 1 else show_resources(r.need))
        + (f", each {r.group:,} within one {r.group_within}" if r.group else "")
        for r in shape.requests
    )
    within = shape.requests[0].within
    return words + (f", all within one {within}" if within else "")


def would_fit(state: State, shape: Shape) -> str:
    """Return what of this kind the tenant's own cells would hold if empty; '' when nothing."""
    empty = state.cluster.empty_cells()
    return _tried(shape, lambda asked: find(empty, shape.tenant, shape.pin, asked) is not None)


def would_fit_anywhere(state: State, shape: Shape) -> str:
    """Return what of this kind the whole cluster would hold if empty; '' when nothing."""

    def fits(asked: tuple[Request, ...]) -> bool:
        return state.cluster.guarantee.fits_machines(
            msgspec.structs.replace(shape, requests=asked)
        )

    return _tried(shape, fits)


def _tried(shape: Shape, fits: Fits) -> str:
    """Try fewer tasks like these, then smaller groups, then a smaller task."""
    first = shape.requests[0]
    unit = first.group or 1

    def several(units: int) -> tuple[Request, ...]:
        return (msgspec.structs.replace(first, count=units * unit),)

    def in_groups(size: int) -> tuple[Request, ...]:
        return (msgspec.structs.replace(first, count=size, group=size),)

    if len(shape.requests) == 1 and fits(several(1)):
        most = unit * _most(first.count // unit, lambda units: fits(several(units)))
        return f"Of its {first.count:,} tasks, {most:,} would fit together."
    if len(shape.requests) == 1 and unit > 1 and fits(in_groups(1)):
        size = _most(unit - 1, lambda size: fits(in_groups(size)))
        tasks = f"{size:,} of its tasks" if size > 1 else "One of its tasks"
        return f"{tasks} would fit within one {first.group_within}, not {unit:,}."
    alone = [
        msgspec.structs.replace(r, count=1, group=0, group_within="") for r in shape.requests
    ]
    too_large = [request for request in alone if not fits((request,))]
    if not too_large:
        return "Each of its tasks would fit by itself: ask for fewer of them."
    hardest = max(too_large, key=lambda request: msgspec.structs.astuple(request.need))
    smaller = _smaller(hardest, lambda request: fits((request,)))
    return "" if smaller is None else f"A task of {show_resources(smaller.need)} would fit."


def _smaller(request: Request, fits: Callable[[Request], bool]) -> Request | None:
    """Take from a task what is too large of it, and nothing else; None if nothing helps.

    Devices come first: as many as there can be, whatever they leave of the host. Then their
    memory.
    """
    need = request.need
    amounts: dict[str, int] = {part: getattr(need, part) for part in _STEPS}
    least = {part: min(1, amount) for part, amount in amounts.items()}
    for leaves in range(request.devices, 0 if request.devices else -1, -1):
        gpu_milli = min(leaves * DEVICE, need.gpu_milli)
        found = _asking(request, gpu_milli=gpu_milli, **least)
        if fits(found):
            break
    else:
        return None
    for part, wanted in amounts.items():
        if fits(whole := _asking(found, **{part: wanted})):
            found = whole
            continue
        step = next((step for step in _STEPS[part] if fits(_asking(found, **{part: step}))), 0)
        if not step:
            return None
        parts = _most(wanted // step, lambda n: fits(_asking(found, **{part: n * step})))  # noqa: B023
        found = _asking(found, **{part: parts * step})
    return found


_STEPS = {
    "gpu_memory": (GIB, MIB, 1),
    "cpu_milli": (1_000, 100, 1),
    "memory": (GIB, MIB, 1),
    "disk": (GIB, MIB, 1),
}
"""In which round amounts less of each device, and of a host, is advised."""


def _asking(request: Request, **amounts: int) -> Request:
    return msgspec.structs.replace(
        request, need=msgspec.structs.replace(request.need, **amounts)
    )


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
