"""What jobs waited for, worked out by hand. Milliseconds, 6 devices."""

from msgspec.structs import asdict, replace

from allotment.metrics.fold import Folds
from allotment.metrics.jobs import JobOutcome, Jobs, row_of
from allotment.metrics.summary import WaitParts
from allotment.metrics.usage import Usage
from allotment.metrics.waits import WaitCauses
from allotment.model import events as e
from allotment.model.amounts import amounts
from allotment.model.ids import JobId
from allotment.model.quantity import Instant, Resources
from allotment.model.spec import ArraySlice, Dependency
from allotment.model.tenancy import Queue, QueueOrder
from tests.support.builders import a_config, a_tenant
from tests.unit.metrics.history import History, a_spec

CONFIG = a_config(
    a_tenant("strict"),
    a_tenant("skips", order=QueueOrder.SKIP),
    a_tenant("bound", 2, borrow=False),
    devices=6,
)


def begun() -> History:
    return History().configure(CONFIG)


def waits(history: History, tenant: str) -> dict[str, float]:
    """Return a tenant's waits in ms, those that are not 0."""
    usage = Usage()
    jobs = Jobs(usage)
    causes = WaitCauses(usage, jobs)
    history.into(usage, jobs, causes)
    parts = causes.by_tenant().get(tenant, WaitParts())
    return {name.removesuffix("_s"): round(s * 1000) for name, s in asdict(parts).items() if s}


def test_too_few_free_devices_is_capacity() -> None:
    log = begun().submit(1, 4, "skips").start(1).at(2).submit(2, 3, "skips").at(10).succeed(1)
    assert waits(log.start(2).at(11).succeed(2), "skips") == {"capacity": 8}


def test_enough_devices_but_no_place_is_fragmentation_where_others_may_pass() -> None:
    log = begun().submit(1, 3, "skips").start(1).submit(2, 3, "skips").at(7).start(2)
    assert waits(log.at(9).succeed(2), "skips") == {"fragmentation_or_locality": 7}


def test_one_device_tasks_fit_anywhere_so_others_went_before() -> None:
    log = begun().submit(1, tenant="skips", tasks=3).at(7).start(1).at(9).succeed(1)
    assert waits(log, "skips") == {"order": 7}


def test_behind_the_first_of_a_strict_queue_is_order() -> None:
    log = begun().submit(1, 4, "strict").submit(2, 2, "strict").at(5).start(1).at(8).start(2)
    assert waits(log.at(9).succeed(1).succeed(2), "strict") == {
        "fragmentation_or_locality": 5 + 3,
        "order": 5,
    }


def test_first_is_who_has_the_highest_priority_then_who_came_first() -> None:
    log = begun().submit(1, 2, "strict").at(3).submit(2, 2, "strict", priority=500)
    log.at(7).start(1).at(20).start(2).at(30).succeed(1)
    assert waits(log, "strict") == {"fragmentation_or_locality": 3, "order": 4}


def test_a_lower_priority_gives_up_the_first_place() -> None:
    log = begun().submit(1, 2, "strict", priority=500).submit(2, 2, "strict", priority=200)
    log.at(4).rewrite(1, a_spec(2, "strict")).at(10).start(2).start(1)
    assert waits(log.at(11).succeed(1), "strict") == {
        "fragmentation_or_locality": 4,
        "order": 6,
    }


def test_a_priority_given_up_in_line_counts_no_more() -> None:
    log = begun().submit(1, 2, "strict", priority=500).submit(2, 2, "strict", priority=300)
    log.submit(3, 2, "strict", priority=200).rewrite(2, a_spec(2, "strict")).start(1)
    log.at(5).start(3).at(6).succeed(3)
    assert waits(log, "strict") == {"fragmentation_or_locality": 5}


def test_those_in_line_before_the_first_that_needs_a_certain_place_are_before_it() -> None:
    log = begun().submit(1, tenant="strict", tasks=2).submit(2, tenant="strict", tasks=2)
    log.at(1).submit(3, 2, "strict").at(5).start(1).at(6).cancel(2).at(8).start(3)
    assert waits(log.at(9).succeed(3), "strict") == {
        "fragmentation_or_locality": 2,
        "order": 5,
    }


def test_a_tenant_without_a_right_to_more_waits_for_quota() -> None:
    """Its right is used up until 10, and until 15 the devices are: they are different times."""
    log = begun().submit(1, 2, "bound").start(1).submit(2, 5, "skips").submit(3, 2, "bound")
    log.at(4).start(2).at(10).succeed(1).at(15).succeed(2).at(16).start(3).at(20).succeed(3)
    assert waits(log, "bound") == {
        "quota": 10,
        "capacity": 5,
        "fragmentation_or_locality": 1,
    }


def test_a_job_that_may_not_be_preempted_may_not_borrow() -> None:
    log = begun().submit(1, 1, "skips", preemptible=False).at(5).start(1).at(6).succeed(1)
    assert waits(log, "skips") == {"quota": 5}


def test_held_jobs_wait_for_their_owner() -> None:
    log = begun().submit(1, 6, "skips", held=True).at(5).release(1).at(6).hold(1)
    log.at(9).release(1).at(11).start(1).at(12).succeed(1)
    assert waits(log, "skips") == {"own": 5 + 3, "fragmentation_or_locality": 1 + 2}


def test_dependencies_are_waits_of_ones_own() -> None:
    log = begun().submit(1, 1, "skips").start(1)
    log.submit(2, 1, "skips", depends_on=(Dependency(JobId(1)),), tasks=2)
    log.at(9).succeed(1).at(10).start(2).at(11).succeed(2)
    assert waits(log, "skips") == {"own": 9, "order": 1}


def test_a_back_off_ends_by_the_clock() -> None:
    log = begun().submit(1, 6, "skips").start(1).end(1, e.Outcome.FAILED)
    log.requeue(1, not_before=4).submit(2, 6, "skips").start(2)
    log.at(10).succeed(2).at(11).start(1).at(12).succeed(1)
    assert waits(log, "skips") == {
        "own": 4,
        "capacity": 6,
        "fragmentation_or_locality": 1,
    }


def test_waits_after_preemption_count_too() -> None:
    log = begun().submit(1, 6, "skips").start(1).at(5).evict(1).submit(2, 1, "bound").start(2)
    log.at(9).succeed(2).start(1).at(10).succeed(1)
    assert waits(log, "skips") == {"capacity": 4}


def test_jobs_without_devices_wait_for_capacity_of_another_kind() -> None:
    log = begun().submit(1, 0, "skips").at(5).start(1).at(6).succeed(1)
    assert waits(log, "skips") == {"capacity": 5}


def test_only_jobs_that_completed_are_counted() -> None:
    log = begun().submit(1, 7, "skips").submit(2, 6, "skips").at(5).start(2).at(9).cancel(1)
    log.fail(2).submit(3, 6, "skips").at(12).start(3).at(13).time_out(3)
    assert waits(log, "skips") == {}


def test_a_lost_node_takes_its_devices_away() -> None:
    log = begun().lose(0).submit(1, 1, "skips").at(5).recover(0).start(1).at(6).succeed(1)
    assert waits(log, "skips") == {"capacity": 5}


def test_tenants_are_those_of_the_rows() -> None:
    """A simulation runs all jobs under one tenant; its rows know whose they are."""

    def begin(at: Instant, event: e.JobSubmitted) -> JobOutcome:
        row = row_of(at, event)
        row.tenant = "vc-7"
        return row

    usage = Usage(1000)
    jobs = Jobs(usage, begin)
    causes = WaitCauses(usage, jobs)
    log = History().submit(1).at(5).start(1).at(6).succeed(1)
    Folds(causes, usage, jobs).feed(log.records)
    assert list(causes.by_tenant()) == ["vc-7"]


def test_a_log_may_begin_in_the_middle() -> None:
    log = begun().submit(1, 3, "skips").start(1).submit(2, 6, "skips").submit(3, 6, "bound")
    del log.records[1:]
    log.at(5).hold(2).release(2).suspend(1).resume(1).promote(1).evict(1).cancel(3)
    log.rewrite(2, a_spec(1)).submit(4, 6, "skips").at(6).start(4).start(2).at(7).succeed(4)
    assert waits(log, "skips") == {"fragmentation_or_locality": 1}


# ── limits of queues ────────────────────────────────────────────────────────────────────


def in_queues(*queues: Queue) -> History:
    """Begin with a tenant `lab` of these queues, and six devices."""
    return History().configure(a_config(replace(a_tenant("lab", 6), queues=queues), devices=6))


def test_what_the_limit_of_its_queue_keeps_out_is_quota() -> None:
    log = in_queues(Queue("train", limit=amounts({"gpu": 2000})))
    log.submit(1, 2, "lab", queue="train").start(1)
    log.submit(2, 1, "lab", queue="train", tasks=2).at(7).succeed(1).at(9).start(2)
    assert waits(log.at(10).succeed(2), "lab") == {"quota": 7, "order": 2}


def test_a_limit_counts_what_the_queues_inside_hold() -> None:
    around = Queue("lab", limit=amounts({"gpu": 3000}))
    log = in_queues(around, Queue("lab.a", parent="lab"), Queue("lab.b", parent="lab"))
    log.submit(1, 2, "lab", queue="lab.a").start(1)
    log.submit(2, 2, "lab", queue="lab.b").submit(3, 1, "lab", queue="lab.b", tasks=1)
    log.at(4).start(3).at(7).succeed(1).start(2)
    assert waits(log.at(10).succeed(2).succeed(3), "lab") == {"quota": 7, "order": 4}


def test_what_a_most_of_jobs_keeps_out_is_quota_also_of_jobs_without_devices() -> None:
    log = in_queues(Queue("train", max_jobs=1)).submit(1, 0, "lab", queue="train").start(1)
    log.submit(2, 0, "lab", queue="train").submit(3, 1, "lab", queue="train")
    log.at(4).suspend(1).at(5).succeed(1).start(2).at(8).succeed(2).start(3)
    assert waits(log.at(9).succeed(3), "lab") == {"quota": 5 + 8}


def test_the_cap_of_one_user_in_a_queue_is_quota() -> None:
    log = in_queues(Queue("train", per_user=amounts({"gpu": 1000})))
    log.submit(1, 1, "lab", queue="train", user="ann").start(1)
    log.submit(2, 1, "lab", queue="train", user="ann")
    log.submit(3, 1, "lab", queue="train", user="ben")
    log.at(4).start(3).at(7).succeed(1).start(2)
    assert waits(log.at(8).succeed(2).succeed(3), "lab") == {"quota": 7, "order": 4}


def test_a_limit_that_comes_later_counts_from_then_on_and_for_what_runs() -> None:
    plain = Queue("train")
    log = in_queues(plain).submit(1, 2, "lab", queue="train").start(1)
    log.submit(2, 1, "lab", queue="train", tasks=2).at(3)
    tenant = replace(a_tenant("lab", 6), queues=(replace(plain, limit=amounts({"gpu": 3000})),))
    log.configure(a_config(tenant, devices=6)).at(8)
    log.configure(a_config(replace(tenant, queues=(plain,)), devices=6)).at(9).start(2)
    assert waits(log.at(10).succeed(2), "lab") == {"order": 3 + 1, "quota": 5}


# ── arrays with a cap ───────────────────────────────────────────────────────────────────


def test_what_the_cap_of_its_user_keeps_out_is_quota() -> None:
    capped = replace(a_tenant("capped", 4), per_user=Resources(gpu_milli=3000))
    log = History().configure(a_config(capped, devices=6))
    log.submit(1, 2, "capped", user="ann").start(1).submit(2, 2, "capped", user="ann")
    log.submit(3, 3, "capped", user="ben").at(2).start(3).at(7).succeed(1).at(8).start(2)
    assert waits(log.at(9).succeed(2).succeed(3), "capped") == {
        "quota": 7,
        "order": 2,
        "fragmentation_or_locality": 1,
    }


def an_array(*jobs: int, cap: int = 1, held: int = 0) -> History:
    """Submit members that all fit at once; one of them may be held."""
    log = begun()
    for place, job in enumerate(jobs):
        array = ArraySlice(place, len(jobs), JobId(jobs[0]), cap)
        log.submit(job, 1, "skips", tasks=2, array=array, held=job == held)
    return log


def test_what_the_cap_of_its_array_keeps_out_is_its_own_wait() -> None:
    log = an_array(1, 2).at(2).start(1).at(9).succeed(1).at(12).start(2).at(20).succeed(2)
    assert waits(log, "skips") == {"order": 2 + 3, "own": 9}


def test_as_many_of_an_array_as_may_run_stand_in_line() -> None:
    log = an_array(1, 2, 3, cap=2).at(5).start(1).start(2).at(9).succeed(2).start(3)
    assert waits(log.at(10).succeed(1).succeed(3), "skips") == {"order": 5 + 5, "own": 9}


def test_a_member_that_is_held_lets_the_next_of_its_array_in() -> None:
    log = an_array(1, 2).at(3).hold(1).at(5).start(2).at(7).release(1).at(10).succeed(2)
    assert waits(log.at(11).start(1).succeed(1), "skips") == {
        "order": 3 + 2 + 1,
        "own": 3 + 7,
    }


def test_a_member_that_is_sent_back_stands_behind_the_next_of_its_array() -> None:
    log = an_array(1, 2).start(1).at(4).evict(1).at(6).start(2).at(8).succeed(2)
    assert waits(log.at(9).start(1).succeed(1), "skips") == {
        "order": 2 + 1,
        "own": 4 + 4,
    }


def test_a_held_member_takes_no_place_of_its_array() -> None:
    log = an_array(1, 2, held=1).at(4).start(2).at(6).succeed(2).at(7).release(1)
    assert waits(log.at(9).start(1).succeed(1), "skips") == {"order": 4 + 2, "own": 7}


def test_of_a_choice_one_success_is_enough() -> None:
    log = begun().submit(1, 1, "skips").start(1).submit(2, 1, "skips").start(2)
    choice = tuple(Dependency(JobId(job), any_of=1) for job in (1, 2))
    log.submit(3, 1, "skips", depends_on=choice, tasks=2)
    log.at(4).succeed(2).at(6).start(3).at(7).succeed(1).succeed(3)
    assert waits(log, "skips") == {"own": 4, "order": 2}
