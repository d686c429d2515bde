"""The one search for preemption victims: add candidates until there is a place, then reprieve.

Candidates are preempted in the order of their source, the cheapest first, until there is a
place. Then each of them is reprieved, the dearest first, if the place stands without its
preemption. An elastic gang may be preempted in part: then it keeps as many tasks as the place
can do without. (Kubernetes and Kueue choose preemption targets in the same two steps.)
"""

from collections.abc import Callable, Iterable

import msgspec

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


Fits = Callable[[], PreemptionPlan | None]
"""Returns the place there is in the trial as it is, with what else must go; changes nothing."""


def _always(_: PreemptionPlan) -> bool:
    return True


def search(
    trial: Trial,
    candidates: Iterable[Candidate],
    fits: Fits,
    stands: Callable[[PreemptionPlan], bool] = _always,
    going: Iterable[Candidate] = (),
) -> PreemptionPlan | None:
    """Find a place that preempting some candidates makes, the first ones first; or None.

    `stands` says whether a place is still had on the same grounds. What is `going` in any
    case is gone before the first look. The trial is left as it was. O(candidates · fits).
    """
    start = trial.mark()
    preempted, plan = _Preempted(trial), None
    for holder, tasks in going:
        preempted.preempt(holder, tasks)
    for holder, tasks in candidates:
        preempted.preempt(holder, tasks)
        plan = fits()
        if plan is not None:
            plan = preempted.shrink_least(fits, plan)
            break
    if plan is not None:
        place = plan
        trial.carry_out(place.evict, place.revoke, place.shrink)
        trial.hold(place.slots, place.needs)
        preempted.reprieve(lambda: trial.cluster.ledger.settled(place.slots) and stands(place))
        plan = preempted.added_to(plan)
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

    def shrink_least(self, fits: Fits, plan: PreemptionPlan) -> PreemptionPlan:
        """Let the gang that shrank last keep as many tasks as leave a place; return that."""
        holder, before, tasks = self._moves[-1]
        if not tasks or not isinstance(holder, Gang):
            return plan
        fewest, most = 0, (before - tasks) // holder.step - 1
        while fewest < most:
            middle = (fewest + most + 1) // 2
            self._resize(holder, tasks + middle * holder.step)
            better = fits()
            if better is None:
                most = middle - 1
            else:
                fewest, plan = middle, better
        tasks += fewest * holder.step
        self._resize(holder, tasks)
        self._moves[-1] = (holder, before, tasks)
        return plan

    def reprieve(self, stands: Callable[[], bool]) -> None:
        """Give back, the dearest first, all that the place can do without.

        The place is held in the trial; `stands` says whether it still may be.
        """
        for holder, before, after in reversed(self._moves):
            if self._size(holder) != after:
                continue  # More of it went later, and stays gone.
            self._resize(holder, before)
            if stands():
                continue
            if after and isinstance(holder, Gang):
                self._give_back(holder, before, after, stands)
            else:
                self._resize(holder, after)

    def _give_back(
        self, gang: Gang, before: int, after: int, stands: Callable[[], bool]
    ) -> None:
        """Give a gang that shrank back as many of its tasks as may stay."""
        fewest, most = 0, (before - after) // gang.step - 1
        while fewest < most:
            middle = (fewest + most + 1) // 2
            self._resize(gang, after + middle * gang.step)
            if stands():
                fewest = middle
            else:
                most = middle - 1
        self._resize(gang, after + fewest * gang.step)

    def added_to(self, plan: PreemptionPlan) -> PreemptionPlan:
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
        before = self._size(holder)
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
