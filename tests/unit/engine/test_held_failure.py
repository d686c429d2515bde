"""A task that failed and is kept for a look: it keeps its place, and stays a failure."""

import pytest

from allotment.model import commands as c
from allotment.model.diagnosis import Diagnosis, Exit, Owner, RetryClass
from allotment.model.ids import AttemptNo, JobId, TaskIndex, TaskKey
from allotment.model.lifecycle import JobState as S
from allotment.model.lifecycle import TaskState
from allotment.model.quantity import MINUTE, Millis
from allotment.model.reports import Seen, TaskReport
from tests.support.builders import a_config, a_job, a_tenant
from tests.support.world import World

BROKEN = Diagnosis("error", "The program reported an error.", Owner.USER, RetryClass.UNKNOWN)
HOUR = Millis(60 * MINUTE)


@pytest.fixture
def world() -> World:
    return World(a_config(a_tenant("vision", 8)))


def tell(world: World, job: JobId, seen: Seen, exit_: Exit, index: int = 0) -> None:
    key = TaskKey(job, AttemptNo(1), TaskIndex(index))
    world.tell(TaskReport(key, seen, 7, exit=exit_, diagnosis=BROKEN))


def held(world: World, tasks: int = 1, retry: int = 0) -> JobId:
    """Let the first task of a job fail and be kept."""
    job = world.submit(a_job().tasks(tasks).retry(retry).held_on_failure(HOUR))
    world.cycle()
    world.runs(job)
    world.wait(1000)
    tell(world, job, Seen.HOLDING, Exit(6))
    return job


def test_a_held_task_keeps_its_place_and_says_since_when(world: World) -> None:
    job = held(world)
    task = world.job(job).attempts[0].task(TaskIndex(0))
    assert (world.is_(job), task.state) == (S.RUNNING, TaskState.HOLDING)
    assert task.held_at == world.state.at
    assert job in world.state.cluster.gangs


def test_a_held_job_that_is_let_go_has_failed_and_is_not_tried_again(world: World) -> None:
    job = held(world, retry=3)
    world.do(c.CancelJob(job))
    tell(world, job, Seen.ENDED, Exit(6))
    assert world.is_(job) is S.FAILED
    assert world.job(job).diagnosis == BROKEN
    assert world.job(job).attempts[0].task(TaskIndex(0)).exit == Exit(6)
    assert job not in world.state.cluster.gangs


def test_a_gang_is_let_go_with_those_of_its_tasks_that_run_still(world: World) -> None:
    job = held(world, tasks=2)
    world.do(c.CancelJob(job))
    stopped = Diagnosis("cancelled", "It was cancelled.", Owner.USER, RetryClass.NEVER)
    key = TaskKey(job, AttemptNo(1), TaskIndex(1))
    world.tell(TaskReport(key, Seen.ENDED, 8, exit=Exit(signal=15), diagnosis=stopped))
    tell(world, job, Seen.ENDED, Exit(6))
    assert world.is_(job) is S.FAILED
    assert world.job(job).diagnosis == BROKEN


def test_a_job_that_runs_is_cancelled_as_before(world: World) -> None:
    job = world.submit(a_job().held_on_failure(HOUR))
    world.cycle()
    world.runs(job)
    world.do(c.CancelJob(job))
    tell(world, job, Seen.ENDED, Exit(signal=15))
    assert world.is_(job) is S.CANCELLED
