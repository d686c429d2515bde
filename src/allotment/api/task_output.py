"""The output of a job's tasks: which pieces to read, and from where on."""

import asyncio
import codecs
from collections.abc import AsyncGenerator, Sequence
from time import perf_counter

import msgspec

from allotment.engine.records import AttemptRecord
from allotment.model.ids import Actor, AttemptNo, JobId, TaskIndex
from allotment.model.lifecycle import TaskState
from allotment.service.service import Service

CHUNK = 64 * 1024
STREAMS = ("stdout", "stderr")
FIRST_PAUSE_S, MOST_PAUSE_S = 0.05, 0.5
CHUNKS_A_TURN = 16
SHARE = 10
"""A follower may keep the service busy for one part in so many of the time."""


class Wanted(msgspec.Struct, frozen=True):
    """The output that a request asks for.

    `task` empty means all tasks, `attempt` None the newest. `tail` is how many bytes of each
    stream to begin with, None all of them.
    """

    job: JobId
    task: str = ""
    attempt: int | None = None
    streams: tuple[str, ...] = STREAMS
    tail: int | None = None


class Piece(msgspec.Struct, frozen=True):
    """A piece of one task's output, as text. `place` is where to go on after it."""

    task: str
    stream: str
    text: str
    place: str


class Line(msgspec.Struct, frozen=True):
    """What a reader gets of a piece."""

    task: str
    """`role.number`."""
    stream: str
    """stdout or stderr."""
    text: str


class Source:
    """One stream of one task, and how far it was read."""

    def __init__(self, index: TaskIndex, task: str, stream: str, tail: int | None) -> None:
        self.index = index
        self.task = task
        self.stream = stream
        self.offset = -tail if tail else 0
        self.from_end = tail == 0
        """Nothing of what is there already is wanted."""
        self.over = False
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def text(self, data: bytes, *, final: bool) -> str:
        """Decode what was read. An incomplete character waits for the rest of its bytes."""
        return self._decoder.decode(data, final)

    @property
    def place(self) -> str:
        """Return where to go on after what was given out; empty before anything was read."""
        waiting, _ = self._decoder.getstate()
        return str(self.offset - len(waiting)) if self.offset > 0 else ""


def sources_of(
    service: Service, wanted: Wanted, caller: Actor, offsets: Sequence[int | None] = ()
) -> tuple[AttemptNo, list[Source]]:
    """Return the streams of an attempt that are wanted. Raises Rejected."""
    no, index = service.output.task_index(wanted.job, wanted.attempt, wanted.task or "0")
    attempt = service.job(wanted.job, caller).attempts[no - 1]
    tasks = [(TaskIndex(task.index), task.name) for task in attempt.tasks]
    if wanted.task:
        tasks = [task for task in tasks if task[0] == index]
    found = [
        Source(index, name, stream, wanted.tail)
        for index, name in tasks
        for stream in wanted.streams
    ]
    for source, offset in zip(found, offsets, strict=False):
        if offset is not None:
            source.offset, source.from_end = offset, False
    return no, found


async def read(
    service: Service, wanted: Wanted, no: AttemptNo, sources: Sequence[Source]
) -> AsyncGenerator[bytes]:
    """Return what was written so far, one stream after the other.

    Reading ends at the end as it was at the beginning: a task may write faster than it is read.
    A short chunk does not mean the end, since the output lies in several files.
    """
    for source in sources if wanted.tail != 0 else ():
        at = (wanted.job, no, source.index, source.stream)
        end = (await service.output.read_log(*at, -1, 1)).next
        offset = source.offset if source.offset >= 0 else max(0, end + source.offset)
        while offset < end:
            chunk = await service.output.read_log(*at, offset, min(CHUNK, end - offset))
            if not chunk.data:
                break
            yield chunk.data
            offset = chunk.next


# ── following ───────────────────────────────────────────────────────────────────────────


async def follow_output(
    service: Service, wanted: Wanted, caller: Actor, place: str = ""
) -> AsyncGenerator[Piece]:
    """Return output as it is written, attempt after attempt, until nothing more can come.

    `place` is that of the last piece that the client saw. If an attempt is named, it is the
    only one; otherwise the newest is the first, and later ones are read from their start.
    """
    no, offsets = read_place(place)
    while True:
        count = _attempts(service, wanted.job, caller)
        if wanted.attempt is not None or (count and no <= count):
            chosen = msgspec.structs.replace(wanted, attempt=wanted.attempt or no or count)
            no, sources = sources_of(service, chosen, caller, offsets)
            async for piece in _follow_attempt(service, chosen, no, sources):
                yield piece
            if wanted.attempt is not None:
                return
            no, offsets = AttemptNo(no + 1), ()
            wanted = msgspec.structs.replace(wanted, tail=None)
        elif _has_finished(service, wanted.job):
            return
        else:
            await asyncio.sleep(FIRST_PAUSE_S)


def _attempts(service: Service, job: JobId, caller: Actor) -> int:
    record = service.state.jobs.get(job)
    return len(record.attempts if record else service.job(job, caller).attempts)


def _has_finished(service: Service, job: JobId) -> bool:
    record = service.state.jobs.get(job)
    return record is None or record.state.finished


async def _follow_attempt(
    service: Service, wanted: Wanted, no: AttemptNo, sources: Sequence[Source]
) -> AsyncGenerator[Piece]:
    pause, left = FIRST_PAUSE_S, list(sources)
    while left:
        began, busy = perf_counter(), False
        for source in left:
            async for text in _more_of(service, wanted.job, no, source):
                busy = True
                yield Piece(source.task, source.stream, text, place_of(no, sources))
        left = [source for source in left if not source.over]
        pause = FIRST_PAUSE_S if busy else min(pause * 1.5, MOST_PAUSE_S)
        if left:
            cost = perf_counter() - began
            await asyncio.sleep(pause if busy else max(pause, cost * (SHARE - 1)))


async def _more_of(
    service: Service, job: JobId, no: AttemptNo, source: Source
) -> AsyncGenerator[str]:
    """Return what one stream has got since last time; note when it can get no more."""
    over = task_is_over(service, job, no, source.index)
    if source.from_end:
        last = await service.output.read_log(job, no, source.index, source.stream, -1, 1)
        source.offset, source.from_end = last.next, False
    for _ in range(CHUNKS_A_TURN):
        chunk = await service.output.read_log(
            job, no, source.index, source.stream, source.offset, CHUNK
        )
        source.offset = chunk.next
        source.over = over and not chunk.data
        if text := source.text(chunk.data, final=source.over):
            yield text
        if not chunk.data:
            return


def task_is_over(service: Service, job: JobId, no: AttemptNo, index: TaskIndex) -> bool:
    """Whether a task's command has ended: a task kept for inspection writes no more."""
    record = service.state.jobs.get(job)
    current: AttemptRecord | None = record.attempt if record else None
    if current is None or current.no != no:
        return True
    return current.task(index).state in (TaskState.HOLDING, TaskState.ENDED)


# ── places ──────────────────────────────────────────────────────────────────────────────


def place_of(no: AttemptNo, sources: Sequence[Source]) -> str:
    """Return how far everything was read: the attempt, then one offset for each stream."""
    return f"{no}/" + ",".join(source.place for source in sources)


def read_place(text: str) -> tuple[AttemptNo, tuple[int | None, ...]]:
    """Read what `place_of` wrote; return the beginning for any other text."""
    no, slash, rest = text.partition("/")
    words = rest.split(",") if rest else []
    if not slash or not all(word.isdecimal() or not word for word in (no, *words)):
        return AttemptNo(0), ()
    return AttemptNo(int(no[:9] or 0)), tuple(int(w[:18]) if w else None for w in words)
