"""Environments as the service offers them: resolved at submission, built for the first task."""

import asyncio
import contextlib
import hashlib
import os
import platform
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from allotment.engine.records import JobRecord
from allotment.engine.state import State
from allotment.explain.engines import ASKED
from allotment.model.engines import Ability
from allotment.model.environment import Environment
from allotment.model.errors import BackendError, Code, Rejected
from allotment.model.events import Phase
from allotment.model.ids import Actor
from allotment.model.quantity import show_bytes
from allotment.model.spec import JobSpec
from allotment.model.unusable import Unusable
from allotment.rights.removing import remove
from allotment.rights.user import rights_of
from allotment.service.abilities import INSTEAD
from allotment.service.access import is_admin, may_administer
from allotment.service.environments.for_image import turn
from allotment.service.environments.lasting import Failed, Lasting, TooLarge
from allotment.service.environments.measuring import size_below
from allotment.service.environments.pythons import (
    Build,
    chosen,
    install,
    moved,
)
from allotment.service.environments.requirements import (
    is_lock,
    is_python,
    plain,
    trouble_of,
    unlike,
    without_hashes,
)
from allotment.service.environments.sizes import to_be_fetched
from allotment.service.environments.store import EnvironmentStore, Known
from allotment.service.environments.target import ANY, Target, carried, fetched, in_image
from allotment.service.environments.uv import BUILDER, Uv
from allotment.service.environments.view import EnvironmentRow
from allotment.service.host_accounts import HostAccounts
from allotment.service.launch import image_wish
from allotment.service.phases import took
from allotment.service.ports import Backend, Contained, Identity, LookingInside, engines_for
from allotment.service.threads import Threads
from allotment.service.workspace import Carrying, Kept, Workspace

RESOLVING_S: Final = 60.0
BUILDING_S: Final = 3000.0
READING_S: Final = 60.0
BELIEVED_S: Final = 600.0
"""How long the same requirements mean the same packages without asking the index again."""
ANSWERED_S: Final = 10.0
"""After how long whoever builds ahead hears of it."""
LOOK_S: Final = 0.5
SWEEP_EVERY_S: Final = 600.0
BUILDS: Final = 2
"""How many at a time."""
PARTS: Final = 4
"""Of so many parts of the store one environment may take one."""
MOST_FILES: Final = 500_000
_MOST_BELIEVED: Final = 16 << 20
"""Letters, of all that is believed."""
_UNREACHED: Final = "error sending request"
"""What uv says where there is no connection to an index."""
_WHEELS: Final = ("--only-binary", ":all:")
_BUILDER: Final = Identity(BUILDER, BUILDER, ())


class Environments:
    """Resolves, builds, lists and removes environments."""

    def __init__(self, state: State, state_dir: str, backend: Backend) -> None:
        self._state = state
        self._backend = backend
        self._store = EnvironmentStore(Path(state_dir))
        self._uv = Uv(self._store.root / "uv")
        self._resolving = Threads("resolver", each=2, total=4)
        self._reading = Threads("environments", each=2, total=4)
        self._building: dict[str, asyncio.Task[None]] = {}
        self._believed: dict[tuple[Environment, Target | None, str], tuple[float, Known]] = {}
        self._installing = threading.Lock()
        self._accounts = HostAccounts()
        self._turn = asyncio.Semaphore(BUILDS)

    async def start(self) -> None:
        """Make the store ready; what a service that was killed left of it goes."""

        def make() -> None:
            self._store.prepare()
            self._uv.prepare()

        await asyncio.to_thread(make)

    async def close(self) -> None:
        """Wait for no build: what is not whole is thrown away at the next start."""
        for task in list(self._building.values()):
            task.cancel()

    # ── asking ──────────────────────────────────────────────────────────────────────

    async def settled(self, spec: JobSpec, owner: Actor) -> JobSpec:
        """Return a job with its environment resolved: every attempt gets the same packages.

        Raises Rejected, in the resolver's own words where it finds no packages that fit.
        """
        asked = spec.environment
        if asked is None:
            return spec
        asked = msgspec.structs.replace(asked, requirements=plain(asked.requirements))
        self._check(spec, asked)
        uid = _uid(owner)
        target = await self._target(spec, asked, owner)
        if asked.key:
            before = await asyncio.to_thread(self._store.known, asked.key, uid)
            if before is not None and _is_of(before, asked, target):
                return spec
        locked = is_lock(asked.requirements)
        if asked.lock and not locked:
            raise Rejected(
                Code.CONFLICT,
                "What the environment was locked to is not kept any more, or was locked for "
                "another Python.",
                "Submit the job with its lock again: `environment: {requirements: FILE}`.",
            )
        wish = Environment(asked.python, asked.requirements)
        known = await self._resolved(wish, target, owner)
        key = await asyncio.to_thread(self._noted, known, uid)
        lock = f"sha256:{hashlib.sha256(known.lock.encode()).hexdigest()}" if locked else ""
        comes_along = target is not None and not target.program
        fixed = Environment(known.python, known.requirements, key, lock, carried=comes_along)
        return msgspec.structs.replace(spec, environment=fixed)

    async def _target(self, spec: JobSpec, asked: Environment, owner: Actor) -> Target | None:
        """Return which Python a job gets that is not this machine's: one of its image, or one
        that comes along to images into which the service does not look. Raises Rejected."""
        engines = self._engines(spec)
        if not spec.image and not any(isinstance(engine, Contained) for engine in engines):
            return None
        if len(engines) > 1 or not isinstance(engines[0], LookingInside):
            return carried(platform.machine())
        try:
            wish = image_wish(spec, await self._accounts.of(owner))
        except BackendError as error:
            raise Rejected(Code.UNAVAILABLE, f"{error}.", "Try again.") from error
        found = await engines[0].pythons_in(wish)
        return in_image(found, asked.python, platform.machine())

    def _engines(self, spec: JobSpec) -> Sequence[Backend]:
        """Return the engines that can give a job its environment. Raises Rejected."""
        all_ = [*engines_for(self._backend, spec.engine).values()]
        asked = (Ability.ENVIRONMENTS, *([Ability.IMAGES] if spec.image else []))
        if found := [each for each in all_ if each.abilities.issuperset(asked)]:
            return found
        lacks = [able for able in asked if not any(able in each.abilities for each in all_)]
        what = (lacks or asked)[0]
        who = (
            "No engine here can"
            if len(all_) > 1
            else f"Engine {spec.engine or all_[0].name} cannot"
        )
        raise Rejected(Code.NOT_SUPPORTED, f"{who} {ASKED[what]}.", INSTEAD[what])

    def _check(self, spec: JobSpec, asked: Environment) -> None:
        if spec.batch is not None:
            raise Rejected(
                Code.NOT_SUPPORTED,
                "A batch script gets no environment of packages.",
                "Take `environment` out, or give the job a `command` in place of the script.",
            )
        self._engines(spec)
        if not self._uv.is_there:
            raise Rejected(
                Code.NOT_SUPPORTED,
                "uv, which resolves environments, is not installed where the service is.",
                "Its administrator installs it: pip install 'allotment[environments]'.",
            )
        if closed := self._uv.closed():
            raise Rejected(
                Code.UNAVAILABLE,
                f"Environments cannot be built here: {closed} is closed to the user that does.",
                "This is the administrator's matter: let all pass through it (chmod o+x), or "
                "have the state folder, and uv, elsewhere.",
            )
        if asked.file:
            raise Rejected(
                Code.BAD_SPEC,
                "environment.requirements: the service reads no files of yours.",
                "`allot submit` reads it; else give the lines as a list.",
            )
        if asked.python and not is_python(asked.python):
            trouble = f"environment: {asked.python[:20]!r} is not a version of Python."
            raise Rejected(Code.BAD_SPEC, trouble, "Write 3.11, or a range: >=3.10,<3.13.")
        if trouble := trouble_of(asked.requirements):
            raise Rejected(
                Code.BAD_SPEC, f"environment: {trouble}.", "Write name==version, one a line."
            )

    async def _resolved(self, asked: Environment, target: Target | None, owner: Actor) -> Known:
        wish = (asked, target, self._state.config.pythons)
        at, known = self._believed.get(wish, (0.0, None))
        if known is not None and time.monotonic() - at < BELIEVED_S:
            return known
        try:
            known = await self._resolving.run(
                owner.user, partial(self._resolve, *wish), 2 * RESOLVING_S
            )
        except Failed as error:
            if _UNREACHED in str(error):
                raise Rejected(
                    Code.UNAVAILABLE,
                    f"The package index cannot be reached: {error}",
                    "This is a problem of the platform. Try again.",
                ) from error
            raise Rejected(
                Code.BAD_SPEC,
                f"environment: {error}",
                "That is the resolver's message: change the requirements or `python`. Only "
                "wheels are taken.",
            ) from error
        except TimeoutError:
            raise Rejected(
                Code.UNAVAILABLE,
                f"The package index did not answer in {RESOLVING_S:.0f} s.",
                "This is a problem of the platform. Try again.",
            ) from None
        if sum(map(_size, self._believed.values())) > _MOST_BELIEVED:
            self._believed.clear()
        self._believed[wish] = (time.monotonic(), known)
        return known

    def _resolve(self, asked: Environment, target: Target | None, source: str) -> Known:
        """Return what requirements are, exactly. Raises Failed; Rejected without a Python."""
        build: Build | None = None
        comes_along = target is not None and not target.python
        version = self._uv.version_of(ANY if target else asked.python or ANY)
        if comes_along or not version:
            build = self._to_fetch(asked.python, source, along=comes_along)
            libc = target.platform if target else ""
            target = fetched(build.version, platform.libc_ver()[1], platform.machine())
            target = msgspec.structs.replace(target, platform=libc or target.platform)
            version = self._uv.version_of(ANY) or sys.executable
        target = target or Target(version)
        words = ("--quiet", *_WHEELS, "--python", version, *target.words)
        text = "\n".join(asked.requirements) + "\n"
        lines = tuple(map(without_hashes, asked.requirements))
        if is_lock(asked.requirements):
            self._check_lock(asked.requirements, words)
            lock = text
        else:
            lock = self._compiled(text, words)
        libc = target.platform if target.program or comes_along else ""
        return Known(target.python, lines, lock, 0, 0, target.program, libc, build)

    def _compiled(self, text: str, words: Sequence[str]) -> str:
        """Return requirements with hashes, as the index has them. Raises Failed."""
        compiling = (
            "pip", "compile", "-", "--generate-hashes", "--no-header", "--no-annotate",
            "--no-emit-index-url", "--no-emit-find-links", *words,
        )  # fmt: skip
        return self._uv.run(compiling, RESOLVING_S, text)

    def _check_lock(self, requirements: Sequence[str], words: Sequence[str]) -> None:
        """Look whether a lock has all that is needed, and the index those bytes.

        Raises Failed.
        """
        aside = str(self._store.root / "uv" / "nothing")
        trying = (
            "pip", "install", "--dry-run", "--require-hashes", "--target", aside,
            "--requirements", "-", *words,
        )  # fmt: skip
        self._uv.run(trying, RESOLVING_S, "\n".join(requirements) + "\n")
        bare = "\n".join(map(without_hashes, requirements)) + "\n"
        offered = self._compiled(bare, ("--no-deps", *words))
        if other := unlike(requirements, offered):
            raise Failed(f"the index has {other} in other bytes than those of the lock")

    def _to_fetch(self, python: str, source: str, *, along: bool) -> Build:
        """Choose a Python that the machine does not have, or that is to come `along` into an
        image. Raises Rejected and Failed."""
        aside = self._store.new_folder()
        try:
            build = chosen(self._uv, source, python or ANY, aside) if source else None
        except Failed as error:
            raise Rejected(
                Code.UNAVAILABLE,
                f"A Python {python or ANY} is to be fetched, and {error}.",
                "This is the administrator's matter: `pythons` in the configuration.",
            ) from error
        finally:
            remove(None, str(aside))
        if build is not None:
            return build
        if along:
            why = "no Python that fits is offered" if source else "none is offered"
            raise Rejected(
                Code.NOT_SUPPORTED,
                "environment: into an image on this engine the service does not look, so its "
                f"Python has to come along, and {why} (`pythons` in the configuration).",
                "Ask the administrator to set `pythons`, name an engine of type local, or "
                "bring an `image` that has the packages.",
            )
        found = self._uv.pythons(RESOLVING_S)
        none = ", and none that fits is offered for it" if source else ""
        more = "" if source else ", or to have it fetched (`pythons` in the configuration)"
        raise Rejected(
            Code.BAD_SPEC,
            f"environment: there is no Python {python or ANY} on the service's machine, which "
            f"has {', '.join(found) or 'none'}{none}.",
            "Name one of these as `python`, take an image that has yours, or ask the "
            f"administrator to link it into /usr/local/bin (as python3.N){more}.",
        )

    def _noted(self, known: Known, uid: int) -> str:
        of_image = tuple(filter(None, (known.platform, known.program)))
        where = of_image or (platform.libc_ver()[1],)
        python = (known.build.digest(b""),) if known.build else ()
        parts = ("1", known.python, platform.machine(), *where, *python, known.lock)
        text = "\0".join(parts).encode()
        key = hashlib.sha256(self._store.salt() + text).hexdigest()[:32]
        self._store.note(key, known, uid)
        return key

    async def expected(self, spec: JobSpec) -> str:
        """Return what would be built for a job, in words; '' if nothing would be."""
        if spec.environment is None or self._store.made(spec.environment.key).is_dir():
            return ""
        known = await asyncio.to_thread(self._known, spec.environment.key)
        if known is None:
            return ""
        look = partial(to_be_fetched, self._uv, self._store, known)
        try:
            size = await self._resolving.run("sizes", look, 2 * RESOLVING_S)
        except (Failed, TimeoutError):
            size = "how much is not known"
        count = len(known.packages)
        packages = "1 package" if count == 1 else f"{count} packages"
        return (
            f"environment: it is not here yet; {packages} would be installed; to fetch: {size}"
        )

    def _known(self, key: str) -> Known | None:
        path = self._store.root / "known" / f"{key}.json"
        return msgspec.json.decode(path.read_bytes(), type=Known) if path.exists() else None

    # ── building ────────────────────────────────────────────────────────────────────

    async def build(self, spec: JobSpec, actor: Actor) -> EnvironmentRow:
        """Build ahead what a job asks for; answer when it is there, or a little later.

        Raises Rejected.
        """
        fixed = (await self.settled(spec, actor)).environment
        assert fixed is not None
        if not self._store.made(fixed.key).is_dir():
            work = self._begun(fixed.key)
            await asyncio.wait([work], timeout=ANSWERED_S)
            if work.done():
                try:
                    self._told(work)
                except Unusable as error:
                    raise error.refusal() from error
                except BackendError as error:
                    why = f"{str(error)[:1].upper()}{str(error)[1:]}."
                    hint = "Change the requirements, or try again."
                    raise Rejected(Code.UNAVAILABLE, why, hint) from error
        known = await asyncio.to_thread(self._known, fixed.key)
        if known is None:
            raise Rejected(Code.CONFLICT, "It was removed meanwhile.", "Build it again.")
        return _row(fixed.key, known, time.time())

    def _begun(self, key: str) -> "asyncio.Task[None]":
        """Return the build of an environment, which is begun if it was not."""
        work = self._building.get(key)
        if work is None:
            work = self._building[key] = asyncio.create_task(self._build(key))
            work.add_done_callback(partial(self._over, key))
        return work

    async def ready(
        self,
        job: JobRecord,
        workspace: Workspace,
        nodes: Sequence[str],
        is_wanted: Callable[[], bool],
    ) -> tuple[Phase, ...]:
        """Have a job's environment built, and on its nodes; return how long that took.

        Returns early where the job is not wanted any more. Raises BackendError, and Unusable
        where trying again would not help.
        """
        asked = job.spec.environment
        if asked is None:
            return ()
        began = time.time()
        if not self._store.made(asked.key).is_dir():
            work = self._begun(asked.key)
            while is_wanted() and not work.done():
                await asyncio.wait([work], timeout=LOOK_S)
            if work.done():
                self._told(work)
        if isinstance(workspace, Carrying) and is_wanted():
            await self._bring(job, workspace, nodes, is_wanted)
        return took("environment", began)

    async def _bring(
        self,
        job: JobRecord,
        workspace: Carrying,
        nodes: Sequence[str],
        is_wanted: Callable[[], bool],
    ) -> None:
        """Have a job's environment on nodes that do not see this disk. Raises BackendError."""
        assert job.spec.environment is not None
        names = await asyncio.to_thread(self._folders_of, [job.spec.environment.key])

        async def needed() -> tuple[str, ...]:
            return await asyncio.to_thread(self._folders_of, self._needed())

        limit = self._state.config.limits.environment_store
        kept = Kept(str(self._store.root.parent), names, needed, limit)
        await workspace.bring(nodes, job.id, kept, is_wanted)

    def _folders_of(self, keys: Iterable[str]) -> tuple[str, ...]:
        """Return the folders of environments, each after that of its Python."""
        found: dict[str, None] = {}
        for key in keys:
            known = self._known(key)
            pythons = [self._store.python(known.build)] if known and known.build else []
            for place in (*pythons, self._store.made(key)):
                found[str(place.relative_to(self._store.root.parent))] = None
        return tuple(found)

    def _told(self, work: "asyncio.Task[None]") -> None:
        try:
            work.result()
        except Lasting as error:
            raise error.unusable() from error
        except (Failed, OSError) as error:
            raise BackendError(f"the environment cannot be built: {error}") from error
        except asyncio.CancelledError:
            raise BackendError("the build of the environment was interrupted") from None

    def _over(self, key: str, work: "asyncio.Task[None]") -> None:
        self._building.pop(key, None)
        if not work.cancelled():
            work.exception()

    async def _build(self, key: str) -> None:
        async with self._turn:
            await self._reading.run(f"build {key}", partial(self._made, key), BUILDING_S)

    def _made(self, key: str) -> None:
        known = self._known(key)
        if known is None:
            raise FileNotFoundError(2, "what it consists of is not known any more", key)
        folder = self._store.new_folder()
        watch = self._bound(folder)
        try:
            env = folder / "env"
            with_it = self._program(known)
            self._uv.run(["venv", "--relocatable", "--python", with_it, str(env)], BUILDING_S)
            lock = folder / "lock.txt"
            lock.write_text(known.lock)
            lock.chmod(0o644)
            self._uv.run(
                ["pip", "sync", "--require-hashes", *_WHEELS, "--allow-empty-requirements",
                 "--python", str(env / "bin/python"), str(lock), *_target_of(known).words],
                BUILDING_S,
                watch=watch,
            )  # fmt: skip
            if known.program:
                with rights_of(_BUILDER if os.geteuid() == 0 else None):
                    turn(env, with_it, known.python, known.program)
            self._compile(with_it if known.build else known.python, env, watch)
            watch()
            self._store.keep(key, env, known)
        finally:
            remove(None, str(folder))

    def _program(self, known: Known) -> str:
        """Return the Python, or its version, with which an environment is filled.

        One that is fetched is there then, once for all. Raises Failed.
        """
        if (build := known.build) is None:
            return self._uv.version_of(ANY) if known.program else known.python
        place = self._store.python(build)
        with self._installing:
            if not self._store.has_python(build):
                folder = self._store.new_folder()
                watch = self._bound(folder)
                try:
                    source = self._state.config.pythons
                    made = install(self._uv, build, source, folder, watch, BUILDING_S)
                    with rights_of(_BUILDER if os.geteuid() == 0 else None):
                        moved(made, place)
                    self._compile_by(str(made / "bin/python3"), made, watch)
                    self._store.keep_python(build, made)
                finally:
                    remove(None, str(folder))
        return str(place / "bin/python3")

    def _compile(self, version: str, env: Path, watch: Callable[[], None]) -> None:
        """Have modules compiled by the machine's Python, which runs nothing of theirs.

        uv would have that of the environment do it, which runs each .pth file in it. Where the
        machine has none of an image's version, nothing is compiled.
        """
        with contextlib.suppress(Failed):
            python = self._uv.run(["python", "find", "--system", version], READING_S).strip()
            self._compile_by(python, env, watch)

    def _compile_by(self, python: str, top: Path, watch: Callable[[], None]) -> None:
        """Have the modules below a folder compiled."""
        aside = [python, "-I", "-S", "-m", "compileall", "-q", "-q", str(top / "lib")]
        # Some modules are no Python of this version; that is usual.
        with contextlib.suppress(Failed):
            self._uv.run_as_builder(aside, BUILDING_S, watch=watch)

    def _bound(self, folder: Path) -> Callable[[], None]:
        """Return what raises Failed once a build has made more than one may."""
        store = self._state.config.limits.environment_store
        self._uv.clear(store // PARTS)

        def watch() -> None:
            files, size = size_below(folder)
            if files > MOST_FILES or size > store // PARTS:
                raise TooLarge(
                    f"it has more than {show_bytes(store // PARTS)} or {MOST_FILES:,} files, "
                    "which is all that one may have (a quarter of `limits.environment_store`)"
                )
            if size_below(self._uv.cache)[1] > store // 2:
                raise Failed(
                    "the packages that are fetched take more than half of "
                    f"`limits.environment_store` ({show_bytes(store)})"
                )

        return watch

    # ── for people ──────────────────────────────────────────────────────────────────

    async def rows(self, actor: Actor) -> list[EnvironmentRow]:
        """List the environments that a user's jobs asked for; all for the administrator."""
        uid = None if is_admin(actor) else _uid(actor)
        found = await self._reading.run(actor.user, partial(self._store.rows, uid), READING_S)
        return [_row(*each) for each in found]

    async def remove(self, start: str, actor: Actor) -> None:
        """Remove an environment that no job needs. Raises Rejected."""
        may_administer(actor)
        keys = [
            row.key for row in await self.rows(actor) if start and row.key.startswith(start)
        ]
        if len(keys) != 1:
            raise Rejected(
                Code.NOT_FOUND, f"{len(keys)} environments begin so.", "See `allot env ls`."
            )
        if keys[0] in self._needed():
            raise Rejected(
                Code.CONFLICT, "A job that has not ended needs it.", "Cancel that, or wait."
            )
        await self._reading.run(actor.user, partial(self._store.remove, keys[0]), READING_S)

    def _needed(self) -> frozenset[str]:
        return frozenset(
            job.spec.environment.key
            for job in self._state.jobs.values()
            if job.spec.environment is not None and not job.state.finished
        )

    async def sweep(self) -> None:
        """Remove what was asked for least recently, where the store is too large."""
        limit = self._state.config.limits.environment_store
        needed, now = self._needed(), time.time()

        def work() -> None:
            self._store.make_room(limit, needed, now)
            self._uv.clear(limit // PARTS)

        await self._reading.run("sweep", work, BUILDING_S)


def _target_of(known: Known) -> Target:
    return Target(known.python, known.program, known.platform)


def _is_of(known: Known, asked: Environment, target: Target | None) -> bool:
    """Whether what is known of a key is what a job asks for."""
    wanted = target or Target(asked.python)
    return (
        known.requirements == asked.requirements
        and known.python == asked.python
        and _target_of(known) == msgspec.structs.replace(wanted, python=known.python)
    )


def _size(believed: tuple[float, Known]) -> int:
    known = believed[1]
    return 1000 + len(known.lock) + sum(map(len, known.requirements))


def _row(key: str, known: Known, when: float) -> EnvironmentRow:
    return EnvironmentRow(
        key,
        known.python,
        known.requirements,
        known.packages,
        known.bytes,
        known.files,
        int(when * 1000),
        known.platform,
        known.build.archive if known.build else "",
    )


def _uid(actor: Actor) -> int:
    return os.geteuid() if actor.uid is None else actor.uid
