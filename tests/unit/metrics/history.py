"""Writes event logs as one reads them aloud: `at(5).submit(1, gpus=2).place(1)`."""

from typing import Any, Self

from msgspec.structs import replace

from allotment.metrics.fold import Fold, Folds
from allotment.model import events as e
from allotment.model.diagnosis import Diagnosis, Owner, RetryClass
from allotment.model.ids import SYSTEM, Actor, AttemptNo, JobId, NodeId, Seq
from allotment.model.ledger import Entitlement, Slot
from allotment.model.quantity import Instant, Resources
from allotment.model.reasons import StopCause
from allotment.model.spec import JobSpec, TaskRole
from allotment.model.tenancy import Config

DIAGNOSIS = Diagnosis("exit", "It failed.", Owner.USER, RetryClass.UNKNOWN)


def a_spec(gpus: float = 1, tenant: str = "t", tasks: int = 1, **others: Any) -> JobSpec:
    need = Resources(gpu_milli=round(gpus * 1000))
    role = TaskRole("main", tasks, "true", need)
    return replace(JobSpec("job", tenant, (role,)), **others)


class History:
    """A log under construction; jobs are their ids, attempts are counted for them."""

    def __init__(self) -> None:
        self.records: list[e.Record] = []
        self.now = 0
        self.attempts: dict[int, int] = {}

    def at(self, ms: int) -> Self:
        self.now = ms
        return self

    def add(self, *events: e.AnyEvent, actor: Actor = SYSTEM) -> Self:
        for event in events:
            seq = Seq(len(self.records) + 1)
            self.records.append(e.Record(seq, Instant(self.now), actor, event))
        return self

    def submit(
        self,
        job: int,
        gpus: float = 1,
        tenant: str = "t",
        held: bool = False,
        user: str = SYSTEM.user,
        **others: Any,
    ) -> Self:
        spec = a_spec(gpus, tenant, **others)
        return self.add(e.JobSubmitted(JobId(job), spec, held=held), actor=Actor(user))

    def place(
        self,
        job: int,
        entitlement: Entitlement = Entitlement.GUARANTEED,
        slots: tuple[Slot, ...] = (),
    ) -> Self:
        self.attempts[job] = self.attempts.get(job, 0) + 1
        return self.add(e.AttemptPlaced(*self._attempt(job), slots, entitlement))

    def begin(self, job: int) -> Self:
        return self.add(e.AttemptStarted(*self._attempt(job)))

    def start(self, job: int) -> Self:
        """Place a job and run it at once."""
        return self.place(job).begin(job)

    def end(self, job: int, outcome: e.Outcome = e.Outcome.SUCCEEDED) -> Self:
        return self.add(e.AttemptEnded(*self._attempt(job), outcome))

    def succeed(self, job: int) -> Self:
        return self.end(job).add(e.JobSucceeded(JobId(job)))

    def fail(self, job: int) -> Self:
        return self.end(job, e.Outcome.FAILED).add(e.JobFailed(JobId(job), DIAGNOSIS))

    def time_out(self, job: int) -> Self:
        ended = self.end(job, e.Outcome.TIMED_OUT)
        return ended.add(e.JobTimedOut(JobId(job), DIAGNOSIS))

    def cancel(self, job: int) -> Self:
        return self.add(e.JobCancelled(JobId(job)))

    def evict(self, job: int) -> Self:
        self.add(e.StopRequested(*self._attempt(job), StopCause.EVICTED))
        self.end(job, e.Outcome.EVICTED)
        return self.add(e.JobRequeued(JobId(job), "evicted"))

    def requeue(self, job: int, cause: str = "own", not_before: int = 0) -> Self:
        return self.add(e.JobRequeued(JobId(job), cause, Instant(not_before)))

    def suspend(self, job: int) -> Self:
        return self.add(e.AttemptSuspended(*self._attempt(job)))

    def resume(self, job: int) -> Self:
        return self.add(e.AttemptResumed(*self._attempt(job)))

    def hold(self, job: int) -> Self:
        return self.add(e.JobHeld(JobId(job)))

    def release(self, job: int) -> Self:
        return self.add(e.JobReleased(JobId(job)))

    def edit(self, job: int, spec: JobSpec, **role: Any) -> Self:
        """Let the first role of a job ask for something else."""
        first = replace(spec.roles[0], **role)
        return self.rewrite(job, replace(spec, roles=(first,)))

    def rewrite(self, job: int, spec: JobSpec) -> Self:
        return self.add(e.JobEdited(JobId(job), spec))

    def promote(self, job: int) -> Self:
        return self.add(e.AttemptPromoted(*self._attempt(job)))

    def configure(self, config: Config) -> Self:
        return self.add(e.ConfigApplied(config))

    def recover(self, node: int) -> Self:
        return self.add(e.NodeRecovered(NodeId(node)))

    def drain(self, node: int) -> Self:
        return self.add(e.NodeDrained(NodeId(node)))

    def lose(self, node: int) -> Self:
        return self.add(e.NodeLost(NodeId(node)))

    def into(self, *folds: Fold) -> Folds:
        """Feed it all."""
        fed = Folds(*folds)
        fed.feed(self.records)
        return fed

    def _attempt(self, job: int) -> tuple[JobId, AttemptNo]:
        return JobId(job), AttemptNo(self.attempts[job])
