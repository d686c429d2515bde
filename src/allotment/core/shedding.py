"""Gangs that give way, whole or in part: an elastic one may only lose its surplus tasks.

Rule: surplus goes first, those with the highest numbers, no more of them than needed, and
never below the least that the job can go on with. Whole gangs go only where that is not
enough. Nobody who has not got to run yet, or is shrinking already, is made to shrink.
"""

from collections.abc import Callable, Iterable
from typing import TypeVar

import msgspec

from allotment.core.cluster import Cluster
from allotment.core.gang import Gang
from allotment.core.trial import Trial
from allotment.model.ids import JobId
from allotment.model.ledger import Slot
from allotment.model.quantity import DEVICE

Shed = tuple[tuple[JobId, int], ...]
"""Gangs that shrink, and how many tasks each keeps."""

Found = TypeVar("Found")


class GivenWay(msgspec.Struct, frozen=True):
    """Who leaves for a place, and who only shrinks for it."""

    victims: tuple[JobId, ...]
    shed: Shed = ()


def may_shed(cluster: Cluster, gang: Gang) -> bool:
    """Whether a gang has tasks that it can go on without."""
    if not gang.least or len(gang.slots) <= gang.least:
        return False
    each = gang.needs[-1].gpu_milli
    return (
        not (gang.leaving or gang.suspended or gang.shrinking or gang.standing.starting)
        # A part of a device, or a share of a host, is not a cell of its own.
        and (cluster.cells is None or (each > 0 and each % DEVICE == 0))
    )


def size_off(cluster: Cluster, gang: Gang, slots: Iterable[Slot]) -> int:
    """Return with how many tasks a gang is off these devices; 0 if it has to go whole."""
    if not may_shed(cluster, gang):
        return 0
    wanted = {(slot.node, index) for slot in slots for index in slot.devices}
    for number, slot in enumerate(gang.slots):
        if any((slot.node, index) in wanted for index in slot.devices):
            beyond = number - gang.least
            return gang.least + beyond // gang.step * gang.step if beyond >= 0 else 0
    return len(gang.slots)


Unit = tuple[Gang, int]
"""A gang that may give up surplus tasks, and how many it keeps at least."""


def elastic_among(cluster: Cluster, holders: Iterable[object]) -> list[Unit]:
    """Return the gangs among some holders that may give up surplus tasks."""
    if not cluster.elastic:
        return []
    gangs = (each for each in holders if isinstance(each, Gang) and each.least)
    return [(gang, gang.least) for gang in gangs if may_shed(cluster, gang)]


class Leaving:
    """Those who were let go in a trial so far, and what each of them keeps."""

    def __init__(self, trial: Trial) -> None:
        self._trial = trial
        self._moves: list[tuple[Gang, int, int]] = []
        """Each gang with the number of its tasks before and after."""
        self._now: dict[JobId, Gang] = {}

    def let_go(self, gang: Gang, tasks: int = 0) -> int:
        """Let a gang keep so many tasks; give how many devices come free by that."""
        present = self._now.get(gang.id, gang)
        before = len(present.slots)
        self._moves.append((gang, before, tasks))
        self._set(gang, before, tasks)
        return sum(len(slot.devices) for slot in present.slots[tasks:])

    def keep_most(self, find: Callable[[], Found | None], found: Found) -> Found:
        """Let who shrank last keep as many tasks as leave a place; give the place then.

        `find` changes nothing in the trial.
        """
        gang, before, tasks = self._moves[-1]
        if not tasks:
            return found
        fewest, most = 0, (before - tasks) // gang.step - 1
        while fewest < most:
            middle = (fewest + most + 1) // 2
            self._resize(tasks + middle * gang.step)
            better = find()
            if better is None:
                most = middle - 1
            else:
                fewest, found = middle, better
        self._resize(tasks + fewest * gang.step)
        return found

    def _resize(self, tasks: int) -> None:
        """Change what who shrank last keeps."""
        gang, before, present = self._moves[-1]
        self._set(gang, present, tasks)
        self._moves[-1] = (gang, before, tasks)

    def take_back(self, stands: Callable[[], bool]) -> GivenWay:
        """Bring back, dearest first, everybody and everything that the place can do without.

        The place is taken in the trial; `stands` tells whether it still holds.
        """
        kept: dict[JobId, int] = {}
        for gang, before, after in reversed(self._moves):
            if kept.get(gang.id) == 0:
                continue
            kept[gang.id] = self._largest(gang, before, after, stands)
        gone: list[JobId] = []
        shed: list[tuple[JobId, int]] = []
        for gang, _, _ in self._moves:
            tasks = kept.pop(gang.id, -1)
            if tasks == 0:
                gone.append(gang.id)
            elif 0 < tasks < len(gang.slots):
                shed.append((gang.id, tasks))
        return GivenWay(tuple(gone), tuple(shed))

    def _largest(self, gang: Gang, before: int, after: int, stands: Callable[[], bool]) -> int:
        """Return a gang back as many of its tasks, up to those it had before, as may stay."""
        self._set(gang, after, before)
        if stands():
            return before
        if not (gang.least and may_shed(self._trial.cluster, gang)):
            self._set(gang, before, after)
            return after
        present, least = before, after or gang.least
        fewest, most = (0 if after else -1), (before - least) // gang.step - 1
        while fewest < most:
            middle = (fewest + most + 1) // 2
            size = least + middle * gang.step
            self._set(gang, present, size)
            present = size
            if stands():
                fewest = middle
            else:
                most = middle - 1
        size = least + fewest * gang.step if fewest >= 0 else 0
        self._set(gang, present, size)
        return size

    def _set(self, gang: Gang, before: int, tasks: int) -> None:
        """Let a gang that has so many tasks in the trial have another number of them."""
        if before == tasks:
            return
        if before:
            self._trial.drop(gang.id)
        if tasks:
            there = gang if tasks == len(gang.slots) else gang.of_size(tasks)
            self._now[gang.id] = there
            self._trial.restore(there)
