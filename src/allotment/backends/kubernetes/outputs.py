"""The output of tasks: followed while their pods are there, kept, and read."""

import asyncio
import contextlib

import structlog

from allotment.backends.kubernetes.client import Client
from allotment.backends.kubernetes.logs import FILE, Follower, Reader
from allotment.backends.kubernetes.record import Launched, Records
from allotment.model.errors import BackendError
from allotment.model.ids import TaskKey
from allotment.service.ports import LogChunk

log = structlog.get_logger("allot.kubernetes")

LAST_S = 15.0
"""How long the end of a task waits for the last of its output."""
KILLED_S = 600.0
"""How long a task is waited for that runs on in spite of what its kubelet says of its pod."""
STREAMS = ("stdout", "stderr")


class Outputs:
    """Has one follower for each task whose pod was heard of."""

    def __init__(self, client: Client, records: Records) -> None:
        self._client, self._records = client, records
        self._follows: dict[TaskKey, tuple[Follower, asyncio.Task[None]]] = {}

    def follow(
        self, key: TaskKey, record: Launched, read: Reader | None, *, has_run: bool
    ) -> None:
        """Follow what a task writes, unless that is done already. `read` has it first. What has
        not run has nothing to be missed."""
        if key not in self._follows:
            folder, most = self._records.folder(key), record.log_bytes
            client = self._client.within(record.namespace)
            follower = Follower(client, record.name, folder, most, read)
            self._follows[key] = (follower, asyncio.create_task(follower.run()))
        self._follows[key][0].has_run |= has_run

    async def finish(
        self, key: TaskKey, *, is_there: bool = True, runs_on: bool = False
    ) -> int:
        """Wait for the last that a task wrote, and say in it if that did not come; return how
        many bytes of it were not kept. Of a pod that is not to be there any more, its kubelet
        may have nothing. One that `runs_on` writes until it has ended."""
        follow = self._follows.get(key)
        if follow is None:
            return 0
        follower, running = follow
        follower.is_over, follower.runs_on = True, runs_on and follower.has_run
        wait_s = KILLED_S if follower.runs_on else LAST_S
        _, late = await asyncio.wait({running}, timeout=wait_s)
        if late:
            running.cancel()
            await asyncio.wait(late)
        elif not running.cancelled() and (error := running.exception()) is not None:
            log.error("the output of a task was not followed", task=str(key), why=repr(error))
        if late or (is_there and follower.has_run):
            follower.give_up()
        return follower.dropped

    def add_words(self, key: TaskKey, words: str) -> None:
        """Keep what Kubernetes says of an end, where it can be: the end counts more."""
        folder = self._records.folder(key)
        with contextlib.suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "stderr.log").write_text(f"{words}\n")

    def drop(self, key: TaskKey) -> None:
        """Follow a task no more."""
        follow = self._follows.pop(key, None)
        if follow is not None:
            follow[1].cancel()

    def read(self, key: TaskKey, stream: str, offset: int, size: int) -> LogChunk:
        """Return a part of what a task wrote. Raises BackendError."""
        if stream not in STREAMS:
            raise BackendError(f"there is no stream {stream!r}; there are stdout and stderr")
        path = self._records.folder(key) / (FILE if stream == "stdout" else "stderr.log")
        try:
            with path.open("rb") as file:
                end = file.seek(0, 2)
                at = max(0, end + offset) if offset < 0 else offset
                file.seek(at)
                data = file.read(size)
        except FileNotFoundError:
            return LogChunk(b"", max(offset, 0))
        return LogChunk(data, at + len(data))

    async def close(self) -> None:
        running = [task for _, task in self._follows.values()]
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
