"""What is found of waiting jobs, and what of that is recorded."""

from allotment.metrics.fold import Folds
from allotment.metrics.reasons import ReasonHistory, Stretch
from allotment.model import commands as c
from allotment.model import events as e
from allotment.model.ids import SYSTEM, JobId
from allotment.model.quantity import Instant
from allotment.model.reasons import Reason
from allotment.model.spec import Dependency
from allotment.service.reason_watch import ReasonWatch
from tests.support.builders import a_config, a_job, a_tenant
from tests.support.world import World

S = 1000


class Watched:
    """A world somebody watches."""

    def __init__(self, look_s: float = 1.0) -> None:
        self.world = World(a_config(a_tenant("vision", 8)))
        self.watch = ReasonWatch(self.world.state, look_s)

    def look(self) -> list[tuple[int, Reason, int]]:
        """Look once and record what is found: job, reason, since when."""
        found = self.watch.look(self.world.now)
        for event in found:
            self.world.engine.emit(event, SYSTEM, self.world.now)
        self.world.collect()
        return [(event.job, event.reason, event.since) for event in found]

    def looks(self, seconds: int) -> list[tuple[int, Reason, int]]:
        """Look every second."""
        found: list[tuple[int, Reason, int]] = []
        for _ in range(seconds):
            self.world.wait(S)
            self.world.cycle()
            found += self.look()
        return found

    def past(self, job: JobId) -> list[tuple[float, str]]:
        """Return for how many seconds it was what."""
        jobs = self.world.state.jobs
        fold = ReasonHistory(lambda need: jobs[need.job].finished_at or None)
        mine = [each for each in self.world.log if getattr(each.event, "job", None) == job]
        Folds(fold).feed(mine)
        return [(each.ms / S, _word(each)) for each in fold.stretches(self.world.now)]


def _word(each: Stretch) -> str:
    return (each.reason or each.phase).value


def test_a_wait_is_explained_once_after_a_second() -> None:
    it = Watched()
    first = it.world.submit(a_job().gpus(8))
    it.world.cycle()
    second = it.world.submit(a_job().gpus(8))
    assert it.look() == []
    began = it.world.now
    assert it.looks(30) == [(second, Reason.CAPACITY, began + S)]
    assert it.past(second) == [(30, "capacity")]
    it.world.runs(first)
    it.world.ends(first)
    it.world.cycle()
    assert it.past(second) == [(30, "capacity"), (0, "starting")]
    assert it.looks(3) == []


def test_what_its_own_events_tell_is_not_recorded() -> None:
    it = Watched()
    first = it.world.submit(a_job().gpus(8))
    it.world.cycle()
    after = it.world.submit(a_job().gpus(1).after(Dependency(first)))
    held = it.world.submit(a_job().gpus(1), held=True)
    assert it.looks(20) == []
    assert it.past(after) == [(20, "dependency")]
    assert it.past(held) == [(20, "held")]


def behind_another() -> tuple[Watched, JobId, JobId]:
    """Return a job behind another that nothing else keeps from being the next."""
    it = Watched()
    it.world.submit(a_job().gpus(8))
    it.world.cycle()
    head = it.world.submit(a_job().gpus(8))
    return it, head, it.world.submit(a_job().gpus(8))


def test_a_change_counts_from_when_it_was_first_seen() -> None:
    it, head, job = behind_another()
    assert [each[:2] for each in it.looks(10)] == [
        (head, Reason.CAPACITY),
        (job, Reason.BEHIND),
    ]
    it.world.do(c.HoldJob(head))
    changed = it.world.now + S
    assert it.looks(10) == [(job, Reason.CAPACITY, changed)]
    assert it.past(job) == [(11, "behind"), (9, "capacity")]


def test_what_holds_only_shortly_is_not_recorded() -> None:
    it, head, _ = behind_another()
    assert len(it.looks(100)) == 2
    for _ in range(5):
        it.world.do(c.HoldJob(head))
        assert it.looks(3) == []
        it.world.do(c.ReleaseJob(head))
        assert it.looks(20) == []


def test_a_new_wait_is_explained_anew() -> None:
    it = Watched()
    first = it.world.submit(a_job().gpus(8))
    it.world.cycle()
    job = it.world.submit(a_job().gpus(8).retry(1))
    assert len(it.looks(5)) == 1
    it.world.runs(first)
    it.world.ends(first)
    it.world.cycle()
    it.world.runs(job)
    other = it.world.submit(a_job().gpus(8))
    it.looks(5)
    it.world.ends(job, code=1)
    it.world.cycle()
    it.world.runs(other)
    found = it.looks(10)
    assert [(who, reason) for who, reason, _ in found] == [(job, Reason.CAPACITY)]
    assert it.past(job) == [
        (5, "capacity"), (5, "running"), (1, "backoff"), (9, "capacity"),
    ]  # fmt: skip


def test_what_the_cap_of_an_array_keeps_out_of_line_is_found() -> None:
    it = Watched()
    records = it.world.do(c.SubmitJob(a_job().gpus(1).spec(), copies=3, max_running=1))
    jobs = [each.event.job for each in records if isinstance(each.event, e.JobSubmitted)]
    it.world.cycle()
    assert {who: reason for who, reason, _ in it.looks(5)} == dict.fromkeys(
        jobs[1:], Reason.ARRAY_CAP
    )
    assert it.past(jobs[2]) == [(5, "array_cap")]


def test_a_long_line_is_looked_through_bit_by_bit() -> None:
    it = Watched(look_s=0)
    it.world.submit(a_job().gpus(8))
    it.world.cycle()
    jobs = {it.world.submit(a_job().gpus(8)) for _ in range(5)}
    found = [it.looks(1) for _ in range(6)]
    assert all(len(each) <= 1 for each in found)
    assert {each[0][0] for each in found if each} == jobs


def test_a_job_that_went_meanwhile_is_forgotten() -> None:
    it = Watched(look_s=0)
    it.world.submit(a_job().gpus(8))
    it.world.cycle()
    jobs = [it.world.submit(a_job().gpus(8)) for _ in range(3)]
    it.looks(1)
    for job in jobs:
        it.world.do(c.CancelJob(job))
    assert it.looks(5) == []


def test_it_changes_nothing_but_what_is_remembered_of_the_job() -> None:
    it = Watched()
    it.world.submit(a_job().gpus(8))
    it.world.cycle()
    job = it.world.submit(a_job().gpus(8))
    it.looks(3)
    assert it.world.job(job).waits_for == "capacity"
    assert isinstance(it.world.log[-1].event, e.WaitExplained)
    assert it.world.why(job).reason is Reason.CAPACITY
    assert Instant(it.world.job(job).queued_at) < it.world.log[-1].at
