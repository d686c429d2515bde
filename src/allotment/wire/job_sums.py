"""What all tasks of a job ask for together: within bounds, or absurd."""

import msgspec

from allotment.model.later import characters_to_fill
from allotment.model.port_layout import port_count
from allotment.model.quantity import MIB, show_bytes
from allotment.model.spec import JobSpec
from allotment.wire.amounts import MOST_BYTES, MOST_TASKS

MOST_PORTS = 60_000
"""Ports of one job: a machine has few more."""

MOST_FILLED = 16_000_000
"""Characters of texts that are made anew for each task of a job, and are in memory at once."""

MOST_WRITTEN = 32 * MIB
"""What the copies of one array take in the event log: each is a job of its own there."""


def excess(spec: JobSpec, copies: int = 1, added: int = 0) -> tuple[str, str] | None:
    """Return what is too much, with a hint; None when all is well. O(roles).

    Every role is within bounds already; sums of them may be not. `added` are the bytes that
    parameters add to each copy.
    """
    tasks = copies * spec.task_count
    if tasks > MOST_TASKS:
        return f"makes {tasks:,} tasks, and {MOST_TASKS:,} are accepted", "check the counts"
    one = len(msgspec.msgpack.encode(spec)) + added
    if copies > 1 and one * copies > MOST_WRITTEN:
        size = f"{copies:,} copies of {show_bytes(one)}"
        message = f"makes {size}, and {show_bytes(MOST_WRITTEN)} in all are accepted"
        return message, "keep what is large in a file the jobs read, or make several arrays"
    filled = characters_to_fill(spec)
    if filled > MOST_FILLED:
        return (
            f"names what only its tasks know in texts of {filled:,} characters, counted for "
            f"each task, and {MOST_FILLED:,} are accepted",
            "keep long scripts in a file, or have them read a variable",
        )
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
