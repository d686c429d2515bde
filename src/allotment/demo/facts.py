"""What happened, as typed events of the service's log: all that the demo's verdict rests on."""

from collections.abc import Iterable, Iterator
from typing import TypeVar, cast

import msgspec

from allotment.model import events as e
from allotment.model.ids import JobId
from allotment.service.views import EventView

E = TypeVar("E", bound=e.Event)


class Fact(msgspec.Struct, frozen=True):
    """One event of the log. `at` in milliseconds since the epoch."""

    seq: int
    at: int
    event: e.AnyEvent
    text: str

    @property
    def job(self) -> JobId | None:
        return self.event.job if isinstance(self.event, e.JobEvent) else None


class Facts:
    """The log so far, in order, and what the demo calls its jobs."""

    def __init__(self) -> None:
        self.all: list[Fact] = []
        self.names: dict[JobId, str] = {}

    @property
    def last(self) -> int:
        return self.all[-1].seq if self.all else 0

    def take(self, views: Iterable[EventView]) -> list[Fact]:
        """Add what is new; return it."""
        new = [fact_of(view) for view in views if view.seq > self.last]
        self.all += new
        for fact in new:
            if isinstance(fact.event, e.JobSubmitted):
                self.names[fact.event.job] = fact.event.spec.name
        return new

    def id_of(self, name: str) -> JobId:
        """Find a job by its name. Raises KeyError."""
        for job, known in self.names.items():
            if known == name:
                return job
        raise KeyError(name)

    def of(self, kind: type[E], name: str, attempt: int | None = None) -> list[Fact]:
        """Return a job's events of one kind, of one attempt if that is named."""
        return [fact for fact, _ in self.each(kind, name, attempt)]

    def each(
        self, kind: type[E], name: str, attempt: int | None = None
    ) -> Iterator[tuple[Fact, E]]:
        """Go through a job's events of one kind, with the events typed."""
        job = next((job for job, known in self.names.items() if known == name), None)
        for fact in self.all:
            event = fact.event
            if fact.job != job or job is None or not isinstance(event, kind):
                continue
            if attempt is None or getattr(event, "attempt", None) == attempt:
                yield fact, event

    def first(
        self, kind: type[E], name: str, attempt: int | None = None
    ) -> tuple[Fact, E] | None:
        """Return the first such event, if there is one."""
        return next(self.each(kind, name, attempt), None)

    def last_of(
        self, kind: type[E], name: str, attempt: int | None = None
    ) -> tuple[Fact, E] | None:
        """Return the last such event, if there is one."""
        found = list(self.each(kind, name, attempt))
        return found[-1] if found else None


def fact_of(view: EventView) -> Fact:
    """Read an event back from how the API tells it.

    A job's spec is told in its native form; of it only name and tenant are kept.
    """
    detail = dict(view.detail)
    if isinstance(spec := detail.get("spec"), dict):
        words = cast("dict[str, object]", spec)
        detail["spec"] = {"name": words["name"], "tenant": words["tenant"], "roles": []}
    event = msgspec.convert(detail, type=e.AnyEvent)
    return Fact(view.seq, view.at, event, view.text)
