"""The one search for preemption victims: add candidates until there is a place, then reprieve.

Candidates are preempted in the order of their source, the cheapest first, until there is a
place. Then each of them is reprieved, the dearest first, if the place stands without its
preemption, or if there is another place then. So no smaller part of the victims would do, as
long as `fits` finds a place wherever there is one. An elastic gang keeps as many tasks as it
can. (Kubernetes and Kueue choose preemption targets in the
same two steps.)
"""

from collections.abc import Callable, Iterable

import msgspec

from allotment.core.elastic import may_scale_down
from allotment.core.gang import Gang, ReservedPlace
from allotment.core.trial import Trial
from allotment.model.ids import JobId
from allotment.model.ledger import Entitlement, Quota, Slot
from allotment.model.quantity import Resources

Holder = Gang | ReservedPlace
"""What has a place, or has it reserved."""

Candidate = tuple[Holder, int]
"""A gang, or a reserved place, that may be preempted, and how many tasks it keeps: mostly 0."""


class PreemptionPlan(msgspec.Struct, frozen=True):
    """A place for a gang, and what others give up for it."""

    slots: tuple[Slot, ...]
    needs: tuple[Resources, ...]
    quota: Quota = ()
    grounds: Entitlement = Entitlement.GUARANTEED
    evict: tuple[JobId, ...] = ()
    """Gangs that must leave the place; some may be leaving already."""
    demote: tuple[JobId, ...] = ()
    """Those of them that lose their own tenant's share to it at once."""
    revoke: tuple[JobId, ...] = ()
    """Jobs whose reserved places it takes over: they stand in line again."""
    shrink: tuple[tuple[JobId, int], ...] = ()
    """Elastic gangs that scale down, and how many tasks each keeps."""

    @property
    def is_free(self) -> bool:
        """Whether nothing is preempted for it."""
        return not (self.evict or self.revoke or self.shrink)


Fits = Callable[[], PreemptionPlan | None]
"""Returns the place there is in the trial as it is, with what else must go; changes nothing."""


Stands = Callable[[PreemptionPlan], bool]
"""Whether a place is still had on the same grounds."""


def _always(_: PreemptionPlan) -> bool:
    return True


def search(
    trial: Trial,
    candidates: Iterable[Candidate],
    fits: Fits,
    stands: Stands = _always,
    going: Iterable[Candidate] = (),
) -> PreemptionPlan | None:
    """Find a place that preempting some candidates makes, the first ones first; or None.

    What is `going` in any case is gone before the first look. The trial is left as it was.
    O(candidates · fits).
    """
    start = trial.mark()
    preempted, plan = _Preempted(trial), None
    for holder, tasks in going:
        preempted.preempt(holder, tasks)
    for holder, tasks in candidates:
        preempted.preempt(holder, tasks)
        plan = fits()
        if plan is not None:
            plan = preempted.reprieve(plan, fits, stands)
            break
    trial.rollback(start)
    return plan


class _Preempted:
    """What was preempted in a trial so far."""

    def __init__(self, trial: Trial) -> None:
        self._trial = trial
        self._moves: list[tuple[Holder, int, int]] = []
        """Each holder with the number of its tasks before and after."""
        self._now: dict[tuple[type[Holder], JobId], Candidate] = {}
        """How many tasks each has now."""

    def preempt(self, holder: Holder, tasks: int) -> None:
        """Let a gang or a reserved place keep so many tasks."""
        self._moves.append((holder, self._size(holder), tasks))
        self._resize(holder, tasks)

    def reprieve(self, plan: PreemptionPlan, fits: Fits, stands: Stands) -> PreemptionPlan:
        """Give back, the dearest first, all that need not go; return the plan that is left."""

        def with_tasks(holder: Holder, tasks: int) -> PreemptionPlan | None:
            self._resize(holder, tasks)
            if self._holds(plan, stands):
                return plan
            other = fits()
            return other if other is not None and other.grounds is plan.grounds else None

        for holder, before, after in reversed(self._moves):
            if self._size(holder) != after:
                continue  # More of it went later, and stays gone.
            sizes = self._sizes(holder, before, after)
            least, most = 0, len(sizes) - 1
            while least < most:
                middle = (least + most + 1) // 2
                found = with_tasks(holder, sizes[middle])
                if found is None:
                    most = middle - 1
                else:
                    least, plan = middle, found
            self._resize(holder, sizes[least])
        return self._added_to(plan)

    def _sizes(self, holder: Holder, before: int, after: int) -> tuple[int, ...]:
        """Return how many tasks it may have, from those it keeps to those it had."""
        if not isinstance(holder, Gang) or not may_scale_down(self._trial.cluster, holder):
            return after, before
        sizes = range(after or holder.least, before, holder.step)
        return (*sizes, before) if after else (0, *sizes, before)

    def _holds(self, plan: PreemptionPlan, stands: Stands) -> bool:
        """Whether a place is still had in the trial, once what must go for it has."""
        trial, mark = self._trial, self._trial.mark()
        trial.carry_out(plan.evict, plan.revoke, plan.shrink)
        trial.hold(plan.slots, plan.needs)
        holds = trial.cluster.ledger.settled(plan.slots) and stands(plan)
        trial.rollback(mark)
        return holds

    def _added_to(self, plan: PreemptionPlan) -> PreemptionPlan:
        """Add to a plan what is preempted still."""
        evict, revoke, shrink = list[JobId](), list[JobId](), list[tuple[JobId, int]]()
        for holder, tasks in self._now.values():
            if tasks == len(holder.slots):
                continue
            if isinstance(holder, ReservedPlace):
                revoke.append(holder.job)
            elif tasks:
                shrink.append((holder.id, tasks))
            else:
                evict.append(holder.id)
        return msgspec.structs.replace(
            plan,
            evict=(*evict, *plan.evict),
            revoke=(*revoke, *plan.revoke),
            shrink=(*shrink, *plan.shrink),
        )

    def _size(self, holder: Holder) -> int:
        return self._now.get(_key(holder), (holder, len(holder.slots)))[1]

    def _resize(self, holder: Holder, tasks: int) -> None:
        """Let a gang, or a reserved place, have another number of tasks in the trial."""
        holder, before = self._now.get(_key(holder), (holder, len(holder.slots)))
        if before == tasks:
            return
        self._now[_key(holder)] = (holder, tasks)
        if isinstance(holder, ReservedPlace):
            if tasks:
                self._trial.reserve(holder)
            else:
                self._trial.unreserve(holder.job)
            return
        if before:
            self._trial.drop(holder.id)
        if tasks:
            whole = tasks == len(holder.slots)
            self._trial.restore(holder if whole else holder.of_size(tasks))


def _key(holder: Holder) -> tuple[type[Holder], JobId]:
    return type(holder), holder.id if isinstance(holder, Gang) else holder.job
