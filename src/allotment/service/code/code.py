"""Code that jobs take along, as the service offers it: each user meets only its own."""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from allotment.engine.state import State
from allotment.model.code import CodeBundle
from allotment.model.errors import Code as Why
from allotment.model.errors import Rejected
from allotment.model.ids import Actor, JobId
from allotment.model.quantity import show_bytes
from allotment.model.spec import JobSpec
from allotment.service.access import may_see
from allotment.service.code.layout import drop_folders
from allotment.service.code.store import (
    PRESSED_S,
    UNUSED_S,
    CodeStore,
    Summary,
    uid_of,
)
from allotment.service.code.view import CodeNote, CodeRoom, CodeView, CodeWanted
from allotment.service.content.manifest import (
    BadManifest,
    Manifest,
    digest_of,
    is_digest,
    largest,
    needs,
    read,
    size_of,
)
from allotment.service.content.receiving import Receiving, Words
from allotment.service.content.shelf import Full, Room, blocks
from allotment.service.finding import Finding
from allotment.service.launch import Folders
from allotment.service.ports import Backend, Contained, engines_for
from allotment.service.threads import Threads

SWEEP_EVERY_S: Final = 300.0
KEEP_WORK_MS: Final = 3_600_000
"""How long the working folder of a job stays after its end."""
MOST_DIFFERENCE: Final = 1 << 20
"""Bytes of what git says of uncommitted changes."""
MOST_ALSO: Final = 4
PATIENCE_S: Final = 60.0
DELETING_S: Final = 600.0
T = TypeVar("T")

AGAIN: Final = "Take the folder along again: `--code .`."
WORDS: Final = Words(
    beyond="all code may be",
    leave_out="Leave it out by a line in .allotignore; large files belong in `data`.",
    full="The code that you took along takes all the room there is for one user.",
    make_room="It gets free when jobs that used older code are forgotten. An administrator "
    "can raise `limits.code_store`.",
    again="Submit again, while nothing writes to the folder.",
)
"""What is told to senders of code."""


class Code:
    """Takes code in, gives it to jobs, and forgets it."""

    def __init__(
        self,
        state: State,
        finding: Finding,
        folders: Folders,
        backend: Backend,
    ) -> None:
        self._state = state
        self._finding = finding
        self._folders = folders
        self._backend = backend
        self._store = CodeStore(Path(folders.root))
        self._rooms: dict[int, Room] = {}
        """Of each user that sent files."""
        self._threads = Threads("code", each=2, total=8)

    async def start(self) -> None:
        """Make the store ready; what a service that was killed left of it goes."""
        await asyncio.to_thread(self._store.prepare)

    # ── taking in ───────────────────────────────────────────────────────────────────

    async def room(self, actor: Actor) -> CodeRoom:
        """Return how much code a user may take along."""
        limits = self._state.config.limits
        used = await self._run(actor, partial(self._store.used, uid_of(actor)))
        return CodeRoom(limits.code_files, limits.code_bytes, limits.code_store, used)

    async def find(self, bundle: str, also: tuple[str, ...], actor: Actor) -> CodeNote:
        """Return a bundle of this user's own. Raises Rejected where there is none."""
        uid = uid_of(actor)
        _check_digests(also)

        def look() -> Summary | None:
            is_all = all(self._store.has_file(uid, digest) for digest in also)
            return self._store.summary(uid, bundle) if is_all else None

        found = await self._run(actor, look)
        if found is None:
            raise Rejected(Why.NOT_FOUND, "You have no code of this name here.", AGAIN)
        return CodeNote(bundle, found.files, found.bytes)

    async def begin(self, data: bytes, also: tuple[str, ...], actor: Actor) -> CodeWanted:
        """Keep a bundle whose files are all there, or return which are missing.

        Raises Rejected where it is too large, or is no bundle.
        """
        _check_digests(also)
        uid = uid_of(actor)
        adds = 0
        for _ in range(2):
            wanted, adds = await self._run(actor, partial(self._begun, uid, data, also))
            if not adds:
                return wanted
            if await self._is_beyond(uid, adds, actor):
                await self._sweep_user(uid, PRESSED_S)
            elif wanted.missing:
                return wanted
        used = await self._run(actor, partial(self._store.used, uid))
        raise _no_room(used, adds, self._limit())

    def _begun(self, uid: int, data: bytes, also: tuple[str, ...]) -> tuple[CodeWanted, int]:
        """Keep a bundle, which adds 0; or return what is missing, and what it would add."""
        try:
            manifest = read(data)
        except BadManifest as error:
            raise Rejected(
                Why.BAD_REQUEST, f"This cannot be the code of a job: {error}.", AGAIN
            ) from error
        self._check_size(manifest)
        name = digest_of(data)
        try:
            missing = self._store.missing(uid, data, also, self._limit())
        except Full:
            return CodeWanted(name), blocks(len(data))
        sizes = needs(manifest.files)
        adds = sum(blocks(sizes.get(digest, 0)) for digest in missing)
        return CodeWanted(name, tuple(missing)), adds

    async def _is_beyond(self, uid: int, adds: int, actor: Actor) -> bool:
        used = await self._run(actor, partial(self._store.used, uid))
        return used + adds > self._limit()

    def _check_size(self, manifest: Manifest) -> None:
        limits = self._state.config.limits
        total = size_of(manifest.files)
        if len(manifest.files) <= limits.code_files and total <= limits.code_bytes:
            return
        sizes = [(file.path, file.size) for file in manifest.files if file.kind != "l"]
        raise Rejected(
            Why.TOO_LARGE,
            f"The folder has {len(manifest.files):,} files with {show_bytes(total)} in all; "
            f"{limits.code_files:,} files and {show_bytes(limits.code_bytes)} may be taken "
            f"along. {largest(sizes)}",
            "Leave out what no task needs, by lines in .allotignore; data belong in `data`.",
        )

    def _limit(self) -> int:
        return self._state.config.limits.code_store

    def receiving(self, actor: Actor) -> Receiving:
        """Return what takes the files of one request."""
        uid = uid_of(actor)
        shelf, largest = self._store.shelf(uid), self._state.config.limits.code_bytes
        room = self._rooms.setdefault(uid, Room(self._most_coming, shelf.used))
        return Receiving(shelf, room, largest, WORDS)

    def _most_coming(self) -> int:
        limits = self._state.config.limits
        return limits.code_store + limits.code_bytes

    async def feed(self, receiving: Receiving, data: Sequence[bytes], actor: Actor) -> None:
        """Take pieces of files in. Raises Rejected."""
        await self._run(actor, partial(receiving.feed, *data))

    # ── jobs ────────────────────────────────────────────────────────────────────────

    async def settled(self, spec: JobSpec, owner: Actor) -> JobSpec:
        """Return a job with what its code amounts to. Raises Rejected without that code."""
        if spec.code is None:
            return spec
        self._check_fits(spec)
        found = await self._run(
            owner, partial(self._store.summary, uid_of(owner), spec.code.bundle)
        )
        if found is None:
            raise Rejected(
                Why.CODE_MISSING,
                f"{owner.user} has no code {spec.code.bundle[:12]} here: it was never sent, "
                "or is somebody else's, or no job that is kept has used it for a day.",
                AGAIN,
            )
        code = msgspec.structs.replace(spec.code, files=found.files, bytes=found.bytes)
        return msgspec.structs.replace(spec, code=code)

    def _check_fits(self, spec: JobSpec) -> None:
        assert spec.code is not None
        if not spec.code.bundle:
            raise Rejected(
                Why.BAD_SPEC,
                "code.take: the service does not fetch folders of yours.",
                "`allot submit` and `allot run --code` send them; in Python `take_code`.",
            )
        if spec.batch is not None:
            raise Rejected(
                Why.NOT_SUPPORTED,
                "A batch script runs in the folder from which it is submitted.",
                "Take `code` out, or give the job a `command` in place of the script.",
            )
        shows = [
            engine.shows(self._folders.working())
            for engine in engines_for(self._backend, spec.engine).values()
            if isinstance(engine, Contained)
        ]
        if not all(shows):
            raise Rejected(
                Why.NOT_SUPPORTED,
                "Code cannot be taken along into pods, which do not see the service's folder "
                f"{self._folders.working()}.",
                "Name another `engine`, put the code into the image, or ask the administrator "
                "to add the folder to `shared` of the engine.",
            )

    async def note(self, jobs: tuple[JobId, ...], spec: JobSpec, owner: Actor) -> None:
        """Keep the code of jobs that were accepted, as long as they are."""
        if spec.code is not None and jobs:
            await self._run(owner, partial(self._use, jobs[-1], spec.code, owner))

    def _use(self, job: JobId, code: CodeBundle, owner: Actor) -> None:
        self._store.use(uid_of(owner), code.bundle, job, code.difference)

    async def of_job(self, job: JobId, actor: Actor) -> CodeView:
        """Return the code of a job: from where, what was not committed, the files.

        Raises Rejected unless this user may see it.
        """
        record = self._finding.record(job)
        may_see(actor, record, self._finding.visibility)
        code, uid = record.spec.code, uid_of(record.owner)
        if code is None:
            raise Rejected(
                Why.NOT_FOUND,
                f"Job {job} took no code along.",
                "It ran in a folder of its user's: see `workdir` of `allot show --json`.",
            )

        def look() -> CodeView:
            try:
                files = self._store.manifest(uid, code.bundle).files
            except FileNotFoundError:
                files = ()
            text = self._store.text(uid, code.difference, MOST_DIFFERENCE)
            return CodeView(code, text.decode(errors="replace"), files)

        return await self._run(actor, look)

    # ── what goes ───────────────────────────────────────────────────────────────────

    async def sweep(self) -> None:
        """Remove the folders of jobs that are over, and code that no job needs any more."""
        ended_before = self._state.at - KEEP_WORK_MS
        live = frozenset(
            job.id
            for job in self._state.jobs.values()
            if not job.state.finished or job.finished_at > ended_before
        )
        below = self._state.next_job
        used = {
            (uid_of(job.owner), code.bundle): (job.id, code, job.owner)
            for job in self._state.jobs.values()
            if (code := job.spec.code) is not None
        }

        def look() -> list[int]:
            for use in used.values():
                self._use(*use)
            drop_folders(self._folders, lambda job: job in live or job >= below)
            return self._store.users()

        for uid in await self._threads.run("sweep", look, DELETING_S):
            await self._sweep_user(uid, UNUSED_S)

    async def _sweep_user(self, uid: int, older_s: float) -> None:
        jobs = await self._threads.run("sweep", partial(self._store.jobs_of, uid), DELETING_S)
        kept = {job for job in jobs if self._is_kept(job)}
        work = partial(self._store.sweep, uid, lambda job: job in kept, older_s)
        await self._threads.run("sweep", work, DELETING_S)

    def _is_kept(self, job: JobId) -> bool:
        try:
            self._finding.record(job)
        except Rejected:
            return False
        return True

    async def _run(self, actor: Actor, work: Callable[[], T]) -> T:
        try:
            return await self._threads.run(actor.user, work, PATIENCE_S)
        except TimeoutError:
            raise Rejected(
                Why.UNAVAILABLE, f"The disk did not answer in {PATIENCE_S:.0f} s.", "Try again."
            ) from None
        except OSError as error:
            raise Rejected(
                Why.UNAVAILABLE,
                f"The code cannot be kept: {(error.strerror or str(error)).lower()}.",
                "This is a problem of the platform: tell its administrator. No partial file "
                "stays.",
            ) from error


def _check_digests(also: tuple[str, ...]) -> None:
    if len(also) > MOST_ALSO or not all(map(is_digest, also)):
        raise Rejected(
            Why.BAD_REQUEST, f"`also` are digests, at most {MOST_ALSO}.", "Leave it out."
        )


def _no_room(used: int, adds: int, most: int) -> Rejected:
    return Rejected(
        Why.TOO_LARGE,
        f"Your code takes {show_bytes(used)} here, and {show_bytes(adds)} more would be beyond "
        f"the {show_bytes(most)} that one user has.",
        "Older code goes when the jobs that used it are forgotten. An administrator can raise "
        "`limits.code_store`.",
    )
