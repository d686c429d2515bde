"""Makes and checks the folders of a job on the host: the only writer of them."""

import os
import pwd
import shutil
import time
from functools import lru_cache
from pathlib import Path

from allotment.engine.records import JobRecord
from allotment.model.errors import BackendError, Code, Rejected
from allotment.model.ids import Actor, JobId
from allotment.model.spec import JobSpec
from allotment.service.launch import Account, Folders, Nodes, hostfile
from allotment.service.ports import Identity


def account_of(owner: Actor) -> Account:
    """Find the host account a job runs under. As root: the submitting user's own.

    Asked of the host once a minute for each user: its directory may be slow.
    """
    return _account(owner, int(time.monotonic()) // 60)


@lru_cache(maxsize=1024)
def _account(owner: Actor, minute: int) -> Account:  # noqa: ARG001 - part of the key
    uid = os.geteuid() if owner.uid is None else owner.uid
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


def prepare(job: JobRecord, folders: Folders, account: Account, nodes: Nodes) -> None:
    """Make what an attempt needs: output, checkpoints, host file. Idempotent.

    Raises BackendError, naming the folder, when the host refuses.
    """
    attempt = job.attempts[-1]
    try:
        for path in (
            folders.outputs(job.id, job.spec),
            folders.output(job.id, job.spec, attempt.no),
            folders.checkpoints(job.id, job.spec),
        ):
            _make(Path(path), account.identity)
        _open_parents(Path(folders.attempt(job.id, attempt.no)), Path(folders.root))
        _tell(job, folders, nodes)
    except OSError as error:
        raise BackendError(
            f"cannot make the folders of job {job.id}: {error.strerror}: {error.filename}"
        ) from error


def tell_size(job: JobRecord, folders: Folders, nodes: Nodes) -> None:
    """Let the tasks of an elastic gang know how many they are, and where. Idempotent.

    Raises BackendError, naming the file, when the host refuses.
    """
    try:
        _tell(job, folders, nodes)
    except OSError as error:
        raise BackendError(
            f"cannot tell job {job.id} its size: {error.strerror}: {error.filename}"
        ) from error


def _tell(job: JobRecord, folders: Folders, nodes: Nodes) -> None:
    attempt = job.attempts[-1]
    _write(Path(folders.hostfile(job.id, attempt.no)), hostfile(job.spec, attempt, nodes))
    if job.spec.roles[-1].elastic:
        _write(Path(folders.size_file(job.id, attempt.no)), f"{attempt.staying}\n")


def _write(path: Path, text: str) -> None:
    """Replace a file as a whole: nobody reads half of it."""
    fresh = path.with_name(f".{path.name}.new")
    fresh.write_text(text)
    fresh.chmod(0o644)
    fresh.replace(path)


def _make(path: Path, identity: Identity | None) -> None:
    """Make a folder that belongs to the job's user.

    The parent may be the user's own, so nothing here follows a link laid in the way:
    `mkdir` refuses one and `lchown` changes only what was made.
    """
    if path.is_dir():
        return
    if not path.parent.is_dir():
        _make(path.parent, None if path.parent.name in SHARED else identity)
    path.mkdir(mode=0o755, exist_ok=True)
    if identity is not None:
        os.lchown(path, identity.uid, identity.gid)
    if path.name in SHARED:
        path.chmod(0o755)


SHARED = ("outputs", "checkpoints", "attempts")
"""Folders of ours that hold one folder a job: anybody may pass through."""


def _open_parents(path: Path, root: Path) -> None:
    """Make a folder that tasks of any user may pass through, up to the state folder."""
    if path.is_dir():
        return
    path.mkdir(parents=True, exist_ok=True)
    while path != root:
        path.chmod(0o755)
        path = path.parent


def forget(job: JobId, folders: Folders) -> None:
    """Remove what a job left below the state folder; a folder of the user's own stays."""
    for name in SHARED:
        shutil.rmtree(Path(folders.root) / name / str(job), ignore_errors=True)


def belongs_to(folder: Path, account: Account) -> bool:
    """Tell whether a folder is there and really the job's: its user may have laid a link."""
    try:
        found = folder.stat()
    except OSError:
        return False
    return account.identity is None or found.st_uid == account.identity.uid


def check_paths(spec: JobSpec, account: Account) -> None:
    """Check that the user can use the paths a job names. Raises Rejected.

    Asked as the user the tasks will run as, so that a root service leaks nothing.
    """
    wanted = [
        ("data", spec.data_dir, os.R_OK),
        ("code", spec.code_dir, os.R_OK),
        ("workdir", spec.workdir, os.X_OK),
        ("output", spec.output_dir, os.W_OK | os.X_OK),
    ]
    if spec.checkpoint is not None and spec.checkpoint.dir and spec.checkpoint.dir[0] != "/":
        raise Rejected(
            Code.PATH_UNUSABLE,
            f"checkpoint.dir: {spec.checkpoint.dir}: is not an absolute path.",
            "It is kept from one attempt to the next; leave it out to have one made.",
        )
    for key, path, mode in wanted:
        if path and (trouble := _trouble(path, mode, account.identity)):
            raise Rejected(
                Code.PATH_UNUSABLE,
                f"{key}: {path}: {trouble}.",
                "Paths are those of the machine that runs the job, as the submitting user.",
            )


def _trouble(path: str, mode: int, identity: Identity | None) -> str:
    if not path.startswith("/"):
        return "is not an absolute path"
    try:
        found = os.stat(path)  # noqa: PTH116 - the error's own text is what we want
        if identity is None:
            return "" if os.access(path, mode, effective_ids=True) else _denied(mode)
        for parent in Path(path).resolve().parents:
            if not _may(parent.stat(), os.X_OK, identity):
                return f"you may not pass through {parent}"
    except OSError as error:
        return (error.strerror or "cannot be used").lower()
    return "" if _may(found, mode, identity) else _denied(mode)


def _may(found: os.stat_result, mode: int, identity: Identity) -> bool:
    """Read the permission bits for another user, without becoming that user.

    Changing the effective user would change it for every thread of the service.
    """
    if found.st_uid == identity.uid:
        bits = found.st_mode >> 6
    elif found.st_gid in (identity.gid, *identity.groups):
        bits = found.st_mode >> 3
    else:
        bits = found.st_mode
    return bits & mode == mode


def _denied(mode: int) -> str:
    return "you may not " + ("write there" if mode & os.W_OK else "read it")
