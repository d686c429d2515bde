"""Read models made from the state: the same for API, CLI, pages and Python."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping

from allotment.core.request import shape_of, sized, total_of
from allotment.engine.keeping import present_suspension
from allotment.engine.records import AttemptRecord, JobRecord
from allotment.engine.state import State
from allotment.engine.suspicions import OFTEN
from allotment.explain.free import borrowed_by
from allotment.model.cluster import Node, NodeState
from allotment.model.health import WHOLE, HardwareHealth
from allotment.model.ids import JobId, NodeId, TaskIndex
from allotment.model.lifecycle import TaskState
from allotment.model.quantity import NOTHING, Instant, Resources
from allotment.model.spec import JobSpec
from allotment.service import views as v
from allotment.service.launch import Folders
from allotment.service.lent_devices import with_devices_lent
from allotment.service.tenant_cells import tenant_cells
from allotment.service.why import reason_of, why

SpecWriter = Callable[[JobSpec], dict[str, object]]
"""Returns a job's native form, secrets redacted. Filled in by `wiring`."""


def job_row(
    state: State,
    job: JobRecord,
    now: Instant,
    *,
    explain: bool = False,
    inside: bool = False,
) -> v.JobRow:
    """Return a job as one line of the table. `explain` looks up why a waiting job waits.

    `inside` adds its parameters, which are part of its command and environment.
    """
    attempt = job.attempt
    first = next((a.started_at for a in job.attempts if a.started_at), 0)
    tasks = len(job.attempts[-1].slots) if job.attempts else job.spec.least_count
    return v.JobRow(
        id=job.id,
        name=job.spec.name,
        tenant=job.spec.tenant,
        queue=job.spec.queue,
        user=job.owner.user,
        state=job.state,
        priority=job.spec.priority,
        weight=job.spec.weight,
        tasks=tasks,
        total=total_of(sized(shape_of(job.spec), tasks)),
        attempt=len(job.attempts),
        submitted_at=job.submitted_at,
        started_at=first,
        finished_at=job.finished_at,
        ran_ms=sum(a.ran_until(now) for a in job.attempts),
        reason=_word(state, job, now) if explain else "",
        entitlement=attempt.entitlement if attempt else None,
        nodes=_nodes(state, attempt) if attempt else (),
        borrowed=_borrowed(state, job.id),
        array=_place(job.spec, inside),
        labels=dict(job.spec.labels),
    )


def _borrowed(state: State, job: JobId) -> tuple[str, ...]:
    gang = state.cluster.gangs.get(job)
    return borrowed_by(state.cluster, gang) if gang is not None else ()


def _place(spec: JobSpec, inside: bool) -> v.ArrayPlace | None:
    array = spec.array
    if array is None:
        return None
    params = dict(array.params) if inside else {}
    return v.ArrayPlace(array.parent, array.index, array.size, params)


def _word(state: State, job: JobRecord, now: Instant) -> str:
    if job.diagnosis is not None and job.state.finished:
        return job.diagnosis.code
    attempt = job.attempt
    if attempt is not None and attempt.stop is not None:
        return attempt.stop.cause.value
    if attempt is not None and any(
        task.state is TaskState.HOLDING for task in attempt.tasks.values()
    ):
        return "holding"
    if job.id in state.packed:
        return f"beside {state.packed[job.id]}"
    reason = reason_of(state, job, now)
    return reason.value if reason else ""


def _nodes(state: State, attempt: AttemptRecord) -> tuple[str, ...]:
    return tuple(dict.fromkeys(node_name(state, slot.node) for slot in attempt.slots))


def node_name(state: State, node: NodeId) -> str:
    """Return the name of a node, or its number where it left the configuration."""
    found = state.cluster.nodes.get(node)
    return found.name if found else f"#{node}"


def job_view(
    state: State,
    job: JobRecord,
    now: Instant,
    folders: Folders,
    write_spec: SpecWriter,
    *,
    inside: bool = False,
) -> v.JobView:
    """Return all about one job, live or archived."""
    live = job.id in state.jobs
    checkpoint = job.checkpoint
    return v.JobView(
        row=job_row(state, job, now, explain=live, inside=inside),
        spec=write_spec(job.spec),
        warnings=job.warnings,
        attempts=tuple(_attempt_view(state, job, attempt, now) for attempt in job.attempts),
        checkpoint=v.CheckpointView(
            checkpoint.path,
            checkpoint.at,
            checkpoint.attempt,
            checkpoint.step,
            checkpoint.progress_milli,
        )
        if checkpoint
        else None,
        evictions=job.evictions,
        used_retries=job.used_retries,
        platform_retries=job.platform_retries,
        lost_ms=job.lost_ms,
        diagnosis=job.diagnosis,
        why=why(state, job, now) if live else None,
        output_dir=folders.outputs(job.id, job.spec),
        archived=not live,
        note=job.note,
        noted_by=job.noted_by,
        noted_at=job.noted_at,
        saved=job.saved,
        unsaved=job.unsaved,
        kept=job.kept,
        unkept=job.unkept,
    )


def _attempt_view(
    state: State, job: JobRecord, attempt: AttemptRecord, now: Instant
) -> v.AttemptView:
    stop = attempt.stop
    return v.AttemptView(
        no=attempt.no,
        state=attempt.state,
        entitlement=attempt.entitlement,
        placed_at=attempt.placed_at,
        started_at=attempt.started_at,
        ended_at=attempt.ended_at,
        ran_ms=attempt.ran_until(now),
        outcome=attempt.outcome,
        stop_cause=stop.cause.value if stop else "",
        wanted_by=stop.wanted_by if stop else None,
        diagnosis=attempt.diagnosis,
        lost_ms=attempt.lost_ms,
        tasks=tuple(
            _task_view(state, job, attempt, TaskIndex(index))
            for index in range(len(attempt.slots))
        ),
        gain=stop.gain if stop else None,
        gained=attempt.gained,
        packing=attempt.packing,
        with_image=attempt.with_image,
        with_environment=attempt.with_environment,
        with_data=attempt.with_data,
    )


def _task_view(
    state: State, job: JobRecord, attempt: AttemptRecord, index: TaskIndex
) -> v.TaskView:
    task, slot = attempt.task(index), attempt.slots[index]
    return v.TaskView(
        index=index,
        name=task_name(job.spec, index),
        state=task.state,
        node=node_name(state, slot.node),
        devices=task.devices or slot.devices,
        engine_job=task.engine_job,
        pid=task.pid,
        started_at=task.started_at,
        ended_at=task.ended_at,
        phases=task.phases,
        exit=task.exit,
        diagnosis=task.diagnosis,
        held_until=task.held_at + job.spec.hold_on_failure_ms
        if task.state is TaskState.HOLDING
        else 0,
        suspension=present_suspension(attempt, index),
    )


def task_name(spec: JobSpec, index: int) -> str:
    """Return a task's name as people write it: `worker.1`."""
    if index >= spec.task_count:
        return f"#{index}"
    role, number = spec.role_of(index)
    return f"{role.name}.{number}"


def node_views(state: State, now: Instant) -> list[v.NodeView]:
    """Return the nodes, each device with the jobs that hold it."""
    holders: dict[tuple[NodeId, int], list[JobId]] = {}
    tasks: dict[NodeId, int] = {}
    for gang in state.cluster.holders():
        for slot in gang.slots:
            tasks[slot.node] = tasks.get(slot.node, 0) + 1
            for index in slot.devices:
                held = holders.setdefault((slot.node, index), [])
                if gang.id not in held:
                    held.append(gang.id)
    made: list[v.NodeView] = []
    for node in state.config.nodes:
        book = state.cluster.ledger.books[node.id]
        kind, reason = state.nodes.get(node.id, (NodeState.READY, ""))
        devices = tuple(
            v.DeviceView(
                device.index,
                device.type,
                device.memory,
                device.virtual,
                max(0, book.device_milli[place]),
                tuple(sorted(holders.get((node.id, device.index), ()))),
                health_of(state, node.id, device.index),
                state.suspicions.of((node.id, device.index), now),
            )
            for place, device in enumerate(node.devices)
        )
        made.append(
            v.NodeView(
                id=node.id,
                name=node.name,
                state=kind,
                reason=reason,
                arch=node.arch.value,
                total=node.total(),
                free=book.free(),
                devices=devices,
                tasks=tasks.get(node.id, 0),
                health=health_of(state, node.id),
                trouble=_trouble(state, node, now),
                suspected=state.suspicions.of((node.id, WHOLE), now),
                engine=node.engine,
                lacks=node.lacks,
                others=state.others.get(node.id),
            )
        )
    return made


def health_of(state: State, node: NodeId, place: int = WHOLE) -> HardwareHealth:
    """Return the health of a node, or of one device of it."""
    found = state.condition((node, place))
    return found.health if found else HardwareHealth.HEALTHY


def _trouble(state: State, node: Node, now: Instant) -> str:
    """Return what is wrong with a node and its devices: `device 3 bad: fan`."""
    often = state.suspicions.of((node.id, WHOLE), now)
    told = [f"suspected {often} times in 30 days"] if often >= OFTEN else []
    if not state.health and not state.doubts:
        return "".join(told)
    for place in (WHOLE, *(device.index for device in node.devices)):
        how = state.condition((node.id, place))
        if how is not None:
            part = "" if place == WHOLE else f"device {place} "
            why = how.words or how.code
            told.append(f"{part}{how.health.value}" + (f": {why}" if why else ""))
    return "; ".join(told)


def tenant_views(state: State) -> list[v.TenantView]:
    """Return the tenants: guaranteed, used, borrowed, lent. O(tenants + gangs)."""
    cluster = state.cluster
    running = Counter(gang.tenant for gang in cluster.gangs.values())
    borrowed = {
        tenant: _total(gang.held() for gang in gangs.values())
        for tenant, gangs in cluster.placed.borrowers.items()
        if gangs
    }
    for gang in cluster.placed.parting.values():
        borrowed[gang.tenant] = borrowed.get(gang.tenant, NOTHING) + gang.held()
    lent = with_devices_lent(state, _lent(state, borrowed))
    cells = tenant_cells(state)
    return [
        v.TenantView(
            name=tenant.name,
            guaranteed=tenant.guaranteed,
            used=cluster.queues.tenants[tenant.name].total(),
            own=cluster.queues.tenants[tenant.name].own(),
            borrowed=borrowed.get(tenant.name, NOTHING),
            lent=lent[tenant.name],
            running=running[tenant.name],
            waiting=state.unfinished_of.get(tenant.name, 0) - running[tenant.name],
            queues=tuple(queue.name for queue in tenant.queues),
            members=", ".join((*tenant.users, *(f"@{group}" for group in tenant.groups)))
            or "everybody",
            cells=cells.get(tenant.name, ()),
        )
        for tenant in state.config.tenants
    ]


def _lent(state: State, borrowed: Mapping[str, Resources]) -> dict[str, Resources]:
    """Return what others use of each tenant's idle share.

    A borrower is taken to sit first on what is idle of its own share: a job borrows as a
    whole, also where its tenant has too little of one part alone.
    """
    tenants = state.config.tenants
    unowned = cluster_total(state) - _total(t.guaranteed for t in tenants)
    accounts = state.cluster.queues.tenants
    idle = {t.name: _positive(t.guaranteed - accounts[t.name].own()) for t in tenants}
    of_others = _total(
        _positive(held - idle.get(tenant, NOTHING)) for tenant, held in borrowed.items()
    )
    left = {
        name: _positive(spare - borrowed.get(name, NOTHING)) for name, spare in idle.items()
    }
    return _share(_positive(of_others - _positive(unowned)), left)


def cluster_total(state: State) -> Resources:
    """Return the sum over all nodes."""
    return _total(node.total() for node in state.config.nodes)


def _total(parts: Iterable[Resources]) -> Resources:
    total = NOTHING
    for part in parts:
        total += part
    return total


def _positive(amount: Resources) -> Resources:
    return Resources(*(max(0, getattr(amount, name)) for name in amount.__struct_fields__))


def _share(amount: Resources, idle: dict[str, Resources]) -> dict[str, Resources]:
    """Return whose idle guarantee is being used, in the order of the names."""
    shares: dict[str, Resources] = {}
    for tenant in sorted(idle):
        part = Resources(
            *(
                min(getattr(amount, name), getattr(idle[tenant], name))
                for name in amount.__struct_fields__
            )
        )
        shares[tenant] = part
        amount -= part
    return shares
