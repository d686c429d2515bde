"""Maintenance and reservations, in counted shares and in cells. Audited throughout."""

import msgspec
import pytest

from allotment.core.request import Shape
from allotment.core.reservations import Reservations, kept_off, set_aside
from allotment.engine.state import Image, State
from allotment.model import commands as c
from allotment.model import events as e
from allotment.model.cells import CellShare, CellType, RootCell, Topology
from allotment.model.errors import Code, Rejected
from allotment.model.ids import JobId, NodeId
from allotment.model.ledger import Slot
from allotment.model.lifecycle import JobState as S
from allotment.model.quantity import HOUR, MINUTE, Instant, Millis, WallTime
from allotment.model.reasons import Reason
from allotment.model.reservations import Reservation
from allotment.model.tenancy import Config, QueueOrder, Tenant
from allotment.service.reservations import reservation_views
from tests.support.builders import POLICIES, JobBuilder, a_config, a_job, a_node, a_tenant, gpus
from tests.support.world import World
from tests.unit.core.books import a_shape

H = int(HOUR)


def counted() -> Config:
    return a_config(a_tenant("vision", 16), a_tenant("nlp"), nodes=2)


def in_cells() -> Config:
    topology = Topology(
        types=(CellType("host", "A100", 8, is_node=True),),
        roots=tuple(RootCell("host", f"n{at}", (NodeId(at),)) for at in range(2)),
    )
    return Config(
        nodes=tuple(a_node(at) for at in range(2)),
        tenants=(
            Tenant("vision", gpus(16), cells=(CellShare("host", 2),)),
            Tenant("nlp", gpus(0), cells=()),
        ),
        topology=topology,
    )


BOTH = pytest.mark.parametrize("config", [counted(), in_cells()], ids=["counted", "cells"])


class Timed(World):
    def reserve(self, start: int, length: int, *nodes: int, **more: object) -> None:
        """Set nodes aside from `start` hours from now, for `length` hours."""
        command = c.ReserveNodes(
            name="w",
            begin=WallTime(self.now + start * H),
            end=WallTime(self.now + (start + length) * H),
            nodes=tuple(NodeId(node) for node in nodes),
        )
        self.do(msgspec.structs.replace(command, **more))

    def places(self, builder: JobBuilder) -> set[int]:
        """Submit a job and give the nodes it gets at once."""
        job = self.submit(builder)
        self.cycle()
        return self.nodes_of(job)

    def nodes_of(self, job: JobId) -> set[int]:
        attempt = self.job(job).attempt
        return {int(slot.node) for slot in attempt.slots} if attempt else set()


def four(hours: float | None = None) -> JobBuilder:
    job = a_job().gpus(4)
    return job if hours is None else job.within(run_ms=round(hours * H))


@BOTH
def test_a_job_that_ends_in_time_may_go_before_the_reservation(config: Config) -> None:
    world = Timed(config)
    world.reserve(4, 2, 0)
    assert world.places(four(3)) == {0}
    assert world.places(four(4)) == {0}, "it is gone when the reservation begins"
    assert world.places(four(5)) == {1}


@BOTH
def test_a_job_without_a_limit_keeps_off_from_the_notice_on(config: Config) -> None:
    world = Timed(config)
    world.reserve(48, 2, 0, 1, notice_ms=Millis(24 * H))
    assert world.places(four()) != set()
    world.wait(25 * H)
    late = world.submit(four())
    world.cycle()
    assert world.is_(late) is S.QUEUED
    blocked = world.why(late)
    assert blocked.reason is Reason.RESERVATION
    assert "in maintenance in 23 h 0 min, and its run time is unknown" in blocked.message
    assert blocked.until == world.now + 25 * H


@BOTH
def test_afterwards_the_nodes_are_back_by_themselves(config: Config) -> None:
    world = Timed(config)
    world.reserve(0, 2, 0, 1, reason="fans")
    job = world.submit(four(1))
    world.cycle()
    blocked = world.why(job)
    assert blocked.reason is Reason.RESERVATION
    assert "in maintenance for another 2 h 0 min: n0, n1: w (fans)" in blocked.message
    assert world.engine.next_due(world.now) == world.now + 2 * H
    world.wait(2 * H - 1)
    world.cycle()
    assert world.is_(job) is S.QUEUED
    world.wait(1)
    world.cycle()
    assert world.is_(job) is S.STARTING
    assert not world.state.reservations
    assert any(isinstance(record.event, e.ReservationEnded) for record in world.log)


@BOTH
def test_a_job_that_runs_when_it_begins_runs_on(config: Config) -> None:
    world = Timed(config)
    job = world.submit(a_job().gpus(8))
    world.cycle()
    world.runs(job)
    world.reserve(1, 2, 0, 1)
    world.wait(H)
    assert world.is_(job) is S.RUNNING


@BOTH
def test_with_evict_they_are_sent_away_and_come_back_elsewhere(config: Config) -> None:
    world = Timed(config)
    job, other = world.submit(a_job().gpus(8)), world.submit(a_job().gpus(8).of("nlp"))
    world.cycle()
    for each in (job, other):
        world.runs(each)
    there = world.nodes_of(job).pop()
    world.reserve(1, 2, there, evict=True)
    world.wait(H)
    assert world.is_(job) is S.STOPPING
    assert world.is_(other) is S.RUNNING
    stop = world.job(job).attempts[-1].stop
    assert stop is not None
    assert stop.diagnosis is not None
    assert "set aside now: w" in stop.diagnosis.cause
    world.ends(job, 1)
    world.cycle()
    assert there not in world.nodes_of(job)


@BOTH
def test_those_it_is_for_may_use_it_and_nobody_else(config: Config) -> None:
    world = Timed(config)
    world.reserve(0, 2, 0, 1, tenants=("nlp",))
    vision, nlp = world.submit(four(1)), world.submit(four(1).of("nlp"))
    world.cycle()
    assert world.is_(vision) is S.QUEUED
    assert "reserved for others" in world.why(vision).message
    assert world.is_(nlp) is S.STARTING


def test_it_may_be_for_a_user_or_a_queue() -> None:
    for who in ({"users": ("alice",)}, {"queues": ("vision/default",)}):
        world = Timed(counted())
        world.reserve(0, 2, 0, 1, **who)
        assert world.places(four(1)) != set()
    world = Timed(counted())
    world.reserve(0, 2, 0, 1, users=("bob",))
    assert world.places(four(1)) == set()


@BOTH
def test_it_ends_early_when_told_so(config: Config) -> None:
    world = Timed(config)
    world.reserve(0, 2, 0, 1)
    job = world.submit(four(1))
    world.cycle()
    world.do(c.EndReservation("w"))
    world.cycle()
    assert world.is_(job) is S.STARTING


@BOTH
def test_it_survives_a_restart(config: Config) -> None:
    world = Timed(config)
    world.reserve(1, 2, 0, evict=True, users=("bob",))
    world.submit(four(3))
    world.cycle()
    image = msgspec.msgpack.decode(msgspec.msgpack.encode(world.state.image()), type=Image)
    again = State.from_image(image, POLICIES)
    assert again.reservations == world.state.reservations
    assert again.timers.next() == world.state.timers.next()
    assert again.image() == world.state.image()


@BOTH
def test_a_suspended_job_does_not_go_on_in_a_reservation(config: Config) -> None:
    world = Timed(config)
    job = world.submit(a_job().gpus(8))
    world.cycle()
    world.runs(job)
    world.do(c.SuspendJob(job))
    world.reserve(0, 2, *world.nodes_of(job))
    world.do(c.ResumeJob(job))
    world.cycle()
    assert world.is_(job) is S.SUSPENDED
    assert world.why(job).reason is Reason.RESERVATION
    world.wait(2 * H)
    world.cycle()
    assert world.is_(job) is S.RUNNING


def test_a_place_reserved_for_a_job_is_given_up_when_a_reservation_comes_over_it() -> None:
    world = Timed(a_config(a_tenant("vision", 8), a_tenant("nlp"), nodes=1))
    borrower = world.submit(a_job().gpus(8).of("nlp"))
    world.cycle()
    world.runs(borrower)
    owner = world.submit(a_job().gpus(8).within(run_ms=H))
    world.cycle()
    assert owner in world.state.cluster.reserved
    world.reserve(0, 2, 0)
    world.cycle()
    assert owner not in world.state.cluster.reserved
    world.ends(borrower, 1)
    world.cycle()
    assert world.is_(owner) is S.QUEUED
    world.wait(2 * H)
    world.cycle()
    assert world.is_(owner) is S.STARTING


def test_so_many_devices_are_whole_nodes_of_which_least_is_used() -> None:
    world = Timed(a_config(a_tenant("vision", 32), nodes=4))
    job = world.submit(a_job().gpus(1))
    world.cycle()
    assert world.nodes_of(job) == {0}
    world.reserve(0, 1, devices=9, type="A100")
    assert world.state.reservations["w"].nodes == (NodeId(1), NodeId(2))
    with pytest.raises(Rejected, match=r"not 17 devices .* there are 16"):
        world.reserve(0, 1, devices=17, name="x")


def test_strict_queues_wait_behind_whom_a_reservation_holds_up() -> None:
    world = Timed(a_config(a_tenant("vision", 8, order=QueueOrder.STRICT), nodes=1))
    world.reserve(2, 2, 0)
    long, short = world.submit(four(3)), world.submit(four(1))
    world.cycle()
    assert world.why(long).reason is Reason.RESERVATION
    assert world.why(short).reason is Reason.BEHIND


@pytest.mark.parametrize(
    ("more", "code", "words"),
    [
        ({"name": "a b"}, Code.BAD_REQUEST, "cannot be the name"),
        ({"end": Instant(5)}, Code.BAD_REQUEST, "before it begins"),
        ({"begin": Instant(1), "end": Instant(5)}, Code.BAD_REQUEST, "over already"),
        ({"nodes": (NodeId(7),)}, Code.NO_SUCH_NODE, "no node 7"),
        ({"nodes": ()}, Code.BAD_REQUEST, "no nodes"),
        ({"devices": 4}, Code.BAD_REQUEST, "not both"),
        ({"tenants": ("x",)}, Code.NO_SUCH_TENANT, "no tenant 'x'"),
        (
            {"queues": ("vision/x",)},
            Code.NO_SUCH_QUEUE,
            "Tenant vision has no queue 'x'. Its queues: default.",
        ),
        ({"queues": ("x/y",)}, Code.NO_SUCH_TENANT, "no tenant 'x'"),
        ({"queues": ("default",)}, Code.NO_SUCH_QUEUE, "Write TENANT/QUEUE"),
        ({"notice_ms": Millis(-1)}, Code.BAD_REQUEST, "negative"),
    ],
)
def test_bad_input_is_refused(more: dict[str, object], code: Code, words: str) -> None:
    world = Timed(counted())
    with pytest.raises(Rejected, match=words) as refused:
        world.reserve(1, 1, 0, **more)
    assert refused.value.code is code
    assert not world.state.reservations


def test_a_name_is_given_once() -> None:
    world = Timed(counted())
    world.reserve(1, 1, 0)
    with pytest.raises(Rejected, match="already"):
        world.reserve(2, 1, 1)
    with pytest.raises(Rejected, match="no reservation 'v'"):
        world.do(c.EndReservation("v"))


def test_limits_that_differ_by_seconds_wait_alike() -> None:
    world = Timed(counted())
    world.reserve(9, 1, 0, 1)
    spans = set[int]()
    for ms in (H + 1, H + 30_000, H + int(MINUTE)):
        job = world.submit(four().within(run_ms=ms))
        spans.add(world.state.cluster.pending[job].shape.span_ms)
    assert spans == {H + int(MINUTE)}


def test_conservative_queues_say_whom_a_job_would_delay() -> None:
    world = Timed(a_config(a_tenant("vision", 24, order=QueueOrder.CONSERVATIVE), nodes=1))
    running = world.submit(four(2))
    world.cycle()
    world.runs(running)
    large = world.submit(a_job().gpus(8).within(run_ms=H))
    also = world.submit(a_job().gpus(4).within(run_ms=2 * H))
    long = world.submit(a_job().gpus(4).within(run_ms=3 * H))
    world.cycle()
    assert world.is_(also) is S.STARTING, "it is gone when the large one is promised its start"
    assert world.is_(large) is world.is_(long) is S.QUEUED
    world.ends(also, 1)
    short = world.submit(a_job().gpus(4).within(run_ms=H))
    world.cycle()
    assert world.is_(short) is S.STARTING
    world.runs(short)
    world.ends(short)
    blocked = world.why(long)
    assert blocked.reason is Reason.BEHIND
    assert f"Job {large} is before it" in blocked.message


def test_conservative_promises_know_of_reservations() -> None:
    world = Timed(a_config(a_tenant("vision", 16, order=QueueOrder.CONSERVATIVE), nodes=2))
    running = world.submit(four(2))
    world.cycle()
    world.runs(running)
    world.reserve(3, 4, 0, 1)
    # It needs both nodes from two hours on for two hours: so only after the reservation.
    large = world.submit(a_job().tasks(2).gpus(8).within(run_ms=2 * H))
    until_then = world.submit(four(3))
    world.cycle()
    assert world.is_(large) is S.QUEUED
    assert world.is_(until_then) is S.STARTING


def conservative() -> Timed:
    return Timed(a_config(a_tenant("vision", 16, order=QueueOrder.CONSERVATIVE), nodes=2))


def test_conservative_promises_count_nodes_again_once_a_reservation_is_over() -> None:
    world = conservative()
    world.reserve(1, 4, 0)
    # It would run into the reservation on one of the two nodes, so it starts in five hours.
    large = world.submit(a_job().tasks(2).gpus(8).within(run_ms=2 * H))
    in_time, late = world.submit(four(4)), world.submit(four(6))
    world.cycle()
    assert world.is_(large) is S.QUEUED
    assert world.is_(in_time) is S.STARTING
    assert world.nodes_of(in_time) == {1}
    assert world.is_(late) is S.QUEUED, "the large one would start later for it"
    assert f"Job {large} is before it" in world.why(late).message


def test_conservative_promises_count_a_node_once_that_lies_in_two_reservations() -> None:
    world = conservative()
    world.reserve(1, 4, 0)
    world.reserve(2, 2, 0, name="again")
    large = world.submit(a_job().tasks(2).gpus(8).within(run_ms=2 * H))
    in_time = world.submit(four(4))
    world.cycle()
    assert world.is_(large) is S.QUEUED
    assert world.nodes_of(in_time) == {1}


def test_conservative_promises_count_no_node_in_a_reservation_when_who_is_there_ends() -> None:
    world = conservative()
    there = world.submit(a_job().gpus(8).within(run_ms=2 * H))
    world.cycle()
    world.runs(there)
    (node,) = world.nodes_of(there)
    world.reserve(1, 4, node)
    large = world.submit(a_job().tasks(2).gpus(8).within(run_ms=H))
    in_time = world.submit(four(4))
    world.cycle()
    assert world.is_(large) is S.QUEUED
    assert world.nodes_of(in_time) == {1 - node}


def in_easy_order() -> Config:
    return a_config(a_tenant("vision", 64, order=QueueOrder.EASY), nodes=2)


def test_in_easy_order_the_promise_to_the_first_knows_of_reservations() -> None:
    world = Timed(in_easy_order())
    running = world.submit(a_job().gpus(8).within(run_ms=2 * H))
    world.cycle()
    assert world.is_(running) is S.STARTING
    world.reserve(3, 4, 1 - world.nodes_of(running).pop())
    first = world.submit(a_job().gpus(8).tasks(2).within(run_ms=2 * H))
    world.cycle()
    assert world.is_(first) is S.QUEUED
    # Both nodes are open to it once the reservation is over, not when the running job ends.
    assert world.places(four(3)) != set(), (
        "it is gone before the reservation, and before the first"
    )
    assert world.places(four(8)) == set(), "it would not be gone by then"
    world.wait(7 * H)


def test_in_easy_order_nobody_takes_what_the_first_waits_for_behind_a_reservation() -> None:
    world = Timed(in_easy_order())
    running = world.submit(four(2))
    world.cycle()
    there = world.nodes_of(running).pop()
    world.reserve(0, 6, 1 - there)
    first = world.submit(a_job().gpus(8).within(run_ms=2 * H))
    world.cycle()
    assert world.is_(first) is S.QUEUED
    world.runs(running)
    world.wait(H)
    # The one node it may use is free in an hour: the other one is no spare.
    later = world.submit(a_job().gpus(4).within(run_ms=3 * H))
    world.cycle()
    assert world.is_(later) is S.QUEUED
    blocked = world.why(later)
    assert blocked.reason is Reason.BEHIND
    assert f"Job {first} is before it" in blocked.message
    world.ends(running)
    world.cycle()
    assert world.is_(first) is S.STARTING


def test_in_easy_order_nodes_that_are_down_are_no_spare() -> None:
    world = Timed(in_easy_order())
    running = world.submit(four(2))
    world.cycle()
    world.do(c.DrainNode(NodeId(1 - world.nodes_of(running).pop())))
    first = world.submit(a_job().gpus(8).within(run_ms=2 * H))
    both = world.submit(a_job().gpus(8).tasks(2).within(run_ms=2 * H))
    later, sooner = world.submit(four(3)), world.submit(four(1))
    world.cycle()
    assert world.is_(first) is world.is_(both) is world.is_(later) is S.QUEUED
    assert world.is_(sooner) is S.STARTING


def test_in_easy_order_others_pass_who_waits_for_a_node_to_come_back() -> None:
    world = Timed(in_easy_order())
    running = world.submit(four(2))
    world.cycle()
    world.do(c.DrainNode(NodeId(1 - world.nodes_of(running).pop())))
    both = world.submit(a_job().gpus(8).tasks(2).within(run_ms=2 * H))
    sooner = world.submit(four(1))
    world.cycle()
    assert world.is_(both) is S.QUEUED
    assert world.is_(sooner) is S.STARTING


def test_a_job_that_ends_by_its_limit_before_a_reservation_is_not_in_its_way() -> None:
    world = Timed(counted())
    short, long = world.submit(four(1)), world.submit(four(9))
    world.cycle()
    world.reserve(2, 2, 0, 1)
    (view,) = reservation_views(world.state, world.now)
    assert view.jobs == (long,)
    assert short in world.state.cluster.gangs


def test_a_reservation_keeps_off_jobs_until_its_end_and_no_longer() -> None:
    reservation = Reservation("w", WallTime(100), WallTime(200), (NodeId(0),))
    shape = a_shape(1)
    asked = {
        at: Reservations((reservation,)).barring(shape, Instant(at)) for at in (150, 199, 200)
    }
    assert asked == {150: [reservation], 199: [reservation], 200: []}


def a_span(name: str, begin: int, end: int, *nodes: int, **more: object) -> Reservation:
    made = Reservation(name, WallTime(begin), WallTime(end), tuple(map(NodeId, nodes)))
    return msgspec.structs.replace(made, **more)


def lasting(span_ms: int, *enters: str) -> Shape:
    return msgspec.structs.replace(a_shape(1), span_ms=span_ms, enters=enters)


def test_a_job_is_kept_off_where_it_would_still_run_when_a_reservation_begins() -> None:
    there = Reservations([a_span("w", 100, 200, 0), a_span("v", 150, 300, 0, 1)])
    assert kept_off(there, lasting(40), Instant(10)) == {
        NodeId(0): [(61, 300)],
        NodeId(1): [(111, 300)],
    }
    assert kept_off(there, lasting(40, "v"), Instant(70)) == {NodeId(0): [(70, 200)]}
    assert kept_off(there, lasting(0), Instant(200)) == {
        NodeId(0): [(200, 300)],
        NodeId(1): [(200, 300)],
    }
    assert kept_off(there, lasting(0), Instant(300)) == {}


def test_nodes_are_set_aside_from_now_until_the_last_reservation_ends() -> None:
    ours = a_span("ours", 100, 200, 0, tenants=("t",))
    there = Reservations([ours, a_span("w", 100, 200, 0), a_span("v", 201, 300, 0)])
    assert set_aside(there, a_shape(1), Instant(10)) == {NodeId(0): [(100, 200), (201, 300)]}
    assert set_aside(there, a_shape(1), Instant(150)) == {NodeId(0): [(150, 200), (201, 300)]}
    assert set_aside(there, a_shape(1), Instant(200)) == {NodeId(0): [(201, 300)]}
    meets = Reservations([a_span("w", 100, 200, 0), a_span("v", 200, 300, 0)])
    assert set_aside(meets, a_shape(1), Instant(10)) == {NodeId(0): [(100, 300)]}
    within = Reservations([a_span("w", 100, 300, 0), a_span("v", 150, 200, 0)])
    assert set_aside(within, a_shape(1), Instant(10)) == {NodeId(0): [(100, 300)]}


@pytest.mark.parametrize(
    ("now", "barred"), [(59, False), (60, False), (61, True), (199, True), (200, False)]
)
def test_a_reservation_bars_a_job_that_would_not_be_gone(now: int, barred: bool) -> None:
    there = Reservations([a_span("w", 100, 200, 0)])
    slots = {node: (Slot(NodeId(node), (0,), 1000),) for node in (0, 1)}
    assert there.bar(lasting(40), slots[0], Instant(now)) is barred
    assert not there.bar(lasting(40), slots[1], Instant(now))
    assert not there.bar(lasting(40, "w"), slots[0], Instant(now))
    assert there.shut_to(lasting(40), Instant(now)) == ({NodeId(0)} if barred else set())


def test_the_next_reservation_that_ends_is_one_that_is_not_for_the_job() -> None:
    there = Reservations([a_span("w", 100, 200, 0), a_span("v", 150, 300, 0)])
    for now, end in ((199, 200), (200, 300), (300, None)):
        assert there.next_end(lasting(1), Instant(now)) == end
    assert there.next_end(lasting(1, "w"), Instant(0)) == 300


@pytest.mark.parametrize("name", ["vision", "vision/", "/"])
def test_a_queue_is_named_with_its_tenant(name: str) -> None:
    world = Timed(counted())
    with pytest.raises(Rejected, match="names no queue"):
        world.reserve(1, 1, 0, queues=(name,))


@pytest.mark.parametrize(("span", "kept"), [(-1, -1), (0, 0), (1, MINUTE), (MINUTE, MINUTE)])
def test_for_how_long_a_job_runs_is_known_in_whole_minutes(span: int, kept: int) -> None:
    there = Reservations([a_span("w", 100, 200, 0, users=("ann",)), a_span("v", 1, 2, 0)])
    shape = there.shaped(a_shape(1), "ann", span)
    assert (shape.span_ms, shape.enters) == (kept, ("w",))
    assert Reservations().shaped(a_shape(1), "ann", span) == a_shape(1)
