"""Engines: the systems that run tasks, and what each of them is able to do."""

from collections.abc import Collection
from enum import StrEnum

import msgspec

from allotment.model.quantity import DEVICE, Millis, Resources
from allotment.model.spec import SUSPEND, JobSpec, Mpi

ANY_ENGINE = "any"
"""What a job says whose tasks may be spread over several engines."""


class Ability(StrEnum):
    """What some engines can do with a task, and others cannot."""

    SUSPENDS = "suspends"
    """A task can be frozen such that others may have its devices meanwhile."""
    DIVIDES = "divides"
    """Tasks can share a device, each with a part of it."""
    PINS = "pins"
    """A task gets the very devices that were chosen for it."""
    ENTERS = "enters"
    """A command can be run inside a running task's isolation."""
    MEASURES = "measures"
    """What running tasks and their devices use can be told."""
    IMAGES = "images"
    """A task can bring an image as its software."""
    PMI = "pmi"
    """Tasks can be the ranks of a program with MPI, which it tells of each other."""
    MPIRUN = "mpirun"
    """A task can start ranks in the other tasks of its job, with mpirun."""
    DATASETS = "datasets"
    """A task finds versions of datasets by their names where its job wants them."""
    FOLDERS = "folders"
    """The same of folders that an administrator registered under a name."""
    VERSIONS = "versions"
    """The service can read what a task leaves, and keep that as a version of a dataset."""
    ENVIRONMENTS = "environments"
    """A task finds the packages that its job asks for."""


class EngineType(StrEnum):
    """The kinds of engines there are."""

    LOCAL = "local"
    """This machine."""
    SLURM = "slurm"
    """A partition of a Slurm cluster, each task a Slurm job."""
    PILOT = "pilot"
    """A partition whose nodes are held as a whole, and run by our own runner."""
    KUBERNETES = "kubernetes"
    """A Kubernetes cluster, each task a pod."""


class RestSetup(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where slurmrestd answers, and where the token is that it wants; never the token."""

    server: str
    """Its URL, or `unix:PATH`."""
    token_file: str = ""
    token_command: tuple[str, ...] = ()
    user: str = ""
    """Whose the token is, where it does not say so."""


class EngineSetup(msgspec.Struct, frozen=True, omit_defaults=True):
    """An engine as it is configured: `partition` of those of Slurm, most of Kubernetes."""

    name: str
    type: EngineType
    partition: str = ""
    accounts: tuple[tuple[str, str], ...] = ()
    """To which of its accounts the jobs of a tenant are charged."""
    qos: str = ""
    """In which of its qualities of service they run."""
    kubeconfig: str = ""
    context: str = ""
    namespace: str = ""
    image: str = ""
    """The image of jobs that name none."""
    volumes: tuple[tuple[str, str], ...] = ()
    """Paths in pods, and the claim of what is there; or `host`."""
    force_after_ms: Millis = Millis(0)
    """For how long a node is silent until what ran there is taken for dead; 0: never."""
    namespaces: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Whose pods of others are taken, and for whom: TENANT or TENANT/QUEUE, the usual first."""
    folder: str = ""
    """Of pilots: on the own disk of each node; '' where nodes share the service's."""
    rest: RestSetup | None = None
    """How Slurm is asked, if not by its commands."""
    reservation: str = ""
    """Which of its reservations is for all jobs here, where and while there is one."""
    apptainer: str = ""
    """What runs images on the nodes of Slurm; '' for what is found here, `none` for nothing."""
    qos_of: tuple[tuple[str, str], ...] = ()
    """In which quality of service the jobs of a tenant run."""
    schedulers: tuple[str, ...] = ()
    """By which names, besides `allotment`, pods of `namespaces` may call their scheduler."""
    fence_after_ms: Millis = Millis(0)
    """For how long a task goes on that hears nothing of the service; 0: for ever."""
    visible: tuple[str, ...] = ()
    """Nodes whose pods are told their devices by their environment; `*` may stand in a name."""
    tenant_namespaces: tuple[tuple[str, str], ...] = ()
    """In which namespaces the pods of tenants are; that of '' has `{tenant}` in it, for all
    others."""
    labels: tuple[str, ...] = ()
    """Labels of its nodes that are kept, besides those that usually say where a node stands."""
    shared: tuple[tuple[str, str], ...] = ()
    """Folders of the service of which pods see what their tasks may, and the claim of each; or
    `host`."""


def lacks_of(abilities: Collection[Ability]) -> tuple[Ability, ...]:
    """Return what an engine with these abilities cannot do."""
    return tuple(ability for ability in Ability if ability not in abilities)


def asked_by(spec: JobSpec) -> tuple[Ability, ...]:
    """Return what a job asks of the engine of each of its tasks."""
    is_plain = not (
        spec.image or spec.data or spec.save or spec.checkpoint or spec.environment or spec.mpi
    )
    if is_plain and spec.on_eviction is not SUSPEND:
        return ()  # So most jobs are, and it is asked of all.
    suspends = (Ability.SUSPENDS,) if spec.on_eviction is SUSPEND else ()
    starts = {Mpi.NONE: (), Mpi.MPIRUN: (Ability.MPIRUN,)}.get(spec.mpi, (Ability.PMI,))
    brings = (
        (Ability.IMAGES, spec.image),
        (Ability.DATASETS, any(use.digest for use in spec.data)),
        (Ability.FOLDERS, any(not use.digest for use in spec.data)),
        (Ability.VERSIONS, spec.makes_versions),
        (Ability.ENVIRONMENTS, spec.environment),
    )
    return (*suspends, *(ability for ability, what in brings if what), *starts)


def asks_of(need: Resources, asks: tuple[Ability, ...]) -> tuple[Ability, ...]:
    """Return what a task's engine must be able to do, wherever it is put."""
    return (*asks, Ability.DIVIDES) if need.gpu_milli % DEVICE else asks
