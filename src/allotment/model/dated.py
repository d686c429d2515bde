"""Configurations that change by date: what is written, and what of it holds when."""

from collections.abc import Iterator
from operator import attrgetter

from msgspec.structs import replace

from allotment.model.budget import FOREVER
from allotment.model.quantity import WallTime
from allotment.model.tenancy import Config, DatedChange, Tenant


def as_written(config: Config) -> Config:
    """Return it with the tenants as they are while no change holds."""
    return replace(config, tenants=config.written, written=()) if config.written else config


def in_force(config: Config, at: WallTime) -> Config:
    """Return it with the tenants as they are at a moment. O(tenants), if there are changes."""
    if not config.changes:
        return config
    plain = as_written(config)
    holding = [change for change in config.changes if change.begin <= at < change.end]
    tenants = tuple(_changed(tenant, holding) for tenant in plain.tenants)
    if tenants == plain.tenants:
        return plain
    return replace(plain, tenants=tenants, written=plain.tenants)


def settled(config: Config) -> Config:
    """Return it with what holds in it now, for ever."""
    return replace(config, changes=(), written=())


def moments(config: Config) -> list[WallTime]:
    """Return the moments at which something in it changes, in order."""
    begins = {change.begin for change in config.changes}
    ends = {change.end for change in config.changes if change.end < FOREVER}
    return sorted(begins | ends)


def still_to_come(config: Config, now: WallTime) -> list[DatedChange]:
    """Return the changes that hold or will, by when they begin."""
    coming = [change for change in config.changes if change.end > now]
    return sorted(coming, key=attrgetter("begin"))


def _changed(tenant: Tenant, holding: list[DatedChange]) -> Tenant:
    for change in _of(tenant.name, holding):
        if change.share is not None:
            share = change.share
            tenant = replace(
                tenant,
                guaranteed=share.guaranteed,
                cells=share.cells,
                borrow=share.borrow,
                weight_milli=share.weight_milli,
                per_user=tenant.per_user if share.per_user is None else share.per_user,
            )
        if (new := change.queue) is not None:
            queues = (new if queue.name == new.name else queue for queue in tenant.queues)
            tenant = replace(tenant, queues=tuple(queues))
    return tenant


def _of(tenant: str, holding: list[DatedChange]) -> Iterator[DatedChange]:
    return (change for change in holding if change.tenant == tenant)
