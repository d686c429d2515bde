"""What of a history a replay does not play: each cause with how often, and how long it took."""

from collections.abc import Iterator

from allotment.model import events as e
from allotment.model.health import HardwareHealth
from allotment.model.ids import JobId
from allotment.model.others import NOBODY
from allotment.model.quantity import show_millis

EVICTED = "evicted"
"""The cause of queueing again that is part of a policy, and is played."""


class Unplayed:
    """Counts, event by event, what becomes otherwise in a replay."""

    def __init__(self) -> None:
        self._failed = self._lost_ms = self._backoff_ms = 0
        self._tried_again: set[JobId] = set()
        self._lost_of: dict[JobId, int] = {}
        self._frozen: dict[JobId, int] = {}
        self._suspensions = self._suspended_ms = 0
        self._broken: set[tuple[int, int | None]] = set()
        self._shared: set[int] = set()
        self._reservations: set[str] = set()
        self._by_content = 0

    def feed(self, at: int, event: e.AnyEvent) -> None:
        """Take the next event of the stretch."""
        match event:
            case e.JobRequeued(job, cause, not_before) if cause != EVICTED:
                self._again(job, max(0, not_before - at))
            case e.AttemptEnded(job):
                self._lost_of[job] = event.lost_ms
                self._thaw(job, at)
            case e.AttemptSuspended(job):
                self._frozen.setdefault(job, at)
                self._suspensions += 1
            case e.AttemptResumed(job):
                self._thaw(job, at)
            case e.HealthChanged() if event.now is not HardwareHealth.HEALTHY:
                self._broken.add((event.node, event.device))
            case e.OthersSeen(node, use) if use != NOBODY:
                self._shared.add(node)
            case e.AttemptPlaced() if (
                event.with_image + event.with_environment + event.with_data
            ):
                self._by_content += 1
            case e.ReservationSet(reservation):
                self._reservations.add(reservation.name)
            case _:
                pass

    def _again(self, job: JobId, backoff_ms: int) -> None:
        self._failed += 1
        self._tried_again.add(job)
        self._lost_ms += self._lost_of.pop(job, 0)
        self._backoff_ms += backoff_ms

    def _thaw(self, job: JobId, at: int) -> None:
        if job in self._frozen:
            self._suspended_ms += at - self._frozen.pop(job)

    def words(self) -> Iterator[str]:
        """Return what there was, the most usual first."""
        if self._failed:
            took = f"{show_millis(self._lost_ms)} of work done again"
            yield (
                f"Attempts that failed and were tried again: {self._failed}, of "
                f"{len(self._tried_again)} jobs. The replay plays each such job as one run, "
                f"without {took} and {show_millis(self._backoff_ms)} of back-off."
            )
        if self._suspensions:
            yield (
                f"Suspensions: {self._suspensions}. The replay has none: jobs run on, "
                f"{show_millis(self._suspended_ms)} earlier in sum."
            )
        if self._broken:
            yield (
                f"Nodes and devices that were suspect or bad: {len(self._broken)}. In the "
                "replay they work."
            )
        if self._shared:
            yield (
                f"Nodes of which others used a part, beside Allotment: {len(self._shared)}. In "
                "the replay all of them is free."
            )
        if self._reservations:
            count = len(self._reservations)
            yield f"Reservations: {count}. In the replay nothing is set aside."
        if self._by_content:
            yield (
                "Starts on nodes that had the job's image, environment or data: "
                f"{self._by_content}. In the replay no node is known to have any; of nodes "
                "alike another may be taken."
            )
