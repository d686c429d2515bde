"""The workspace of nodes that keep jobs' files on disks of their own: asked by their links.

A gang's files lie on all its nodes. Of files of one name that of the first node counts, where
the gang's first task is. What a job reports is looked for there too.
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import TypeVar

from allotment.backends.pilot import file_messages as fm
from allotment.backends.pilot.link import Link
from allotment.backends.together import gather_all
from allotment.model.errors import BackendError, Code, Rejected
from allotment.model.ids import JobId
from allotment.service.batch.files import File
from allotment.service.launch import Folders
from allotment.service.workspace import Changed, FileBelow, JobFolders, Left, OpenFile, Watched

T = TypeVar("T")
LinkOf = Callable[[str], Link | None]
"""Returns the link to a node; None where its runner is not connected."""


class NodeDisks:
    """The folders of jobs on the nodes of one engine. `root` is the same on each."""

    def __init__(
        self, root: str, link_of: LinkOf, hold: Callable[[str], Coroutine[None, None, Link]]
    ) -> None:
        """`hold` has a node held, and returns its link; it raises EngineAway."""
        self.folders = Folders(root)
        self._link_of = link_of
        self._hold = hold

    async def prepare(self, nodes: Sequence[str], wanted: JobFolders) -> None:
        await self._tell(nodes, fm.MakeFolders(wanted))

    async def write(self, nodes: Sequence[str], job: JobId, files: Mapping[str, File]) -> None:
        await self._tell(nodes, fm.WriteFiles(job, files))

    async def _tell(self, nodes: Sequence[str], op: fm.FileOp) -> None:
        links: list[Link] = await gather_all([self._hold(node) for node in nodes])
        await gather_all([_told(link, op) for link in links])

    def look_now(self, watched: Watched) -> Sequence[Changed] | None:  # noqa: ARG002
        return None

    async def look(
        self, node: str, watched: Sequence[Watched], patience_s: float
    ) -> Sequence[Changed]:
        link = self._link_of(node)
        kept = tuple(each for each in watched if not self._stays_behind(each.file))
        if link is None or not kept:
            return ()
        async with asyncio.timeout(patience_s):
            return await link.call(fm.LookAt(kept), list[Changed])

    def _stays_behind(self, file: str) -> bool:
        """Whether a file tells of a checkpoint that no other node has."""
        own = f"{self.folders.root}/checkpoints/"
        return file.startswith(own) and file.endswith("/.allot-checkpoint.json")

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
        raise Rejected(Code(refusal.code), refusal.message, refusal.hint)

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
                "They can be had again when it is: while any job runs there.",
            )
        try:
            return await link.call(op, kind)
        except BackendError as error:
            message = f"Node {node} does not give the files: {error}."
            raise Rejected(Code.UNAVAILABLE, message, "Try again.") from error


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
        if part.code or part.inode != self._inode:
            raise BackendError(f"{self.name} was replaced while it was read")
        self._at += len(part.data)
        return part.data

    async def close(self) -> None:
        """Nothing stays open on the node."""
