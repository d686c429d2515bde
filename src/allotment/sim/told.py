"""What policies are told of run times, when a job is submitted.

* `exact`: the trace's own, which nobody could know;
* `noisy`: the same, times a factor whose logarithm is drawn from a normal distribution;
* `history`: the mean of the last two run times of the same user and name, or of the same
  user (Tsafrir, Etsion and Feitelson, TPDS 18(6), 2007); nothing before the first end;
* `limit`: the time limit of the job, if it has one;
* `predicted`: nothing here, as the engine predicts by itself: as it does in a service.
"""

from collections import deque
from math import exp
from random import Random

from allotment.sim.settings import Settings
from allotment.sim.trace import TraceJob

REMEMBERED = 2

Who = tuple[str, str]


class Told:
    """Tells run times. Remembers those of ended jobs where that is what it goes by."""

    def __init__(self, settings: Settings, seed: int) -> None:
        self._how = settings.estimates
        self._noise = settings.noise
        self._seed = seed
        self._ended: dict[Who, deque[int]] = {}

    def at_submission(self, job: TraceJob, place: int) -> int | None:
        """Return how long a job is expected to run, in ms; None when nothing is known."""
        match self._how:
            case "exact":
                return job.run_ms
            case "noisy":
                drawn = Random(f"{self._seed}/told/{place}").gauss(0.0, self._noise)
                return max(1, round(job.run_ms * exp(drawn)))
            case "limit":
                return job.limit_ms or None
            case "predicted":
                return None
            case _:
                return self._from_history(job)

    def ended(self, job: TraceJob) -> None:
        """Note how long a job ran."""
        if self._how == "history":
            for who in _names(job):
                self._ended.setdefault(who, deque(maxlen=REMEMBERED)).append(job.run_ms)

    def _from_history(self, job: TraceJob) -> int | None:
        for who in _names(job):
            runs = self._ended.get(who)
            if runs:
                return sum(runs) // len(runs)
        return None


def _names(job: TraceJob) -> tuple[Who, Who]:
    user = job.user or job.tenant
    return (user, job.name), (user, "")
