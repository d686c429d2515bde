"""Hardware that breaks, in counted shares and in cells. Every step is audited."""

import msgspec
import pytest

from allotment.engine.apply import apply
from allotment.engine.breaker import bound
from allotment.engine.engine import Engine
from allotment.engine.health import heartbeat
from allotment.engine.state import Image, State
from allotment.engine.suspicions import KEPT_MS
from allotment.model import commands as c
from allotment.model import events as e
from allotment.model.cells import CellShare, CellType, RootCell, Topology
from allotment.model.diagnosis import Diagnosis, Owner, RetryClass
from allotment.model.errors import Code, Rejected
from allotment.model.health import RULES, WHOLE, HardwareHealth, HealthReport, Source
from allotment.model.ids import Actor, DeviceIndex, JobId, NodeId
from allotment.model.lifecycle import JobState as S
from allotment.model.quantity import Instant
from allotment.model.reasons import Reason
from allotment.model.reports import NodeReport
from allotment.model.tenancy import Config, Tenant
from tests.support.builders import POLICIES, a_config, a_job, a_node, a_tenant, gpus
from tests.support.world import World

ECC = Diagnosis("gpu_ecc", "A GPU's memory is faulty.", Owner.HARDWARE, RetryClass.PLATFORM)


def counted(nodes: int = 2) -> Config:
    return a_config(a_tenant("vision", 16), a_tenant("nlp"), nodes=nodes)


def in_cells(nodes: int = 2) -> Config:
    """Nodes of two sockets of four; vision has one node, nlp one node or its sockets."""
    topology = Topology(
        types=(CellType("socket", "A100", 4), CellType("host", "socket", 2, is_node=True)),
        roots=tuple(RootCell("host", f"n{at}", (NodeId(at),)) for at in range(nodes)),
    )
    return Config(
        nodes=tuple(a_node(at) for at in range(nodes)),
        tenants=(
            Tenant("vision", gpus(8), cells=(CellShare("host", 1),)),
            Tenant("nlp", gpus(8), cells=(CellShare("socket", 2),)),
        ),
        topology=topology,
    )


BOTH = pytest.mark.parametrize("config", [counted(), in_cells()], ids=["counted", "cells"])


class Watched(World):
    """A world in which somebody looks at the hardware."""

    def trouble(self, node: int, device: int | None = None, **more: object) -> None:
        self.tell(self._report(node, device, ok=False, **more))

    def ok(self, node: int, device: int | None = None, **more: object) -> None:
        self.tell(self._report(node, device, ok=True, **more))

    def _report(self, node: int, device: int | None, **more: object) -> HealthReport:
        place = None if device is None else DeviceIndex(device)
        given = {"source": Source.DRIVER, "code": "gpu_ecc"} | more
        return HealthReport(NodeId(node), device=place, **given)  # pyright: ignore[reportArgumentType]

    def beats(self, node: int, *, alive: bool) -> None:
        """A heartbeat stops or comes back, as the service hears it."""
        report = NodeReport(NodeId(node), alive=alive)
        for told in (report, *heartbeat(self.state, report)):
            self.tell(told)

    def declare(self, node: int, device: int | None, *, ok: bool, because: str = "") -> None:
        place = None if device is None else DeviceIndex(device)
        self.do(c.DeclareHealth(((NodeId(node), place),), ok, because))

    def is_now(self, node: int, device: int = WHOLE) -> HardwareHealth:
        found = self.state.health.get((NodeId(node), device))
        return found.health if found else HardwareHealth.HEALTHY

    def changes(self) -> list[e.HealthChanged]:
        return [r.event for r in self.log if isinstance(r.event, e.HealthChanged)]

    def devices(self, job: JobId) -> set[tuple[int, int]]:
        return {(s.node, d) for s in self.job(job).attempts[-1].slots for d in s.devices}

    def reloaded(self) -> State:
        """Through bytes and back, and by the log alone: both are the state."""
        data = msgspec.msgpack.encode(self.state.image())
        folded = State(POLICIES)
        for record in self.log:
            apply(folded, record)
        assert msgspec.msgpack.encode(folded.image()) == data
        again = State.from_image(msgspec.msgpack.decode(data, type=Image), POLICIES)
        assert msgspec.msgpack.encode(again.image()) == data
        return again


@BOTH
def test_a_gang_on_a_device_that_breaks_runs_on_and_others_keep_away(config: Config) -> None:
    world = Watched(config)
    first = world.submit(a_job().gpus(4))
    world.cycle()
    world.runs(first)
    broken = min(world.devices(first))
    world.trouble(*broken)
    assert world.is_now(*broken) is HardwareHealth.SUSPECT
    world.cycle()
    assert world.is_(first) is S.RUNNING
    world.ends(first)
    others = [world.submit(a_job().gpus(1)) for _ in range(16)]
    world.cycle()
    there = set().union(*(world.devices(j) for j in others if world.is_(j) is not S.QUEUED))
    assert broken not in there
    assert len(there) == 15
    waiting = next(job for job in others if world.is_(job) is S.QUEUED)
    assert world.why(waiting).reason is Reason.NODES_UNAVAILABLE


@BOTH
def test_what_heals_is_used_again_and_at_once(config: Config) -> None:
    world = Watched(config)
    world.trouble(0, 2)
    world.trouble(1, 5)
    world.ok(0, 2)
    world.ok(1, 5)
    whole = [world.submit(a_job().gpus(8)) for _ in range(2)]
    world.cycle()
    assert [world.is_(job) for job in whole] == [S.QUEUED, S.QUEUED]
    due = world.engine.next_due(world.now)
    assert due is not None
    assert due <= world.now + RULES.heal_ms
    world.wait(RULES.heal_ms)
    world.cycle()
    assert [world.is_(job) for job in whole] == [S.STARTING, S.STARTING]
    assert [change.now for change in world.changes()[2:]] == [HardwareHealth.HEALTHY] * 2


@BOTH
def test_a_whole_node_in_trouble_takes_no_work(config: Config) -> None:
    world = Watched(config)
    world.trouble(0, source=Source.PROBE)
    jobs = [world.submit(a_job().gpus(4)) for _ in range(3)]
    world.cycle()
    assert {node for job in jobs[:2] for node, _ in world.devices(job)} == {1}
    assert world.is_(jobs[2]) is S.QUEUED


@BOTH
def test_a_reserved_place_on_hardware_that_breaks_is_found_anew(config: Config) -> None:
    world = Watched(config)
    tenants = [world.submit(a_job().of("nlp").gpus(8)) for _ in range(2)]
    world.cycle()
    for job in tenants:
        world.runs(job)
    owner = world.submit(a_job().gpus(8))
    world.cycle()
    promise = world.state.cluster.reserved[owner]
    world.trouble(promise.slots[0].node, promise.slots[0].devices[0])
    world.cycle()
    dropped = [r.event for r in world.log if isinstance(r.event, e.ReservedPlaceDropped)]
    assert [event.job for event in dropped] == [owner]
    again = world.state.cluster.reserved.get(owner)
    assert again is None or again.slots[0].node != promise.slots[0].node


@BOTH
def test_a_flood_of_reports_makes_no_flood_of_events(config: Config) -> None:
    world = Watched(config)
    for _ in range(200):
        world.trouble(0, 3)
        world.ok(1, 3)
        world.wait(10)
    assert len(world.changes()) == 1
    world.wait(RULES.worsen_ms)
    assert [change.now for change in world.changes()] == [
        HardwareHealth.SUSPECT,
        HardwareHealth.BAD,
    ]
    for _ in range(200):
        world.ok(0, 3)
        world.wait(10)
    world.wait(RULES.mend_ms)
    assert [change.now for change in world.changes()][2:] == [HardwareHealth.HEALTHY]


@BOTH
def test_a_reloaded_world_goes_on_where_it_was(config: Config) -> None:
    world = Watched(config)
    world.trouble(0, 3)
    world.declare(1, None, ok=False, because="new power supply")
    world.do(c.DrainNode(NodeId(0)))
    again = world.reloaded()
    assert again.health == world.state.health
    assert again.shut_since == {NodeId(0): world.now}
    assert again.cluster.ledger.books[NodeId(0)].bad == {3}
    assert again.timers.next() == world.now + RULES.heal_ms
    world.engine = Engine(again)
    world.wait(RULES.heal_ms)
    assert world.is_now(0, 3) is HardwareHealth.HEALTHY, "nobody told it again"
    assert world.is_now(1) is HardwareHealth.BAD


# ── words ───────────────────────────────────────────────────────────────────────────────


def test_an_administrators_word_holds_until_withdrawn() -> None:
    world = Watched(counted())
    world.declare(0, 3, ok=False, because="fan")
    world.declare(0, 3, ok=False, because="fan")
    assert len(world.changes()) == 1
    world.ok(0, 3)
    world.wait(10 * RULES.mend_ms)
    assert world.is_now(0, 3) is HardwareHealth.BAD
    world.declare(0, None, ok=True)
    assert world.state.health == {}, "a node that is ok is so with its devices"
    world.declare(0, None, ok=True)
    assert [change.now for change in world.changes()] == [
        HardwareHealth.BAD,
        HardwareHealth.HEALTHY,
    ]


def test_an_administrators_word_confirms_what_was_bad() -> None:
    world = Watched(counted())
    world.trouble(0, 3)
    world.wait(RULES.worsen_ms)
    since = world.state.health[NodeId(0), 3].since
    world.declare(0, 3, ok=False, because="fan")
    now = world.state.health[NodeId(0), 3]
    assert (now.final, now.words, now.since) == (True, "fan", since)
    world.trouble(0, 3)
    world.ok(0, 3)
    assert len(world.changes()) == 3


def test_words_about_nothing_are_refused_and_reports_about_nothing_passed_over() -> None:
    world = Watched(counted())
    with pytest.raises(Rejected) as refused:
        world.declare(0, 8, ok=False)
    assert refused.value.code is Code.BAD_REQUEST
    with pytest.raises(Rejected):
        world.declare(9, None, ok=False)
    world.trouble(0, 8)
    world.trouble(9)
    assert world.changes() == []


def fails_of_hardware(world: Watched, user: str, count: int = 2) -> set[tuple[int, int]]:
    """A job of a user runs and says that its devices are broken; give these devices."""
    (record, *_) = world.do(c.SubmitJob(a_job().gpus(count).spec()), Actor(user, 1007))
    job = record.job
    assert job is not None
    world.cycle()
    world.runs(job)
    there = world.devices(job)
    world.ends(job, 1, ECC)
    world.do(c.CancelJob(job))
    return there


def test_the_jobs_of_one_user_take_no_device_from_others() -> None:
    world = Watched(counted())
    there = fails_of_hardware(world, "mallory")
    assert fails_of_hardware(world, "mallory") == there, "they go on being used"
    assert world.state.health == {}
    assert set(world.state.doubts) == there
    assert {change.now for change in world.changes()} == {HardwareHealth.DOUBTED}
    assert len(world.changes()) == 2
    whole = [world.submit(a_job().gpus(8)) for _ in range(2)]
    world.cycle()
    assert [world.is_(job) for job in whole] == [S.STARTING, S.STARTING]
    assert world.state.suspicions.parts() == []
    world.wait(RULES.within_ms)
    assert world.state.doubts == {}
    world.reloaded()


def test_a_job_of_another_user_or_the_driver_makes_doubted_devices_suspect() -> None:
    for joins in ("another user", "driver"):
        world = Watched(counted())
        there = fails_of_hardware(world, "alice")
        again = world.reloaded()
        world.engine = Engine(again)
        if joins == "driver":
            for node, device in there:
                world.trouble(node, device)
        else:
            assert fails_of_hardware(world, "bob") == there
        assert set(world.state.health) == there, "also after a restart"
        assert world.state.doubts == {}
        job = world.submit(a_job().gpus(2))
        world.cycle()
        assert not world.devices(job) & there
        world.reloaded()


# ── the breaker ─────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("total", "largest", "ppm", "most"),
    [
        (80, 8, 100_000, 8),
        (1600, 8, 100_000, 160),
        (16, 8, 100_000, 8),
        (8, 8, 100_000, 4),
        (1, 1, 100_000, 1),
        (8, 8, 1_000_000, 8),
        (80, 8, 0, 0),
    ],
)
def test_a_tenth_or_a_machine_may_go_but_never_more_than_half(
    total: int, largest: int, ppm: int, most: int
) -> None:
    assert bound(total, largest, ppm) == most


@BOTH
def test_what_is_beyond_the_bound_is_used_until_an_administrator_confirms_it(
    config: Config,
) -> None:
    world = Watched(config)
    for node, device in [(0, d) for d in range(8)] + [(1, 0), (1, 1)]:
        world.trouble(node, device)
    assert len(world.state.health) == 8
    held_back = world.state.doubts
    assert set(held_back) == {(1, 0), (1, 1)}
    assert all(one.held_back for one in held_back.values())
    assert [change.held_back for change in world.changes()] == [False] * 8 + [True] * 2
    for _ in range(3):
        world.trouble(1, 0)
    assert len(world.changes()) == 10, "told again it is no news"
    world.declare(1, 0, ok=False, because="seen")
    world.reloaded()
    assert world.state.cluster.ledger.books[NodeId(1)].bad == {0}
    world.ok(1, 1)
    world.wait(RULES.within_ms)
    assert (1, 1) not in world.state.doubts


@BOTH
def test_a_whole_node_beyond_the_bound_stays_open_and_goes_when_there_is_room(
    config: Config,
) -> None:
    world = Watched(config)
    world.trouble(0, 5)
    world.trouble(1, source=Source.PROBE)
    assert world.state.cluster.ledger.books[NodeId(1)].open
    world.wait(RULES.worsen_ms)
    assert world.is_now(0, 5) is HardwareHealth.BAD
    world.declare(0, 5, ok=True)
    world.trouble(1, source=Source.PROBE)
    assert not world.state.cluster.ledger.books[NodeId(1)].open
    world.reloaded()


def test_machines_without_devices_have_a_bound_too() -> None:
    world = Watched(a_config(a_tenant("vision"), nodes=4, devices=0))
    for node in range(4):
        world.trouble(node, source=Source.PROBE)
    assert len(world.state.health) == 1


def test_what_was_suspected_is_counted_and_told_for_thirty_days() -> None:
    world = Watched(counted())
    for _ in range(3):
        world.trouble(0, 3)
        world.ok(0, 3)
        world.wait(RULES.within_ms)
    world.trouble(0, 4)
    world.trouble(0, 5)
    now, seen = world.now, world.state.suspicions
    assert [seen.of((NodeId(0), place), now) for place in (3, 4, WHOLE)] == [3, 1, 4]
    world.declare(1, 1, ok=False)
    assert seen.of((NodeId(1), WHOLE), now) == 0, "what an administrator says is no suspicion"
    again = world.reloaded()
    assert again.suspicions.all() == seen.all()
    assert seen.of((NodeId(0), WHOLE), Instant(now + KEPT_MS)) == 0


def test_a_node_that_is_lost_once_is_used_as_soon_as_it_is_back() -> None:
    world = Watched(counted())
    world.beats(0, alive=False)
    world.beats(0, alive=True)
    assert world.changes() == []
    for _ in range(RULES.troubles - 1):
        world.beats(0, alive=False)
        world.beats(0, alive=False)
        world.beats(0, alive=True)
    assert world.is_now(0) is HardwareHealth.BAD, "it comes and goes"
    world.wait(RULES.mend_ms)
    assert world.is_now(0) is HardwareHealth.HEALTHY


def test_drained_and_lost_nodes_stay_so_beside_their_health() -> None:
    world = Watched(counted())
    world.do(c.DrainNode(NodeId(1)))
    world.trouble(0, source=Source.PROBE)
    world.do(c.DrainNode(NodeId(0)))
    world.ok(0, source=Source.PROBE)
    world.wait(RULES.heal_ms)
    job = world.submit(a_job().gpus(1))
    world.cycle()
    assert world.is_(job) is S.QUEUED
    world.do(c.UndrainNode(NodeId(0)))
    world.cycle()
    assert world.is_(job) is S.STARTING


# ── suspended, reconfigured ─────────────────────────────────────────────────────────────


@BOTH
def test_a_job_that_is_suspended_on_a_device_that_breaks_resumes_when_it_heals(
    config: Config,
) -> None:
    world = Watched(config)
    job = world.submit(a_job().gpus(2))
    world.cycle()
    world.runs(job)
    world.do(c.SuspendJob(job))
    world.trouble(*min(world.devices(job)))
    world.do(c.ResumeJob(job))
    world.cycle()
    assert world.is_(job) is S.SUSPENDED
    assert world.why(job).reason is Reason.NODES_UNAVAILABLE
    world.ok(*min(world.devices(job)))
    world.wait(RULES.heal_ms)
    world.cycle()
    assert world.is_(job) is S.RUNNING


@BOTH
def test_a_new_configuration_takes_no_guarantee_from_who_sits_on_broken_hardware(
    config: Config,
) -> None:
    world = Watched(config)
    job = world.submit(a_job().gpus(8))
    world.cycle()
    world.runs(job)
    held = world.job(job).attempts[-1].entitlement
    world.trouble(*min(world.devices(job)))
    world.trouble(world.job(job).attempts[-1].slots[0].node, source=Source.PROBE)
    world.do(c.ApplyConfig(msgspec.structs.replace(config, default_tenant="nlp")))
    assert world.job(job).attempts[-1].entitlement is held
    assert len(world.state.health) == 2


def test_what_leaves_the_configuration_is_forgotten() -> None:
    world = Watched(counted(2))
    world.trouble(1, 7)
    world.trouble(0, 7)
    world.do(c.ApplyConfig(a_config(a_tenant("vision", 8), nodes=1, devices=7)))
    assert world.state.health == {}
    world.wait(RULES.worsen_ms)
    world.reloaded()


def test_a_silent_node_is_told_of_with_the_reason_or_that_it_was_silent() -> None:
    world = Watched(counted())
    for reason, words in (("the switch is dead", "the switch is dead"), ("", "no heartbeat")):
        told = heartbeat(world.state, NodeReport(NodeId(0), alive=False, reason=reason))
        assert [report.words for report in told] == [words]
