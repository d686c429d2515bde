"""Watches a file that each running job may write: where it reports checkpoints, or progress.

The file is the job's own, and so may be anything: a pipe, a link to what the job may not
read, or without end. What cannot be read is as good as not there, and no more than the
end of it is read. It is looked at with the rights of the job's user (docs/adr/0012).
The folder of another user may lie on a file system that does not answer: it is looked at in
a thread, with those of the same user beside it, and only they wait.
"""

import asyncio
import os
import stat
from collections.abc import Callable, Iterable, Sequence
from functools import partial

import msgspec

from allotment.engine.records import JobRecord
from allotment.engine.state import State
from allotment.model.ids import Actor, JobId, TaskIndex, TaskKey
from allotment.model.lifecycle import AttemptState
from allotment.model.quantity import Instant, WallTime
from allotment.rights import paths
from allotment.rights.user import rights_of
from allotment.service.folders import account_of, uid_of
from allotment.service.ports import Identity
from allotment.service.threads import Threads

PATIENCE_S = 5.0
"""How long the end of a job waits for its file to be read."""
SILENT_S = 60.0
"""How long a look at the files of a user is under way before it is given up."""
LOOK_S = 0.5
"""How long a look at the folders of users waits for those that do not answer."""


class Changed(msgspec.Struct, frozen=True):
    """A file that changed."""

    key: TaskKey
    """The first task of the attempt that it belongs to."""
    at_ns: int
    """When, by its date."""
    data: bytes
    """The end of it; empty where it is no file of its job."""


class Wanted(msgspec.Struct, frozen=True):
    """A file to look at: of which attempt, which change is known, since when it counts."""

    key: TaskKey
    file: str
    most_bytes: int
    known_ns: int
    since_ns: int
    owner: Actor
    uid: int | None
    """Whose it has to be; None where it is nobody else's."""
    who: "Identities"


Identities = dict[Actor, Identity | None]
"""Who users are, once the host has said so: it is not asked again while jobs run."""


def is_near(job: JobRecord) -> bool:
    """Whether a job's checkpoints lie in a folder of our own, and of nobody else's."""
    own = job.spec.checkpoint is not None and job.spec.checkpoint.dir
    return not own and uid_of(job.owner) is None


class JobFiles:
    """Looks at one file of each running job; reads it only when it changed."""

    def __init__(
        self,
        kind: str,
        file_of: Callable[[JobRecord], str],
        most_bytes: int,
        wall: Callable[[Instant], WallTime],
    ) -> None:
        """`file_of` names a file in the folder of a job's checkpoints."""
        self._file_of = file_of
        self._most_bytes = most_bytes
        self._wall = wall
        self._seen: dict[JobId, int] = {}
        self._who: Identities = {}
        self._threads = Threads(kind, each=16)
        self._looking: dict[tuple[str, str], asyncio.Task[list[Changed]]] = {}
        """Looks that are under way, by user and place in the file system."""

    async def look(self, state: State) -> list[Changed]:
        """Return the files that changed. O(running jobs), one stat each."""
        live = [job_id for job_id, gang in state.cluster.gangs.items() if not gang.suspended]
        for gone in self._seen.keys() - set(live):
            del self._seen[gone]
        if not live:
            self._who.clear()
        jobs = [state.jobs[job_id] for job_id in live]
        found = [new for job in jobs if is_near(job) and (new := self.look_at(job))]
        far = [self._wanted(job) for job in jobs if not is_near(job)]
        return found + await self._look_far([each for each in far if each is not None])

    def look_at(self, job: JobRecord) -> Changed | None:
        """Return the file of a job with a near folder, if it changed since the last look."""
        wanted = self._wanted(job)
        found = self._note(_changed((wanted,))) if wanted is not None else []
        return found[0] if found else None

    async def last_of(self, job: JobRecord) -> Changed | None:
        """Return the file of a job that ends, if it changed since the last look."""
        if is_near(job):
            return self.look_at(job)
        wanted = self._wanted(job)
        if wanted is None:
            return None
        try:
            found = self._note(await self._in_thread([wanted], PATIENCE_S))
        except TimeoutError:
            return None
        return found[0] if found else None

    def close(self) -> None:
        """Stop looking, without waiting for folders that do not answer."""
        for look in self._looking.values():
            look.cancel()

    def _wanted(self, job: JobRecord) -> Wanted | None:
        attempt = job.attempt
        if attempt is None or attempt.state is AttemptState.STARTING:
            return None
        return Wanted(
            TaskKey(job.id, attempt.no, TaskIndex(0)),
            self._file_of(job),
            self._most_bytes,
            self._seen.get(job.id, 0),
            self._since_ms(attempt.placed_at) * 1_000_000,
            job.owner,
            uid_of(job.owner),
            self._who,
        )

    def _since_ms(self, placed_at: Instant) -> int:
        """Return what files are dated that were written since; the clock may have been set."""
        return min(placed_at, self._wall(placed_at))

    async def _look_far(self, wanted: Sequence[Wanted]) -> list[Changed]:
        places: dict[tuple[str, str], list[Wanted]] = {}
        for each in wanted:
            places.setdefault((each.owner.user, _place_of(each.file)), []).append(each)
        loop = asyncio.get_running_loop()
        for place in places.keys() - self._looking.keys():
            look = self._in_thread(places[place], SILENT_S)
            self._looking[place] = loop.create_task(look)
        if self._looking:
            await asyncio.wait(self._looking.values(), timeout=LOOK_S)
        over = [place for place, look in self._looking.items() if look.done()]
        looks = [self._looking.pop(place) for place in over]
        found = [look.result() for look in looks if look.exception() is None]
        return self._note([each for changed in found for each in changed])

    async def _in_thread(self, wanted: Sequence[Wanted], patience_s: float) -> list[Changed]:
        return await self._threads.run(
            wanted[0].owner.user, partial(_changed, wanted), patience_s
        )

    def _note(self, found: list[Changed]) -> list[Changed]:
        for changed in found:
            self._seen[changed.key.job] = changed.at_ns
        return found


def _place_of(file: str) -> str:
    """Return where a file lies: `/mnt/data`. What is mounted there falls silent as one."""
    return "/".join(file.split("/")[:3])


def _changed(wanted: Iterable[Wanted]) -> list[Changed]:
    """Read the files that changed. Blocks."""
    found: list[Changed] = []
    for each in wanted:
        try:
            with rights_of(_identity(each)):
                changed_ns = os.lstat(each.file).st_mtime_ns
                if changed_ns != each.known_ns and changed_ns >= each.since_ns:
                    found.append(Changed(each.key, changed_ns, _content(each)))
        except OSError:
            continue
    return found


def _identity(wanted: Wanted) -> Identity | None:
    """Return whose rights to use; asks the host where it is not known yet."""
    if wanted.uid is None:
        return None
    if wanted.owner not in wanted.who:
        wanted.who[wanted.owner] = account_of(wanted.owner).identity
    return wanted.who[wanted.owner]


def _content(wanted: Wanted) -> bytes:
    """Read the end of a file that is really the job's own. Raises OSError."""
    above, _, name = wanted.file.rpartition("/")
    folder = paths.resolve(above)
    try:
        fd = paths.open_below(folder, name, os.O_RDONLY | os.O_NONBLOCK)
    finally:
        os.close(folder)
    with os.fdopen(fd, "rb") as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode) or wanted.uid not in (None, found.st_uid):
            return b""
        file.seek(max(0, found.st_size - wanted.most_bytes))
        return file.read(wanted.most_bytes)
