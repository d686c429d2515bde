"""What a pod writes, followed into a file that stays when the pod is gone.

Each line comes behind its time: by that a log that broke off is taken up with the line in which
it did.
Kubernetes puts what a container writes to stdout and stderr together.
"""

import asyncio
import contextlib
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import BinaryIO

import structlog

from allotment.backends.kubernetes.client import Client, Denied
from allotment.backends.kubernetes.stamped import Stamped
from allotment.model.errors import BackendError

log = structlog.get_logger("allot.kubernetes")

PAUSE_S = 0.5
LAST_TRIES = 4
PIECE = 1 << 16
"""How much is looked at before others have their turn."""
FILE, MARK = "stdout.log", "stdout.mark"
CUT = b"[allotment: lines may be missing here: the node did not give the last ones in time]\n"


Reader = Callable[[bytes], Awaitable[None]]
"""Reads the lines of a task as they become whole."""


class Follower:
    """Follows the log of one pod into a folder. `read` has each line first, if it is given."""

    def __init__(
        self, client: Client, name: str, folder: Path, most: int, read: Reader | None = None
    ) -> None:
        self._client, self._name, self._folder, self._most = client, name, folder, most
        self._read, self._begun = read, b""
        self._marks = -1
        self._whole = 0
        """How much text there was in lines that came whole."""
        self._open = 0
        """And in the one under way."""
        self._marked = 0
        self._newest = b""
        """The time of the newest line that came whole."""
        self._same = 0
        """How many lines of that time did."""
        self.is_over = False
        """Whether the pod has ended: what does not come soon never will."""
        self.runs_on = False
        """Whether it does though it counts as over: nothing can be asked of it, and what is
        followed ends with it."""
        self.has_run = False
        """Whether it has; else it has nothing to be missed."""
        self.is_settled = False
        """Whether all that it wrote is there, or it is said that some may be missing."""

    @property
    def dropped(self) -> int:
        """Return the bytes beyond what may be kept."""
        return max(0, self._whole + self._open - self._most)

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

    def give_up(self) -> None:
        """Write into the output, once, that more of it may not have come."""
        if self.is_settled:
            return
        self.is_settled = True
        with contextlib.suppress(OSError), (self._folder / FILE).open("ab") as file:
            file.write((b"\n" if self._open else b"") + CUT)

    async def _until_over(self) -> None:
        """Follow until that was the end of it. A node that cannot be asked is asked again; one
        that says no has nothing, such as of a container that never began.

        A kubelet may end what was followed before it has the last lines. So once the pod has
        ended it is asked for what there is. Where it has forgotten the pod by then, as it does
        with one that was told to end, what was followed to its end is all.
        """
        left, is_whole = LAST_TRIES, False
        while left:
            is_last = self.is_over
            try:
                is_whole = await self._read_on(is_last=is_last)
                self.is_settled = is_whole and (is_last or self.runs_on)
                if self.is_settled:
                    return
                left -= is_last
            except Denied as error:
                is_known = error.status < 500
                if is_last and is_known and (is_whole or error.status == 404):
                    self.is_settled = is_whole
                    return
                is_whole = is_whole and is_last
                left -= is_last and is_known
            except (BackendError, OSError) as error:
                is_whole = is_whole and is_last
                log.info("a log is followed again", pod=self._name, why=str(error))
            if is_last or not self.is_over:
                await asyncio.sleep(PAUSE_S)

    async def _read_on(self, *, is_last: bool) -> bool:
        """Read on once: while the pod writes, or all that it wrote. Whether that was all: in
        place of lines that it cannot read, a kubelet says why. It does so, too, at the end of
        what is followed, where the container is gone by then."""
        lines = Stamped(self._newest, self._same)
        with (self._folder / FILE).open("ab") as file:
            since = self._newest.decode()
            async with self._client.log(self._name, since, follow=not is_last) as pieces:
                self._open, self._begun = 0, b""
                file.truncate(min(self._whole, self._most))  # a line that broke off comes again
                async for piece in pieces:
                    for start in range(0, len(piece), PIECE):
                        await self._take(file, lines, piece[start : start + PIECE])
                        await asyncio.sleep(0)
            if is_last:
                lines.finish()
                self._mark(lines, self._open)
                self._open = 0
        return not (is_last and lines.has_words)

    async def _take(self, file: BinaryIO, lines: Stamped, piece: bytes) -> None:
        over, rest = lines.take(piece)
        if self._read is not None:
            if over:
                await self._read(self._begun + over)
            self._begun = rest[-PIECE:] if over else (self._begun + rest)[-PIECE:]
        there = self._whole + self._open
        if kept := (over + rest)[: max(0, self._most - there)]:
            file.write(kept)
            file.flush()
        if over:
            self._mark(lines, self._open + len(over))
            self._open = 0
        self._open += len(rest)

    def _mark(self, lines: Stamped, more: int) -> None:
        """Note that so much more came in whole lines."""
        self._whole += more
        self._newest, self._same = lines.newest, lines.same
        size = min(self._whole, self._most)
        if size != self._marked:
            mark = b"%016d %08d " % (size, self._same) + self._newest + b" "
            os.pwrite(self._marks, mark, 0)
            self._marked = size

    def _recall(self) -> None:
        """Go on from what an earlier service kept."""
        try:
            size, same, moment = (self._folder / MARK).read_bytes().split(b" ")[:3]
            self._whole, self._same, self._newest = int(size), int(same), moment
            self._marked = self._whole
            with (self._folder / FILE).open("r+b") as file:
                file.truncate(self._whole)  # a line that was not marked any more comes again
        except (OSError, ValueError):
            self._whole, self._marked, self._same, self._newest = 0, 0, 0, b""
            (self._folder / FILE).write_bytes(b"")
