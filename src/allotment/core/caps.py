"""What one user of a tenant may hold at once, on whatever grounds.

Rule: where a tenant caps its users, what a user's jobs hold and are promised, its tenant's
own and borrowed together, never grows beyond the cap. A job that would go beyond it is
passed over, and holds up nobody. A cap that is lowered takes nothing away.
"""

from collections.abc import Callable

from allotment.core.cluster import Cluster
from allotment.core.request import Shape, total_of
from allotment.model.ids import JobId
from allotment.model.quantity import NOTHING, Resources, show_bytes, show_milli
from allotment.model.reasons import Blocked, Reason

_PARTS: tuple[tuple[str, Callable[[int], str]], ...] = (
    ("gpu_milli", lambda amount: f"{show_milli(amount)} GPUs"),
    ("cpu_milli", lambda amount: f"{show_milli(amount)} CPUs"),
    ("memory", lambda amount: f"{show_bytes(amount)} of memory"),
    ("disk", lambda amount: f"{show_bytes(amount)} of disk"),
    ("gpu_memory", lambda amount: f"{show_bytes(amount)} of GPU memory"),
)
"""The parts of a cap, and how an amount of each is written. 0 is no cap."""


def exceeded(cap: Resources, held: Resources, more: Resources) -> str:
    """Name the first part of a cap that so much more would go beyond; '' if none.

    What is beyond it already matters only to who wants more of it.
    """
    for field, _ in _PARTS:
        most: int = getattr(cap, field)
        wanted: int = getattr(more, field)
        if most and wanted and getattr(held, field) + wanted > most:
            return field
    return ""


def capped_out(cluster: Cluster, shape: Shape) -> bool:
    """Tell whether a job's user may not hold so much more now, or its budget is used up."""
    if cluster.used_up and cluster.used_up.holds_back(shape):
        return True
    return bool(shape.user) and may_not_grow(
        cluster, shape.tenant, shape.user, total_of(shape.requests)
    )


def may_not_grow(cluster: Cluster, tenant: str, user: str, more: Resources) -> bool:
    """Tell whether a user of a tenant may not hold so much more now."""
    cap = cluster.users.cap_of(tenant)
    return cap is not None and bool(exceeded(cap, cluster.users.held(tenant, user), more))


def is_over(cluster: Cluster, job: JobId) -> bool:
    """Tell whether the user of a promise holds more than its tenant's cap allows now."""
    who = cluster.user_of(job)
    cap = cluster.users.cap_of(who[0])
    return cap is not None and bool(exceeded(cap, NOTHING, cluster.users.held(*who)))


def alone_too_large(cap: Resources, need: Resources) -> tuple[str, str] | None:
    """Say what a job needs, and what its user may hold of it, where it can never start."""
    field = exceeded(cap, NOTHING, need)
    if not field:
        return None
    show = dict(_PARTS)[field]
    return show(getattr(need, field)), show(getattr(cap, field))


def why_capped(cluster: Cluster, tenant: str, user: str, more: Resources) -> Blocked | None:
    """Say what a user holds of what one user may, where that keeps a job waiting."""
    cap, held = cluster.users.cap_of(tenant), cluster.users.held(tenant, user)
    if cap is None:
        return None
    field = exceeded(cap, held, more)
    if not field:
        return None
    show = dict(_PARTS)[field]
    hint = f"It starts when jobs of {user}'s end."
    if exceeded(cap, NOTHING, more):
        hint = "It needs more than that by itself: ask for less (allot edit)."
    has, most = show(getattr(held, field)).split(" ")[0], show(getattr(cap, field))
    if "memory" in field or field == "disk":
        has = show_bytes(getattr(held, field))
    return Blocked(
        Reason.USER_CAP,
        f"{user} holds {has} of the {most} that one user of {tenant} may hold at once; it "
        f"needs {show(getattr(more, field))}.",
        hint=hint,
    )
