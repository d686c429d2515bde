"""Reservations that an engine has made: kept as it tells of them, and planned around."""

import pytest

from allotment.engine.reservations import MOST_RESERVATIONS
from allotment.model import commands as c
from allotment.model import events as e
from allotment.model.errors import Code, Rejected
from allotment.model.ids import JobId, NodeId
from allotment.model.lifecycle import JobState as S
from allotment.model.quantity import HOUR, WallTime
from allotment.model.reasons import Reason
from allotment.model.reservations import FoundReservation
from tests.support.builders import a_config, a_job, a_tenant
from tests.support.world import World

H = int(HOUR)


def a_world() -> World:
    return World(a_config(a_tenant("vision", 16), nodes=2))


def told(world: World, *found: FoundReservation) -> list[e.AnyEvent]:
    """Let the engine tell of its reservations; return the events of it."""
    before = len(world.log)
    world.do(c.FindReservations("gpus", found))
    return [
        record.event
        for record in world.log[before:]
        if isinstance(record.event, e.ReservationSet | e.ReservationEnded)
    ]


def found(world: World, name: str, begin: int, end: int, *nodes: str) -> FoundReservation:
    """Return a reservation that begins and ends so many hours from now."""
    return FoundReservation(
        name, WallTime(world.now + begin * H), WallTime(world.now + end * H), nodes
    )


def test_they_are_followed_and_those_that_are_set_here_stay() -> None:
    world = a_world()
    n0, n1 = (node.name for node in world.state.config.nodes)
    world.do(
        c.ReserveNodes("fans", WallTime(world.now), WallTime(world.now + H), nodes=(NodeId(0),))
    )
    fans, later = found(world, "fans", 1, 2, n1), found(world, "fans", 2, 3, n0, n1)
    assert len(told(world, fans)) == 1
    assert told(world, fans) == []
    assert set(world.state.reservations) == {"fans", "fans@gpus"}
    (moved,) = told(world, later)
    assert isinstance(moved, e.ReservationSet)
    assert moved.reservation.nodes == (NodeId(0), NodeId(1))
    assert told(world) == [e.ReservationEnded("fans@gpus")]
    assert set(world.state.reservations) == {"fans"}


@pytest.mark.parametrize(
    ("begin", "end", "nodes"),
    [(-3, -2, ("0",)), (1, 2, ("elsewhere",)), (1, 2, ()), (2, 1, ("0",))],
    ids=["over", "of unknown nodes", "of none", "ends before it begins"],
)
def test_what_concerns_no_node_and_no_time_is_left_out(
    begin: int, end: int, nodes: tuple[str, ...]
) -> None:
    world = a_world()
    names = {"0": world.state.config.nodes[0].name}
    its = found(world, "odd", begin, end, *(names.get(node, node) for node in nodes))
    assert told(world, its) == []


def test_a_node_that_nobody_here_knows_does_not_hide_the_others() -> None:
    world = a_world()
    (set_,) = told(world, found(world, "fans", 1, 2, "gone", world.state.config.nodes[1].name))
    assert isinstance(set_, e.ReservationSet)
    assert set_.reservation.nodes == (NodeId(1),)


def test_however_many_there_are_those_on_our_nodes_are_kept_and_more_may_be_set_here() -> None:
    world = a_world()
    name = world.state.config.nodes[0].name
    elsewhere = [
        found(world, f"a{number}", 1, 2, "gone") for number in range(MOST_RESERVATIONS)
    ]
    ours = [
        found(world, f"b{number:04}", 3, 4, name) for number in range(MOST_RESERVATIONS + 1)
    ]
    told(world, *elsewhere, *ours)
    kept = {f"b{number:04}@gpus" for number in range(MOST_RESERVATIONS)}
    assert world.state.reservations.keys() == kept
    world.do(
        c.ReserveNodes("fans", WallTime(world.now), WallTime(world.now + H), nodes=(NodeId(0),))
    )
    assert "fans" in world.state.reservations


def test_jobs_stand_anew_only_where_another_job_may_be_meant() -> None:
    """A thousand reservations that are told of at once are no thousand looks at every job."""
    world = a_world()
    names = tuple(node.name for node in world.state.config.nodes)
    job = world.submit(a_job().of("vision").gpus(1).within(run_ms=5 * H))
    pending = world.state.cluster.pending
    open_ = FoundReservation(
        "b",
        WallTime(world.now),
        WallTime(world.now + 9 * H),
        names,
        tenants=("vision",),
        shut=False,
    )
    fans, moved = found(world, "a", 20, 22, *names), found(world, "a", 1, 2, *names)
    for its, stands_anew, enters in (
        ((fans,), True, ()),
        ((moved,), False, ()),
        ((moved, open_), True, ("b@gpus",)),
        ((fans, open_), False, ("b@gpus",)),
        ((fans,), True, ()),
        ((), True, ()),
    ):
        before = pending.arrivals
        told(world, *its)
        assert (pending.arrivals > before) is stands_anew
        assert pending[job].shape.enters == enters
        assert (pending[job].shape.span_ms > 0) is bool(its)


def test_a_reservation_that_comes_nearer_keeps_a_job_off_at_once() -> None:
    world = a_world()
    names = [node.name for node in world.state.config.nodes]
    told(world, found(world, "fans", 20, 22, *names))
    job = world.submit(a_job().of("vision").gpus(1).within(run_ms=5 * H))
    told(world, found(world, "fans", 1, 2, *names))
    world.cycle()
    assert world.state.jobs[job].state is S.QUEUED
    told(world, found(world, "fans", 20, 22, *names))
    world.cycle()
    assert world.state.jobs[job].state is not S.QUEUED


def test_a_job_that_could_reach_into_one_waits_and_starts_once_it_is_gone() -> None:
    world = a_world()
    names = [node.name for node in world.state.config.nodes]
    told(world, found(world, "fans", 1, 2, *names))
    job = world.submit(a_job().of("vision").gpus(1).within(run_ms=2 * H))
    world.cycle()
    assert world.state.jobs[job].state is S.QUEUED
    blocked = world.why(job)
    assert blocked.reason is Reason.RESERVATION
    assert "fans@gpus" in blocked.message
    told(world)
    world.cycle()
    assert world.state.jobs[JobId(job)].state is not S.QUEUED


def test_those_named_may_use_one_once_it_is_not_shut() -> None:
    world = a_world()
    names = tuple(node.name for node in world.state.config.nodes)
    shut = FoundReservation(
        "ours", WallTime(world.now), WallTime(world.now + H), names, tenants=("vision",)
    )
    told(world, shut)
    job = world.submit(a_job().of("vision").gpus(1))
    world.cycle()
    assert world.state.jobs[job].state is S.QUEUED
    told(
        world,
        FoundReservation("ours", shut.begin, shut.end, names, tenants=("vision",), shut=False),
    )
    world.cycle()
    assert world.state.jobs[job].state is not S.QUEUED


def test_it_is_ended_where_it_was_made_alone() -> None:
    world = a_world()
    told(world, found(world, "fans", 1, 2, world.state.config.nodes[0].name))
    with pytest.raises(Rejected) as refused:
        world.do(c.EndReservation("fans@gpus"))
    assert refused.value.code is Code.CONFLICT
    assert "scontrol delete reservationname=fans" in str(refused.value.hint)
