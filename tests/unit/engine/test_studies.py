"""Studies in the engine: a trial waits for its parameters, and each gets them once."""

import msgspec
import pytest

from allotment.engine.records import JobRecord
from allotment.engine.state import Image, State
from allotment.engine.sweep_records import SweepRecord
from allotment.engine.sweeps import history, next_trial
from allotment.model import commands as c
from allotment.model import events as e
from allotment.model.errors import Rejected
from allotment.model.ids import SYSTEM, AttemptNo, JobId
from allotment.model.lifecycle import JobState as S
from allotment.model.reports import TrialReport
from allotment.model.sweeps import Came, Halving, Range, Sampler, Scale, Sweep, Tried
from allotment.service.sweep_words import of_sweep
from tests.support.builders import ALICE, POLICIES, a_config, a_job, a_tenant
from tests.support.world import World

STUDY = Sweep(
    (("lr", Range(Scale.LOG, 1e-4, 1.0)),),
    draws=5,
    seed=1,
    sampler=Sampler.OPTUNA,
    metric="loss",
    halving=Halving((10,), eta=2),
)


class Study(World):
    """A world with one study on four devices, two trials at a time."""

    def __init__(self, sweep: Sweep = STUDY, max_running: int = 2) -> None:
        super().__init__(a_config(a_tenant("us", 4), nodes=1, devices=4))
        job = msgspec.structs.replace(
            a_job().gpus(1).of("us").named("tune").spec(), env=(("A", "1"),)
        )
        command = c.SubmitJob(job, copies=sweep.draws, max_running=max_running, sweep=sweep)
        events = [record.event for record in self.do(command)]
        self.ids = [event.job for event in events if isinstance(event, e.JobSubmitted)]
        self.cycle()

    @property
    def record(self) -> SweepRecord:
        return self.state.sweeps[self.ids[0]]

    def proposes(self, text: str) -> JobId | None:
        """Propose the next trial, if it is the turn of one, and let it run."""
        job = next_trial(self.state, self.record)
        if job is None:
            return None
        self.do(c.ProposeTrial(job.id, (("lr", text),)), SYSTEM)
        self.cycle()
        self.runs(job.id)
        return job.id

    def says(self, job: JobId, step: int, value: float | None, *, last: bool = False) -> None:
        self.tell(TrialReport(job, AttemptNo(1), step, value, known=True, is_last=last))


def test_no_trial_starts_before_it_has_parameters() -> None:
    world = Study()
    assert {world.is_(job) for job in world.ids} == {S.HELD}
    why = world.why(world.ids[0])
    assert "no parameters yet" in why.message
    first, second = world.proposes("0.1"), world.proposes("0.2")
    assert (first, second) == tuple(world.ids[:2])
    assert world.proposes("0.3") is None, "two run, and two may"
    spec = world.job(world.ids[0]).spec
    assert spec.env == (("A", "1"), ("lr", "0.1"))
    assert spec.array is not None
    assert spec.array.params == (("lr", "0.1"),)
    assert [world.is_(job) for job in world.ids[:3]] == [S.RUNNING, S.RUNNING, S.HELD]


def test_one_comes_when_another_ends_until_all_have_come() -> None:
    world = Study()
    for at in range(5):
        job = world.proposes(f"0.{at + 1}")
        assert job == world.ids[at]
        world.ends(world.ids[at])
    assert world.proposes("0.9") is None
    assert world.record.is_over


def test_nobody_says_how_many_at_once_so_it_is_four() -> None:
    world = Study(max_running=0)
    made = [world.proposes("0.1") for _ in range(5)]
    assert made[4] is None
    assert None not in made[:4]


def test_a_trial_gets_its_parameters_once() -> None:
    world = Study()
    job = world.proposes("0.1")
    assert job is not None
    assert world.do(c.ProposeTrial(job, (("lr", "0.5"),)), SYSTEM) == []
    cancelled = world.ids[1]
    world.do(c.CancelJob(cancelled))
    assert world.do(c.ProposeTrial(cancelled, (("lr", "0.5"),)), SYSTEM) == []
    assert world.proposes("0.2") == world.ids[2], "what is over is passed over"


def test_a_trial_without_parameters_is_not_released() -> None:
    world = Study()
    with pytest.raises(Rejected, match="has no parameters yet"):
        world.do(c.ReleaseJob(world.ids[0]))
    job = world.proposes("0.1")
    assert job is not None
    waits = world.ids[1]
    world.do(c.ProposeTrial(waits, (("lr", "0.2"),)), SYSTEM)
    world.do(c.HoldJob(waits))
    assert next_trial(world.state, world.record) is None, "what its owner holds has its place"
    world.do(c.ReleaseJob(waits))
    assert world.is_(waits) is S.QUEUED


class Watched(dict[JobId, JobRecord]):
    """Jobs that count how often one is asked for."""

    asked = 0

    def get(self, key: JobId, default: JobRecord | None = None) -> JobRecord | None:  # type: ignore[override]
        self.asked += 1
        return super().get(key, default)


def test_a_look_at_a_long_study_asks_for_one_of_the_trials_that_wait() -> None:
    """A user may have many studies of a thousand trials, and each is looked at every second."""
    world = Study(msgspec.structs.replace(STUDY, draws=1_000), max_running=3)
    ended, *_ = (world.proposes(text) for text in ("0.1", "0.2", "0.3"))
    assert ended is not None
    jobs = world.state.jobs = Watched(world.state.jobs)
    assert next_trial(world.state, world.record) is None
    assert jobs.asked == 1
    world.ends(ended)
    jobs.asked = 0
    waits = next_trial(world.state, world.record)
    assert waits is not None
    assert (waits.id, jobs.asked) == (world.ids[3], 1)


def test_what_is_known_of_trials_is_what_is_recorded() -> None:
    world = Study(max_running=5)
    jobs = [world.proposes(f"0.{at + 1}") for at in range(5)]
    assert None not in jobs
    ends, loses, fails, silent, _ = world.ids
    world.says(ends, 10, 0.1)
    world.says(loses, 12, 0.7)
    assert world.is_(loses) is S.STOPPING
    world.says(ends, 30, 0.05, last=True)
    world.ends(ends)
    world.says(fails, 4, None, last=True)
    world.ends(fails, 1)
    world.ends(silent, 1)
    assert history(world.record) == [
        Tried((("lr", "0.1"),), Came.TO_ITS_END, ((10, 0.1), (30, 0.05))),
        Tried((("lr", "0.2"),), Came.NOT_SO_FAR, ((10, 0.7), (12, 0.7))),
        Tried((("lr", "0.3"),), Came.NOT_SO_FAR, ((4, None),)),
        Tried((("lr", "0.4"),), Came.NOT_SO_FAR),
        Tried((("lr", "0.5"),), Came.UNDER_WAY),
    ]


def test_rungs_of_run_time_are_not_mixed_with_steps() -> None:
    sweep = msgspec.structs.replace(STUDY, halving=Halving((1_000,), by_time=True))
    world = Study(sweep)
    job = world.proposes("0.1")
    assert job is not None
    world.wait(2_000)
    world.says(job, 7, 0.5)
    assert [each.values for each in history(world.record)] == [((1_000, 0.5),)]
    world.says(job, 9, 0.4, last=True)
    world.ends(job)
    assert [each.values[-1] for each in history(world.record)] == [(9, 0.4)]


def test_nothing_is_proposed_once_it_is_stopped() -> None:
    world = Study()
    world.proposes("0.1")
    world.do(c.StopSweep(world.ids[0]))
    assert next_trial(world.state, world.record) is None
    assert [world.is_(job) for job in world.ids[1:]] == [S.CANCELLED] * 4


def test_a_restart_knows_the_same() -> None:
    world = Study()
    job = world.proposes("0.1")
    assert job is not None
    world.says(job, 30, 0.05, last=True)
    world.ends(job)
    world.proposes("0.2")
    image = msgspec.msgpack.decode(msgspec.msgpack.encode(world.state.image()), type=Image)
    again = State.from_image(image, POLICIES)
    record = again.sweeps[world.ids[0]]
    assert record == world.record
    assert history(record) == history(world.record)
    waits, there = next_trial(again, record), next_trial(world.state, world.record)
    assert waits is not None
    assert there is not None
    assert waits.id == there.id


def test_a_study_cannot_be_submitted_as_held() -> None:
    world = Study()
    job = a_job().of("us").named("tune").spec()
    with pytest.raises(Rejected, match="cannot be submitted as held"):
        world.do(c.SubmitJob(job, copies=5, sweep=STUDY, held=True), ALICE)


def test_its_events_say_what_was_proposed() -> None:
    event = e.TrialProposed(JobId(3), (("lr", "0.1"), ("opt", "sgd")))
    assert of_sweep(event) == "gets its parameters: lr=0.1 opt=sgd"
    assert of_sweep(e.TrialProposed(JobId(3), ())) == "gets its parameters"
