"""Makes and checks the folders of a job on the host: the only writer of them."""

import errno
import os
import pwd
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from pathlib import Path
from tempfile import mkdtemp
from typing import Final

from allotment.model.errors import BackendError, Code, Rejected
from allotment.model.ids import Actor, JobId
from allotment.model.spec import JobSpec
from allotment.rights import paths
from allotment.rights.removing import remove
from allotment.rights.user import rights_of
from allotment.service.batch.files import File
from allotment.service.launch import WORKING, Account, Folders
from allotment.service.ports import Identity
from allotment.service.threads import Threads
from allotment.service.workspace import JobFolders


def account_of(owner: Actor) -> Account:
    """Return the host account that a job runs under. As root: the user's own; else ours.

    The host is asked once a minute for each user, since its directory may be slow.
    """
    return _account(owner, int(time.monotonic()) // 60)


def uid_of(owner: Actor) -> int | None:
    """Return whose a job's files are; None where all are our own. Does not ask the host."""
    return owner.uid or None if os.geteuid() == 0 else None


@lru_cache(maxsize=1024)
def _account(owner: Actor, minute: int) -> Account:  # noqa: ARG001 - part of the key
    uid = os.geteuid() or owner.uid or 0
    try:
        entry = pwd.getpwuid(uid)
    except KeyError:
        entry = None
    name = entry.pw_name if entry else owner.user
    home = entry.pw_dir if entry else "/"
    shell = (entry.pw_shell if entry else "") or "/bin/sh"
    if os.geteuid() != 0 or uid == 0:
        return Account(name, home, shell)
    gid = entry.pw_gid if entry else uid
    groups = tuple(os.getgrouplist(name, gid)) if entry else (gid,)
    return Account(name, home, shell, Identity(uid, gid, groups))


def make(wanted: JobFolders, root: str) -> None:
    """Make what an attempt needs, below a root of ours or where its user named. Idempotent.

    May block. Raises BackendError, naming the folder, when the host or the user's rights
    refuse.
    """
    try:
        for name in ("outputs", "checkpoints"):
            ours = Path(root, name)
            if any(Path(path).is_relative_to(ours) for path in wanted.folders):
                _make_below(ours, str(wanted.job), wanted.identity)
        _make_as(wanted.folders, wanted.identity)
        if wanted.programs:
            make_tools(Path(wanted.programs), Path(root), wanted.program_files)
        _write_all(wanted.files, Path(root), wanted.identity)
    except OSError as error:
        raise BackendError(
            f"cannot make the folders of job {wanted.job}: {error.strerror}: {error.filename}"
        ) from error


def rewrite(job: JobId, files: Mapping[str, File], root: str) -> None:
    """Replace files of ours, each as a whole. Raises BackendError, naming the file."""
    try:
        _write_all(files, Path(root), None)
    except OSError as error:
        raise BackendError(
            f"cannot tell job {job} its size: {error.strerror}: {error.filename}"
        ) from error


def make_tools(tools: Path, root: Path, files: Mapping[str, File]) -> None:
    """Make the folder of the programs that scripts call, unless it is there.

    Several threads may do so at once: the first whose folder is complete wins.
    """
    if tools.is_dir():
        return
    _open_parents(tools.parent, root)
    fresh = Path(mkdtemp(dir=tools.parent))
    fresh.chmod(0o755)
    try:
        _write_all({f"{fresh}/{name}": file for name, file in files.items()}, root, None)
        fresh.rename(tools)
    except OSError:
        if not tools.is_dir():
            raise
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def _write_all(files: Mapping[str, File], root: Path, owner: Identity | None) -> None:
    for path, file in ((Path(name), file) for name, file in files.items()):
        _open_parents(path.parent, root)
        _write(path, file.text, file.mode, owner if file.is_private else None)


def _write(path: Path, text: str, mode: int = 0o644, owner: Identity | None = None) -> None:
    """Replace a file as a whole: nobody reads half of it."""
    fresh = path.with_name(f".{path.name}.new")
    try:
        fd = os.open(fresh, _NEW, 0o600)
    except FileExistsError:
        fresh.unlink(missing_ok=True)
        fd = os.open(fresh, _NEW, 0o600)
    with os.fdopen(fd, "wb") as file:
        file.write(text.encode())
        if owner is not None:
            os.fchown(fd, owner.uid, owner.gid)
        os.fchmod(fd, mode)
    fresh.replace(path)


_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def _make_below(ours: Path, name: str, identity: Identity | None) -> None:
    """Make the folder of a job in one of our own, where nobody else can lay anything."""
    path = ours / name
    try:
        path.mkdir(mode=0o755, exist_ok=True)
    except FileNotFoundError:
        ours.mkdir(mode=0o755, exist_ok=True)
        ours.chmod(0o755)
        path.mkdir(mode=0o755, exist_ok=True)
    if identity is not None:
        os.chown(path, identity.uid, identity.gid, follow_symlinks=False)


MKDIR_S = 25.0
"""How long a child may make folders: it is its user's, who may stop it."""


def _make_as(wanted: Sequence[str], identity: Identity | None) -> None:
    """Make folders, and those above them, with the rights of the job's user alone.

    Above them may lie what the user can swap for a link at any moment, so a service of the
    superuser has a child make them that has become the user. Raises OSError.
    """
    if identity is None:
        for path in wanted:
            Path(path).mkdir(mode=0o755, parents=True, exist_ok=True)
        return
    try:
        made = subprocess.run(
            ["/bin/mkdir", "-p", "-m", "755", "--", *wanted],
            timeout=MKDIR_S,
            user=identity.uid,
            group=identity.gid,
            extra_groups=identity.groups,
            umask=0o022,
            env={"LC_ALL": "C"},
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise TimeoutError(errno.ETIMEDOUT, "was not made in time", wanted[0]) from error
    if made.returncode:
        said = made.stderr.decode(errors="replace").splitlines() or ["mkdir failed"]
        what, _, why = said[0].rpartition(": ")
        raise OSError(made.returncode, why.lower(), what.partition("'")[2].strip("'"))


SHARED = ("outputs", "checkpoints", "attempts", WORKING)
"""Folders of ours that hold one folder a job: anybody may pass through."""


def _open_parents(path: Path, root: Path) -> None:
    """Make a folder that tasks of any user may pass through, up to the state folder."""
    try:
        path.mkdir()
    except FileExistsError:
        return
    except FileNotFoundError:
        _open_parents(path.parent, root)
        path.mkdir(exist_ok=True)
    if path != root:
        path.chmod(0o755)


def forget(job: JobId, folders: Folders) -> None:
    """Remove what a job left below the state folder; a folder of its user's own stays."""
    for name in SHARED:
        remove(None, f"{folders.root}/{name}/{job}")


class PathCheck:
    """Checks that users can use the paths that jobs name.

    A path may lie on a file system that does not answer: it is looked at in threads, and
    nobody waits for long.
    """

    def __init__(self, state_dir: str, is_seen: Callable[[JobSpec], bool]) -> None:
        """`is_seen` says whether this host sees the disk that a job's paths are on."""
        self._state_dir = state_dir
        self._is_seen = is_seen
        self._threads = Threads("paths")

    async def check(self, spec: JobSpec, owner: Actor) -> None:
        """Raise Rejected, naming the key and the path, when a path cannot be used.

        Paths are looked at as the user that the tasks run as, so that a service of root reveals
        nothing.
        """
        checkpoint = spec.checkpoint
        if checkpoint is not None and checkpoint.dir and checkpoint.dir[0] != "/":
            raise Rejected(
                Code.PATH_UNUSABLE,
                f"checkpoint.dir: {checkpoint.dir}: is not an absolute path.",
                "It is kept from one attempt to the next; leave it out to have one made.",
            )
        if (
            spec.image
            and not spec.code
            and spec.workdir
            and (trouble := _unsound(spec.workdir))
        ):
            raise Rejected(
                Code.PATH_UNUSABLE,
                f"workdir: {spec.workdir[:200]}: {trouble}.",
                "It is a path in the image, and made there where it is missing.",
            )
        if not self._is_seen(spec):
            _check_unseen(spec)
            return
        for key, path, mode in _named(spec):
            is_made = path == (checkpoint.dir if checkpoint is not None else "")
            look = partial(_look, key, path, mode, owner, self._state_dir, is_made=is_made)
            try:
                trouble = await self._threads.run(owner.user, look, PATIENCE_S)
            except TimeoutError:
                trouble = f"its file system did not answer within {PATIENCE_S:.0f} s"
            if trouble:
                raise Rejected(
                    Code.PATH_UNUSABLE,
                    f"{key}: {path}: {trouble}.",
                    "Paths are those of the machine that runs the job, as the submitting user."
                    + (_DATASET if key == "data" else ""),
                )


_DATASET: Final = " A dataset is named with its path in the job: data: {NAME: /data/NAME}."


def _check_unseen(spec: JobSpec) -> None:
    """Check paths on disks that only the job's nodes see. Raises Rejected."""
    for key, path, _ in _named(spec):
        if trouble := _unsound(path):
            hint = "Paths are those of the nodes that run the job."
            raise Rejected(Code.PATH_UNUSABLE, f"{key}: {path[:200]}: {trouble}.", hint)


PATIENCE_S = 10.0
LONGEST_PATH = 4095
MOST_PARTS = 150


def _unsound(path: str) -> str:
    """Return why a path is none that a task could have, whatever is there."""
    if not path.startswith("/"):
        return "is not an absolute path"
    if len(path.encode(errors="replace")) > LONGEST_PATH or path.count("/") > MOST_PARTS:
        return f"is longer than {LONGEST_PATH} bytes, or has more than {MOST_PARTS} parts"
    return ""


def _look(
    key: str, path: str, mode: int, owner: Actor, state_dir: str, *, is_made: bool
) -> str:
    """Return what keeps a user from a path; empty if nothing does. Blocks.

    One that `is_made` when it is not there needs a folder above it that can be written to.
    """
    if trouble := _unsound(path):
        return trouble
    with rights_of(account_of(owner).identity):
        if is_made:
            path = _there(path)
        try:
            fd = paths.resolve(path)
        except PermissionError:
            return f"you may not pass through {_closed(path)}"
        except OSError as error:
            return (error.strerror or "cannot be used").lower()
        try:
            here = Path(f"/proc/self/fd/{fd}")
            is_open = os.access(here, mode, effective_ids=True)
            real = str(here.readlink())
        finally:
            os.close(fd)
    return _not_for_jobs(key, real, state_dir) if is_open else _denied(mode)


def _there(path: str) -> str:
    """Return what is there of a path."""
    above = Path(path)
    while not os.path.lexists(above):
        above = above.parent
    return str(above)


def _closed(path: str) -> Path:
    """Return the first folder on the way that cannot be passed through."""
    *above, last = [*reversed(Path(path).parents), Path(path)]
    shut = (each for each in above if not os.access(each, os.X_OK, effective_ids=True))
    return next(shut, last)


SYSTEM = ("/proc", "/sys", "/dev")
"""What every task sees in its own way, and needs as it is."""

OF_JOBS = ("outputs", "checkpoints")
"""Folders of ours that jobs may name: what other jobs left."""


def _not_for_jobs(key: str, real: str, state_dir: str) -> str:
    """Return why a folder that its user may use is none for a job; empty if it is one."""
    place, state = Path(real), Path(state_dir).resolve()
    for system in SYSTEM if key in ("data", "code") else ():
        if place.is_relative_to(system):
            return f"lies in {system}, of which every task has its own"
        if Path(system).is_relative_to(place):
            return f"has {system} in it, which would become read-only; name a folder below it"
    if place == state or (
        place.is_relative_to(state) and place.relative_to(state).parts[0] not in OF_JOBS
    ):
        return "belongs to the service alone"
    return ""


def _named(spec: JobSpec) -> list[tuple[str, str, int]]:
    """List the paths a job names, and what it has to be able to do there."""
    wanted = (
        ("data", spec.data_dir, os.R_OK),
        ("code", spec.code_dir, os.R_OK),
        ("workdir", "" if spec.image or spec.code else spec.workdir, os.X_OK),
        ("output", spec.output_dir, os.W_OK | os.X_OK),
        ("checkpoint.dir", spec.checkpoint.dir if spec.checkpoint else "", os.W_OK | os.X_OK),
    )
    return [(key, path, mode) for key, path, mode in wanted if path]


def _denied(mode: int) -> str:
    return "you may not " + ("write there" if mode & os.W_OK else "read it")
