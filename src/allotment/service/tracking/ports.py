"""What is asked of an MLflow server, and what it says, which anybody may have written."""

from collections.abc import Sequence
from typing import Final, Protocol

import msgspec

from allotment.model.errors import AllotmentError
from allotment.model.tracking import MlflowSetup

OF_SYSTEM: Final = "system/"
"""Metrics of the machine, which MLflow adds with steps of their own."""


class TrackerAway(AllotmentError):
    """The server does not answer, or not as an MLflow server does."""


class Metric(msgspec.Struct, frozen=True, gc=False):
    """The newest value of a metric of a run."""

    name: str
    value: float
    at_ms: int
    step: int


class Run(msgspec.Struct, frozen=True):
    """A run, and the job that made it, as its tags say."""

    id: str
    url: str
    """Its page."""
    status: str
    started_ms: int
    job: int
    submitted: int
    """When that job was submitted, as the engine counts: so it is one of this service."""
    attempt: int
    is_nested: bool
    metrics: tuple[Metric, ...] = ()


class Registered(msgspec.Struct, frozen=True):
    """The newest version of a registered model."""

    name: str
    version: str
    made_ms: int
    url: str
    run: Run | None
    """None where the run is not there any more, or is not of a job."""


class Tracker(Protocol):
    """An MLflow server. What asks it blocks, for minutes at most, and raises TrackerAway."""

    def newest(self, address: str, since_ms: int) -> Sequence[Run]:
        """Return the newest runs of jobs that began since then, a bounded number."""
        ...

    def of_job(self, address: str, job: int, submitted: int) -> Sequence[Run]:
        """Return the newest runs of a job, a bounded number."""
        ...

    def again(self, address: str, runs: Sequence[str]) -> Sequence[Run]:
        """Return runs as they are now."""
        ...

    def models(self, address: str) -> Sequence[Registered]:
        """Return the models changed last, a bounded number."""
        ...

    def keep(self, setup: MlflowSetup | None) -> None:
        """See to it that a server of ours runs, where it is to be. Waits for one
        that is to end: a moment, or some seconds where it does not obey."""
        ...

    def end(self) -> None:
        """End a server of ours."""
        ...
