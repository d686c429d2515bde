"""Data as things with names: who owns a dataset, who may use it, which versions it has."""

from collections.abc import Iterable
from enum import StrEnum

import msgspec

from allotment.model.ids import Actor, AttemptNo, JobId
from allotment.model.quantity import WallTime
from allotment.model.tenancy import Tenant


class DataKind(StrEnum):
    """Where the files of a dataset are."""

    MANAGED = "managed"
    """In the service's store, by content, as versions that never change."""
    FOLDER = "folder"
    """In a folder of the machine that an administrator registered; it has no versions."""
    OBJECTS = "objects"
    """In an object store; a version is what was there when somebody looked, or what was put."""


class Grantee(StrEnum):
    """Who can be given a right."""

    TENANT = "tenant"
    USER = "user"


class Grant(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """What a tenant's members, or one user, may do with a dataset: read, or write too."""

    to: Grantee
    name: str
    write: bool = False


class JobCheckpoint(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """Which checkpoint of a job a version is. `path` is below the job's checkpoint folder."""

    job: JobId
    attempt: AttemptNo
    path: str
    step: int = 0
    progress_milli: int = 0
    listed: str = ""
    """Of one in an object store: the SHA-256 of the list of its files, by our own books."""


class DataVersion(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A version of a dataset. `digest` is that of the list of its files."""

    number: int
    digest: str
    files: int
    bytes: int
    closed_at: WallTime
    user: str
    checkpoint: JobCheckpoint | None = None
    """Which it is, where a job's checkpoint became this version."""
    put: bool = False
    """Whether somebody put it to an object store: its files, and no other objects there."""


class ObjectPlace(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """Where in an object store the objects of a dataset are, and with whose key to ask."""

    endpoint: str
    """The store's address: `https://HOST`."""
    bucket: str
    prefix: str = ""
    """What their names begin with, without a slash at the end."""
    region: str = "us-east-1"
    profile: str = "default"
    """Of the owner's keys; '' where everybody may read."""

    def __str__(self) -> str:
        return f"s3://{self.bucket}" + (f"/{self.prefix}" if self.prefix else "")


class Dataset(msgspec.Struct, frozen=True, omit_defaults=True):
    """Data with a name, unique in its tenant. `id` is that of its place in the store."""

    tenant: str
    name: str
    id: str
    kind: DataKind
    user: str
    """Its owner."""
    uid: int | None = None
    """The same as a number."""
    created_at: WallTime = WallTime(0)
    folder: str = ""
    """Where the files of a registered folder are."""
    objects: ObjectPlace | None = None
    grants: tuple[Grant, ...] = ()
    versions: tuple[DataVersion, ...] = ()
    """In order of their numbers."""
    next_version: int = 1
    """Numbers are not used again."""

    @property
    def full(self) -> str:
        """Return its name with that of its tenant."""
        return f"{self.tenant}/{self.name}"

    def checkpoints_of(self, job: JobId) -> list[DataVersion]:
        """List the versions that are checkpoints of a job, the newest last."""
        return [
            each for each in self.versions if each.checkpoint and each.checkpoint.job == job
        ]

    def version(self, number: int) -> DataVersion | None:
        """Return a version by its number, the newest for 0; None where there is none."""
        if not number:
            return self.versions[-1] if self.versions else None
        return next((each for each in self.versions if each.number == number), None)


# ── who may what ────────────────────────────────────────────────────────────────────────


def is_member(actor: Actor, tenant: Tenant) -> bool:
    """Whether a user is one of a tenant's; of one that lists nobody everybody is."""
    if not (tenant.users or tenant.groups):
        return True
    return actor.user in tenant.users or not set(actor.groups).isdisjoint(tenant.groups)


def owns(dataset: Dataset, actor: Actor) -> bool:
    """Whether a user is the owner of a dataset."""
    return dataset.uid is not None and dataset.uid == actor.uid


def may_read(dataset: Dataset, actor: Actor, tenants: Iterable[Tenant]) -> bool:
    """Whether a user may use a dataset, and know of it: its owner and tenant, and by grants."""
    if owns(dataset, actor):
        return True
    theirs = {tenant.name for tenant in tenants if is_member(actor, tenant)}
    return dataset.tenant in theirs or any(
        _meets(grant, actor, theirs) for grant in dataset.grants
    )


def may_write(dataset: Dataset, actor: Actor, tenants: Iterable[Tenant]) -> bool:
    """Whether a user may add to a dataset: its owner, and by grants."""
    if owns(dataset, actor):
        return True
    theirs = {tenant.name for tenant in tenants if is_member(actor, tenant)}
    return any(grant.write and _meets(grant, actor, theirs) for grant in dataset.grants)


def _meets(grant: Grant, actor: Actor, tenants: set[str]) -> bool:
    return grant.name in tenants if grant.to is Grantee.TENANT else grant.name == actor.user
