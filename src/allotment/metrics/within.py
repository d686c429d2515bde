"""How far a tenant's guarantee reaches among its jobs."""

from bisect import bisect_left
from collections.abc import Callable, Collection

from allotment.model.amounts import covers, of_type, vector_of
from allotment.model.ids import JobId
from allotment.model.quantity import Resources
from allotment.model.queue_tree import QueueTree
from allotment.model.spec import JobSpec

Vector = tuple[int, int, int, int, int]
"""Devices and CPUs in thousandths; memory, disk and device memory in bytes."""

ZERO: Vector = (0, 0, 0, 0, 0)


def vector(amount: Resources) -> Vector:
    """Return an amount part by part, what a suspended task lets go first."""
    return (
        amount.gpu_milli,
        amount.cpu_milli,
        amount.memory,
        amount.disk,
        amount.gpu_memory,
    )


def plus(left: Vector, right: Vector) -> Vector:
    """Add up."""
    a, b, c, d, e = left
    f, g, h, i, j = right
    return (a + f, b + g, c + h, d + i, e + j)


def minus(left: Vector, right: Vector) -> Vector:
    """Subtract."""
    a, b, c, d, e = left
    f, g, h, i, j = right
    return (a - f, b - g, c - h, d - i, e - j)


def fits(amount: Vector, room: Vector) -> bool:
    """Whether there is room for it."""
    a, b, c, d, e = amount
    f, g, h, i, j = room
    return a <= f and b <= g and c <= h and d <= i and e <= j


def suspended(amount: Vector) -> Vector:
    """Return what is still held of an amount while a job is suspended."""
    _, _, memory, disk, gpu_memory = amount
    return (0, 0, memory, disk, gpu_memory)


def beyond_queues(tree: QueueTree, spec: JobSpec, types: Collection[str]) -> bool:
    """Whether a job must stay within what its queues are guaranteed, and never can.

    `types` are those of the devices that there are.
    """
    if spec.preemptible or not any(queue.guaranteed for queue in tree.of.queues):
        return False
    need = _parts(spec.sized(spec.least_count), types)
    around = tree.upward(spec.queue)
    return not any(covers(dict(queue.guaranteed.parts), need, {}) for queue in around)


def _parts(spec: JobSpec, types: Collection[str]) -> dict[str, int]:
    """Return what a job asks for; devices by type too, where only one will do."""
    need = vector_of(spec.total())
    for role in spec.roles:
        if len(kinds := role.gpu_types or types) == 1 and role.resources.gpu_milli:
            part = of_type(next(iter(kinds)))
            need[part] = need.get(part, 0) + role.resources.gpu_milli * role.count
    return need


class Reach:
    """The eligible jobs of one tenant, in order, of which the first so many are *within*.

    By priority, then by submission; those are within whose needs add up to no more than is
    left of the guarantee. O(log n) a change, and O(1) for each job that comes in or out.
    """

    def __init__(self, entered: Callable[[JobId], None], left: Callable[[JobId], None]) -> None:
        self.guaranteed = ZERO
        self.used = ZERO
        """What its jobs hold out of the guarantee."""
        self._entered, self._left = entered, left
        self._line: list[tuple[int, JobId]] = []
        self._needs: dict[JobId, tuple[tuple[int, JobId], Vector]] = {}
        """Where each job stands, and what it asks for."""
        self._within = 0
        """How many of them are."""
        self._asked = ZERO
        """What these ask for together."""

    def __contains__(self, job: JobId) -> bool:
        return job in self._needs

    def jobs(self) -> list[JobId]:
        """Return the eligible jobs, in order."""
        return [job for _, job in self._line]

    def join(self, job: JobId, priority: int, need: Vector) -> None:
        """Add an eligible job. Call `settle` when all of the instant is known."""
        key = (-priority, job)
        self._needs[job] = (key, need)
        place = bisect_left(self._line, key)
        self._line.insert(place, key)
        if place < self._within:
            self._within += 1
            self._asked = plus(self._asked, need)
            self._entered(job)

    def leave(self, job: JobId) -> None:
        """Take a job out. Call `settle` when all of the instant is known."""
        key, need = self._needs.pop(job)
        place = bisect_left(self._line, key)
        del self._line[place]
        if place < self._within:
            self._within -= 1
            self._asked = minus(self._asked, need)
            self._left(job)

    def settle(self) -> None:
        """Let the guarantee reach as far as it does now."""
        room = minus(self.guaranteed, self.used)
        while self._within and not fits(self._asked, room):
            self._within -= 1
            job = self._line[self._within][1]
            self._asked = minus(self._asked, self._needs[job][1])
            self._left(job)
        while self._within < len(self._line):
            job = self._line[self._within][1]
            more = plus(self._asked, self._needs[job][1])
            if not fits(more, room):
                return
            self._asked = more
            self._within += 1
            self._entered(job)
