"""A task that Slurm takes for running, and of which nothing is there any more."""

import asyncio
from pathlib import Path

import pytest

from allotment.backends.slurm import backend
from allotment.model.cluster import Node
from allotment.model.ids import AttemptNo, JobId, NodeId, TaskIndex, TaskKey
from allotment.model.quantity import MIB, Resources
from allotment.model.reports import Seen, TaskReport
from allotment.service.ports import Binding, GangLaunch, Report, TaskLaunch
from tests.support.patience import PATIENCE_S
from tests.support.slurm import TOOLS, Slurm, a_slurm
from tests.support.slurm_boot import reboot

pytestmark = [pytest.mark.needs_root, pytest.mark.needs_tool(*TOOLS)]

NODES = [Node(NodeId(n), f"n{n}", 4000, 2000 * MIB, 0) for n in (1, 2)]
GONE, SUSPENDED = (TaskKey(JobId(n), AttemptNo(1), TaskIndex(0)) for n in (1, 2))


def a_request(key: TaskKey, folder: Path) -> GangLaunch:
    """Ask for a task on the node with its job's number."""
    task = TaskLaunch(
        key=key,
        name="main.0",
        binding=Binding(f"n{key.job}"),
        argv=("/bin/sleep", "1000"),
        env=(("PATH", "/usr/bin:/bin"),),
        resources=Resources(cpu_milli=1000, memory=64 * MIB),
    )
    return GangLaunch((task,), str(folder))


def test_what_went_with_its_node_has_ended_and_what_is_suspended_has_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backend, "ASK_EVERY_S", 0.2)
    with a_slurm() as slurm:
        monkeypatch.setenv("SLURM_CONF", str(slurm.conf))
        reports = asyncio.run(lose_node(slurm, tmp_path, monkeypatch))
        left = slurm.say("squeue", "-h", "-o", "%T")
    ends = {report.key: report for report in reports if report.seen is Seen.ENDED}
    assert set(ends) == {GONE}
    how = ends[GONE].exit
    assert how is not None
    assert how.lost
    assert "no sign" in how.platform_error
    assert set(left.split()) <= {"SUSPENDED", "COMPLETING"}, "Slurm still takes it for running"


async def lose_node(slurm: Slurm, folder: Path, patch: pytest.MonkeyPatch) -> list[TaskReport]:
    """Start a task on each node; suspend one, boot the other's node; return what is told."""
    told: list[TaskReport] = []
    news = asyncio.Event()

    def hear(report: Report) -> None:
        if isinstance(report, TaskReport):
            told.append(report)
            news.set()

    async def until_seen(key: TaskKey, seen: Seen) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not any(each.key == key and each.seen is seen for each in told):
                news.clear()
                await news.wait()

    ours = backend.SlurmBackend(folder, "main", lambda: NODES)
    await ours.start(hear)
    try:
        await ours.launch(a_request(SUSPENDED, folder))
        await until_seen(SUSPENDED, Seen.RUNNING)
        slurm.say("scontrol", "suspend", slurm.say("squeue", "-h", "-o", "%i"))
        patch.setattr(
            backend, "SILENT_S", 8.0
        )  # Now: before, a slow machine might take longer.
        await ours.launch(a_request(GONE, folder))
        await until_seen(GONE, Seen.RUNNING)
        await asyncio.to_thread(reboot, slurm, f"n{GONE.job}")
        await until_seen(GONE, Seen.ENDED)
    finally:
        await ours.close()
    return told
