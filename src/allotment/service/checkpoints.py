"""Watches where running jobs report their checkpoints.

The contract: a job replaces the file $ALLOT_CHECKPOINT_FILE, as a whole, by
`{"path": …, "step": …, "progress": 0..1}` after each good checkpoint.

The file is the job's own, and so may be anything: a pipe, a link to what the job may not
read, or hold numbers nobody can keep. What cannot be read or kept is as good as not there.
It is looked at with the rights of the job's user (docs/adr/0012).
The folder of another user may lie on a file system that does not answer: it is looked at in
a thread, with those of the same user beside it, and only they wait.
"""

import asyncio
import os
import stat
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Annotated

import msgspec
from msgspec import Meta

from allotment.engine.records import JobRecord
from allotment.engine.state import State
from allotment.model.ids import Actor, JobId, TaskIndex, TaskKey
from allotment.model.lifecycle import AttemptState
from allotment.model.quantity import Instant, WallTime
from allotment.model.reports import CheckpointReport
from allotment.rights import paths
from allotment.rights.user import rights_of
from allotment.service.folders import account_of, uid_of
from allotment.service.launch import Folders
from allotment.service.ports import Identity
from allotment.service.threads import Threads

MOST_BYTES = 64 * 1024
PATIENCE_S = 5.0
"""How long the end of a job waits for its last checkpoint to be read."""
SILENT_S = 60.0
"""How long a look at the files of a user is under way before it is given up."""
LOOK_S = 0.5
"""How long a look at the folders of users waits for those that do not answer."""


class Reported(msgspec.Struct, frozen=True):
    """What a job writes. Steps are what every store can keep."""

    path: Annotated[str, Meta(pattern=r"\A[^\x00]*\Z")]
    step: Annotated[int, Meta(ge=0, le=2**63 - 1)] = 0
    progress: float = 0.0


class Wanted(msgspec.Struct, frozen=True):
    """A file to look at: of which attempt, which change is known, since when it counts."""

    key: TaskKey
    file: str
    known_ns: int
    since_ns: int
    owner: Actor
    uid: int | None
    """Whose it has to be; None where it is nobody else's."""
    who: "Identities"


Identities = dict[Actor, Identity | None]
"""Who users are, once the host has said so: it is not asked again while jobs run."""

Changed = tuple[int, TaskKey, CheckpointReport | None]
"""When a file changed (ns), and what is in it now."""


def is_near(job: JobRecord) -> bool:
    """Whether a job's checkpoints lie in a folder of our own, and of nobody else's."""
    own = job.spec.checkpoint is not None and job.spec.checkpoint.dir
    return not own and uid_of(job.owner) is None


class CheckpointWatch:
    """Looks at the files of running jobs; reads one only when it changed."""

    def __init__(self, folders: Folders, wall: Callable[[Instant], WallTime]) -> None:
        self._wall = wall
        self._folders = folders
        self._seen: dict[JobId, int] = {}
        self._who: Identities = {}
        self._threads = Threads("checkpoints", each=16)
        self._looking: dict[tuple[str, str], asyncio.Task[list[Changed]]] = {}
        """Looks that are under way, by user and place in the file system."""

    async def look(self, state: State) -> list[CheckpointReport]:
        """Return what is new. O(running jobs), one stat each."""
        live = [job_id for job_id, gang in state.cluster.gangs.items() if not gang.suspended]
        for gone in self._seen.keys() - set(live):
            del self._seen[gone]
        if not live:
            self._who.clear()
        jobs = [state.jobs[job_id] for job_id in live]
        found = [report for job in jobs if is_near(job) and (report := self.look_at(job))]
        far = [self._wanted(job) for job in jobs if not is_near(job)]
        return found + await self._look_far([each for each in far if each is not None])

    def look_at(self, job: JobRecord) -> CheckpointReport | None:
        """Return the newest checkpoint of a job with a near folder, if it was not seen yet."""
        wanted = self._wanted(job)
        found = self._note(_changed((wanted,))) if wanted is not None else []
        return found[0] if found else None

    async def last_of(self, job: JobRecord) -> CheckpointReport | None:
        """Return the newest checkpoint of a job that ends, if it was not seen yet."""
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
        """Wait for nobody who does not answer."""
        for look in self._looking.values():
            look.cancel()

    def _wanted(self, job: JobRecord) -> Wanted | None:
        attempt = job.attempt
        if attempt is None or attempt.state is AttemptState.STARTING:
            return None
        return Wanted(
            TaskKey(job.id, attempt.no, TaskIndex(0)),
            self._folders.checkpoint_file(job.id, job.spec),
            self._seen.get(job.id, 0),
            self._since_ms(attempt.placed_at) * 1_000_000,
            job.owner,
            uid_of(job.owner),
            self._who,
        )

    def _since_ms(self, placed_at: Instant) -> int:
        """Return what files are dated that were written since; the clock may have been set."""
        return min(placed_at, self._wall(placed_at))

    async def _look_far(self, wanted: Sequence[Wanted]) -> list[CheckpointReport]:
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

    def _note(self, found: Sequence[Changed]) -> list[CheckpointReport]:
        for changed_ns, key, _ in found:
            self._seen[key.job] = changed_ns
        return [report for _, _, report in found if report is not None]


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
                    found.append((changed_ns, each.key, _report(each.key, _content(each))))
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
    """Read a file that is really the job's own. Raises OSError."""
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
        return file.read(MOST_BYTES)


def _report(key: TaskKey, data: bytes) -> CheckpointReport | None:
    try:
        reported = msgspec.json.decode(data, type=Reported, strict=False)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
    progress = round(min(1.0, max(0.0, reported.progress)) * 1000)
    return CheckpointReport(key, reported.path[:4096], reported.step, progress)
