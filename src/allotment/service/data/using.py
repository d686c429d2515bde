"""What jobs use of datasets: settled when they are submitted, mounted when they start.

Rights are looked at both times: a grant that was taken back meanwhile counts no more.
"""

import os
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

import msgspec

from allotment.engine.datasets import check_open, no_such_data
from allotment.engine.records import JobRecord
from allotment.engine.state import State
from allotment.model.data_use import DataReference, DataUse
from allotment.model.datasets import DataKind, Dataset, DataVersion
from allotment.model.diagnosis import Diagnosis, Owner, RetryClass
from allotment.model.engines import ANY_ENGINE, Ability
from allotment.model.errors import BackendError, Code, Rejected
from allotment.model.events import Phase
from allotment.model.ids import Actor
from allotment.model.quantity import show_bytes
from allotment.model.spec import JobSpec, Mpi
from allotment.rights.mount_points import look_for, trouble_of
from allotment.rights.user import rights_of
from allotment.service.abilities import INSTEAD
from allotment.service.data.datasets import Datasets
from allotment.service.data.objects.trouble import StoreTrouble
from allotment.service.data.restoring import Restoring
from allotment.service.data.store import FOLDER
from allotment.service.host_accounts import HostAccounts
from allotment.service.launch import Folders
from allotment.service.phases import took
from allotment.service.ports import (
    Backend,
    Contained,
    DataMount,
    Identity,
    Mounting,
    engines_for,
)
from allotment.service.threads import Threads
from allotment.service.workspace import Carrying, DataKept, Listed, OwnDisks, Workspace

MOST_USED: Final = 64
"""Datasets of one job."""
PATIENCE_S: Final = 10.0


class NotUsable(Exception):
    """A job cannot start, since what it uses is gone or not granted any more."""

    def __init__(self, diagnosis: Diagnosis) -> None:
        super().__init__(diagnosis.cause)
        self._diagnosis = diagnosis

    def diagnosis(self) -> Diagnosis:
        """Return what is told of the job."""
        return self._diagnosis


class DataUses:
    """Resolves, explains and finds what jobs use."""

    def __init__(
        self, state: State, datasets: Datasets, backend: Backend, restoring: Restoring
    ) -> None:
        self._state = state
        self._restoring = restoring
        self._in_stores = datasets.in_stores
        self._names = datasets.names
        self._store = datasets.store
        self._objects = datasets.objects
        self._links = datasets.links
        self._backend = backend
        self._state_dir = str(datasets.store.root.parent)
        self._accounts = HostAccounts()
        self._threads = Threads("mount-points")

    # ── at submission ───────────────────────────────────────────────────────────────

    async def settled(self, spec: JobSpec, owner: Actor) -> JobSpec:
        """Return a job with its datasets named in full, with the version that it will see.

        Raises Rejected.
        """
        if spec.save:
            spec = msgspec.structs.replace(spec, save=self._saved_to(spec, owner))
        if spec.checkpoint is not None and spec.checkpoint.save:
            named = await self._kept_in(spec.checkpoint.save, spec.tenant, owner)
            saves = msgspec.structs.replace(spec.checkpoint, save=named)
            spec = msgspec.structs.replace(spec, checkpoint=saves)
        if not spec.data:
            return spec
        self._check_use(spec)
        _check_apart([use.at for use in spec.data])
        used = tuple([await self._settled(use, spec.tenant, owner) for use in spec.data])
        asked = {Ability.DATASETS if use.digest else Ability.FOLDERS for use in used}
        may = self._mounting(spec.engine, asked)
        able = await self._able(may, spec, used, owner)
        here = [
            each
            for each in able.values()
            if not (isinstance(each, Contained) or _is_apart(each))
        ]
        if not spec.image and (here or not able):
            await self._check_places(used, owner)
        if any(_is_apart(each) or _opens_as_user(each) for each in able.values()):
            # Its files may have to go to a node, too, or to be linked.
            used = tuple(msgspec.structs.replace(use, fetched=bool(use.digest)) for use in used)
        if spec.engine in ("", ANY_ENGINE) and len(able) == 1 < len(may):
            spec = msgspec.structs.replace(spec, engine=next(iter(able)))
        return msgspec.structs.replace(spec, data=used)

    async def _settled(self, use: DataUse, tenant: str, owner: Actor) -> DataUse:
        named = self._names.reference(str(use))
        dataset = self._names.find(named, owner, prefer=tenant)
        if use.write:
            self._check_write(dataset, owner)
        version = await self._version(dataset, named, owner)
        if version is not None and use.digest and version.digest != use.digest:
            raise Rejected(
                Code.DATA_MISSING,
                f"{dataset.full}@{version.number} is not what it was: the dataset was removed, "
                "and another one got its name.",
                "Name the version that you want: `--set data.NAME@VERSION=/PATH`.",
            )
        return msgspec.structs.replace(
            use,
            tenant=dataset.tenant,
            version=version.number if version is not None else 0,
            digest=version.digest if version is not None else "",
            fetched=dataset.kind is DataKind.OBJECTS,
        )

    def _saved_to(self, spec: JobSpec, owner: Actor) -> str:
        """Return the whole name of the dataset that outputs are saved to. Raises Rejected."""
        dataset = self._next_of("save: outputs become", spec.save, spec.tenant, owner)
        check_open(dataset)
        return dataset.full

    async def _kept_in(self, name: str, tenant: str, owner: Actor) -> str:
        """Return the whole name of the dataset that keeps checkpoints. Raises Rejected."""
        what = "checkpoint.save: each checkpoint becomes"
        dataset = self._next_of(what, name, tenant, owner)
        check_open(dataset)
        if dataset.kind is DataKind.OBJECTS:
            await self._in_stores.check(dataset, owner)
        return dataset.full

    def _next_of(self, what: str, name: str, tenant: str, owner: Actor) -> Dataset:
        """Return the dataset that gets another version. Raises Rejected."""
        named = self._names.reference(name)
        if named.version:
            raise Rejected(
                Code.BAD_SPEC,
                f"{what} the next version of {named.name}, whatever its number.",
                f"Take @{named.version} away.",
            )
        return self._names.find_to_write(named, owner, prefer=tenant)

    async def _version(
        self, dataset: Dataset, named: DataReference, owner: Actor
    ) -> DataVersion | None:
        """Return which version is meant: of what is in a store, what is there now."""
        if dataset.kind is DataKind.OBJECTS and not named.version:
            return await self._objects.newest(dataset, owner)
        return self._names.version(dataset, named.version)

    def _check_write(self, dataset: Dataset, owner: Actor) -> None:
        if dataset.kind is not DataKind.FOLDER:
            raise Rejected(
                Code.BAD_SPEC,
                f"{dataset.full} cannot be written by jobs: its versions never change.",
                f"Take `write` out; `save: {dataset.full}` makes outputs its next version.",
            )
        if not self._names.may_write(dataset, owner):
            raise Rejected(
                Code.FORBIDDEN,
                f"{owner.user} may read {dataset.full}, and not write to it.",
                f"Take `write` out; or its owner grants it: `allot data grant {dataset.name} "
                f"user:{owner.user} --write`.",
            )

    async def _able(
        self,
        may: Mapping[str, Backend],
        spec: JobSpec,
        used: tuple[DataUse, ...],
        owner: Actor,
    ) -> Mapping[str, Backend]:
        """Return of these engines those that mount what a job uses.

        Raises Rejected where none does; and where several do and others not, as a job names
        one engine or none.
        """
        refused: dict[str, Rejected] = {}
        for name, engine in may.items():
            try:
                await self._check_mounts(engine, spec, used, owner)
            except Rejected as error:
                refused[name] = error
        left = {name: each for name, each in may.items() if name not in refused}
        if refused and not left:
            first = next(iter(refused.values()))
            words = " ".join(dict.fromkeys(each.message for each in refused.values()))
            raise Rejected(first.code, words, first.hint)
        if refused and len(left) > 1:
            raise Rejected(
                Code.NOT_SUPPORTED,
                " ".join(f"{name}: {each.message}" for name, each in refused.items()),
                f"Name an engine that can mount the data: {' or '.join(left)} (`engine`).",
            )
        return left

    async def _check_mounts(
        self, engine: Backend, spec: JobSpec, used: tuple[DataUse, ...], owner: Actor
    ) -> None:
        """Raise Rejected where an engine does not mount what a job uses for its user."""
        if isinstance(engine, Mounting):
            mounts = [self._found(use, Folders(self._state_dir)) for use in used]
            if why := await engine.why_no_mounts(mounts):
                raise Rejected(Code.NOT_SUPPORTED, why, INSTEAD[Ability.DATASETS])
            return
        if spec.mpi is Mpi.MPIRUN:
            raise Rejected(
                Code.NOT_SUPPORTED,
                "On this engine the ranks that mpirun starts do not find datasets.",
                "Take `mpi: pmix`, or name a folder by its path (`data: /PATH`).",
            )
        await self._check_rights([use for use in used if not use.digest], owner)
        if any(use.digest for use in used):
            await self._links.check()

    def _mounting(self, engine: str, asked: set[Ability]) -> Mapping[str, Backend]:
        """Return the engines that a job may run on, and that can do what is asked of them."""
        may = engines_for(self._backend, engine).items()
        return {name: each for name, each in may if each.abilities >= asked}

    def _check_use(self, spec: JobSpec) -> None:
        if len(spec.data) > MOST_USED:
            raise Rejected(
                Code.TOO_LARGE,
                f"A job may use {MOST_USED} datasets; it names {len(spec.data)}.",
                "Name fewer.",
            )
        for use in spec.data:
            if trouble := trouble_of(use.at):
                raise Rejected(
                    Code.PATH_UNUSABLE,
                    f"data: {use.at[:200]!r} {trouble}.",
                    f"Mount it at /data/{use.name}, for example.",
                )
            if _meet(use.at, self._state_dir):
                raise Rejected(
                    Code.PATH_UNUSABLE,
                    f"data: {use.at}: the service keeps its state there.",
                    f"Mount it at /data/{use.name}, for example.",
                )

    async def _check_rights(self, used: Sequence[DataUse], owner: Actor) -> None:
        """Raise Rejected where a folder is closed to a job's user, whose rights alone count."""
        for use in used:
            folder = self._state.datasets[use.tenant, use.name].folder
            await self._try_as(owner, use, partial(_open_folder, folder, use.write))

    async def _check_places(self, used: tuple[DataUse, ...], owner: Actor) -> None:
        """Raise Rejected where something cannot be mounted at its place on the machine."""
        for use in used:
            await self._try_as(owner, use, partial(_look, use.at))

    async def _try_as(
        self, owner: Actor, use: DataUse, look: Callable[[Identity | None], None]
    ) -> None:
        """Look at something on the disk with a user's rights. Raises Rejected."""
        try:
            account = await self._accounts.of(owner)
            await self._threads.run(owner.user, partial(look, account.identity), PATIENCE_S)
        except BackendError as error:
            raise Rejected(Code.UNAVAILABLE, f"{error}.", "Try again.") from error
        except TimeoutError:
            raise Rejected(
                Code.UNAVAILABLE,
                f"data: {use.at}: its file system does not answer.",
                "Try again, or mount it at another path.",
            ) from None
        except OSError as error:
            raise Rejected(
                Code.PATH_UNUSABLE,
                f"data: {use.at}: {error.strerror or error}.",
                f"Mount it at /data/{use.name}, for example.",
            ) from error

    def expected(self, spec: JobSpec) -> tuple[str, ...]:
        """Return what would be mounted for a job, and where what it leaves goes, in words."""
        told = [self._words(use, spec.engine) for use in spec.data]
        if spec.save:
            engines = engines_for(self._backend, spec.engine).values()
            come = "be fetched from its nodes and " if all(map(_is_apart, engines)) else ""
            told.append(f"save: outputs would {come}become {self._next_words(spec.save)}")
        how = spec.checkpoint
        if how is not None and how.save:
            told.append(
                f"checkpoint: each would become {self._next_words(how.save)}; "
                f"the newest {how.keep} stay"
            )
        return tuple(told)

    def _next_words(self, name: str) -> str:
        tenant, _, short = name.partition("/")  # Settled: it is in full.
        dataset = self._state.datasets.get((tenant, short))
        is_far = dataset is not None and dataset.kind is DataKind.OBJECTS
        return f"a version of {name}" + (", put to its object store" if is_far else "")

    def _words(self, use: DataUse, engine: str) -> str:
        dataset = self._state.datasets.get((use.tenant, use.name))
        version = dataset.version(use.version) if dataset and use.version else None
        size = ""
        if version is not None:
            files = "1 file" if version.files == 1 else f"{version.files:,} files"
            size = f" ({files}, {show_bytes(version.bytes)})"
        how = "to read and write" if use.write else "read-only"
        is_far = dataset and use.digest and not self._objects.is_here(dataset, use.digest)
        first = "fetched, and " if is_far else self._way(engine) if use.fetched else ""
        return f"data: {use}{size} would be {first}mounted at {use.at}, {how}"

    def _way(self, engine: str) -> str:
        """Return in words how a version that is here comes to tasks, if it has to come."""
        may = self._mounting(engine, {Ability.DATASETS}).values()
        if any(map(_is_apart, may)):
            return "sent to its node if need be, and "
        return "linked for the job, and " if any(map(_opens_as_user, may)) else ""

    # ── at the start ────────────────────────────────────────────────────────────────

    async def ready(
        self,
        job: JobRecord,
        workspace: Workspace,
        nodes: Sequence[str],
        is_wanted: Callable[[], bool],
    ) -> tuple[Phase, ...]:
        """Have what a job uses of object stores here, and its checkpoint, and what it uses
        linked for it, or on nodes that do not see this disk; return how long that took.

        Returns early where the job is not wanted any more. Raises NotUsable and BackendError.
        """
        # Nothing is fetched for who has no right to it any more.
        self.mounts_of(job, workspace.folders)
        phases: tuple[Phase, ...] = ()
        try:
            for use in job.spec.data:
                dataset = self._state.datasets.get((use.tenant, use.name))
                if dataset is not None and dataset.kind is DataKind.OBJECTS:
                    phases += await self._objects.ready(dataset, use.digest, is_wanted)
            self.mounts_of(job, workspace.folders)  # To fetch may have taken hours.
            if is_wanted() and self._is_linked(job):
                phases += await self._link(job, is_wanted)
            if is_wanted() and isinstance(workspace, Carrying):
                phases += await self._bring(job, workspace, nodes, is_wanted)
            if is_wanted():
                phases += await self._restoring.ready(job, workspace, nodes, is_wanted)
        except StoreTrouble as trouble:
            raise NotUsable(trouble.diagnosis()) from trouble
        return phases

    async def _bring(
        self,
        job: JobRecord,
        workspace: Carrying,
        nodes: Sequence[str],
        is_wanted: Callable[[], bool],
    ) -> tuple[Phase, ...]:
        """Have what a job uses on its nodes. Raises NotUsable and BackendError."""
        used = [use for use in job.spec.data if use.digest]
        if not used:
            return ()
        began, most = time.time(), self._state.config.limits.data_cache
        if (size := sum(map(self._size, used))) > most:
            raise NotUsable(_too_large(size, most))
        versions = [self._listed(use) for use in used]
        kept = DataKept(most, self._in_use)
        await workspace.bring_data(nodes, job.id, versions, kept, is_wanted)
        return took("data", began)

    def _is_linked(self, job: JobRecord) -> bool:
        """Whether the engine of a job's newest attempt opens what tasks see as their user."""
        if not job.attempts or not any(use.digest for use in job.spec.data):
            return False
        name = self._state.cluster.nodes[job.attempts[-1].slots[0].node].engine
        return any(map(_opens_as_user, engines_for(self._backend, name).values()))

    async def _link(self, job: JobRecord, is_wanted: Callable[[], bool]) -> tuple[Phase, ...]:
        """Have versions linked for an attempt. Raises BackendError."""
        began, datasets = time.time(), self._state.datasets
        trees = {
            number: self._store.tree(datasets[use.tenant, use.name].id, use.digest)
            for number, use in enumerate(job.spec.data)
            if use.digest
        }
        owner = (await self._accounts.of(job.owner)).identity
        patience_s = self._state.config.limits.pull_ms / 1000
        await self._links.ready(job, trees, owner, is_wanted, patience_s)
        return took("data", began)

    def _size(self, use: DataUse) -> int:
        version = self._state.datasets[use.tenant, use.name].version(use.version)
        return version.bytes if version is not None else 0

    def _listed(self, use: DataUse) -> Listed:
        """Return the files of a version, for nodes that do not see this disk."""
        dataset = self._state.datasets[use.tenant, use.name]
        shelf, is_far = self._store.shelf(dataset.id), dataset.kind is DataKind.OBJECTS
        here = shelf.list_file(use.digest).read_bytes
        there = partial(self._objects.cache.list_of, dataset.id, use.digest)
        return Listed(
            owner_of(dataset), use.digest, there if is_far else here, shelf.file, not is_far
        )

    def _in_use(self) -> frozenset[str]:
        """Return what jobs use that run or start, as nodes name it: O(jobs)."""
        datasets, jobs = self._state.datasets, self._state.jobs.values()
        uses = [use for job in jobs if job.attempt is not None for use in job.spec.data]
        return frozenset(
            f"{owner_of(dataset)}/{use.digest}"
            for use in uses
            if (dataset := datasets.get((use.tenant, use.name))) is not None
        )

    def mounts_of(self, job: JobRecord, folders: Folders) -> tuple[DataMount, ...]:
        """Return what is to be mounted for a job's tasks, on nodes whose folders these are.

        Raises NotUsable.
        """
        mounts = tuple(self._mount(job, use, folders) for use in job.spec.data)
        if not self._is_linked(job):
            return mounts
        return tuple(
            DataMount(self._links.place(job, number), use.at) if use.digest else mount
            for number, (use, mount) in enumerate(zip(job.spec.data, mounts, strict=True))
        )

    def _mount(self, job: JobRecord, use: DataUse, folders: Folders) -> DataMount:
        named = DataReference(use.name, use.tenant, use.version)
        dataset = self._state.datasets.get((use.tenant, use.name))
        if dataset is None or not self._names.may_read(dataset, job.owner):
            raise NotUsable(_gone(f"{no_such_data(str(named)).message}"))
        if use.write and not self._names.may_write(dataset, job.owner):
            raise NotUsable(
                _gone(f"{job.owner.user} may not write to {dataset.full} any more.")
            )
        if dataset.kind is DataKind.FOLDER and not use.digest:  # else it was another dataset
            return self._found(use, folders)
        version = dataset.version(use.version)
        if version is None or version.digest != use.digest:
            raise NotUsable(_gone(f"{named} was removed since the job was submitted."))
        return self._found(use, folders)

    def _found(self, use: DataUse, folders: Folders) -> DataMount:
        """Return where a job's dataset is, and where tasks find it."""
        dataset = self._state.datasets[use.tenant, use.name]
        if not use.digest:
            return DataMount(dataset.folder, use.at, use.write)
        return DataMount(folders.version(dataset.id, use.digest), use.at)


def _gone(cause: str) -> Diagnosis:
    return Diagnosis(
        "data_missing",
        cause,
        Owner.USER,
        RetryClass.NEVER,
        "See `allot data ls`; ask the dataset's owner, or name another version.",
    )


def _too_large(size: int, most: int) -> Diagnosis:
    return Diagnosis(
        "data_too_large",
        f"Its data are {show_bytes(size)}; a node keeps {show_bytes(most)} of data at most.",
        Owner.USER,
        RetryClass.NEVER,
        "Name another `engine`, or ask the administrator: `limits.data_cache`.",
    )


def owner_of(dataset: Dataset) -> str:
    """Return whose the files of a dataset are, as nodes name it."""
    return f"{FOLDER}/{dataset.id}"


def _is_apart(engine: Backend) -> bool:
    """Whether the nodes of an engine have disks of their own, to which data are brought."""
    return isinstance(engine, OwnDisks) and isinstance(engine.workspace_of(""), Carrying)


def _opens_as_user(engine: Backend) -> bool:
    """Whether tasks of an engine see folders with the rights of their user, and no others."""
    return not isinstance(engine, Mounting)


def _look(at: str, identity: Identity | None) -> None:
    uid = os.geteuid() if identity is None else identity.uid
    with rights_of(identity):
        look_for(at, uid)


def _open_folder(folder: str, write: bool, identity: Identity | None) -> None:
    """Raise Rejected where a user may not read a folder, or write to it."""
    with rights_of(identity):
        try:
            os.scandir(folder).close()
            if not write or os.access(folder, os.W_OK, effective_ids=True):
                return
            why = "you may not write there"
        except OSError as error:
            why = (error.strerror or str(error)).lower()
    raise Rejected(
        Code.FORBIDDEN,
        f"On this engine a folder is opened with your own rights, and {folder}: {why}.",
        "Ask its administrator for rights to the files, or name an engine of type local or "
        "pilot.",
    )


def _meet(one: str, other: str) -> bool:
    """Whether of two paths one is in the other."""
    return one == other or one.startswith(f"{other}/") or other.startswith(f"{one}/")


def _check_apart(places: list[str]) -> None:
    """Raise Rejected where one dataset would be mounted in another."""
    for number, one in enumerate(places):
        for other in places[:number]:
            if _meet(one, other):
                raise Rejected(
                    Code.BAD_SPEC,
                    f"data: {one} and {other} overlap: one is inside the other.",
                    "Mount each dataset at a place of its own.",
                )
