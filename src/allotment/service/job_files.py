"""Watches a file that each running job may write: where it reports checkpoints, or progress.

One that has not changed for long is looked at less often. A look may take long, on a disk that
does not answer or a node that is away. So those of one user at one place are looked at
together, one look at a time, and only they wait.
"""

import asyncio
from collections.abc import Callable, Sequence
from time import monotonic

from allotment.core.gang import Gang
from allotment.engine.records import JobRecord
from allotment.engine.state import State
from allotment.model.errors import BackendError
from allotment.model.ids import JobId, TaskIndex, TaskKey
from allotment.model.lifecycle import AttemptState
from allotment.model.quantity import Instant, WallTime
from allotment.service.folders import uid_of
from allotment.service.launch import Folders
from allotment.service.looks import Looks
from allotment.service.workspace import Changed, Watched, Workspace
from allotment.service.workspaces import Workspaces

SILENT_S = 60.0
"""How long a look at the files of a user is under way before it is given up."""
LOOK_S = 0.5
"""How long a look at the folders of users waits for those that do not answer."""

Spot = tuple[str, str, str]
"""A user, a node, and a place in its file system."""


class JobFiles:
    """Looks at one file of each running job; reads it only when it changed."""

    def __init__(
        self,
        workspaces: Workspaces,
        file_of: Callable[[Folders, JobRecord], str],
        most_bytes: int,
        wall: Callable[[Instant], WallTime],
        wanted: Callable[[JobRecord], bool] = lambda _: True,
    ) -> None:
        """`file_of` names a file in the folder of a job's checkpoints; those are looked at
        that are `wanted`."""
        self._workspaces = workspaces
        self._file_of = file_of
        self._most_bytes = most_bytes
        self._wall = wall
        self._wanted = wanted
        self._seen: dict[JobId, int] = {}
        self._looks = Looks[JobId]()
        self._looking: dict[Spot, asyncio.Task[Sequence[Changed]]] = {}
        """Looks that are under way."""

    async def look(self, state: State) -> list[Changed]:
        """Return the files that changed. O(running jobs), at most one stat each."""
        gangs, now_s = state.cluster.gangs, monotonic()
        for gone in self._seen.keys() - gangs.keys():
            del self._seen[gone]
        self._looks.only(gangs.keys(), now_s)
        found: list[Changed] = []
        far: dict[Spot, tuple[Workspace, list[Watched]]] = {}
        for job in (state.jobs[job_id] for job_id in self._looks.due(now_s)):
            if not self._wanted(job):
                continue
            if stands(gangs[job.id]) or not _may_write(job):
                self.forget(job.id)
                continue
            workspace = self._workspaces.of(job)
            watched = self._watched(workspace, job)
            if watched is None:
                continue
            now = workspace.look_now(watched)
            if now is not None:
                found += self._note(now)
            else:
                spot = (job.owner.user, self._workspaces.node_of(job), _place_of(watched.file))
                far.setdefault(spot, (workspace, []))[1].append(watched)
        return found + await self._look_far(far)

    def forget(self, job: JobId) -> None:
        """Take a job as new: it does not run now, or began to run anew."""
        self._seen.pop(job, None)
        self._looks.part(job)

    def look_now(self, job: JobRecord) -> Sequence[Changed] | None:
        """Return the file of a job if it changed; None where to look may take long."""
        self._looks.part(job.id)  # Its next attempt is new.
        workspace = self._workspaces.of(job)
        watched = self._watched(workspace, job)
        if watched is None:
            return ()
        found = workspace.look_now(watched)
        return None if found is None else self._note(found)

    async def last_of(self, job: JobRecord) -> Sequence[Changed]:
        """Return the file of a job that ends, if it changed since the last look."""
        if (found := self.look_now(job)) is not None:
            return found
        workspace = self._workspaces.of(job)
        watched = self._watched(workspace, job)
        assert watched is not None, "else nothing was to be found"
        node = self._workspaces.node_of(job)
        try:
            return self._note(await workspace.last_look(node, watched))
        except (TimeoutError, BackendError):
            return ()

    def close(self) -> None:
        """Stop looking, without waiting for folders that do not answer."""
        for look in self._looking.values():
            look.cancel()

    def _watched(self, workspace: Workspace, job: JobRecord) -> Watched | None:
        attempt = job.attempt
        if attempt is None or job.spec.offered:
            return None
        # Also of one that is starting, as far as is known: it may have run and ended since.
        return Watched(
            TaskKey(job.id, attempt.no, TaskIndex(0)),
            self._file_of(workspace.folders, job),
            self._most_bytes,
            self._seen.get(job.id, 0),
            self._since_ms(attempt.placed_at) * 1_000_000,
            job.owner,
            uid_of(job.owner),
            self._workspaces.spread_of(attempt),
        )

    def _since_ms(self, placed_at: Instant) -> int:
        """Return what files are dated that were written since; the clock may have been set."""
        return min(placed_at, self._wall(placed_at))

    async def _look_far(
        self, far: dict[Spot, tuple[Workspace, list[Watched]]]
    ) -> list[Changed]:
        loop = asyncio.get_running_loop()
        for spot, (workspace, watched) in far.items():
            if spot in self._looking:
                for each in watched:
                    self._looks.again(each.key.job, monotonic())
                continue
            look = _look(workspace, spot[1], watched)
            self._looking[spot] = loop.create_task(look)
        if self._looking:
            await asyncio.wait(self._looking.values(), timeout=LOOK_S)
        over = [spot for spot, look in self._looking.items() if look.done()]
        looks = [self._looking.pop(spot) for spot in over]
        found = [look.result() for look in looks if look.exception() is None]
        return [each for changed in found for each in self._note(changed)]

    def _note(self, found: Sequence[Changed]) -> Sequence[Changed]:
        for changed in found:
            self._seen[changed.key.job] = changed.at_ns
            self._looks.news(changed.key.job, monotonic())
        return found


def stands(gang: Gang) -> bool:
    """Whether a gang does not run, nor beside another."""
    return gang.suspended and gang.beside is None


def _may_write(job: JobRecord) -> bool:
    """Whether a job runs and is told of the file: what others made is only placed."""
    attempt = job.attempt
    runs = attempt is not None and attempt.state is not AttemptState.STARTING
    return runs and not job.spec.offered


async def _look(
    workspace: Workspace, node: str, watched: Sequence[Watched]
) -> Sequence[Changed]:
    return await workspace.look(node, watched, SILENT_S)


def _place_of(file: str) -> str:
    """Return where a file lies: `/mnt/data`. What is mounted there falls silent as one."""
    return "/".join(file.split("/")[:3])
