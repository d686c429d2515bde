"""A configuration's shape into the model: nodes, tenants, limits, and what does not add up."""

from collections.abc import Iterator, Mapping, Sequence

import msgspec
from pydantic import ValidationError

from allotment.model.cells import Topology
from allotment.model.cluster import Device, Nic, Node
from allotment.model.engines import EngineType
from allotment.model.errors import Problem
from allotment.model.ids import DeviceIndex, NodeId
from allotment.model.quantity import NOTHING, Resources, show_bytes, show_milli
from allotment.model.tenancy import Config, Limits, PerUser, Queue, Tenant
from allotment.wire.cells_hardware import Hardware, hardware_of
from allotment.wire.cells_read import topology_of
from allotment.wire.cells_tenants import Guarantees, guarantees_of
from allotment.wire.config_budgets import budgets_of, wrong_budgets
from allotment.wire.config_engines import Found, engines_of, with_engines
from allotment.wire.config_objectives import objectives_of
from allotment.wire.config_shape import (
    MOST_GPUS_IN_ALL,
    ConfigShape,
    GpuShape,
    LimitsShape,
    NodeShape,
    TenantShape,
    UserCapShape,
    VirtualGpusShape,
)
from allotment.wire.config_share import over_capacity, share_of
from allotment.wire.dated_read import ReadChanges, changes_of
from allotment.wire.mlflow_shape import mlflow_of
from allotment.wire.pools_shape import pools_of, wrong_pools
from allotment.wire.preempt_rules import PreemptRulesShape, with_rules
from allotment.wire.problems import (
    Finding,
    in_order,
    nearest,
    problem_at,
    problems_of,
    raise_all,
)
from allotment.wire.queue_types import wrong_types
from allotment.wire.queues_read import ReadQueues, tree_of
from allotment.wire.tree import Place, Plain, Tree, path_of

Read = tuple[Config, tuple[Problem, ...]]
NONE_FOUND: Found = {}


def config_of(
    plain: Plain,
    tree: Tree | None,
    *,
    source: str,
    machine: Node | None,
    problems: tuple[Problem, ...] = (),
    found_by: Found = NONE_FOUND,
) -> Read:
    """Build the configuration. `problems` are what reading the text has found already.

    Raises BadInput with everything that is wrong.
    """
    try:
        shape = ConfigShape.model_validate(plain)
    except ValidationError as error:
        raise_all([*problems, *problems_of(error, ConfigShape, tree)], source)
        raise
    config, found, doubtful = assembled(shape, machine, found_by)
    raise_all([*problems, *(problem_at(tree, *finding) for finding in found)], source)
    warnings = in_order(problem_at(tree, *finding) for finding in doubtful)
    return config, warnings


def assembled(
    shape: ConfigShape, machine: Node | None, found_by: Found = NONE_FOUND
) -> tuple[Config, list[Finding], list[Finding]]:
    """Return the configuration, errors and warnings; with errors it must not be used."""
    nodes, made, found = _nodes(shape, machine, found_by)
    there = not found
    found += [*_same_names(shape, made), *_unknown_default(shape), *_nics(shape)]
    found += wrong_pools(shape.pools, list(shape.engines))
    for name, tenant in shape.tenants.items():
        found += wrong_budgets(name, tenant.budgets, list(tenant.queues))
    topology, errors, doubtful = Topology(), list[Finding](), list[Finding]()
    if there:
        topology, errors, doubtful = topology_of(shape.cells, made, nodes)
    found += errors
    ground = _Ground(
        nodes, topology, shape.limits.preempt_rules, there=there, in_cells=there and not errors
    )
    read = _tenants(shape.tenants, ground)
    if read.found:  # What labels leave out of cells may be why guarantees do not fit.
        found += [each for each in doubtful if each[0][-1:] == ("label",)]
    found += read.found
    dated = ReadChanges()
    if not found:
        places = {name: tree.places for name, tree in read.trees.items()}
        dated = changes_of(shape.tenants, places, lambda then: _plainly(then, ground))
        found += dated.errors
    doubtful = [*_doubtful(shape, machine), *doubtful, *read.warnings, *dated.warnings]
    config = Config(
        nodes,
        read.tenants,
        _limits(shape.limits),
        shape.default_tenant,
        topology,
        shape.share,
        tuple(dated.changes),
        visibility=shape.visibility,
        engines=engines_of(shape),
        mlflow=mlflow_of(shape.mlflow),
        pools=pools_of(shape.pools, list(shape.engines)),
        pythons=shape.pythons,
    )
    return config, found, doubtful


class _Ground(msgspec.Struct, frozen=True):
    """What tenants stand on."""

    nodes: tuple[Node, ...]
    topology: Topology
    rules: PreemptRulesShape
    there: bool
    """Whether the nodes are known."""
    in_cells: bool
    """Whether it is known, too, how they make cells."""


class _Read(msgspec.Struct, frozen=True):
    tenants: tuple[Tenant, ...]
    trees: dict[str, ReadQueues]
    found: list[Finding]
    warnings: list[Finding]


def _tenants(shapes: Mapping[str, TenantShape], ground: _Ground) -> _Read:
    """Read the tenants, and what does not add up in them or between them."""
    cells = (
        guarantees_of(shapes, ground.topology, ground.nodes)
        if ground.in_cells
        else Guarantees()
    )
    found = [*cells.errors]
    capacity = sum((node.total() for node in ground.nodes), start=NOTHING)
    trees = {name: tree_of(("tenants", name), item) for name, item in shapes.items()}
    tenants = tuple(
        _tenant(name, item, capacity, cells.tenants.get(name), trees[name].queues)
        for name, item in shapes.items()
    )
    tenants = tuple(with_rules(each, shapes[each.name], ground.rules) for each in tenants)
    found += [flaw for tenant in tenants for flaw in trees[tenant.name].amiss(tenant)]
    by_cells = any(tenant.cells or tenant.pins for tenant in shapes.values())
    if ground.there and not by_cells:
        found += over_capacity(tenants, shapes, capacity)
    if ground.there and not any(tree.found for tree in trees.values()):
        places = {name: tree.places for name, tree in trees.items()}
        found += wrong_types(tenants, places, ground.nodes)
    idle = [flaw for tree in trees.values() for flaw in tree.idle()]
    if by_cells:
        idle += [flaw for tree in trees.values() for flaw in tree.staying()]
    return _Read(tenants, trees, found, [*cells.warnings, *idle])


def _plainly(
    shapes: Mapping[str, TenantShape], ground: _Ground
) -> tuple[tuple[Tenant, ...], list[Finding]]:
    read = _tenants(shapes, ground)
    return read.tenants, read.found


# ── nodes ───────────────────────────────────────────────────────────────────────────────


def _nodes(
    shape: ConfigShape, machine: Node | None, found_by: Found
) -> tuple[tuple[Node, ...], Hardware, list[Finding]]:
    """List the nodes, and what `hardware` says of how they lie together."""
    if shape.nodes is not None:
        gpus = sum(group.count for node, _ in _each(shape) for group in _groups(node))
        if gpus > MOST_GPUS_IN_ALL:
            message = f"lists {gpus:,} GPUs, and {MOST_GPUS_IN_ALL:,} are accepted"
            return (), Hardware(), [(("nodes",), message, "check the counts")]
    listed = [_node(at, node, name, machine) for at, (node, name) in enumerate(_each(shape))]
    made, found = hardware_of(shape.hardware, len(listed))
    if listed or shape.hardware:
        made.nodes = [_with_real(node, machine) for node in made.nodes]
    if listed or shape.hardware or shape.engines:
        here = [
            name for name, engine in shape.engines.items() if engine.type is EngineType.LOCAL
        ]
        if here and machine is not None:
            found_by = {**found_by, here[0]: [_pretending(machine, shape.virtual_gpus)]}
        nodes, wrong = with_engines(shape, (*listed, *made.nodes), found_by)
        return nodes, made, [*found, *wrong]
    if machine is None:
        hint = "add nodes: [{name: n1, cpu: 8, memory: 32GiB}]"
        return (), made, [(("nodes",), "is missing, and this machine is not to be used", hint)]
    return (_pretending(machine, shape.virtual_gpus),), made, []


def _each(shape: ConfigShape) -> Iterator[tuple[NodeShape, str]]:
    """List the machines one by one, with their names."""
    for node in shape.nodes or ():
        for name in node.names or [node.name]:
            yield node, name


def _pretending(machine: Node, gpus: VirtualGpusShape | None) -> Node:
    """Return a machine without devices the virtual ones that were asked for."""
    devices = machine.devices
    if gpus is not None and not devices:
        devices = tuple(
            Device(DeviceIndex(index), gpus.type, gpus.memory) for index in range(gpus.count)
        )
    return Node(
        NodeId(0), machine.name, machine.cpu_milli, machine.memory, machine.disk, devices,
        machine.arch, machine.address, machine.labels, machine.nics,
    )  # fmt: skip


def _node(at: int, shape: NodeShape, name: str, machine: Node | None) -> Node:
    real = _real_devices(name, machine)
    devices: list[Device] = []
    for group in _groups(shape):
        for place in range(group.count):
            devices.append(_device(len(devices), place, group, real))
    return Node(
        NodeId(at), name, shape.cpu, shape.memory, shape.disk, tuple(devices),
        shape.arch, shape.address, tuple(shape.labels.items()),
        tuple(Nic(nic.name, tuple(nic.near)) for nic in shape.nics), shape.engine,
    )  # fmt: skip


def _groups(shape: NodeShape) -> Sequence[GpuShape]:
    return shape.gpu if isinstance(shape.gpu, list) else (shape.gpu,)


def _real_devices(name: str, machine: Node | None) -> tuple[Device, ...]:
    """List the real devices of a node, known only if it is this machine."""
    if machine is None or machine.name != name:
        return ()
    return tuple(device for device in machine.devices if not device.virtual)


def _device(index: int, place: int, group: GpuShape, real: tuple[Device, ...]) -> Device:
    """Describe a device: by its group, and by what the machine says of a real one."""
    uuid = group.uuids[place] if group.uuids else ""
    if group.virtual is not None or index >= len(real):
        virtual = group.virtual is not False
        return Device(DeviceIndex(index), group.type, group.memory, uuid, virtual)
    found = real[index]
    return Device(
        found.index, group.type, group.memory or found.memory, uuid or found.uuid, virtual=False
    )


def _with_real(node: Node, machine: Node | None) -> Node:
    """Return a node that a line of hardware made its real devices, if it is this machine."""
    real = _real_devices(node.name, machine)
    if not real:
        return node
    devices = tuple(
        Device(
            found.index, device.type, device.memory or found.memory, found.uuid, virtual=False
        )
        for device, found in zip(node.devices, real, strict=False)
    )
    return msgspec.structs.replace(node, devices=(*devices, *node.devices[len(devices) :]))


# ── tenants and limits ──────────────────────────────────────────────────────────────────


def _tenant(
    name: str,
    shape: TenantShape,
    capacity: Resources,
    cells: Tenant | None,
    queues: tuple[Queue, ...],
) -> Tenant:
    return Tenant(
        name,
        cells.guaranteed if cells else share_of(shape.guaranteed, capacity),
        queues,
        tuple(shape.users),
        tuple(shape.groups),
        shape.borrow,
        cells.cells if cells else (),
        cells.pins if cells else (),
        shape.preempt,
        _cap(shape.per_user),
        shape.share,
        shape.weight,
        objectives_of(shape.objectives),
        budgets_of(shape.budgets),
        images=tuple(shape.images),
    )


def _cap(shape: UserCapShape) -> Resources:
    return Resources(
        gpu_milli=shape.gpu or 0,
        cpu_milli=shape.cpu or 0,
        memory=shape.memory or 0,
        disk=shape.disk or 0,
        gpu_memory=shape.gpu_memory or 0,
    )


def _limits(shape: LimitsShape) -> Limits:
    return Limits(
        platform_retries=shape.platform_retries,
        backoff_first_ms=shape.backoff.first,
        backoff_most_ms=shape.backoff.most,
        phase_ms=shape.phase,
        barrier_ms=shape.barrier,
        keep_finished=shape.keep_finished,
        keep_history_ms=shape.keep_history,
        task_log_bytes=shape.task_log,
        task_pids=shape.task_pids,
        ports=shape.ports,
        half_life_ms=shape.half_life,
        predict_milli=shape.predict,
        breaker_ppm=shape.breaker,
        image_store=shape.image_store,
        pull_ms=shape.pull,
        code_files=shape.code_files,
        code_bytes=shape.code_bytes,
        code_store=shape.code_store,
        environment_store=shape.environment_store,
        data_store=shape.data_store,
        data_files=shape.data_files,
        data_cache=shape.data_cache,
        per_user=PerUser(
            shape.per_user.requests,
            shape.per_user.streams,
            shape.per_user.execs,
            shape.per_user.jobs,
        ),
    )


# ── what does not add up ────────────────────────────────────────────────────────────────


def _nics(shape: ConfigShape) -> Iterator[Finding]:
    """Find network cards near to devices that are not there, or named twice."""
    for index, node in enumerate(shape.nodes or ()):
        devices = sum(group.count for group in _groups(node))
        seen: set[str] = set()
        for at, nic in enumerate(node.nics):
            place: Place = ("nodes", index, "nics", at)
            far = [device for device in nic.near if device >= devices]
            if far:
                message = f"there is no device {far[0]}: the node has {devices}"
                yield (*place, "near"), message, "devices are counted from 0"
            if nic.name in seen:
                yield (*place, "name"), f"{nic.name} is there already", "name each card once"
            seen.add(nic.name)


def _same_names(shape: ConfigShape, made: Hardware) -> Iterator[Finding]:
    seen: dict[str, Place] = {}
    for index, node in enumerate(shape.nodes or ()):
        for at, name in enumerate(node.names or [node.name]):
            place: Place = ("nodes", index, "names", at) if node.names else ("nodes", index)
            first = seen.setdefault(name, place)
            if first != place:
                where = place if node.names else (*place, "name")
                yield where, f"{name} is the name of {path_of(first)} too", "rename one"
    for node in made.nodes:
        if node.name in seen:
            message = f"makes a node {node.name}, which is a name already taken"
            yield ("hardware",), message, "end the line with a prefix: named gpu-"
            return
        seen[node.name] = ("hardware",)


def _unknown_default(shape: ConfigShape) -> Iterator[Finding]:
    name = shape.default_tenant
    if name and name not in shape.tenants:
        hint = nearest(name, list(shape.tenants), what="tenants")
        yield ("default_tenant",), f"there is no tenant {name}", hint


def _doubtful(shape: ConfigShape, machine: Node | None) -> Iterator[Finding]:
    """Find what has no effect, or guarantees more than this machine has."""
    named = shape.nodes is not None or shape.hardware
    if shape.virtual_gpus and named and not shape.engines:
        yield (
            ("virtual_gpus",),
            f"is ignored: `{'nodes' if shape.nodes else 'hardware'}` says what there is",
            "take one of them out",
        )
    elif shape.virtual_gpus and machine and any(d.virtual for d in machine.devices):
        message = f"is ignored: `--gpus {len(machine.devices)}` counts, said at the start"
        yield ("virtual_gpus",), message, "start without it to have those of the file"
    elif shape.virtual_gpus and machine and machine.devices:
        message = f"is ignored: this machine has {len(machine.devices)} GPUs of its own"
        yield ("virtual_gpus",), message, "list the machine under `nodes` to hide them"
    for index, node in enumerate(shape.nodes or ()):
        if machine is not None and machine.name in (node.name, *node.names):
            yield from _more_than_real(("nodes", index), node, machine)


def _more_than_real(place: Place, node: NodeShape, machine: Node) -> Iterator[Finding]:
    hint = "tasks will share what there is"
    if node.cpu > machine.cpu_milli:
        have = show_milli(machine.cpu_milli)
        yield (*place, "cpu"), f"is more than the {have} CPUs of this machine", hint
    if node.memory > machine.memory:
        have = show_bytes(machine.memory)
        yield (*place, "memory"), f"is more than the {have} of this machine", hint
    real = _real_devices(machine.name, machine)
    asked = sum(group.count for group in _groups(node) if group.virtual is None)
    if real and asked > len(real):
        message = f"is more than the {len(real)} GPUs of this machine: the rest is virtual"
        yield (*place, "gpu"), message, "write virtual: true for those that are virtual"
