"""What tests that break things under load share: the load, and the checker of what came of it.

The checker knows events of the log and marks that tasks left, and nothing of the service.
"""

import contextlib
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from typing import Any, NamedTuple

from tests.support.cluster import RealCluster

DRAINED_S = 600
MOST_UNENDED = 30


class Load(threading.Thread):
    """Submits jobs, each with a key, a few at a time; a submission in doubt is repeated."""

    def __init__(
        self,
        cluster: RealCluster,
        a_job: Callable[[random.Random], dict[str, object]],
        most: int = MOST_UNENDED,
        pause_s: float = 0.8,
    ) -> None:
        super().__init__()
        self.cluster, self._a_job = cluster, a_job
        self._most, self._pause_s = most, pause_s
        self.rng = random.Random(7)
        self.over = threading.Event()
        self.accepted: list[int] = []

    def run(self) -> None:
        count = 0
        while not self.over.is_set():
            count += 1
            spec = self._a_job(self.rng)
            while True:
                # The service is killed now and then: whatever that does to a call.
                with contextlib.suppress(Exception):
                    self.accepted.append(self.cluster.submit(spec, key=f"chaos-{count}"))
                    break
                time.sleep(0.05)
            self.over.wait(self._pause_s)
            while not self.over.is_set() and self.is_behind():
                self.over.wait(0.5)

    def is_behind(self) -> bool:
        """Whether more waits than can be run soon, as on a slow machine."""
        with contextlib.suppress(Exception):
            return len(unended(self.cluster, self._most)) >= self._most
        return False


class Told(NamedTuple):
    """All that the service says of what happened, and all that the tasks left."""

    events: list[dict[str, Any]]
    marks: str


def unended(cluster: RealCluster, most: int) -> list[object]:
    """Return jobs that are not over, so many at most."""
    states = "&".join(f"state={each}" for each in ("queued", "starting", "running", "stopping"))
    return cluster.get(f"/v1/jobs?limit={most}&{states}")["items"]


def ended(cluster: RealCluster) -> set[int]:
    """Return the jobs of which the log has the end."""
    ends = ("JobSucceeded", "JobFailed", "JobCancelled", "JobTimedOut")
    return {event["job"] for event in events_of(cluster) if event["kind"] in ends}


def events_of(cluster: RealCluster) -> Iterator[dict[str, Any]]:
    """Return the whole log."""
    after = 0
    while page := _items(cluster.get(f"/v1/events?after={after}&limit=1000")):
        yield from page
        after = page[-1]["seq"]


def _items(answer: Any) -> list[dict[str, Any]]:
    return answer["items"] if isinstance(answer, dict) else answer


# ── the checker ─────────────────────────────────────────────────────────────────────────


def check(
    told: Told, accepted: list[int], struck: Collection[tuple[int, int]] = frozenset()
) -> None:
    """Fail where something was lost, or done twice.

    `struck` are attempts, by job and number, of which others took what would have told how
    they ended: those alone may have been done, and be done again.
    """
    assert len(set(accepted)) == len(accepted), "one key made two jobs"
    marks = Counter(told.marks.splitlines())
    twice = [mark for mark in marks if mark.startswith("twice")]
    assert not twice, "\n".join(("a device was held twice:", *twice, *stories(told, twice)))
    again = {mark: count for mark, count in marks.items() if count > 1}
    assert not again, f"a task ran twice: {again}"
    kinds = Counter((event["kind"], event["job"]) for event in told.events if event.get("job"))
    for job in accepted:
        assert kinds["JobSucceeded", job] == 1, story(told, job)
    last: dict[int, tuple[int, int]] = {}
    for event in told.events:
        if event["kind"] == "AttemptPlaced":
            detail = event["detail"]
            last[event["job"]] = detail["attempt"], len(detail["slots"])
    assert set(last) == set(accepted)
    for job, (attempt, tasks) in last.items():
        for task in range(tasks):
            assert marks[f"begin {job}.{attempt}.{task}"] == 1, story(told, job)
            assert marks[f"end {job}.{attempt}.{task}"] == 1, story(told, job)
    for mark in marks:
        _, job, attempt, _ = mark.replace(".", " ").split()
        assert int(attempt) <= last[int(job)][0], mark
        is_alone = mark.startswith("end") and last[int(job)][1] == 1
        if is_alone and (int(job), int(attempt)) not in struck:
            assert int(attempt) == last[int(job)][0], (
                f"{mark}: done again, {story(told, int(job))}"
            )
    count_devices(told)


def count_devices(told: Told) -> None:
    """Count what each device was promised, from the log alone."""
    held: Counter[tuple[int, int]] = Counter()
    slots: dict[int, list[dict[str, Any]]] = {}
    for event in told.events:
        if event["kind"] == "AttemptPlaced":
            slots[event["job"]] = event["detail"]["slots"]
            for slot in slots[event["job"]]:
                held.update((slot["node"], device) for device in slot.get("devices", ()))
            assert max(held.values(), default=0) <= 1, story(told, event["job"])
        elif event["kind"] == "AttemptEnded":
            for slot in slots.pop(event["job"]):
                held.subtract((slot["node"], device) for device in slot.get("devices", ()))
    assert not any(held.values())


def stories(told: Told, twice: list[str]) -> Iterator[str]:
    """Return what the log says of all jobs that ever had a device of the same number."""
    for devices in sorted({mark.split()[-1] for mark in twice}):
        numbers = {int(number) for number in devices.split(",")}
        had = {
            event["job"]
            for event in told.events
            if event["kind"] == "AttemptPlaced"
            for slot in event["detail"]["slots"]
            if numbers.intersection(slot.get("devices", ()))
        }
        yield from (story(told, job) for job in sorted(had))


def story(told: Told, job: int) -> str:
    """Return what the log says of one job."""
    lines = [f"{e['at']} {e['text']}" for e in told.events if e.get("job") == job]
    return "\n".join((f"job {job}:", *lines))
