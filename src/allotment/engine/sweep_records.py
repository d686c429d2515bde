"""What the engine remembers of each sweep. Mutable; only `apply` writes here."""

import msgspec

from allotment.model.grid import Parameters
from allotment.model.ids import Actor, JobId
from allotment.model.quantity import Instant, Millis
from allotment.model.sweeps import Sweep, SweepEnd


class SweepRecord(msgspec.Struct, omit_defaults=True):
    """One sweep, kept beyond the archiving of its trials."""

    id: JobId
    """Of its array, and so of its first trial."""
    name: str
    tenant: str
    owner: Actor
    sweep: Sweep
    trials: int
    submitted_at: Instant
    left: int
    """How many trials are not over."""
    finished_at: Instant = Instant(0)
    reached: dict[JobId, list[float | None]] = {}
    """The value of each trial at each rung that it came to."""
    measured: dict[JobId, tuple[int, float | None]] = {}
    """The last step and value that are recorded of each trial."""
    stopped: dict[JobId, tuple[int, int, int]] = {}
    """Of the trials that lost: the rung, the place, and of how many."""
    ran: dict[JobId, Millis] = {}
    """Run time of attempts that ended."""
    gpu_spent: int = 0
    """What attempts that ended have used, in device-thousandths × ms."""
    cpu_spent: int = 0
    proposed: dict[JobId, Parameters] = {}
    """Of a study: the parameters of the trials whose turn has come."""
    over: dict[JobId, bool] = {}
    """Of a study: the trials that are over, and whether each came to its end."""
    ended: SweepEnd | None = None
    """Why it was stopped, if it was."""
    ended_by: str = ""

    @property
    def is_over(self) -> bool:
        """Whether no trial is left."""
        return self.left <= 0

    @property
    def ids(self) -> range:
        """Return the ids of its trials."""
        return range(self.id, self.id + self.trials)
