"""A slurmctld that was killed and knows nothing of what it took on before."""

import asyncio
import shutil
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

pytestmark = [pytest.mark.needs_root, pytest.mark.needs_tool(*TOOLS)]

NODE = Node(NodeId(1), "n1", 4000, 2000 * MIB, 0)


def a_request(job: int, folder: Path) -> GangLaunch:
    """Ask for a whole node, so that of two the second waits in Slurm."""
    task = TaskLaunch(
        key=TaskKey(JobId(job), AttemptNo(1), TaskIndex(0)),
        name="main.0",
        binding=Binding("n1"),
        argv=("/bin/sleep", "1000"),
        env=(("PATH", "/usr/bin:/bin"),),
        resources=Resources(cpu_milli=4000, memory=64 * MIB),
    )
    return GangLaunch((task,), str(folder))


def test_what_slurm_forgot_and_shows_no_sign_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("UNKNOWN_S", "SILENT_S"):
        monkeypatch.setattr(backend, name, 3.0)
    first, second = a_request(1, tmp_path), a_request(2, tmp_path)
    with a_slurm() as slurm:
        monkeypatch.setenv("SLURM_CONF", str(slurm.conf))
        ends = asyncio.run(lose_state(slurm, tmp_path, first, second))
    waited = ends[second.tasks[0].key].exit
    assert waited is not None
    assert waited.lost
    assert "does not know it any more" in waited.platform_error
    ran = ends[first.tasks[0].key].exit
    assert ran is not None
    assert not ran.ok


async def lose_state(
    slurm: Slurm, folder: Path, *requests: GangLaunch
) -> dict[TaskKey, TaskReport]:
    """Start the first task, have the second wait, and lose both; return their ends."""
    ends: dict[TaskKey, TaskReport] = {}
    running, over = asyncio.Event(), asyncio.Event()

    def hear(report: Report) -> None:
        if not isinstance(report, TaskReport):
            return
        if report.seen is Seen.RUNNING:
            running.set()
        elif report.seen is Seen.ENDED:
            ends[report.key] = report
            if len(ends) == len(requests):
                over.set()

    ours = backend.SlurmBackend(folder, "main", lambda: [NODE])
    await ours.start(hear)
    try:
        async with asyncio.timeout(PATIENCE_S):
            for request in requests:
                await ours.launch(request)
                await running.wait()
        slurm.kill("slurmctld")
        shutil.rmtree(slurm.folder / "state")
        (slurm.folder / "state").mkdir()
        await asyncio.to_thread(slurm.start_controller)
        async with asyncio.timeout(PATIENCE_S):
            await over.wait()
    finally:
        await ours.close()
    return ends
