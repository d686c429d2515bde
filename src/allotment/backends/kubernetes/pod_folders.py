"""The files of jobs whose pods see no disk but their own: they go with their pods."""

from collections.abc import Mapping, Sequence

from allotment.model.ids import JobId
from allotment.service.batch.files import File
from allotment.service.launch import Folders
from allotment.service.workspace import Changed, FileBelow, JobFolders, Left, OpenFile, Watched


class PodFolders:
    """A workspace in which the service makes nothing and finds nothing: a pod gets its folders
    with itself (`request.py`). Their paths begin with `root`; environments are those of the
    service's own folder, `kept`."""

    def __init__(self, root: str, kept: str) -> None:
        self.folders = Folders(root, kept)

    async def prepare(self, nodes: Sequence[str], wanted: JobFolders) -> None:
        """Make nothing."""

    async def write(self, nodes: Sequence[str], job: JobId, files: Mapping[str, File]) -> None:
        """Write nothing: no pod would see it."""

    def look_now(self, watched: Watched) -> Sequence[Changed]:  # noqa: ARG002 - none is seen
        return ()

    async def look(
        self,
        node: str,  # noqa: ARG002
        watched: Sequence[Watched],  # noqa: ARG002
        patience_s: float,  # noqa: ARG002
    ) -> Sequence[Changed]:
        return ()

    async def last_look(self, node: str, watched: Watched) -> Sequence[Changed]:  # noqa: ARG002
        return ()

    def warnings_of(self, job: JobId) -> tuple[str, ...]:  # noqa: ARG002
        return ()

    async def files(self, left: Left, most: int) -> tuple[Sequence[FileBelow], bool]:  # noqa: ARG002
        return (), True

    async def open_file(self, left: Left, path: str) -> OpenFile | None:  # noqa: ARG002
        return None
