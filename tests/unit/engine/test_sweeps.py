"""Sweeps in the engine: trials are an array, their values events, and what follows is sure."""

import msgspec
import pytest

from allotment.engine.state import Image, State
from allotment.engine.sweeps import MOST_KEPT, spent, trials_left
from allotment.model import commands as c
from allotment.model import events as e
from allotment.model.errors import Rejected
from allotment.model.ids import AttemptNo, JobId
from allotment.model.lifecycle import JobState as S
from allotment.model.quantity import HOUR, MINUTE, SECOND
from allotment.model.reports import TrialReport
from allotment.model.sweeps import GPU_HOUR, Halving, Range, Scale, Sweep, SweepEnd
from tests.support.builders import ALICE, POLICIES, a_config, a_job, a_tenant
from tests.support.world import World

SPACE = (("lr", Range(Scale.LOG, 1e-4, 1.0)),)
BY_STEPS = Sweep(SPACE, draws=4, seed=1, metric="loss", halving=Halving((10, 30)))
BY_TIME = Sweep(SPACE, draws=3, seed=1, metric="loss", halving=Halving((60_000,), by_time=True))


class Trials(World):
    """A world with one sweep on four devices."""

    def __init__(self, sweep: Sweep = BY_STEPS, max_running: int = 0, retries: int = 0) -> None:
        super().__init__(a_config(a_tenant("us", 4), nodes=1, devices=4))
        job = a_job().gpus(1).of("us").named("tune").retry(retries)
        self.ids = [
            record.event.job
            for record in self.do(
                c.SubmitJob(
                    job.spec(), copies=sweep.draws, max_running=max_running, sweep=sweep
                )
            )
            if isinstance(record.event, e.JobSubmitted)
        ]
        self.cycle()
        for each in self.ids:
            if self.job(each).state is S.STARTING:
                self.runs(each)

    @property
    def sweep(self) -> JobId:
        return self.ids[0]

    def says(self, at: int, step: int, value: float | None, *, is_last: bool = False) -> None:
        no = AttemptNo(len(self.job(self.ids[at]).attempts))
        report = TrialReport(self.ids[at], no, step, value, known=True, is_last=is_last)
        self.tell(report)

    def stopped(self) -> list[int]:
        return [
            self.ids.index(record.event.job)
            for record in self.log
            if isinstance(record.event, e.TrialStopped)
        ]

    def states(self) -> list[S]:
        return [self.job(each).state for each in self.ids]


def restarted(world: World) -> State:
    """Return the state as the log and a snapshot would give it."""
    image = msgspec.msgpack.decode(msgspec.msgpack.encode(world.state.image()), type=Image)
    return State.from_image(image, POLICIES)


def test_each_trial_is_a_job_of_an_array_with_its_parameters() -> None:
    world = Trials()
    specs = [world.job(each).spec for each in world.ids]
    assert len({dict(spec.env)["lr"] for spec in specs}) == 4
    assert all(("sweep", "tune") in spec.labels for spec in specs)
    assert [spec.name for spec in specs] == [f"tune.{index}" for index in range(4)]
    assert {(spec.array.metric, spec.array.rungs) for spec in specs if spec.array} == {
        ("loss", (10, 30))
    }
    submitted = [r.event for r in world.log if isinstance(r.event, e.SweepSubmitted)]
    assert [(each.job, each.trials) for each in submitted] == [(world.sweep, 4)]


def test_the_losers_at_a_rung_are_stopped_and_the_best_goes_on() -> None:
    world = Trials()
    world.says(0, 10, 0.9)
    world.says(1, 11, 0.5)
    assert world.stopped() == []
    world.says(2, 10, 0.7)
    assert world.stopped() == [2, 0]
    world.says(3, 10, 0.6)
    assert world.stopped() == [2, 0, 3]
    assert world.states() == [S.STOPPING, S.RUNNING, S.STOPPING, S.STOPPING]
    for at in (0, 2, 3):
        world.ends(world.ids[at], 143)
    assert world.states() == [S.CANCELLED, S.RUNNING, S.CANCELLED, S.CANCELLED]
    world.says(1, 30, 0.2)
    world.ends(world.ids[1])
    assert world.state.sweeps[world.sweep].is_over


def test_a_report_counts_once_and_only_of_the_attempt_under_way() -> None:
    world = Trials()
    for _ in range(3):
        world.says(0, 12, 0.9)
    world.tell(TrialReport(world.ids[1], AttemptNo(2), 10, 0.1, known=True))
    world.tell(TrialReport(JobId(99), AttemptNo(1), 10, 0.1, known=True))
    reached = [r.event for r in world.log if isinstance(r.event, e.RungReached)]
    assert [(each.job, each.step) for each in reached] == [(world.ids[0], 12)]


def test_what_a_trial_kept_for_a_rung_counts_before_what_it_says_now() -> None:
    world = Trials()
    report = TrialReport(
        world.ids[0], AttemptNo(1), 40, 0.1, known=True, at=((10, 0.8), (30, 0.3))
    )
    world.tell(report)
    assert world.state.sweeps[world.sweep].reached[world.ids[0]] == [0.8, 0.3]


def test_a_step_without_the_metric_is_no_value_yet() -> None:
    world = Trials()
    world.tell(TrialReport(world.ids[0], AttemptNo(1), 50))
    assert world.state.sweeps[world.sweep].reached == {}


def test_a_trial_that_reports_no_number_is_stopped_at_once() -> None:
    world = Trials()
    world.says(0, 10, None)
    assert world.stopped() == [0]


def test_a_trial_that_ended_by_itself_is_not_stopped_for_its_last_word() -> None:
    world = Trials()
    for at in (0, 1):
        world.says(at, 10, 0.1 * (at + 1))
    world.says(2, 30, 0.9, is_last=True)
    world.ends(world.ids[2])
    assert world.is_(world.ids[2]) is S.SUCCEEDED
    assert world.stopped() == [1]
    measured = world.state.sweeps[world.sweep].measured
    assert measured[world.ids[2]] == (30, 0.9)


def test_a_trial_that_waits_again_is_judged_too() -> None:
    world = Trials()
    world.says(0, 10, 0.9)
    world.ends(world.ids[0], 1)
    assert world.is_(world.ids[0]) is S.FAILED
    world.says(1, 10, 0.5)
    world.says(2, 10, 0.6)
    assert world.stopped() == [2]


def test_run_times_may_be_the_rungs() -> None:
    world = Trials(BY_TIME)
    world.says(0, 3, 0.9)
    assert world.state.sweeps[world.sweep].reached == {}
    world.wait(MINUTE)
    for at, value in enumerate((0.9, 0.5, 0.7)):
        world.says(at, 5, value)
    assert sorted(world.stopped()) == [0, 2]


def test_one_that_has_reported_nothing_is_stopped_a_minute_after_a_time() -> None:
    world = Trials(BY_TIME)
    silent = TrialReport(world.ids[0], AttemptNo(1), 0)
    world.wait(MINUTE + SECOND)
    world.tell(silent)
    assert world.stopped() == []
    world.wait(MINUTE)
    world.tell(silent)
    assert world.stopped() == [0]


def test_one_started_again_counts_with_its_last_value_until_it_reports() -> None:
    world = Trials(BY_TIME, retries=1)
    world.says(0, 5, 0.4, is_last=True)
    world.ends(world.ids[0], 1)
    world.wait(MINUTE)
    world.cycle()
    world.runs(world.ids[0])
    world.wait(2 * MINUTE + SECOND)
    world.tell(TrialReport(world.ids[0], AttemptNo(2), 0))
    assert world.stopped() == []
    assert world.state.sweeps[world.sweep].reached == {world.ids[0]: [0.4]}


def test_the_cap_holds_and_a_stopped_trial_lets_the_next_start() -> None:
    world = Trials(max_running=2)
    assert world.states() == [S.RUNNING, S.RUNNING, S.QUEUED, S.QUEUED]
    world.says(0, 10, None)
    world.ends(world.ids[0], 143)
    world.cycle()
    assert world.states() == [S.CANCELLED, S.RUNNING, S.STARTING, S.QUEUED]


def test_a_sweep_is_stopped_as_a_whole() -> None:
    world = Trials(max_running=2)
    world.do(c.StopSweep(world.sweep))
    assert world.states() == [S.STOPPING, S.STOPPING, S.CANCELLED, S.CANCELLED]
    record = world.state.sweeps[world.sweep]
    assert record.ended is SweepEnd.ASKED
    for at in (0, 1):
        world.ends(world.ids[at], 143)
    assert record.is_over
    assert record.finished_at == world.now
    with pytest.raises(Rejected, match="is over already"):
        world.do(c.StopSweep(world.sweep))
    with pytest.raises(Rejected, match="There is no sweep 99"):
        world.do(c.StopSweep(JobId(99)), ALICE)


def test_what_trials_use_is_summed_up() -> None:
    world = Trials(max_running=2)
    world.wait(HOUR)
    world.ends(world.ids[0])
    world.wait(HOUR)
    record = world.state.sweeps[world.sweep]
    assert record.gpu_spent == GPU_HOUR
    assert spent(world.state, record, world.now)[0] == 3 * GPU_HOUR


def test_a_snapshot_and_the_log_keep_all_of_it() -> None:
    world = Trials()
    for at, value in enumerate((0.9, 0.5, 0.7)):
        world.says(at, 10, value)
    world.ends(world.ids[0], 143)
    assert restarted(world).sweeps == world.state.sweeps


def test_a_sweep_outlives_the_archiving_of_its_trials() -> None:
    world = Trials()
    world.says(0, 10, 0.9)
    for each in world.ids:
        world.ends(each)
    for each in world.ids:
        world.engine.emit(e.JobArchived(each), ALICE, world.now)
    world.collect()
    assert not world.state.jobs
    assert world.state.sweeps[world.sweep].reached == {world.ids[0]: [0.9]}
    assert restarted(world).sweeps == world.state.sweeps


def test_only_so_many_sweeps_that_are_over_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("allotment.engine.sweeps.MOST_KEPT", 2)
    world = Trials()
    for each in world.ids:
        world.ends(each)
    for _ in range(3):
        world.do(c.SubmitJob(a_job().of("us").named("t").spec(), sweep=Sweep((("a", ("1",)),))))
    assert len(world.state.sweeps) == 3
    assert world.sweep not in world.state.sweeps
    assert MOST_KEPT > 2


def test_of_large_sweeps_fewer_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("allotment.engine.sweeps.MOST_IN_ALL", 12)
    world = Trials()
    for each in world.ids:
        world.ends(each)
    job = a_job().of("us").named("t").spec()
    small = Sweep((("a", ("1", "2")),), draws=1, seed=1)
    world.do(c.SubmitJob(job, sweep=small))
    assert world.sweep in world.state.sweeps
    large = Sweep((("a", tuple("123456")),), draws=1, seed=1)
    world.do(c.SubmitJob(job, sweep=large))  # 4 trials, 1 with 2 values, 1 with 6
    assert world.sweep not in world.state.sweeps
    assert len(world.state.sweeps) == 2


def test_trials_that_are_left_are_neither_over_nor_forgotten() -> None:
    world = Trials()
    world.ends(world.ids[1])
    del world.state.jobs[world.ids[2]]
    left = trials_left(world.state, world.state.sweeps[world.sweep])
    assert [job.id for job in left] == [world.ids[0], world.ids[3]]
