"""Effects → backend calls: in order per job or node, tried again on faults, idempotent."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from functools import partial

import structlog

from allotment.engine.records import JobRecord
from allotment.engine.state import State
from allotment.model import effects as f
from allotment.model.diagnosis import Diagnosis, Exit
from allotment.model.errors import BackendError, EngineAway
from allotment.model.events import Phase
from allotment.model.ids import AttemptNo, JobId, NodeId, TaskKey
from allotment.model.lifecycle import TaskState
from allotment.model.reports import Seen, TaskReport
from allotment.model.unusable import Unusable
from allotment.service.code.layout import Layouts
from allotment.service.data.using import DataUses, NotUsable
from allotment.service.environments.environments import Environments
from allotment.service.host_accounts import HostAccounts
from allotment.service.image_policy import ImageNotAllowed, check_image
from allotment.service.job_folders import size_files, wanted_for
from allotment.service.launch import Account, gang_launch, offered_launch
from allotment.service.ports import Backend, GangLaunch, NodeClosing, Refused
from allotment.service.telemetry import Telemetry
from allotment.service.tracking.tracking import Tracking
from allotment.service.withheld import failed_for_secrets
from allotment.service.workspace import Workspace
from allotment.service.workspaces import Workspaces

log = structlog.get_logger("allot.service")

TRIES = 5
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 5.0
STOP_AGAIN_S, STOP_SELDOM_S = 5.0, 300.0
"""How long after tries that failed a task is told to stop again: at first, and at most."""


Lane = JobId | tuple[str, NodeId]


class Dispatcher:
    """One lane a job, and one a node: effects on different ones do not wait for each other."""

    def __init__(  # noqa: PLR0913, PLR0917 - all that a launch needs
        self,
        state: State,
        backend: Backend,
        workspaces: Workspaces,
        telemetry: Telemetry,
        report: Callable[[TaskReport], None],
        uses: DataUses,
        tracking: Tracking,
    ) -> None:
        self.state = state
        self._backend = backend
        self._workspaces = workspaces
        self._telemetry = telemetry
        self._report = report
        self._lanes: dict[Lane, deque[f.AnyEffect]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._left: set[TaskKey] = set()
        """Whose launch was left in the middle for a stop: the engine may not know of them."""
        self._pauses: dict[TaskKey, float] = {}
        """Before tasks that no try could stop are told again."""
        self.brought: dict[JobId, str] = {}
        """What is brought for jobs that start, as a sentence without its full stop."""
        self._accounts = HostAccounts()
        self._layouts = Layouts(workspaces.own.folders)
        self._uses = uses
        self._tracking = tracking
        self.environments = Environments(state, workspaces.own.folders.root, backend)

    def send(self, effects: Iterable[f.AnyEffect]) -> None:
        """Carry out effects whose records are durable."""
        for effect in effects:
            name = _lane_of(effect)
            lane = self._lanes.get(name)
            if lane is None:
                lane = self._lanes[name] = deque()
                self._spawn(self._drain(name, lane))
            lane.append(effect)

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Stop at once: effects that are not done are derived again at the next start."""
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
            case f.StopTask():
                await self._stop(effect)
            case f.FreezeGang(keys, no):
                await self._try(lambda: self._backend.freeze(keys, no))
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

    async def _stop(self, order: f.StopTask) -> None:
        """Have a task stopped, and once more after a while where that cannot be ordered."""
        key, is_wanted = order.key, partial(self._is_stopping, order.key)
        trouble = await self._try(partial(self._tell_to_stop, order), is_wanted)
        if not trouble or not is_wanted():
            self._left.discard(key)
            self._pauses.pop(key, None)
            return
        if key not in self._pauses:
            log.warning(
                "a task cannot be told to stop; it is told again", task=str(key), why=trouble
            )
        pause_s = self._pauses.setdefault(key, STOP_AGAIN_S)
        self._pauses[key] = min(2 * pause_s, STOP_SELDOM_S)
        self._spawn(self._again(order, pause_s))

    async def _again(self, order: f.StopTask, pause_s: float) -> None:
        """Not in the lane: what else the job is told does not wait for it."""
        await asyncio.sleep(pause_s)
        self.send([order])

    async def _tell_to_stop(self, order: f.StopTask) -> None:
        key = order.key
        await self._backend.stop(key, order.signal, order.grace_ms, order.cause)
        if key in self._left and not await self._backend.observe([key]):
            # As after a restart: what was never launched has no end that an engine could tell.
            never = Exit(lost=True, platform_error="it was never started")
            self._report(TaskReport(key, Seen.ENDED, exit=never))

    def _is_stopping(self, key: TaskKey) -> bool:
        """Whether a task is still to be told to stop."""
        job = self.state.jobs.get(key.job)
        attempt = job.attempt if job else None
        if attempt is None or attempt.no != key.attempt:
            return False
        is_told = attempt.stop is not None or attempt.is_surplus(key.index)
        return is_told and attempt.task(key.index).state is not TaskState.ENDED

    async def _launch(self, order: f.LaunchGang) -> None:
        job = self._starting(order)
        if job is None:
            return
        if job.spec.withheld:
            self._fail(order.keys, failed_for_secrets(job))
            return
        if job.spec.offered:
            nodes = self.state.cluster.nodes
            gang = offered_launch(job, order.keys, nodes, at_barrier=order.at_barrier)
            refused = await self._start(gang, partial(self._is_wanted, order))
            if self._starting(order) is job:
                self._give_up(refused)
            return
        try:
            check_image(self.state, job.running_as)
            account = await self._accounts.of(job.owner)
        except ImageNotAllowed as error:
            self._fail(order.keys, error.diagnosis())
            return
        except BackendError as error:
            self._give_up(dict.fromkeys(order.keys, str(error)))
            return
        for workspace, nodes, keys in list(self._workspaces.parts(job, order.keys)):
            refused = await self._launch_in(workspace, nodes, keys, order, account)
            if self._starting(order) is not job:
                return
            self._give_up(refused)

    async def _launch_in(
        self,
        workspace: Workspace,
        nodes: Sequence[str],
        keys: Sequence[TaskKey],
        order: f.LaunchGang,
        account: Account,
    ) -> Refused:
        """Start those tasks of a gang whose files are in one workspace; return the refused."""
        job, is_wanted = self._starting(order), partial(self._is_wanted, order)
        if job is None:
            return {}
        known = self.state.cluster.nodes
        wanted = wanted_for(job, workspace.folders, account, known)
        trouble = await self._try(lambda: workspace.prepare(nodes, wanted), is_wanted, tries=1)
        if trouble and not is_wanted():
            self._leave(keys)
            return {}
        if trouble:
            return dict.fromkeys(keys, trouble)
        phases: tuple[Phase, ...] = ()
        try:
            self.brought[job.id] = "its data is being made ready"
            phases = await self._uses.ready(job, workspace, nodes, is_wanted)
            self.brought[job.id] = "its environment is being prepared"
            phases += await self.environments.ready(job, workspace, nodes, is_wanted)
            self.brought[job.id] = "its code is being copied"
            limit = self.state.config.limits.code_store
            phases += await self._layouts.of(job, account, workspace, nodes, limit, is_wanted)
            data = self._uses.mounts_of(job, workspace.folders)
        except BackendError as error:
            return dict.fromkeys(keys, str(error))
        except (NotUsable, Unusable) as error:
            self._fail(keys, error.diagnosis())
            return {}
        finally:
            self.brought.pop(job.id, None)
        if self._starting(order) is not job:
            return {}
        if not is_wanted():
            self._leave(keys)
            return {}
        gang = gang_launch(
            job,
            keys,
            self.state.config,
            known,
            workspace.folders,
            account,
            at_barrier=order.at_barrier,
            phases=phases,
            data=data,
            tracked=self._tracking.variables(job),
        )
        return await self._start(gang, is_wanted)

    async def _start(self, gang: GangLaunch, is_wanted: Callable[[], bool]) -> Refused:
        """Have a gang started; return which tasks are refused even so often asked for.

        Those that start are told to end when the refusals are reported: a gang is whole. One
        that is to stop is not asked for again: the order to stop it comes next.
        """
        refused: Refused = {}

        async def launch() -> None:
            nonlocal refused
            refused = {}
            refused = await self._backend.launch(gang)
            if refused:
                raise BackendError("; ".join(dict.fromkeys(refused.values())))

        trouble = await self._try(launch, is_wanted)
        if trouble and not refused and not is_wanted():
            self._leave([task.key for task in gang.tasks])
            return {}
        return refused or ({task.key: trouble for task in gang.tasks} if trouble else {})

    def _leave(self, keys: Iterable[TaskKey]) -> None:
        """Note tasks whose launch is left in the middle."""
        self._left = set(filter(self._is_stopping, self._left))
        self._left.update(keys)

    def _starting(self, order: f.LaunchGang) -> JobRecord | None:
        """Return the job of a gang, while this attempt of it is under way."""
        job = self.state.jobs.get(order.job)
        attempt = job.attempt if job else None
        return job if attempt is not None and attempt.no == order.attempt else None

    def _is_wanted(self, order: f.LaunchGang) -> bool:
        """Whether a gang is still to be started."""
        job = self._starting(order)
        return job is not None and job.attempts[-1].stop is None

    async def _tell_size(self, job: JobId, no: AttemptNo) -> None:
        record = self.state.jobs.get(job)
        attempt = record.attempt if record else None
        if record is None or attempt is None or attempt.no != no:
            return
        keys = record.task_keys()[: attempt.staying]
        for workspace, nodes, _ in list(self._workspaces.parts(record, keys)):
            files = size_files(record, workspace.folders, self.state.cluster.nodes)
            await workspace.write(nodes, job, files)

    def _fail(self, keys: Iterable[TaskKey], why: Diagnosis) -> None:
        """Report tasks that cannot start for what is their user's matter."""
        for key in keys:
            told = Exit(platform_error=why.cause)
            self._report(TaskReport(key, Seen.ENDED, exit=told, diagnosis=why))

    def _give_up(self, refused: Refused) -> None:
        for key, why in refused.items():
            self._report(TaskReport(key, Seen.ENDED, exit=Exit(platform_error=why)))

    async def _try(
        self,
        call: Callable[[], Awaitable[None]],
        is_wanted: Callable[[], bool] = lambda: True,
        tries: int = TRIES,
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
                if faults == tries or not is_wanted():
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
        case f.FreezeGang(keys):
            return keys[0].job
        case _:
            return effect.key.job
