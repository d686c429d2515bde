"""A trace: the jobs of a cluster as they came, in one form for every source.

Times are integer milliseconds on the trace's own clock (since 1970 where the source says
so, else since whatever the source counts from); devices are thousandths, memory is bytes.
"""

from collections import Counter
from enum import StrEnum

import msgspec

from allotment.model.quantity import DEVICE, Millis, Resources
from allotment.sim.bad import BadScenario


class Ending(StrEnum):
    """What became of a job in the history the trace was taken from."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    CENSORED = "censored"
    """Still waiting or running when the history ends: its run time is only a lower bound."""


class TraceJob(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """One submission.

    `run_ms` is its run time on the devices it asked for, waiting left out. A job is `tasks`
    alike tasks that start together, each needing `need`; a source without task structure
    gives one task a device. `gpu_types` lists what it accepts, best first; empty means any.
    """

    id: str
    """As the source calls it; the row's number where it has no name."""
    submit_ms: int
    run_ms: int
    tasks: int = 1
    need: Resources = Resources(gpu_milli=DEVICE)
    tenant: str = "all"
    user: str = ""
    name: str = ""
    gpu_types: tuple[str, ...] = ()
    model: str = ""
    """What it trains, for speeds by device type."""
    priority: int = 100
    weight: int = 1
    """How many time slices its turn is long, where jobs take turns."""
    preemptible: bool = True
    limit_ms: Millis = Millis(0)
    """Its time limit; 0 where it has none."""
    ending: Ending = Ending.SUCCEEDED
    queue: str = "default"
    """Of its tenant, where the cluster has owners."""

    @property
    def gpu_milli(self) -> int:
        """Return the devices of the whole gang, in thousandths."""
        return self.tasks * self.need.gpu_milli


class Trace(msgspec.Struct, frozen=True):
    """Jobs sorted by submission (ties: as they stood in the source), and what was left out."""

    source: str
    """The file's name, without folders."""
    format: str
    digest: str
    """SHA-256 of the file as stored, first 16 hexadecimal digits."""
    jobs: tuple[TraceJob, ...]
    dropped: tuple[tuple[str, int], ...] = ()
    """Rows left out: the reason in words, and how many, most first."""
    warnings: tuple[str, ...] = ()
    """What looks wrong but was taken: times that look like another unit, repeated ids."""

    @property
    def rows(self) -> int:
        """Return how many rows the source had."""
        return len(self.jobs) + sum(count for _, count in self.dropped)


class BadTrace(BadScenario):
    """A trace that cannot be used. Says what, where (row or key), and what to do next."""


def most_first(dropped: Counter[str]) -> tuple[tuple[str, int], ...]:
    """Order the reasons for leaving rows out: most rows first, then by name."""
    return tuple(sorted(dropped.items(), key=lambda item: (-item[1], item[0])))
