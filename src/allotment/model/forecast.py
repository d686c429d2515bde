"""When a job will start: what is asked of a simulator about a live state, and its answer."""

from enum import StrEnum

import msgspec

from allotment.model.commands import SubmitJob
from allotment.model.ids import Actor, JobId
from allotment.model.ledger import Entitlement, Slot
from allotment.model.quantity import Instant, Millis
from allotment.model.reasons import Blocked


class Ground(StrEnum):
    """What the run time of a job is taken from, the best first."""

    SAME_NAME = "same_name"
    """Finished jobs of its user under its name."""
    LIMIT_USED = "limit_used"
    """Its max_run_time, and how much of theirs finished jobs of its tenant used."""
    TENANT = "tenant"
    """Finished jobs of its tenant."""
    LIMIT = "limit"
    """Its max_run_time alone."""
    UNKNOWN = "unknown"
    """Nothing: it is taken to run on and on, or in the best case to end at once."""


class Question(msgspec.Struct, frozen=True):
    """A live state, and the job whose start is asked for."""

    now: Instant
    image: bytes
    """The state, as it is kept in a snapshot."""
    past: tuple[bytes, ...]
    """Finished jobs that left the state, as the archive has them, newest first."""
    horizon_ms: Millis
    """How far ahead is looked."""
    patience_ms: Millis
    """Real time after which a run gives up where it is; for each of the three."""
    job: JobId = JobId(0)
    submit: SubmitJob | None = None
    """A job to be added to the copy and asked for, instead of `job`."""
    actor: Actor | None = None
    """Who would submit it."""


class RunOutcome(msgspec.Struct, frozen=True):
    """What one run came to."""

    starts_at: Instant | None
    """When the job is placed; None when that was not seen."""
    until: Instant
    """How far it was looked."""
    slots: tuple[Slot, ...] = ()
    entitlement: Entitlement | None = None
    ended: str = ""
    """How the job ended without having started."""
    gave_up: bool = False
    """It was taking too long, not too far away."""
    blocked: Blocked | None = None
    """Why it had not started by the end of what was looked at."""
    stuck: bool = False
    """Nothing more was to come but ends at unknown times: looking further finds nothing."""
    endless: tuple[JobId, ...] = ()
    """The jobs of unknown run time that were then in its way."""
    borrowed: tuple[str, ...] = ()
    """The parts that it has on loan when it starts."""


class Counted(msgspec.Struct, frozen=True):
    """So many jobs whose run times have one ground."""

    ground: Ground
    jobs: int


class Answer(msgspec.Struct, frozen=True):
    """Three runs, and what they rest on."""

    optimistic: RunOutcome
    expected: RunOutcome
    pessimistic: RunOutcome
    basis: tuple[Counted, ...] = ()
    """The jobs that hold places before it starts, in the expected run."""
    refusal: str = ""
    """Why the job to be added was refused; then nothing else is said."""
