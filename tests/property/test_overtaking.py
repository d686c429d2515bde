"""Queues with a bound on overtaking: nobody is overtaken more often, and nobody gets stuck.

The twin counts from the log alone: of each job that waits, how many of its queue that come
after it in line were placed, or promised a place, since it came. While a job was promised a
place itself, others may pass.
"""

import os

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule

from allotment.engine.engine import Engine
from allotment.engine.state import Image, State
from allotment.model import commands as c
from allotment.model import events as e
from allotment.model.ids import JobId
from allotment.model.quantity import MINUTE
from allotment.model.reasons import Reason
from allotment.model.spec import NEVER
from allotment.model.tenancy import (
    Config,
    Limits,
    Preempt,
    Queue,
    QueueOrder,
    RankBy,
    ShareBy,
    Terms,
)
from tests.property.test_histories import RANK, SHARE, TENANTS, Histories, shared
from tests.support.builders import POLICIES, a_config, a_job, a_tenant
from tests.support.world import World

ORDER = st.sampled_from(list(QueueOrder))
SUBMIT = st.tuples(
    st.just("submit"),
    st.integers(0, 1),
    st.sampled_from([1, 1, 2, 4, 8]),
    st.sampled_from([100, 100, 200]),
    st.sampled_from([None, 1, 5]),
)
OTHER = st.tuples(
    st.sampled_from(["end", "end", "cancel", "wait", "restart"]), st.integers(0, 9)
)


def bounded(most: int, order: QueueOrder, preempt: Preempt, shares: tuple[int, int]) -> Config:
    queue = Queue("default", order, terms=Terms(overtaken=most))
    tenants = [
        msgspec.structs.replace(a_tenant(name, share), queues=(queue,), preempt=preempt)
        for name, share in zip(TENANTS, shares, strict=False)
    ]
    return a_config(*tenants, nodes=2, devices=4, limits=Limits(phase_ms=NEVER))


@given(
    most=st.integers(1, 3),
    order=ORDER,
    preempt=st.sampled_from(list(Preempt)),
    shares=st.sampled_from([(8, 0), (4, 4), (3, 2), (0, 0)]),
    steps=st.lists(st.one_of(SUBMIT, SUBMIT, OTHER), max_size=40),
)
def test_nobody_is_overtaken_more_often_than_that(
    most: int,
    order: QueueOrder,
    preempt: Preempt,
    shares: tuple[int, int],
    steps: list[tuple[str, int, int, int, int | None] | tuple[str, int]],
) -> None:
    world = World(bounded(most, order, preempt, shares))
    for step in steps:
        match step:
            case ("submit", tenant, gpus, priority, minutes):
                job = a_job().of(TENANTS[tenant]).priority(priority).gpus(min(gpus, 4))
                job.tasks(max(1, gpus // 4))
                limit = None if minutes is None else minutes * MINUTE
                world.submit(job.within(run_ms=limit))
            case (what, which):
                other(world, what, which)
            case _:
                raise AssertionError(step)
        world.cycle()
        counts = Counts(most)
        for record in world.log:
            counts.note(record.event)
        overtaking = world.state.cluster.overtaking
        assert overtaking is not None
        assert {job: n for job, n in counts.seen.items() if n} == overtaking.counts()


def other(world: World, what: str, which: int) -> None:
    """Let something happen to one job, or to all."""
    jobs = [job.id for job in world.state.jobs.values() if not job.state.finished]
    placed = [job for job in jobs if world.job(job).attempt is not None]
    match what:
        case "end" if placed:
            job = placed[which % len(placed)]
            if world.job(job).attempts[-1].stop is None:
                world.runs(job)
            world.ends(job)
        case "cancel" if jobs:
            job = jobs[which % len(jobs)]
            world.do(c.CancelJob(job))
            if world.job(job).attempt is not None:
                world.ends(job)
        case "wait":
            world.wait(which * int(MINUTE))
        case "restart":
            data = msgspec.msgpack.encode(world.state.image())
            image = msgspec.msgpack.decode(data, type=Image)
            world.engine = Engine(State.from_image(image, POLICIES))
        case _:
            pass


class Counts:
    """The slow, obvious count, of jobs that come back in line at once when they are evicted."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.seen: dict[JobId, int] = {}
        """Of those that wait."""
        self._place: dict[JobId, tuple[str, int, JobId]] = {}
        self._promised: set[JobId] = set()

    def note(self, event: e.AnyEvent) -> None:
        """Read one event."""
        match event:
            case e.JobSubmitted(job, spec):
                self._place[job] = (spec.tenant, -spec.priority, job)
                self.seen[job] = 0
            case e.JobRequeued(job):
                self.seen[job] = 0
            case e.Reserved(job):
                self._passes(job)
                self._promised.add(job)
            case e.ReservedPlaceDropped(job):
                self._promised.discard(job)
            case e.AttemptPlaced(job):
                if job not in self._promised:
                    self._passes(job)
                self._promised.discard(job)
                self.seen.pop(job, None)
            case e.JobCancelled(job) | e.JobFailed(job):
                self.seen.pop(job, None)
                self._promised.discard(job)
            case e.AttemptEnded(job):
                self._promised.discard(job)
            case _:
                pass

    def _passes(self, job: JobId) -> None:
        tenant, *behind = self._place[job]
        for each, count in self.seen.items() if job in self.seen else ():
            other, *place = self._place[each]
            if other == tenant and place < behind:
                assert count < self.most or each in self._promised
                self.seen[each] += 1


class BoundedHistories(Histories):
    """All that can happen, in queues with a bound: whoever may start in the end, starts."""

    @initialize(
        shares=st.tuples(*[st.integers(0, 4)] * 3),
        order=ORDER,
        share=SHARE,
        rank=RANK,
        preempt=st.sampled_from(list(Preempt)),
    )
    def begin(
        self,
        shares: tuple[int, ...],
        order: QueueOrder,
        share: ShareBy,
        rank: RankBy,
        preempt: Preempt = Preempt.NONE,
    ) -> None:
        self.world = World(with_bounds(shared(shares, order, share, rank, preempt), 2))

    @rule(
        shares=st.tuples(*[st.integers(0, 4)] * 3),
        share=SHARE,
        rank=RANK,
        order=ORDER,
        most=st.integers(0, 2),
    )
    def reconfigure(  # pyright: ignore[reportIncompatibleMethodOverride]
        self,
        shares: tuple[int, ...],
        share: ShareBy,
        rank: RankBy,
        order: QueueOrder = QueueOrder.SKIP,
        most: int = 1,
    ) -> None:
        self.attempt(c.ApplyConfig(with_bounds(shared(shares, order, share, rank), most)))


def with_bounds(config: Config, most: int) -> Config:
    tenants = tuple(
        msgspec.structs.replace(
            tenant,
            queues=tuple(
                msgspec.structs.replace(queue, terms=Terms(overtaken=most))
                for queue in tenant.queues
            ),
        )
        for tenant in config.tenants
    )
    return msgspec.structs.replace(config, tenants=tenants)


def test_why_says_how_often_and_who_holds_up_whom() -> None:
    world = World(bounded(2, QueueOrder.SKIP, Preempt.NONE, (8, 0)))
    half = world.submit(a_job().gpus(4))
    world.cycle()
    large = world.submit(a_job().gpus(4).tasks(2))
    small = [world.submit(a_job().gpus(1)) for _ in range(3)]
    world.cycle()
    assert [world.job(job).attempt is not None for job in small] == [True, True, False]
    blocked = world.why(large)
    assert "It was overtaken 2 times" in " ".join(blocked.notes)
    held = world.why(small[2])
    assert held.reason is Reason.BEHIND
    assert f"Job {large} is before it" in held.message
    assert "overtaken 2 times" in held.message
    for job in (half, *small[:2]):
        world.runs(job)
        world.ends(job)
    world.cycle()
    assert world.job(large).attempt is not None
    assert world.job(small[2]).attempt is None


TestBounded = BoundedHistories.TestCase
TestBounded.settings = settings(
    max_examples=int(os.environ.get("ALLOT_HISTORIES", "100" if "CI" in os.environ else "20")),
    stateful_step_count=50 if "CI" in os.environ else 25,
    deadline=None,
)
