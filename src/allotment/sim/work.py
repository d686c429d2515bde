"""How a job's work goes on: what is left of it, how fast, and what a stop costs.

Work is counted in milliseconds on the devices the job asked for, alone and close together:
the run time of the trace. A speed of 1,000,000 (millionths) does a millisecond of it in
one.
"""

import msgspec

from allotment.model.ids import AttemptNo, NodeId
from allotment.model.quantity import Instant
from allotment.sim.trace import TraceJob

FULL_SPEED = 1_000_000


class Work(msgspec.Struct, gc=False):
    """One job in the simulated world. Mutable; only the world writes it."""

    job: TraceJob
    place: int
    """Its place in the trace."""
    left_ms: int
    told_ms: int | None = None
    """What policies are told of its run time."""
    attempt: AttemptNo = AttemptNo(0)
    since: Instant = Instant(-1)
    """When it last began to make progress; -1 while it makes none."""
    speed: int = FULL_SPEED
    stopped_at: Instant | None = None
    """When this attempt was told to stop."""
    nodes: tuple[NodeId, ...] = ()
    """Where it runs; known only where that matters."""

    def done_by(self, now: Instant) -> int:
        """Give the work done since it last began."""
        if self.since < 0:
            return 0
        return (now - self.since) * self.speed // FULL_SPEED

    def ends_at(self, now: Instant) -> int:
        """Say when what is left will be done, going on as now."""
        left = self.left_ms - self.done_by(now)
        return now + -(-left * FULL_SPEED // self.speed)

    def pause(self, now: Instant) -> None:
        """Settle what was done until now, before the speed changes."""
        self.left_ms = max(0, self.left_ms - self.done_by(now))
        self.since = now

    def stop(self, now: Instant, keep_ms: int = 0) -> int:
        """Stop making progress; give the work lost.

        With `keep_ms`, what exceeds the last multiple of it is lost; without, nothing is.
        """
        total = self.job.run_ms
        done = total - max(0, self.left_ms - self.done_by(now))
        saved = done // keep_ms * keep_ms if keep_ms else done
        self.left_ms = total - saved
        self.since = Instant(-1)
        return done - saved
