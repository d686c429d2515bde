"""What another configuration changes in a tenant and in its queues, key by key, in words."""

from collections.abc import Iterator

from allotment.model.quantity import Millis, show_millis
from allotment.model.tenancy import Queue, Tenant
from allotment.service.config_view import ConfigChange
from allotment.service.dated import changed_shares, dated_keys, show_count

OF_TENANT = {
    "users": "users",
    "groups": "groups",
    "images": "images",
    "borrow": "borrow",
    "preempt": "preempt",
    "per_user": "per_user",
    "share": "share",
    "weight_milli": "weight",
    "objectives": "objectives",
    "budgets": "budgets",
    "on_eviction": "on_eviction",
    "preempt_rules": "preempt_rules",
}
"""A tenant's fields that are told by name, and their keys."""


def keys_changed(was: Tenant, now: Tenant) -> str:
    """Return the keys of a tenant that differ, apart from its guarantee and its queues."""
    changed = (
        key for name, key in OF_TENANT.items() if getattr(was, name) != getattr(now, name)
    )
    return ", ".join(changed)


def queue_changes(was: Tenant, now: Tenant) -> Iterator[ConfigChange]:
    """Return the queues of a tenant that come, go and change."""
    before = {queue.name: queue for queue in was.queues}
    after = {queue.name: queue for queue in now.queues}
    for name in before:
        if name not in after:
            yield ConfigChange("-", f"queue {was.name}/{name}")
    for name, queue in after.items():
        what = f"queue {was.name}/{name}"
        if name not in before:
            yield ConfigChange("+", what)
        elif words := ", ".join(_of_queue(before[name], queue)):
            yield ConfigChange("~", what, words)


def _slice(queue: Queue) -> str:
    return "auto" if queue.slices_by_cost else _length(queue.time_slice_ms)


def _length(ms: Millis) -> str:
    return show_millis(ms) if ms else "none"


def _of_queue(was: Queue, now: Queue) -> Iterator[str]:
    yield from dated_keys(was, now)
    for key in ("state", "order", "rank", "share"):
        then, later = str(getattr(was, key)), str(getattr(now, key))
        if then != later:
            yield f"{key} {then} → {later}"
    for key, then, later in (
        ("time_slice", _slice(was), _slice(now)),
        ("grow", _length(was.grow_ms), _length(now.grow_ms)),
    ):
        if then != later:
            yield f"{key} {then} → {later}"
    for key, did, does in (
        ("migrate", was.migrates, now.migrates),
        ("pack", was.packs, now.packs),
        ("affinity", was.by_affinity, now.by_affinity),
    ):
        if did is not does:
            yield f"{key} {str(did).lower()} → {str(does).lower()}"
    for key, then, later in (
        ("overtaken", was.terms.overtaken or None, now.terms.overtaken or None),
        ("max_jobs", was.max_jobs, now.max_jobs),
        ("max_waiting", was.max_waiting, now.max_waiting),
    ):
        if then != later:
            yield f"{key} {show_count(then)} → {show_count(later)}"
    yield from changed_shares(was, now)
