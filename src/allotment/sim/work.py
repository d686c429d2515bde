"""How a job's work goes on: what is left of it, how fast, and what a stop costs.

Work is counted in milliseconds on the devices the job asked for, alone and close together:
the run time of the trace. A speed of 1,000,000 (millionths) does a millisecond of it in
one. A job that may have more or fewer tasks is the faster the more devices (or tasks,
where it has no devices) it has, in proportion.
"""

import msgspec

from allotment.model.ids import AttemptNo, NodeId
from allotment.model.quantity import Instant
from allotment.sim.trace import TraceJob

FULL_SPEED = 1_000_000
STANDS_STILL = Instant(-1)
"""Since when a job makes progress that makes none."""


class Work(msgspec.Struct, gc=False):
    """One job in the simulated world. Mutable; only the world writes it."""

    job: TraceJob
    place: int
    """Its place in the trace."""
    left_ms: int
    told_ms: int | None = None
    """What policies are told of its run time."""
    attempt: AttemptNo = AttemptNo(0)
    since: Instant = STANDS_STILL
    """When it last began to make progress; -1 while it makes none."""
    speed: int = FULL_SPEED
    begun: bool = False
    """Whether this attempt came to run."""
    began: bool = False
    """Whether any attempt did."""
    stopped_at: Instant | None = None
    """When this attempt was told to stop."""
    spare: int = 0
    """Work beyond whole milliseconds, in millionths of one: what is done in many short turns
    counts too."""
    kept_ms: int = 0
    """The work that no fault can take any more: what was done when it last stopped."""
    nodes: tuple[NodeId, ...] = ()
    """Where it runs; known only where that matters."""
    devices: frozenset[tuple[NodeId, int]] = frozenset()
    """The same of devices, where jobs share them."""
    size: int = 0
    """The size at which it has full speed, as `size_of` counts; 0: that of its next start."""
    frozen: bool = False
    """Whether it is suspended: it disturbs none, and makes no progress."""
    unsaved_ms: int = 0
    """The work that it lost when it was told to stop."""
    saves: bool = True
    """Whether it keeps what it has done when it is told to stop."""

    def done_by(self, now: Instant) -> int:
        """Return the work done since it last began."""
        if self.since < 0:
            return 0
        return self._done(now) // FULL_SPEED

    def _done(self, now: Instant) -> int:
        """The same in millionths of a millisecond."""
        return (now - self.since) * self.speed + self.spare

    def ends_at(self, now: Instant) -> int:
        """Return when what is left will be done, going on as now."""
        done = self._done(now) if self.since >= 0 else self.spare
        return now + -((done - self.left_ms * FULL_SPEED) // self.speed)

    def pause(self, now: Instant) -> None:
        """Settle what was done until now, before the speed changes."""
        if self.since >= 0:
            done, self.spare = divmod(self._done(now), FULL_SPEED)
            self.left_ms = max(0, self.left_ms - done)
        self.since = now

    def lose(self, ms: int) -> None:
        """Lose so much work, but none that an earlier stop kept."""
        self.left_ms = min(self.job.run_ms - self.kept_ms, self.left_ms + ms)

    def in_vain(self, now: Instant) -> int:
        """Return how long this attempt has run without progress, being told to stop."""
        if self.stopped_at is None or not self.begun:
            return 0
        return now - self.stopped_at

    def stop(self, now: Instant, keep_ms: int = 0) -> int:
        """Stop making progress; return the work lost.

        With `keep_ms`, it stops by a fault: checkpoints are at the multiples of that, and
        what was done since the last of them is lost, but nothing that an earlier stop kept.
        Without, nothing is lost, or all of this attempt if the job saves nothing.
        """
        if self.since >= 0:
            self.pause(now)
        total = self.job.run_ms
        done = total - self.left_ms
        if keep_ms:
            saved = max(self.kept_ms, done // keep_ms * keep_ms)
        else:
            saved = done if self.saves else self.kept_ms
        self.spare = self.spare if saved == done else 0
        self.kept_ms, self.left_ms = saved, total - saved
        self.since = STANDS_STILL
        return done - saved
