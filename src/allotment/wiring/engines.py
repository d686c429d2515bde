"""The engines of a service: which there are, the nodes they find, and what they cannot do."""

import os
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import msgspec
import structlog

from allotment.engine.state import State
from allotment.model.cells import CellType
from allotment.model.cluster import Node
from allotment.model.engines import Ability, EngineSetup, EngineType, lacks_of
from allotment.model.errors import BackendError, BadInput, EngineAway, NoNodes, Problem
from allotment.model.ids import DeviceIndex, NodeId
from allotment.model.spec import GiveWay
from allotment.model.tenancy import Config
from allotment.rights.writing import write_whole
from allotment.service.data.store import FOLDER
from allotment.service.isolated import PLAIN, isolated
from allotment.service.ports import Backend
from allotment.wiring import kubernetes, slurm

if TYPE_CHECKING:
    from allotment.backends.local.images.images import Images

log = structlog.get_logger("allot.wiring")

DeviceFiles = Mapping[int, tuple[str, ...]]
SOLE = ""
"""The name of an engine that the configuration does not name."""


class Engines(msgspec.Struct, frozen=True):
    """What runs tasks, as it was found when the service started."""

    folder: Path
    setups: tuple[EngineSetup, ...] = (EngineSetup(SOLE, EngineType.LOCAL),)
    machine: Node | None = None
    """This machine, where an engine of the service is on it."""
    found: dict[str, tuple[Node, ...]] = {}
    """The nodes of the other engines, by the name of these."""

    @property
    def is_sole(self) -> bool:
        """Whether the configuration names no engines."""
        return self.setups[0].name == SOLE

    @property
    def named(self) -> tuple[EngineSetup, ...]:
        """Return the engines that a configuration has to name."""
        return () if self.is_sole else self.setups

    @property
    def first_nodes(self) -> tuple[Node, ...]:
        """Return the nodes of a first configuration."""
        if self.machine is not None:
            return (self.machine,)
        return tuple(
            msgspec.structs.replace(node, engine=setup.name)
            for setup in self.setups
            for node in self.found[setup.name]
        )

    def read(self, text: bytes, source: str) -> tuple[Config, tuple[Problem, ...]]:
        """Read a configuration, and check it against the engines. Raises BadInput."""
        from allotment.wire.config import read_config  # noqa: PLC0415

        config, warnings = read_config(
            text, source=source, machine=self.machine, found=self.found
        )
        if set(config.engines) != set(self.named):
            hint = "allot down, then allot up --config FILE: jobs run on meanwhile"
            problem = Problem("change only when the service starts again", "engines", hint=hint)
            raise BadInput((problem,), source)
        config = self._equipped(config)
        if problems := tuple(self._problems(config)):
            raise BadInput(problems, source)
        return config, warnings

    def with_nodes_of(self, config: Config) -> "Engines":
        """Return the engines as if they had found just the nodes of a configuration."""
        found = {
            name: tuple(node for node in config.nodes if node.engine == name) or nodes
            for name, nodes in self.found.items()
        }
        return msgspec.structs.replace(self, found=found)

    def learn(self, engine: str, nodes: Sequence[Node]) -> None:
        """Record the nodes that an engine has found since it was looked for."""
        name = engine or self.setups[0].name
        self.found[name] = tuple(nodes)
        _keep_found(self.folder, name, self.found[name])

    def _equipped(self, config: Config) -> Config:
        """Return a configuration whose nodes know what their engines cannot do."""
        lacks = {
            setup.name: lacks_of(abilities_of(setup, self.folder)) for setup in self.setups
        }
        pins = {
            setup.name: kubernetes.pins_on(setup)
            for setup in self.setups
            if setup.type is EngineType.KUBERNETES
        }
        nodes = tuple(
            msgspec.structs.replace(node, lacks=lacks[node.engine]) for node in config.nodes
        )
        nodes = tuple(
            _pinning(node) if node.engine in pins and pins[node.engine](node) else node
            for node in nodes
        )
        return msgspec.structs.replace(config, nodes=nodes)

    def _problems(self, config: Config) -> Iterator[Problem]:
        for setup in self.setups:
            if found := self.found.get(setup.name):
                mine = [node for node in config.nodes if node.engine == setup.name]
                where = slurm
                if setup.type is EngineType.KUBERNETES:
                    where, mine = kubernetes, kubernetes.counted(setup, mine)
                yield from slurm.problems_of(mine, found, where.SYSTEM)
        if all(Ability.SUSPENDS in node.lacks for node in config.nodes):
            for tenant in config.tenants:
                if tenant.on_eviction is GiveWay.SUSPEND:
                    place = f"tenants.{tenant.name}.on_eviction"
                    message = "no engine here can suspend a job such that others get its GPUs"
                    yield Problem(message, place, hint="requeue")
        yield from _small_cells(config)
        yield from self._unreached(config)

    def _unreached(self, config: Config) -> Iterator[Problem]:
        """Find an MLflow that jobs elsewhere would look for on their own machines."""
        setup = config.mlflow
        host = urlsplit(setup.address).hostname or "" if setup is not None else ""
        if setup is None or not (
            host == "localhost" or host.startswith("127.") or host == "::1"
        ):
            return
        far = next((each for each in self.setups if each.type is not EngineType.LOCAL), None)
        if far is not None:
            named = f"engine {far.name}" if far.name != SOLE else "the nodes"
            yield Problem(
                f"jobs on {named} do not reach {setup.address}, which is this machine's own",
                "mlflow.url" if setup.url else "mlflow.start",
                hint="start MLflow yourself, and name it: url: http://HOST:PORT",
            )

    def backend(self, device_files: DeviceFiles, state: Callable[[], State]) -> Backend:
        """Return what runs tasks: the only engine, or a router to all of them."""

        def nodes() -> Sequence[Node]:
            return state().config.nodes

        made = {setup.name: self._backend(setup, device_files, state) for setup in self.setups}
        if len(made) == 1:
            return next(iter(made.values()))
        from allotment.backends.router import Router  # noqa: PLC0415

        return Router(made, nodes)

    def _backend(
        self, setup: EngineSetup, device_files: DeviceFiles, state: Callable[[], State]
    ) -> Backend:
        def config() -> Config:
            return state().config

        mine = NodesOf(setup.name, config)

        match setup.type:
            case EngineType.SLURM:
                from allotment.backends.slurm.backend import SlurmBackend  # noqa: PLC0415

                folder = self._folder_of(setup)
                images = self._images(config)
                return SlurmBackend(folder, setup.partition, mine, setup, images)
            case EngineType.PILOT:
                from allotment.backends.pilot.backend import PilotBackend  # noqa: PLC0415

                folder = self._folder_of(setup)
                return PilotBackend(
                    folder,
                    setup.partition,
                    mine,
                    self._images(config),
                    divided=lambda: _divided(config()),
                    disk=setup.folder,
                    data=self.folder / FOLDER,
                    setup=setup,
                )
            case EngineType.KUBERNETES:
                from allotment.backends.kubernetes.backend import (  # noqa: PLC0415
                    KubernetesBackend,
                )

                folder = self._folder_of(setup)
                return KubernetesBackend(
                    folder, setup, mine, kubernetes.read_hived, kept=self.folder,
                    topology=lambda: config().topology, health=lambda: state().health,
                )  # fmt: skip
            case EngineType.LOCAL:
                from allotment.backends.local.backend import LocalBackend  # noqa: PLC0415

                local = LocalBackend(self.folder, device_files, self._images(config))
                local.watch_devices(lambda: _real_devices(mine()))
                return local

    def _images(self, config: Callable[[], Config]) -> "Images":
        """Return what asks registries, and fetches from them."""
        from allotment.backends.local.images.images import Images  # noqa: PLC0415

        return Images(self.folder, lambda: config().limits.image_store)

    def _folder_of(self, setup: EngineSetup) -> Path:
        """Return where an engine keeps what it does: where it did when it was alone."""
        was_sole = bool(setup.partition) and slurm.kept_in(self.folder) == setup.partition
        if setup.name == SOLE or was_sole:
            return self.folder
        folder = self.folder / "engines" / setup.name
        for each in (folder.parent, folder):
            each.mkdir(mode=0o711, exist_ok=True)
            each.chmod(0o711)  # whatever the umask: users reach their tasks' folders
        return folder


def _pinning(node: Node) -> Node:
    """Return a node of whose devices a task gets the very ones that were chosen."""
    lacks = tuple(each for each in node.lacks if each is not Ability.PINS)
    return msgspec.structs.replace(node, lacks=lacks)


def _small_cells(config: Config) -> Iterator[Problem]:
    """Find cells that are smaller than a node where an engine picks the devices of a job."""
    unpinned = {node.id for node in config.nodes if Ability.PINS in node.lacks}
    roots = config.topology.roots
    for top in sorted({root.type for root in roots if not unpinned.isdisjoint(root.nodes)}):
        if (kind := _divided_kind(config, top)) is not None:
            yield Problem(
                "the engine of its nodes picks the GPUs of a job itself, so no cell may be "
                f"smaller than a node, and {kind.name} is made of {kind.child}",
                f"cells.types.{kind.name}",
                hint=f"make {kind.name} of devices, or hold whole nodes: --pilot",
            )


def _divided_kind(config: Config, top: str) -> CellType | None:
    """Return the cell below `top` that is a node and made of smaller ones; None for none."""
    kinds = {kind.name: kind for kind in config.topology.types}
    kind = kinds.get(top)
    while kind is not None and not kind.is_node:
        kind = kinds.get(kind.child)
    return kind if kind is not None and kind.child in kinds else None


def _divided(config: Config) -> frozenset[NodeId]:
    """Return the nodes on which cells smaller than a node lie."""
    return frozenset(
        node
        for root in config.topology.roots
        if _divided_kind(config, root.type) is not None
        for node in root.nodes
    )


def abilities_of(setup: EngineSetup, folder: Path) -> frozenset[Ability]:
    """Return what an engine can do for a service in a folder, as its backend declares it."""
    match setup.type:
        case EngineType.SLURM:
            from allotment.backends.slurm.apptainer import program_of  # noqa: PLC0415
            from allotment.backends.slurm.backend import abilities_with  # noqa: PLC0415

            return abilities_with(program_of(setup))
        case EngineType.PILOT:
            from allotment.backends.pilot.backend import PilotBackend  # noqa: PLC0415

            return PilotBackend.abilities
        case EngineType.KUBERNETES:
            from allotment.backends.kubernetes.backend import abilities_on  # noqa: PLC0415

            return abilities_on(setup, folder)
        case EngineType.LOCAL:
            from allotment.backends.local.backend import LocalBackend  # noqa: PLC0415

            abilities = LocalBackend.abilities
            return abilities if _may_mount() else abilities - {Ability.IMAGES}


@cache
def _may_mount() -> bool:
    """Whether the user of this service may mount: else another engine is to run images.

    All else that they need is tried when an engine starts, and told at submission.
    """
    words = isolated("allotment.backends.local.runner.user_namespace", bare=True)
    return os.geteuid() == 0 or subprocess.run(words, env=PLAIN, cwd="/").returncode == 0


class NodesOf:
    """The nodes of an engine: the very same tuple while the configuration has the same ones,
    as they are asked for with each task."""

    def __init__(self, engine: str, config: Callable[[], Config]) -> None:
        self._engine, self._config = engine, config
        self._all: Sequence[Node] = ()
        self._mine: tuple[Node, ...] = ()

    def __call__(self) -> tuple[Node, ...]:
        nodes = self._config().nodes
        if nodes is not self._all:
            self._all = nodes
            self._mine = tuple(node for node in nodes if node.engine == self._engine)
        return self._mine


def _real_devices(nodes: Sequence[Node]) -> dict[str, tuple[NodeId, DeviceIndex]]:
    """Return which devices of nodes have a driver that can be asked, by UUID."""
    return {
        device.uuid: (node.id, device.index)
        for node in nodes
        for device in node.devices
        if device.uuid and not device.virtual
    }


def find_engines(
    folder: Path | None,
    text: bytes,
    partition: str,
    machine: Node,
    *,
    pilot: bool = False,
    kubeconfig: str = "",
) -> Engines:
    """Return the engines that a configuration names, or that the command line does.

    What was found last time is in the state folder, where there is one. Raises BadInput where
    the two differ or a partition is not there; BackendError where an engine is needed that does
    not answer.
    """
    from allotment.wire.config import cell_types_in, engines_in  # noqa: PLC0415

    setups = engines_in(text, source="") if text else ()
    types = cell_types_in(text) if text else ()
    kept = slurm.kept_in(folder) if folder is not None else ""
    if kubeconfig and not (setups and kubernetes.is_among(setups, kubeconfig)):
        setups = (kubernetes.setup_of(kubeconfig, is_first=not (text or kept or partition)),)
    if setups and partition:
        raise BadInput((
            Problem("the configuration names engines", "engines", hint="leave out --slurm"),
        ))  # fmt: skip
    if setups and kept and kept not in {setup.partition for setup in setups}:
        raise BadInput((
            Problem(
                f"none is partition {kept}, in which jobs of {folder} run",
                "engines",
                hint=f"add slurm: {{type: slurm, partition: {kept}}}",
            ),
        ))  # fmt: skip
    if not setups:
        partition = slurm.partition_of(folder, partition) if folder is not None else partition
        kind = EngineType.SLURM if partition else EngineType.LOCAL
        if partition and folder is not None and slurm.is_pilot(folder, wanted=pilot):
            kind = EngineType.PILOT
        setups = (EngineSetup(SOLE, kind, partition),)
    if wrong := tuple(flaw for setup in setups for flaw in slurm.wrong_charges(setup)):
        raise BadInput(wrong)
    is_here = any(setup.type is EngineType.LOCAL for setup in setups)
    found = {
        setup.name: _nodes_of(folder, setup, types)
        for setup in setups
        if setup.type is not EngineType.LOCAL
    }
    return Engines(folder or Path(), setups, machine if is_here else None, found)


def _nodes_of(
    folder: Path | None, setup: EngineSetup, types: Sequence[CellType]
) -> tuple[Node, ...]:
    """Return the nodes that an engine finds; those of last time where it has none to show."""
    kept = _kept_of(folder, setup.name) if folder is not None else None
    is_sole = folder is not None and setup.name == SOLE and bool(slurm.kept_in(folder))
    is_first = not is_sole and (kept is None or not kept.exists())
    where = kubernetes if setup.type is EngineType.KUBERNETES else slurm
    try:
        found = _discovered(setup, is_first=is_first)
    except NoNodes as error:
        if is_first:
            raise
        log.warning(f"{where.SYSTEM} shows no nodes; its jobs continue", why=str(error))
    except EngineAway as error:
        if is_first:
            raise _unanswered(error, setup) from error
        log.warning(f"{where.SYSTEM} does not answer; its jobs continue", why=str(error))
    else:
        if setup.type is EngineType.KUBERNETES and kept is not None and kept.exists():
            found = kubernetes.as_known(found, _kept_in(kept), types)
        if folder is not None:
            _keep_found(folder, setup.name, found)
        return found
    if is_sole or kept is None:
        return ()  # The configuration in force lists them.
    return _kept_in(kept)


def found_last(folder: Path, engine: str) -> tuple[Node, ...]:
    """Return the nodes that an engine of a state folder found last; none before the first."""
    file = _kept_of(folder, engine)
    return _kept_in(file) if file.exists() else ()


def _kept_of(folder: Path, engine: str) -> Path:
    return folder / f"nodes-of-{engine}.json"


def _kept_in(file: Path) -> tuple[Node, ...]:
    return msgspec.json.decode(file.read_bytes(), type=tuple[Node, ...])


def _keep_found(folder: Path, name: str, nodes: tuple[Node, ...]) -> None:
    """Let the next start know what was found, should the engine not answer then."""
    if name != SOLE:
        write_whole(_kept_of(folder, name), msgspec.json.encode(nodes))


def _unanswered(error: EngineAway, setup: EngineSetup) -> BackendError:
    if setup.type is EngineType.KUBERNETES:
        return kubernetes.unanswered(error)
    return slurm.unanswered(error, setup)


def _discovered(setup: EngineSetup, *, is_first: bool) -> tuple[Node, ...]:
    if setup.type is EngineType.KUBERNETES:
        return kubernetes.discovered(setup, is_first=is_first)
    return slurm.discovered(setup, is_first=is_first)
