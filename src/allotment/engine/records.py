"""What the engine remembers of each job. Mutable; only `apply` writes here."""

from typing import Final

import msgspec

from allotment.model.diagnosis import Diagnosis, Exit
from allotment.model.events import Outcome, Phase
from allotment.model.gains import Gain, Measured, Pace, Packing
from allotment.model.ids import Actor, AttemptNo, JobId, TaskIndex, TaskKey
from allotment.model.ledger import Entitlement, Quota, Slot
from allotment.model.lifecycle import AttemptState, JobState, TaskState
from allotment.model.quantity import Instant, Millis
from allotment.model.reasons import StopCause
from allotment.model.spec import JobSpec
from allotment.model.suspension import Suspension

ENDED: Final = AttemptState.ENDED


class TaskRecord(msgspec.Struct, omit_defaults=True):
    """One task of an attempt."""

    state: TaskState = TaskState.PLACED
    pid: int = 0
    phases: tuple[Phase, ...] = ()
    ready_at: Instant = Instant(0)
    started_at: Instant = Instant(0)
    ended_at: Instant = Instant(0)
    exit: Exit | None = None
    diagnosis: Diagnosis | None = None
    held_at: Instant = Instant(0)
    """Since when it was kept for a look, after it had failed."""
    engine_job: str = ""
    devices: tuple[int, ...] = ()
    """Those that its engine gave it; empty where they are those of its slot."""
    suspension: Suspension | None = None
    """How it was suspended last, as far as its engine said."""


class Stop(msgspec.Struct, omit_defaults=True):
    """Why, when and how an attempt was told to stop."""

    cause: StopCause
    at: Instant
    signal: str
    grace_ms: Millis
    wanted_by: JobId | None = None
    by: str = ""
    diagnosis: Diagnosis | None = None
    gain: Gain | None = None
    """What the job was expected to gain by it."""


class Shrink(msgspec.Struct, omit_defaults=True):
    """To how many tasks an attempt shrinks, and when and how the others were told to stop."""

    tasks: int
    at: Instant
    signal: str
    grace_ms: Millis
    wanted_by: JobId | None = None


class AttemptRecord(msgspec.Struct, omit_defaults=True):
    """One try at running a job. `tasks` has those that were heard of."""

    no: AttemptNo
    slots: tuple[Slot, ...]
    entitlement: Entitlement
    placed_at: Instant
    port: int = 0
    state: AttemptState = AttemptState.STARTING
    tasks: dict[TaskIndex, TaskRecord] = {}
    barrier_at: Instant = Instant(0)
    started_at: Instant = Instant(0)
    running_since: Instant = Instant(0)
    ran_ms: Millis = Millis(0)
    """Run time before `running_since`, suspension left out."""
    suspended_at: Instant = Instant(0)
    paused_at: Instant = Instant(0)
    """When it was last told to stand still, for its turn or because a pair was parted."""
    pause_ms: Millis = Millis(0)
    """How long it took until all its tasks stood still then, as far as it was told."""
    suspensions: int = 0
    """How many times it was suspended up to now."""
    suspended_for: JobId | None = None
    """The job for which it was suspended last, if it was for one."""
    offers: bool = False
    """Whether it says that it gives its devices' memory back while it is suspended."""
    wants_resume: bool = False
    saved_at: Instant = Instant(0)
    stop: Stop | None = None
    ended_at: Instant = Instant(0)
    outcome: Outcome | None = None
    diagnosis: Diagnosis | None = None
    lost_ms: Millis = Millis(0)
    quota: Quota = ()
    shrink: Shrink | None = None
    """Under way: its surplus tasks still hold their slots."""
    pace: Pace | None = None
    """How fast it is, in a queue that asks for it (grow, migrate, pack)."""
    gained: Measured | None = None
    """What the move that led to it was found to have gained."""
    packing: Packing | None = None
    """How it runs beside the gang that has its devices, where it does while suspended."""
    with_image: int = 0
    """How many of its nodes were known to have its image when it was placed."""
    with_environment: int = 0
    with_data: int = 0
    """The same of its environment, and of all versions of data that it uses."""

    @property
    def staying(self) -> int:
        """Return how many tasks it has, those left out that were told to stop as surplus."""
        return self.shrink.tasks if self.shrink is not None else len(self.slots)

    def is_surplus(self, index: int) -> bool:
        """Whether a task was told to stop because its gang shrinks."""
        return self.shrink is not None and index >= self.shrink.tasks

    def task(self, index: TaskIndex) -> TaskRecord:
        """Return the record of a task, a fresh one when nothing was heard of it yet."""
        return self.tasks.get(index) or TaskRecord()

    def ran_until(self, now: Instant) -> Millis:
        """Sum up the run time of this attempt, suspension left out."""
        running = now - self.running_since if self.running_since else 0
        return Millis(self.ran_ms + running)


class CheckpointRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """The newest good checkpoint of a job."""

    path: str
    at: Instant
    attempt: AttemptNo
    step: int = 0
    progress_milli: int = 0


class JobRecord(msgspec.Struct, omit_defaults=True):
    """One job, from submission to its archive."""

    id: JobId
    spec: JobSpec
    owner: Actor
    submitted_at: Instant
    state: JobState
    queued_at: Instant
    key: str = ""
    warnings: tuple[str, ...] = ()
    attempts: list[AttemptRecord] = []
    used_retries: int = 0
    platform_retries: int = 0
    evictions: int = 0
    not_before: Instant = Instant(0)
    requeue_cause: str = ""
    checkpoint: CheckpointRecord | None = None
    served_ms: Millis = Millis(0)
    """Run time of its attempts that ended, suspension left out."""
    lost_ms: Millis = Millis(0)
    finished_at: Instant = Instant(0)
    diagnosis: Diagnosis | None = None
    waits_for: str = ""
    """The newest reason that was recorded for its present wait; '' before the first."""
    note: str = ""
    """What somebody wants people to know of it."""
    noted_by: str = ""
    noted_at: Instant = Instant(0)
    saved: str = ""
    """The version of a dataset that its outputs are."""
    unsaved: str = ""
    """Why they did not become one."""
    kept: str = ""
    """The version of a dataset that its newest checkpoint is of those that were kept."""
    unkept: str = ""
    """Why its newest was not."""
    kept_of: tuple[str, int] = ("", 0)
    """Path and step of the newest checkpoint of which it is known what became of it."""
    rates: dict[int, int] = {}
    """The newest rate with each number of tasks, in steps an hour."""
    bad_moves: int = 0
    """How often it was moved and did not come up, or to no good; growth is counted apart."""
    bad_growths: int = 0
    beside: dict[JobId, bool] = {}
    """The newest jobs that it ran beside on the same devices, and whether both gained by it.

    False, too, where they did not tell enough of their steps to say.
    """

    @property
    def attempt(self) -> AttemptRecord | None:
        """Return the attempt under way, if any."""
        attempts = self.attempts
        if attempts and (newest := attempts[-1]).state is not ENDED:
            return newest
        return None

    @property
    def has_to_save(self) -> bool:
        """Whether its outputs are to be saved, and it is not known yet what became of them."""
        is_over = self.state is JobState.SUCCEEDED
        return bool(self.spec.save) and is_over and not (self.saved or self.unsaved)

    @property
    def has_to_keep(self) -> bool:
        """Whether its newest checkpoint is to become a version, and was not tried yet."""
        how, newest = self.spec.checkpoint, self.checkpoint
        if how is None or not how.save or newest is None:
            return False
        return (newest.path, newest.step) != self.kept_of

    @property
    def running_as(self) -> JobSpec:
        """Return the job with the tasks of its newest attempt, surplus that stops left out."""
        return self.spec.sized(self.attempts[-1].staying)

    def task_keys(self) -> list[TaskKey]:
        """Name the tasks of the attempt under way."""
        attempt = self.attempt
        if attempt is None:
            return []
        return [
            TaskKey(self.id, attempt.no, TaskIndex(index))
            for index in range(len(attempt.slots))
        ]
