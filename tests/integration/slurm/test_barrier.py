"""A task of a gang that waits for the others, and is ended meanwhile."""

import asyncio
from pathlib import Path

import pytest

from allotment.backends.slurm.backend import SlurmBackend
from allotment.model.cluster import Node
from allotment.model.diagnosis import Exit
from allotment.model.ids import AttemptNo, JobId, NodeId, TaskIndex, TaskKey
from allotment.model.quantity import MIB, Millis, Resources
from allotment.model.reasons import StopCause
from allotment.model.reports import Seen, TaskReport
from allotment.service.ports import Binding, GangLaunch, Report, TaskLaunch
from tests.support.patience import PATIENCE_S
from tests.support.slurm import TOOLS, Slurm

pytestmark = [pytest.mark.needs_root, pytest.mark.needs_tool(*TOOLS)]

NODE = Node(NodeId(1), "n1", 4000, 2000 * MIB, 0)
KEY = TaskKey(JobId(1), AttemptNo(1), TaskIndex(0))


@pytest.mark.parametrize("who", ["slurm", "stop"])
def test_what_ends_a_task_at_the_barrier_is_told(
    slurm: Slurm, folder: Path, monkeypatch: pytest.MonkeyPatch, who: str
) -> None:
    monkeypatch.setenv("SLURM_CONF", str(slurm.conf))
    end = asyncio.run(end_at_barrier(slurm, folder, who))
    assert end.exit is not None
    if who == "slurm":
        assert end.exit.platform_error == (
            "it was cancelled in Slurm (scancel), not by Allotment"
        )
        assert end.stopped_for is None
    else:
        assert end.exit == Exit(signal=15)
        assert end.stopped_for is StopCause.CANCELLED


async def end_at_barrier(slurm: Slurm, folder: Path, who: str) -> TaskReport:
    """Have a task wait at the barrier, and end it there; return what is told of its end."""
    ready, over = asyncio.Event(), asyncio.Event()
    heard: list[TaskReport] = []

    def hear(report: Report) -> None:
        if isinstance(report, TaskReport):
            heard.append(report)
            (over if report.seen is Seen.ENDED else ready).set()

    task = TaskLaunch(
        key=KEY,
        name="main.0",
        binding=Binding("n1"),
        argv=("/bin/true",),
        env=(("PATH", "/usr/bin:/bin"),),
        resources=Resources(cpu_milli=1000, memory=64 * MIB),
    )
    ours = SlurmBackend(folder / "state", "main", lambda: [NODE])
    await ours.start(hear)
    try:
        async with asyncio.timeout(PATIENCE_S):
            await ours.launch(GangLaunch((task,), "/", at_barrier=True))
            await ready.wait()
            if who == "stop":
                await ours.stop(KEY, "TERM", Millis(1000), StopCause.CANCELLED)
            else:
                await asyncio.to_thread(slurm.clear)
            await over.wait()
    finally:
        await ours.close()
    assert {report.seen for report in heard[:-1]} == {Seen.READY}, "it never ran"
    return heard[-1]
