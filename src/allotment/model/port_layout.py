"""Which ports an attempt needs, and whose is which: one table for engine and launcher.

The first port is the rendezvous (MASTER_PORT). Then one for each task whose job has the
roles that TensorFlow names, for TF_CONFIG. Then those the roles ask for, task by task.
"""

from collections.abc import Iterator

from allotment.model.spec import Dialect, JobSpec

TF_ROLES = frozenset({"chief", "master", "ps", "worker", "evaluator"})


def has_tf_roles(spec: JobSpec) -> bool:
    """Whether the roles make a TensorFlow cluster."""
    if spec.dialect is Dialect.TF_JOB:
        return spec.task_count > 1
    return len(spec.roles) > 1 and all(role.name in TF_ROLES for role in spec.roles)


def port_count(spec: JobSpec) -> int:
    """Count the ports of one attempt. What others made is told of none."""
    if spec.offered:
        return 0
    asked = 0
    for role in spec.roles:
        for port in role.ports:
            asked += role.count * port.count
    return 1 + (spec.task_count if has_tf_roles(spec) else 0) + asked


def task_port(spec: JobSpec, first: int, index: int) -> int:
    """Return the TF_CONFIG port of a task; the rendezvous port where there is none."""
    return first + 1 + index if has_tf_roles(spec) else first


def ports_of(spec: JobSpec, first: int, index: int) -> dict[str, tuple[int, ...]]:
    """Return a task's own ports by label. A label with a fixed `begin` gets those ports."""
    for task, mine in enumerate(ports_by_task(spec, first)):
        if task == index:
            return mine
    raise IndexError(index)


def ports_by_task(spec: JobSpec, first: int) -> Iterator[dict[str, tuple[int, ...]]]:
    """Yield each task's own ports by label, in the order of the tasks."""
    at = first + 1 + (spec.task_count if has_tf_roles(spec) else 0)
    for role in spec.roles:
        for _ in range(role.count):
            mine: dict[str, tuple[int, ...]] = {}
            for port in role.ports:
                begin = port.begin or at
                mine[port.label] = tuple(range(begin, begin + port.count))
                at += port.count
            yield mine
