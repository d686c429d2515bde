"""Datasets are made, get versions and grants, and go: commands in, events out.

Whether a user may do so is looked at before; here only what the state can tell.
"""

import posixpath
from collections.abc import Iterator

import msgspec

from allotment.engine.state import State
from allotment.model import commands as c
from allotment.model import events as e
from allotment.model.data_use import NAME
from allotment.model.datasets import DataKind, Dataset, DataVersion, Grant, Grantee
from allotment.model.errors import Code, Rejected
from allotment.model.ids import Actor, JobId
from allotment.model.quantity import Instant

Emit = Iterator[e.AnyEvent]

MOST_DATASETS = 10_000
"""Of one tenant."""
MOST_VERSIONS = 1_000
MOST_GRANTS = 1_000
_LONGEST_PATH = 1024


def decide_on_data(state: State, command: c.DataCommand, actor: Actor, now: Instant) -> Emit:
    """Return the events of a wish about a dataset. Raises Rejected."""
    match command:
        case c.CreateDataset():
            return _create(state, command, actor, now)
        case c.CloseVersion():
            return _close(state, command, actor, now)
        case c.GrantData():
            return _grant(state, command)
        case c.RevokeData():
            return _revoke(state, command)
        case c.RemoveData():
            return _remove(state, command)
        case _:
            raise TypeError(command)


def no_such_data(named: str) -> Rejected:
    """Make the refusal of a dataset that is not there, or not this user's to know of."""
    return Rejected(
        Code.DATA_MISSING,
        f"There is no dataset {named[:200]} that you may use.",
        "`allot data ls` lists those you may; `allot data create` makes one. An owner can "
        "grant it to you or your tenant.",
    )


def present(state: State, dataset: Dataset) -> Dataset | None:
    """Return a dataset as it is now; None where it was removed, whatever has its name."""
    found = state.datasets.get((dataset.tenant, dataset.name))
    return found if found is not None and found.id == dataset.id else None


def _found(state: State, command: c.DataCommand) -> Dataset:
    found = state.datasets.get((command.tenant, command.name))
    if found is None:
        raise no_such_data(f"{command.tenant}/{command.name}")
    return found


# ── datasets ────────────────────────────────────────────────────────────────────────────


def _create(state: State, command: c.CreateDataset, actor: Actor, now: Instant) -> Emit:
    name, tenant = command.name, command.tenant
    if not NAME.fullmatch(name):
        raise Rejected(
            Code.BAD_REQUEST,
            f"{name[:80]!r} cannot be the name of a dataset.",
            "Use letters, digits, '.', '_' and '-', at most 63 of them.",
        )
    if tenant not in {each.name for each in state.config.tenants}:
        names = ", ".join(sorted(each.name for each in state.config.tenants))
        raise Rejected(
            Code.NO_SUCH_TENANT, f"There is no tenant {tenant!r}.", f"Tenants here: {names}."
        )
    if (tenant, name) in state.datasets:
        raise Rejected(
            Code.CONFLICT,
            f"There is a dataset {tenant}/{name} already.",
            f"`allot data put {name} DIR` adds a version to it; or take another name."
            if state.datasets[tenant, name].kind is not DataKind.FOLDER
            else "Take another name.",
        )
    if sum(1 for key in state.datasets if key[0] == tenant) >= MOST_DATASETS:
        raise Rejected(
            Code.TOO_LARGE,
            f"Tenant {tenant} has {MOST_DATASETS:,} datasets, and may have no more.",
            "Remove one: `allot data rm NAME`.",
        )
    if command.folder:
        _check_folder(command.folder)
    yield e.DatasetCreated(
        Dataset(
            tenant=tenant,
            name=name,
            id=command.id,
            kind=_kind_of(command),
            user=actor.user,
            uid=actor.uid,
            created_at=state.wall(now),
            folder=command.folder,
            objects=command.objects,
        )
    )


def _kind_of(command: c.CreateDataset) -> DataKind:
    if command.objects is not None:
        return DataKind.OBJECTS
    return DataKind.FOLDER if command.folder else DataKind.MANAGED


def _check_folder(path: str) -> None:
    # Two slashes at the beginning are left by `normpath`.
    is_plain = path[:1] == "/" != path[1:2] and posixpath.normpath(path) == path != "/"
    if not is_plain or not path.isprintable() or len(path.encode()) > _LONGEST_PATH:
        raise Rejected(
            Code.PATH_UNUSABLE,
            f"{path[:200]!r} cannot be the folder of a dataset.",
            "Name an absolute path without links, '.', '..' or '//' in it.",
        )


def _remove(state: State, command: c.RemoveData) -> Emit:
    dataset = _found(state, command)
    number = command.version
    if number and dataset.version(number) is None:
        raise no_such_version(dataset, number)
    users = users_of(state, dataset, number)
    if users:
        named = ", ".join(str(job) for job in users[:5]) + (" …" if len(users) > 5 else "")
        what = f"{dataset.full}@{number}" if number else dataset.full
        raise Rejected(
            Code.CONFLICT,
            f"{what} is used by jobs that run, or are its owner's own: {named}.",
            "Remove it when they have ended, or cancel them.",
        )
    yield e.DatasetRemoved(dataset.tenant, dataset.name, number)


def users_of(state: State, dataset: Dataset, number: int) -> list[JobId]:
    """Return the jobs that keep a version from going, or with 0 any: O(jobs).

    Those that run, and the owner's own that wait. Others who may read could have jobs wait for
    ever, and the owner cannot cancel them.
    """
    return [
        job.id
        for job in state.jobs.values()
        if job.spec.data and not job.state.finished
        if job.attempt is not None or job.owner.uid == dataset.uid
        if any(
            (use.tenant, use.name) == (dataset.tenant, dataset.name)
            and number in (0, use.version)
            for use in job.spec.data
        )
    ]


# ── versions ────────────────────────────────────────────────────────────────────────────


def no_such_version(dataset: Dataset, number: int) -> Rejected:
    """Make the refusal of a version that is not there."""
    if dataset.kind is DataKind.FOLDER:
        return Rejected(
            Code.BAD_REQUEST,
            f"{dataset.full} is a folder that an administrator registered: it has no versions.",
            f"Take @{number} away.",
        )
    there = ", ".join(str(each.number) for each in dataset.versions[-10:]) or "none yet"
    makes = (
        "A job that names no version makes one from the present objects of the store."
        if dataset.kind is DataKind.OBJECTS
        else f"`allot data put {dataset.name} DIR` makes one."
    )
    return Rejected(
        Code.DATA_MISSING,
        f"{dataset.full} has no version {number}." if number else
        f"{dataset.full} has no version yet.",
        f"Versions there: {there}. {makes}",
    )  # fmt: skip


def check_open(dataset: Dataset) -> None:
    """Raise Rejected where a dataset takes no versions that people put."""
    if dataset.objects is not None:
        if not dataset.objects.profile:
            raise Rejected(
                Code.NOT_SUPPORTED,
                f"{dataset.full} is read without a key, so nothing can be put there.",
                "Make a dataset of it with `--profile`, or name another dataset.",
            )
        return  # Where there are too many versions, the oldest goes.
    if dataset.kind is DataKind.FOLDER:
        raise Rejected(
            Code.NOT_SUPPORTED,
            f"{dataset.full} is a folder that an administrator registered, not a store.",
            "Write to the folder: jobs may where they are granted it (`write: true`).",
        )
    if len(dataset.versions) >= MOST_VERSIONS:
        raise Rejected(
            Code.TOO_LARGE,
            f"{dataset.full} has {MOST_VERSIONS:,} versions, and may have no more.",
            f"Remove old ones: `allot data rm {dataset.name}@{dataset.versions[0].number}`.",
        )


def _close(state: State, command: c.CloseVersion, actor: Actor, now: Instant) -> Emit:
    dataset = _found(state, command)
    newest = dataset.version(0)
    of = command.digest, command.checkpoint
    if newest is not None and (newest.digest, newest.checkpoint) == of:
        return  # The same files again are no other version.
    if dataset.kind is DataKind.OBJECTS:
        yield from _make_way(state, dataset)
    else:
        check_open(dataset)
    version = DataVersion(
        number=dataset.next_version,
        digest=command.digest,
        files=command.files,
        bytes=command.bytes,
        closed_at=state.wall(now),
        user=actor.user,
        checkpoint=command.checkpoint,
        put=command.put,
    )
    yield e.DatasetVersionClosed(dataset.tenant, dataset.name, version)


def _make_way(state: State, dataset: Dataset) -> Emit:
    """Forget the oldest version that no job needs, where there are as many as may be.

    Most come by themselves, so nobody would look after them.
    """
    if len(dataset.versions) < MOST_VERSIONS:
        return
    needed = {
        use.version
        for job in state.jobs.values()
        if job.spec.data and not job.state.finished
        for use in job.spec.data
        if (use.tenant, use.name) == (dataset.tenant, dataset.name)
    }
    oldest = next((each for each in dataset.versions if each.number not in needed), None)
    if oldest is None:
        raise Rejected(
            Code.TOO_LARGE,
            f"{dataset.full} has {MOST_VERSIONS:,} versions that jobs need.",
            "Wait until some of these have ended.",
        )
    yield e.DatasetRemoved(dataset.tenant, dataset.name, oldest.number)


# ── rights ──────────────────────────────────────────────────────────────────────────────


def _grant(state: State, command: c.GrantData) -> Emit:
    dataset, grant = _found(state, command), command.grant
    tenants = sorted(each.name for each in state.config.tenants)
    if grant.to is Grantee.TENANT and grant.name not in tenants:
        raise Rejected(
            Code.NO_SUCH_TENANT,
            f"There is no tenant {grant.name!r}.",
            f"Tenants here: {', '.join(tenants)}.",
        )
    if not grant.name or len(grant.name) > 256 or not grant.name.isprintable():
        raise Rejected(
            Code.BAD_REQUEST,
            f"{grant.name[:80]!r} is not a user or a tenant.",
            "Write the name of one, such as tenant:vision or user:ann.",
        )
    if grant in dataset.grants:
        return
    if len(dataset.grants) >= MOST_GRANTS:
        raise Rejected(
            Code.TOO_LARGE,
            f"{dataset.full} has {MOST_GRANTS:,} grants, and may have no more.",
            "Grant it to a tenant in place of its users.",
        )
    yield e.DatasetGranted(dataset.tenant, dataset.name, grant)


def _revoke(state: State, command: c.RevokeData) -> Emit:
    dataset = _found(state, command)
    if not any((each.to, each.name) == (command.to, command.who) for each in dataset.grants):
        raise Rejected(
            Code.NOT_FOUND,
            f"{dataset.full} is not granted to {command.to.value} {command.who[:80]}.",
            f"`allot data show {dataset.name}` lists its grants.",
        )
    yield e.DatasetRevoked(dataset.tenant, dataset.name, command.to, command.who)


# ── the state ───────────────────────────────────────────────────────────────────────────


def after(dataset: Dataset, event: e.DatasetEvent) -> Dataset | None:
    """Return a dataset as an event leaves it; None where it is gone."""
    match event:
        case e.DatasetVersionClosed(version=version):
            return msgspec.structs.replace(
                dataset,
                versions=(*dataset.versions, version),
                next_version=version.number + 1,
            )
        case e.DatasetGranted(grant=grant):
            others = _grants_but(dataset, grant.to, grant.name)
            return msgspec.structs.replace(dataset, grants=(*others, grant))
        case e.DatasetRevoked(to=to, who=who):
            return msgspec.structs.replace(dataset, grants=tuple(_grants_but(dataset, to, who)))
        case e.DatasetRemoved(version=0):
            return None
        case e.DatasetRemoved(version=number):
            kept = tuple(each for each in dataset.versions if each.number != number)
            return msgspec.structs.replace(dataset, versions=kept)
        case _:
            raise TypeError(event)


def _grants_but(dataset: Dataset, to: Grantee, who: str) -> list[Grant]:
    return [each for each in dataset.grants if (each.to, each.name) != (to, who)]
