"""What stands idle of a tenant's share while its jobs wait, and who overtakes whom.

Meant for first come, first served, where the job that came first is the one that all others
of its tenant wait for.
"""

from heapq import heappop, heappush

import msgspec

from allotment.metrics.devices import wanted_by
from allotment.model import events as e
from allotment.model.ids import JobId
from allotment.model.quantity import DEVICE


class Idle(msgspec.Struct):
    """Device-time of a share that nobody of its tenant used while one of its jobs waited."""

    few_ms: int = 0
    """The first in line asked for more devices than were left."""
    shape_ms: int = 0
    """As many as it asked for were left, but not where it could use them."""
    overtakers: int = 0
    """Jobs first placed before one of their tenant that came earlier."""


class _Line(msgspec.Struct):
    """A tenant's share and who waits for it."""

    share: int
    """Devices."""
    idle: Idle
    used: int = 0
    since: int = 0
    waiting: list[JobId] = msgspec.field(default_factory=list[JobId])
    """A heap; those who wait no more are dropped from it when they come first."""


class Lines:
    """Follows the lines of all tenants. Job ids go by submission."""

    def __init__(self, shares: dict[str, int]) -> None:
        self.idle = {tenant: Idle() for tenant in shares}
        self._shares = shares
        self.begin()

    def begin(self) -> None:
        """Begin anew with another simulation; what is idle adds up."""
        self._lines = {
            tenant: _Line(share, self.idle[tenant]) for tenant, share in self._shares.items()
        }
        self._jobs: dict[JobId, tuple[str, int]] = {}
        self._waits: set[JobId] = set()
        self._before: set[JobId] = set()

    def came(self, event: e.JobSubmitted, at: int) -> None:
        """Take a job into its tenant's line."""
        if (line := self._lines.get(event.spec.tenant)) is None:
            return
        self._pass(line, at)
        self._jobs[event.job] = (event.spec.tenant, wanted_by(event.spec.roles).milli // DEVICE)
        self._queue(line, event.job)

    def placed(self, job: JobId, at: int) -> None:
        """Take a job out of its line."""
        if job not in self._jobs:
            return
        tenant, devices = self._jobs[job]
        line = self._lines[tenant]
        self._pass(line, at)
        self._waits.discard(job)
        line.used += devices
        first = self._first(line)
        if job not in self._before and first is not None and first < job:
            line.idle.overtakers += 1
        self._before.add(job)

    def ended(self, job: JobId, at: int, *, again: bool) -> None:
        """Return back what a job had; it may stand in line again."""
        if job not in self._jobs:
            return
        tenant, devices = self._jobs[job]
        line = self._lines[tenant]
        self._pass(line, at)
        line.used -= devices
        if again:
            self._queue(line, job)

    def _queue(self, line: _Line, job: JobId) -> None:
        self._waits.add(job)
        heappush(line.waiting, job)

    def _first(self, line: _Line) -> JobId | None:
        while line.waiting and line.waiting[0] not in self._waits:
            heappop(line.waiting)
        return line.waiting[0] if line.waiting else None

    def _pass(self, line: _Line, at: int) -> None:
        """Add up what was idle since the line last changed."""
        passed, line.since = at - line.since, at
        left = line.share - line.used
        if not passed or left <= 0 or (first := self._first(line)) is None:
            return
        if self._jobs[first][1] > left:
            line.idle.few_ms += left * passed
        else:
            line.idle.shape_ms += left * passed
