"""Jobs that ask for the same share devices two by two, as chance brings them together.

While all jobs fit on the devices side by side, no job shares. Else, at each turn, each job
without a partner gets one: they are looked at in random order, and a job that would do badly
with one is tried with the next, and runs alone if none is left. A pair lasts until one of
the two ends, or all jobs fit.

Source: Xiao et al., Gandiva, OSDI 2018, section 4.3, as Narayanan et al., Gavel, OSDI 2020,
compare with it (there pairs are looked at after they were made; what is known beforehand
to do badly is never begun here).

Bad at: finding the best partner, which it does not look for.
"""

from collections.abc import Callable, Iterable, Sequence
from random import Random

from allotment.core.gang import Standing
from allotment.core.request import Request
from allotment.model.ids import JobId
from allotment.model.quantity import DEVICE, Instant

Kind = tuple[tuple[int, object, frozenset[str]], ...]
"""What partners have in common: tasks, what each needs, and which types they take."""


class RandomPairs:
    """Pairs by the `seed`, for `devices` in all. `together` tells which jobs sharing helps."""

    def __init__(
        self, seed: int, devices: int, together: Callable[[JobId, JobId], bool]
    ) -> None:
        self._seed = seed
        self._devices = devices
        self._together = together
        self._partners: dict[JobId, JobId] = {}

    def partner(self, job: JobId) -> JobId | None:
        return self._partners.get(job)

    def deal(self, jobs: Sequence[Standing], now: Instant) -> None:
        if sum(_devices(job) for job in jobs) <= self._devices:
            self._partners.clear()
            return
        there = {job.id for job in jobs}
        self._partners = {
            job: other
            for job, other in self._partners.items()
            if job in there and other in there
        }
        alone = [job for job in jobs if job.id not in self._partners and _shares(job)]
        self._pair(self._in_order(alone, now))

    def _in_order(self, alone: Sequence[Standing], now: Instant) -> list[Standing]:
        """Return those that may have a partner, in the order in which they look for one."""
        shuffled = list(alone)
        Random(f"{self._seed}/pairs/{now}").shuffle(shuffled)
        return shuffled

    def _pair(self, alone: Iterable[Standing]) -> None:
        seen: dict[Kind, list[JobId]] = {}
        for job in alone:
            waiting = seen.setdefault(_kind(job.shape.requests), [])
            found = next((other for other in waiting if self._together(job.id, other)), None)
            if found is None:
                waiting.append(job.id)
            else:
                waiting.remove(found)
                self._partners[job.id], self._partners[found] = found, job.id


def _devices(job: Standing) -> int:
    return sum(request.count * request.devices for request in job.shape.requests)


def _shares(job: Standing) -> bool:
    """Whether all tasks of a job leave room for as much again on their devices."""
    return all(0 < r.need.gpu_milli * 2 <= DEVICE for r in job.shape.requests)


def _kind(requests: tuple[Request, ...]) -> Kind:
    return tuple((r.count, r.need, frozenset(r.types)) for r in requests)
