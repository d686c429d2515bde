"""The composition root: which parts there are, and how they are put together.

The only place that names concrete stores, backends and policies. Nothing is built when it is
imported.
"""

import asyncio
import io
import os
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import msgspec
import structlog
import uvloop

from allotment import __version__
from allotment.model.cluster import Node
from allotment.model.engines import EngineType
from allotment.model.errors import (
    AllotmentError,
    BadInput,
    InvariantViolated,
    Problem,
    Rejected,
)
from allotment.model.events import EventsLost
from allotment.model.ids import Seq
from allotment.model.tenancy import Config
from allotment.service.ports import Store
from allotment.service.reconfigure import ConfigFiles
from allotment.service.service import Service
from allotment.store.lock import FolderLock
from allotment.wiring.engines import Engines, find_engines
from allotment.wiring.kept_config import CONFIG, Kept, announced, is_text_of
from allotment.wiring.options import Options

FAILED = 1
LONGEST_CONFIG = 1 << 20
"""More is not even read; the reader's own limit is lower and says so."""

log = structlog.get_logger("allot.wiring")


def serve(options: Options) -> int:
    """Run a service until it is stopped; return the exit code.

    What keeps it from starting is printed to stderr, in full.
    """
    from allotment.api.process import settle  # noqa: PLC0415

    settle()
    try:
        return _run(options)
    except AllotmentError as error:
        print(f"allot: {error}", file=sys.stderr)
    except OSError as error:
        where = f": {error.filename}" if error.filename else ""
        print(f"allot: the service cannot run: {error.strerror}{where}", file=sys.stderr)
    return FAILED


# ── building ────────────────────────────────────────────────────────────────────────────


class Opened:
    """A service and what it rests on, not started yet."""

    def __init__(
        self,
        service: Service,
        found: "Found",
        lock: FolderLock,
        kept: Kept,
        engines: Engines,
        lost: EventsLost | None = None,
    ) -> None:
        self.service = service
        self.config = found.config
        self.found = found
        self.lock = lock
        self.kept = kept
        self.engines = engines
        self.lost = lost
        """What the event log goes on without."""


class Found(msgspec.Struct, frozen=True):
    """A configuration and its text."""

    config: Config
    text: bytes
    is_kept: bool
    """Else the state folder is to have it, once it is in force."""


def open_service(options: Options) -> Opened:
    """Return a service on its state folder, which stays locked. Raises AllotmentError."""
    lock = lock_folder(options.folder)
    try:
        return build(options, lock)
    except BaseException:
        lock.release()
        raise


def lock_folder(folder: Path) -> FolderLock:
    """Make the state folder, and lock it for this process. Raises StoreError."""
    from allotment.api.state_folder import prepare  # noqa: PLC0415

    prepare(folder)
    return FolderLock(folder)


def build(options: Options, lock: FolderLock) -> Opened:
    """Return a service, put together from its parts. Raises AllotmentError."""
    from allotment.backends.local.machine import this_machine as look  # noqa: PLC0415
    from allotment.backends.mlflow.tracker import MlflowTracker  # noqa: PLC0415
    from allotment.backends.optuna import OptunaProposer  # noqa: PLC0415
    from allotment.service.clock import SteadyClock  # noqa: PLC0415
    from allotment.wire.job import job_to_wire  # noqa: PLC0415
    from allotment.wiring import slurm  # noqa: PLC0415
    from allotment.wiring.forecast import ChildForecast  # noqa: PLC0415
    from allotment.wiring.policies import policies  # noqa: PLC0415

    machine, device_files = look(options.gpus)
    engines = find_engines(
        options.folder, _config_text(options), options.slurm, machine,
        pilot=options.pilot, kubeconfig=options.kubernetes,
    )  # fmt: skip
    # Where there is no log to fall back on, what is wrong shows before one is made.
    found = None if _has_log(options) else configuration(options, engines)
    kept = Kept(options.folder)
    store = _store(options)
    try:
        service = Service(
            store=store,
            backend=engines.backend(device_files, lambda: service.state),
            clock=SteadyClock(options.folder),
            policies=policies(),
            state_dir=str(options.folder),
            write_spec=lambda spec: dict(job_to_wire(spec)),
            version=__version__,
            config_files=config_files(kept, engines),
            forecast=ChildForecast(),
            tracker=MlflowTracker(options.folder),
            proposer=OptunaProposer(),
        )
        found = found or _meant(options, engines, service.state.config)
        if engines.is_sole and engines.setups[0].partition:
            setup = engines.setups[0]
            slurm.keep(options.folder, setup.partition, pilot=setup.type is EngineType.PILOT)
    except BaseException:
        store.close()
        raise
    return Opened(service, found, lock, kept, engines, _lost(store))


def _lost(store: Store) -> EventsLost | None:
    from allotment.store.sqlite import SqliteStore  # noqa: PLC0415

    loss = store.loss if isinstance(store, SqliteStore) else None
    return EventsLost(loss.because, loss.events, loss.until) if loss else None


def _has_log(options: Options) -> bool:
    from allotment.store.sqlite import FILE  # noqa: PLC0415

    return (options.folder / FILE).exists()


def _store(options: Options) -> Store:
    from allotment.store.sqlite import SqliteStore  # noqa: PLC0415

    return SqliteStore.open(options.folder, accept_loss=options.accept_loss)


def restore(file: Path, folder: Path) -> Seq:
    """Put a backup in place of a missing log; return its last event's number."""
    from allotment.store.sqlite import restore as put_back  # noqa: PLC0415

    os.umask(0o077)
    lock = lock_folder(folder)
    try:
        return put_back(file, folder)
    finally:
        lock.release()


# ── configuration ───────────────────────────────────────────────────────────────────────


def this_machine(gpus: int | None = None) -> Node:
    """Return this machine as a node, with `gpus` virtual devices if it has no real ones."""
    from allotment.backends.local.machine import this_machine as look  # noqa: PLC0415

    return look(gpus)[0]


def _config_text(options: Options) -> bytes:
    """Return the text that is meant; empty where there is none yet."""
    path = options.config or options.folder / CONFIG
    return _text_of(path) if options.config or path.exists() else b""


def configuration(options: Options, engines: Engines) -> Found:
    """Read the configuration that is named, or make one of the nodes there are.

    Raises BadInput with every problem and its line.
    """
    kept = options.folder / CONFIG
    path = options.config or kept
    is_first = options.config is None and not kept.exists()
    data = _default_text(engines) if is_first else _text_of(path)
    config, warnings = engines.read(data, str(path))
    for warning in warnings:
        log.warning(f"{path}: {warning}")
    if options.gpus is not None and options.config is None and not is_first:
        log.warning(f"--gpus changes nothing: {path} says which devices there are")
    return Found(config, data, is_kept=path == kept and not is_first)


def _meant(options: Options, engines: Engines, in_force: Config) -> Found:
    """Read the configuration that is meant, where there was one before. Raises BadInput.

    It may not fit what engines have by now. Then it is read with the nodes in force, as a
    service that runs would go on with them: what has changed comes when it fits.
    """
    before = engines.with_nodes_of(in_force)
    try:
        return _newest(options, engines, in_force, before)
    except BadInput as error:
        try:
            found = _newest(options, before, in_force, before)
        except BadInput:
            raise error from None
        why = "the configuration does not fit what engines have now: the nodes in force stay"
        log.warning(why, because=str(error))
        return found


def _newest(options: Options, engines: Engines, in_force: Config, before: Engines) -> Found:
    """Return what is meant; or what a crash kept from being kept, though it was in force."""
    found = configuration(options, engines)
    if options.config is None and (text := announced(options.folder, in_force, before.read)):
        return Found(engines.read(text, CONFIG)[0], text, is_kept=False)
    return found


def config_files(kept: Kept, engines: Engines) -> ConfigFiles:
    """Return how a service reads, writes and keeps configurations."""
    return ConfigFiles(
        read=engines.read,
        write=_write_config,
        found=partial(_with_found, kept, engines),
        announce=kept.announce,
        keep=kept.keep,
    )


def _with_found(
    kept: Kept, engines: Engines, engine: str, nodes: Sequence[Node]
) -> tuple[Config, tuple[Problem, ...]]:
    """Read the configuration in force with what an engine has found. Raises BadInput."""
    engines.learn(engine, nodes)
    if not kept.text:
        hint = "put one in force: allot config apply FILE"
        raise BadInput((Problem("is not what is in force", hint=hint),), CONFIG)
    return engines.read(kept.text, CONFIG)


def _write_config(config: Config) -> str:
    from allotment.wire.config import config_to_wire  # noqa: PLC0415

    return msgspec.json.format(msgspec.json.encode(config_to_wire(config)), indent=2).decode()


def _text_of(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(LONGEST_CONFIG)
    except OSError as error:
        why = (error.strerror or "cannot be read").lower()
        raise BadInput((Problem(f"cannot be read: {why}"),), str(path)) from error


def _default_text(engines: Engines) -> bytes:
    """Write the configuration of a first start: one tenant for each team of users."""
    from ruamel.yaml import YAML  # noqa: PLC0415

    from allotment.api.accounts import teams_here  # noqa: PLC0415
    from allotment.wire.config import config_to_wire, default_config  # noqa: PLC0415

    text = io.BytesIO()
    yaml = YAML()
    yaml.indent(mapping=2, sequence=4, offset=2)
    made = default_config(engines.first_nodes, teams_here())
    written = config_to_wire(msgspec.structs.replace(made, engines=engines.named))
    yaml.dump(written, text)  # pyright: ignore[reportUnknownMemberType]
    return DEFAULT_HEAD + text.getvalue()


DEFAULT_HEAD = b"""\
# Made at the first start, for this machine and its users. Change it, check it with
# `allot config plan FILE`, and put it in force with `allot config apply FILE`.
"""


# ── running ─────────────────────────────────────────────────────────────────────────────


def _run(options: Options) -> int:
    """Run until told to stop."""
    from allotment.api.logbook import close_logbook, open_logbook  # noqa: PLC0415

    lock = lock_folder(options.folder)
    try:
        open_logbook(options.folder)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_live(options, lock))
    except (AllotmentError, OSError) as error:
        if isinstance(error, InvariantViolated):
            raise _broken(error, options.folder) from error
        log.info("the service ended with an error", why=str(error))  # stderr says it too
        raise
    except Exception as error:
        raise _broken(error, options.folder) from error
    finally:
        close_logbook()
        lock.release()
    return 0


def _broken(error: Exception, folder: Path) -> InvariantViolated:
    """Put down what ended the service, and say it for people."""
    from allotment.api.logbook import FILE  # noqa: PLC0415

    log.critical("the service ended by a bug in Allotment", exc_info=error)
    return InvariantViolated(
        f"the service ended by a bug in Allotment: {type(error).__name__}: {error}. All that "
        f"was accepted is kept, and tasks run on; where it broke is in {folder / FILE}."
    )


async def _live(options: Options, lock: FolderLock) -> None:
    from allotment.api.listening import Listening, fetch  # noqa: PLC0415
    from allotment.api.process import calm  # noqa: PLC0415

    with Listening(options.folder, options.port, options.ready_fd) as listening:
        opened = build(options, lock)
        service = opened.service
        try:
            fetched = asyncio.ensure_future(asyncio.to_thread(fetch))
            await _start(opened)  # It waits for the launcher, which is another process.
            await fetched
            await listening.serve(service, __version__, calm)
        finally:
            await service.stop()
    log.info("stopped; tasks run on")


async def _start(opened: Opened) -> None:
    """Start with the configuration; with the one before where this one cannot be used."""
    service, found, kept = opened.service, opened.found, opened.kept
    kept.text = found.text
    if not found.is_kept:
        kept.announce(found.text)
    if opened.lost is not None:
        service.note_loss(opened.lost)
    try:
        await service.start(opened.config)
    except Rejected as refusal:
        if not service.state.config.nodes:
            raise
        log.warning(f"the new configuration is not in force, the old one stays: {refusal}")
        kept.text = _text_in_force(opened)
        await service.start(service.state.config)
        return
    if not found.is_kept:
        kept.keep()


def _text_in_force(opened: Opened) -> bytes:
    """Return the text of the configuration that was in force before; empty if it is gone."""
    in_force, file = opened.service.state.config, opened.kept.folder / CONFIG
    read = opened.engines.with_nodes_of(in_force).read
    texts = (opened.found.text, _text_of(file) if file.exists() else b"")
    return next((text for text in texts if is_text_of(text, in_force, read)), b"")
