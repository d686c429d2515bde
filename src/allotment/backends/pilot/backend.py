"""The pilot backend: each task to the runner of its node, on nodes held in a Slurm partition.

A node's folder lies on the shared disk: its runner writes there what becomes of its tasks,
which is read there when it is gone.
"""

import asyncio
import contextlib
import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from secrets import token_hex
from time import monotonic, time_ns
from typing import Any

import msgspec
import structlog

from allotment.backends.kept import kept_text, own_name
from allotment.backends.local.images.images import Images
from allotment.backends.local.images.trouble import ImageTrouble
from allotment.backends.pilot import asking
from allotment.backends.pilot import file_messages as fm
from allotment.backends.pilot import messages as m
from allotment.backends.pilot.carrying import Checkpoints
from allotment.backends.pilot.door import Door, NotAdmitted, certificate
from allotment.backends.pilot.entering import enter_argv
from allotment.backends.pilot.fetching import Outputs
from allotment.backends.pilot.gres import files_of
from allotment.backends.pilot.hold import Hold
from allotment.backends.pilot.leftover import KeptFolder, SharedFolder
from allotment.backends.pilot.link import Link
from allotment.backends.pilot.mpi import with_agents
from allotment.backends.pilot.node_holdings import NodeHoldings
from allotment.backends.pilot.node_images import NodeImages
from allotment.backends.pilot.own_disks import NodeDisks
from allotment.backends.pilot.pauses import Pauses
from allotment.backends.pilot.request import own_folder
from allotment.backends.pilot.shared_disk import why_unseen
from allotment.backends.pilot.spell import spell_of
from allotment.backends.pilot.squeue import PilotRow, cancel_named, others_wait, rows
from allotment.backends.slurm import client, token
from allotment.backends.slurm.finding import Finder
from allotment.backends.slurm.nodes import RESERVATIONS_EVERY_S
from allotment.backends.slurm.reservations import SLURM, Calendar, SlurmReservation
from allotment.backends.slurm.settings import Partition
from allotment.backends.slurm.told import SlurmNode
from allotment.backends.together import gather_all
from allotment.model.cluster import Node
from allotment.model.content import Content
from allotment.model.diagnosis import Exit
from allotment.model.engines import Ability, EngineSetup, EngineType
from allotment.model.errors import BackendError, EngineAway
from allotment.model.health import HealthReport
from allotment.model.ids import JobId, NodeId, TaskKey
from allotment.model.quantity import MINUTE, Millis, WallTime
from allotment.model.reasons import StopCause
from allotment.model.reports import NodeReport, Seen, TaskReport
from allotment.model.reservations import FoundReservation
from allotment.service.forever import forever
from allotment.service.ports import (
    DataMount,
    DeviceUse,
    GangLaunch,
    Having,
    Limit,
    LogChunk,
    Refused,
    Report,
    Silence,
    TaskLaunch,
    TaskUse,
)
from allotment.service.workspace import Workspace

log = structlog.get_logger("allot.pilot")

UNNAMED = EngineSetup("", EngineType.PILOT)
STEP_EVERY_S = 0.25
ASK_OFTEN_S, ASK_SELDOM_S = 0.5, 10.0
"""Slurm is asked for our jobs: often while a node comes or goes, seldom when all is well."""
NODES_EVERY_S = 10.0
UP_S = 30.0
"""How long an order waits for the runner of its node, before it is given again."""
REDIAL_S = 5.0
"""How long a service that starts waits for runners that it left."""
CLOSE_S = 5.0
"""How long a service that ends waits for idle runners to hear that they may leave."""
IDLE_S = 600.0
COURTESY_S = 30.0
"""The same, while jobs of others wait for nodes of the partition."""
LEASE_S = 3600.0


class PilotBackend:
    """Runs tasks on whole nodes. `nodes` are those of the configuration.

    Those `divided` have cells of a part of them, whose tasks must see no other's devices. A
    node without tasks is given back to Slurm after `idle_s`, or sooner if others wait. A
    runner that hears nothing of a service for `lease_s` ends its tasks and itself. `images`
    asks registries.
    """

    name = "pilot"
    abilities = frozenset(Ability) - {Ability.PMI}

    def __init__(  # noqa: PLR0913 - one a setting
        self,
        state_dir: Path,
        partition: str,
        nodes: Callable[[], Sequence[Node]],
        images: Images,
        *,
        divided: Callable[[], Collection[NodeId]] = tuple,
        disk: str = "",
        data: Path | None = None,
        setup: EngineSetup = UNNAMED,
        idle_s: float = IDLE_S,
        lease_s: float = LEASE_S,
    ) -> None:
        self._root = state_dir.absolute() / "pilot"
        self._partition = partition
        self._nodes = nodes
        self._divided = divided
        self._idle_s, self._lease_s = idle_s, lease_s
        self.holdings = NodeHoldings(self._root / "nodes", self._links_up, files=bool(disk))
        self._images = NodeImages(images, self._links_up, self.holdings.unsure.update)
        self._disk = disk
        self._data = data
        self._setup = setup
        self._user = token.name_of(os.geteuid())
        self._reservations: Sequence[SlurmReservation] | None = None
        """As Slurm told of them last; None before."""
        self._slurm_partition: Partition | None = None
        self._asked_for_reservations = -RESERVATIONS_EVERY_S
        self._disks: NodeDisks | None = None
        self._launching: set[TaskKey] = set()
        self._outputs = Outputs()
        self._pauses = Pauses(self._by_link)
        self._prefix = ""
        self._secret = b""
        """From which the keys come by which the tasks of a gang know each other."""
        self._certificate = ""
        self._sink: Callable[[Report], None] = lambda report: None
        self._holds: dict[str, Hold] = {}
        self._where: dict[TaskKey, Hold] = {}
        self._jobs: dict[int, set[str]] = {}
        """On which nodes a job has folders, of before this service began."""
        self._rows: dict[str, PilotRow] = {}
        self._asked = self._looked = -1e9
        self._away = ""
        self._others_wait = False
        self._slurm_nodes: dict[str, SlurmNode] = {}
        self._finder = Finder(partition)
        self._told: dict[NodeId, NodeReport] = {}
        self._door = Door(self._root, self._admit, self._meet)
        self._stepping: asyncio.Task[None] | None = None
        self._looking: asyncio.Task[None] | None = None
        self._gres = ""

    # ── life ────────────────────────────────────────────────────────────────────────────

    async def start(self, sink: Callable[[Report], None]) -> None:
        self._sink = sink
        # Users reach their outputs through the folder above; nobody what is in this one.
        (self._root / "nodes").mkdir(mode=0o700, parents=True, exist_ok=True)
        self._root.chmod(0o700)
        # No other service's jobs have names that begin so.
        self._prefix = own_name(self._root)
        self._secret = kept_text(self._root / "secret", lambda: token_hex(32)).encode()
        if self._disk:
            root = own_folder(self._disk, self._prefix)
            kept = Checkpoints(self._root / "checkpoints")
            self._disks = NodeDisks(
                root,
                self._link_of,
                self._link_to,
                kept,
                self._occupy,
                self._runs,
                self.holdings.unsure.add,
            )
        self._certificate = await asyncio.to_thread(certificate, self._root)
        self._match_nodes()
        await asyncio.to_thread(self._find_jobs)
        self._gres = await asyncio.to_thread(_gres_conf)
        await self._door.open([node.address or node.name for node in self._nodes()])
        with contextlib.suppress(EngineAway):
            await self._ask()
            await self._look_for_reservations(monotonic())
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(REDIAL_S):
                for hold in self._holds.values():
                    if hold.is_expected(self._rows):
                        await hold.up.wait()
        for hold in self._holds.values():
            self._tell(hold)  # Nothing is to be placed where nothing is held yet.
        self._stepping = asyncio.create_task(forever(self._step, STEP_EVERY_S, "held nodes"))
        looking = forever(self.holdings.look_again, STEP_EVERY_S, "content of nodes")
        self._looking = asyncio.create_task(looking)

    def _match_nodes(self) -> None:
        """Have a hold for each node of the configuration, and none that is of no use."""
        there = {node.name: node for node in self._nodes()}
        divided = self._divided()
        for name, node in there.items():
            if name in self._holds:
                self._holds[name].node = node
            else:
                folder = self._root / "nodes" / name
                own = self._disks.folders.root if self._disks is not None else ""
                self._holds[name] = Hold(node, folder, self._prefix, self._partition, own)
        for name, hold in list(self._holds.items()):
            hold.is_configured = name in there
            hold.needs_walls = hold.node.id in divided
            if not hold.is_configured and hold.is_free:
                del self._holds[name]
        self.holdings.match(self._holds)

    def _find_jobs(self) -> None:
        """Note which jobs have folders on which nodes."""
        for path in (self._root / "nodes").glob("*/tasks/*"):
            if path.name.isdecimal():
                self._jobs.setdefault(int(path.name), set()).add(path.parts[-3])

    async def close(self) -> None:
        loops = [loop for loop in (self._stepping, self._looking) if loop is not None]
        for loop in loops:
            loop.cancel()
        await asyncio.gather(*loops, return_exceptions=True)
        idle = [self._let_go(hold) for hold in self._holds.values() if not hold.live]
        await asyncio.gather(*idle, return_exceptions=True)
        await self._pauses.close()
        if self._disks is not None:
            await self._disks.close()
        await self._outputs.close()
        await self._door.close()

    async def _let_go(self, hold: Hold) -> None:
        """Release an idle node; where its runner does not hear it, Slurm ends it."""
        is_asked_for = hold.kept.is_asked_for
        with contextlib.suppress(TimeoutError, EngineAway):
            async with asyncio.timeout(CLOSE_S):
                await hold.give_back()
                is_asked_for = is_asked_for and hold.link is None
        if is_asked_for:
            async with asyncio.timeout(CLOSE_S):
                await cancel_named(hold.job_name)

    # ── runners that dial in ────────────────────────────────────────────────────────────

    def _admit(self, hello: m.Hello) -> None:
        hold = self._holds.get(hello.node)
        if hold is None:
            raise NotAdmitted(f"this service has no node {hello.node}")
        hold.admit(hello, self._rows)

    async def _meet(
        self, hello: m.Hello, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Serve one runner until it hangs up: one of its node, the newest."""
        hold = self._holds[hello.node]
        link = Link(hello, reader, writer, lambda report: self._hear(hold, report))
        hold.connect(link)
        listening = asyncio.create_task(link.listen())
        try:
            with contextlib.suppress(BackendError):
                await self._catch_up(hold, link)
                await self._settle_files(hold, link)
            self.holdings.unsure.add(hello.node)
            self._tell(hold)
            await listening
        finally:
            listening.cancel()
            hold.disconnect(link)
            self._asked = -1e9  # Slurm may know why.
            self._tell(hold)

    async def _catch_up(self, hold: Hold, link: Link) -> None:
        """Hear what was told while nobody listened."""
        keys = tuple(hold.live)
        told = await asking.observe(link, keys)
        for report in told:
            self._hear(hold, report)
        self._settle(hold, keys, told)

    def _settle(self, hold: Hold, keys: Iterable[TaskKey], told: Iterable[TaskReport]) -> None:
        """Forget tasks that their runner does not know: orders that did not arrive.

        Or that arrived, and were lost with a runner while it fetched their image.
        """
        for key in set(keys) - {report.key for report in told} - self._launching:
            if key in hold.coming:
                self._hear(hold, _lost(key, "its runner ended while its image was fetched"))
                continue
            hold.book.unask(key)
            if not hold.has(key):
                hold.ended(key)

    def _hear(self, hold: Hold, report: TaskReport | HealthReport) -> None:
        if isinstance(report, HealthReport):
            if (heard := asking.heard_of(hold.node, report)) is not None:
                self._sink(heard)
            return
        where = self._hold_of(report.key)
        if where is None or where.node.name != hold.node.name:
            return  # A runner knows nothing of other nodes' tasks.
        report = asking.possible(report)
        if report.seen is not Seen.UNKNOWN and report.key in hold.coming:
            hold.coming.discard(report.key)
            self.holdings.unsure.add(hold.node.name)
        with contextlib.suppress(OSError):
            hold.book.hear(report)
        if report.seen is Seen.ENDED:
            hold.ended(report.key)
            self._outputs.fetch(hold, report.key)
        self._sink(report)

    # ── holding ─────────────────────────────────────────────────────────────────────────

    async def _ask(self) -> None:
        """Ask Slurm for our jobs. Raises EngineAway; then what was known stays so."""
        self._rows = await rows(self._prefix)
        self._asked = monotonic()

    async def _step(self) -> None:
        self._match_nodes()
        await self._look_at_slurm()
        if self._away:
            return
        for hold in list(self._holds.values()):
            with contextlib.suppress(BackendError):  # One runner keeps no other waiting.
                await self._step_one(hold)
            self._tell(hold)
        await self._cancel_strays()

    async def _look_at_slurm(self) -> None:
        now = monotonic()
        settled = all(hold.is_settled for hold in self._holds.values())
        try:
            if now - self._asked >= (ASK_SELDOM_S if settled else ASK_OFTEN_S):
                await self._ask()
            if now - self._looked >= NODES_EVERY_S:
                there = await client.nodes()
                await self._finder.look(there, {node.name for node in self._nodes()})
                self._slurm_nodes = {node.name: node for node in there}
                self._looked = now
                await self._look_for_reservations(now)
                with contextlib.suppress(BackendError):  # A courtesy: nothing waits for it.
                    self._others_wait = await others_wait(self._partition, self._prefix)
            self._away = ""
        except EngineAway as error:
            if not self._away:
                log.warning("Slurm does not answer; tasks continue", why=str(error))
            self._away = str(error)

    async def _look_for_reservations(self, now: float) -> None:
        """Ask for all reservations, if it is time. Raises EngineAway."""
        if now - self._asked_for_reservations < RESERVATIONS_EVERY_S:
            return
        try:
            self._reservations = await client.reservations()
            self._slurm_partition = await client.partition(self._partition)
        except BackendError as error:  # Where it refuses, what it told of last counts.
            if isinstance(error, EngineAway):
                raise
        self._asked_for_reservations = now

    @property
    def _calendar(self) -> Calendar:
        return Calendar(self._setup, self._user, tuple(self._reservations or ()))

    def found_reservations(self) -> Mapping[str, Sequence[FoundReservation] | None]:
        known = self._reservations is not None
        found = tuple(self._calendar.found(_wall_now())) if known else None
        return {self._setup.name or SLURM: found}

    async def _step_one(self, hold: Hold) -> None:
        there = self._slurm_partition
        usual_min = there.usual_min if there is not None else None
        hold.spell = spell_of(hold.node.name, self._calendar, usual_min, _wall_now())
        why = hold.is_over(self._rows)
        if why:
            await self._lose(hold, why)
            return
        in_slurm = self._slurm_nodes.get(hold.node.name)
        idle_s = min(self._idle_s, COURTESY_S) if self._others_wait else self._idle_s
        if hold.is_to_leave(self._rows, in_slurm, idle_s):
            await hold.give_back()
        elif hold.is_to_submit(in_slurm):
            await hold.submit(self._note, self._rows)
            self._asked = -1e9
        else:
            await hold.force(self._rows)

    def _note(self, hold: Hold) -> m.Note:
        files = files_of(self._gres, hold.node.name)
        return m.Note(
            node=hold.node.name,
            epoch=hold.kept.epoch,
            secret=hold.kept.secret,
            certificate=self._certificate,
            lease_s=self._lease_s,
            idle_s=self._idle_s,
            devices={str(index): (path,) for index, path in files.items()},
            address=self._door.address if hold.has_own_disk else "",
        )

    async def _lose(self, hold: Hold, why: str) -> None:
        """A node's pilot is over: tell what became of its tasks, which all are over too."""
        keys = tuple(hold.live)
        told = await self._look_behind(hold, keys)
        unseen = hold.coming.difference(report.key for report in told)
        for report in (*told, *(_lost(key, why) for key in unseen)):
            if report.exit is not None and report.exit.lost:
                exit_ = msgspec.structs.replace(report.exit, platform_error=why)
                report = msgspec.structs.replace(report, exit=exit_)
            self._hear(hold, report)
        hold.over(why)
        self._tell(hold)
        hold.live.clear()

    async def _look_behind(self, hold: Hold, keys: Iterable[TaskKey]) -> Sequence[TaskReport]:
        """Read what the runner of a pilot that is over left of some tasks."""
        return await hold.book.of_a_lost_pilot(keys)

    async def _cancel_strays(self) -> None:
        """Cancel what we submitted and do not know: from a lost answer, or of a lost book."""
        wanted = {hold.job_name for hold in self._holds.values()}
        for name, row in self._rows.items():
            if name not in wanted and row.is_there:
                log.warning("a pilot that is not needed is cancelled", job=row.id, name=name)
                await client.cancel(row.id)
                self._asked = -1e9

    def _tell(self, hold: Hold) -> None:
        report = hold.report(self._rows, self._slurm_nodes.get(hold.node.name))
        if hold.is_configured and self._told.get(hold.node.id) != report:
            self._told[hold.node.id] = report
            self._sink(report)

    def found_nodes(self) -> Mapping[str, Sequence[Node]]:
        return {"": self._finder.nodes}

    def time_limit(self) -> Limit | None:
        there = self._slurm_partition
        if there is None or there.usual_min is None:
            return None
        where = f"A pilot in Slurm's partition {there.name}"
        return Limit(Millis(there.usual_min * MINUTE), where)

    def silence(self, node: str) -> Silence | None:
        """Return since when the runner of a node with tasks is not connected."""
        hold = self._holds.get(node)
        if hold is None or hold.link is not None or not hold.live:
            return None
        for_ms = Millis(int(hold.unchanged_s * 1000))
        why = self._away or "it is not connected"
        return Silence(f"The runner of {node}", for_ms, why)

    # ── tasks ───────────────────────────────────────────────────────────────────────────

    async def launch(self, gang: GangLaunch) -> Refused:
        """Start each task on its node, once all the nodes are held."""
        gang = with_agents(gang, self._secret)
        refused: dict[TaskKey, str] = {}
        by_hold: dict[Hold, list[TaskLaunch]] = {}
        for task in gang.tasks:
            hold = self._holds.get(task.binding.node)
            if hold is None:
                refused[task.key] = f"the configuration has no node {task.binding.node}"
            else:
                by_hold.setdefault(hold, []).append(task)
        links = await gather_all([self._link_up(hold) for hold in by_hold])
        for hold, link in zip(by_hold, links, strict=True):
            if link is None:
                return dict.fromkeys((task.key for task in gang.tasks), self._not_given(hold))
        try:
            gang = await self._images.with_login(gang, [link for link in links if link])
        except ImageTrouble as trouble:
            return await self._never_launched(gang, trouble)
        parts = [
            self._launch_on(hold, link, gang.only(tasks))
            for (hold, tasks), link in zip(by_hold.items(), links, strict=True)
            if link is not None
        ]
        for part in await gather_all(parts):
            refused |= part
        return refused

    async def _launch_on(self, hold: Hold, link: Link, gang: GangLaunch) -> Refused:
        """Start the tasks of one node. Raises EngineAway."""
        for task in gang.tasks:
            hold.live.add(task.key)
            self._where[task.key] = hold
            self._jobs.setdefault(task.key.job, set()).add(hold.node.name)
        keys = [task.key for task in gang.tasks]
        self._launching.update(keys)
        try:
            for key in keys:
                hold.book.ask(key, gang.log_bytes)
            answer = await asking.launch(link, gang, self._images.room)
        except EngineAway:
            raise
        except (BackendError, OSError) as error:
            answer = dict.fromkeys(keys, str(error))
        finally:
            self._launching.difference_update(keys)
        if answer:
            self._settle(hold, answer, await asking.observe(link, answer.keys()))
        if gang.image_wish is not None:
            hold.coming.update(key for key in keys if key in hold.live and key not in answer)
        return answer

    async def _never_launched(self, gang: GangLaunch, trouble: ImageTrouble) -> Refused:
        """Report what the image of a gang kept from being launched.

        Of tasks that an earlier call started no end is made up: their runners are asked.
        Returns what is refused where one is not available. Raises EngineAway.
        """
        keys = [task.key for task in gang.tasks]
        for hold in {hold for key in keys if (hold := self._hold_of(key)) is not None}:
            if await self._link_up(hold) is None:
                return dict.fromkeys(keys, self._not_given(hold))
        await self.observe(keys)
        told, why = Exit(platform_error=trouble.cause), trouble.diagnosis()
        for key in keys:
            hold = self._hold_of(key)
            if hold is None or not (key in hold.live or hold.has(key)):
                self._sink(TaskReport(key, Seen.ENDED, exit=told, diagnosis=why))
        return {}

    def _not_given(self, hold: Hold) -> str:
        row = self._rows[hold.job_name]
        return f"Slurm did not give node {hold.node.name} in {UP_S:.0f} s: {row.reason}"

    async def _link_up(self, hold: Hold) -> Link | None:
        """Return the link to a node, which is held again if it was given back.

        None where others have it, and we wait in Slurm's queue: that may take days.
        """
        hold.want()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(UP_S):
                await hold.up.wait()
        if hold.link is None or not hold.up.is_set():
            row = self._rows.get(hold.job_name)
            if row is not None and row.waits and not self._away:
                return None
            raise EngineAway(f"node {hold.node.name} is not held yet")
        return hold.link

    async def open_barrier(self, keys: Sequence[TaskKey]) -> None:
        for link, own in self._by_link(keys).items():
            await link.call(m.OpenBarrier(tuple(own)))

    async def stop(
        self, key: TaskKey, signal: str, grace_ms: Millis, cause: StopCause | None = None
    ) -> None:
        await self._pauses.leave_off(key.job)
        await self._order(key, m.Stop(key, signal, grace_ms, cause))

    async def freeze(self, keys: Sequence[TaskKey], no: int) -> None:
        for job in {key.job for key in keys}:
            await self._pauses.freeze([key for key in keys if key.job == job], no)

    async def thaw(self, key: TaskKey) -> None:
        await self._pauses.leave_off(key.job)
        await self._order(key, m.Thaw(key))

    async def _order(self, key: TaskKey, op: m.Op) -> None:
        for link in self._by_link([key]):
            await link.call(op)

    def _by_link(self, keys: Iterable[TaskKey]) -> dict[Link, list[TaskKey]]:
        """Group tasks by the link to their node; those are left out that are over.

        Raises EngineAway where a runner that is needed is not connected.
        """
        found: dict[Link, list[TaskKey]] = {}
        for key in keys:
            hold = self._hold_of(key)
            if hold is None or not hold.kept.job:
                continue
            if hold.link is None:
                raise EngineAway(f"the runner of node {hold.node.name} is not connected")
            found.setdefault(hold.link, []).append(key)
        return found

    def _hold_of(self, key: TaskKey) -> Hold | None:
        """Return where a task was launched; None if it never was."""
        if key in self._where:
            return self._where[key]
        for name in sorted(self._jobs.get(key.job, ())):
            hold = self._holds.get(name)
            if hold is not None and hold.has(key):
                self._where[key] = hold
                return hold
        return None

    async def highest_job(self) -> JobId:
        return JobId(max(self._jobs, default=0))

    async def observe(self, keys: Sequence[TaskKey]) -> Sequence[TaskReport]:
        by_hold: dict[Hold, list[TaskKey]] = {}
        for key in keys:
            if (hold := self._hold_of(key)) is not None:
                by_hold.setdefault(hold, []).append(key)
        found: list[TaskReport] = []
        for hold, own in by_hold.items():
            found += await self._observe_on(hold, own)
        return found

    async def _observe_on(self, hold: Hold, keys: list[TaskKey]) -> Sequence[TaskReport]:
        told = asked = await self._ask_runner(hold, keys)
        if told is not None:
            pass
        elif not hold.kept.job or hold.is_over(self._rows):
            told = await self._look_behind(hold, keys)
        else:
            told = [report for key in keys if (report := hold.book.last_words(key))]
        ended = {report.key for report in told if report.seen is Seen.ENDED}
        hold.live |= set(keys) - ended
        if asked is not None:
            self._settle(hold, keys, asked)
        return told

    async def _ask_runner(self, hold: Hold, keys: list[TaskKey]) -> list[TaskReport] | None:
        """Observe tasks where they run; None where no runner answers."""
        if hold.link is None:
            return None
        try:
            return await asking.observe(hold.link, keys)
        except EngineAway:
            return None

    async def read_log(self, key: TaskKey, stream: str, offset: int, size: int) -> LogChunk:
        hold = self._hold_of(key)
        if hold is None:
            return LogChunk(b"", max(offset, 0))
        if hold.link is not None and not hold.kept_folder.is_fetched(key):
            with contextlib.suppress(EngineAway):
                return await asking.read_log(hold.link, key, stream, offset, size)
        return await hold.book.read_log(key, stream, offset, size)

    # ── nodes with disks of their own ───────────────────────────────────────────────────

    def workspace_of(self, node: str) -> Workspace | None:  # noqa: ARG002 - all alike
        return self._disks

    def _link_of(self, node: str) -> Link | None:
        hold = self._holds.get(node)
        return hold.link if hold is not None else None

    def _runs(self, node: str, job: JobId) -> bool:
        """Whether tasks of a job run on a node, or may."""
        hold = self._holds.get(node)
        return hold is not None and any(key.job == job for key in hold.live)

    def _occupy(self, nodes: Sequence[str], more: int) -> None:
        """Note how much more is fetched of nodes."""
        for hold in (self._holds.get(node) for node in nodes):
            if hold is not None:
                hold.fetching += more

    async def _link_to(self, node: str, job: JobId) -> Link:
        """Return the link to a node, held if it was not, for files of a job.

        It is noted first that there may be some: they go when the job is forgotten, whether
        or not a task of it is ever launched there. Raises BackendError.
        """
        hold = self._holds.get(node)
        if hold is None:
            raise BackendError(f"the configuration has no node {node}")
        if node not in self._jobs.setdefault(job, set()):
            try:
                hold.kept_folder.expect(job)
            except OSError as error:
                raise BackendError(
                    f"the books of node {node} cannot be kept: {error}"
                ) from error
            self._jobs[job].add(node)
        link = await self._link_up(hold)
        if link is None:
            raise BackendError(self._not_given(hold))
        return link

    async def _settle_files(self, hold: Hold, link: Link) -> None:
        """Do what could not be done on a node's own disk while it was away."""
        if not hold.has_own_disk:
            return
        await self._outputs.fetch_missing(hold)
        if forgotten := hold.kept_folder.forgotten():
            await link.call(fm.ForgetFiles(forgotten))
            hold.kept_folder.set_gone(forgotten)

    async def forget(self, job: JobId) -> None:
        if self._disks is not None:
            await self._disks.forget(job)
        for name in self._jobs.pop(job, ()):
            try:
                await self._forget_on(name, job)
            except OSError as error:  # It keeps no other node's, nor any other job's.
                log.warning("files of an old job stay", node=name, job=job, why=str(error))
        for key in [key for key in self._where if key.job == job]:
            del self._where[key]

    async def _forget_on(self, node: str, job: JobId) -> None:
        """Remove what a job left on a node: now, or when it is next held. Raises OSError."""
        folder = self._root / "nodes" / node
        if not self._disk:
            await SharedFolder(folder).forget(job)
            return
        kept = KeptFolder(folder)
        await kept.forget(job)
        if (link := self._link_of(node)) is not None:
            with contextlib.suppress(BackendError):
                await link.call(fm.ForgetFiles((job,)))
                kept.set_gone((job,))

    def enter_argv(self, key: TaskKey, argv: Sequence[str]) -> list[str]:
        hold = self._hold_of(key)
        if hold is None or not hold.kept.job:
            raise BackendError(f"the node of task {key} is not held")
        return enter_argv(hold, key, argv)

    # ── datasets ────────────────────────────────────────────────────────────────────────

    async def why_no_mounts(self, mounts: Sequence[DataMount]) -> str:  # noqa: ARG002 - all alike
        """Return why nodes do not see the service's datasets; '' where they may.

        A node that does not all the same says so when a task is to begin there. To disks of
        their own they are sent.
        """
        if self._data is None or self._disk:
            return ""
        data, root = os.path.realpath(self._data), os.path.realpath(self._root)
        return why_unseen(data, root, Path("/proc/self/mountinfo").read_text())

    # ── images ──────────────────────────────────────────────────────────────────────────

    def _links_up(self) -> Sequence[Link]:
        return [hold.link for hold in self._holds.values() if hold.link is not None]

    def images(self) -> NodeImages:
        return self._images

    def nodes_with(self, contents: Sequence[Content]) -> Mapping[Content, Having]:
        ids = {name: hold.node.id for name, hold in self._holds.items() if hold.is_configured}
        return {
            content: Having(
                frozenset(ids[name] for name in sizes if name in ids),
                max(sizes.values(), default=0),
            )
            for content, sizes in self.holdings.nodes_with(contents).items()
        }

    # ── use ─────────────────────────────────────────────────────────────────────────────

    async def uses(self, keys: Sequence[TaskKey]) -> Sequence[TaskUse]:
        asked = [asking.uses(link, own) for link, own in self._by_link_up(keys).items()]
        return [use for found in await _those_that_answer(asked) for use in found]

    def _by_link_up(self, keys: Iterable[TaskKey]) -> dict[Link, list[TaskKey]]:
        found: dict[Link, list[TaskKey]] = {}
        for key in keys:
            hold = self._hold_of(key)
            if hold is not None and hold.link is not None:
                found.setdefault(hold.link, []).append(key)
        return found

    async def device_uses(self) -> Mapping[NodeId, Sequence[DeviceUse]]:
        up = [(hold.node, hold.link) for hold in self._holds.values() if hold.link]
        found: dict[NodeId, Sequence[DeviceUse]] = {}
        for node, link in up:
            with contextlib.suppress(BackendError):
                found[node.id] = await asking.device_uses(link, node)
        return found


def _lost(key: TaskKey, why: str) -> TaskReport:
    return TaskReport(key, Seen.ENDED, exit=Exit(lost=True, platform_error=why))


def _wall_now() -> WallTime:
    return WallTime(time_ns() // 1_000_000)


async def _those_that_answer(asked: list[Any]) -> list[Any]:
    found = await asyncio.gather(*asked, return_exceptions=True)
    return [each for each in found if not isinstance(each, BaseException)]


def _gres_conf() -> str:
    """Read Slurm's file on devices; '' where this machine has none."""
    conf = Path(os.environ.get("SLURM_CONF", "/etc/slurm/slurm.conf"))
    try:
        return conf.with_name("gres.conf").read_text()
    except (OSError, UnicodeDecodeError):
        return ""
