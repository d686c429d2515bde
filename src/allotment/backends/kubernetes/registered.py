"""Folders that an administrator registered, in pods.

A kubelet opens a folder by its path, with root's rights, and follows links. So whoever could
put a link on the path would be shown what is closed to all users.
"""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from allotment.backends.kubernetes.parts import above
from allotment.rights.fixed import changeable_in
from allotment.service.ports import DataMount
from allotment.service.threads import Threads

PATIENCE_S = 10.0


class Registered:
    """Looks at the paths of folders that are not the service's own, in `kept`."""

    def __init__(self, kept: Path) -> None:
        self._kept = {str(kept.absolute()): ""}
        self._threads = Threads("registered-folders")

    async def why_not(self, mounts: Sequence[DataMount]) -> str:
        """Return why some folders cannot be mounted in pods; '' where they can."""
        for path in {mount.source for mount in mounts if not above(mount.source, self._kept)}:
            try:
                folder = await self._threads.run(path, partial(changeable_in, path), PATIENCE_S)
            except TimeoutError:
                return f"the file system of {path} does not answer"
            except OSError as error:
                return f"{path}: {(error.strerror or 'it cannot be opened').lower()}"
            if folder:
                return f"not only root may write to {folder}, so {path} can be replaced"
        return ""
