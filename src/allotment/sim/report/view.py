"""What the report looks at: each run with its name, its figures and its times sorted."""

from collections.abc import Sequence
from itertools import pairwise

import msgspec

from allotment.metrics.series import completed
from allotment.metrics.summary import Summary
from allotment.sim.outcome import JobOutcome, Run, Sample
from allotment.sim.report.words import short

LONGEST = 32
"""Characters of a policy's name, and as many of its settings."""


class View(msgspec.Struct, frozen=True):
    """One run, ready to be drawn."""

    index: int
    """Which colour, dashes and hatching are its own."""
    name: str
    """The policy, set apart from others on the page, and marked if it is clairvoyant."""
    run: Run
    summary: Summary
    jct: list[int]
    """Completion times of the completed jobs in milliseconds, ascending."""
    delay: list[int]
    """Their queueing delays, ascending."""

    @property
    def begin_ms(self) -> int:
        """Return the first instant of the run."""
        return self.run.jobs[0].submit_ms if self.run.jobs else 0


def views(runs: Sequence[Run]) -> list[View]:
    """Look at several runs. O(n log n) in their jobs."""
    return [
        _view(n, name, run) for n, (name, run) in enumerate(zip(names(runs), runs, strict=True))
    ]


def _view(index: int, name: str, run: Run) -> View:
    done = [job for job in run.jobs if completed(job)]
    jct = sorted([job.end_ms - job.submit_ms for job in done])
    delay = sorted([job.end_ms - job.submit_ms - job.ran_ms for job in done])
    return View(index, name, run, run.summary, jct, delay)


def names(runs: Sequence[Run]) -> list[str]:
    """Name the runs: by policy, by the settings they differ in where that is not enough."""
    found: list[str] = []
    for run in runs:
        alike = [other for other in runs if other.policy == run.policy]
        name = short(run.policy, LONGEST)
        if len(alike) > 1:
            name = f"{name}{_difference(run, alike)}"
        if run.clairvoyant:
            name = f"{name} (clairvoyant)"
        found.append(name)
    return [_numbered(name, found, n) for n, name in enumerate(found)]


def _difference(run: Run, alike: Sequence[Run]) -> str:
    common = set(alike[0].settings).intersection(*(other.settings for other in alike))
    own = [f"{key}={value}" for key, value in run.settings if (key, value) not in common]
    if run.seed != alike[0].seed or any(other.seed != run.seed for other in alike):
        own.append(f"seed {run.seed}")
    if any(other.cluster != run.cluster for other in alike):
        own.append(run.cluster)
    return f" {short(', '.join(own), LONGEST)}" if own else ""


def _numbered(name: str, names: Sequence[str], place: int) -> str:
    return f"{name} #{names[:place].count(name) + 1}" if names.count(name) > 1 else name


def lengths(samples: Sequence[Sample]) -> list[tuple[Sample, int]]:
    """Pair each sample with the milliseconds until the next; the last ends the run."""
    return [(a, b.at_ms - a.at_ms) for a, b in pairwise(samples)]


def window(all_views: Sequence[View]) -> tuple[int, int]:
    """Return the first and the last instant of all samples; a millisecond apart at least."""
    firsts = [view.run.samples[0].at_ms for view in all_views if view.run.samples]
    lasts = [view.run.samples[-1].at_ms for view in all_views if view.run.samples]
    low = min(firsts, default=0)
    return low, max(max(lasts, default=0), low + 1)


def demand(jobs: Sequence[JobOutcome]) -> dict[str, int]:
    """Sum up what each tenant asked for: devices in thousandths × milliseconds."""
    asked: dict[str, int] = {}
    for job in jobs:
        amount = job.gpu_milli * (job.run_ms or job.ran_ms)
        asked[job.tenant] = asked.get(job.tenant, 0) + amount
    return asked
