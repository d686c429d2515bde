"""A task that is told to stop before Slurm has started it."""

import asyncio
from pathlib import Path

import pytest

from allotment.backends.slurm import backend, nodes
from allotment.backends.slurm.backend import SlurmBackend
from allotment.model.cluster import Node
from allotment.model.ids import AttemptNo, JobId, NodeId, TaskIndex, TaskKey
from allotment.model.quantity import MIB, Millis, Resources
from allotment.model.reports import Seen, TaskReport
from allotment.service.ports import Binding, GangLaunch, Report, TaskLaunch
from tests.support.patience import PATIENCE_S
from tests.support.slurm import TOOLS, Slurm

pytestmark = [pytest.mark.needs_root, pytest.mark.needs_tool(*TOOLS)]

KEY = TaskKey(JobId(1), AttemptNo(1), TaskIndex(0))
NODE = Node(NodeId(0), "n1", 4000, 2000 * MIB, 0)


def test_its_end_is_asked_for_at_once(
    slurm: Slurm, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_CONF", str(slurm.conf))
    for module, name in (
        (backend, "ASK_EVERY_S"), (nodes, "LOOK_EVERY_S"), (nodes, "SOON_S"),
    ):  # fmt: skip
        monkeypatch.setattr(module, name, 10.0 * PATIENCE_S)
    slurm.say("sbatch", "--exclusive", "-w", "n1", "-o", "/dev/null", "--wrap=sleep 1000")
    slurm.until(lambda: slurm.say("squeue", "-h", "-t", "R", "-o", "%i"))
    try:
        asyncio.run(launched_and_stopped(folder / "state"))
    finally:
        slurm.clear()


async def launched_and_stopped(folder: Path) -> None:
    heard = asyncio.Event()

    def hear(report: Report) -> None:
        if isinstance(report, TaskReport) and report.seen is Seen.ENDED:
            heard.set()

    need = Resources(cpu_milli=100, memory=64 * MIB)
    task = TaskLaunch(KEY, "main.0", Binding("n1"), ("true",), (), need)
    made = SlurmBackend(folder, "main", lambda: [NODE])
    await made.start(hear)
    try:
        assert await made.launch(GangLaunch((task,), "/")) == {}
        await made.stop(KEY, "KILL", Millis(0))
        async with asyncio.timeout(PATIENCE_S):
            await heard.wait()
    finally:
        await made.close()
