"""Versions for tasks that open what they use with the rights of their user alone.

    data-links/JOB-ATTEMPT/N    what the N-th dataset of an attempt holds, as links to the files

Each attempt has its own. The files are those of the store: root's, and nobody may write to
them. Their folder is the user's, and nobody else may enter it: its path is no secret, since
command lines show it. What lies in a folder of its own the user can move to anywhere, so just
folders of root's do. One is made where only the service can go, and gets its name when it is
whole; it is taken away by one rename, too.
"""

import asyncio
import errno
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from threading import Thread
from typing import Final

from allotment.engine.records import JobRecord
from allotment.engine.state import State
from allotment.model.errors import BackendError, Code, Rejected
from allotment.model.ids import JobId
from allotment.rights.clearing import remove_all
from allotment.rights.disk import is_too_full
from allotment.rights.unmounting import unmount
from allotment.service.content.shelf import names_in
from allotment.service.data.store import DataStore
from allotment.service.ports import Identity
from allotment.service.threads import Threads

LINKS: Final = "data-links"
LOOK_EVERY_S: Final = 1.0
PATIENCE_S: Final = 60.0
"""How long the disk may take to rename folders."""
PROTECTED: Final = Path("/proc/sys/fs/protected_hardlinks")
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_SEES: Final = "On this engine tasks see versions of datasets as links to the service's files"
_ELSEWHERE: Final = "or name an engine of type local or pilot."


class DataLinks:
    """The links of all attempts under way."""

    def __init__(self, state: State, store: DataStore) -> None:
        self._state = state
        self._store = store
        self._root = store.root.parent / LINKS
        self._making = Threads("data-links", each=2, total=4)
        self._quick = Threads("data-links", each=1)
        self._there: set[str] = set()
        """What has its name, and is not taken away."""
        self._gone: list[Path] = []
        """What was taken away, and is to be removed."""
        self._removing = Thread()

    def prepare(self) -> None:
        """Make the folder; find what a service before this one made. Blocks."""
        self._root.mkdir(mode=0o711, exist_ok=True)
        self._root.chmod(0o711)  # Whatever the umask: users pass through, and list nothing.
        self._there = {path.name for path in names_in(self._root)}

    def place(self, job: JobRecord, number: int) -> str:
        """Return where the newest attempt of a job finds one of its datasets."""
        return f"{self._root}/{_name(job)}/{number}"

    async def check(self) -> None:
        """Raise Rejected where no links can be made here, or users could keep them."""
        try:
            await self._quick.run("check", self._try, PATIENCE_S)
        except TimeoutError:
            raise Rejected(
                Code.UNAVAILABLE,
                f"The disk of {self._root} does not answer.",
                "Try again.",
            ) from None

    def _try(self) -> None:
        if PROTECTED.read_text(encoding="ascii").strip() == "0":
            raise Rejected(
                Code.NOT_SUPPORTED,
                f"{_SEES}, and users could keep these: fs.protected_hardlinks is 0.",
                "Set it to 1 here and on all nodes (`sysctl fs.protected_hardlinks=1`), "
                f"{_ELSEWHERE}",
            )
        tried = self._store.fresh.path()
        there = self._root / tried.name
        try:
            tried.mkdir(mode=0o700)
            tried.rename(there)
            there.rmdir()
        except OSError as error:
            with suppress(OSError):
                tried.rmdir()
            raise Rejected(
                Code.NOT_SUPPORTED,
                f"{_SEES}, and these cannot be made from {self._store.root} to {self._root}: "
                f"{(error.strerror or str(error)).lower()}.",
                f"Have both on one file system that the nodes see, {_ELSEWHERE}",
            ) from error

    # ── one attempt ─────────────────────────────────────────────────────────────────

    async def ready(
        self,
        job: JobRecord,
        trees: Mapping[int, Path],
        owner: Identity | None,
        is_wanted: Callable[[], bool],
        patience_s: float,
    ) -> None:
        """Have what the newest attempt of a job sees, by number, as in `trees`. Idempotent.

        Returns early where it is not wanted any more. Raises BackendError.
        """
        work = partial(self._make, _name(job), trees, owner, is_wanted)
        try:
            await self._making.run(job.owner.user, work, patience_s)
        except TimeoutError:
            raise BackendError(
                f"the data of job {job.id} were not linked in {patience_s:.0f} s "
                "(`limits.pull`)"
            ) from None
        except OSError as error:
            raise BackendError(
                f"the data of job {job.id} cannot be linked: "
                f"{(error.strerror or str(error)).lower()}: {error.filename}"
            ) from error

    def _make(
        self,
        name: str,
        trees: Mapping[int, Path],
        owner: Identity | None,
        is_wanted: Callable[[], bool],
    ) -> None:
        if (self._root / name).is_dir():
            return
        made = self._store.fresh.path()
        made.mkdir(mode=0o700)
        try:
            copies: dict[int, str] = {}
            for number, tree in trees.items():
                _link(tree, made / str(number), copies, is_wanted)
                tree.stat()  # Else it was taken away meanwhile, and all of it may not be here.
            if owner is not None:
                os.chown(made, owner.uid, owner.gid)
            if is_wanted():
                made.rename(self._root / name)
                self._there.add(name)
        finally:
            remove_all([made])  # Nothing, once it has its name.

    # ── what goes ───────────────────────────────────────────────────────────────────

    async def look(self) -> None:
        """Take away what attempts saw that are over; it is removed beside that.

        Raises OSError where one cannot be taken away; the others are.
        """
        over = [name for name in tuple(self._there) if not self._is_under_way(name)]
        trouble: OSError | None = None
        if over:
            take = partial(self._take_away, over)
            gone, trouble = await self._quick.run("over", take, PATIENCE_S)
            self._gone += gone
        if self._gone and not self._removing.is_alive():
            self._removing = Thread(target=remove_all, args=[self._gone], daemon=True)
            self._removing.start()
            self._gone = []
        if trouble is not None:
            raise trouble

    async def clear(self) -> None:
        """Return when all is removed that can be of what attempts saw which are over."""
        while True:
            with suppress(OSError):  # It is told where this is looked at all the time.
                await self.look()
            if not self._removing.is_alive():
                return
            await asyncio.to_thread(self._removing.join)

    def _take_away(self, names: Sequence[str]) -> tuple[list[Path], OSError | None]:
        """Move what attempts saw to other names, and to no user.

        Return these names, and why it could not be done for all.
        """
        taken: list[Path] = []
        trouble: OSError | None = None
        for name in names:
            gone = self._store.fresh.path()
            try:
                _rename(self._root / name, gone)
                taken.append(gone)
                os.chown(gone, os.geteuid(), os.getegid())  # Also for who has it open.
            except FileNotFoundError:
                pass
            except OSError as error:
                trouble = error
                continue
            self._there.discard(name)
        return taken, trouble

    def _is_under_way(self, name: str) -> bool:
        job_id = name.partition("-")[0]
        job = self._state.jobs.get(JobId(int(job_id))) if job_id.isdecimal() else None
        return job is not None and job.attempt is not None and name == _name(job)


def _name(job: JobRecord) -> str:
    return f"{job.id}-{job.attempts[-1].no}"


def _rename(folder: Path, to: Path) -> None:
    """Rename a folder, from which is taken what its user mounted there. Raises OSError."""
    while True:
        try:
            folder.rename(to)
        except OSError as error:
            if error.errno != errno.EBUSY:
                raise
        else:
            return
        unmount(str(folder))


def _link(
    tree: Path, made: Path, copies: dict[int, str], is_wanted: Callable[[], bool]
) -> None:
    """Make a folder with the same folders and links as a tree, and links to its files.

    A file that has as many links as one may have is copied once, and noted by its number in
    `copies`. Returns early where it is not wanted any more. Raises OSError.
    """
    if is_too_full(made.parent, 0, 0):
        raise OSError(errno.ENOSPC, "the disk is nearly full", str(made.parent))
    made.mkdir(mode=0o755)
    made.chmod(0o755)
    source, target = os.open(tree, _FOLDER), os.open(made, _FOLDER)
    try:
        with os.scandir(source) as entries:
            for entry in entries:
                if not is_wanted():
                    return
                name = entry.name
                if entry.is_dir(follow_symlinks=False):
                    _link(tree / name, made / name, copies, is_wanted)
                elif entry.is_symlink():
                    os.symlink(os.readlink(name, dir_fd=source), name, dir_fd=target)
                elif known := copies.get(entry.inode()):
                    os.link(known, name, dst_dir_fd=target)
                else:
                    try:
                        os.link(name, name, src_dir_fd=source, dst_dir_fd=target)
                    except OSError as error:
                        if error.errno != errno.EMLINK:
                            raise
                        shutil.copy(tree / name, made / name)
                        copies[entry.inode()] = str(made / name)
    finally:
        os.close(source)
        os.close(target)
