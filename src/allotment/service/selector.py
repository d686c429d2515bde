"""Which jobs a verb is for, as a caller says it, and what became of them. Values only."""

from enum import StrEnum

import msgspec

from allotment.model.ids import JobId
from allotment.model.lifecycle import FINISHED, JobState
from allotment.service.views import JobView

MOST_SHOWN = 20
"""Of more jobs than this only their numbers are told."""


class Selector(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Chooses jobs: those that `refs` or `ids` name, all that fit where neither is given.

    Everything that is given must fit. Where no job is named and neither `all` nor `user` is
    given, it chooses among the caller's own jobs.
    """

    refs: tuple[str, ...] = ()
    """Each an id, a name, a unique prefix of one, `last`; of an array all of it, or a part:
    `8[3]`, `8[12-49]`, `8[1,5-9]`, `8[failed]`."""
    ids: tuple[tuple[JobId, JobId], ...] = ()
    """Ranges of ids, from the first to the last: just these jobs."""
    mine: bool = False
    all: bool = False
    """Those of every user."""
    user: str = ""
    name: str = ""
    """A pattern: `train-*`. An array's name stands for all its jobs."""
    tenant: str = ""
    states: tuple[JobState, ...] = ()
    labels: tuple[str, ...] = ()
    """Each `KEY=VALUE`, or `KEY` for any value."""

    @property
    def names_jobs(self) -> bool:
        return bool(self.refs or self.ids)

    @property
    def filters(self) -> bool:
        """Whether the selector has conditions besides the names of jobs."""
        return bool(
            self.mine
            or self.all
            or self.user
            or self.name
            or self.tenant
            or self.states
            or self.labels
        )


class Wish(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The jobs that a verb is for. With `only_count` they are counted, and nothing is done."""

    jobs: Selector
    only_count: bool = False


class Verb(StrEnum):
    """What can be done to many jobs at once."""

    CANCEL = "cancel"
    HOLD = "hold"
    RELEASE = "release"
    SUSPEND = "suspend"
    RESUME = "resume"
    RETRY = "retry"


S = JobState
BROKEN = frozenset({S.FAILED, S.TIMED_OUT})
FITS: dict[Verb, frozenset[JobState]] = {
    Verb.CANCEL: frozenset(S) - FINISHED,
    Verb.HOLD: frozenset({S.QUEUED}),
    Verb.RELEASE: frozenset({S.HELD}),
    Verb.SUSPEND: frozenset({S.RUNNING}),
    Verb.RESUME: frozenset({S.SUSPENDED}),
    Verb.RETRY: BROKEN,
}
"""In which states jobs are that a verb is for, where it is asked for many of them."""


class Refusal(msgspec.Struct, frozen=True):
    """Why a verb was not done to one job."""

    job: JobId
    code: str
    message: str
    hint: str = ""


class Steered(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a verb did, or would do, to the jobs that were chosen."""

    verb: Verb
    count: int
    """To how many jobs."""
    ids: tuple[tuple[JobId, JobId], ...] = ()
    """Those, as ranges."""
    left: dict[str, int] = {}
    """Chosen jobs it is not for, by their state."""
    refused: tuple[Refusal, ...] = ()
    jobs: tuple[JobView, ...] = ()
    """How they stand now, where they are few."""
    made: tuple[tuple[JobId, JobId], ...] = ()
    """The new jobs of a retry, as ranges of ids."""


class Chosen(msgspec.Struct, frozen=True, omit_defaults=True):
    """The jobs that were chosen, as they stand now."""

    count: int
    states: dict[str, int] = {}
    ids: tuple[tuple[JobId, JobId], ...] = ()
    going_on: tuple[tuple[JobId, JobId], ...] = ()
    """Those of them that have not finished."""


def ranges_of(ids: list[JobId]) -> tuple[tuple[JobId, JobId], ...]:
    """Return ids, in any order, as ranges."""
    found: list[tuple[JobId, JobId]] = []
    for job in sorted(set(ids)):
        if found and job == found[-1][1] + 1:
            found[-1] = (found[-1][0], job)
        else:
            found.append((job, job))
    return tuple(found)
