"""Which tasks the driver is asked to take the memory of."""

import asyncio
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from allotment.backends.local.driver.by_driver import ByDriver, allow
from allotment.backends.local.ways import Here
from allotment.model.ids import AttemptNo, JobId, TaskIndex, TaskKey


@pytest.mark.parametrize("count", [1, 2])
def test_the_driver_is_asked_for_single_tasks_and_for_no_rank_of_a_gang(
    count: int, tmp_path: Path
) -> None:
    """Ranks of a gang that lost their memory one by one would stand in a collective."""
    gang = [
        Here(TaskKey(JobId(1), AttemptNo(1), TaskIndex(rank)), 0, 0, (rank,), tmp_path)
        for rank in range(count)
    ]
    for task in gang:
        allow(task.folder, task.devices)
    driver = ByDriver(tmp_path, {}, dict, lambda *_: None)
    with capture_logs() as logs:
        assert not asyncio.run(driver.free(gang, 1))
    assert [each["why"] for each in logs] == [
        "the node's test was not passed: see allot doctor"
    ] * (count == 1)
