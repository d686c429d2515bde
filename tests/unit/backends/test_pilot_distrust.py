"""A runner in the hands of somebody else: what it says of others, and what cannot be.

It is at the other end of a real socket, and answers as each test likes.
"""

import asyncio
import os
import socket
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import wraps
from pathlib import Path

import msgspec
import pytest

from allotment.backends.local.images.images import Images
from allotment.backends.local.runner import procfs
from allotment.backends.pilot import asking, enter
from allotment.backends.pilot import messages as m
from allotment.backends.pilot.backend import PilotBackend
from allotment.backends.pilot.door import NotAdmitted
from allotment.backends.pilot.fence import LOCK
from allotment.backends.pilot.fetching import Outputs, fetch_output
from allotment.backends.pilot.hold import Hold
from allotment.backends.pilot.leftover import SPARE, KeptFolder
from allotment.backends.pilot.link import ANSWER_S, Link
from allotment.backends.status import PauseSaid
from allotment.model.cluster import Device, Node
from allotment.model.diagnosis import Exit, GpuUse, Usage
from allotment.model.errors import EngineAway
from allotment.model.health import HealthReport, Source
from allotment.model.ids import AttemptNo, DeviceIndex, JobId, NodeId, TaskIndex, TaskKey
from allotment.model.quantity import Millis, Resources
from allotment.model.reports import Seen, TaskReport
from allotment.model.suspension import Grade, Suspension
from allotment.service.ports import Binding, GangLaunch, LogChunk, Report, TaskLaunch

# pyright: reportPrivateUsage=false
# What a runner sends on its own comes in below what a backend promises.

OWN = TaskKey(JobId(7), AttemptNo(1), TaskIndex(0))
OTHER = TaskKey(JobId(8), AttemptNo(1), TaskIndex(0))
NODES = [
    Node(NodeId(n), f"n{n}", 4000, 0, 0, (Device(DeviceIndex(0), "a100"),)) for n in (0, 1)
]
HELLO = m.Hello(m.PROTOCOL, "n0", 1, "7", "secret", "session")

KEEPS_MORE_THAN_IS = Suspension(1, Grade.OFFLOADED, (2**63,))

Story = Callable[..., Coroutine[None, None, None]]


def run(story: Story) -> Callable[..., None]:
    """Make a test of a coroutine function."""

    @wraps(story)
    def test(*args: object, **named: object) -> None:
        asyncio.run(story(*args, **named))

    return test


Answers = Callable[[m.Op], object]


class Raw(msgspec.Struct, frozen=True):
    """An answer as it stands."""

    body: bytes


@asynccontextmanager
async def a_link(answer: Answers) -> AsyncIterator[Link]:
    ours, theirs = socket.socketpair()
    reader, writer = await asyncio.open_connection(sock=theirs)

    async def run() -> None:
        while True:
            call = msgspec.msgpack.decode(await m.next_frame(reader), type=m.Call)
            told = answer(call.op)
            if isinstance(told, Raw):
                writer.write(told.body)
            elif isinstance(told, m.Fault):
                writer.write(m.framed(m.Fault(call.id, told.why)))
            else:
                writer.write(m.framed(m.Answer(call.id, m.packed(told))))

    running = asyncio.create_task(run())
    link = Link(HELLO, *await asyncio.open_connection(sock=ours), lambda report: None)
    listening = asyncio.create_task(link.listen())
    try:
        yield link
    finally:
        for task in (running, listening):
            task.cancel()
        await asyncio.gather(running, listening, return_exceptions=True)
        writer.close()


def ended(key: TaskKey, **told: object) -> TaskReport:
    return TaskReport(key, Seen.ENDED, exit=Exit(**told))  # pyright: ignore


def a_gang() -> GangLaunch:
    task = TaskLaunch(OWN, "main.0", Binding("n0"), ("true",), (), Resources())
    return GangLaunch((task,), "/")


@run
async def test_it_speaks_of_the_tasks_alone_that_it_is_asked_about() -> None:
    async with a_link(lambda op: [ended(OTHER), ended(OWN)]) as link:
        assert await asking.observe(link, [OWN]) == [ended(OWN)]
    async with a_link(lambda op: [(OTHER, "no"), (OWN, "x" * 10**6)]) as link:
        refused = await asking.launch(link, a_gang(), image_bytes=0)
    assert list(refused) == [OWN]
    assert len(refused[OWN]) <= 2000


@run
async def test_it_speaks_of_the_ranks_alone_that_it_is_asked_about() -> None:
    here = PauseSaid(state="there")
    async with a_link(lambda op: [(OTHER, here), (OWN, here)]) as link:
        assert await asking.ranks(link, m.AskRanks((OWN,))) == {OWN: here}
    async with a_link(lambda op: [(OWN, {"step": 2**60})]) as link:
        with pytest.raises(EngineAway):
            await asking.ranks(link, m.StandRanks((OWN,), 1, 0.1))


@pytest.mark.parametrize(
    "report",
    [
        ended(OWN, usage=Usage(wall_ms=Millis(2**63))),
        ended(OWN, usage=Usage(max_rss=-1)),
        ended(OWN, usage=Usage(gpu=GpuUse(busy_milli=-1))),
        ended(OWN, code=2**40),
        ended(OWN, platform_error="x" * 10**6),
        TaskReport(OWN, Seen.ENDED, -1, exit=Exit(code=0)),
        TaskReport(OWN, Seen.ENDED, exit=Exit(code=0), devices=(10**6,)),
        TaskReport(OWN, Seen.ENDED, exit=Exit(code=0), suspension=KEEPS_MORE_THAN_IS),
    ],
    ids=["late", "negative", "gpu", "code", "long", "pid", "devices", "kept"],
)
def test_an_end_that_cannot_be_is_an_end_of_the_platforms(report: TaskReport) -> None:
    assert asking.possible(report) == TaskReport(OWN, Seen.ENDED, exit=asking.IMPOSSIBLE)
    assert asking.possible(ended(OWN, code=3)) == ended(OWN, code=3)


@pytest.mark.parametrize(
    "told",
    [
        Raw(m.framed(m.Answer(1, msgspec.Raw(b"\x91" * 100_000 + b"\xc0")))),
        Raw(b"\xff\xff\xff\xff"),
        [5, "no report"],
        "x",
    ],
    ids=["nested", "a frame of 4 GiB", "no reports", "no list"],
)
@run
async def test_what_nobody_can_read_is_no_answer(told: object) -> None:
    async with a_link(lambda op: told) as link:
        with pytest.raises(EngineAway):
            await asking.observe(link, [OWN])


@run
async def test_no_answer_is_awaited_once_a_runner_is_gone() -> None:
    async with asyncio.timeout(ANSWER_S / 2):
        ours, theirs = socket.socketpair()
        link = Link(HELLO, *await asyncio.open_connection(sock=ours), lambda report: None)
        listening = asyncio.create_task(link.listen())
        asked = asyncio.create_task(link.call(m.Ping()))
        await asyncio.sleep(0)
        theirs.close()
        for _ in range(2):  # What was asked before, and what is asked after.
            with pytest.raises(EngineAway, match="hung up"):
                await asked
            await listening
            asked = asyncio.create_task(link.call(m.Ping()))


@pytest.mark.parametrize(
    "chunk",
    [LogChunk(b"x" * 101, 101), LogChunk(b"xx", 1), LogChunk(b"", -5), LogChunk(b"", 2**60)],
)
@run
async def test_output_that_was_not_asked_for_is_not_taken(chunk: LogChunk) -> None:
    async with a_link(lambda op: chunk) as link:
        with pytest.raises(EngineAway, match="not asked for"):
            await asking.read_log(link, OWN, "stdout", 0, 100)


@pytest.mark.parametrize("gap", [0, 10])
@run
async def test_output_without_end_is_kept_up_to_its_limit(tmp_path: Path, gap: int) -> None:
    def without_end(op: m.Op) -> LogChunk:
        assert isinstance(op, m.ReadLog)
        return LogChunk(b"x" * op.size, op.offset + op.size + gap)

    kept = KeptFolder(tmp_path)
    kept.ask(OWN, 1000)
    async with a_link(without_end) as link:
        await fetch_output(link, kept, OWN)
    assert kept.is_fetched(OWN)
    files = [path for path in tmp_path.rglob("std*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) <= 2 * (1000 + SPARE + 2**18)
    assert len(files) <= 2 * 9


@run
async def test_output_of_which_is_told_twice_is_fetched_once(tmp_path: Path) -> None:
    def some(op: m.Op) -> LogChunk:
        assert isinstance(op, m.ReadLog)
        more = 100 if op.offset < 1000 else 0
        return LogChunk(b"x" * more, op.offset + more)

    hold = Hold(NODES[0], tmp_path, "allot", "main", "/disk")
    hold.kept_folder.ask(OWN, 1000)
    outputs = Outputs()
    async with a_link(some) as link:
        hold.connect(link)
        for _ in range(2):
            outputs.fetch(hold, OWN)
        while hold.fetching:
            await asyncio.sleep(0)
    sizes = [path.stat().st_size for path in tmp_path.rglob("stdout*")]
    assert sizes == [1000]
    assert hold.kept_folder.is_fetched(OWN)


class Offline(PilotBackend):
    """Two nodes, and a Slurm that says nothing new."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, "main", lambda: NODES, Images(folder, int))
        self.told: list[Report] = []
        self._sink = self.told.append
        (self._root / "nodes").mkdir(parents=True)
        self._match_nodes()

    async def _look_at_slurm(self) -> None:
        pass

    def held(self, name: str) -> Hold:
        return self._holds[name]

    def place(self, key: TaskKey, name: str) -> None:
        self._where[key] = self._holds[name]

    def hear(self, name: str, report: TaskReport | HealthReport) -> None:
        self._hear(self._holds[name], report)

    async def step(self) -> None:
        await self._step()


def test_the_runner_of_one_node_does_not_end_another_nodes_tasks(tmp_path: Path) -> None:
    backend = Offline(tmp_path)
    backend.place(OWN, "n0")
    backend.place(OTHER, "n1")
    for key in (OTHER, OWN, TaskKey(JobId(9), AttemptNo(1), TaskIndex(0))):
        backend.hear("n0", ended(key, code=0))
    assert backend.told == [ended(OWN, code=0)]


def test_a_runner_says_no_more_of_devices_than_that_its_own_are_amiss(tmp_path: Path) -> None:
    backend = Offline(tmp_path)
    good = HealthReport(NodeId(1), Source.DRIVER, ok=False, device=DeviceIndex(0), code="x")
    for report in (
        good,
        msgspec.structs.replace(good, device=DeviceIndex(5)),
        msgspec.structs.replace(good, source=Source.ADMIN),
        msgspec.structs.replace(good, since=2**62),
    ):
        backend.hear("n0", report)
    assert backend.told == [msgspec.structs.replace(good, node=NodeId(0))]


@run
async def test_a_runner_that_does_not_leave_keeps_no_other_node_waiting(
    tmp_path: Path,
) -> None:
    backend = Offline(tmp_path)
    first, second = backend.held("n0"), backend.held("n1")
    first.kept = msgspec.structs.replace(first.kept, is_asked_for=True, job="7")
    first.is_configured = False
    async with a_link(lambda op: m.Fault(0, "tasks run here")) as link:
        first.connect(link)
        backend._nodes = lambda: [NODES[1]]
        await backend.step()
    assert second.kept.epoch == 1, "it was asked for"


def test_nobody_goes_into_a_process_that_has_the_number_of_a_fence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = f"{os.getpid()} {procfs.start_time('self')}1 {procfs.boot_id()}"
    (tmp_path / LOCK).write_text(lock)
    monkeypatch.setattr(sys, "argv", ["enter", str(tmp_path), "", "task", "--", "true"])
    with pytest.raises(SystemExit):
        enter.main()
    assert "the node's runner is not there: it is over" in capsys.readouterr().err


@pytest.mark.parametrize("job", ["", "8", "--user=root", "7_1"])
def test_a_runner_is_not_let_in_as_a_job_that_is_not_its_own(tmp_path: Path, job: str) -> None:
    hold = Offline(tmp_path).held("n0")
    kept = msgspec.structs.replace(hold.kept, epoch=1, secret="secret", is_asked_for=True)
    hold.kept = msgspec.structs.replace(kept, job="7")
    with pytest.raises(NotAdmitted, match="its job in Slurm is 7"):
        hold.admit(msgspec.structs.replace(HELLO, job=job), {})
    hold.kept = kept
    if not job.isdecimal():
        with pytest.raises(NotAdmitted):
            hold.admit(msgspec.structs.replace(HELLO, job=job), {})
    hold.admit(HELLO, {})
    assert hold.kept.job == "7"
