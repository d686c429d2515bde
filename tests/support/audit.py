"""The invariants of docs/architecture.md, checkable at any moment.

`audit` counts everything afresh from the job records, sharing no code with the books it
checks. It costs O(everything); tests run it after every step that changed something.
"""

from collections import Counter

from allotment.core.claimants import Path
from allotment.core.request import sum_of
from allotment.core.slices import line_of
from allotment.engine.state import State
from allotment.explain.waiting import explain
from allotment.model.cluster import NodeState
from allotment.model.errors import InvariantViolated
from allotment.model.health import WHOLE
from allotment.model.ids import NodeId
from allotment.model.ledger import Entitlement
from allotment.model.lifecycle import JobState
from allotment.model.others import NOBODY
from allotment.model.quantity import DEVICE, NOTHING, Resources
from allotment.model.spec import JobSpec
from tests.support.audit_accounts import account_flaws, held_in_all, held_now
from tests.support.audit_cells import flaws

_PLACED = (JobState.STARTING, JobState.RUNNING, JobState.SUSPENDED, JobState.STOPPING)


def audit(state: State) -> None:
    """Raise InvariantViolated, naming every breach, unless all is well."""
    wrong = [
        *_capacity(state),
        *_gangs(state),
        *_packed(state),
        *_counts(state),
        *_shares(state),
        *_cells(state),
        *_health(state),
        *_line(state),
        *_reasons(state),
    ]
    if wrong:
        raise InvariantViolated("; ".join(wrong))


def _packed(state: State) -> list[str]:
    """1: what runs without a lease is beside a gang with one, alone, on CPUs of nobody."""
    gangs, cpu = state.cluster.gangs, Counter[NodeId]()
    told = {node: sum(there.values()) for node, there in state.packed_on.items()}
    true = {
        job.id: attempt.packing.beside
        for job in state.jobs.values()
        if (attempt := job.attempt) is not None and attempt.packing is not None
    }
    beside = {gang.id: gang.beside for gang in gangs.values() if gang.beside is not None}
    turned = {other: job for job, other in true.items()}
    wrong: list[str] = []
    if not (true == state.packed == beside and turned == state.packed_with):
        wrong.append(f"beside others run {true}, counted are {state.packed} and {beside}")
    if len(set(true.values())) < len(true):
        wrong.append(f"more than one runs beside a gang: {true}")
    for job, other in true.items():
        mine, theirs = state.jobs[job], state.jobs[other]
        if (mine.state, theirs.state) != (JobState.SUSPENDED, JobState.RUNNING):
            wrong.append(f"job {job} runs beside job {other}, which has no lease")
        elif mine.attempts[-1].slots != theirs.attempts[-1].slots:
            wrong.append(f"job {job} runs beside job {other}, which is elsewhere")
        lines = {line_of(gangs[each].standing.shape) for each in (job, other) if each in gangs}
        ranks = {(each.spec.priority, each.spec.weight) for each in (mine, theirs)}
        if len(ranks) > 1 or len(lines) > 1:
            wrong.append(f"job {job} runs beside job {other}, which is no peer of it")
        for slot, need in zip(mine.attempts[-1].slots, gangs[job].needs, strict=True):
            cpu[slot.node] += need.cpu_milli
    if told != dict(cpu):
        wrong.append(f"beside others gangs use {dict(cpu)} of CPU, counted are {told}")
    books = state.cluster.ledger.books
    return wrong + [f"node {n}: CPUs of others" for n in cpu if cpu[n] > max(0, books[n].cpu)]


def _counts(state: State) -> list[str]:
    """3: the jobs that are not over, by user and by tenant, are as many as is said."""
    there = [job for job in state.jobs.values() if not job.state.finished]
    told = (+Counter(state.unfinished), +Counter(state.unfinished_of))
    true = (
        Counter(job.owner.user for job in there),
        Counter(job.spec.tenant for job in there),
    )
    return [] if told == true else [f"jobs that are not over: {true}, counted are {told}"]


Devices = dict[tuple[NodeId, int], tuple[int, int]]
"""Thousandths and bytes of memory held, by node and device."""


def _capacity(state: State) -> list[str]:
    """1, 2: no device, node or host resource is held beyond what exists; books agree."""
    host, devices = _held(state)
    wrong = [
        f"{name} of node {node.name} is held beyond its capacity"
        for node in state.config.nodes
        for name in ("cpu_milli", "memory", "disk")
        if getattr(host[node.id], name) > getattr(node, name)
    ]
    for node in state.config.nodes:
        for device in node.devices:
            milli, memory = devices.get((node.id, device.index), (0, 0))
            if milli > DEVICE or memory > max(device.memory, 0) > 0:
                wrong.append(f"device {device.index} of node {node.name} is held twice")
    if not state.cluster.reserved:
        wrong += _books_agree(state, host, devices)
    return wrong


def _held(state: State) -> tuple[dict[NodeId, Resources], Devices]:
    """Add up what all placed jobs hold, by node and by device."""
    host = {node.id: NOTHING for node in state.config.nodes}
    devices: Devices = {}
    for job in state.jobs.values():
        if job.attempt is None:
            continue
        for slot, need in zip(job.attempts[-1].slots, held_now(job), strict=True):
            host[slot.node] = host.get(slot.node, NOTHING) + need
            for index in slot.devices:
                milli, memory = devices.get((slot.node, index), (0, 0))
                share = need.gpu_milli // len(slot.devices)
                devices[slot.node, index] = (milli + share, memory + need.gpu_memory)
    return host, devices


def _books_agree(
    state: State,
    host: dict[NodeId, Resources],
    devices: Devices,
) -> list[str]:
    wrong: list[str] = []
    for node in state.config.nodes:
        book, used = state.cluster.ledger.books[node.id], host[node.id]
        told = (book.cpu, book.memory, book.disk)
        use = state.others.get(node.id, NOBODY)
        true = (
            node.cpu_milli - used.cpu_milli - use.cpu_milli,
            node.memory - used.memory - use.memory,
            node.disk - used.disk,
        )
        if told != true:
            wrong.append(f"the books of node {node.name} say {told} free, true is {true}")
        for place, device in enumerate(node.devices):
            milli, memory = devices.get((node.id, device.index), (0, 0))
            books = book.device_milli[place], book.device_memory[place]
            if books != (DEVICE - milli, device.memory - memory):
                wrong.append(f"the books of device {place} of node {node.name} are wrong")
    return wrong


def _gangs(state: State) -> list[str]:
    """3: a gang is placed whole or not at all, and the books know exactly the placed."""
    placed = {job.id for job in state.jobs.values() if job.state in _PLACED}
    if placed != set(state.cluster.gangs):
        return [f"placed are {sorted(placed)}, the books say {sorted(state.cluster.gangs)}"]
    shrinking = {job.id for job in state.jobs.values() if job.attempt and job.attempt.shrink}
    if shrinking != set(state.cluster.placed.parting):
        return [
            f"shrinking are {shrinking}, the books say {sorted(state.cluster.placed.parting)}"
        ]
    return [
        f"job {job_id} is placed in part"
        for job_id in placed
        for job in (state.jobs[job_id],)
        if job.attempt is None or not _may_have(job.spec, len(job.attempt.slots))
    ]


def _may_have(spec: JobSpec, tasks: int) -> bool:
    """Whether a job may run with so many tasks."""
    last = spec.roles[-1]
    beyond = tasks - spec.least_count
    return 0 <= beyond <= last.count - last.needed and not beyond % last.step


def _shares(state: State) -> list[str]:
    """4, 5: guaranteed use stays within each guarantee; use sums up."""
    wrong: list[str] = []
    guaranteed: dict[str, Resources] = {}
    kept: dict[str, Resources] = {}
    """What suspended gangs keep beside the cells that they gave back."""
    total: dict[str, Resources] = {}
    for job in state.jobs.values():
        attempt = job.attempt
        if attempt is None:
            continue
        held = held_in_all(job, len(attempt.slots))
        # Surplus that was told to stop borrows what it still holds.
        own = held_in_all(job, attempt.staying)
        tenant = job.spec.tenant
        total[tenant] = total.get(tenant, NOTHING) + held
        if attempt.entitlement is Entitlement.GUARANTEED:
            guaranteed[tenant] = guaranteed.get(tenant, NOTHING) + own
            if attempt.suspended_at and state.cluster.cells is not None:
                kept[tenant] = kept.get(tenant, NOTHING) + own
    cluster = state.cluster
    for tenant in state.config.tenants:
        used = guaranteed.get(tenant.name, NOTHING)
        if not (used - kept.get(tenant.name, NOTHING)).fits_in(tenant.guaranteed):
            wrong.append(f"tenant {tenant.name} holds more than it is guaranteed")
        if cluster.queues.tenants[tenant.name].own() != used:
            wrong.append(f"the guaranteed use of tenant {tenant.name} does not add up")
        if cluster.queues.tenants[tenant.name].total() != total.get(tenant.name, NOTHING):
            wrong.append(f"the use of tenant {tenant.name} does not add up")
    return wrong + account_flaws(state) + _claimants(state)


def _claimants(state: State) -> list[str]:
    """What claimants hold and are promised adds up."""
    cluster = state.cluster
    if cluster.claimants is None:
        return []
    held: dict[Path, Resources] = {}
    for job in state.jobs.values():
        attempt, promise = job.attempt, cluster.reserved.get(job.id)
        amount = NOTHING if attempt is None else held_in_all(job, len(attempt.slots))
        amount += sum_of(promise.needs) if promise else NOTHING
        path = cluster.claimants.path(job.spec.tenant, job.spec.queue, job.owner.user)
        for depth in range(1, len(path) + 1):
            held[path[:depth]] = held.get(path[:depth], NOTHING) + amount
    return [
        f"the use of {' / '.join(path)} does not add up"
        for path, known in cluster.claimants.held()
        if held.get(path, NOTHING) != known
    ]


def _cells(state: State) -> list[str]:
    """4: every tenant can have its guaranteed healthy cells; the book of cells adds up."""
    cells = state.cluster.cells
    if cells is None:
        return []
    wrong = list(flaws(cells))
    lent = {job for use in cells.uses for node in use.borrowers for job in node}
    borrowers = {job for gangs in state.cluster.placed.borrowers.values() for job in gangs}
    borrowers |= state.cluster.placed.parting.keys()
    wrong += [f"job {job} is lent cells but does not borrow" for job in lent - borrowers]
    return wrong


def _health(state: State) -> list[str]:
    """New work stays off what is closed, suspect or bad: the books know just that."""
    wrong: list[str] = []
    unwell: dict[NodeId, set[int]] = {}
    for node_id, place in state.health:
        unwell.setdefault(node_id, set()).add(place)
    for node_id, taken in state.taken.items():
        unwell.setdefault(node_id, set()).update(taken)
    cells = state.cluster.cells
    for node in state.config.nodes:
        book, places = state.cluster.ledger.books[node.id], unwell.get(node.id, set[int]())
        ready = state.nodes.get(node.id, (NodeState.READY, ""))[0] is NodeState.READY
        is_open, bad = ready and WHOLE not in places, places - {WHOLE}
        if (book.open, book.bad) != (is_open, bad):
            wrong.append(f"the books have node {node.name} open or broken where it is not")
        free = [i for i, milli in enumerate(book.device_milli) if milli == DEVICE]
        if book.whole[""] != len(set(free) - bad):
            wrong.append(f"{book.whole['']} devices of node {node.name} are not free and sound")
        for at, number in cells.at(node.id) if cells is not None else ():
            assert cells is not None
            leaf, shut = cells.chains[at].leaf[number], cells.spaces[at].shut[number]
            true = sum(1 << leaf[device] for device in bad if device in leaf)
            if shut != (true if is_open else cells.chains[at].full):
                wrong.append(f"the cells of node {node.name} are shut where they are not")
        use, there = state.others.get(node.id, NOBODY), len(node.devices)
        counted = sum(count for _, count in use.devices) + sum(i < there for i in use.indexes)
        held_back = min(counted, there) - len(state.taken.get(node.id, ()))
        if held_back > 0:
            wrong.append(f"{held_back} devices of node {node.name} are free that others use")
    gone = set(unwell) - {node.id for node in state.config.nodes}
    wrong += [f"node {node} is not well, and is not there" for node in sorted(gone)]
    if state.cluster.ledger.whole_free != sum(
        book.whole[""] for book in state.cluster.ledger.books.values()
    ):
        wrong.append("whole free devices do not add up")
    return wrong


def _line(state: State) -> list[str]:
    """The line holds exactly the jobs that may start, so none is forgotten."""
    pending = {waiting.id for waiting in state.cluster.pending.all()}
    eligible = {job.id for job in state.jobs.values() if state.eligible(job, state.at)}
    # The end of a back-off is not an event: such a job may wait here or not yet.
    timed = {job for job in pending ^ eligible if state.jobs[job].not_before}
    if (pending ^ eligible) - timed:
        return [f"waiting are {sorted(pending)}, should be {sorted(eligible)}"]
    return []


ASKED = 3
"""So many waiting jobs are asked at each step, in turn: to ask all takes most of an audit."""


def _reasons(state: State) -> list[str]:
    """10: every waiting job has a reason, and asking changes nothing."""
    version = state.cluster.ledger.version
    last_of_each = list({job.shape: job for job in state.cluster.pending.all()}.values())
    begin = state.seq % max(1, len(last_of_each))
    wrong = [
        f"job {waiting.id} has no reason"
        for waiting in (last_of_each[begin:] + last_of_each[:begin])[:ASKED]
        if not explain(state.cluster, waiting, state.at).message
    ]
    if state.cluster.ledger.version != version:
        wrong.append("asking for a reason changed the books")
    return wrong
