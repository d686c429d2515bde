"""How events reach the folds: looked up once by kind, time passed on once an instant."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol, runtime_checkable

from allotment.model import events as e
from allotment.model.quantity import Instant

Handler = Callable[[Instant, Any], None]
"""Takes when it happened, and the event."""

Handlers = Mapping[type[e.Event], Handler]

FINISHED: tuple[type[e.JobEvent], ...] = (
    e.JobSucceeded,
    e.JobFailed,
    e.JobCancelled,
    e.JobTimedOut,
)
"""After these nothing more happens to a job."""


class Fold(Protocol):
    """Learns from events: one method for each kind it cares about.

    It may have begun in the middle of a log: an event of a job whose submission it did not
    see is no error and changes nothing.
    """

    def handlers(self) -> Handlers:
        """Return the methods by the kind of event they take."""
        ...


@runtime_checkable
class Clocked(Protocol):
    """A fold that adds up over time."""

    def pass_to(self, at: Instant) -> None:
        """Take note that nothing changed until `at`."""
        ...


@runtime_checkable
class Owned(Protocol):
    """A fold that has to know whose jobs are."""

    def owned_by(self, user: str) -> None:
        """Take note whose the job is whose submission comes next."""
        ...


class Folds:
    """Feeds the events of a log to several folds.

    All events of one instant count as simultaneous: folds over time see what holds after
    the last of them.
    """

    def __init__(self, *folds: Fold) -> None:
        self.at = Instant(0)
        """When the newest event happened that any fold cares about."""
        self._clocked = [fold.pass_to for fold in folds if isinstance(fold, Clocked)]
        self._owned = [fold.owned_by for fold in folds if isinstance(fold, Owned)]
        table: dict[type[e.Event], list[Handler]] = {}
        for fold in folds:
            for kind, handler in fold.handlers().items():
                table.setdefault(kind, []).append(handler)
        self._handlers = {kind: tuple(handlers) for kind, handlers in table.items()}

    def feed(self, records: Iterable[e.Record]) -> None:
        """Fold the next events of the log, in its order."""
        find, at, submitted = self._handlers.get, self.at, e.JobSubmitted
        for record in records:
            event = record.event
            handlers = find(type(event))
            if handlers is None:
                continue
            if record.at != at:
                at = self.at = record.at
                for pass_to in self._clocked:
                    pass_to(at)
            if type(event) is submitted:
                for owned_by in self._owned:
                    owned_by(record.actor.user)
            for handle in handlers:
                handle(at, event)

    def pass_to(self, at: Instant) -> None:
        """Let time pass without an event, to the end of what is looked at."""
        self.at = at
        for pass_to in self._clocked:
            pass_to(at)
