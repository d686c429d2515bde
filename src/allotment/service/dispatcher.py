"""Effects → backend calls: in order per job or node, tried again on faults, idempotent."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from functools import partial

import structlog

from allotment.engine.records import JobRecord
from allotment.engine.state import State
from allotment.model import effects as f
from allotment.model.diagnosis import Exit
from allotment.model.errors import BackendError, EngineAway
from allotment.model.ids import AttemptNo, JobId, NodeId
from allotment.model.reports import Seen, TaskReport
from allotment.service.folders import folders_of, prepare, tell_size
from allotment.service.host_accounts import HostAccounts
from allotment.service.launch import Account, Folders, gang_launch
from allotment.service.ports import Backend, GangLaunch, NodeClosing, Refused
from allotment.service.telemetry import Telemetry
from allotment.service.threads import Threads
from allotment.service.withheld import failed_for_secrets

log = structlog.get_logger("allot.service")

TRIES = 5
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 5.0
PATIENCE_S = 30.0
"""How long a file system may take to make a folder."""


Lane = JobId | tuple[str, NodeId]


class Dispatcher:
    """One lane a job, and one a node: effects on different ones do not wait for each other."""

    def __init__(
        self,
        state: State,
        backend: Backend,
        folders: Folders,
        telemetry: Telemetry,
        report: Callable[[TaskReport], None],
    ) -> None:
        self.state = state
        self._backend = backend
        self._folders = folders
        self._telemetry = telemetry
        self._report = report
        self._lanes: dict[Lane, deque[f.AnyEffect]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._threads = Threads("folders")
        self._accounts = HostAccounts()

    def send(self, effects: Iterable[f.AnyEffect]) -> None:
        """Carry out effects whose records are durable."""
        for effect in effects:
            name = _lane_of(effect)
            lane = self._lanes.get(name)
            if lane is None:
                lane = self._lanes[name] = deque()
                task = asyncio.get_running_loop().create_task(self._drain(name, lane))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
            lane.append(effect)

    async def close(self) -> None:
        """Stop in the middle: what is not done is derived again at the next start."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _drain(self, name: Lane, lane: deque[f.AnyEffect]) -> None:
        try:
            while lane:
                await self._carry_out_or_tell(lane.popleft())
        finally:
            if self._lanes.get(name) is lane:
                del self._lanes[name]

    async def _carry_out_or_tell(self, effect: f.AnyEffect) -> None:
        """Carry out an effect; a bug of ours ends the attempt and not the job's lane."""
        try:
            await self._carry_out(effect)
        except Exception as error:
            log.exception("an order could not be given", order=repr(effect))
            if isinstance(effect, f.LaunchGang):
                self._give_up(dict.fromkeys(effect.keys, f"a bug in Allotment: {error!r}"))

    async def _carry_out(self, effect: f.AnyEffect) -> None:
        match effect:
            case f.LaunchGang():
                await self._launch(effect)
            case f.OpenBarrier(job, attempt):
                record = self.state.jobs.get(job)
                keys = [k for k in record.task_keys() if k.attempt == attempt] if record else []
                await self._try(lambda: self._backend.open_barrier(keys))
            case f.TellSize(job, attempt):
                await self._try(partial(self._tell_size, job, attempt))
            case f.StopTask(key, signal, grace_ms, cause):
                await self._try(lambda: self._backend.stop(key, signal, grace_ms, cause))
            case f.FreezeTask(key):
                await self._try(lambda: self._backend.freeze(key))
            case f.ThawTask(key):
                await self._try(lambda: self._backend.thaw(key))
            case f.CloseNode() | f.OpenNode():
                await self._open_or_close(effect)

    async def _open_or_close(self, effect: f.NodeEffect) -> None:
        node, backend = self.state.cluster.nodes.get(effect.node), self._backend
        if node is None or not isinstance(backend, NodeClosing):
            return
        if isinstance(effect, f.OpenNode):
            trouble = await self._try(lambda: backend.open_node(node.name))
        else:
            trouble = await self._try(lambda: backend.close_node(node.name, effect.reason))
        if trouble:
            log.warning(
                "the engine neither opens nor closes a node", order=repr(effect), why=trouble
            )

    async def _launch(self, order: f.LaunchGang) -> None:
        job = self._starting(order)
        if job is None:
            return
        if job.spec.withheld:
            told = Exit(platform_error="its secrets are not there")
            why = failed_for_secrets(job)
            for key in order.keys:
                self._report(TaskReport(key, Seen.ENDED, exit=told, diagnosis=why))
            return
        try:
            account = await self._accounts.of(job.owner)
            if order.tasks[0] == 0:
                await self._prepare(job, account)
            if self._starting(order) is not job:
                return
            gang = gang_launch(
                job,
                order.keys,
                self.state.config,
                self.state.cluster.nodes,
                self._folders,
                account,
                at_barrier=order.at_barrier,
            )
        except BackendError as error:
            self._give_up(dict.fromkeys(order.keys, str(error)))
            return
        refused = await self._start(gang, lambda: self._starting(order) is job)
        if self._starting(order) is job:
            self._give_up(refused)

    async def _start(self, gang: GangLaunch, is_wanted: Callable[[], bool]) -> Refused:
        """Have a gang started; return which tasks are refused even so often asked for.

        Those that start are told to end when the refusals are reported: a gang is whole.
        """
        refused: Refused = {}

        async def launch() -> None:
            nonlocal refused
            refused = {}
            refused = await self._backend.launch(gang)
            if refused:
                raise BackendError("; ".join(dict.fromkeys(refused.values())))

        trouble = await self._try(launch, is_wanted)
        return refused or ({task.key: trouble for task in gang.tasks} if trouble else {})

    async def _prepare(self, job: JobRecord, account: Account) -> None:
        """Make the folders of an attempt. Raises BackendError.

        Those of the user's own may lie where nobody answers: the loop does not wait there.
        """
        make = partial(prepare, job, self._folders, account, self.state.cluster.nodes)
        own = folders_of(job.spec)
        if not own and account.identity is None:
            make()
            return
        try:
            await self._threads.run(job.owner.user, make, PATIENCE_S)
        except TimeoutError:
            where = " or ".join(own) or "its outputs"
            raise BackendError(
                f"the folders of job {job.id} were not made in {PATIENCE_S:.0f} s: the file "
                f"system of {where} does not answer"
            ) from None

    def _starting(self, order: f.LaunchGang) -> JobRecord | None:
        """Return the job of a gang, while this attempt of it is under way."""
        job = self.state.jobs.get(order.job)
        attempt = job.attempt if job else None
        return job if attempt is not None and attempt.no == order.attempt else None

    async def _tell_size(self, job: JobId, no: AttemptNo) -> None:
        record = self.state.jobs.get(job)
        attempt = record.attempt if record else None
        if record is not None and attempt is not None and attempt.no == no:
            tell_size(record, self._folders, self.state.cluster.nodes)

    def _give_up(self, refused: Refused) -> None:
        for key, why in refused.items():
            self._report(TaskReport(key, Seen.ENDED, exit=Exit(platform_error=why)))

    async def _try(
        self,
        call: Callable[[], Awaitable[None]],
        is_wanted: Callable[[], bool] = lambda: True,
    ) -> str:
        """Call until it works or patience ends; return the last trouble, empty when it worked.

        While the engine is away there is no end to patience: what it runs goes on without us.
        """
        pause, faults = FIRST_PAUSE_S, 0
        while True:
            try:
                await call()
            except BackendError as error:
                self._telemetry.backend_faults += 1
                faults += not isinstance(error, EngineAway)
                if faults == TRIES or not is_wanted():
                    return str(error)
                await asyncio.sleep(pause)
                pause = min(pause * 2, LONGEST_PAUSE_S)
            else:
                return ""


def _lane_of(effect: f.AnyEffect) -> Lane:
    match effect:
        case f.LaunchGang(job) | f.OpenBarrier(job) | f.TellSize(job):
            return job
        case f.CloseNode(node) | f.OpenNode(node):
            return "node", node
        case _:
            return effect.key.job
