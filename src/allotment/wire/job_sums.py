"""What all tasks of a job ask for together: within bounds, or absurd."""

from allotment.model.copied_texts import excess_of_texts
from allotment.model.port_layout import port_count
from allotment.model.quantity import show_bytes
from allotment.model.spec import JobSpec
from allotment.wire.amounts import MOST_BYTES, MOST_TASKS

MOST_PORTS = 60_000
"""Ports of one job: a machine has few more."""


def excess(spec: JobSpec, copies: int = 1, added: int = 0) -> tuple[str, str] | None:
    """Return what is too much, with a hint; None when all is well. O(roles).

    Every role is within bounds already; sums of them may be not. `added` are the bytes that
    parameters add to each copy.
    """
    tasks = copies * spec.task_count
    if tasks > MOST_TASKS:
        return f"makes {tasks:,} tasks, and {MOST_TASKS:,} are accepted", "check the counts"
    if (found := excess_of_texts(spec, copies, added)) is not None:
        return found
    ports = port_count(spec)
    if ports > MOST_PORTS:
        return f"needs {ports:,} ports, and {MOST_PORTS:,} are accepted", "ask for fewer ports"
    total = spec.total()
    for key in ("memory", "disk", "gpu_memory"):
        amount: int = getattr(total, key)
        if amount > MOST_BYTES:
            message = f"asks for {show_bytes(amount)} of {key} in all, which no cluster has"
            return message, "check the counts and the units"
    return None
