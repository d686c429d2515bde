"""The machine's clock is set while the engine runs: lengths of time stay, dates follow."""

import msgspec
import pytest

from allotment.engine.apply import apply
from allotment.engine.state import Image, State
from allotment.model import commands as c
from allotment.model import events as e
from allotment.model.budget import GPU_HOUR, Budget, Every
from allotment.model.ids import SYSTEM, NodeId
from allotment.model.lifecycle import JobState as S
from allotment.model.quantity import DAY, HOUR, MINUTE, Instant, Millis, WallTime
from allotment.model.reasons import Reason, StopCause
from allotment.model.tenancy import Config, DatedChange, Share
from allotment.service.reservations import reservation_views
from tests.support.builders import POLICIES, a_config, a_job, a_tenant, gpus
from tests.support.world import World

BACK_AND_FORTH = pytest.mark.parametrize("step", [-HOUR, HOUR], ids=["back", "forth"])


class Stepped(World):
    """A world on whose wall clock somebody has a hand."""

    def step(self, ms: int) -> None:
        self.engine.emit(e.ClockStepped(Millis(ms)), SYSTEM, self.now)
        self.wait(0)

    def wall(self) -> int:
        return self.state.wall(self.now)

    def checked(self) -> None:
        """Fold and snapshot: both are the state."""
        folded = State(POLICIES)
        for record in self.log:
            apply(folded, record)
        data = msgspec.msgpack.encode(self.state.image())
        assert msgspec.msgpack.encode(folded.image()) == data
        again = State.from_image(msgspec.msgpack.decode(data, type=Image), POLICIES)
        assert msgspec.msgpack.encode(again.image()) == data
        assert again.cluster.reservations.all == folded.cluster.reservations.all


def day_after_noon() -> Stepped:
    """A day of the calendar is under way for twelve hours."""
    world = Stepped(a_config(a_tenant("vision", 8), a_tenant("nlp")))
    world.now = Instant(100 * DAY + 12 * HOUR)
    world.wait(0)
    return world


@BACK_AND_FORTH
def test_a_run_limit_holds_for_as_long_as_it_says(step: int) -> None:
    world = day_after_noon()
    job = world.submit(a_job().within(run_ms=10 * MINUTE))
    world.cycle()
    world.runs(job)
    world.wait(MINUTE)
    world.step(step)
    world.wait(9 * MINUTE - 1)
    assert world.is_(job) is S.RUNNING
    world.wait(1)
    stop = world.job(job).attempts[-1].stop
    assert stop is not None
    assert stop.cause is StopCause.RUN_TIME
    world.checked()


@BACK_AND_FORTH
def test_a_queue_limit_and_a_back_off_are_what_they_were(step: int) -> None:
    world = day_after_noon()
    again = world.submit(a_job().retry(1))
    world.cycle()
    world.runs(again)
    world.ends(again, 1)
    filler = world.submit(a_job().gpus(8))
    world.cycle()
    world.runs(filler)
    waits = world.submit(a_job().gpus(8).within(queue_ms=30 * MINUTE))
    world.step(step)
    assert world.is_(waits) is S.QUEUED
    world.wait(2 * MINUTE)
    world.cycle()
    assert world.is_(again) is S.STARTING, "its back-off is over"
    world.wait(28 * MINUTE - 1)
    assert world.is_(waits) is S.QUEUED
    world.wait(1)
    assert world.is_(waits) is S.TIMED_OUT
    assert world.is_(filler) is S.RUNNING
    world.checked()


@BACK_AND_FORTH
def test_reservations_begin_and_end_by_the_new_clock(step: int) -> None:
    world = day_after_noon()
    begin = WallTime(world.wall() + 3 * HOUR)
    end = WallTime(begin + HOUR)
    world.do(c.ReserveNodes("w", begin, end, (NodeId(0),)))
    world.step(step)
    (view,) = reservation_views(world.state, world.now)
    assert (view.begin, view.end, view.begun) == (begin, end, False)
    job = world.submit(a_job().within(run_ms=5 * HOUR))
    world.cycle()
    assert world.why(job).reason is Reason.RESERVATION
    assert world.why(job).until == world.now + 4 * HOUR - step
    world.checked()
    world.wait(4 * HOUR - step - 1)
    assert "w" in world.state.reservations
    assert reservation_views(world.state, world.now)[0].begun
    world.wait(1)
    assert world.state.reservations == {}
    assert world.wall() == end


def test_a_date_that_is_past_by_the_new_clock_is_refused() -> None:
    world = day_after_noon()
    world.step(-HOUR)
    soon = WallTime(world.wall() + MINUTE)
    world.do(c.ReserveNodes("w", soon, WallTime(soon + MINUTE), (NodeId(0),)))
    world.wait(2 * MINUTE)
    assert world.state.reservations == {}


@BACK_AND_FORTH
def test_what_holds_by_date_holds_by_the_new_clock(step: int) -> None:
    world = day_after_noon()
    begin = WallTime(world.wall() + 30 * MINUTE)
    end = WallTime(begin + 2 * HOUR)
    more = DatedChange("vision", begin, end, Share(gpus(4)))
    config = a_config(a_tenant("vision", 8), a_tenant("nlp"))
    world.do(c.ApplyConfig(msgspec.structs.replace(config, changes=(more,))))
    world.step(step)

    def guaranteed() -> int:
        return world.state.config.tenants[0].guaranteed.gpu_milli // 1000

    assert guaranteed() == (4 if step > 0 else 8)
    world.wait(max(0, begin - world.wall()))
    assert guaranteed() == 4
    world.wait(end - world.wall() - 1)
    assert guaranteed() == 4
    world.wait(1)
    assert guaranteed() == 8
    world.checked()


def with_budget(hard_hours: int) -> Config:
    budget = Budget(Every.DAY, hard=hard_hours * GPU_HOUR)
    vision = msgspec.structs.replace(a_tenant("vision", 8), budgets=(budget,))
    return a_config(vision)


def test_a_budget_is_renewed_by_the_new_clock() -> None:
    world = Stepped(with_budget(8))
    world.now = Instant(100 * DAY + 12 * HOUR)
    world.wait(0)
    job = world.submit(a_job().gpus(8))
    world.cycle()
    world.runs(job)
    world.wait(HOUR)
    world.ends(job)
    waits = world.submit(a_job().gpus(1))
    world.cycle()
    blocked = world.why(waits)
    assert blocked.reason is Reason.BUDGET
    world.step(-HOUR)
    assert world.why(waits).until == world.now + 12 * HOUR
    assert "1970-04-12" in world.why(waits).message
    world.checked()
    world.step(12 * HOUR + 1)
    world.cycle()
    assert world.is_(waits) is S.STARTING, "it is tomorrow"
    (account,) = world.state.budgets.accounts()
    assert account.used(world.now) == 0
    world.checked()


def test_steps_add_up_and_the_last_one_is_remembered() -> None:
    world = day_after_noon()
    world.step(-HOUR)
    world.wait(MINUTE)
    world.step(3 * HOUR)
    assert world.state.wall_ms == 2 * HOUR
    assert (world.state.clock_set_at, world.state.clock_set_ms) == (world.now, 3 * HOUR)
    world.checked()
