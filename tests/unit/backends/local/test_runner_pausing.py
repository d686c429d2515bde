"""Ranks that are to stop after a step, as their supervisor sees them."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from allotment.backends.local.runner import pausing
from allotment.backends.local.runner.pausing import Pauser
from allotment.backends.local.runner.timers import Timers
from allotment.pausing import Pause
from tests.support.cluster import until


class Task:
    """The supervisor's side of a task, and the task's."""

    def __init__(self, folder: Path) -> None:
        fd = os.open(folder, os.O_RDONLY)
        self.timers = Timers()
        self.pauser = Pauser(self.timers)
        self.pauser.fd = pausing.make(fd, os.geteuid(), os.getegid())
        os.close(fd)
        self.rank = Pause(str(folder / pausing.FILE), 0, 2)

    def stand(self, after: int) -> None:
        self.told = False
        self.pauser.stand(after, self.tell)

    def tell(self) -> None:
        self.told = True

    def is_told(self) -> bool:
        self.timers.run_due()
        return self.told


@pytest.fixture
def task(tmp_path: Path) -> Iterator[Task]:
    made = Task(tmp_path)
    yield made
    os.close(made.pauser.fd)


@pytest.mark.parametrize("after", [4, 5])
def test_a_rank_that_waits_in_a_collective_for_those_that_stand_is_late(
    task: Task, after: int
) -> None:
    """It did not see the order before its step, and does not come to the next."""
    task.rank.step(5)
    task.stand(after)
    until(task.is_told, "that it is late")
    assert task.pauser.state == "late"


def test_a_rank_that_is_before_the_step_is_waited_for(task: Task) -> None:
    task.rank.step(4)
    task.stand(6)
    assert not task.is_told()
    task.rank.step(5)
    assert not task.is_told()
    task.stand(5)  # It is past it, but a newer order comes before that is found.
    task.stand(7)
    assert not task.is_told()
    assert task.pauser.state == "asked"
