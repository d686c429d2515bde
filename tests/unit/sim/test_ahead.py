"""Start estimates on states small enough to work the answer out by hand."""

from collections.abc import Sequence

import msgspec
import pytest

from allotment.engine.engine import Engine
from allotment.engine.records import JobRecord
from allotment.engine.state import State
from allotment.model import commands as c
from allotment.model.forecast import Answer, Counted, Ground, Question
from allotment.model.ids import AttemptNo, JobId
from allotment.model.ledger import Entitlement
from allotment.model.lifecycle import JobState
from allotment.model.quantity import DAY, HOUR, MINUTE, Instant, Millis
from allotment.model.reports import GangReport, Seen
from allotment.model.spec import Dependency, JobSpec
from allotment.sim.ahead import FORCE_MS
from allotment.sim.forecast import answer
from tests.support.builders import ALICE, NOW, POLICIES, a_config, a_job, a_tenant

GRACE = 5000
"""What who says nothing of its own gets, in milliseconds."""


class World:
    """A live engine: one node, everybody of one tenant, gangs run as soon as placed."""

    def __init__(self, devices: int = 1) -> None:
        self.engine = Engine(State(POLICIES))
        config = a_config(a_tenant("vision", devices), devices=devices)
        self.engine.command(c.ApplyConfig(config), ALICE, NOW)

    def submit(self, spec: JobSpec, now: int = NOW) -> JobId:
        job = self.engine.state.next_job
        self.engine.command(c.SubmitJob(spec), ALICE, Instant(now))
        self.settle(now)
        return job

    def settle(self, now: int) -> None:
        while self.engine.cycle(Instant(now)):
            pass
        for job in list(self.engine.state.cluster.gangs):
            self.engine.report(GangReport(job, AttemptNo(1), Seen.RUNNING), Instant(now))
        self.engine.take()

    def ask(
        self,
        job: int = 0,
        now: int = NOW,
        past: Sequence[JobRecord] = (),
        submit: c.SubmitJob | None = None,
        horizon_ms: int = 30 * DAY,
    ) -> Answer:
        question = Question(
            now=Instant(now),
            image=msgspec.msgpack.encode(self.engine.state.image()),
            past=tuple(msgspec.msgpack.encode(each) for each in past),
            horizon_ms=Millis(horizon_ms),
            patience_ms=Millis(0),
            job=JobId(job),
            submit=submit,
            actor=ALICE,
        )
        return answer(question, lambda: POLICIES, lambda _: lambda: False)


def finished(
    run_ms: int,
    name: str,
    state: JobState = JobState.SUCCEEDED,
    limit_ms: int | None = None,
) -> JobRecord:
    spec = a_job().named(name).within(run_ms=limit_ms).spec()
    return JobRecord(JobId(99), spec, ALICE, NOW, state, NOW, served_ms=Millis(run_ms))


def starts(found: Answer, since: int = NOW) -> list[int | None]:
    return [
        None if course.starts_at is None else course.starts_at - since
        for course in (found.optimistic, found.expected, found.pessimistic)
    ]


def test_the_line_of_one_device_moves_on_by_its_limits() -> None:
    world = World()
    world.submit(a_job().gpus(1).within(run_ms=HOUR).spec())
    world.submit(a_job().gpus(1).within(run_ms=2 * HOUR).spec())
    third = world.submit(a_job().gpus(1).within(run_ms=4 * HOUR).spec())
    found = world.ask(third)
    assert starts(found) == [3 * HOUR // 4, 3 * HOUR, 3 * HOUR]
    assert found.basis == (Counted(Ground.LIMIT, 2),)
    assert found.expected.entitlement is Entitlement.GUARANTEED
    assert [slot.devices for slot in found.expected.slots] == [(0,)]


def test_what_runs_already_has_less_to_run() -> None:
    world = World()
    world.submit(a_job().gpus(1).within(run_ms=HOUR).spec())
    second = world.submit(a_job().gpus(1).spec())
    later = NOW + 40 * MINUTE
    assert starts(world.ask(second, later), later) == [5 * MINUTE, 20 * MINUTE, 20 * MINUTE]


def test_jobs_of_the_same_name_tell_how_long_it_runs() -> None:
    world = World()
    world.submit(a_job().gpus(1).named("train").within(run_ms=DAY).spec())
    second = world.submit(a_job().gpus(1).spec())
    past = [finished(hours * HOUR, "train") for hours in (1, 2, 3, 4, 5)]
    past += [finished(100 * HOUR, "other"), finished(DAY, "train", JobState.CANCELLED)]
    found = world.ask(second, past=past)
    assert starts(found) == [2 * HOUR, 3 * HOUR, 4 * HOUR]
    assert found.basis == (Counted(Ground.SAME_NAME, 1),)


def test_a_job_that_ran_for_longer_than_some_is_like_the_others() -> None:
    world = World()
    world.submit(a_job().gpus(1).named("train").spec())
    second = world.submit(a_job().gpus(1).spec())
    past = [finished(hours * HOUR, "train") for hours in (1, 2, 6, 7, 8, 9, 10)]
    later = NOW + 5 * HOUR
    assert starts(world.ask(second, later, past), later) == [2 * HOUR, 3 * HOUR, 4 * HOUR]


def test_else_jobs_of_its_tenant_do_within_its_limit() -> None:
    world = World()
    world.submit(a_job().gpus(1).named("new").within(run_ms=int(2.5 * HOUR)).spec())
    second = world.submit(a_job().gpus(1).spec())
    past = [finished(hours * HOUR, f"job{hours}") for hours in (1, 2, 3, 4, 5)]
    found = world.ask(second, past=past)
    assert starts(found) == [2 * HOUR, int(2.5 * HOUR), int(2.5 * HOUR)]
    assert found.basis == (Counted(Ground.TENANT, 1),)


def test_what_its_tenants_jobs_use_of_their_limits_tells_how_long_it_runs() -> None:
    world = World()
    world.submit(a_job().gpus(1).named("new").within(run_ms=10 * HOUR).spec())
    second = world.submit(a_job().gpus(1).spec())
    past = [
        finished(tenths * HOUR, f"job{tenths}", limit_ms=10 * HOUR) for tenths in range(1, 6)
    ]
    found = world.ask(second, past=past)
    assert starts(found) == [2 * HOUR, 3 * HOUR, 4 * HOUR]
    assert found.basis == (Counted(Ground.LIMIT_USED, 1),)
    later = NOW + 3 * HOUR
    assert starts(world.ask(second, later, past), later) == [HOUR // 2, 3 * HOUR // 2, 7 * HOUR]


def test_of_what_nobody_knows_nothing_is_told() -> None:
    world = World()
    world.submit(a_job().gpus(1).spec())
    second = world.submit(a_job().gpus(1).spec())
    found = world.ask(second)
    assert starts(found) == [0, None, None]
    assert found.basis == (Counted(Ground.UNKNOWN, 1),)


def test_beyond_the_horizon_nothing_is_told() -> None:
    world = World()
    world.submit(a_job().gpus(1).within(run_ms=DAY).spec())
    second = world.submit(a_job().gpus(1).spec())
    assert starts(world.ask(second, horizon_ms=HOUR)) == [None, None, None]
    assert starts(world.ask(second, horizon_ms=DAY)) == [DAY // 4, DAY, DAY]


def test_a_job_waits_for_those_it_depends_on() -> None:
    world = World(2)
    first = world.submit(a_job().gpus(1).within(run_ms=HOUR).spec())
    second = world.submit(a_job().gpus(1).after(Dependency(first)).spec())
    assert starts(world.ask(second)) == [HOUR // 4, HOUR, HOUR]


def test_a_job_that_its_queue_time_ends_first_never_starts() -> None:
    world = World()
    world.submit(a_job().gpus(1).within(run_ms=HOUR).spec())
    second = world.submit(a_job().gpus(1).within(queue_ms=30 * MINUTE).spec())
    found = world.ask(second)
    assert starts(found) == [HOUR // 4, None, None]
    assert "max_queue_time" in found.expected.ended


def test_a_suspended_job_goes_on_when_its_device_is_free() -> None:
    world = World()
    first = world.submit(a_job().gpus(1).within(run_ms=5 * HOUR).spec())
    world.engine.command(c.SuspendJob(first), ALICE, NOW)
    world.submit(a_job().gpus(1).within(run_ms=HOUR).spec())
    third = world.submit(a_job().gpus(1).spec())
    assert starts(world.ask(first)) == [None, None, None]  # nobody wants it back
    world.engine.command(c.ResumeJob(first), ALICE, NOW)
    assert starts(world.ask(first)) == [HOUR // 4, HOUR, HOUR]
    assert starts(world.ask(third))[1:] == [6 * HOUR, 6 * HOUR]


def test_a_stopped_job_is_gone_at_once_or_at_the_end_of_its_grace() -> None:
    world = World()
    first = world.submit(a_job().gpus(1).within(run_ms=5 * HOUR).spec())
    second = world.submit(a_job().gpus(1).spec())
    world.engine.command(c.CancelJob(first), ALICE, NOW)
    assert starts(world.ask(second)) == [0, 0, GRACE + FORCE_MS]
    later = NOW + 2000
    assert starts(world.ask(second, later), later) == [0, 0, GRACE + FORCE_MS - 2000]


@pytest.mark.parametrize("told", [True, False])
def test_the_range_holds_the_grace_of_those_who_must_go(told: bool) -> None:
    """Told to go already, or only once the owner's job is submitted."""
    world = World(1)
    config = a_config(a_tenant("vision", 0), a_tenant("owner", 1), devices=1)
    world.engine.command(c.ApplyConfig(config), ALICE, NOW)
    world.submit(a_job().gpus(1).of("vision").checkpointing(grace_ms=7000).spec())
    owner = a_job().gpus(1).of("owner").spec()
    if told:
        job = world.engine.state.next_job
        world.engine.command(c.SubmitJob(owner), ALICE, NOW)
        world.engine.cycle(NOW)
        found = world.ask(job)
    else:
        found = world.ask(submit=c.SubmitJob(owner))
    assert starts(found) == [0, 3500, 7000 + FORCE_MS]


def test_surplus_tasks_have_their_grace_too() -> None:
    world = World(4)
    config = a_config(a_tenant("vision", 0), a_tenant("owner", 2), devices=4)
    world.engine.command(c.ApplyConfig(config), ALICE, NOW)
    elastic = a_job().gpus(1).of("vision").between(2, 4, elastic=True)
    world.submit(elastic.checkpointing(grace_ms=7000).spec())
    found = world.ask(submit=c.SubmitJob(a_job().gpus(2).of("owner").spec()))
    assert starts(found) == [0, 3500, 7000 + FORCE_MS]


def test_a_job_not_yet_submitted_is_asked_for_on_a_copy() -> None:
    world = World(2)
    world.submit(a_job().gpus(2).within(run_ms=HOUR).spec())
    before = msgspec.msgpack.encode(world.engine.state.image())
    found = world.ask(submit=c.SubmitJob(a_job().gpus(1).spec()))
    assert starts(found) == [HOUR // 4, HOUR, HOUR]
    assert msgspec.msgpack.encode(world.engine.state.image()) == before
    refused = world.ask(submit=c.SubmitJob(a_job().gpus(3).spec()))
    assert "3" in refused.refusal


def test_without_checkpoints_an_evicted_borrower_begins_anew() -> None:
    """A borrower that ran 50 of its 60 minutes gives way to an owner for 30, then runs 60."""
    for saves, left in ((False, 60), (True, 10)):
        world = World(1)
        config = a_config(a_tenant("vision", 0), a_tenant("owner", 1), devices=1)
        world.engine.command(c.ApplyConfig(config), ALICE, NOW)
        alike = a_job().gpus(1).of("vision").within(run_ms=2 * HOUR).named("train")
        borrower = alike.checkpointing() if saves else alike
        first = world.submit(borrower.spec())
        later = NOW + 50 * MINUTE
        owner = a_job().gpus(1).of("owner").within(run_ms=30 * MINUTE)
        world.engine.command(c.SubmitJob(owner.spec()), ALICE, Instant(later))
        last = world.engine.state.next_job
        waiting = a_job().gpus(1).of("vision").spec()
        world.engine.command(c.SubmitJob(waiting), ALICE, Instant(later))
        past = [finished(HOUR, "train")] * 4
        found = world.ask(last, later, past)
        assert world.engine.state.jobs[first].state is JobState.RUNNING
        saving = 1500 if saves else 0
        assert starts(found, later)[1] == (30 + left) * MINUTE + saving


@pytest.mark.parametrize("count", [1, 80, 400])
def test_far_ahead_it_is_coarse_but_not_biased(count: int) -> None:
    world = World(4)
    for _ in range(count + 4):
        world.submit(a_job().gpus(1).named("train").within(run_ms=HOUR).spec())
    last = world.submit(a_job().gpus(4).spec())
    past = [finished(minutes * MINUTE, "train") for minutes in (20, 40, 40, 60)]
    found = world.ask(last, past=past)
    exact = -(-(count + 4) // 4) * 40 * MINUTE
    at = starts(found)[1]
    assert at is not None
    assert abs(at - exact) <= (exact // 50 if count > 64 else 0)
