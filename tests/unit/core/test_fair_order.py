"""Who comes next among those who share."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from allotment.core.claimant import STEPS, Past, worth
from allotment.engine.state import State
from allotment.model import commands as c
from allotment.model.cluster import Node
from allotment.model.ids import Actor, JobId
from allotment.model.lifecycle import JobState
from allotment.model.quantity import DAY, GIB, HOUR, Instant
from allotment.model.tenancy import (
    Config,
    Limits,
    Queue,
    QueueOrder,
    RankBy,
    ShareBy,
    Tenant,
)
from tests.support.builders import ALICE, POLICIES, JobBuilder, a_config, a_job, gpus
from tests.support.world import World

BOB = Actor("bob", 1002, ("vision",))


def placed(world: World) -> list[JobId]:
    return [job.id for job in world.state.jobs.values() if job.attempt is not None]


def held_by(world: World, tenant: str) -> int:
    """Count the jobs of a tenant that have a place."""
    return sum(world.job(job).spec.tenant == tenant for job in placed(world))


def a_share(name: str, **more: object) -> Tenant:
    return msgspec.structs.replace(Tenant(name, queues=(SKIP,)), **more)


SKIP = Queue("default", QueueOrder.SKIP)


def a_cluster(*tenants: Tenant, share: ShareBy, devices: int = 8, nodes: int = 1) -> World:
    config = a_config(*tenants, devices=devices, nodes=nodes)
    return World(msgspec.structs.replace(config, share=share))


def one_machine(cpus: int, memory: int, devices: int = 0) -> Node:
    node = a_config(devices=devices).nodes[0]
    return msgspec.structs.replace(node, cpu_milli=cpus * 1000, memory=memory * GIB)


def lines_up(world: World, job: JobBuilder, times: int, who: Actor = ALICE) -> list[JobId]:
    spec = job.spec()
    before = world.state.next_job
    for _ in range(times):
        world.do(c.SubmitJob(spec), who)
    return [JobId(before + at) for at in range(times)]


def test_the_example_of_the_paper() -> None:
    # NSDI '11, 4.1: 9 CPUs and 18 GB; A's tasks need 1 and 4, B's 3 and 1: three and two.
    config = Config((one_machine(9, 18),), (a_share("A"), a_share("B")), share=ShareBy.DRF)
    world = World(config)
    lines_up(world, a_job().of("A").cpus(1).memory(4 * GIB), 10)
    lines_up(world, a_job().of("B").cpus(3).memory(1 * GIB), 10)
    world.cycle()
    assert (held_by(world, "A"), held_by(world, "B")) == (3, 2)


def test_one_wants_memory_and_the_other_devices() -> None:
    # 8 devices, 80 GiB: data preparation of 10 GiB each, training on 1 device and 1 GiB.
    config = Config(
        (one_machine(64, 80, devices=8),),
        (a_share("prep"), a_share("train")),
        share=ShareBy.DRF,
    )
    world = World(config)
    lines_up(world, a_job().of("prep").memory(10 * GIB), 20)
    lines_up(world, a_job().of("train").gpus(1).memory(1 * GIB), 20)
    world.cycle()
    # 7 · 10 + 8 · 1 GiB: 7/8 of the memory and all devices, since an eighth does not fit.
    assert (held_by(world, "prep"), held_by(world, "train")) == (7, 8)


def test_who_asked_first_gets_all_where_nothing_is_said() -> None:
    world = a_cluster(a_share("A"), a_share("B"), share=ShareBy.FIRST_COME)
    lines_up(world, a_job().of("A").gpus(1), 10)
    lines_up(world, a_job().of("B").gpus(1), 10)
    world.cycle()
    assert (held_by(world, "A"), held_by(world, "B")) == (8, 0)


@pytest.mark.parametrize("share", [ShareBy.MAX_MIN, ShareBy.DRF, ShareBy.FAIR_SHARE])
def test_weights_count(share: ShareBy) -> None:
    world = a_cluster(a_share("A", weight_milli=3000), a_share("B"), share=share)
    lines_up(world, a_job().of("A").gpus(1), 10)
    lines_up(world, a_job().of("B").gpus(1), 10)
    world.cycle()
    assert (held_by(world, "A"), held_by(world, "B")) == (6, 2)


def test_what_is_guaranteed_comes_first_and_the_rule_divides_what_is_idle() -> None:
    tenants = (a_share("A", guaranteed=gpus(4)), a_share("B"), a_share("C"))
    world = a_cluster(*tenants, share=ShareBy.MAX_MIN)
    lines_up(world, a_job().of("B").gpus(1), 8)
    lines_up(world, a_job().of("C").gpus(1), 8)
    lines_up(world, a_job().of("A").gpus(1), 8)
    world.cycle()
    assert [held_by(world, name) for name in "ABC"] == [4, 2, 2]


def test_queues_of_a_tenant_share_it_and_not_what_the_others_have() -> None:
    queues = (Queue("x", QueueOrder.SKIP), Queue("y", QueueOrder.SKIP))
    tenants = (a_share("A", queues=queues, share=ShareBy.MAX_MIN), a_share("B"))
    world = a_cluster(*tenants, share=ShareBy.MAX_MIN)
    lines_up(world, a_job().of("A", "x").gpus(1), 8)
    lines_up(world, a_job().of("A", "y").gpus(1), 8)
    lines_up(world, a_job().of("B").gpus(1), 8)
    world.cycle()
    assert (held_by(world, "A"), held_by(world, "B")) == (4, 4)
    in_x = sum(world.job(job).spec.queue == "x" for job in placed(world))
    assert in_x == 2


def test_users_of_a_queue_share_it() -> None:
    queue = Queue("default", QueueOrder.STRICT, share=ShareBy.DRF)
    world = a_cluster(a_share("A", queues=(queue,)), share=ShareBy.FIRST_COME)
    lines_up(world, a_job().of("A").gpus(1), 10)
    lines_up(world, a_job().of("A").gpus(1), 10, BOB)
    world.cycle()
    owners = [world.job(job).owner.user for job in placed(world)]
    assert (owners.count("alice"), owners.count("bob")) == (4, 4)


def test_who_used_more_of_late_comes_later_until_it_is_forgotten() -> None:
    world = a_cluster(a_share("A"), a_share("B"), share=ShareBy.FAIR_SHARE, devices=1)
    (long,) = lines_up(world, a_job().of("A").gpus(1), 1)
    world.cycle()
    world.runs(long)
    world.wait(10 * HOUR)
    first_a, second_a = lines_up(world, a_job().of("A").gpus(1), 2)
    (first_b,) = lines_up(world, a_job().of("B").gpus(1), 1)
    world.ends(long)
    world.cycle()
    assert placed(world) == [first_b], "A has had ten hours"
    world.runs(first_b)
    world.wait(10 * HOUR + 1)
    (second_b,) = lines_up(world, a_job().of("B").gpus(1), 1)
    world.ends(first_b)
    world.cycle()
    assert placed(world) == [first_a], "B's ten hours are fresher"
    assert world.is_(second_a) is world.is_(second_b) is JobState.QUEUED


def test_use_is_known_after_a_restart_and_in_another_configuration() -> None:
    tenants = (a_share("A"), a_share("B"))
    world = a_cluster(*tenants, share=ShareBy.FAIR_SHARE, devices=1)
    (long,) = lines_up(world, a_job().of("A").gpus(1), 1)
    world.cycle()
    world.runs(long)
    world.wait(9 * DAY)
    world.do(
        c.ApplyConfig(
            msgspec.structs.replace(world.state.config, limits=Limits(keep_finished=7))
        )
    )
    claimants = world.state.cluster.claimants
    assert claimants is not None
    (spent,) = claimants.spent()
    assert spent.path == ("A",)
    assert spent.value > 0
    data = msgspec.msgpack.encode(world.state.image())
    again = State.from_image(
        msgspec.msgpack.decode(data, type=type(world.state.image())), POLICIES
    )
    assert again.cluster.claimants is not None
    assert again.cluster.claimants.spent() == claimants.spent()
    assert msgspec.msgpack.encode(again.image()) == data


def test_a_queue_ranks_its_jobs_as_it_says_and_others_stay_first_come() -> None:
    queues = (Queue("short", rank=RankBy.SHORTEST), Queue("default"))
    world = a_cluster(a_share("A", queues=queues), share=ShareBy.FIRST_COME, devices=2)
    (slow,) = lines_up(world, a_job().of("A", "short").gpus(1).within(run_ms=5 * HOUR), 1)
    (old,) = lines_up(world, a_job().of("A").gpus(1), 1)
    (quick,) = lines_up(world, a_job().of("A", "short").gpus(1).within(run_ms=HOUR), 1)
    (young,) = lines_up(world, a_job().of("A").gpus(1), 1)
    world.cycle()
    assert placed(world) == [old, quick]
    assert world.is_(slow) is world.is_(young) is JobState.QUEUED


def test_who_is_due_next_goes_first() -> None:
    queue = Queue("default", rank=RankBy.DEADLINE)
    world = a_cluster(a_share("A", queues=(queue,)), share=ShareBy.FIRST_COME, devices=2)
    (whenever,) = lines_up(world, a_job().of("A").gpus(1), 1)
    (tomorrow,) = lines_up(world, a_job().of("A").gpus(1).due(DAY), 1)
    (tonight,) = lines_up(world, a_job().of("A").gpus(1).due(HOUR), 1)
    world.cycle()
    assert placed(world) == [tomorrow, tonight]
    assert world.is_(whenever) is JobState.QUEUED


def test_a_reserved_place_counts_as_held() -> None:
    tenants = (a_share("A", guaranteed=gpus(2)), a_share("B", guaranteed=gpus(2)), a_share("C"))
    world = a_cluster(*tenants, share=ShareBy.MAX_MIN, devices=4)
    lines_up(world, a_job().of("C").gpus(1), 4)
    world.cycle()
    lines_up(world, a_job().of("A").gpus(1), 2)
    lines_up(world, a_job().of("B").gpus(1), 2)
    world.cycle()
    claimants = world.state.cluster.claimants
    assert claimants is not None
    assert len(world.state.cluster.reserved) == 4
    for name in "AB":
        job = next(j for j in world.state.jobs.values() if j.spec.tenant == name)
        shape = world.state.cluster.pending[job.id].shape
        assert claimants.place((shape.tenant,), world.now)[0] > 0


def test_nothing_is_kept_where_nobody_shares_by_a_rule() -> None:
    world = World(a_config(a_share("A")))
    assert world.state.cluster.claimants is None


# ── what was used, and is forgotten step by step ────────────────────────────────────────


def test_in_a_half_life_half_of_it_is_forgotten() -> None:
    past = Past(1 << 30, Instant(0))
    left = worth(past, Instant(STEPS * 100), 0, 100)
    assert abs(left - (1 << 29)) < STEPS
    assert worth(past, Instant(99), 0, 100) == 1 << 30
    assert worth(past, Instant(100), 0, 100) < 1 << 30


@given(
    value=st.integers(0, 10**9),
    begin=st.integers(0, 250),
    between=st.integers(0, 500),
    then=st.integers(0, 500),
    rate=st.integers(0, 9),
)
def test_what_it_comes_to_does_not_depend_on_when_it_was_looked_at(
    value: int, begin: int, between: int, then: int, rate: int
) -> None:
    past = Past(value, Instant(begin))
    looked_at, now = Instant(begin + between), Instant(begin + between + then)
    plain = worth(past, now, rate, 100)
    past.settle(looked_at, rate, 100)
    assert past.at == looked_at
    assert worth(past, now, rate, 100) == plain


def test_what_is_used_all_the_time_comes_to_rest() -> None:
    past = Past(0, Instant(0))
    past.settle(Instant(10**9 + 30), 5, 100)
    rest = worth(past, Instant(10**9 + 100), 5, 100)
    assert worth(past, Instant(10**9 + 200), 5, 100) == rest
    assert worth(past, Instant(10**9 + 99), 5, 100) == past.value + 5 * 69
