"""5: what users, groups and queues hold sums up the tree, and the books say just that.

Everything is counted afresh from the job records, for every queue of every tenant.
"""

from collections.abc import Iterator, Sequence

import msgspec

from allotment.core.request import lease_part, needs_of, shape_of, sized
from allotment.engine.keeping import kept_by
from allotment.engine.records import JobRecord
from allotment.engine.state import State
from allotment.model.ledger import Slot
from allotment.model.quantity import NOTHING, Resources

Parts = dict[str, int]
Key = tuple[str, str, str, str]
"""A tenant, a queue of it or '' for all of it, and a user or a group or neither."""


def held_now(job: JobRecord) -> list[Resources]:
    """Return what each task of a placed job needs now: not its leases while suspended."""
    attempt = job.attempts[-1]
    needs = needs_of(sized(shape_of(job.spec), len(attempt.slots)))
    if attempt.suspended_at:
        keeps = kept_by(attempt, needs) or [need.gpu_memory for need in needs]
        return [need - lease_part(need, left) for need, left in zip(needs, keeps, strict=True)]
    return list(needs)


def held_in_all(job: JobRecord, tasks: int) -> Resources:
    """Sum up what the first so many tasks of a placed job hold."""
    total = NOTHING
    slots = job.attempts[-1].slots[:tasks]
    for slot, need in zip(slots, held_now(job)[:tasks], strict=True):
        total += on_its_devices(slot, need)
    return total


def on_its_devices(slot: Slot, need: Resources) -> Resources:
    """Return what one task holds: device memory on every device it has."""
    return msgspec.structs.replace(need, gpu_memory=need.gpu_memory * len(slot.devices))


def account_flaws(state: State) -> list[str]:
    """Find accounts that do not add up."""
    queues = state.cluster.queues
    if not queues.is_counted:
        return []
    true: dict[Key, Parts] = {}
    for job in state.jobs.values():
        for parts in _held(state, job):
            for key in _keys(state, job):
                _add(true.setdefault(key, {}), parts)
    wrong: list[str] = []
    for account in queues.accounts():
        key = (account.tenant, account.queue, account.user, account.group)
        counted = {part: amount for part, amount in true.get(key, {}).items() if amount}
        if not queues.by_type:
            counted = {p: amount for p, amount in counted.items() if not p.startswith("gpu:")}
        if account.use != counted:
            name = ".".join(filter(None, key))
            wrong.append(f"the books of {name} say {account.use}, true is {counted}")
    return wrong


def _held(state: State, job: JobRecord) -> Iterator[Parts]:
    """Return what a job holds, and what it is promised."""
    if job.attempt is not None:
        yield {**_parts(state, job.attempt.slots, held_now(job)), "jobs": 1}
    promise = state.cluster.reserved.get(job.id)
    if promise is not None:
        jobs = {} if job.attempt is not None else {"jobs": 1}
        yield {**_parts(state, promise.slots, promise.needs), **jobs}


def _keys(state: State, job: JobRecord) -> Iterator[Key]:
    """Name every account that a job counts for, if there is such an account."""
    name, owner = job.spec.tenant, job.owner
    tenant, tree = state.cluster.tenants.get(name), state.cluster.trees.get(name)
    if tenant is None or tree is None:
        return
    listed = [group for group in tenant.groups if group in owner.groups]
    group = (listed or list(owner.groups) or [""])[0]
    for queue in ("", *(q.name for q in tree.upward(job.spec.queue))):
        yield name, queue, "", ""
        yield name, queue, owner.user, ""
        if group:
            yield name, queue, "", group


def _parts(state: State, slots: Sequence[Slot], needs: Sequence[Resources]) -> Parts:
    parts: Parts = {}
    for slot, need in zip(slots, needs, strict=True):
        whole = on_its_devices(slot, need)
        amounts = {
            "gpu": whole.gpu_milli,
            "cpu": whole.cpu_milli,
            "memory": whole.memory,
            "disk": whole.disk,
            "gpu_memory": whole.gpu_memory,
        }
        _add(parts, amounts)
        devices = state.cluster.nodes[slot.node].devices
        types = {int(device.index): device.type for device in devices}
        for index in slot.devices:
            _add(parts, {f"gpu:{types[index]}": need.gpu_milli // len(slot.devices)})
    return {part: amount for part, amount in parts.items() if amount}


def _add(total: Parts, more: Parts) -> None:
    for part, amount in more.items():
        total[part] = total.get(part, 0) + amount
