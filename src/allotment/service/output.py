"""What the tasks of a job wrote, and a way into those that run."""

from collections.abc import Sequence

from allotment.engine.records import AttemptRecord, JobRecord
from allotment.model.engines import Ability
from allotment.model.errors import Code, Rejected
from allotment.model.ids import Actor, AttemptNo, JobId, TaskIndex, TaskKey
from allotment.model.lifecycle import TaskState
from allotment.service import views as v
from allotment.service.access import may_change, may_see
from allotment.service.files import shown
from allotment.service.finding import Finding
from allotment.service.folders import account_of
from allotment.service.host_workspace import silent_files
from allotment.service.launch import Account
from allotment.service.ports import Backend, Enterable, LogChunk
from allotment.service.queries import task_name
from allotment.service.threads import Threads
from allotment.service.turns import Turns
from allotment.service.workspace import Left, OpenFile
from allotment.service.workspaces import Workspaces

PATIENCE_S = 60.0


class Output:
    """Reads what tasks wrote, for those who may."""

    def __init__(
        self, finding: Finding, backend: Backend, workspaces: Workspaces, turns: Turns
    ) -> None:
        self._finding = finding
        self._backend = backend
        self._workspaces = workspaces
        self._turns = turns
        self._threads = Threads("readers")

    def task_index(
        self, job: JobId, attempt: int | None, task: str
    ) -> tuple[AttemptNo, TaskIndex]:
        """Return a task by name or number, of the newest attempt if None. Raises Rejected."""
        record = self._finding.record(job)
        if not record.attempts:
            raise Rejected(
                Code.NO_SUCH_TASK, f"Job {job} has not started yet.", f"See `allot why {job}`."
            )
        no = attempt or record.attempts[-1].no
        if no > len(record.attempts):
            raise Rejected(
                Code.NO_SUCH_TASK,
                f"Job {job} has only {len(record.attempts)} attempt(s).",
                f"See `allot show {job}`.",
            )
        names = [task_name(record.spec, index) for index in range(record.spec.task_count)]
        if task in names:
            return AttemptNo(no), TaskIndex(names.index(task))
        if task.isdecimal() and int(task[:9]) < len(names):
            return AttemptNo(no), TaskIndex(int(task[:9]))
        raise Rejected(
            Code.NO_SUCH_TASK,
            f"Job {job} has no task {task[:60]!r}.",
            f"Tasks: {', '.join(names[:12])}.",
        )

    def may_read(self, job: JobId, actor: Actor) -> None:
        """Raise Rejected unless this user may read what a job's tasks wrote."""
        self._may_see(job, actor)

    def _may_see(self, job: JobId, actor: Actor) -> JobRecord:
        record = self._finding.record(job)
        may_see(actor, record, self._finding.visibility)
        return record

    async def read_log(
        self,
        job: JobId,
        attempt: AttemptNo,
        index: TaskIndex,
        stream: str,
        offset: int,
        size: int,
    ) -> LogChunk:
        """Read a piece of a task's output, with secrets replaced."""
        chunk = await self._backend.read_log(TaskKey(job, attempt, index), stream, offset, size)
        return LogChunk(await self._blotted(job, chunk.data), chunk.next)

    async def _blotted(self, job: JobId, data: bytes) -> bytes:
        secrets = self._finding.record(job).spec.secrets
        if not data or not secrets:
            return data

        def blot(secret: tuple[str, str]) -> None:
            nonlocal data
            if len(secret[1]) >= 4:
                data = data.replace(secret[1].encode(), b"***")

        async for _ in self._turns.over(secrets, blot):
            pass
        return data

    async def _left(self, job: JobRecord, attempt: AttemptRecord, actor: Actor) -> Left:
        """Return where an attempt left its files, and who looks. Raises Rejected."""

        def accounts() -> tuple[Account, Account]:
            return account_of(job.owner), _reader(actor, job)

        try:
            owner, reader = await self._threads.run(actor.user, accounts, PATIENCE_S)
        except TimeoutError:
            raise silent_files(PATIENCE_S) from None
        workspaces = self._workspaces
        folders = workspaces.of(job, attempt).folders
        return Left(
            folder=folders.output(job.id, job.spec, attempt.no),
            nodes=tuple(workspaces.nodes_of(attempt)),
            owner=owner.identity,
            reader=reader.identity,
            name=reader.name,
            asked_by=actor.user,
        )

    async def files(self, job: JobId, actor: Actor, attempt: int, most: int) -> v.OutputPage:
        """Return at most so many files that a job left, of one attempt or (0) of all.

        Where there are more, those of the newest attempts are listed.
        """
        record = self._may_see(job, actor)
        found: list[v.OutputFile] = []
        complete = True
        for each in reversed(record.attempts):
            if attempt not in (0, each.no):
                continue
            left = await self._left(record, each, actor)
            workspace = self._workspaces.of(record, each)
            files, is_all = await workspace.files(left, most - len(found))
            complete &= is_all
            found[:0] = [
                v.OutputFile(each.no, shown(file.path), file.size, file.changed_ms)
                for file in files
            ]
        return v.OutputPage(tuple(found), complete)

    async def open_file(self, job: JobId, attempt: int, path: str, actor: Actor) -> OpenFile:
        """Open one output file; never one outside the output folder. Raises Rejected."""
        record = self._may_see(job, actor)
        of_that = (each for each in record.attempts if each.no == attempt)
        if path and (which := next(of_that, None)) is not None:
            left = await self._left(record, which, actor)
            file = await self._workspaces.of(record, which).open_file(left, path)
            if file is not None:
                return file
        raise Rejected(
            Code.NOT_FOUND,
            f"Job {job} left no file {path[:200]!r} in attempt {attempt}.",
            f"See `allot outputs {job}`.",
        )

    def enter_argv(
        self, job: JobId, index: TaskIndex, argv: Sequence[str], actor: Actor
    ) -> list[str]:
        """Return the host command that runs `argv` inside a running task."""
        record = self._finding.record(job)
        may_change(actor, record)
        attempt = record.attempt
        enterable = (TaskState.RUNNING, TaskState.HOLDING)
        if attempt is None or attempt.task(index).state not in enterable:
            raise Rejected(
                Code.WRONG_STATE,
                f"Task {task_name(record.spec, index)} of job {job} does not run now.",
                "To look at a failed task, submit with hold_on_failure.",
            )
        able = Ability.ENTERS in self._backend.abilities
        if not able or not isinstance(self._backend, Enterable):
            raise Rejected(
                Code.NOT_SUPPORTED,
                f"The {self._backend.name} backend cannot enter tasks.",
                f"Its output: `allot logs {job}`.",
            )
        return self._backend.enter_argv(TaskKey(job, attempt.no, index), argv)


def _reader(actor: Actor, job: JobRecord) -> Account:
    """Return with whose rights an actor reads what a job left.

    Who may change a job may run commands in it as its owner, and so reads as its owner;
    whoever may only see it, as himself. Nobody as the superuser, unless it is his job.
    """
    try:
        may_change(actor, job)
    except Rejected:
        return account_of(actor)
    return account_of(job.owner)
