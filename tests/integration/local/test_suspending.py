"""Gangs that stop after the same step, give their devices' memory back, and go on with it."""

import asyncio
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

import allotment
from allotment.backends.local import agreeing, suspending
from allotment.backends.local.backend import LocalBackend
from allotment.backends.local.device_memory import Held, kept_of
from allotment.backends.local.ways import Here
from allotment.model.ids import AttemptNo, JobId, TaskIndex, TaskKey
from allotment.model.quantity import Millis, Resources
from allotment.model.reports import Seen, TaskReport
from allotment.model.suspension import Grade, Suspension
from allotment.service.ports import Binding, GangLaunch, Report, TaskLaunch
from tests.support.cluster import end_launchers
from tests.support.patience import PATIENCE_S

SRC = Path(allotment.__file__).parents[1]
PROGRAM = Path(__file__).with_name("paused_program.py")
STILL_S = 0.3
MIB, HELD_MIB = 1 << 20, 64


class ByFiles:
    """Device memory that can be seen here: the sizes of files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def of(self, tasks: Sequence[Here]) -> Mapping[TaskKey, tuple[Held, ...]]:
        held = {task.key: self.held(task.key.index) for task in tasks}
        return {key: (Held(mib, mib),) for key, mib in held.items()}

    def held(self, rank: int) -> int:
        return (self.folder / f"held-{rank}").stat().st_size // MIB


class Gang:
    """A gang on a backend of this machine, and what is told of it."""

    def __init__(self, folder: Path, kind: str, tasks: int) -> None:
        self.folder, self.kind, self.tasks = folder, kind, tasks
        self.work = folder / "work"
        self.work.mkdir()
        self.memory = ByFiles(self.work)
        self.keys = [TaskKey(JobId(1), AttemptNo(1), TaskIndex(n)) for n in range(tasks)]
        self.heard: list[TaskReport] = []
        self.backend = self.a_backend()

    def a_backend(self) -> LocalBackend:
        return LocalBackend(self.folder / "state", memory=self.memory)

    def hear(self, report: Report) -> None:
        if isinstance(report, TaskReport):
            self.heard.append(report)

    async def start(self) -> None:
        await self.backend.start(self.hear)
        tasks = tuple(self.task(key) for key in self.keys)
        assert (
            await self.backend.launch(GangLaunch(tasks, "/", writable=(str(self.work),))) == {}
        )
        await self.until(lambda: all(self.steps(n) > 5 for n in range(self.tasks)))

    def task(self, key: TaskKey) -> TaskLaunch:
        env = {
            "PATH": "/usr/bin:/bin",
            "PYTHONPATH": str(SRC),
            "PYTHONDONTWRITEBYTECODE": "1",
            "RANK": str(key.index),
            "LOCAL_RANK": str(key.index),
            "WORLD_SIZE": str(self.tasks),
            "ALLOT_DEVICES": str(key.index),
        }
        return TaskLaunch(
            key,
            f"main.{key.index}",
            Binding("here", (key.index,)),
            (sys.executable, str(PROGRAM), str(self.work), self.kind),
            tuple(env.items()),
            Resources(gpu_milli=1000, cpu_milli=100),
        )

    async def restart(self) -> None:
        """Let the service be gone, as if killed, and come back."""
        await self.backend.close()
        self.backend = self.a_backend()
        await self.backend.start(self.hear)
        await self.backend.observe(self.keys)

    def steps(self, rank: int) -> int:
        path = self.work / f"sums-{rank}"
        return len(path.read_text().splitlines()) if path.exists() else 0

    def sums(self, rank: int) -> list[str]:
        return [line.rsplit(" ", 1)[0] for line in self.lines(rank)]

    def lines(self, rank: int) -> list[str]:
        return (self.work / f"sums-{rank}").read_text().splitlines()

    def is_inside(self, rank: int) -> bool:
        return (self.work / f"inside-{rank}").read_bytes() == b"1"

    async def until(self, check: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not check():
                await asyncio.sleep(0.005)

    async def suspend(self, no: int) -> list[Suspension]:
        await self.backend.freeze(self.keys, no)
        await self.until(lambda: len(self.told(no)) == self.tasks)
        return self.told(no)

    def told(self, no: int) -> list[Suspension]:
        found = {
            report.key: report.suspension
            for report in self.heard
            if report.suspension is not None and report.suspension.no == no
        }
        return [found[key] for key in self.keys if key in found]

    async def resume(self) -> None:
        before = self.steps(0)
        for key in self.keys:
            await self.backend.thaw(key)
        await self.until(lambda: all(self.steps(n) > before + 5 for n in range(self.tasks)))

    async def still(self) -> None:
        """See that no rank makes a step."""
        before = [self.steps(n) for n in range(self.tasks)]
        await asyncio.sleep(STILL_S)
        assert [self.steps(n) for n in range(self.tasks)] == before


@asynccontextmanager
async def a_gang(kind: str, tasks: int = 1) -> AsyncIterator[Gang]:
    folder = Path(tempfile.mkdtemp(prefix="allot-"))
    (folder / "state").mkdir()
    gang = Gang(folder, kind, tasks)
    try:
        await gang.start()
        yield gang
    finally:
        for key in gang.keys:
            await gang.backend.stop(key, "KILL", Millis(0))
        await gang.backend.close()
        end_launchers(folder / "state")
        shutil.rmtree(folder, ignore_errors=True)


def test_a_job_gives_its_memory_back_and_goes_on_with_it() -> None:
    async def story() -> None:
        async with a_gang("offloads") as gang:
            for no in (1, 2):
                assert await gang.suspend(no) == [Suspension(no, Grade.OFFLOADED, (1,))]
                await gang.still()
                assert gang.memory.held(0) == 1
                await gang.resume()
                assert gang.memory.held(0) == HELD_MIB
            assert all(line.endswith(f" {HELD_MIB}") for line in gang.lines(0))

    asyncio.run(story())


@pytest.mark.parametrize("kind", ["offloads", "plain", "slow-last"])
def test_a_gang_stops_after_one_step_and_never_inside_a_collective(
    monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    # A gang that a busy machine keeps from agreeing in time is frozen as it is.
    monkeypatch.setattr(suspending, "ANSWER_S", PATIENCE_S)
    monkeypatch.setattr(agreeing, "STAND_S", PATIENCE_S)
    monkeypatch.setattr(agreeing, "TRIES", 9)

    async def story() -> None:
        async with a_gang(kind, tasks=3) as gang:
            for no in range(1, 6):
                told = await gang.suspend(no)
                await gang.still()
                assert not any(map(gang.is_inside, range(3)))
                assert len({gang.steps(n) for n in range(3)}) == 1
                grade = Grade.FROZEN if kind == "plain" else Grade.OFFLOADED
                assert {how.grade for how in told} == {grade}
                await gang.resume()
            shortest = min(len(gang.sums(n)) for n in range(3))
            assert gang.sums(0)[:shortest] == gang.sums(1)[:shortest] == gang.sums(2)[:shortest]

    asyncio.run(story())


@pytest.mark.parametrize(
    ("kind", "how"),
    [
        ("silent", Suspension(1, Grade.FROZEN)),
        ("raises", Suspension(1, Grade.FROZEN, (HELD_MIB,))),
        ("lies", Suspension(1, Grade.OFFLOADED, (HELD_MIB,))),
    ],
)
def test_what_gives_nothing_back_is_frozen_with_what_it_has(kind: str, how: Suspension) -> None:
    async def story() -> None:
        async with a_gang(kind) as gang:
            assert await gang.suspend(1) == [how]
            await gang.still()
            assert gang.memory.held(0) == HELD_MIB
            await gang.resume()

    asyncio.run(story())


def test_what_never_answers_is_frozen_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("allotment.backends.local.suspending.FREE_S", 0.5)

    async def story() -> None:
        async with a_gang("hangs") as gang:
            assert await gang.suspend(1) == [Suspension(1, Grade.FROZEN, (HELD_MIB,))]
            await gang.still()

    asyncio.run(story())


def test_what_dies_while_it_pauses_has_ended() -> None:
    async def story() -> None:
        async with a_gang("dies") as gang:
            await gang.backend.freeze(gang.keys, 1)
            await gang.until(lambda: any(report.seen is Seen.ENDED for report in gang.heard))
            assert gang.heard[-1].exit is not None
            assert gang.heard[-1].exit.code == 9

    asyncio.run(story())


def test_what_gave_its_memory_back_does_not_get_it_to_end() -> None:
    async def story() -> None:
        async with a_gang("saves") as gang:
            await gang.suspend(1)
            await gang.backend.stop(gang.keys[0], "TERM", Millis(60_000))
            await gang.until(lambda: any(report.seen is Seen.ENDED for report in gang.heard))
            assert gang.heard[-1].exit is not None
            assert gang.heard[-1].exit.code == 85
            assert (gang.work / "saved-0").read_text() == "1", "MiB that it had when it saved"

    asyncio.run(story())


@pytest.mark.parametrize("after", ["asking", "standing", "freed"])
def test_a_service_that_comes_back_finds_what_is(
    monkeypatch: pytest.MonkeyPatch, after: str
) -> None:
    """It is gone in the middle of a suspension, and asks for the same again."""
    steps = {"asking": "stand", "standing": "_free", "freed": "_until"}
    whole = getattr(suspending.Suspending, steps[after])
    gone = asyncio.Event()

    async def interrupted(self: object, *args: object) -> object:
        is_here = after != "freed" or args[2] == suspending.ANSWER_S
        if is_here and not gone.is_set() and (after != "freed" or _is_freed(gang_now[0])):
            gone.set()
            await asyncio.Event().wait()
        return await whole(self, *args)

    gang_now: list[Gang] = []
    monkeypatch.setattr(suspending.Suspending, steps[after], interrupted)

    async def story() -> None:
        async with a_gang("offloads", tasks=2) as gang:
            gang_now.append(gang)
            await gang.backend.freeze(gang.keys, 1)
            await gang.until(gone.is_set)
            await gang.restart()
            assert await gang.suspend(1) == [Suspension(1, Grade.OFFLOADED, (1,))] * 2
            await gang.still()
            await gang.resume()

    asyncio.run(story())


def _is_freed(gang: Gang) -> bool:
    return all(gang.memory.held(n) == 1 for n in range(gang.tasks))


@pytest.mark.parametrize(
    ("before", "after", "kept"),
    [
        ([Held(60, 70)], [Held(1, 90)], (1,)),
        ([Held(0, 70)], [Held(0, 2)], (2,)),
        ([Held(0, 0)], [Held(0, 0)], ()),
        ([], [Held(1, 1)], ()),
        ([Held(60, 70)], [], ()),
        ([Held(60, 70), Held(0, 1)], [Held(1, 2), Held(0, 3)], (2, 3)),
    ],
    ids=["own", "by all", "nothing", "not before", "not after", "only of one"],
)
def test_what_is_kept_is_never_less_than_what_can_be_seen(
    before: list[Held], after: list[Held], kept: tuple[int, ...]
) -> None:
    assert kept_of(before, after) == kept
