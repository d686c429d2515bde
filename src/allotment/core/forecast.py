"""What will be free when, if all jobs end when expected: the timelines that backfilling reads.

A gang that was told to leave is gone at the next moment, and one that borrows where the job
is guaranteed its place; a job with a reserved place ends as if it had that now. A node that is
drained, lost or broken does not count, nor one of a reservation while that keeps jobs off it.
"""

from collections.abc import Iterable, Iterator, Mapping, Set
from functools import cached_property

from allotment.core.cluster import Cluster
from allotment.core.dimensions import Dimension, Occupancy, occupied_by, occupied_in, released
from allotment.core.ends import Columns
from allotment.core.gang import Gang
from allotment.core.reservations import Span
from allotment.core.timeline import Timeline
from allotment.model.amounts import Vector, add
from allotment.model.ids import JobId, NodeId
from allotment.model.ledger import GUARANTEED
from allotment.model.quantity import Instant


class Forecast:
    """The timelines of all dimensions, as one queue sees them now."""

    def __init__(
        self,
        cluster: Cluster,
        now: Instant,
        *,
        down: Set[NodeId],
        aside: Mapping[NodeId, list[Span]],
        evicted_at: Instant | None,
    ) -> None:
        """`down` are nodes not counted on, and `aside` those that reservations keep jobs off.

        `evicted_at` is when those that borrow are gone; None where they stay to their end.
        """
        self._cluster, self._now, self._evicted_at = cluster, now, evicted_at
        self._down = down
        self._aside = {node: aside[node] for node in sorted(aside.keys() - down)}
        assert cluster.ends is not None, "the ends of gangs are kept where queues backfill"
        self._ends = cluster.ends

    def timeline(self, dimension: Dimension) -> Timeline:
        """Return what is free when in a dimension. O(gangs) at the speed of lists.

        Where others have yet to leave a reserved place, less than nothing is free: that counts
        from the next moment on.
        """
        now, without, changes = self._now, self._down | self._aside.keys(), _Changes()
        changes.add(now, dimension.free(without))
        later = [(now, node, dimension.free_on(node)) for node in self._aside]
        later += [(now + 1, at, dimension.awaited_on(at)) for at in self._reserved_nodes()]
        later += [
            (end, node, amounts)
            for end, held in self._ends_apart()
            for node, amounts in dimension.release(held)
        ]
        for at, node, amounts in later:
            if node not in self._down:
                changes.add_but_for(self._aside.get(node, ()), at, amounts)
        at, gains = self._ends.releases(
            now,
            dimension.tenant,
            self._left_out,
            dimension.name,
            lambda gang: released(dimension, occupied_by(gang)),
        )
        return Timeline(now, changes.until(now), *changes.merged(at, gains))

    def next_end(self) -> Instant | None:
        """Return when the next gang ends; None where that is not known."""
        ends = [end for end, _ in self._ends_apart()]
        if (end := self._ends.next_end(self._now, self._left_out)) is not None:
            ends.append(end)
        return Instant(min(ends)) if ends else None

    @cached_property
    def _left_out(self) -> Set[JobId]:
        """Gangs that do not simply release all they hold at their end."""
        return self._apart.keys() | self._cluster.placed.frozen.keys()

    @cached_property
    def _apart(self) -> dict[JobId, Gang]:
        """Gangs that are looked at one by one: they leave, or are where it matters."""
        cluster = self._cluster
        apart = {
            job: gang for job, gang in cluster.placed.leaving.items() if not gang.suspended
        }
        if self._evicted_at is not None:
            for gangs in cluster.placed.borrowers.values():
                apart |= {job: gang for job, gang in gangs.items() if not gang.suspended}
        special = self._down | self._aside.keys()
        if special:
            for job, gang in cluster.gangs.items():
                if not gang.suspended and any(slot.node in special for slot in gang.slots):
                    apart[job] = gang
        return apart

    def _reserved_nodes(self) -> list[NodeId]:
        places = self._cluster.placed.reserved.values()
        return sorted({slot.node for place in places for slot in place.slots})

    def _ends_apart(self) -> Iterator[tuple[int, Occupancy]]:
        """Return what else ends when: gangs apart, what gangs give up, reserved places."""
        cluster, now = self._cluster, self._now
        for job, gang in self._apart.items():
            if (end := self._end_of(job, gang)) is not None:
                yield end, occupied_by(gang)
        for surplus in cluster.placed.parting.values():
            yield now + 1, occupied_by(surplus)
        estimates = cluster.policies.estimates
        assert estimates is not None, "backfilling goes by estimates"
        for job, place in sorted(cluster.placed.reserved.items()):
            gang = cluster.gangs.get(job)
            standing = gang.standing if gang is not None else cluster.pending[job]
            run_ms = estimates.run_ms(standing)
            if run_ms is not None:
                end = now + max(1, standing.left_of(run_ms))
                yield end, occupied_in(standing.shape.tenant, place)

    def _end_of(self, job: JobId, gang: Gang) -> int | None:
        if gang.leaving:
            return self._now + 1
        if self._evicted_at is not None and gang.entitlement is not GUARANTEED:
            return self._evicted_at
        return self._ends.of(job, self._now)


class _Changes:
    """What becomes free, or is taken, when."""

    def __init__(self) -> None:
        self._by: dict[tuple[int, bool], Vector] = {}
        """By instant, and whether some of it becomes less: that comes last."""

    def add(self, at: int, amounts: Mapping[str, int], sign: int = +1) -> None:
        if not amounts:
            return
        falls = any(sign * amount < 0 for amount in amounts.values())
        add(self._by.setdefault((at, falls), {}), amounts, sign)

    def add_but_for(self, spans: Iterable[Span], at: int, amounts: Mapping[str, int]) -> None:
        """Let so much more be free from an instant on, but for some spans, in order."""
        for begin, end in spans:
            if begin <= at < end:
                at = end
            elif at < begin:
                self.add(begin, amounts, -1)
                self.add(end, amounts)
        self.add(at, amounts)

    def until(self, now: Instant) -> Vector:
        """Return, and forget, what changed until now."""
        total = Vector()
        for at, falls in sorted(each for each in self._by if each[0] <= now):
            add(total, self._by.pop((at, falls)))
        return total

    def merged(self, at: list[int], gains: Columns) -> tuple[list[int], Columns]:
        """Merge what changes into columns of what else does."""
        mine = sorted(self._by)
        if not mine:
            return at, gains
        kinds = dict.fromkeys([*gains, *(kind for each in mine for kind in self._by[each])])
        none = [0] * len(at)
        at = [*at, *(when for when, _ in mine)]
        order = sorted(range(len(at)), key=at.__getitem__)
        merged: Columns = {}
        for kind in kinds:
            column = [*gains.get(kind, none), *(self._by[each].get(kind, 0) for each in mine)]
            merged[kind] = [column[place] for place in order]
        return [at[place] for place in order], merged
