"""The job that has had the least since the last change first: device-time, counted anew.

At a turn, if a job came or ended, and the last count is `apart_ms` old, every job begins
anew as if it had had its devices for half a round on each type, so that small jobs go first
until all have had their part. Ties: the job that has had less in all.

Source: Narayanan et al., Gavel, OSDI 2020, section 5. Its scheduler keeps, by device type,
the time that each job received, sets it to half a round whenever shares are reckoned anew,
and does that when a job came or ended, 1,920 s apart. Here the types are one sum.

Bad at: jobs of many devices, which are passed by small ones after every change; and at
making up for what a job missed before.
"""

from collections.abc import Sequence

from allotment.core.gang import Standing
from allotment.core.rank import Rank, moving
from allotment.model.ids import JobId
from allotment.model.quantity import SECOND, Instant
from allotment.policies.ordering.ran import ran_ms

APART_MS = 1_920 * SECOND
_TIES = 1 << 60
"""More device-time, in thousandths of a millisecond, than any job ever has."""


class LeastSinceChange:
    """Order by device-time since `recount` last counted anew, on so many device types."""

    def __init__(self, round_ms: int, apart_ms: int = APART_MS, types: int = 1) -> None:
        self._round_ms = round_ms
        self._apart_ms = apart_ms
        self._head_ms = types * round_ms // 2
        self._counted_at: Instant | None = None
        self._ran: dict[JobId, int] = {}
        """The run time each had when it was last counted anew."""

    def on(self, types: int) -> "LeastSinceChange":
        """Return the same ordering for a cluster of so many device types."""
        return LeastSinceChange(self._round_ms, self._apart_ms, types)

    def recount(self, jobs: Sequence[Standing], now: Instant) -> bool:
        if self._counted_at is not None and (
            now - self._counted_at < self._apart_ms
            or self._ran.keys() == {job.id for job in jobs}
        ):
            return False
        self._counted_at = now
        self._ran = {job.id: ran_ms(job, now) for job in jobs}
        return True

    def rank(self, job: Standing, now: Instant) -> Rank:
        milli, ran = job.gpu_milli, ran_ms(job, now)
        since = self._head_ms + ran - self._ran.get(job.id, 0)
        had = since * milli * _TIES + ran * milli
        return moving((), had, milli * _TIES + milli if job.runs else 0, now)
