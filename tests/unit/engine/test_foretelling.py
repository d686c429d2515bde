"""Run times predicted from finished jobs: what is told to whom, and when anew."""

import msgspec
import pytest

from allotment.engine.engine import Engine
from allotment.engine.foretelling import Foretelling
from allotment.engine.run_history import ENOUGH, MOST_KINDS, MOST_RUNS, Runs
from allotment.engine.state import Image, State
from allotment.model import commands as c
from allotment.model.ids import Actor, JobId, NodeId
from allotment.model.lifecycle import JobState as S
from allotment.model.quantity import HOUR, MINUTE, WallTime
from allotment.model.spec import NEVER
from allotment.model.tenancy import Config, Limits, QueueOrder
from tests.support.builders import ALICE, POLICIES, JobBuilder, a_config, a_job, a_tenant
from tests.support.world import World

H, M = int(HOUR), int(MINUTE)
BOB = Actor("bob", 1002)


def config(
    order: QueueOrder = QueueOrder.EASY, *, nodes: int = 1, margin: int = 1250
) -> Config:
    limits = Limits(predict_milli=margin, phase_ms=NEVER)
    return a_config(a_tenant("vision", 64, order=order), nodes=nodes, limits=limits)


class Told(World):
    def ran(self, builder: JobBuilder, ms: int, code: int = 0, owner: Actor = ALICE) -> JobId:
        """Let a job come, run for so long on an idle cluster, and end."""
        job = self.send(builder, owner)
        self.runs(job)
        self.wait(ms)
        self.ends(job, code)
        self.cycle()
        return job

    def send(self, builder: JobBuilder, owner: Actor = ALICE) -> JobId:
        """Submit a job, and schedule."""
        before = self.state.next_job
        self.do(c.SubmitJob(builder.spec()), owner)
        self.cycle()
        return before

    def told(self, job: JobId) -> int:
        """What is told of a job that waits or runs."""
        gang = self.state.cluster.gangs.get(job)
        return (gang.standing if gang else self.state.cluster.pending[job]).predicted_ms

    def restart(self) -> None:
        data = msgspec.msgpack.encode(self.state.image())
        self.engine = Engine(
            State.from_image(msgspec.msgpack.decode(data, type=Image), POLICIES)
        )


def a(name: str, gpus: int = 1) -> JobBuilder:
    return a_job().named(name).gpus(gpus)


# ── the rule ────────────────────────────────────────────────────────────────────────────


def test_it_is_the_90th_percentile_of_the_newest_runs() -> None:
    runs = Runs("alice", "train")
    for minutes in range(1, 31):
        runs.add(minutes * M)
    assert runs.ran_ms == [minutes * M for minutes in range(11, 31)]
    assert len(runs.ran_ms) == MOST_RUNS
    assert 28 * M * 3 / 4 <= runs.told_ms <= 28 * M


def test_one_odd_run_changes_nothing_that_is_told() -> None:
    runs = Runs("alice", "train")
    assert [runs.add(H) for _ in range(4)] == [True] * 4
    assert not any(runs.add(H + each * M) for each in range(10))
    assert not runs.add(9 * H), "it is the one in ten"
    assert runs.told_ms == H
    assert any(runs.add(9 * H) for _ in range(3))
    assert runs.told_ms == 9 * H


def test_of_few_runs_it_is_twice_the_longest_and_then_with_the_margin() -> None:
    world = Told(config())
    waiting = world.send(a("train"))
    assert world.told(waiting) == -1
    world.runs(waiting)
    world.wait(H)
    world.ends(waiting)
    for told in (2 * H, 2 * H, 2 * H, H * 5 // 4):
        job = world.send(a("train"))
        assert world.told(job) == told
        world.runs(job)
        world.wait(H)
        world.ends(job)


def test_names_come_before_users_and_nobody_tells_of_others() -> None:
    world = Told(config(nodes=2))
    for _ in range(4):
        world.ran(a("long"), 10 * H)
    world.ran(a("short"), H)
    assert world.told(world.send(a("short"))) == 2 * H
    assert world.told(world.send(a("long"))) == 10 * H * 5 // 4
    assert world.told(world.send(a("other"))) == 10 * H * 5 // 4, "most of hers are long"
    assert world.told(world.send(a("long"), BOB)) == -1


def test_only_work_that_got_done_tells() -> None:
    world = Told(config())
    world.ran(a("train"), H, code=1)
    cancelled = world.send(a("train"))
    world.runs(cancelled)
    world.wait(5 * H)
    world.do(c.CancelJob(cancelled))
    world.ends(cancelled)
    assert world.told(world.send(a("train"))) == -1
    assert not world.state.image().runs


def test_a_limit_is_not_predicted() -> None:
    world = Told(config())
    world.ran(a("train"), H)
    assert world.told(world.send(a("train").within(run_ms=9 * H))) == -1


@pytest.mark.parametrize(
    "without", [config(QueueOrder.STRICT), config(margin=0)], ids=["unused", "off"]
)
def test_where_nothing_goes_by_it_nothing_is_predicted(without: Config) -> None:
    world = Told(without)
    world.ran(a("train"), H)
    job = world.send(a("train"))
    assert world.told(job) == -1
    world.do(c.ApplyConfig(config()))
    assert world.told(job) == 2 * H, "runs were remembered meanwhile"
    world.do(c.ApplyConfig(config(margin=3000)))
    assert world.told(job) == 3 * H
    world.do(c.ApplyConfig(without))
    assert world.told(job) == -1


def test_a_job_that_waits_and_runs_is_told_anew_when_its_like_end() -> None:
    world = Told(config())
    first, running = world.send(a("train", 4)), world.send(a("train", 4))
    waiting = world.send(a("train", 8))
    world.runs(first)
    world.runs(running)
    world.wait(H)
    world.ends(first)
    assert world.told(running) == world.told(waiting) == 2 * H
    ends = world.state.cluster.ends
    assert ends is not None
    assert ends.next_guess() == world.now + H
    world.restart()
    assert world.told(running) == world.told(waiting) == 2 * H


def test_only_so_many_kinds_are_remembered() -> None:
    world = Told(config())
    state = world.state
    job = state.jobs[world.ran(a("train"), H)]
    for number in range(MOST_KINDS):
        other = msgspec.structs.replace(
            job, spec=msgspec.structs.replace(job.spec, name=f"n{number}")
        )
        state.foretelling.history.learn(other)
    assert len(state.foretelling.history.all()) == MOST_KINDS
    assert not state.foretelling.history.of("alice", "train")


def test_a_snapshot_from_before_runs_were_kept_is_told_by_its_jobs() -> None:
    world = Told(config())
    world.ran(a("train"), H)
    image = msgspec.structs.replace(world.state.image(), runs=[])
    state = State.from_image(image, POLICIES)
    assert state.foretelling.history.of("alice", "train") == [H]


# ── what it is good for ─────────────────────────────────────────────────────────────────


def test_a_job_that_is_predicted_to_end_in_time_passes_a_blocked_job() -> None:
    world = Told(config())
    world.ran(a("short"), M)
    world.ran(a("long"), 5 * H)
    running = world.send(a("long", 4))
    world.runs(running)
    world.wait(M)
    blocked = world.send(a("long", 8))
    long, short = world.send(a("long", 2)), world.send(a("short", 2))
    assert world.is_(blocked) is S.QUEUED
    assert world.is_(long) is S.QUEUED, "it is predicted to end a minute after the other"
    assert world.is_(short) is S.STARTING


def test_a_job_that_outlives_its_prediction_is_expected_later_and_others_may_pass() -> None:
    world = Told(config())
    for _ in range(4):
        world.ran(a("train"), H)
    running = world.send(a("train", 4))
    world.runs(running)
    world.send(a("train", 8))
    long = world.send(a("other", 4).within(run_ms=H + 20 * M))
    assert world.is_(long) is S.QUEUED, "in an hour and a quarter it would be in the way"
    due = world.engine.next_due(world.now)
    assert due is not None
    assert due - world.now == H * 5 // 4
    world.wait(due - world.now)
    world.cycle()
    assert world.is_(long) is S.QUEUED, "the prediction was doubled: there is as much to go"
    world.wait(H * 5 // 4)
    world.cycle()
    assert world.is_(long) is S.STARTING, "now twice as much"


def test_what_was_lost_is_to_be_done_again() -> None:
    world = Told(config())
    for _ in range(4):
        world.ran(a("train"), H)
    job = world.send(a("train").retry(3))
    world.runs(job)
    world.wait(40 * M)
    world.ends(job, 1)
    world.wait(H)
    world.cycle()
    assert world.job(job).lost_ms == 40 * M
    assert world.told(job) == H * 5 // 4
    assert world.state.cluster.gangs[job].standing.left_of(world.told(job)) == H * 5 // 4


def test_reservations_go_by_it() -> None:
    world = Told(config(QueueOrder.STRICT, nodes=1))
    for _ in range(4):
        world.ran(a("short"), M)
    now = world.now
    world.do(c.ReserveNodes("w", WallTime(now + H), WallTime(now + 2 * H), (NodeId(0),)))
    assert world.is_(world.send(a("short"))) is S.STARTING
    assert world.is_(world.send(a("never seen"), BOB)) is S.QUEUED


def test_run_times_are_told_anew_only_if_they_may_be_others() -> None:
    told = Foretelling(remembers=True)
    assert not told.configure(1250, (), needed=False)
    assert told.configure(1250, (), needed=True)
    assert not told.configure(1250, (), needed=True)
    assert told.configure(1500, (), needed=True)
    assert told.configure(1500, (), needed=False)
    assert not told.configure(1250, (), needed=False)


@pytest.mark.parametrize(
    ("name", "told", "ran", "news"),
    [
        ("train", 1000, 750, False),
        ("train", 1000, 749, True),
        ("train", 1000, 1250, False),
        ("train", 1000, 1251, True),
        ("", 1000, 500, False),
        ("", 1000, 499, True),
        ("", 1000, 2000, False),
        ("", 1000, 2001, True),
    ],
)
def test_what_is_told_stays_while_runs_are_like_it(
    name: str, told: int, ran: int, news: bool
) -> None:
    runs = Runs("alice", name, [ran] * ENOUGH, told)
    assert runs.add(ran) is news
    assert runs.told_ms == (ran if news else told)


def test_of_few_runs_the_longest_is_told() -> None:
    runs = Runs("alice", "train")
    for ran, told in ((100, 100), (90, 100), (300, 300)):
        runs.add(ran)
        assert runs.told_ms == told
    assert runs.few


def test_it_is_said_from_how_many_runs_a_time_is_predicted() -> None:
    world = Told(config())
    world.ran(a("train"), M)
    words = world.state.foretelling.words(world.job(world.send(a("train"))))
    assert "predicted from the last run of alice's train" in words
    world.ran(a("train"), M)
    words = world.state.foretelling.words(world.job(world.send(a("train"))))
    assert "from the last 2 runs of alice's train" in words
