"""What a task gets of what its owner did not name.

That is the usual, or less where its devices bring less: of what its tenant is guaranteed, as
much as its devices are of the guaranteed ones; of every machine where it may run, as much
as they are of the devices there. So a job that names devices alone never borrows, nor leaves
devices without a CPU, because of a default. Amounts are rounded down.
"""

from collections.abc import Iterator, Sequence

import msgspec

from allotment.engine.state import State
from allotment.model.cluster import Node
from allotment.model.quantity import DEVICE, MIB, Resources
from allotment.model.spec import USUAL, JobSpec, TaskRole


def with_defaults(state: State, spec: JobSpec) -> JobSpec:
    """Fill in what a job does not name. O(nodes) where it does not name everything."""
    tenant = state.cluster.tenants.get(spec.tenant)
    if tenant is None or _names_all(spec):
        return spec
    roles = tuple(_filled(role, tenant.guaranteed, state.config.nodes) for role in spec.roles)
    return msgspec.structs.replace(spec, roles=roles)


def _names_all(spec: JobSpec) -> bool:
    for role in spec.roles:  # noqa: SIM110 - a generator would cost more than the question
        if role.by_default:
            return False
    return True


Whole = tuple[int, int, int]
"""What comes together: thousandths of devices, thousandths of CPUs, bytes of memory."""


def _filled(role: TaskRole, guaranteed: Resources, nodes: Sequence[Node]) -> TaskRole:
    if not role.by_default:
        return role
    gpu, wholes = role.resources.gpu_milli, list[Whole]()
    if gpu:
        own = guaranteed.gpu_milli, guaranteed.cpu_milli, guaranteed.memory
        wholes = [own, *dict.fromkeys(_machines(role, nodes))]
    found = {
        "cpu": ("cpu_milli", _amount(gpu, USUAL.cpu_milli, [(w[0], w[1]) for w in wholes])),
        "memory": ("memory", _memory(gpu, [(w[0], w[2]) for w in wholes])),
    }
    need = msgspec.structs.replace(
        role.resources, **dict(found[part] for part in role.by_default)
    )
    return msgspec.structs.replace(role, resources=need)


def _machines(role: TaskRole, nodes: Sequence[Node]) -> Iterator[Whole]:
    """Return what each machine has that has devices for a task."""
    for node in nodes:
        if not role.gpu_types or any(each.type in role.gpu_types for each in node.devices):
            yield DEVICE * len(node.devices), node.cpu_milli, node.memory


def _memory(gpu: int, wholes: Sequence[tuple[int, int]]) -> int:
    """Return the usual memory, or what comes with the devices, in whole MiB where it can be."""
    amount = _amount(gpu, USUAL.memory, wholes)
    return amount // MIB * MIB or amount


def _amount(gpu: int, usual: int, wholes: Sequence[tuple[int, int]]) -> int:
    """Return the usual of a part, or the least that comes with so much of the devices."""
    shares = [part * gpu // devices for devices, part in wholes if devices]
    return min([usual, *(share for share in shares if share)])
