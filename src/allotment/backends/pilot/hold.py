"""One node, and the Slurm job by which we hold it: from submission to its end.

What must outlive the service lies in the node's folder, and is written before Slurm is asked.
"""

import asyncio
import contextlib
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from secrets import token_hex
from time import monotonic

import msgspec
import structlog

from allotment.backends.pilot import messages as m
from allotment.backends.pilot.door import NotAdmitted, is_same
from allotment.backends.pilot.leftover import Book, KeptFolder, SharedFolder
from allotment.backends.pilot.link import Link
from allotment.backends.pilot.request import name_of, options_of, script_of
from allotment.backends.pilot.spell import Spell
from allotment.backends.pilot.squeue import PilotRow, cancel_named
from allotment.backends.slurm import client
from allotment.backends.slurm.discover import report_of as slurm_report
from allotment.backends.slurm.status import LOST
from allotment.backends.slurm.told import SlurmNode
from allotment.model.cluster import Node
from allotment.model.errors import BackendError, EngineAway
from allotment.model.ids import TaskKey
from allotment.model.reports import NodeReport
from allotment.rights.writing import write_whole
from allotment.service.isolated import isolated

log = structlog.get_logger("allot.pilot")

FENCE = "allotment.backends.pilot.fence"
AGENT = "allotment.backends.pilot.agent"
OWN_FOLDER = "allotment.backends.pilot.own_folder"
KEPT = "pilot.json"
ISOLATION = "isolation.json"
"""What keeps tasks apart on the node, as its runner said last: `allot doctor` reads it."""
START_S = 30.0
"""What Slurm does not start by then is shown as the reason for which the node is closed."""
SILENT_S = 90.0
"""A runner that was not heard for so long, though Slurm says that it runs, is cancelled."""
UNKNOWN_S = 60.0
"""A job that Slurm does not know for so long, and that does not show itself, never will."""
LINGER_S = 10.0
"""A node with a disk of its own is held so long after its last task: it has its outputs."""
HAS_LEFT = "its pilot left"
FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 120.0


class Kept(msgspec.Struct, frozen=True):
    """What is kept of a pilot. Without `job` none is there, or an answer was lost."""

    epoch: int = 0
    secret: str = ""
    session: str = ""
    """Of the runner that the secret let in."""
    job: str = ""
    """Slurm's number."""
    is_asked_for: bool = False
    """Whether it was, or is about to be, submitted, and is not known to be over."""


class Hold:
    """One node of the partition."""

    def __init__(
        self, node: Node, folder: Path, prefix: str, partition: str, own_folder: str = ""
    ) -> None:
        """`own_folder` is on the node's own disk; '' where it shares `folder` with us."""
        self.node = node
        self.folder = folder
        self.there = own_folder or str(folder)
        """The node's folder, as the node sees it."""
        self.has_own_disk = bool(own_folder)
        self.kept_folder = KeptFolder(folder)
        self.book: Book = self.kept_folder if own_folder else SharedFolder(folder)
        self.fetching = 0
        """How many tasks' output is about to be fetched."""
        self._prefix = prefix
        self._partition = partition
        self.live: set[TaskKey] = set()
        self.coming: set[TaskKey] = set()
        """Tasks that its runner took, and has said nothing of: their image comes first."""
        self.link: Link | None = None
        self.up = asyncio.Event()
        self.is_configured = True
        self.spell = Spell()
        """Until when the node may be held, and how that is asked for."""
        self.needs_walls = False
        """Whether tasks there may not even see each other's devices."""
        self._is_wanted = True
        self._is_leaving = False
        self._why = ""
        """Why the last one ended, if it was not we who ended it."""
        self._pause_s = 0.0
        self._not_before = 0.0
        self._since = monotonic()
        """Since when it is as it is: waits, is silent, is idle."""
        self._busy = monotonic()
        folder.mkdir(mode=0o700, exist_ok=True)
        self.kept = self._read()

    # ── what is kept ────────────────────────────────────────────────────────────────────

    def _read(self) -> Kept:
        try:
            return msgspec.json.decode((self.folder / KEPT).read_bytes(), type=Kept)
        except (OSError, msgspec.DecodeError):
            return Kept()

    def _keep(self, **changes: object) -> None:
        self.kept = msgspec.structs.replace(self.kept, **changes)
        try:
            write_whole(self.folder / KEPT, msgspec.json.encode(self.kept))
        except OSError as error:
            raise BackendError(
                f"what holds node {self.node.name} cannot be kept: {error}"
            ) from error

    @property
    def job_name(self) -> str:
        return name_of(self._prefix, self.node.name, self.kept.epoch)

    def has(self, key: TaskKey) -> bool:
        """Whether a task was ever launched here."""
        return self.book.has(key)

    def ended(self, key: TaskKey) -> None:
        """Note that a task is over."""
        self.live.discard(key)
        self.coming.discard(key)
        self._busy = monotonic()

    def want(self) -> None:
        """Ask for the node to be held, if it is not."""
        self._is_wanted = True
        self._busy = monotonic()

    # ── its runner ──────────────────────────────────────────────────────────────────────

    def admit(self, hello: m.Hello, rows: Mapping[str, PilotRow]) -> None:
        """Let in the one runner that is expected. Raises NotAdmitted."""
        kept, row = self.kept, rows.get(self.job_name)
        if not kept.is_asked_for or hello.epoch != kept.epoch:
            raise NotAdmitted(f"hold {hello.epoch} of node {hello.node} is over")
        if not is_same(hello.secret, kept.secret):
            raise NotAdmitted("a wrong secret")
        if kept.session and not is_same(hello.session, kept.session):
            raise NotAdmitted("another runner was let in by this secret")
        if row is not None and (not row.is_there or row.id != hello.job):
            raise NotAdmitted(
                f"Slurm says {row.state} of job {row.id}, not that it is {hello.job}"
            )
        if not hello.job.isdecimal() or kept.job not in ("", hello.job):
            raise NotAdmitted(f"its job in Slurm is {kept.job}, not {hello.job[:20]}")
        if not kept.session:
            self._keep(session=hello.session, job=hello.job)

    def connect(self, link: Link) -> None:
        """Take the newest link: its runner has given up the ones before."""
        if self.link is not None:
            self.link.hang_up()
        self.link = link
        with contextlib.suppress(OSError):
            (self.folder / ISOLATION).write_bytes(msgspec.json.encode(link.hello.isolation))
        self._why, self._pause_s = "", 0.0
        self._since = self._busy = monotonic()
        self._is_leaving = False
        self.up.set()

    def disconnect(self, link: Link) -> None:
        """Note that a link is gone."""
        if self.link is link:
            self.link = None
            self.up.clear()
            self._since = monotonic()

    # ── how it is ───────────────────────────────────────────────────────────────────────

    @property
    def is_free(self) -> bool:
        """Whether nothing of ours is on the node, or might be."""
        return not self.kept.is_asked_for and not self.live

    @property
    def unchanged_s(self) -> float:
        """Return for how long it has been as it is: waits, is silent, is idle."""
        return monotonic() - self._since

    @property
    def is_settled(self) -> bool:
        """Whether nothing is expected to change."""
        if self._is_leaving:
            return False
        return self.link is not None if self.kept.is_asked_for else not self._is_wanted

    def is_expected(self, rows: Mapping[str, PilotRow]) -> bool:
        """Whether a runner that we knew should connect again."""
        row = rows.get(self.job_name)
        return bool(self.kept.session) and row is not None and row.is_there

    def is_over(self, rows: Mapping[str, PilotRow]) -> str:
        """Return why the job that held the node is over; '' while it is not, or may not be."""
        if not self.kept.is_asked_for:
            return ""
        row = rows.get(self.job_name)
        if row is None:
            silent = self.link is None and monotonic() - self._since > UNKNOWN_S
            return "Slurm does not know its pilot any more" if silent else ""
        return "" if row.is_there else _why(row, self.node.name)

    def report(self, rows: Mapping[str, PilotRow], found: SlurmNode | None) -> NodeReport:
        """Return the state of the node.

        What Slurm says of the node is up to ten seconds old, perhaps from before its pilot
        began. So tasks are lost only with the pilot, and not because the node was down.
        """
        in_slurm = slurm_report(self.node, found, self._partition) if found else None
        if in_slurm is not None and not in_slurm.alive and not self.kept.session:
            return in_slurm
        if not self.kept.is_asked_for and self._why:
            return NodeReport(self.node.id, alive=False, reason=self._why)
        closed = self._closed(rows) or (in_slurm.closed if in_slurm is not None else "")
        return NodeReport(self.node.id, alive=True, closed=closed)

    def _closed(self, rows: Mapping[str, PilotRow]) -> str:
        row = rows.get(self.job_name)
        if self.spell.shut:
            return self.spell.shut
        if not self.kept.is_asked_for:
            return "its hold is about to be asked for" if self._is_wanted else ""
        if self.link is not None:
            return self._wrong_with(self.link.hello, row)
        if self._is_leaving:
            return ""
        if row is None or row.waits:
            late = row is not None and monotonic() - self._since > START_S
            return (
                f"Slurm does not give it to us: {row.reason}"
                if late and row
                else "its pilot starts"
            )
        return "its pilot does not answer"

    def _wrong_with(self, hello: m.Hello, row: PilotRow | None) -> str:
        if hello.protocol != m.PROTOCOL:
            return "its pilot is of another version; it is renewed when its tasks end"
        if hello.devices and hello.devices < len(self.node.devices):
            return f"it has {hello.devices} GPUs, {len(self.node.devices)} are configured"
        is_shut = hello.isolation is not None and hello.isolation.namespaces != "none"
        if self.needs_walls and not is_shut:
            return (
                "a cell smaller than a node lies there, and its tasks would see all its GPUs: "
                "install bubblewrap on it, or allow user namespaces"
            )
        if row is not None and row.is_nearly_over:
            return "its pilot's time is nearly over; it is renewed when its tasks end"
        return ""

    # ── what is to be done ──────────────────────────────────────────────────────────────

    def is_to_submit(self, found: SlurmNode | None) -> bool:
        """Whether the node is to be asked for now."""
        if self.kept.is_asked_for or self.spell.shut:
            return False
        if found is not None:
            there = slurm_report(self.node, found)
            if not there.alive or there.closed:
                return False
        return self.is_configured and self._is_wanted and monotonic() >= self._not_before

    def is_to_leave(
        self, rows: Mapping[str, PilotRow], found: SlurmNode | None, idle_s: float
    ) -> bool:
        """Whether the node is to be given back: idle, renewed, or taken out of service."""
        if (
            self.live
            or self.fetching
            or self._is_leaving
            or not self.kept.is_asked_for
            or self.link is None
        ):
            return False
        if self.has_own_disk and monotonic() - self._busy < LINGER_S:
            return False
        closed = slurm_report(self.node, found).closed if found is not None else ""
        row = rows.get(self.job_name)
        ends = bool(closed or self.spell.shut or self._wrong_with(self.link.hello, row))
        ends = ends or not self.is_configured
        return ends or monotonic() - self._busy > idle_s

    async def submit(
        self, note: Callable[["Hold"], m.Note], rows: Mapping[str, PilotRow]
    ) -> None:
        """Ask Slurm for the node, with a job of a new name. Raises EngineAway."""
        self._since = monotonic()
        self._keep(
            epoch=self.kept.epoch + 1, secret=token_hex(32), session="", job="",
            is_asked_for=True,
        )  # fmt: skip
        script = self.folder / "pilot.sh"
        agent = json.dumps(isolated(AGENT, self.there))
        fence = isolated(FENCE, self.there, agent, bare=True)
        if self.has_own_disk:
            fence = isolated(OWN_FOLDER, self.there, self.node.name, *fence, bare=True)
        try:
            script.unlink(missing_ok=True)
            fd = os.open(script, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
            with os.fdopen(fd, "w", encoding="utf-8") as file:
                file.write(script_of(fence, note(self)))
            log_to = "" if self.has_own_disk else self.there
            options = options_of(
                self.node, self.job_name, self._partition, log_to, self.spell.options
            )
            number = await client.submit(options, str(script))
            if self.kept.job != number:
                self._keep(job=number)
        except EngineAway:
            raise  # Whether Slurm took it is seen by its name.
        except (BackendError, OSError) as error:
            self.over(str(error))
        finally:
            script.unlink(missing_ok=True)

    async def force(self, rows: Mapping[str, PilotRow]) -> None:
        """Cancel a pilot that Slurm says runs, and that has been silent too long."""
        row = rows.get(self.job_name)
        if row is None or row.waits or not row.is_there or self.link is not None:
            return
        if monotonic() - self._since > SILENT_S:
            log.warning("a silent pilot is cancelled", node=self.node.name, job=row.id)
            await client.cancel(row.id)
            self._since = monotonic()

    async def give_back(self) -> None:
        """Make the pilot end; cancel its job where none is up. Raises BackendError."""
        self._is_wanted, self._is_leaving, self._why = False, True, ""
        self._since = monotonic()
        self.up.clear()
        if self.link is not None:
            try:
                await self.link.call(m.Leave())
            except BackendError:
                self._is_wanted, self._is_leaving, self._busy = True, False, monotonic()
                self.up.set()
                raise
        elif self.kept.is_asked_for and self.kept.job:
            # By its name: the number may be what a runner said of itself.
            await cancel_named(self.job_name)

    def over(self, why: str) -> None:
        """Note that the job that held the node is over. Another is asked for after a pause."""
        if self.link is not None:
            self.link.hang_up()
        with contextlib.suppress(BackendError):
            self._keep(is_asked_for=False, job="", session="")
        has_left = self._is_leaving or why == HAS_LEFT
        self._why = "" if has_left else why
        if not has_left:
            log.warning("a node is not held any more", node=self.node.name, why=why)
        self._is_wanted = self._is_wanted or not self._is_leaving
        self._is_leaving = False
        self._not_before = monotonic() + self._pause_s
        self._pause_s = min(LONGEST_PAUSE_S, max(FIRST_PAUSE_S, 2 * self._pause_s))
        self._since = monotonic()


def _why(row: PilotRow, node: str) -> str:
    if row.state == "TIMEOUT":
        return "the time limit of its pilot in Slurm was over"
    if row.state == "COMPLETED":
        return HAS_LEFT
    if row.state == "FAILED":
        return "its pilot failed; see pilot.log in the node's folder"
    return LOST.get(row.state, "Slurm says {state} of its pilot").format(
        node=node, state=row.state
    )
