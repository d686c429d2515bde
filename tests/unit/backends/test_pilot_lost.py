"""A node that Slurm calls down, and its pilot's job, which Slurm says is over or not."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from allotment.backends.local.images.images import Images
from allotment.backends.local.runner import layout
from allotment.backends.pilot import backend as pilot
from allotment.backends.pilot.hold import KEPT, Kept
from allotment.backends.pilot.request import name_of
from allotment.backends.pilot.squeue import PilotRow
from allotment.backends.slurm import client
from allotment.backends.slurm.told import SlurmNode
from allotment.model.cluster import Node
from allotment.model.ids import AttemptNo, JobId, NodeId, TaskIndex, TaskKey
from allotment.model.reasons import StopCause
from allotment.model.reports import NodeReport, Seen, TaskReport
from allotment.service.ports import Report
from tests.support.patience import PATIENCE_S

pytestmark = pytest.mark.needs_tool("openssl")

NODE = Node(NodeId(0), "n1", 4000, 0, 0)
OVER, STOPPED, RUNS = (TaskKey(JobId(7), AttemptNo(1), TaskIndex(n)) for n in range(3))


class Slurm:
    """What Slurm would answer: whether the pilot's job runs, and how its node is."""

    looks = 0

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.state, self.job = "ALLOCATED", "RUNNING"
        monkeypatch.setattr(pilot, "rows", answering(self.rows))
        monkeypatch.setattr(pilot, "others_wait", answering(lambda: False))
        monkeypatch.setattr(client, "nodes", answering(self.nodes))
        for name in ("cancel", "submit", "run"):
            monkeypatch.setattr(client, name, answering(lambda: ""))
        monkeypatch.setattr(pilot, "cancel_named", answering(lambda: None))

    def rows(self) -> dict[str, PilotRow]:
        row = PilotRow("1", name_of("allot-x", "n1", 1), self.job)
        return {row.name: row}

    def nodes(self) -> tuple[SlurmNode, ...]:
        self.looks += 1
        return (SlurmNode("n1", 4, 1000, state=self.state, partitions=("main",)),)


def answering(answer: Callable[[], object]) -> Callable[..., Any]:
    async def call(*_: object) -> object:
        return answer()

    return call


def write(folder: Path, key: TaskKey, **status: object) -> None:
    """Write what the runner of a task knows of it."""
    there = folder / f"pilot/nodes/n1/tasks/{key.job}/{key.attempt}/task.{key.index}"
    there.mkdir(parents=True, exist_ok=True)
    (there / layout.CLAIM).touch()
    (there / "stopped-for").write_text(StopCause.EVICTED.value)
    (there / layout.STATUS).write_text(json.dumps(status))


async def until(check: Callable[[], object]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not check():
            await asyncio.sleep(0.02)


def test_a_node_is_lost_with_its_pilot_and_what_ended_there_is_told_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slurm = Slurm(monkeypatch)
    monkeypatch.setattr(pilot, "REDIAL_S", 0.1)
    monkeypatch.setattr(pilot, "NODES_EVERY_S", 0.1)
    for key in (OVER, STOPPED, RUNS):
        write(tmp_path, key, phase="running")
    kept = Kept(epoch=1, secret="s", session="x", job="1", is_asked_for=True)
    (tmp_path / "pilot/nodes/n1" / KEPT).write_bytes(msgspec.json.encode(kept))
    (tmp_path / "pilot/name").write_text("allot-x")
    told: list[Report] = []

    async def story() -> None:
        engine = pilot.PilotBackend(tmp_path, "main", lambda: (NODE,), Images(tmp_path, int))
        await engine.start(told.append)
        assert len(await engine.observe([OVER, STOPPED, RUNS])) == 3
        write(tmp_path, OVER, phase="ended", exit_code=0)
        write(tmp_path, STOPPED, phase="ended", signal=15, ended_by="stop")
        slurm.state = "DOWN"
        seen = slurm.looks
        await until(lambda: slurm.looks > seen + 2)
        assert not [report for report in told if is_lost(report)], "its pilot runs"
        slurm.job = "NODE_FAIL"
        await until(lambda: any(is_lost(report) for report in told))
        await engine.close()

    asyncio.run(story())
    before = told[: next(n for n, report in enumerate(told) if is_lost(report))]
    ended = {
        report.key: (report.exit and report.exit.ok, report.stopped_for)
        for report in before
        if isinstance(report, TaskReport) and report.seen is Seen.ENDED
    }
    stopped = (False, StopCause.EVICTED)
    assert ended == {OVER: (True, None), STOPPED: stopped, RUNS: (False, None)}


def is_lost(report: Report) -> bool:
    return isinstance(report, NodeReport) and not report.alive
