"""Read model of what running tasks use now."""

import msgspec

from allotment.model.ids import JobId
from allotment.model.quantity import Resources
from allotment.service.ports import DeviceUse


class LiveTask(msgspec.Struct, frozen=True):
    """One running task: what it may use, and what it uses.

    Devices and CPU are thousandths, memory is bytes, lengths of time are milliseconds.
    """

    job: JobId
    name: str
    tenant: str
    user: str
    task: str
    """`role.number`."""
    node: str
    may_use: Resources
    ran_ms: int
    """How long its attempt has run."""
    cpu_milli: int = 0
    """CPUs at work, over the time since the last look."""
    memory: int = 0
    processes: int = 0
    devices: tuple[DeviceUse, ...] = ()
    """Its devices, where their driver can be asked. Others may share them."""
    step: int = 0
    """The last step that its job told of, or else saved; 0 where it told of none."""
    steps_per_hour: int | None = None
    """Over the last two minutes or so, or else between the last two saves; None until there
    are two of either."""
    progress_milli: int = 0
    """How much of the job is done, where it said so."""
    total: int = 0
    """How many steps there are; 0 where it did not say."""
    left_ms: int | None = None
    """How long it still takes at that rate; None where that is not known."""
    turn_left_ms: int | None = None
    """How much is left of its turn; 0 once others may have theirs, None in other queues."""
    gain_milli: int | None = None
    """Its rate since its last move in thousandths of the one before; beside another, what both
    do at once of what they do by turns. None where nothing was measured."""
