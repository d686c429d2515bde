"""Dates come: what is written for then is in force, and who runs goes on."""

from datetime import UTC, datetime

import msgspec

from allotment.engine.apply import apply
from allotment.engine.foresee import digest, foresee
from allotment.engine.state import Image, State
from allotment.model import commands as c
from allotment.model import events as e
from allotment.model.dated import as_written
from allotment.model.ids import SYSTEM, JobId
from allotment.model.ledger import Entitlement
from allotment.model.lifecycle import JobState
from allotment.model.quantity import DAY, HOUR, SECOND, Instant
from allotment.model.tenancy import Config
from allotment.wire.config import read_config
from tests.support.builders import NOW, POLICIES, a_job
from tests.support.world import World

BEGIN = Instant(NOW + 2 * 365 * DAY)
GUARANTEED, OPPORTUNISTIC = Entitlement.GUARANTEED, Entitlement.OPPORTUNISTIC


def after(hours: int) -> str:
    """Write the moment so many hours after the tests begin."""
    at = datetime.fromtimestamp((BEGIN + hours * HOUR) // SECOND, UTC)
    return f"'{at:%Y-%m-%dT%H:%M:%S}'"


def config(tenants: str, machines: str = "") -> Config:
    node = "nodes: [{name: n, cpu: 80, memory: 80GiB, gpu: {type: A, count: 8}}]"
    text = f"{machines or node}\ntenants:\n{tenants}"
    return read_config(text.encode(), source="c.yaml", machine=None)[0]


LENT = f"""
  vision:
    guaranteed: {{gpu: 4}}
    changes: [{{from: {after(1)}, until: {after(3)}, guaranteed: {{gpu: 2}}}}]
  speech:
    guaranteed: {{gpu: 2}}
    changes: [{{from: {after(1)}, until: {after(3)}, guaranteed: {{gpu: 6}}}}]
"""
"""For two hours most of the cluster is for `speech`."""


def begun(config: Config) -> World:
    world = World(config)
    world.wait(BEGIN - NOW)
    return world


def submit(world: World, tenant: str, count: int, queue: str = "default") -> list[JobId]:
    return [world.submit(a_job().of(tenant, queue).gpus(1)) for _ in range(count)]


def run_all(world: World) -> None:
    world.cycle()
    for job in list(world.state.jobs.values()):
        if job.attempt is not None and not job.attempt.started_at:
            world.runs(job.id)


def held(world: World, tenant: str, how: Entitlement) -> int:
    return sum(
        job.attempt is not None and job.attempt.entitlement is how
        for job in world.state.jobs.values()
        if job.spec.tenant == tenant
    )


def let_go(world: World) -> int:
    """Let who is told to go end, until nobody is; count them."""
    gone = 0
    for _ in range(30):
        run_all(world)
        leaving = [
            job.id
            for job in world.state.jobs.values()
            if job.attempt is not None and job.attempt.stop is not None
        ]
        if not leaving:
            return gone
        gone += len(leaving)
        for job in leaving:
            world.ends(job, 143)
    raise AssertionError("it does not come to rest")


def guaranteed(world: World) -> list[int]:
    return [tenant.guaranteed.gpu_milli // 1000 for tenant in world.state.config.tenants]


def dated(world: World) -> list[e.Record]:
    return [
        record
        for record in world.log
        if isinstance(record.event, e.ConfigApplied) and record.event.dated
    ]


def test_the_date_comes_by_itself_and_goes_again() -> None:
    world = begun(config(LENT))
    first, second = (Instant(BEGIN + hours * HOUR) for hours in (1, 3))
    assert world.engine.next_due(world.now) == first
    world.wait(HOUR - 1)
    assert guaranteed(world) == [4, 2]
    world.wait(1)
    assert guaranteed(world) == [2, 6]
    assert world.engine.next_due(world.now) == second
    world.wait(2 * HOUR)
    assert guaranteed(world) == [4, 2]
    assert world.engine.next_due(world.now) is None
    assert [(record.at, record.actor) for record in dated(world)] == [
        (first, SYSTEM),
        (second, SYSTEM),
    ]


def test_what_exceeds_the_smaller_guarantee_runs_on_until_the_owner_comes() -> None:
    world = begun(config(LENT))
    jobs = submit(world, "vision", 8)
    run_all(world)
    assert held(world, "vision", GUARANTEED) == 4
    world.wait(HOUR)
    assert held(world, "vision", GUARANTEED) == 2
    assert held(world, "vision", OPPORTUNISTIC) == 6
    assert all(world.is_(job) is JobState.RUNNING for job in jobs), "nobody had to go for it"
    submit(world, "speech", 6)
    assert let_go(world) == 6
    assert held(world, "speech", GUARANTEED) == 6
    assert held(world, "vision", GUARANTEED) == 2
    world.wait(2 * HOUR)
    # Now it is the others who have more than is theirs, and two of them are asked to go.
    assert let_go(world) == 2
    assert held(world, "speech", GUARANTEED) == 2
    assert held(world, "vision", GUARANTEED) == 4


def test_a_limit_of_a_queue_is_another_from_a_date_on() -> None:
    world = begun(
        config(
            f"""
  vision:
    guaranteed: {{gpu: 8}}
    queues:
      q: {{order: skip, limit: {{gpu: 2}}, changes: [{{from: {after(1)}, limit: {{gpu: 5}}}}]}}
"""
        )
    )
    submit(world, "vision", 8, "q")
    run_all(world)
    assert held(world, "vision", GUARANTEED) == 2
    world.wait(HOUR)
    run_all(world)
    assert held(world, "vision", GUARANTEED) == 5


def test_caps_are_others_from_a_date_on() -> None:
    caps = f"{{from: {after(1)}, until: {after(2)}, per_user: {{gpu: 2}}}}"
    jobs = f"{{from: {after(3)}, until: {after(4)}, max_jobs: 1}}"
    world = begun(
        config(
            f"\n  vision:\n    guaranteed: {{gpu: 4}}\n    changes: [{caps}]\n"
            f"    queues: {{default: {{changes: [{jobs}]}}}}\n"
        )
    )
    running: list[int] = []
    for _ in range(5):
        jobs_now = submit(world, "vision", 4)
        run_all(world)
        running.append(sum(world.is_(job) is JobState.RUNNING for job in jobs_now))
        for job in jobs_now:
            if world.is_(job) is JobState.RUNNING:
                world.ends(job)
            else:
                world.do(c.CancelJob(job))
        world.wait(HOUR)
        world.engine.tick(world.now)
    assert running == [4, 2, 4, 1, 4]


def test_cells_are_others_from_a_date_on() -> None:
    world = begun(
        config(
            f"""
  a: {{cells: {{8xV100-node: 2}}, changes: [{{from: {after(1)}, cells: {{8xV100-node: 1}}}}]}}
  b: {{changes: [{{from: {after(1)}, cells: {{8xV100-node: 1}}}}]}}
""",
            'hardware: ["2 x 8xV100 in racks of 2"]',
        )
    )
    jobs = [world.submit(a_job().of("a").gpus(8)) for _ in range(2)]
    run_all(world)
    assert held(world, "a", GUARANTEED) == 2
    world.wait(HOUR)
    assert (held(world, "a", GUARANTEED), held(world, "a", OPPORTUNISTIC)) == (1, 1)
    other = world.submit(a_job().of("b").gpus(8))
    assert let_go(world) == 1
    assert world.is_(other) is JobState.RUNNING
    assert sorted(world.is_(job) for job in jobs) == [JobState.QUEUED, JobState.RUNNING]


def restarted(world: World) -> State:
    data = msgspec.msgpack.encode(world.state.image())
    again = State.from_image(msgspec.msgpack.decode(data, type=Image), POLICIES)
    assert msgspec.msgpack.encode(again.image()) == data
    return again


def test_it_holds_after_a_restart_in_the_middle() -> None:
    world = begun(config(LENT))
    world.wait(HOUR)
    assert guaranteed(world) == [2, 6]
    world.engine.state = restarted(world)
    assert guaranteed(world) == [2, 6]
    world.do(c.ApplyConfig(config(LENT)))
    assert len(dated(world)) == 1, "what the file says is in force already"
    world.wait(2 * HOUR)
    assert guaranteed(world) == [4, 2]


def test_what_came_while_nobody_looked_is_caught_up_with() -> None:
    world = begun(config(LENT))
    image = restarted(world)
    world.engine.state = image
    world.wait(2 * HOUR)
    assert guaranteed(world) == [2, 6]
    world.engine.state = restarted(world)
    world.wait(10 * HOUR)
    assert guaranteed(world) == [4, 2]
    assert len(dated(world)) == 2


def test_an_event_between_the_date_and_the_look_at_it_hides_nothing() -> None:
    world = begun(config(LENT))
    world.now = Instant(BEGIN + HOUR)
    submit(world, "speech", 1)  # Before the tick of that moment.
    world.engine.state = restarted(world)
    assert guaranteed(world) == [4, 2]
    assert world.engine.next_due(world.now) == world.now
    world.wait(0)
    assert guaranteed(world) == [2, 6]
    world.wait(2 * HOUR)
    assert guaranteed(world) == [4, 2]


def test_a_file_that_is_applied_in_the_middle_holds_as_of_now() -> None:
    world = begun(
        config("\n  vision: {guaranteed: {gpu: 4}}\n  speech: {guaranteed: {gpu: 2}}")
    )
    world.wait(2 * HOUR)
    world.do(c.ApplyConfig(config(LENT)))
    assert guaranteed(world) == [2, 6]
    assert as_written(world.state.config) == config(LENT)
    assert digest(world.state.config) == digest(config(LENT))
    world.do(c.ApplyConfig(config("\n  vision: {guaranteed: {gpu: 4}}\n  speech: {}")))
    assert guaranteed(world) == [4, 0]
    assert world.engine.next_due(world.now) is None


def test_history_gives_the_same_state_without_looking_at_a_clock() -> None:
    world = begun(config(LENT))
    submit(world, "vision", 8)
    run_all(world)
    world.wait(HOUR)
    submit(world, "speech", 3)
    let_go(world)
    world.wait(2 * HOUR)
    run_all(world)
    again = State(POLICIES)
    for record in world.log:
        data = msgspec.msgpack.encode(record)
        apply(again, msgspec.msgpack.decode(data, type=e.Record))
    assert again.image() == world.state.image()


def test_a_plan_looks_at_what_would_hold_now() -> None:
    plain = "\n  vision: {guaranteed: {gpu: 4}}\n  speech: {guaranteed: {gpu: 2}}"
    world = begun(config(plain))
    submit(world, "vision", 4)
    run_all(world)
    image = msgspec.msgpack.encode(world.state.image())
    before = foresee(image, config(LENT), world.state, world.now)
    assert not before.demoted
    then = foresee(image, config(LENT), world.state, Instant(BEGIN + HOUR))
    assert len(then.demoted) == 2
