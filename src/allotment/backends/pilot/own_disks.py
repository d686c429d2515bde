"""The workspace of nodes that keep jobs' files on disks of their own: asked by their links.

A gang's files lie on all its nodes. Of files of one name that of the first node counts, where
the gang's first task is. What a job reports is looked for there too.
"""

import asyncio
import contextlib
from collections.abc import (
    AsyncGenerator,
    Awaitable,
    Callable,
    Coroutine,
    Mapping,
    Sequence,
)
from typing import TypeVar

import structlog

from allotment.backends.pilot import file_messages as fm
from allotment.backends.pilot.bringing import Bringing
from allotment.backends.pilot.carrying import REPORT, Checkpoints, NotKept, is_of, left_in
from allotment.backends.pilot.collecting import FilesOnNodes
from allotment.backends.pilot.link import Link
from allotment.backends.pilot.messages import PROTOCOL
from allotment.backends.pilot.node_images import refused_by_node
from allotment.backends.pilot.sending import Sending
from allotment.backends.together import gather_all
from allotment.model.errors import BackendError, Code, EngineAway, Rejected
from allotment.model.ids import JobId
from allotment.service.batch.files import File
from allotment.service.host_accounts import HostAccounts
from allotment.service.launch import Folders
from allotment.service.workspace import (
    Changed,
    CodeCopy,
    DataKept,
    FileBelow,
    JobFolders,
    Kept,
    KeptReport,
    Left,
    LeftFiles,
    Listed,
    OpenFile,
    Watched,
)

log = structlog.get_logger("allot.pilot")

LAST_S = 900.0
"""How long the end of an attempt waits for its last checkpoint."""
AGAIN_S, LONGEST_S = 2.0, 60.0
"""After how long a checkpoint is fetched again that could not be: at first, and at most."""

AGAIN_HELD_S = 180.0
"""How long nodes are held whose files could not be saved: that is tried again."""
MOST_WORDS = 500

T = TypeVar("T")
LinkOf = Callable[[str], Link | None]
"""Returns the link to a node; None where its runner is not connected."""


class NodeDisks:
    """The folders of jobs on the nodes of one engine. `root` is the same on each."""

    def __init__(  # noqa: PLR0913, PLR0917 - one for each that it cannot know
        self,
        root: str,
        link_of: LinkOf,
        hold: Callable[[str, JobId], Coroutine[None, None, Link]],
        kept: Checkpoints,
        occupy: Callable[[Sequence[str], int], None],
        runs: Callable[[str, JobId], bool],
        changed: Callable[[str], None],
    ) -> None:
        """`hold` has a node held for files of a job, and returns its link. Raises BackendError.

        Checkpoints are in `kept` between the attempts of their jobs. `occupy` counts what is
        fetched of nodes: they are held meanwhile. `runs` says whether a job has tasks on one.
        `changed` is told which may have other environments or data than before.
        """
        self.folders = Folders(root)
        self._link_of = link_of
        self._hold = hold
        self._kept = kept
        self._bringing, self._sending = Bringing(root, changed), Sending(changed)
        self._occupy = occupy
        self._runs = runs
        self._accounts = HostAccounts()
        self._carrying: dict[JobId, asyncio.Task[int]] = {}
        """Checkpoints that are fetched: each gives the date of the report that it is of."""
        self._useless: dict[JobId, int] = {}
        """Reports of checkpoints that cannot be kept."""
        self._troubles: dict[JobId, str] = {}
        """Why the checkpoint that a job reported last is not here."""
        self._pauses: dict[JobId, float] = {}
        """Before those are fetched again that could not be."""
        self._held_again: dict[JobId, tuple[asyncio.TimerHandle, tuple[str, ...]]] = {}
        """Nodes whose files could not be saved: until when they are held for another try."""

    async def prepare(self, nodes: Sequence[str], wanted: JobFolders) -> None:
        if (carrying := self._carrying.get(wanted.job)) is not None:
            await asyncio.wait([carrying])
        await self._tell(nodes, wanted.job, fm.MakeFolders(wanted))
        own = self._own(wanted.job)
        if own not in wanted.folders:
            return
        # Where tasks of it run already, what they save meanwhile is newer.
        idle = [node for node in nodes if not self._runs(node, wanted.job)]
        links = [await self._hold(node, wanted.job) for node in idle]
        left = left_in(own, nodes, wanted.identity, wanted.user)
        await gather_all([self._kept.lay(link, wanted, left) for link in links])

    async def bring(
        self, nodes: Sequence[str], job: JobId, kept: Kept, is_wanted: Callable[[], bool]
    ) -> None:
        async with self._held(nodes, job) as links:
            await self._bringing.bring(links, kept, is_wanted)

    async def bring_data(
        self,
        nodes: Sequence[str],
        job: JobId,
        versions: Sequence[Listed],
        kept: DataKept,
        is_wanted: Callable[[], bool],
    ) -> None:
        async with self._held(nodes, job) as links:
            await self._sending.data(links, versions, kept, is_wanted)

    async def bring_code(
        self, nodes: Sequence[str], copy: CodeCopy, limit: int, is_wanted: Callable[[], bool]
    ) -> None:
        async with self._held(nodes, copy.job) as links:
            await self._sending.code(links, copy, limit, is_wanted)

    @contextlib.asynccontextmanager
    async def _held(self, nodes: Sequence[str], job: JobId) -> AsyncGenerator[list[Link]]:
        """Have nodes held for files of a job meanwhile. Raises BackendError."""
        self._occupy(nodes, 1)
        try:
            yield [await self._hold(node, job) for node in nodes]
        finally:
            self._occupy(nodes, -1)

    async def write(self, nodes: Sequence[str], job: JobId, files: Mapping[str, File]) -> None:
        await self._tell(nodes, job, fm.WriteFiles(job, files))

    async def _tell(self, nodes: Sequence[str], job: JobId, op: fm.FileOp) -> None:
        links: list[Link] = await gather_all([self._hold(node, job) for node in nodes])
        await gather_all([_told(link, op) for link in links])

    def look_now(self, watched: Watched) -> Sequence[Changed] | None:  # noqa: ARG002
        return None

    async def look(
        self, node: str, watched: Sequence[Watched], patience_s: float
    ) -> Sequence[Changed]:
        link = self._link_of(node)
        if link is None:
            return ()
        async with asyncio.timeout(patience_s):
            found = await link.call(fm.LookAt(tuple(watched)), list[Changed])
        files = {each.key: each for each in watched}
        return [
            each
            for each in found
            if _can_be(files.get(each.key), each) and self._counts(files[each.key], each)
        ]

    async def last_look(self, node: str, watched: Watched) -> Sequence[Changed]:
        waited_for = None
        async with asyncio.timeout(LAST_S):
            while True:
                found = await self.look(node, [watched], LAST_S)
                carrying = self._carrying.get(watched.key.job)
                if found or carrying is None or carrying is waited_for:
                    return found
                await asyncio.wait([carrying])
                waited_for = carrying

    def _counts(self, watched: Watched, changed: Changed) -> bool:
        """Whether a report counts: that of a checkpoint does once all of it is here."""
        own = f"{self.folders.root}/checkpoints/"
        if not (watched.file.startswith(own) and watched.file.endswith(REPORT)):
            return True
        job = watched.key.job
        carrying = self._carrying.get(job)
        if carrying is not None and carrying.done():
            del self._carrying[job]
            if carrying.result() == changed.at_ns:
                return True
            carrying = None
        if carrying is None and self._useless.get(job) != changed.at_ns:
            with contextlib.suppress(BackendError):
                saved = self._kept.of(job)
                if saved is not None and saved.at_ns == changed.at_ns:
                    return True
            self._carrying[job] = asyncio.create_task(self._carry(watched, changed))
        return False

    def warnings_of(self, job: JobId) -> tuple[str, ...]:
        trouble = self._troubles.get(job)
        return (f"its last checkpoint does not count as saved: {trouble}",) if trouble else ()

    async def _carry(self, watched: Watched, changed: Changed) -> int:
        """Bring a checkpoint here; return the date of its report, 0 where that failed."""
        job = watched.key.job
        try:
            self._occupy(watched.nodes, 1)
            account = await self._accounts.of(watched.owner)
            folder = watched.file.rpartition("/")[0]
            left = left_in(folder, watched.nodes, account.identity, account.name)
            links = {node: await self._hold(node, job) for node in watched.nodes}
            await self._kept.bring(job, links, left, changed)
            self._pauses.pop(job, None)
            self._troubles.pop(job, None)
        except NotKept as error:
            self._useless[job] = changed.at_ns
            self._troubles[job] = str(error)[:MOST_WORDS]
            log.warning("a checkpoint is not kept", job=job, why=str(error))
            return 0
        except BackendError as error:
            self._troubles[job] = str(error)[:MOST_WORDS]
            log.warning("a checkpoint is not kept yet", job=job, why=str(error))
            pause_s = self._pauses.get(job, AGAIN_S)
            self._pauses[job] = min(2 * pause_s, LONGEST_S)
            await asyncio.sleep(pause_s)
            return 0
        except Exception:
            self._useless[job] = changed.at_ns
            self._troubles[job] = "a bug in Allotment: see service.log"
            log.exception("a checkpoint cannot be kept", job=job)
            return 0
        finally:
            self._occupy(watched.nodes, -1)
        return changed.at_ns

    # ── what becomes versions ───────────────────────────────────────────────────────────

    @contextlib.asynccontextmanager
    async def left_files(
        self, job: JobId, left: Left, only: str = "", step: int = 0
    ) -> AsyncGenerator[LeftFiles]:
        if only and left.folder == self._own(job):  # It is here since it counts as saved.
            yield await asyncio.to_thread(self._kept.files, job, left.folder, only, step)
            return
        self._occupy(left.nodes, 1)
        self._let_go(job)
        try:
            try:
                links = {node: await self._hold(node, job) for node in left.nodes}
            except BackendError as error:
                raise EngineAway(str(error)) from error
            check_versions(links)
            asked = FilesOnNodes(links, left, only)
            try:
                yield asked
            finally:
                asked.close()
        except BaseException:
            loop = asyncio.get_running_loop()
            until = loop.call_later(AGAIN_HELD_S, self._let_go, job)
            self._held_again[job] = until, left.nodes
            raise
        self._occupy(left.nodes, -1)

    def _let_go(self, job: JobId) -> None:
        """Hold nodes no longer for another try."""
        if (held := self._held_again.pop(job, None)) is not None:
            until, nodes = held
            until.cancel()
            self._occupy(nodes, -1)

    async def has_checkpoint(self, job: JobId, path: str, step: int) -> bool:
        saved = await asyncio.to_thread(self._kept.of, job)
        return saved is not None and is_of(saved, path, step)

    async def put_back(
        self, job: JobId, left: Left, kept: KeptReport, lay: Callable[[str], Awaitable[None]]
    ) -> None:
        saved = await self._kept.put_back(job, left.folder, kept, lay)
        async with self._held(left.nodes, job) as links:
            await gather_all([self._kept.send(link, job, saved, left) for link in links])

    def _own(self, job: JobId) -> str:
        return f"{self.folders.root}/checkpoints/{job}"

    async def forget(self, job: JobId) -> None:
        """Remove the checkpoint of a job that is kept here."""
        for noted in (self._useless, self._pauses, self._troubles):
            noted.pop(job, None)
        if (carrying := self._carrying.pop(job, None)) is not None:
            carrying.cancel()
            await asyncio.wait([carrying])
        await asyncio.to_thread(self._kept.forget, job)

    async def close(self) -> None:
        """Fetch nothing more."""
        for carrying in self._carrying.values():
            carrying.cancel()
        await asyncio.gather(*self._carrying.values(), return_exceptions=True)

    async def files(self, left: Left, most: int) -> tuple[Sequence[FileBelow], bool]:
        found: dict[str, FileBelow] = {}
        is_all = True
        for node in left.nodes:
            listing = await self._ask(node, fm.ListFiles(left, most), fm.Listing)
            is_all &= listing.is_all
            for file in listing.files:
                found.setdefault(file.path, file)
        files = sorted(found.values(), key=lambda file: file.path.split("/"))
        return files[:most], is_all and len(files) <= most

    async def open_file(self, left: Left, path: str) -> OpenFile | None:
        refusal = fm.Part(code=Code.NOT_FOUND.value)
        for node in left.nodes:
            part = await self._ask(node, fm.ReadFile(left, path, 0, 0), fm.Part)
            if not part.code:
                return NodeFile(self, node, left, path, part)
            if part.code != Code.NOT_FOUND.value or refusal.message == "":
                refusal = part
        if refusal.code == Code.NOT_FOUND.value:
            return None
        raise refused_by_node(refusal.code, refusal.message, refusal.hint)

    async def piece(self, node: str, op: fm.ReadFile) -> fm.Part:
        """Return a piece of a file. Raises Rejected."""
        return await self._ask(node, op, fm.Part)

    async def _ask(self, node: str, op: fm.FileOp, kind: type[T]) -> T:
        """Ask a node about files. Raises Rejected where it cannot be asked now."""
        link = self._link_of(node)
        if link is None:
            raise Rejected(
                Code.UNAVAILABLE,
                f"The files are on the disk of node {node}, which is not held now.",
                "They can be read again when any job runs there.",
            )
        try:
            return await link.call(op, kind)
        except BackendError as error:
            message = f"Node {node} does not give the files: {error}."
            raise Rejected(Code.UNAVAILABLE, message, "Try again.") from error


def check_versions(links: Mapping[str, Link]) -> None:
    """Raise EngineAway where a runner is older than we are: it does not know what we ask."""
    for node, link in links.items():
        if link.hello.protocol != PROTOCOL:
            raise EngineAway(
                f"the runner of node {node} is of another version, and is renewed soon"
            )


def _can_be(watched: Watched | None, changed: Changed) -> bool:
    """Whether a node was asked for what it says, and that is no more than it may be."""
    is_short = watched is not None and len(changed.data) <= watched.most_bytes
    return is_short and abs(changed.at_ns) < 2**63


async def _told(link: Link, op: fm.FileOp) -> None:
    await link.call(op)


class NodeFile:
    """A file on a node, open for reading: a piece at a time is asked for."""

    def __init__(
        self, disks: NodeDisks, node: str, left: Left, path: str, first: fm.Part
    ) -> None:
        self.name = path.rpartition("/")[2]
        self.size = first.size
        self._disks, self._node, self._left, self._path = disks, node, left, path
        self._inode = first.inode
        self._at = 0

    async def read(self, most: int) -> bytes:
        op = fm.ReadFile(self._left, self._path, self._at, min(most, fm.PIECE))
        part = await self._disks.piece(self._node, op)
        if part.code or part.inode != self._inode or len(part.data) > op.size:
            raise BackendError(f"{self.name} was replaced while it was read")
        self._at += len(part.data)
        return part.data

    async def close(self) -> None:
        """Nothing stays open on the node."""
