"""How long a node of a real Slurm is held: not for ever, and not while others want it."""

import asyncio
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from allotment.backends.local.images.images import Images
from allotment.backends.pilot import backend, link, squeue
from allotment.backends.pilot.backend import PilotBackend
from allotment.model.cluster import Node
from allotment.model.ids import AttemptNo, JobId, NodeId, TaskIndex, TaskKey
from allotment.model.quantity import MIB, Millis, Resources
from allotment.model.reports import NodeReport, Seen, TaskReport
from allotment.service.ports import Binding, GangLaunch, Refused, Report, TaskLaunch
from tests.support.on_pilots import processes
from tests.support.on_slurm import a_shared_folder
from tests.support.patience import PATIENCE_S
from tests.support.slurm import TOOLS, Slurm

# pyright: reportPrivateUsage=false
# A service that is gone without a word is not in what a backend promises.

pytestmark = [pytest.mark.needs_root, pytest.mark.needs_tool(*TOOLS, "openssl")]

NODE = Node(NodeId(0), "n1", 4000, 2000 * MIB, 0, address="127.0.0.1")


class Holder:
    """A backend that holds one node, with all that it told."""

    def __init__(self, slurm: Slurm, folder: Path, **limits: float) -> None:
        self.slurm, self.folder = slurm, folder
        images = Images(folder, int)
        self.backend = PilotBackend(folder, "main", lambda: [NODE], images, **limits)  # pyright: ignore
        self.nodes: list[NodeReport] = []
        self.tasks: list[TaskReport] = []
        self._jobs = 0

    def hear(self, report: Report) -> None:
        if isinstance(report, NodeReport):
            self.nodes.append(report)
        elif isinstance(report, TaskReport):
            self.tasks.append(report)

    async def launch(self, command: str) -> tuple[TaskKey, Refused]:
        self._jobs += 1
        key = TaskKey(JobId(self._jobs), AttemptNo(1), TaskIndex(0))
        need = Resources(cpu_milli=100, memory=64 * MIB)
        argv = ("/bin/sh", "-c", command)
        env = (("PATH", "/usr/bin:/bin"),)
        task = TaskLaunch(key, "main.0", Binding("n1"), argv, env, need)
        return key, await self.backend.launch(GangLaunch((task,), str(self.folder)))

    async def until(self, check: Callable[[], bool], what: str) -> None:
        try:
            async with asyncio.timeout(PATIENCE_S):
                while not check():
                    await asyncio.sleep(0.02)
        except TimeoutError:
            log = self.folder / "pilot/nodes/n1/pilot.log"
            said = log.read_text()[-2000:] if log.exists() else ""
            pytest.fail(
                f"waited for {what}; told: {self.nodes[-3:]}, {self.tasks[-3:]}; {said}"
            )

    def is_seen(self, key: TaskKey, seen: Seen) -> bool:
        return any(report.key == key and report.seen is seen for report in self.tasks)

    def is_ready(self) -> bool:
        return bool(self.nodes) and not self.nodes[-1].closed and self.nodes[-1].alive

    async def say(self, *words: str) -> str:
        """Ask Slurm, while the backend goes on."""
        return await asyncio.to_thread(self.slurm.say, *words)

    async def held_by(self, user: str = "root") -> str:
        """Return the number of the user's job that runs on the node, '' for none."""
        words = ("squeue", "-h", "-t", "R", "-w", "n1", "-o", "%i", f"--user={user}")
        return await self.say(*words)

    async def until_held(self, *before: str, by: str = "root") -> str:
        """Wait for a job on the node other than those before."""
        return await self._held(lambda number: number not in ("", *before), by)

    async def until_free(self) -> None:
        await self._held(lambda number: not number, "root")

    async def _held(self, check: Callable[[str], bool], by: str) -> str:
        async with asyncio.timeout(PATIENCE_S):
            while not check(number := await self.held_by(by)):
                await asyncio.sleep(0.1)
        return number

    async def stop(self, key: TaskKey) -> None:
        await self.backend.stop(key, "KILL", Millis(0))
        await self.until(lambda: self.is_seen(key, Seen.ENDED), "its end")


@pytest.fixture
def folder() -> Iterator[Path]:
    with a_shared_folder() as made:
        yield made / "state"


@asynccontextmanager
async def a_holder(slurm: Slurm, folder: Path, **limits: float) -> AsyncIterator[Holder]:
    holder = Holder(slurm, folder, **limits)
    await holder.backend.start(holder.hear)
    try:
        await holder.until(holder.is_ready, "the node")
        yield holder
    finally:
        await holder.backend.close()
        await asyncio.to_thread(slurm.clear)


@pytest.fixture
def play(
    slurm: Slurm, monkeypatch: pytest.MonkeyPatch
) -> Callable[[Callable[[], Awaitable[None]]], None]:
    monkeypatch.setenv("SLURM_CONF", str(slurm.conf))
    return lambda story: asyncio.run(story())  # pyright: ignore


Play = Callable[[Callable[[], Awaitable[None]]], None]


def test_an_idle_node_is_given_back_and_held_again_for_a_task(
    slurm: Slurm, folder: Path, play: Play
) -> None:
    async def story() -> None:
        async with a_holder(slurm, folder, idle_s=5.0) as holder:
            first = await holder.held_by()
            await holder.until_free()
            await holder.until(holder.is_ready, "work to be taken there all the same")
            key, refused = await holder.launch("sleep 1000")
            assert not refused
            await holder.until(lambda: holder.is_seen(key, Seen.RUNNING), "the task")
            assert await holder.held_by() not in ("", first)
            await asyncio.sleep(6)  # Longer than it may be idle: it is not.
            assert await holder.held_by()
            await holder.stop(key)
            await holder.until_free()

    play(story)


def test_a_hold_is_renewed_before_its_time_is_over_and_no_task_is_cut_short(
    slurm: Slurm, folder: Path, play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backend, "ASK_SELDOM_S", 0.5)
    monkeypatch.setattr(squeue, "RENEW_SHARE", 2)  # Nine minutes are ten before their end.

    async def story() -> None:
        async with a_holder(slurm, folder) as holder:
            first = await holder.held_by()
            key, _ = await holder.launch("sleep 1000")
            await holder.until(lambda: holder.is_seen(key, Seen.RUNNING), "the task")
            # Not by `endtime`: where Slurm's main scheduler started it without a limit, and not
            # its backfill, Slurm then says INVALID of how long it may yet run.
            await holder.say("scontrol", "update", f"jobid={first}", "timelimit=9")
            await holder.until(
                lambda: "nearly over" in holder.nodes[-1].closed, "it to be closed"
            )
            assert await holder.held_by() == first, "its task goes on"
            await holder.stop(key)
            await holder.until(holder.is_ready, "the node to take work again")
            key, refused = await holder.launch("true")
            assert not refused
            await holder.until_held(first)

    play(story)


def other_wants_it(slurm: Slurm) -> None:
    slurm.say(
        "sbatch", "--uid=nobody", "--chdir=/", "--output=/dev/null", "--exclusive",
        "--nodelist=n1", "--wrap=sleep 1000",
    )  # fmt: skip


def test_others_get_an_idle_node_and_it_is_asked_for_in_slurms_queue(
    slurm: Slurm, folder: Path, play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, seconds in (("COURTESY_S", 1.0), ("NODES_EVERY_S", 0.5), ("UP_S", 2.0)):
        monkeypatch.setattr(backend, name, seconds)

    async def story() -> None:
        async with a_holder(slurm, folder) as holder:
            key, _ = await holder.launch("sleep 1000")
            await holder.until(lambda: holder.is_seen(key, Seen.RUNNING), "the task")
            other_wants_it(slurm)
            await asyncio.sleep(2)
            assert await holder.held_by(), "while tasks run it is not given away"
            await holder.stop(key)
            await holder.until_held(by="nobody")
            key, refused = await holder.launch("true")
            assert "did not give node n1 in 2 s: Resources" in refused[key]
            await holder.say("scancel", "--user=nobody")
            await holder.until_held()
            await holder.until(holder.is_ready, "the node to take work")

    play(story)


@pytest.mark.slow
def test_a_runner_that_hears_nothing_for_its_lease_ends_its_tasks(
    slurm: Slurm, folder: Path, play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link, "PING_EVERY_S", 0.5)
    mark = f"sleep 5000.{id(play)}"

    async def story() -> None:
        async with a_holder(slurm, folder, lease_s=5.0) as holder:
            key, _ = await holder.launch(f"{mark} & setsid {mark}")
            await holder.until(lambda: holder.is_seen(key, Seen.RUNNING), "the task")
            await asyncio.sleep(6)  # Longer than the lease: it is renewed.
            assert len(processes(mark)) >= 2
            await holder.backend.close()
            await holder.until(lambda: not processes(mark), "its processes to end")
            await holder.until_free()

    play(story)


def test_an_idle_runner_whose_service_is_gone_gives_its_node_back(
    slurm: Slurm, folder: Path, play: Play
) -> None:
    async def story() -> None:
        async with a_holder(slurm, folder, idle_s=3.0, lease_s=1000.0) as holder:
            stepping, door = holder.backend._stepping, holder.backend._door
            assert stepping is not None
            stepping.cancel()
            await door.close()
            await holder.until_free()

    play(story)


def test_a_runner_whose_folder_is_removed_gives_its_node_back(
    slurm: Slurm, folder: Path, play: Play
) -> None:
    async def story() -> None:
        async with a_holder(slurm, folder) as holder:
            key, _ = await holder.launch("sleep 1000")
            await holder.until(lambda: holder.is_seen(key, Seen.RUNNING), "the task")
            await holder.backend.close()
            assert await holder.held_by(), "it has a task"
            await asyncio.to_thread(shutil.rmtree, folder)
            await holder.until_free()

    play(story)
