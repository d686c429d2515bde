"""What a pod writes, followed line by line into a file that stays when the pod is gone.

Each line comes behind its time: by that a log that broke off is taken up where it did.
Kubernetes puts what a container writes to stdout and stderr together.
"""

import asyncio
import os
from pathlib import Path
from typing import BinaryIO

import structlog

from allotment.backends.kubernetes.client import Client, Denied, lines_of
from allotment.model.errors import BackendError

log = structlog.get_logger("allot.kubernetes")

PAUSE_S = 0.5
LAST_TRIES = 4
FILE, MARK = "stdout.log", "stdout.mark"


class Follower:
    """Follows the log of one pod into a folder."""

    def __init__(self, client: Client, name: str, folder: Path, most: int) -> None:
        self._client, self._name, self._folder, self._most = client, name, folder, most
        self._size, self._marks = 0, -1
        self._newest = b""
        """The time of the newest line that is kept."""
        self._same = 0
        """How many lines of that time are kept."""
        self.dropped = 0
        """Bytes beyond what may be kept."""
        self.is_over = False
        """Whether the pod has ended: what does not come soon never will."""

    async def run(self) -> None:
        """Follow until the pod writes no more."""
        self._folder.mkdir(parents=True, exist_ok=True)
        self._recall()
        self._marks = os.open(
            self._folder / MARK, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600
        )
        try:
            await self._until_over()
        finally:
            os.close(self._marks)

    async def _until_over(self) -> None:
        left = LAST_TRIES
        while left:
            left -= self.is_over
            try:
                if await self._follow():
                    return
            except Denied as error:
                if error.status == 404 and self.is_over:
                    return
            except (BackendError, OSError) as error:
                log.info("a log is taken up again", pod=self._name, why=str(error))
            await asyncio.sleep(PAUSE_S)

    async def _follow(self) -> bool:
        """Follow once. Whether that was the end of it."""
        skip, at = self._same, self._newest
        with (self._folder / FILE).open("ab") as file:
            async with self._client.log(self._name, self._newest.decode()) as pieces:
                async for line in lines_of(pieces):
                    moment, _, text = line.partition(b" ")
                    if moment < at or (moment == at and skip):
                        skip -= moment == at
                        continue
                    self._keep(file, moment, text)
        return self.is_over

    def _keep(self, file: BinaryIO, moment: bytes, text: bytes) -> None:
        room = max(0, self._most - self._size)
        self.dropped += max(0, len(text) - room)
        self._size += file.write(text[:room])
        file.flush()
        self._same = self._same + 1 if moment == self._newest else 1
        self._newest = moment
        os.pwrite(self._marks, b"%016d %08d " % (self._size, self._same) + moment + b" ", 0)

    def _recall(self) -> None:
        """Go on from what an earlier service kept."""
        try:
            size, same, moment = (self._folder / MARK).read_bytes().split(b" ")[:3]
            self._size, self._same, self._newest = int(size), int(same), moment
            with (self._folder / FILE).open("r+b") as file:
                file.truncate(self._size)  # a line that was not marked any more comes again
        except (OSError, ValueError):
            (self._folder / FILE).write_bytes(b"")
