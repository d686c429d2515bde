"""Where the files of jobs are: folders made for them, what they report there, what they leave.

The service never opens a file of a job itself. It asks the workspace of the engine that the
job's tasks are on, and says whose rights count.
"""

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from pathlib import Path
from typing import Protocol, runtime_checkable

import msgspec

from allotment.model.ids import Actor, AttemptNo, JobId, TaskKey
from allotment.model.quantity import WallTime
from allotment.service.batch.files import File
from allotment.service.content.manifest import Kind as FileKind
from allotment.service.launch import Folders
from allotment.service.ports import Identity

# ── what a job needs ────────────────────────────────────────────────────────────────────


class JobFolders(msgspec.Struct, frozen=True):
    """What an attempt needs before its tasks begin."""

    job: JobId
    user: str
    folders: tuple[str, ...]
    """The user's own: made with that user's rights."""
    named: tuple[str, ...]
    """What of it the user named."""
    files: Mapping[str, File]
    """Allotment's own, by path."""
    programs: str = ""
    """A folder of programs that a batch script may call; '' for none."""
    program_files: Mapping[str, File] = {}
    """By path below that folder."""
    identity: Identity | None = None


class Watched(msgspec.Struct, frozen=True):
    """A file that a job may write: of which attempt, which change is known."""

    key: TaskKey
    """The first task of the attempt that it belongs to."""
    file: str
    most_bytes: int
    known_ns: int
    since_ns: int
    """What is dated before is of an earlier attempt."""
    owner: Actor
    uid: int | None
    """Whose it has to be; None where it is nobody else's."""
    nodes: tuple[str, ...] = ()
    """All nodes of the attempt, where they have disks of their own."""


class Changed(msgspec.Struct, frozen=True):
    """A file that changed."""

    key: TaskKey
    """The first task of the attempt that it belongs to."""
    at_ns: int
    """When, by its date."""
    data: bytes
    """The end of it; empty where it is no file of its job."""


class Kept(msgspec.Struct, frozen=True):
    """Folders that the service keeps for many jobs, and that an attempt needs on its nodes."""

    root: str
    """The service's folder."""
    names: tuple[str, ...]
    """Their paths below it, and below the folder of a node."""
    needed: Callable[[], Awaitable[tuple[str, ...]]]
    """Returns those of all jobs that have not ended: nodes remove none of these. To bring some
    takes so long that other jobs begin meanwhile."""
    limit: int
    """Bytes that a node may keep of such folders."""


class Listed(msgspec.Struct, frozen=True):
    """Files by content that an attempt needs on its nodes: its code, or a version of data."""

    owner: str
    """Whose they are, as a path below the service's folder, and below that of a node."""
    digest: str
    """Of the list of them."""
    read: Callable[[], bytes]
    """Returns that list. Blocks. Raises OSError."""
    file: Callable[[str], Path]
    """Returns where a file lies, by the name that the list has for it."""
    are_digests: bool = True
    """Whether these names are digests of what is in the files."""


class CodeCopy(msgspec.Struct, frozen=True):
    """The folder that an attempt works in, with the code that its job took along."""

    code: Listed
    job: JobId
    attempt: AttemptNo
    identity: Identity | None = None
    """Whose it becomes; None for whoever we are."""


class DataKept(msgspec.Struct, frozen=True):
    """What nodes may keep of data, for the next tasks that want them."""

    limit: int
    """Bytes."""
    in_use: Callable[[], frozenset[str]]
    """Returns those of jobs that run or start, as `OWNER/DIGEST`: these stay."""


# ── what a job leaves ───────────────────────────────────────────────────────────────────


class Left(msgspec.Struct, frozen=True):
    """The folder that an attempt left its files in, and who looks at it."""

    folder: str
    nodes: tuple[str, ...]
    """On which nodes the attempt was."""
    owner: Identity | None
    """Whose the folder has to be."""
    reader: Identity | None
    """With whose rights it is looked at."""
    name: str
    """The reader's."""
    asked_by: str


class FileBelow(msgspec.Struct, frozen=True):
    """A file, by its path from the folder; its bytes, and when it changed."""

    path: str
    size: int
    changed_ms: int


class OpenFile(Protocol):
    """A file open for reading: its name, and its size at that moment."""

    @property
    def name(self) -> str: ...

    @property
    def size(self) -> int: ...

    async def read(self, most: int) -> bytes:
        """Return the next bytes; none at the end. Raises OSError or BackendError."""
        ...

    async def close(self) -> None: ...


class LeftFile(Protocol):
    """A file that is to become part of a version, open for one thread."""

    @property
    def size(self) -> int: ...

    @property
    def kind(self) -> FileKind: ...

    @property
    def digest(self) -> str:
        """Return what its SHA-256 should be; zeros where nobody read it before."""
        ...

    def pieces(self, offset: int, size: int) -> Iterator[bytes]:
        """Read a part of it, as several threads may. Raises OSError, Rejected, BackendError."""
        ...


class LeftFiles(Protocol):
    """Files that a job left, or a part of them, to become a version: for one thread."""

    @property
    def only(self) -> str:
        """Return which part of their folder is meant; '' for all of it."""
        ...

    @property
    def nodes(self) -> tuple[str, ...]:
        """Return from which nodes they have to come; none where they are here."""
        ...

    def files(self, most: int) -> tuple[Sequence[FileBelow], bool]:
        """Return at most so many files, in order; and whether these are all.

        Raises FileNotFoundError where there is no such folder, and as `LeftFile`.
        """
        ...

    def opened(self, path: str) -> AbstractContextManager[LeftFile]:
        """Open one of them. Raises as `LeftFile`."""
        ...

    def close(self) -> None:
        """Read nothing more."""
        ...


class KeptReport(msgspec.Struct, frozen=True):
    """What is told of a checkpoint that is put back. `path` is below its job's folder."""

    path: str
    step: int
    progress_milli: int
    at: WallTime


# ── the port ────────────────────────────────────────────────────────────────────────────


class Workspace(Protocol):
    """The folders of jobs, on one disk or on many. Paths are those that tasks see."""

    folders: Folders

    async def prepare(self, nodes: Sequence[str], wanted: JobFolders) -> None:
        """Make what an attempt needs on its nodes. Idempotent.

        Raises BackendError, naming the folder, where it cannot be made; EngineAway where a
        node cannot be asked now.
        """
        ...

    async def write(self, nodes: Sequence[str], job: JobId, files: Mapping[str, File]) -> None:
        """Replace files of Allotment's own, each as a whole. Raises as `prepare`."""
        ...

    def look_now(self, watched: Watched) -> Sequence[Changed] | None:
        """Look at a file at once; None where that may take long: `look` is for it."""
        ...

    async def look(
        self, node: str, watched: Sequence[Watched], patience_s: float
    ) -> Sequence[Changed]:
        """Return which files of one user changed. Raises TimeoutError."""
        ...

    async def last_look(self, node: str, watched: Watched) -> Sequence[Changed]:
        """Look once more at a file of an attempt that ended. Raises TimeoutError.

        What it says is saved is there for the next attempt, on whichever nodes.
        """
        ...

    def warnings_of(self, job: JobId) -> tuple[str, ...]:
        """Return what the owner of a job should know of its files."""
        ...

    async def files(self, left: Left, most: int) -> tuple[Sequence[FileBelow], bool]:
        """Return at most so many files that an attempt left, in order; whether these are all.

        Raises Rejected where they cannot be looked at.
        """
        ...

    async def open_file(self, left: Left, path: str) -> OpenFile | None:
        """Open one of these files; None where there is no such folder. Raises Rejected."""
        ...


@runtime_checkable
class Carrying(Protocol):
    """An ability of some workspaces: carry files between the service and disks of nodes."""

    folders: Folders

    async def bring(
        self, nodes: Sequence[str], job: JobId, kept: Kept, is_wanted: Callable[[], bool]
    ) -> None:
        """Have folders on nodes, whole and as they are here. Returns early where they are not
        wanted any more. Raises BackendError."""
        ...

    async def bring_data(
        self,
        nodes: Sequence[str],
        job: JobId,
        versions: Sequence[Listed],
        kept: DataKept,
        is_wanted: Callable[[], bool],
    ) -> None:
        """Have versions of data on nodes, each laid out at the path that `folders` says.

        As `bring`: what came whole is not sent again.
        """
        ...

    async def bring_code(
        self, nodes: Sequence[str], copy: CodeCopy, limit: int, is_wanted: Callable[[], bool]
    ) -> None:
        """Have a copy of a job's code on its nodes, where `folders` says. As `bring`.

        A node keeps `limit` bytes of one user's code at most.
        """
        ...

    def left_files(
        self, job: JobId, left: Left, only: str = "", step: int = 0
    ) -> AbstractAsyncContextManager[LeftFiles]:
        """Have the files of a folder at hand, or of `only` a part: a checkpoint at a step.

        Raises EngineAway where a node cannot be asked now, and Rejected where a checkpoint is
        not the newest any more.
        """
        ...

    async def has_checkpoint(self, job: JobId, path: str, step: int) -> bool:
        """Whether a job finds a checkpoint that it reported: `prepare` puts it to its nodes.

        Raises BackendError.
        """
        ...

    async def put_back(
        self, job: JobId, left: Left, kept: KeptReport, lay: Callable[[str], Awaitable[None]]
    ) -> None:
        """Have a checkpoint that `lay` puts below a folder on nodes, whole.

        Raises BackendError, and what `lay` does.
        """
        ...


@runtime_checkable
class OwnDisks(Protocol):
    """An ability of some backends: their nodes keep jobs' files on disks of their own."""

    def workspace_of(self, node: str) -> Workspace | None:
        """Return where the files of a node's jobs are; None where the service sees them."""
        ...
