"""The event log as a trace, on histories small enough to work out by hand."""

from msgspec.structs import replace

from allotment.model import events as e
from allotment.model.ids import AttemptNo, JobId
from allotment.model.quantity import GIB, Millis, Resources
from allotment.model.reasons import StopCause
from allotment.model.spec import ArraySlice, Dependency, EndKind, TaskRole
from allotment.sim.history import history_of
from allotment.sim.history_shape import shape_of
from allotment.sim.trace import Ending, TraceJob
from tests.support.builders import a_config, a_tenant
from tests.unit.metrics.history import History, a_spec

FOREVER = 1 << 40


def jobs(log: History, since: int = 0, until: int = FOREVER) -> list[TraceJob]:
    return list(history_of(log.records, since, until).trace.jobs)


def lost(log: History, job: int, outcome: e.Outcome, ms: int) -> History:
    """End an attempt that loses work."""
    return log.add(
        e.AttemptEnded(JobId(job), AttemptNo(log.attempts[job]), outcome, None, Millis(ms))
    )


def test_a_job_as_it_was_asked_for() -> None:
    log = (
        History()
        .at(10)
        .submit(7, 2, "nlp", priority=200, preemptible=False, max_run_ms=Millis(90), tasks=3)
    )
    (job,) = jobs(log.at(15).start(7).at(45).succeed(7))
    assert job == TraceJob(
        id="7", submit_ms=10, run_ms=30, tasks=3, need=Resources(gpu_milli=2000),
        tenant="nlp", user="allot", name="job", priority=200, preemptible=False,
        limit_ms=Millis(90),
    )  # fmt: skip


def test_start_up_and_suspension_are_no_run_time() -> None:
    log = History().submit(1).place(1).at(5).begin(1).at(9).suspend(1).at(100).resume(1)
    history = history_of(log.at(103).succeed(1).records, 0, FOREVER)
    assert history.trace.jobs[0].run_ms == 4 + 3
    assert history.start_ms == 5
    (row,) = history.happened
    assert (row.submit_ms, row.start_ms, row.end_ms, row.ran_ms) == (0, 5, 103, 7)


def test_what_was_lost_and_done_again_is_counted_once() -> None:
    log = History().submit(1).start(1).at(10)
    lost(log, 1, e.Outcome.EVICTED, 4).requeue(1)
    (job,) = jobs(log.at(50).start(1).at(60).succeed(1))
    assert job.run_ms == 6 + 10
    (row,) = history_of(log.records, 0, FOREVER).happened
    assert (row.ran_ms, row.preemptions, row.end_ms) == (20, 1, 60)


def test_what_the_last_attempt_lost_was_not_done_again() -> None:
    log = History().submit(1).start(1).at(10)
    lost(log, 1, e.Outcome.FAILED, 10).add(e.JobFailed(JobId(1), None))  # type: ignore[arg-type]
    (job,) = jobs(log)
    assert (job.run_ms, job.ending) == (10, Ending.FAILED)


def test_what_a_replay_does_not_play_is_told_with_how_much_it_was() -> None:
    log = History().submit(1).start(1).at(60_000)
    lost(log, 1, e.Outcome.FAILED, 45_000).requeue(1, cause="unknown", not_before=62_000)
    log.at(62_000).start(1).at(70_000).suspend(1).at(90_000).resume(1).at(95_000).succeed(1)
    history = history_of(log.records, 0, FOREVER)
    assert history.trace.jobs[0].run_ms == 15_000 + 8_000 + 5_000
    assert history.trace.warnings == (
        "Attempts that failed and were tried again: 1, of 1 jobs. The replay plays each such "
        "job as one run, without 45.0 s of work done again and 2.0 s of back-off.",
        "Suspensions: 1. The replay has none: jobs run on, 20.0 s earlier in sum.",
    )
    assert history_of(log.records, 93_000, FOREVER).trace.warnings == ()


def test_evictions_are_a_policys_matter_and_nothing_to_warn_of() -> None:
    log = History().submit(1).start(1).at(10)
    lost(log, 1, e.Outcome.EVICTED, 4).requeue(1, cause="evicted")
    assert (
        history_of(log.at(50).start(1).at(60).succeed(1).records, 0, FOREVER).trace.warnings
        == ()
    )


def test_a_job_that_waits_to_do_it_again_when_the_history_ends() -> None:
    log = History().submit(1).start(1).at(10)
    lost(log, 1, e.Outcome.EVICTED, 4).requeue(1)
    (job,) = jobs(log)
    assert (job.run_ms, job.ending) == (6, Ending.CENSORED)


def test_a_job_that_still_runs_is_censored() -> None:
    log = History().submit(1).at(5).start(1).at(60).submit(2)
    trace = history_of(log.records, 0, 50).trace
    assert [(job.run_ms, job.ending) for job in trace.jobs] == [(45, Ending.CENSORED)]
    assert trace.warnings == ("Not ended yet: 1 of 1 jobs. Their run times are lower bounds.",)


def test_endings() -> None:
    log = History().submit(1).submit(2).start(1).start(2).at(5).fail(1)
    log.end(2, e.Outcome.CANCELLED).cancel(2)
    assert [job.ending for job in jobs(log)] == [Ending.FAILED, Ending.CANCELLED]


def test_jobs_that_never_ran_are_left_out_and_counted() -> None:
    log = History().submit(1).submit(2).submit(3, held=True).at(5).cancel(1)
    log.place(2).at(8).fail(2)
    trace = history_of(log.records, 0, FOREVER).trace
    assert trace.jobs == ()
    assert trace.dropped == (("never ran, so its run time is not known", 3),)


def test_a_job_too_quick_to_be_seen_running() -> None:
    log = History().submit(1).at(5).place(1).at(9).succeed(1).submit(2).start(2).succeed(2)
    assert [job.run_ms for job in jobs(log)] == [4, 1]


def test_a_held_job_comes_when_it_is_released() -> None:
    log = History().submit(1, held=True).at(10).release(1).at(20).hold(1).at(25).release(1)
    (job,) = jobs(log.at(30).start(1).at(31).hold(1).at(40).succeed(1))
    assert (job.submit_ms, job.run_ms) == (25, 10)


def test_a_job_depends_on_those_that_ran_and_comes_when_the_others_have_ended() -> None:
    after = (Dependency(JobId(1)), Dependency(JobId(2), EndKind.ANY), Dependency(JobId(99)))
    log = History().submit(1).submit(2).submit(3, depends_on=after).start(1)
    log.at(10).succeed(1).at(20).cancel(2).at(24).start(3).at(30).succeed(3)
    history = history_of(log.records, 0, FOREVER)
    assert [(job.id, job.submit_ms) for job in history.trace.jobs] == [("1", 0), ("3", 20)]
    assert history.wishes.specs[1].depends_on == after
    assert [row.submit_ms for row in history.happened] == [0, 20]
    late = history_of(log.records, 15, FOREVER)
    assert [(job.id, job.submit_ms) for job in late.trace.jobs] == [("3", 20)]


def test_a_job_comes_no_earlier_than_what_it_depends_on() -> None:
    after = (Dependency(JobId(1)),)
    log = History().submit(1, held=True).submit(2, depends_on=after).at(5).submit(3).start(3)
    log.at(9).release(1).start(1).at(12).succeed(1).start(2).at(15).succeed(2).succeed(3)
    assert [(job.id, job.submit_ms) for job in jobs(log)] == [("3", 5), ("1", 9), ("2", 9)]


def test_how_long_borrowers_take_to_leave() -> None:
    log = History().submit(1).start(1)
    log.add(e.StopRequested(JobId(1), AttemptNo(1), StopCause.EVICTED)).at(30)
    log.end(1, e.Outcome.EVICTED).requeue(1).at(40).start(1).at(50).succeed(1)
    assert history_of(log.records, 0, FOREVER).stop_ms == 30
    assert history_of(log.records, 10, FOREVER).stop_ms == 0


def test_an_edited_job_is_as_it_was_last() -> None:
    log = History().submit(1, gpus=1)
    log.at(3).rewrite(1, a_spec(4, priority=7)).at(5).start(1).at(9).succeed(1)
    (job,) = jobs(log)
    assert (job.gpu_milli, job.priority) == (4000, 7)


def test_a_job_that_was_there_before_comes_at_the_beginning() -> None:
    log = History().submit(1).submit(2).submit(3).start(1).start(3).at(50).succeed(3)
    log.at(110).succeed(1).start(2).at(150).succeed(2)
    history = history_of(log.records, 100, FOREVER)
    assert [(job.id, job.submit_ms, job.run_ms) for job in history.trace.jobs] == [
        ("1", 100, 10),
        ("2", 100, 40),
    ]
    assert [row.start_ms for row in history.happened] == [100, 110]


def test_jobs_are_sorted_by_when_they_came_in_line() -> None:
    log = History().submit(1, held=True).at(5).submit(2).start(2).at(9).release(1).start(1)
    assert [job.id for job in jobs(log.at(20).succeed(1).succeed(2))] == ["2", "1"]


def test_the_cluster_is_the_last_one() -> None:
    log = History().configure(a_config(a_tenant("t"), nodes=2))
    log.at(50).configure(a_config(a_tenant("t"), nodes=3)).at(60)
    log.configure(a_config(a_tenant("t"), nodes=3)).drain(1)
    log.at(90).configure(a_config(a_tenant("t"), nodes=9))
    history = history_of(log.records, 10, 80)
    assert len(history.nodes) == 3
    assert history.trace.warnings == (
        "Changes of nodes meanwhile: 1. The last ones are replayed.",
        "Nodes drained or lost for a while: 1. So they are in the replay, unless it has other "
        "machines.",
    )
    assert history_of(log.records, 70, 80).trace.warnings == (
        "Nodes drained or lost for a while: 1. So they are in the replay, unless it has other "
        "machines.",
    )


def test_wishes_are_what_decides_and_nothing_private() -> None:
    slice_ = ArraySlice(0, 4, JobId(1), max_running=2)
    others = {"within": "rack", "queue": "night", "array": slice_}
    role = TaskRole("main", 4, "x", Resources(gpu_milli=1000), group=2, group_within="node")
    others["roles"] = (role,)
    log = History().submit(1, 2, env=(("A", "b"),), secrets=(("C", "d"),), **others)
    history = history_of(log.start(1).at(5).succeed(1).records, 0, FOREVER)
    (spec,) = history.wishes.specs
    assert (spec.within, spec.queue, spec.array) == ("rack", "night", slice_)
    assert (spec.env, spec.secrets, spec.roles[0].command) == ((), (), "")
    assert (spec.roles[0].group, spec.roles[0].group_within) == (2, "node")
    assert history.trace.warnings == ()


def test_the_shares_are_those_of_the_stretch_as_they_changed() -> None:
    log = History().configure(a_config(a_tenant("t", 1))).at(10)
    log.configure(a_config(a_tenant("t", 2))).at(30).submit(1).start(1)
    log.at(40).configure(a_config(a_tenant("t", 3))).at(50).succeed(1)
    log.at(60).configure(a_config(a_tenant("t", 4)))
    shares = history_of(log.records, 20, 55).wishes.shares
    assert [(s.after_ms, s.config.tenants[0].guaranteed.gpu_milli) for s in shares] == [
        (-20, 2000),
        (10, 3000),
    ]


def test_the_same_log_gives_the_same_digest() -> None:
    log = History().submit(1).start(1).at(5).succeed(1)
    one, two = (history_of(log.records, 0, until).trace for until in (10, 20))
    assert one.digest == two.digest != history_of(log.records, 2, 10).trace.digest


def test_alike_roles_are_one_kind_of_task() -> None:
    spec = a_spec(2, tasks=3)
    spec = replace(spec, roles=(*spec.roles, replace(spec.roles[0], name="more", count=1)))
    assert shape_of(spec) == (4, Resources(gpu_milli=2000), ())


def test_unlike_roles_are_added_up() -> None:
    lead = TaskRole("lead", 1, "", Resources(0, 2000, GIB), ())
    work = TaskRole("work", 2, "", Resources(2000, 4000, 3 * GIB, 0, GIB), ("A100", "H100"))
    other = replace(work, name="other", gpu_types=("V100", "H100"))
    spec = replace(a_spec(), roles=(lead, work, other))
    tasks, need, types = shape_of(spec)
    assert (tasks, types) == (8, ("H100",))
    assert need == Resources(1000, 18_000 // 8, 13 * GIB // 8, 0, GIB)


def test_unlike_roles_without_devices_stay_as_many_tasks() -> None:
    one = TaskRole("one", 1, "", Resources(cpu_milli=1000))
    two = TaskRole("two", 2, "", Resources(cpu_milli=4000))
    spec = replace(a_spec(), roles=(one, two))
    assert shape_of(spec) == (3, Resources(cpu_milli=3000), ())
