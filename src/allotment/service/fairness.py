"""What each tenant deserves of what there is now, and how that compares with what it has.

`ask` takes what is needed out of the state, at once; `weigh` may then be done elsewhere.
"""

from collections.abc import Mapping, Sequence

import msgspec

from allotment.core.caps import capped_out
from allotment.core.cluster import Cluster
from allotment.core.request import Shape, total_of
from allotment.core.sharing import borrows
from allotment.engine.state import State
from allotment.explain.claims import Claim, Grant, Quantities
from allotment.explain.fair_shares import fluid
from allotment.model.ids import JobId
from allotment.model.quantity import NOTHING, Instant, Resources
from allotment.service.fairness_view import FairnessReport, Served, TenantFairness
from allotment.service.queries import tenant_views
from allotment.service.views import TenantView

PPM = 1_000_000
APART = ("gpu_milli", "gpu_memory", "disk")
"""Parts that some jobs ask for and others do not."""
EQUAL = 1000
"""The weight of a tenant of which nothing is said, in thousandths."""


class Line(msgspec.Struct, gc=False):
    """The eligible jobs of one shape."""

    shape: Shape
    jobs: int = 0
    since: int = 0
    """When the first of them came."""
    first: JobId = JobId(0)
    """That one."""

    @property
    def need(self) -> Resources:
        """Return what one of the jobs asks for."""
        return total_of(self.shape.requests)


class Asked(msgspec.Struct, frozen=True):
    """All that is needed to say what each tenant deserves."""

    at: Instant
    capacity: Resources
    tenants: tuple[TenantView, ...]
    lines: Mapping[str, list[Line]]
    claims: Mapping[str, Claim]


def ask(state: State, now: Instant) -> Asked:
    """Return from the state all that `weigh` needs. O(waiting and placed jobs, nodes)."""
    cluster = state.cluster
    lines = _lines(cluster)
    return Asked(
        at=now,
        capacity=_capacity(cluster),
        tenants=(*tenant_views(state), *_gone(state)),
        lines=lines,
        claims=_claims(cluster, lines),
    )


def _gone(state: State) -> list[TenantView]:
    """Return those that left the configuration, as long as their jobs are here."""
    cluster = state.cluster
    running: dict[str, int] = {}
    waiting: dict[str, int] = {}
    for job in state.jobs.values():
        if job.spec.tenant not in cluster.tenants and not job.state.finished:
            count = waiting if job.state.waiting else running
            count[job.spec.tenant] = count.get(job.spec.tenant, 0) + 1
    found: list[TenantView] = []
    for name in sorted(running.keys() | waiting.keys()):
        own, used = cluster.queues.tenants[name].own(), cluster.queues.tenants[name].total()
        found.append(
            TenantView(
                name=name,
                guaranteed=NOTHING,
                used=used,
                own=own,
                borrowed=used - own,
                lent=NOTHING,
                running=running.get(name, 0),
                waiting=waiting.get(name, 0),
                queues=(),
                members="",
            )
        )
    return found


def weigh(asked: Asked) -> FairnessReport:
    """Return what each tenant deserves. Mostly milliseconds.

    At worst, when all tenants want different parts of everything, 50 ms for 20 tenants, 1.5 s
    for 100.
    """
    capacity = _vector(asked.capacity)
    granted: Mapping[str, Grant] = {}
    if asked.claims:
        granted = fluid(capacity, Claim("", parts=tuple(asked.claims.values())))
    return FairnessReport(
        at=asked.at,
        capacity=asked.capacity,
        tenants=tuple(
            _tenant(asked, tenant, granted.get(_name(tenant.name)))
            for tenant in sorted(asked.tenants, key=lambda tenant: tenant.name)
        ),
    )


# ── what there is, and who asks ─────────────────────────────────────────────────────────


def _vector(amount: Resources) -> Quantities:
    """Return what is divided, part by part."""
    return msgspec.structs.astuple(amount)


def _capacity(cluster: Cluster) -> Resources:
    total = NOTHING
    for node in cluster.nodes.values():
        book = cluster.ledger.books[node.id]
        total += node.total() if book.open else node.total() - book.free()
    return total


def _lines(cluster: Cluster) -> dict[str, list[Line]]:
    """Group the eligible jobs by tenant and shape; without those whose user has its most."""
    found: dict[Shape, Line] = {}
    for job in cluster.pending.all():
        line = found.setdefault(job.shape, Line(job.shape, since=job.queued_at))
        line.jobs += 1
        if not line.first or (job.queued_at, job.id) < (line.since, line.first):
            line.since, line.first = job.queued_at, job.id
    by_tenant: dict[str, list[Line]] = {}
    for line in found.values():
        if not capped_out(cluster, line.shape):
            by_tenant.setdefault(line.shape.tenant, []).append(line)
    return by_tenant


class _Wish(msgspec.Struct, frozen=True, gc=False):
    """What some jobs of a tenant ask for, and on what grounds they may have it."""

    need: Resources
    preemptible: bool
    opportunistic: bool


def _claims(cluster: Cluster, lines: Mapping[str, list[Line]]) -> dict[str, Claim]:
    """Make the claim of each tenant that asks for anything."""
    wishes: dict[str, list[_Wish]] = {name: [] for name in cluster.tenants}
    for gang in cluster.gangs.values():
        need = total_of(gang.requests) if gang.wants_resume else gang.held()
        wish = _Wish(need, gang.preemptible, gang.opportunistic)
        wishes.setdefault(gang.tenant, []).append(wish)
    for name, waiting in lines.items():
        wishes.setdefault(name, []).extend(
            _Wish(line.need * line.jobs, line.shape.preemptible, line.shape.opportunistic)
            for line in waiting
        )
    claims = {name: _claim(cluster, name, wishes[name]) for name in sorted(wishes)}
    return {name: claim for name, claim in claims.items() if claim is not None}


def _name(tenant: str) -> str:
    return f"tenant {tenant}"


def _claim(cluster: Cluster, tenant: str, wishes: list[_Wish]) -> Claim | None:
    """Make a tenant's claim: its guarantee covers all but opportunistic jobs.

    What may not be evicted gets nothing beyond the guarantee.
    """
    found = cluster.tenants.get(tenant)
    guaranteed = _vector(found.guaranteed if found else NOTHING)
    borrower = found is not None and borrows(cluster, tenant, preemptible=True)
    name = _name(tenant)
    firm = [wish for wish in wishes if not wish.opportunistic and not wish.preemptible]
    loose = [wish for wish in wishes if not wish.opportunistic and wish.preemptible]
    idle = [wish for wish in wishes if wish.opportunistic]
    own = [*_bundles(f"{name} own", loose)]
    if parts := _bundles(f"{name} firm", firm):
        own.append(Claim(f"{name} firm", parts=parts, limit=guaranteed))
    parts = _bundles(f"{name} idle", idle) if borrower else ()
    if own:
        parts += (Claim(f"{name} own", parts=tuple(own), guaranteed=guaranteed),)
    limit = () if borrower else guaranteed
    weight = found.weight_milli if found else EQUAL
    return Claim(name, parts=parts, limit=limit, weight=weight) if parts else None


def _bundles(name: str, wishes: list[_Wish]) -> tuple[Claim, ...]:
    """Make one claim, a unit to be cut, of all jobs that ask for the same parts.

    CPU and memory everybody asks for. Who asks for nothing of a part that has run out is not
    cut with those who do.
    """
    sums: dict[tuple[str, ...], Resources] = {}
    for wish in wishes:
        parts = tuple(part for part in APART if getattr(wish.need, part))
        sums[parts] = sums.get(parts, NOTHING) + wish.need
    return tuple(
        Claim(" ".join((name, *(parts or ("hosts",)))), _vector(need), 1)
        for parts, need in sorted(sums.items(), reverse=True)
        if any(_vector(need))
    )


# ── what that makes of each ─────────────────────────────────────────────────────────────


def _tenant(asked: Asked, view: TenantView, grant: Grant | None) -> TenantFairness:
    held = grant.held if grant is not None else ()
    deserved = Resources(*(int(amount) for amount in held))
    lines = asked.lines.get(view.name, [])
    wanted = view.used
    for line in lines:
        wanted += line.need * line.jobs
    starved = [line for line in lines if _is_starved(line, view, deserved)]
    longest = min(starved, key=lambda line: (line.since, line.first), default=None)
    used = _ppm(view.used, asked.capacity)
    due = int(grant.share * PPM) if grant is not None else 0
    return TenantFairness(
        tenant=view.name,
        guaranteed=view.guaranteed,
        deserved=deserved,
        wanted=wanted,
        used=view.used,
        borrowed=view.borrowed,
        lent=view.lent,
        deserved_ppm=due,
        used_ppm=used,
        served=_served(used, due, starved=bool(starved)),
        eligible=sum(line.jobs for line in lines),
        starved_jobs=sum(line.jobs for line in starved),
        starved_ms=max(0, asked.at - longest.since) if longest else 0,
        starved_job=longest.first if longest else None,
        smallest=_smallest(lines, asked.capacity),
    )


def _smallest(lines: Sequence[Line], capacity: Resources) -> Resources:
    """Return the need of the eligible job with the smallest dominant share."""
    needs = (line.need for line in lines)
    return min(needs, key=lambda need: (_ppm(need, capacity), _vector(need)), default=NOTHING)


def _is_starved(line: Line, view: TenantView, deserved: Resources) -> bool:
    """Whether one more job of a shape would be within what its tenant deserves."""
    firm = not line.shape.preemptible and not line.shape.opportunistic
    if firm and not _within(view.own, line.need, view.guaranteed):
        return False
    return _within(view.used, line.need, deserved)


def _within(used: Resources, need: Resources, room: Resources) -> bool:
    """Whether there is room for `need`, looking at nothing that it does not ask for."""
    return all(
        not more or has + more <= most
        for has, more, most in zip(_vector(used), _vector(need), _vector(room), strict=True)
    )


def _ppm(amount: Resources, capacity: Resources) -> int:
    """Return a dominant share in millionths, rounded down."""
    parts = zip(_vector(amount), _vector(capacity), strict=True)
    return max((part * PPM // whole for part, whole in parts if whole), default=0)


def _served(used: int, due: int, *, starved: bool) -> Served:
    if starved:
        return Served.STARVED
    if used == due:
        return Served.EVEN
    return Served.OVER if used > due else Served.UNDER
