"""The cluster over time, worked out by hand; and the curve's thinning, by chance."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from allotment.metrics.accounts import Accounts
from allotment.metrics.curve import Curve, Point, Sample
from allotment.metrics.jobs import Jobs
from allotment.metrics.usage import Usage
from allotment.metrics.waits import WaitCauses
from allotment.model import events as e
from allotment.model.ids import AttemptNo, JobId, NodeId
from allotment.model.ledger import Slot
from allotment.model.quantity import Instant
from tests.support.builders import a_config
from tests.unit.metrics.history import History, a_spec


def fed(history: History, capacity: int = 4000) -> Usage:
    usage = Usage(capacity)
    history.into(usage)
    return usage


def two_jobs() -> History:
    """4 devices: 3 in use for 10 ms, then 2 for 20; a job waits from 5 to 10."""
    log = History().at(100).submit(1, gpus=3).start(1).at(105).submit(2, gpus=2)
    return log.at(110).succeed(1).start(2).at(130).succeed(2)


def test_sums_over_time() -> None:
    totals = fed(two_jobs()).totals()
    assert (totals.from_ms, totals.to_ms) == (100, 130)
    assert totals.busy == totals.busy_until_last_end == 3000 * 10 + 2000 * 20
    assert totals.idle == 1000 * 10 + 2000 * 20
    assert totals.stranded == 1000 * 5
    assert totals.waiting == 5
    assert (totals.peak_waiting, totals.peak_waiting_milli) == (1, 2000)


def test_what_waits_for_no_time_is_no_backlog() -> None:
    log = History().submit(1).submit(2).start(1).start(2).at(5).succeed(1).succeed(2)
    assert fed(log).totals().peak_waiting == 0


def test_the_curve_has_a_sample_for_every_change() -> None:
    assert fed(two_jobs()).samples() == (
        Sample(100, 3000, 0),
        Sample(105, 3000, 1),
        Sample(110, 2000, 0),
        Sample(130, 0, 0),
    )


def test_no_job_no_curve() -> None:
    usage = fed(History().at(5).lose(1).at(9).lose(2))
    assert usage.samples() == ()
    assert usage.totals().to_ms == 9


def test_suspended_gangs_hold_nothing() -> None:
    log = History().submit(1, gpus=4).start(1).at(10).suspend(1).at(30).resume(1)
    usage = fed(log.at(35).succeed(1))
    assert usage.totals().busy == 4000 * 15
    assert (usage.busy_milli, usage.held_milli) == (0, 0)


def test_a_gang_that_ends_suspended_gives_nothing_back_twice() -> None:
    log = History().submit(1, gpus=4).start(1).at(10).suspend(1).at(30).evict(1)
    usage = fed(log)
    assert (usage.busy_milli, usage.held_milli, usage.waiting) == (0, 0, 1)


def on(*devices: int, node: int = 0, gpu_milli: int = 500) -> tuple[Slot, ...]:
    """Return a slot on each of some devices of a node."""
    return tuple(Slot(NodeId(node), (index,), gpu_milli) for index in devices)


def test_a_device_that_two_jobs_share_is_in_use_once() -> None:
    """Half of one device for 10 ms, both halves for 10, the other half for 10."""
    log = History().submit(1, gpus=0.5).submit(2, gpus=0.5).place(1, slots=on(0)).at(10)
    log.place(2, slots=on(0)).at(20).succeed(1).at(30).succeed(2)
    totals = fed(log, 2000).totals()
    assert totals.busy == totals.busy_until_last_end == 1000 * 30
    assert totals.idle == 1500 * 10 + 1000 * 10 + 1500 * 10


def test_halves_of_different_devices_are_two_devices_in_use() -> None:
    log = History().submit(1, gpus=0.5).submit(2, gpus=0.5)
    log.place(1, slots=on(0)).place(2, slots=on(1)).at(10).succeed(1).at(20).succeed(2)
    usage = fed(log, 2000)
    assert usage.totals().busy == 2000 * 10 + 1000 * 10
    assert [sample.busy_milli for sample in usage.samples()] == [2000, 1000, 0]


def test_a_suspended_job_leaves_a_shared_device_to_the_other() -> None:
    log = History().submit(1, gpus=0.5).submit(2, gpus=0.5)
    log.place(1, slots=on(0)).place(2, slots=on(0)).at(5).suspend(1).at(9).suspend(2)
    usage = fed(log.at(11).resume(1).at(20).evict(1).evict(2), 2000)
    assert usage.totals().busy == 1000 * (9 + 9)
    assert (usage.busy_milli, usage.held_milli) == (0, 0)


moves = st.lists(
    st.tuples(st.integers(1, 6), st.sets(st.integers(0, 3), min_size=1), st.integers(0, 9)),
    max_size=40,
)


@given(moves)
def test_devices_in_use_are_those_that_anybody_is_on(
    moves: list[tuple[int, set[int], int]],
) -> None:
    """Against a set of (job, device); a job that is named again gives its devices up."""
    log, where, truth = History(), dict[int, set[int]](), 0
    for job in range(1, 7):
        log.submit(job, gpus=0.5)
    for job, devices, wait in moves:
        if job in where:
            del where[job]
            log.evict(job)
        else:
            where[job] = devices
            log.place(job, slots=on(*devices))
        truth += 1000 * wait * len(set[int]().union(*where.values()))
        log.at(log.now + wait)
    usage = Usage(4000)
    log.into(usage).pass_to(Instant(log.now))
    assert usage.totals().busy == truth


def test_held_jobs_are_not_in_line() -> None:
    log = History().submit(1, held=True).at(10).release(1).at(12).hold(1).at(20).release(1)
    usage = fed(log.at(21).cancel(1))
    assert (usage.totals().waiting, usage.waiting, usage.waiting_milli) == (3, 0, 0)


def test_an_edited_job_asks_for_something_else() -> None:
    log = History().submit(1, gpus=1).at(10).edit(1, a_spec(gpus=1), count=3).at(20).start(1)
    totals = fed(log.at(25).succeed(1)).totals()
    assert (totals.stranded, totals.busy) == (1000 * 10 + 3000 * 10, 3000 * 5)


def test_crowding_is_what_is_asked_for_beyond_the_cluster() -> None:
    log = History().submit(1, gpus=4).start(1).at(10).submit(2, gpus=6).at(20).cancel(2)
    assert fed(log.at(30).succeed(1)).crowd == 10 * 1_500_000


def test_the_configuration_and_the_health_of_nodes_give_the_capacity() -> None:
    usage = Usage()
    log = History().configure(a_config(nodes=2, devices=8))
    log.submit(1, gpus=1).start(1).at(10).lose(0).at(20).recover(0).at(30)
    log.drain(1).at(40).succeed(1).into(usage)
    assert (usage.capacity.total_milli, usage.capacity.open_milli) == (16_000, 8_000)
    assert usage.totals().idle == 10 * (15_000 + 7_000 + 15_000 + 7_000)
    assert usage.free_milli() == 8_000


def test_time_may_pass_after_the_last_event() -> None:
    usage = Usage(4000)
    folds = History().submit(1, gpus=2).start(1).at(5).submit(2).into(usage)
    folds.pass_to(Instant(15))
    assert (usage.totals().busy, usage.totals().waiting) == (2000 * 15, 10)


steps = st.lists(
    st.tuples(st.integers(1, 50), st.integers(0, 9000), st.integers(0, 9)),
    max_size=200,
)


@given(steps, st.integers(4, 12))
def test_thinning_keeps_sums_and_both_ends(
    steps: list[tuple[int, int, int]], most: int
) -> None:
    """Every kept point is one of the true ones, so each sample is the exact mean."""
    at = busy = waiting = seen = 0
    truth = {0: Point(0)}
    curve = Curve(Point(0), most)
    for length, devices, waits in steps:
        at, busy = at + length, busy + devices * length
        waiting += waits * length
        truth[at] = Point(at, busy, waiting)
        seen += 1
        if seen >= curve.stride:
            seen = 0
            curve.add(truth[at])
    last = Sample(at, 1, 2)
    samples = curve.samples(truth[at], last)
    assert len(samples) <= most
    assert samples[0].at_ms == 0
    assert samples[-1] == last
    assert all(truth[point.at_ms] == point for point in curve.points)
    for here, there in pairwise(samples):
        a, b = truth[here.at_ms], truth[there.at_ms]
        length = there.at_ms - here.at_ms
        assert abs(here.busy_milli * length - (b.busy - a.busy)) * 2 <= length
        assert abs(here.waiting * length - (b.waiting - a.waiting)) * 2 <= length


def test_a_job_that_varies_waits_for_its_least_and_holds_what_it_got() -> None:
    role = replace(a_spec().roles[0], count=4, least=2)
    slots = tuple(Slot(NodeId(0), (index,), 1000) for index in range(3))
    log = History().at(0).submit(1, roles=(role,)).at(10).place(1, slots=slots).begin(1)
    log.at(20).evict(1).at(25).cancel(1)
    usage = Usage(4000)
    jobs = Jobs(usage)
    waits = WaitCauses(usage, jobs)
    log.into(usage, jobs, waits)
    totals = usage.totals()
    assert totals.stranded == 2000 * (10 + 5)
    assert totals.busy == 3000 * 10
    assert usage.held_milli == 0
    assert jobs.rows[0].attained_ms == 30


def test_a_job_that_shrinks_holds_less_from_then_on() -> None:
    role = replace(a_spec().roles[0], count=4, least=1, elastic=True)
    slots = tuple(Slot(NodeId(0), (index,), 1000) for index in range(4))
    log = History().at(0).submit(1, roles=(role,)).at(10).place(1, slots=slots).begin(1)
    log.at(20).add(e.AttemptShrunk(JobId(1), AttemptNo(1), 1)).at(40).succeed(1)
    usage, accounts = Usage(4000), Accounts(frozenset({"tenant"}))
    jobs = Jobs(usage)
    waits = WaitCauses(usage, jobs)
    log.into(usage, jobs, waits, accounts)
    assert usage.totals().busy == 4000 * 10 + 1000 * 20
    assert usage.held_milli == 0
    assert jobs.rows[0].attained_ms == 4 * 10 + 20
    (sums,) = accounts.rows.values()
    assert sums.gpu_guaranteed == 4000 * 10 + 1000 * 20
