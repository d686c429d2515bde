"""A job's roles as one kind of task: a trace knows no other."""

from allotment.model.quantity import Resources
from allotment.model.spec import JobSpec
from allotment.sim.readers.shape import split, whole_above_one


def shape_of(spec: JobSpec) -> tuple[int, Resources, tuple[str, ...]]:
    """Return a job's tasks, what each needs, and the device types it takes.

    Unlike roles are added up: each device becomes a task, and CPU, memory and disk are
    spread evenly over them. Types are those that all roles with a wish take; any where
    there are none.
    """
    roles = spec.roles
    first = roles[0]
    if all(
        (role.resources, role.gpu_types) == (first.resources, first.gpu_types) for role in roles
    ):
        return spec.task_count, first.resources, first.gpu_types
    whole = spec.total()
    tasks, each = spec.task_count, 0
    if whole.gpu_milli:
        tasks, each = split(whole_above_one(whole.gpu_milli), whole_nodes=False)
    need = Resources(
        gpu_milli=each,
        cpu_milli=whole.cpu_milli // tasks,
        memory=whole.memory // tasks,
        disk=whole.disk // tasks,
        gpu_memory=max(role.resources.gpu_memory for role in roles),
    )
    return tasks, need, _common_types(spec)


def _common_types(spec: JobSpec) -> tuple[str, ...]:
    wishes = [role.gpu_types for role in spec.roles if role.gpu_types]
    if not wishes:
        return ()
    return tuple(kind for kind in wishes[0] if all(kind in wish for wish in wishes))
