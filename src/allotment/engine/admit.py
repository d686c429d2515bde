"""Whether a job could ever start here: levels, pinned cells, sizes; and if not, what would."""

from collections.abc import Mapping, Sequence

import msgspec

from allotment.core.cells.book import Cells
from allotment.core.cells.choices import serves
from allotment.core.cluster import Cluster
from allotment.core.memos import remember
from allotment.core.regions import NODE
from allotment.core.request import Shape, demand_of, shape_of, total_of
from allotment.core.sharing import entitle_shape, may_borrow
from allotment.engine.pools import fits_when_grown
from allotment.engine.state import State
from allotment.engine.would_fit import asks_for, would_fit, would_fit_anywhere
from allotment.explain.caps import alone_too_large
from allotment.explain.cell_words import leaf_types, levels_of, listed, owned
from allotment.explain.engines import bound
from allotment.explain.queues import beyond_queue
from allotment.model.amounts import show_part, whole_vector
from allotment.model.errors import Code, Rejected
from allotment.model.ids import Actor
from allotment.model.quantity import GIB, NOTHING, Resources, show_bytes
from allotment.model.quantity import show_resources as show
from allotment.model.spec import Arch, JobSpec
from allotment.model.tenancy import Tenant

MOST_LEVELS = 12


def check_fit(state: State, spec: JobSpec, tenant: Tenant, owner: Actor) -> tuple[str, ...]:
    """Refuse what can never start; give warnings about the rest. Raises Rejected.

    What is found out of a shape holds for all its jobs as long as the configuration does.
    """
    shape, memo = state.shape_of(spec), state.cluster.memos.admitted
    warnings = memo.get(shape)
    if warnings is None:
        _check_entitlement(spec, tenant)
        if spec.pin:
            _check_pin(state, spec, tenant)
        _check_levels(state, spec)
    _check_cap(state, spec, owner)
    if warnings is None:
        warnings = remember(memo, shape, _check_room(state, spec, shape, tenant))
    return warnings


def _check_room(state: State, spec: JobSpec, shape: Shape, tenant: Tenant) -> tuple[str, ...]:
    """Refuse what has no room though all is idle; give warnings about the rest."""
    cells = state.cluster.cells
    if cells is None:
        _check_size(state, spec, shape, tenant)
        _check_queue(state, spec, shape)
        return _only_lent(state, shape, tenant)
    if not state.cluster.guarantee.ever_starts(shape):
        _check_machines(state, shape)
        raise _too_large(state, spec, shape, cells)
    _check_queue(state, spec, shape)
    return _only_borrows(state, shape, cells)


# ── entitlement ─────────────────────────────────────────────────────────────────────────────


def _check_entitlement(spec: JobSpec, tenant: Tenant) -> None:
    """Refuse an opportunistic job that contradicts itself, or its tenant."""
    if not spec.opportunistic:
        return
    if spec.pin:
        raise Rejected(
            Code.BAD_SPEC,
            f"It is opportunistic, but asks for the pinned cell {spec.pin!r}: it may not use "
            "the guarantee of its tenant.",
            "Keep one of the two.",
        )
    if not spec.preemptible:
        raise Rejected(
            Code.BAD_SPEC,
            "It is opportunistic, so it must be preemptible: it always borrows.",
            "Remove `preemptible: false`, or `opportunistic`.",
        )
    if not tenant.borrow:
        raise Rejected(
            Code.NEVER_FITS,
            f"It is opportunistic, and tenant {tenant.name} may not borrow.",
            "Remove `opportunistic`, or submit it for another tenant.",
        )


def _check_pin(state: State, spec: JobSpec, tenant: Tenant) -> None:
    if spec.pin in tenant.pins:
        return
    has = (
        f"Pinned cells of tenant {tenant.name}: {listed(tenant.pins)}."
        if tenant.pins
        else f"Tenant {tenant.name} has no pinned cells: remove `pin`."
    )
    owner = next((t.name for t in state.config.tenants if spec.pin in t.pins), "")
    if owner:
        message = f"Pinned cell {spec.pin!r} belongs to tenant {owner}, not to {tenant.name}."
    elif any(pin.id == spec.pin for pin in state.config.topology.pins):
        message = f"Pinned cell {spec.pin!r} belongs to no tenant."
    else:
        message = f"There is no pinned cell {spec.pin!r}."
    raise Rejected(Code.BAD_SPEC, message, has)


def _check_levels(state: State, spec: JobSpec) -> None:
    """Refuse a level that there is not: its region would be the whole cluster."""
    cells = state.cluster.cells
    levels = [level for level in (spec.within, spec.prefer) if level]
    levels += [role.group_within for role in spec.roles if role.group_within]
    for level in dict.fromkeys(levels):
        if cells is not None:
            if all(chain.level_of(level) is None for chain in cells.chains):
                raise Rejected(
                    Code.BAD_SPEC,
                    f"No cell here is a {level!r}, so no job can run within one.",
                    f"Levels here: {listed(levels_of(cells), MOST_LEVELS)}; or the last "
                    "part of such a name.",
                )
            continue
        labels = {name for node in state.config.nodes for name, _ in node.labels}
        if level != NODE and level not in labels:
            raise Rejected(
                Code.BAD_SPEC,
                f"No node here has a label {level!r}, so no job can run within one.",
                f"Levels here: {', '.join(sorted({NODE, *labels}))}.",
            )


def _check_cap(state: State, spec: JobSpec, owner: Actor) -> None:
    """Refuse what is more than its user, its group or its queue may ever hold."""
    queues = state.cluster.queues
    if not queues.is_counted:
        return
    _, _, *names = queues.named(spec.tenant, spec.queue, owner.user, owner.groups)
    found = alone_too_large(state.cluster, shape_of(spec, *names))
    if found is not None:
        needs, most = found
        raise Rejected(
            Code.NEVER_FITS, f"It needs {needs}, and {most} at once.", "Ask for less."
        )


def _check_queue(state: State, spec: JobSpec, shape: Shape) -> None:
    """Refuse what may not be preempted, and is more than its queue is guaranteed."""
    if too_little := beyond_queue(state.cluster, shape):
        raise Rejected(
            Code.NEVER_FITS,
            f"It may not be preempted, so it must fit in what queue {spec.queue} of "
            f"{spec.tenant} is guaranteed: {too_little}. "
            f"It needs {show(total_of(shape.requests))}.",
            "Make it preemptible, or ask for less.",
        )


# ── counted shares ──────────────────────────────────────────────────────────────────────


def _check_size(state: State, spec: JobSpec, shape: Shape, tenant: Tenant) -> None:
    total = total_of(shape.requests)
    fits = state.cluster.guarantee.fits_machines(shape) or fits_when_grown(state, shape)
    if not fits:
        _check_machines(state, shape)
        _check_types(state, shape)
        _check_device_memory(state, shape)
        largest = max(
            (node.total() for node in state.config.nodes),
            key=lambda r: (r.gpu_milli, r.cpu_milli, r.memory),
            default=None,
        )
        has = show(largest) if largest else "nothing"
        raise Rejected(
            Code.NEVER_FITS,
            f"It can never start here: its {spec.least_count} task(s) need {show(total)}, and "
            f"no arrangement on these {len(state.config.nodes)} node(s) has room for them."
            + bound(state.cluster, shape.requests),
            f"The largest node has {has}. Ask for less, or see `allot nodes`.",
        )
    if entitle_shape(state.cluster, shape, alone=True) is None:
        stays = not spec.preemptible and tenant.borrow
        why = "It may not be preempted" if stays else "Its tenant does not borrow"
        raise Rejected(
            Code.NEVER_FITS,
            f"{why}, so it must fit in what tenant {tenant.name} is "
            f"guaranteed: {show(tenant.guaranteed)}. It needs {show(total)}.",
            "Make it preemptible, or ask for less." if stays else "Ask for less.",
        )


def _only_lent(state: State, shape: Shape, tenant: Tenant) -> tuple[str, ...]:
    """Warn about a job that its tenant's guarantee could never hold, where it has any."""
    if shape.opportunistic or tenant.guaranteed == NOTHING:
        return ()
    need = total_of(shape.requests)
    beyond = _never_covered(state.cluster, tenant.name, demand_of(shape.requests))
    if not beyond:
        return ()
    asks, guaranteed = _listed(beyond, need), _listed(beyond, tenant.guaranteed)
    why = f"it needs {asks}, and tenant {tenant.name} is guaranteed {guaranteed}"
    return (f"it can only borrow, and may be evicted at any time: {why}",)


def _listed(parts: Sequence[str], amount: Resources) -> str:
    there = whole_vector(amount)
    return " and ".join(show_part(part, there[part]) for part in parts)


def _check_machines(state: State, shape: Shape) -> None:
    """Refuse a job for a kind of machine that there is none of, and say what there is."""
    nodes = state.config.nodes
    if any(request.devices for request in shape.requests) and not any(
        node.devices for node in nodes
    ):
        raise Rejected(
            Code.NEVER_FITS,
            "It asks for GPUs, and no node here has any.",
            "Leave them out (`--gpus`, `gpu`); or, to try things out, start a service with "
            "virtual ones: `allot up --state /tmp/try --gpus 8`.",
        )
    here = sorted({node.arch.value for node in nodes})
    for request in shape.requests:
        if request.arch is not Arch.ANY and request.arch.value not in here:
            raise Rejected(
                Code.NEVER_FITS,
                f"It needs machines of architecture {request.arch.value}, and no node is one.",
                f"Architectures here: {', '.join(here)}. Take `arch` out, or name another."
                if here
                else "There are no nodes.",
            )


def _check_types(state: State, shape: Shape) -> None:
    """Refuse a job for devices of types that no node has, and name these."""
    here = state.cluster.device_types
    for request in shape.requests:
        if request.types and request.need.gpu_milli and not set(request.types) & set(here):
            raise Rejected(
                Code.NEVER_FITS,
                f"It asks for GPUs of type {' or '.join(request.types)}, and no node has any.",
                f"Types here: {', '.join(here)}." if here else "No node has a GPU.",
            )


def _check_device_memory(state: State, shape: Shape) -> None:
    """Refuse a job for more memory of each device than any has that it may use."""
    for request in shape.requests:
        wanted, types = request.need.gpu_memory, request.types
        most = max(
            (
                device.memory
                for node in state.config.nodes
                for device in node.devices
                if not types or device.type in types
            ),
            default=0,
        )
        if wanted > most:
            of = f" of type {' or '.join(types)}" if types else ""
            # In whole GiB: what is advised must not be rounded up to more than there is.
            advised = show_bytes(most // GIB * GIB or most)
            raise Rejected(
                Code.NEVER_FITS,
                f"It asks for {show_bytes(wanted)} of the memory of each GPU, and no GPU{of} "
                f"here has more than {show_bytes(most)}.",
                f"Ask for at most {advised} (`gpu_memory`)."
                if most
                else "Take `gpu_memory` out.",
            )


# ── cells ───────────────────────────────────────────────────────────────────────────────


def _too_large(state: State, spec: JobSpec, shape: Shape, cells: Cells) -> Rejected:
    """Return why a gang can start neither in its tenant's cells nor as a borrower."""
    asks = asks_for(shape)
    anywhere = f"no arrangement on these {len(state.config.nodes)} node(s) has room for it"
    if shape.opportunistic:
        message = f"It needs {asks}, and {anywhere}."
        return Rejected(Code.NEVER_FITS, message, would_fit_anywhere(state, shape))
    tenant = state.cluster.tenants[spec.tenant]
    have = owned(cells, tenant.name, spec.pin)
    kind = _right_kind(cells, shape)
    if spec.pin:
        own = f"It needs {asks}; the pinned cell {spec.pin} is {have}"
    elif not have:
        own = f"It needs {asks}, and tenant {tenant.name} owns no cells"
    elif not kind:
        own = f"Tenant {tenant.name} owns no cell of {_kind(shape)}: its cells are {have}"
    else:
        own = (
            f"It needs {asks}: that is larger than what tenant {tenant.name} owns: its cells "
            f"are {have}"
        )
    if may_borrow(state.cluster, shape):
        message = f"{own}. To borrow does not help: {anywhere}."
        return Rejected(Code.NEVER_FITS, message, would_fit_anywhere(state, shape))
    message = f"{own}. {_why_not_borrow(spec, tenant)}."
    hint = would_fit(state, shape) if kind else _other_ways(state, shape, tenant, cells)
    return Rejected(Code.NEVER_FITS, message, hint or "See `allot cells` for what there is.")


def _other_ways(state: State, shape: Shape, tenant: Tenant, cells: Cells) -> str:
    """Return what to do about a job for which its tenant owns nothing of the right kind."""
    if shape.pin:
        return "Remove `pin`."
    ways: list[str] = []
    devices = any(request.devices for request in shape.requests)
    if types := leaf_types(cells, tenant.name, devices=devices):
        ways.append(f"ask for {' or '.join(types)}")
    free = msgspec.structs.replace(shape, preemptible=True)
    if may_borrow(state.cluster, free) and state.cluster.guarantee.ever_starts(free):
        ways.append("remove `preemptible: false`, so that it may borrow")
    named = any(request.types for request in shape.requests)
    ways.append(f"ask the administrator for cells{f' of {_kind(shape)}' if named else ''}")
    words = "; or ".join(ways)
    return f"{words[0].upper()}{words[1:]}."


def _why_not_borrow(spec: JobSpec, tenant: Tenant) -> str:
    if spec.pin:
        return "With `pin` it runs nowhere else"
    if not spec.preemptible:
        return "With `preemptible: false` it may not borrow"
    if not tenant.borrow:
        return "The tenant may not borrow"
    return "No job may borrow under the policy in force"


def _only_borrows(state: State, shape: Shape, cells: Cells) -> tuple[str, ...]:
    """Warn about a job that its tenant's cells could never hold, where it has any."""
    have = owned(cells, shape.tenant, shape.pin)
    if shape.opportunistic or not have or state.cluster.guarantee.could_fit(shape):
        return ()
    if not _right_kind(cells, shape):
        what = f"tenant {shape.tenant} has no cell of {_kind(shape)}"
    else:
        what = f"it is larger than what the cells of tenant {shape.tenant} can hold"
    return (
        f"it can only borrow, and may be evicted at any time: {what} (its cells are {have})",
    )


def _right_kind(cells: Cells, shape: Shape) -> bool:
    holdings = cells.holdings.get((shape.tenant, shape.pin), {})
    return any(serves(cells.chains[at], shape.requests) for at in holdings)


def _kind(shape: Shape) -> str:
    """Return what hardware a gang asks for."""
    types = dict.fromkeys(kind for request in shape.requests for kind in request.types)
    memory = max(request.need.gpu_memory for request in shape.requests)
    words = " or ".join(types) or "that kind"
    return words + (f" with {show_bytes(memory)}" if memory else "")


def _never_covered(cluster: Cluster, tenant: str, need: Mapping[str, int]) -> tuple[str, ...]:
    """Return the parts of a need that even a tenant's whole quota does not cover."""
    quota = cluster.queues.tenants[tenant].guaranteed
    return tuple(part for part, amount in need.items() if amount > quota[part])
