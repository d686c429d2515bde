"""The job that has had the least first: device-time, as a line or in steps.

`LeastAttained` compares device-time itself; with turns at once, two equal jobs would change
places with every event, so it is meant for rounds, where it is max-min fairness over time
(Gavel's agnostic policy). `LeastAttainedInSteps` is Tiresias' 2D-LAS: queues by attained
device-time, first come first served within one, so that equals run to their next limit
undisturbed. With `promote`, a job that waited that many times as long as it ran begins again
in the first queue. With limits that double, two jobs are compared up to a factor of two.

Source: Gu et al., Tiresias, NSDI 2019, sections 3.2 and 3.3; Narayanan et al., Gavel, OSDI
2020, section 4.1.

Bad at: long jobs, which are delayed because their run time is not known.
"""

from bisect import bisect_right

from allotment.core.gang import Standing
from allotment.core.rank import Rank, moving
from allotment.model.quantity import DEVICE, Instant
from allotment.policies.ordering.ran import ran_ms


class LeastAttained:
    """Order by device-time so far. A waiting job is put back by `lead_ms` of it.

    So a running job is left alone until it is that far ahead: the longer the lead, the
    fewer changes of place, and the coarser the fairness.
    """

    def __init__(self, lead_ms: int = 0) -> None:
        self._lead_ms = lead_ms

    def rank(self, job: Standing, now: Instant) -> Rank:
        milli = job.gpu_milli
        attained = ran_ms(job, now) * milli
        if job.since is None:
            return Rank((attained + self._lead_ms * DEVICE, job.submitted_at))
        return moving((), attained, milli if job.runs else 0, now)


class LeastAttainedInSteps:
    """Order by the queue that a job's device-time has brought it to; in it, running jobs first.

    A job that comes to a queue is last there at that moment; a preempted job is the first of
    those that wait. `limits_ms` are device-milliseconds at which a job leaves its queue for
    the next, in ascending order; `promote` of 0 never brings a job back. A starting job counts
    as running, and stays in its queue until it runs.
    """

    def __init__(self, limits_ms: tuple[int, ...], promote: int = 0) -> None:
        if list(limits_ms) != sorted(set(limits_ms)) or any(limit < 1 for limit in limits_ms):
            raise ValueError(f"queue limits must ascend from above 0: {limits_ms}")
        self._limits_ms = limits_ms
        self._promote = promote

    def rank(self, job: Standing, now: Instant) -> Rank:
        devices = max(1, job.gpu_milli // DEVICE)
        starved = self._starved_at(job)
        if job.since is None:
            return self._waiting(job, devices, starved, now)
        served = ran_ms(job, now)
        if starved is not None and starved <= job.since:
            served -= job.served_ms
        attained = served * devices
        queue = self._queue(attained)
        if job.starting:
            return Rank((queue, _RUNS, _IN_FRONT, job.since))
        came = job.since
        if queue:
            over_ms = (attained - self._limits_ms[queue - 1]) // devices
            if over_ms == 0 and now > job.since:
                return Rank((queue, _WAITS, _AT_END, now), until=Instant(now + 1))
            came = max(came, now - over_ms)
        until: Instant | None = None
        if queue < len(self._limits_ms):
            until = Instant(now + -(-(self._limits_ms[queue] - attained) // devices))
        return Rank((queue, _RUNS, _IN_FRONT, came), until=until)

    def _waiting(
        self, job: Standing, devices: int, starved: Instant | None, now: Instant
    ) -> Rank:
        if starved is not None and starved <= now:
            return Rank((0, _WAITS, _AT_END, starved))
        attained = job.served_ms * devices
        queue = self._queue(attained)
        until = starved if queue else None
        crossed = queue and attained - self._limits_ms[queue - 1] < devices
        if not attained or crossed:
            return Rank((queue, _WAITS, _AT_END, job.queued_at), until=until)
        return Rank((queue, _WAITS, _IN_FRONT, -job.queued_at), until=until)

    def _queue(self, attained_ms: int) -> int:
        return bisect_right(self._limits_ms, attained_ms)

    def _starved_at(self, job: Standing) -> Instant | None:
        """Return when a job that has run will have waited so long that it begins anew."""
        if not self._promote or not job.served_ms:
            return None
        return Instant(job.queued_at + self._promote * job.served_ms)


def doubling(first_ms: int, times: int = 24) -> tuple[int, ...]:
    """Return limits from `first_ms` of device-time on, each twice the one before."""
    return tuple(first_ms << power for power in range(times))


_RUNS, _WAITS = 0, 1
_IN_FRONT, _AT_END = 0, 1
