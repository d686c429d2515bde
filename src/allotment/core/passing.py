"""Who passes those before it goes where it leaves them what they need.

What is free in sum says whether a job may pass; of devices it matters of which type they are.
So a job that may have several goes on those that are to spare, and the place found for it is
held against that once more.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence

import msgspec

from allotment.core.cluster import Cluster
from allotment.core.gang import Standing
from allotment.core.measures import on_slots
from allotment.core.profile import choose
from allotment.core.request import Request
from allotment.model.ledger import Slot

Place = tuple[Slot, ...] | None
Spares = Sequence[Mapping[str, int]]
"""What is to spare of each type of devices, by each measure that counts these."""


class Passing(ABC):
    """What those who wait are owed by others who may start before them."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    @abstractmethod
    def admits(self, job: Standing) -> bool:
        """Whether there is enough in sum for a job to start now."""

    @abstractmethod
    def narrows(self, job: Standing) -> bool:
        """Whether it matters on which types of devices a job starts."""

    @abstractmethod
    def _to_spare(self, job: Standing) -> Spares: ...

    def beside(self, job: Standing) -> Standing:
        """Return a job that may start as it may: on types of devices that are to spare."""
        if not self.narrows(job):
            return job
        spares, here, shape = self._to_spare(job), self._cluster.device_types, job.shape
        requests = tuple(_narrowed(each, here, spares) for each in shape.requests)
        if requests == shape.requests:
            return job
        narrowed = msgspec.structs.replace(shape, requests=requests)
        return msgspec.structs.replace(job, shape=narrowed)

    def spares(self, job: Standing, slots: Sequence[Slot]) -> bool:
        """Whether a place that was found for a job leaves what others need."""
        if not self.narrows(job):
            return True
        wants = on_slots(self._cluster, slots)
        return all(choose(wants, spare) is not None for spare in self._to_spare(job))

    def lets_pass(self, job: Standing, place: Callable[[Standing], Place]) -> bool:
        """Whether a job may start now, and has a place for that, as `place` finds it."""
        if not self.admits(job) or not self.narrows(job):
            return self.admits(job)
        slots = place(self.beside(job))
        return slots is not None and self.spares(job, slots)


def _narrowed(request: Request, here: tuple[str, ...], spares: Spares) -> Request:
    """Narrow one request: who names types gets all of one, who names none may have several."""
    kinds, milli = request.types or here, request.need.gpu_milli
    least = milli * request.count if request.types else milli
    left = tuple(kind for kind in kinds if all(spare.get(kind, 0) >= least for spare in spares))
    if not milli or not left or len(left) == len(kinds):
        return request
    return msgspec.structs.replace(request, types=left)
