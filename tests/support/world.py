"""A cluster without a backend: the test plays the machines. Audited whenever it has changed."""

from allotment.engine.engine import Engine
from allotment.engine.records import JobRecord
from allotment.engine.state import State
from allotment.model import commands as c
from allotment.model import effects as f
from allotment.model import events as e
from allotment.model.diagnosis import Diagnosis, Exit, Owner, RetryClass
from allotment.model.ids import Actor, JobId, TaskIndex, TaskKey
from allotment.model.lifecycle import JobState
from allotment.model.quantity import Instant
from allotment.model.reasons import Blocked
from allotment.model.reports import AnyReport, CheckpointReport, Seen, TaskReport
from allotment.model.tenancy import Config
from allotment.service.why import why
from tests.support.audit import audit
from tests.support.builders import ALICE, NOW, POLICIES, JobBuilder

FAILED = Diagnosis("exit_1", "It failed.", Owner.USER, RetryClass.UNKNOWN)
PERMANENT = Diagnosis("not_found", "No such command.", Owner.USER, RetryClass.NEVER)
PLATFORM = Diagnosis("lost", "Its node vanished.", Owner.PLATFORM, RetryClass.PLATFORM)


class World:
    """An engine with a hand on its clock and on its tasks."""

    def __init__(self, config: Config) -> None:
        self.engine = Engine(State(POLICIES))
        self.now = NOW
        self.log: list[e.Record] = []
        self.effects: list[f.AnyEffect] = []
        self.do(c.ApplyConfig(config))

    @property
    def state(self) -> State:
        return self.engine.state

    # ── stimuli ─────────────────────────────────────────────────────────────────────────

    def do(self, command: c.AnyCommand, actor: Actor = ALICE) -> list[e.Record]:
        records = self.engine.command(command, actor, self.now)
        self.collect()
        return records

    def submit(self, builder: JobBuilder, **options: object) -> JobId:
        records = self.do(c.SubmitJob(builder.spec(), **options))  # pyright: ignore[reportArgumentType]
        event = records[0].event
        assert isinstance(event, e.JobSubmitted)
        return event.job

    def cycle(self) -> None:
        """Schedule until nothing more can be done."""
        for _ in range(1000):
            again = self.engine.cycle(self.now)
            self.collect()
            if not again:
                break
        else:
            raise AssertionError("scheduling does not come to rest")
        assert self.engine.refusals == 0

    def collect(self) -> None:
        records, effects = self.engine.take()
        self.log += records
        self.effects += effects
        if records:
            audit(self.state)

    def wait(self, ms: int) -> None:
        self.now = Instant(self.now + ms)
        self.engine.tick(self.now)
        self.collect()

    # ── playing the machines ────────────────────────────────────────────────────────────

    def job(self, job: JobId) -> JobRecord:
        return self.state.jobs[job]

    def is_(self, job: JobId) -> JobState:
        return self.job(job).state

    def tell(self, report: AnyReport) -> None:
        self.engine.report(report, self.now)
        self.collect()

    def runs(self, job: JobId) -> None:
        """Every task of the job comes up."""
        keys = self.job(job).task_keys()
        if len(keys) > 1:
            for key in keys:
                self.tell(TaskReport(key, Seen.READY))
        for key in keys:
            self.tell(TaskReport(key, Seen.RUNNING, pid=1000 + key.index))

    def task_ends(
        self, key: TaskKey, code: int = 0, diagnosis: Diagnosis | None = None
    ) -> None:
        if code and diagnosis is None:
            diagnosis = FAILED
        self.tell(TaskReport(key, Seen.ENDED, 1, exit=Exit(code=code), diagnosis=diagnosis))

    def ends(self, job: JobId, code: int = 0, diagnosis: Diagnosis | None = None) -> None:
        """Every task of the job ends."""
        for key in self.job(job).task_keys():
            if self.job(job).attempt is not None:
                self.task_ends(key, code, diagnosis)

    def saves(self, job: JobId, step: int = 1) -> None:
        attempt = self.job(job).attempts[-1]
        key = TaskKey(job, attempt.no, TaskIndex(0))
        self.tell(CheckpointReport(key, f"ckpt-{step}", step))

    def why(self, job: JobId) -> Blocked:
        blocked = why(self.state, self.job(job), self.now)
        assert blocked is not None
        return blocked


class Unaudited(World):
    """A world in which nothing is checked on the way: for what looks at the end only."""

    def cycle(self) -> None:
        """Schedule until nothing more can be done."""
        for _ in range(1000):
            again = self.engine.cycle(self.now)
            self.collect()
            if not again:
                return
        raise AssertionError("scheduling does not come to rest")

    def collect(self) -> None:
        records, effects = self.engine.take()
        self.log += records
        self.effects += effects
