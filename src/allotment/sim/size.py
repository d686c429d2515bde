"""How many alike nodes a workload needs to meet a target.

More nodes ease most bounds (waiting, completion) and are in the way of others
(`utilization>=0.5`). Sought is the least size that meets all of the first kind; the second
must hold there too. With bounds of the second kind alone it is the largest size that still
meets them. Sizes are doubled until the answer is passed, then the stretch is divided, with
as many sizes at a time as there are processes; so the size next to the answer was played
too. No policy promises that delay falls with every node, so a size beyond the answer that
misses the target after all is told.
"""

import re
from collections.abc import Callable, Iterable, Sequence

import msgspec

from allotment.metrics.jobs import Fate, JobOutcome
from allotment.metrics.summarise import summarise
from allotment.metrics.summary import Summary
from allotment.metrics.usage import Totals
from allotment.model.cluster import Node
from allotment.model.quantity import DEVICE, Millis, show_resources
from allotment.sim.bad import BadScenario
from allotment.sim.outcome import Run
from allotment.sim.size_target import Condition, shown
from allotment.sim.trace import Ending, TraceJob

NODE = re.compile(r"\d{1,4}(x(?!\d{1,3}(x|$))[A-Za-z0-9][\w.-]{0,40})?")
"""Not `2x8`, which is two nodes: no device type is a number that small."""

Play = Callable[[Sequence[int]], Sequence[Run]]
"""Plays the workload on so many nodes each, in the order given."""


class BadSize(BadScenario):
    """A node or bound on their number that cannot be used."""


class Sizing(msgspec.Struct, frozen=True):
    """The answer, and all sizes that were played."""

    chosen: int
    """Nodes; 0 when no size will do."""
    least: bool
    """Whether fewer will not do; else more will not."""
    curve: tuple[tuple[int, Summary], ...]
    """By number of nodes."""
    odd: tuple[int, ...] = ()
    """Sizes on the right side of the answer that miss the target after all."""
    why: str = ""
    """Why no size will do."""


def check_node(text: str) -> None:
    """Refuse what does not describe one node as `8` or `8xA100` do. Raises BadSize."""
    if not NODE.fullmatch(text):
        raise BadSize(
            f"--node: {text!r} is not a node: write DEVICES or DEVICESxTYPE, as 8xA100."
        )


# ── what is known before anything is played ─────────────────────────────────────────────


def least_nodes(jobs: Iterable[TraceJob], node: Node) -> int:
    """Return how many nodes the largest job needs. Raises BadSize when no number will do."""
    least = 1
    known: dict[tuple[object, int], int] = {}
    for job in jobs:
        key = (job.need, job.tasks)
        if key not in known:
            room = tasks_on(node, job)
            if not room:
                raise BadSize(
                    f"Job {job.id} has tasks of {show_resources(job.need)}, for which a node "
                    f"of {show_resources(node.total())} has no room: no number of nodes is "
                    "enough."
                )
            known[key] = -(-job.tasks // room)
            least = max(least, known[key])
    return least


def tasks_on(node: Node, job: TraceJob) -> int:
    """Return how many tasks of a job an empty node has room for."""
    need, total = job.need, node.total()
    rooms = [job.tasks]
    if need.gpu_milli:
        each = DEVICE // need.gpu_milli
        devices = len(node.devices)
        rooms.append(devices * each if each else devices * DEVICE // need.gpu_milli)
    for field in ("cpu_milli", "memory", "disk"):
        wanted: int = getattr(need, field)
        rooms += [getattr(total, field) // wanted] if wanted else []
    return min(rooms)


def busy_nodes(jobs: Sequence[TraceJob], node: Node) -> int:
    """Return how many nodes the workload keeps busy on average: where to begin to look."""
    if not jobs or not node.devices:
        return 1
    work = sum(job.run_ms * job.gpu_milli for job in jobs)
    span = jobs[-1].submit_ms - jobs[0].submit_ms + max(1, jobs[-1].run_ms)
    return max(1, -(-work // (span * DEVICE * len(node.devices))))


BEST = ("jct_s", "queue_delay_s", "response_s", "makespan_s", "throughput_jobs_per_h")


def hopeless(jobs: Sequence[TraceJob], conditions: Iterable[Condition]) -> str:
    """Return which condition is missed even when no job ever waits; empty when none is.

    Holds where no job runs faster, or ends earlier, than the trace says, or fails.
    """
    summary = summarise([_unhindered(job) for job in jobs], Totals(), 1)
    for condition in conditions:
        if condition.value(summary) is None:
            return f"{condition.text}: even if no job waited, {condition.missed(summary)}."
        is_best = condition.eased_by_size and condition.metric.endswith(BEST)
        if is_best and not condition.met(summary):
            return (
                f"{condition.text} is missed by run times alone: if no job ever waited, it "
                f"would be {shown(condition.metric, condition.value(summary))}."
            )
    return ""


def _unhindered(job: TraceJob) -> JobOutcome:
    run_ms = min(job.run_ms, job.limit_ms) if job.limit_ms else job.run_ms
    return JobOutcome(
        id=job.id,
        tenant=job.tenant,
        gpu_milli=job.gpu_milli,
        submit_ms=job.submit_ms,
        run_ms=Millis(run_ms),
        start_ms=job.submit_ms,
        end_ms=job.submit_ms + run_ms,
        censored=job.ending is Ending.CENSORED,
        ran_ms=run_ms,
        ended=Fate.COMPLETED if run_ms == job.run_ms else Fate.TIMED_OUT,
    )


# ── searching ───────────────────────────────────────────────────────────────────────────


class Range(msgspec.Struct, frozen=True):
    """Between which numbers of nodes to look, where to begin, how many sizes at a time."""

    low: int
    most: int
    guess: int
    width: int = 1


class _Search:
    def __init__(self, play: Play, conditions: Sequence[Condition], within: Range) -> None:
        eased = [condition for condition in conditions if condition.eased_by_size]
        self.least = bool(eased)
        self.deciding = eased or list(conditions)
        self.played: dict[int, Summary] = {}
        self.within = within
        self._play = play

    def met(self, nodes: int) -> bool:
        return all(condition.met(self.played[nodes]) for condition in self.deciding)

    def passed(self, nodes: int) -> bool:
        """Whether a size lies beyond the boundary that is sought."""
        return self.met(nodes) == self.least

    def play(self, sizes: Iterable[int]) -> None:
        new = sorted({size for size in sizes if size not in self.played})
        for size, run in zip(new, self._play(new) if new else (), strict=True):
            _refuse_never(run, size)
            self.played[size] = run.summary

    def boundary(self) -> int | None:
        """Find the first size that is passed; None when there is none up to the most."""
        low, high = self._double()
        while high is not None and high - low > 1:
            steps = min(self.within.width, high - low - 1)
            sizes = [low + (high - low) * at // (steps + 1) for at in range(1, steps + 1)]
            low, high = self._narrow(low, high, sizes)
        return high

    def _double(self) -> tuple[int, int | None]:
        low, high, size = self.within.low - 1, None, self.within.guess
        while high is None and low < self.within.most and not self._saturated():
            sizes: list[int] = []
            while len(sizes) < self.within.width and self.within.most not in sizes:
                sizes.append(min(size, self.within.most))
                size *= 2
            low, high = self._narrow(low, high, sizes)
        return low, high

    def _narrow(
        self, low: int, high: int | None, sizes: Sequence[int]
    ) -> tuple[int, int | None]:
        self.play(sizes)
        for size in sizes:
            if self.passed(size):
                return low, size
            low = size
        return low, high

    def _saturated(self) -> bool:
        """Whether more nodes change nothing: no job waits, and the last ones did not.

        Nor do they where no job completes, with fewer or with more.
        """
        if not self.least or len(self.played) < 2:
            return False
        one, two = (self.played[size] for size in sorted(self.played)[-2:])
        if any(
            condition.value(one) is condition.value(two) is None for condition in self.deciding
        ):
            return True
        return not two.peak_waiting_jobs and all(
            condition.value(one) == condition.value(two) for condition in self.deciding
        )


def find(play: Play, conditions: Sequence[Condition], within: Range) -> Sizing:
    """Find the size. Raises BadSize where a job can never run on such nodes."""
    search = _Search(play, conditions, within)
    found = search.boundary()
    if search.least:
        chosen = found or 0
    else:
        chosen = within.most if found is None else found - 1 if found > within.low else 0
    why = _why_not(search, conditions, chosen)
    if chosen and not why:
        around = (chosen - 1, chosen, chosen + 1, chosen * 5 // 4, chosen * 3 // 2, chosen * 2)
        search.play(size for size in around if within.low <= size <= within.most)
    odd = tuple(
        size
        for size in sorted(search.played)
        if chosen
        and (size > chosen if search.least else size < chosen)
        and not search.met(size)
    )
    return Sizing(
        0 if why else chosen, search.least, tuple(sorted(search.played.items())), odd, why
    )


def _why_not(search: _Search, conditions: Sequence[Condition], chosen: int) -> str:
    """Return why no size will do; empty when the chosen one does."""
    tried = chosen or (max if search.least else min)(search.played)
    summary = search.played[tried]
    missed = [condition for condition in conditions if not condition.met(summary)]
    if not missed:
        return ""
    found = ", ".join(condition.missed(summary) for condition in missed)
    if any(condition.value(summary) is None for condition in missed):
        return f"With {nodes_of(tried)}, {found}. `allot sim run` shows what happens to them."
    if chosen:
        eased = " and ".join(condition.text for condition in search.deciding)
        return f"It takes {nodes_of(chosen)} for {eased}, and there {found}."
    if not search.least:
        return f"Even with {nodes_of(tried)}, which the largest job needs, {found}."
    if tried < search.within.most:
        return f"With {nodes_of(tried)} no job waits any more, and still {found}."
    return f"Even with {nodes_of(tried)}, {found}. Allow more with --most, or another target."


def _refuse_never(run: Run, nodes: int) -> None:
    never = [row for row in run.jobs if row.never]
    if never:
        raise BadSize(
            f"{len(never)} of {len(run.jobs)} jobs can never run on such nodes, be they "
            f"{nodes} or more. Job {never[0].id}: {never[0].never}"
        )


def nodes_of(count: int) -> str:
    """Write a number of nodes."""
    return f"{count:,} {'node' if count == 1 else 'nodes'}"
