"""Queue disciplines: what a blocked job lets those behind it in its queue do.

A queue is first come, first served (`Strict`), lets later jobs pass (`Skip`), lets pass those
that do not delay the first that is blocked, or those that delay no other (`core/backfill.py`).
A discipline lives for one pass, from the first blocked job on.

What is free in sum says whether a job may pass; of devices it matters of which type they are.
So a job that passes goes on types that are to spare (`Filter`), and the place found for it is
held against that once more.
"""

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Protocol

import msgspec

from allotment.core.cluster import Cluster
from allotment.core.dimensions import on_slots
from allotment.core.gang import Standing
from allotment.core.rank import Key
from allotment.core.request import Request
from allotment.core.timeline import choose
from allotment.model.amounts import of_type
from allotment.model.ledger import Slot


class Next(Enum):
    """Which job is looked at next of those that are alike in all but their length."""

    NONE = "none"
    IN_ORDER = "in order"


class Filter:
    """Where a job may start that passes others: on types of devices that are to spare."""

    def __init__(self, cluster: Cluster, spares: Sequence[Mapping[str, int]]) -> None:
        """`spares` are what is to spare of each type, by each dimension that counts types."""
        self._cluster, self._spares = cluster, spares

    @property
    def by_type(self) -> bool:
        """Whether it matters on which types of devices the job starts."""
        return bool(self._spares)

    def narrowed(self, job: Standing) -> Standing:
        """Return the same job, asking for those types alone that are to spare."""
        if not self._spares:
            return job
        shape = job.shape
        requests = tuple(map(self._narrowed, shape.requests))
        if requests == shape.requests:
            return job
        narrowed = msgspec.structs.replace(shape, requests=requests)
        return msgspec.structs.replace(job, shape=narrowed)

    def admits(self, slots: Sequence[Slot]) -> bool:
        """Whether a place that was found leaves what others need."""
        if not self._spares:
            return True
        wants = on_slots(self._cluster, slots)
        return all(choose(wants, spare) is not None for spare in self._spares)

    def _narrowed(self, request: Request) -> Request:
        """Narrow one request: with types named it gets all of one, else it may have several."""
        types, milli = request.types or self._cluster.device_types, request.need.gpu_milli
        least = milli * request.count if request.types else milli
        left = tuple(
            kind
            for kind in types
            if all(spare.get(of_type(kind), 0) >= least for spare in self._spares)
        )
        if not milli or not left or len(left) == len(types):
            return request
        return msgspec.structs.replace(request, types=left)


class QueueDiscipline(Protocol):
    """What the blocked jobs of one queue let others do, during one pass."""

    def blocked(self, job: Standing) -> bool:
        """Note a job that cannot start; return whether others like it are noted as well.

        Nothing is worked out before a job asks whether it may start.
        """
        ...

    def may_start(self, job: Standing) -> Filter | None:
        """Return where a job may start that passes the blocked ones; None if it may not."""
        ...

    def turned_down(self, job: Standing, *, room: bool) -> Key | Next:
        """Return which job like this one is next, as this one may not start.

        Without `room` too few devices are free for any of them.
        """
        ...

    def started(self, job: Standing) -> None:
        """Count a job that passed: it runs, or has a place reserved."""
        ...


class Strict:
    """First come, first served: a blocked job holds up all that are behind it."""

    def blocked(self, job: Standing) -> bool:  # noqa: ARG002 - it is the same for all
        return False

    def may_start(self, job: Standing) -> Filter | None:  # noqa: ARG002 - none may
        return None

    def turned_down(self, job: Standing, *, room: bool) -> Key | Next:  # noqa: ARG002
        return Next.NONE

    def started(self, job: Standing) -> None: ...


class Skip(Strict):
    """Later jobs pass: a blocked job holds up none."""

    def __init__(self, cluster: Cluster) -> None:
        self._anywhere = Filter(cluster, ())

    def may_start(self, job: Standing) -> Filter | None:  # noqa: ARG002 - all may
        return self._anywhere
