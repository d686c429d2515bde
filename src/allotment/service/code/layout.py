"""A bundle laid out as a folder of its user's, for one attempt of a job.

It is made where only the service can go, and gets its name when it is whole: whatever its user
does meanwhile, no name of the user's is on the way. All that is made is a plain file, a folder
or a link that stays inside; nothing has a set-uid bit, and all is the user's.
"""

import errno
import os
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from allotment.engine.records import JobRecord
from allotment.model.errors import BackendError
from allotment.model.events import Phase
from allotment.model.ids import AttemptNo, JobId
from allotment.rights.removing import remove
from allotment.service.code.store import FOLDER, CodeStore, uid_of
from allotment.service.content.manifest import FileEntry, Manifest, folders_of
from allotment.service.launch import Account, Folders
from allotment.service.phases import took
from allotment.service.ports import Identity
from allotment.service.threads import Threads
from allotment.service.workspace import Carrying, CodeCopy, Listed, Workspace

_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_MODES: Final = {"f": 0o644, "x": 0o755}
_MOST_AT_ONCE: Final = 1 << 30


PATIENCE_S: Final = 300.0
"""How long it may take to lay out what a job took along."""


class Layouts:
    """Lays out the code of attempts that start, here or on their nodes."""

    def __init__(self, folders: Folders) -> None:
        """`folders` are the service's own."""
        self._folders = folders
        self._store = CodeStore(Path(folders.root))
        self._threads = Threads("layout", each=2, total=4)

    async def of(
        self,
        job: JobRecord,
        account: Account,
        workspace: Workspace,
        nodes: Sequence[str],
        limit: int,
        is_wanted: Callable[[], bool],
    ) -> tuple[Phase, ...]:
        """Make the working folder of an attempt; return how long that took. Idempotent.

        A node keeps `limit` bytes of one user's code at most. Returns early where it is not
        wanted any more. Raises BackendError, naming what failed.
        """
        if job.spec.code is None:
            return ()
        began = time.time()
        if isinstance(workspace, Carrying):
            copy = self._copy_of(job, job.spec.code.bundle, account.identity)
            await workspace.bring_code(nodes, copy, limit, is_wanted)
        else:  # Also where pods are shown this folder.
            await self._here(job, job.spec.code.bundle, account.identity)
        return took("code", began)

    def _copy_of(self, job: JobRecord, bundle: str, owner: Identity | None) -> CodeCopy:
        uid = uid_of(job.owner)
        code = Listed(
            f"{FOLDER}/{uid}",
            bundle,
            self._store.shelf(uid).list_file(bundle).read_bytes,
            partial(self._store.file, uid),
        )
        return CodeCopy(code, job.id, job.attempts[-1].no, owner)

    async def _here(self, job: JobRecord, bundle: str, owner: Identity | None) -> None:
        of_job = job.id, job.attempts[-1].no
        code = uid_of(job.owner), bundle
        work = partial(copy_for, self._store, self._folders, code, of_job, owner)
        try:
            await self._threads.run(job.owner.user, work, PATIENCE_S)
        except TimeoutError:
            raise BackendError(
                f"the code of job {job.id} was not laid out in {PATIENCE_S:.0f} s"
            ) from None
        except FileNotFoundError as error:
            raise BackendError(
                f"the code of job {job.id} is not in the store any more: {error.filename}"
            ) from error
        except OSError as error:
            raise BackendError(
                f"the code of job {job.id} cannot be laid out: {error.strerror}: "
                f"{error.filename}"
            ) from error


def copy_for(
    store: CodeStore,
    folders: Folders,
    code: tuple[int, str],
    of_job: tuple[JobId, AttemptNo],
    owner: Identity | None,
) -> None:
    """Make the working folder of an attempt; those of earlier attempts go. Raises OSError.

    `code` is whose it is, and its name.
    """
    place = Path(folders.code(*of_job))
    unnamed = _unnamed(place)
    place.parent.parent.mkdir(mode=0o755, exist_ok=True)
    place.parent.mkdir(mode=0o755, exist_ok=True)
    for folder in (place.parent.parent, place.parent):
        folder.chmod(0o755)
    for earlier in place.parent.iterdir():
        # What is made for this attempt may be of a call that nobody waited for: it goes on.
        if earlier != place and not earlier.name.startswith(unnamed):
            remove(None, str(earlier))
    uid, bundle = code
    lay_out(store, uid, store.manifest(uid, bundle), place, owner)


def drop_folders(folders: Folders, is_kept: Callable[[JobId], bool]) -> None:
    """Remove the working folders of jobs that are not kept."""
    try:
        names = [path for path in Path(folders.working()).iterdir() if path.name.isdecimal()]
    except FileNotFoundError:
        return
    for path in names:
        if not is_kept(JobId(int(path.name))):
            remove(None, str(path))


def lay_out(
    store: CodeStore, uid: int, manifest: Manifest, place: Path, owner: Identity | None
) -> None:
    """Make a folder with the files of a bundle, unless it is there. Raises OSError.

    The folder above `place` is there, and nobody else's: it is made beside its place, which
    may be on another disk than the store.
    """
    if os.path.lexists(place):
        return
    fresh = place.with_name(_unnamed(place) + os.urandom(8).hex())
    fresh.mkdir(mode=0o700)
    try:
        top = os.open(fresh, _FOLDER)
        try:
            _fill(top, store, uid, manifest.files, owner)
            _own(top, owner, 0o755)
        finally:
            os.close(top)
        _name(fresh, place)
    except BaseException:
        remove(None, str(fresh))
        raise


def _name(fresh: Path, place: Path) -> None:
    try:
        fresh.rename(place)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
        remove(None, str(fresh))  # Another call has made it meanwhile.


def _unnamed(place: Path) -> str:
    """Return how the name of a folder begins that is made for a place and is not whole."""
    return f".{place.name}-"


def _fill(
    top: int, store: CodeStore, uid: int, files: Sequence[FileEntry], owner: Identity | None
) -> None:
    folders = folders_of(files)
    for folder in folders:
        os.mkdir(folder, 0o700, dir_fd=top)
    for file in files:
        if file.kind == "l":
            os.symlink(file.of, file.path, dir_fd=top)
            if owner is not None:
                os.chown(file.path, owner.uid, owner.gid, dir_fd=top, follow_symlinks=False)
            continue
        made = os.open(file.path, _NEW, 0o600, dir_fd=top)
        try:
            _copy(store.file(uid, file.of), made, file)
            _own(made, owner, _MODES[file.kind])
        finally:
            os.close(made)
    for folder in folders:
        made = os.open(folder, _FOLDER, dir_fd=top)
        try:
            _own(made, owner, 0o755)
        finally:
            os.close(made)


def _copy(source: Path, made: int, file: FileEntry) -> None:
    fd = os.open(source, os.O_RDONLY | os.O_CLOEXEC)
    try:
        left = file.size
        while left:
            sent = os.sendfile(made, fd, None, min(left, _MOST_AT_ONCE))
            if not sent:
                break
            left -= sent
    finally:
        os.close(fd)
    if left:
        raise OSError(5, "a file of the code in the store is shorter than it was", file.path)


def _own(fd: int, owner: Identity | None, mode: int) -> None:
    if owner is not None:
        os.fchown(fd, owner.uid, owner.gid)
    os.fchmod(fd, mode)
