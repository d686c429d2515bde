"""What backfilling asks of who waits and who runs, against looking at everybody."""

from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from allotment.core.cluster import Cluster
from allotment.core.dimensions import devices_counted
from allotment.core.ends import Ends
from allotment.core.forecast import Forecast
from allotment.core.gang import Gang, Standing
from allotment.core.guarantee import guarantee_of
from allotment.core.pending import Pending
from allotment.core.rank import Key, Rank
from allotment.core.reservations import Reservations, kept_off
from allotment.core.timeline import together
from allotment.model.ids import JobId, NodeId
from allotment.model.quantity import DEVICE, MINUTE, Instant, Millis, WallTime
from allotment.model.reservations import Reservation
from allotment.model.tenancy import Queue, QueueOrder, Tenant
from allotment.policies.estimates.known import Known
from allotment.sim.cluster import cluster_of
from tests.unit.core.books import PLENTY, POLICIES, Given, a_gang, a_shape, a_standing, place

Lengths = dict[int, int | None]
"""What is told of the run time of each job, if anything."""

LENGTHS = st.lists(st.none() | st.integers(0, 9), min_size=1, max_size=25).map(
    lambda lengths: dict(enumerate(lengths, 1))
)


def a_job(job: int, served: int = 0, lost: int = 0) -> Standing:
    return replace(a_standing(job), served_ms=Millis(served), lost_ms=Millis(lost))


# ── who is next to end in time ──────────────────────────────────────────────────────────


@given(lengths=LENGTHS, ranks=st.lists(st.integers(0, 4), min_size=25), data=st.data())
def test_the_next_that_ends_in_time_is_that_of_looking_at_everybody(
    lengths: Lengths, ranks: list[int], data: st.DataObject
) -> None:
    ordering = Given({job: Rank((ranks[job - 1],)) for job in lengths})
    line = Pending(ordering, Known(lengths.get))
    served = {job: data.draw(st.integers(0, 3)) for job in lengths}
    lost = {job: data.draw(st.integers(0, served[job])) for job in lengths}
    kept = {job: served[job] - lost[job] for job in lengths}
    coming = sorted(lengths, key=lambda job: ranks[-job])
    for job in coming:
        line.add(a_job(job, served[job], lost[job]), Instant(1))
        if data.draw(st.booleans()):
            gone = data.draw(st.sampled_from(coming))
            if gone != job:
                line.remove(JobId(gone))
        most = data.draw(st.integers(-3, 9))
        after = data.draw(st.sampled_from([waiting.id for waiting in line.all()]))
        assert line.next_to_end(line[after], most) == slowly(line, lengths, kept, after, most)


def slowly(
    line: Pending, lengths: Lengths, kept: dict[int, int], after: JobId, most: int
) -> Key | None:
    for waiting in line.in_order(set()):
        length = lengths[waiting.id]
        behind = line.key(waiting.id) > line.key(after)
        if behind and length is not None and length - kept[waiting.id] <= most:
            return line.key(waiting.id)
    return None


def test_shapes_do_not_mix() -> None:
    line = Pending(Given({job: Rank((0,)) for job in (1, 2, 3)}), Known(lambda _: 5))
    for job, gpus in ((1, 1), (2, 2), (3, 1)):
        line.add(a_standing(job, gpus), Instant(1))
    assert line.next_to_end(line[JobId(1)], 5) == ((0,), 3)
    assert line.next_to_end(line[JobId(2)], 5) is None
    line.remove(JobId(1))
    line.remove(JobId(3))
    line.add(a_standing(1), Instant(2))
    assert line.next_to_end(line[JobId(1)], 5) is None


# ── when enough is free ─────────────────────────────────────────────────────────────────


@given(
    lengths=LENGTHS,
    gone=st.sets(st.integers(1, 25)),
    wanted=st.integers(1, 30),
    free=st.integers(0, 5),
    now=st.integers(1, 12),
    lost=st.integers(0, 2),
)
def test_enough_is_free_when_adding_up_all_ends_says(
    lengths: Lengths, gone: set[int], wanted: int, free: int, now: int, lost: int
) -> None:
    ends = Ends(Known(lengths.get))
    had = {"served_ms": Millis(3), "lost_ms": Millis(lost)}
    gangs = {job: a_gang(replace(a_standing(job, job % 4 + 1), **had)) for job in lengths}
    for gang in gangs.values():
        ends.enter(gang)
    for job in gone:
        if job in gangs:
            ends.leave(gangs[job])
    runs = {
        job: max(now + 1, 1 + length - 3 + lost)
        for job, length in lengths.items()
        if length is not None and job not in gone
    }
    expected = None
    for at in sorted(set(runs.values())):
        then = free + sum(job % 4 + 1 for job, end in runs.items() if end <= at)
        if then >= wanted and expected is None:
            expected = (at, then * DEVICE)
    assert ends.enough(wanted * DEVICE, free * DEVICE, Instant(now)) == expected


@given(
    lengths=LENGTHS,
    steps=st.lists(st.tuples(st.integers(1, 25), st.booleans()), max_size=30),
    without=st.sets(st.integers(1, 25)),
    now=st.integers(1, 12),
)
def test_what_is_kept_of_releases_is_what_adding_them_up_anew_says(
    lengths: Lengths, steps: list[tuple[int, bool]], without: set[int], now: int
) -> None:
    ends = Ends(Known(lengths.get))
    gangs = {job: a_gang(a_standing(job, job % 4 + 1)) for job in lengths}
    left_out = {JobId(job) for job in without}

    def release(gang: Gang) -> dict[str, int]:
        return {"odd" if gang.id % 2 else "even": gang.held().gpu_milli}

    there = set[int]()
    for job, asks in steps:
        if job in there:
            ends.leave(gangs[job])
            there.remove(job)
        elif job in gangs:
            ends.enter(gangs[job])
            there.add(job)
        for tenant in ("", "t") if asks else ():
            kept, anew = (
                ends.releases(Instant(now), tenant, left_out, name, release)
                for name in ("kept", "")
            )
            assert kept[0] == anew[0] == sorted(kept[0])
            for kind in ("odd", "even"):
                none = [0] * len(kept[0])
                assert kept[1].get(kind, none) == anew[1].get(kind, none)


# ── where nodes are set aside ───────────────────────────────────────────────────────────


@given(
    data=st.data(),
    lengths=LENGTHS,
    wanted=st.integers(1, 16),
    span=st.none() | st.integers(1, 3),
    now=st.integers(1, 12),
)
def test_enough_is_free_beside_reservations_when_every_instant_by_itself_says(
    data: st.DataObject, lengths: Lengths, wanted: int, span: int | None, now: int
) -> None:
    told = {job: None if run is None else run * MINUTE for job, run in lengths.items()}
    policies = replace(POLICIES, rescheduler=None, estimates=Known(told.get))
    tenant = Tenant("t", PLENTY, (Queue("default", QueueOrder.EASY),))
    cluster = Cluster(cluster_of("4x4"), (tenant,), policies, guarantee_of)
    for job in lengths:
        if (gpus := job % 3 + 1) <= cluster.ledger.whole_free:
            place(cluster, a_standing(job, gpus))
    minute = st.integers(0, 20)
    cluster.reservations = Reservations(
        Reservation(
            str(name),
            WallTime(begin * MINUTE),
            WallTime((begin + data.draw(st.integers(1, 9))) * MINUTE),
            tuple(NodeId(node) for node in sorted(data.draw(st.sets(st.integers(0, 3))))),
            tenants=("t",) if data.draw(st.booleans()) else (),
            notice_ms=Millis(data.draw(minute) * MINUTE),
        )
        for name, begin in enumerate(data.draw(st.lists(minute, max_size=3)))
    )
    if (drained := data.draw(st.none() | st.integers(0, 3))) is not None:
        cluster.set_open(NodeId(drained), False)
    limit = -1 if span is None else span * MINUTE
    shape = cluster.reservations.shaped(a_shape(wanted), "", limit)
    blocked = replace(a_standing(99, wanted), shape=shape)
    assert cluster.ends is not None
    devices, then = devices_counted(cluster, shape), Instant(now * MINUTE)
    forecast = Forecast(
        cluster,
        then,
        down=cluster.shut_nodes(),
        aside=kept_off(cluster.reservations, shape, then),
        evicted_at=None,
    )
    free, found = forecast.timeline(devices), None
    ends = [forecast.next_end(), cluster.reservations.next_end(shape, then)]
    if (after := min((end for end in ends if end is not None), default=None)) is not None:
        starts = together([(devices.demand(shape), free)], 1, after)
        found = None if starts is None else (starts[0], sum(free.at(starts[0]).values()))
    lasts = {
        job: max(now * MINUTE + 1, gang.placed_at + run)
        for job, gang in cluster.gangs.items()
        if (run := told[job]) is not None
    }
    openings = {w.end for w in cluster.reservations.all if w.name not in shape.enters}
    true = next(
        (
            (at, free)
            for at in sorted({*lasts.values(), *openings})
            if at > now * MINUTE
            and (free := free_then(cluster, blocked, lasts, at)) >= wanted * DEVICE
        ),
        None,
    )
    assert found == true


def free_then(cluster: Cluster, job: Standing, ends: Mapping[JobId, int], at: int) -> int:
    """Count, device by device, what a job could use at an instant."""
    shut = cluster.reservations.shut_to(job.shape, Instant(at))
    used = {
        (slot.node, device)
        for gang in cluster.gangs.values()
        if ends.get(gang.id, at + 1) > at
        for slot in gang.slots
        for device in slot.devices
    }
    return DEVICE * sum(
        (node.id, device.index) not in used
        for node in cluster.nodes.values()
        if node.id not in shut and cluster.ledger.books[node.id].open
        for device in node.devices
    )


@given(predicted=st.sampled_from([-1, 0, 5]), limit=st.sampled_from([-1, 0, 5]))
def test_only_what_is_predicted_and_has_no_limit_is_a_guess(predicted: int, limit: int) -> None:
    ends = Ends(Known(lambda _: 10))
    standing = replace(a_standing(1), predicted_ms=Millis(predicted), limit_ms=Millis(limit))
    gang = a_gang(standing)
    ends.enter(gang)
    is_guess = predicted >= 0 and limit < 0
    assert ends.next_guess() == (11 if is_guess else None)
    assert ends.outlived(Instant(10)) is False
    assert ends.outlived(Instant(11)) is is_guess
    assert ends.of(JobId(1), Instant(11)) == (21 if is_guess else 12)
    ends.leave(gang)
    assert ends.next_guess() is None
