"""What becomes of tasks is seen though nobody tells of it."""

import asyncio
import os
import shutil
import signal
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from allotment.backends.local import backend as backend_of
from allotment.backends.local.backend import LocalBackend, task_name
from allotment.backends.local.launcher_client import LauncherClient
from allotment.backends.local.runner import layout, procfs
from allotment.backends.local.runner.claim import is_held
from allotment.backends.status import RunnerStatus
from allotment.model.ids import AttemptNo, JobId, TaskIndex, TaskKey
from allotment.model.quantity import Millis, Resources
from allotment.model.reports import Seen, TaskReport
from allotment.service.ports import Binding, GangLaunch, Report, TaskLaunch
from tests.integration.local.harness import groups_of
from tests.support.cluster import end_launchers, launchers
from tests.support.patience import PATIENCE_S

PATH = (("PATH", "/usr/bin:/bin"),)
FIRST = 1_000_000
"""The job of the first task: its turn among so many parts is far off."""


class Tasks:
    """Tasks of this machine, each of a job of its own, and what is told of them."""

    def __init__(self, folder: Path, count: int) -> None:
        self.state, self.work = folder / "state", folder / "work"
        self.state.mkdir()
        self.heard = list[TaskReport]()
        self.work.mkdir()
        self.backend = LocalBackend(self.state)
        self.keys = [
            TaskKey(JobId(FIRST + n), AttemptNo(1), TaskIndex(0)) for n in range(count)
        ]

    async def start(self) -> None:
        await self.backend.start(self.hear)
        for key in self.keys:
            command = (
                "/bin/sh",
                "-c",
                f"while [ ! -e {self.end_of(key)} ]; do sleep 0.01; done",
            )
            task = TaskLaunch(key, "main.0", Binding("here"), command, PATH, Resources())
            gang = GangLaunch((task,), "/", writable=(str(self.work),))
            assert await self.backend.launch(gang) == {}
        await self.until(lambda: self.seen(Seen.RUNNING) == set(self.keys))
        (self.state / layout.REPORT).unlink()  # From now on nobody hears what is told.

    def hear(self, report: Report) -> None:
        if isinstance(report, TaskReport):
            self.heard.append(report)

    def end_of(self, key: TaskKey) -> Path:
        return self.work / f"end-{key.job}"

    def status_of(self, key: TaskKey) -> RunnerStatus:
        status = self.backend.status(key)
        assert status is not None
        return status

    def seen(self, what: Seen) -> set[TaskKey]:
        return {report.key for report in self.heard if report.seen is what}

    async def until(self, check: Callable[[], object]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not check():
                await asyncio.sleep(0.005)


@asynccontextmanager
async def tasks_here(count: int) -> AsyncIterator[Tasks]:
    folder = Path(tempfile.mkdtemp(prefix="allot-untold-"))
    tasks = Tasks(folder, count)
    try:
        await tasks.start()
        yield tasks
    finally:
        for key in tasks.keys:
            tasks.end_of(key).touch()
            await tasks.backend.stop(key, "KILL", Millis(0))
        await tasks.backend.close()
        end_launchers(tasks.state)
        shutil.rmtree(folder, ignore_errors=True)


def look_often(monkeypatch: pytest.MonkeyPatch, parts: int) -> None:
    monkeypatch.setattr(backend_of, "LOOK_EVERY_S", 0.02)
    monkeypatch.setattr(backend_of, "PARTS", parts)


def test_an_end_that_is_not_told_is_seen_before_the_task_has_its_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    look_often(monkeypatch, 10 * FIRST)

    async def go() -> None:
        async with tasks_here(3) as tasks:
            over = {tasks.keys[0], tasks.keys[2]}
            for key in over:
                tasks.end_of(key).touch()
            await tasks.until(lambda: tasks.seen(Seen.ENDED) == over)
            assert all(
                report.exit is not None and report.exit.code == 0
                for report in tasks.heard
                if report.seen is Seen.ENDED
            )

    asyncio.run(go())


def test_a_loss_that_nobody_is_left_to_tell_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    look_often(monkeypatch, 2)

    async def go() -> None:
        async with tasks_here(2) as tasks:
            lost, _ = tasks.keys
            for pid in (*launchers(tasks.state), tasks.status_of(lost).supervisor_pid):
                os.kill(pid, signal.SIGKILL)
            await tasks.until(lambda: tasks.seen(Seen.ENDED) == {lost})
            (report,) = (report for report in tasks.heard if report.seen is Seen.ENDED)
            assert report.exit is not None
            assert report.exit.lost

    asyncio.run(go())


def test_why_no_launcher_starts_is_logged_once_and_a_loss_is_seen_with_the_next(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    look_often(monkeypatch, 2)
    tries = 0
    hello = LauncherClient.hello

    async def counted(self: LauncherClient) -> dict[str, Any]:
        nonlocal tries
        tries += 1
        return await hello(self)

    async def go() -> None:
        async with tasks_here(1) as tasks:
            (lost,) = tasks.keys
            monkeypatch.setattr(LauncherClient, "hello", counted)
            lock = tasks.state / layout.LOCK
            lock.unlink()
            lock.mkdir()
            for pid in (*launchers(tasks.state), tasks.status_of(lost).supervisor_pid):
                os.kill(pid, signal.SIGKILL)
            await tasks.until(lambda: tries > 2)
            assert not tasks.seen(Seen.ENDED), "nobody has cleared up"
            lock.rmdir()
            await tasks.until(lambda: tasks.seen(Seen.ENDED) == {lost})

    asyncio.run(go())
    assert capfd.readouterr().out.count("there is no launcher") == 1


@pytest.mark.needs_root
def test_a_task_is_lost_only_when_no_process_of_it_is_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What is frozen outlives its supervisor, and has the task's devices."""
    look_often(monkeypatch, 1)

    async def go() -> None:
        async with tasks_here(1) as tasks:
            (key,) = tasks.keys
            await tasks.backend.freeze([key], 1)
            await tasks.until(lambda: tasks.status_of(key).frozen)
            status = tasks.status_of(key)
            os.kill(status.supervisor_pid, signal.SIGKILL)
            claim = tasks.state / layout.task_dir(task_name(key)) / layout.CLAIM
            await tasks.until(lambda: not is_held(str(claim)))
            await tasks.backend.stop(key, "TERM", Millis(0))
            (report,) = await tasks.backend.observe([key])
            assert procfs.start_time(status.pid)
            assert report.seen is Seen.RUNNING
            assert not tasks.seen(Seen.ENDED)
            for group in groups_of(tasks.state):
                if (frozen := group / "freezer.state").exists():
                    frozen.write_text("THAWED")
            await tasks.until(lambda: tasks.seen(Seen.ENDED) == {key})
            assert not procfs.start_time(status.pid)

    asyncio.run(go())
