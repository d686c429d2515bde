"""How a job's work goes on: what is left of it, how fast, and what a stop costs.

Work is counted in milliseconds on the devices the job asked for, alone and close together:
the run time of the trace. A speed of 1,000,000 (millionths) does a millisecond of it in
one.
"""

import msgspec

from allotment.model.ids import AttemptNo
from allotment.model.quantity import Instant
from allotment.sim.trace import TraceJob

FULL_SPEED = 1_000_000


class Work(msgspec.Struct, gc=False):
    """One job in the simulated world. Mutable; only the world writes it."""

    job: TraceJob
    place: int
    """Its place in the trace."""
    left_ms: int
    attempt: AttemptNo = AttemptNo(0)
    since: Instant = Instant(-1)
    """When it last began to make progress; -1 while it makes none."""
    speed: int = FULL_SPEED
    failures: int = 0

    def done_by(self, now: Instant) -> int:
        """Give the work done since it last began."""
        if self.since < 0:
            return 0
        return (now - self.since) * self.speed // FULL_SPEED

    def ends_at(self, now: Instant) -> int:
        """Say when what is left will be done, going on as now."""
        left = self.left_ms - self.done_by(now)
        return now + -(-left * FULL_SPEED // self.speed)

    def stop(self, now: Instant, keep_ms: int = 0) -> None:
        """Stop making progress; what exceeds the last multiple of `keep_ms` is lost."""
        total = self.job.run_ms
        done = total - self.left_ms + self.done_by(now)
        if keep_ms:
            done = max(total - self.left_ms, done // keep_ms * keep_ms)
        self.left_ms = max(0, total - done)
        self.since = Instant(-1)
