"""Who comes next in a tree of queues that share, at every level of it."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from allotment.core.claimant import Shares
from allotment.core.fair_order import Rescaled
from allotment.engine.state import State
from allotment.model import commands as c
from allotment.model.ids import Actor
from allotment.model.quantity import DAY, HOUR
from allotment.model.tenancy import Config, Limits, Queue, QueueOrder, ShareBy, Tenant
from tests.support.builders import ALICE, POLICIES, a_config, a_job
from tests.support.world import World

BOB = Actor("bob", 1002, ("vision",))


def a_leaf(name: str, weight: int = 1, share: ShareBy = ShareBy.FIRST_COME) -> Queue:
    parent = name.rpartition(".")[0]
    return Queue(name, QueueOrder.SKIP, share=share, weight_milli=weight * 1000, parent=parent)


def inner(name: str, share: ShareBy, weight: int = 1) -> Queue:
    return a_leaf(name, weight, share)


def a_lab(
    *queues: Queue, share: ShareBy = ShareBy.MAX_MIN, devices: int = 8, half_life_ms: int = DAY
) -> Config:
    config = a_config(Tenant("lab", queues=queues, share=share), devices=devices)
    return msgspec.structs.replace(config, limits=Limits(half_life_ms=half_life_ms))


def ask(world: World, queue: str, times: int = 1, tenant: str = "lab") -> None:
    for _ in range(times):
        world.do(c.SubmitJob(a_job().of(tenant, queue).gpus(1).spec()), ALICE)


def held(world: World, queue: str) -> int:
    """Count the jobs of a queue that have a place."""
    jobs = [job for job in world.state.jobs.values() if job.attempt is not None]
    return sum(job.spec.queue.startswith(queue) for job in jobs)


def test_two_queues_in_one_have_together_what_the_one_beside_them_has() -> None:
    world = World(
        a_lab(
            inner("research", ShareBy.MAX_MIN),
            a_leaf("research.train"),
            a_leaf("research.dev"),
            a_leaf("prod"),
        )
    )
    for queue in ("research.train", "research.dev", "prod"):
        ask(world, queue, 8)
    world.cycle()
    assert [held(world, q) for q in ("research.train", "research.dev", "prod")] == [2, 2, 4]


def test_weights_count_at_every_level() -> None:
    world = World(
        a_lab(
            inner("research", ShareBy.DRF, weight=3),
            a_leaf("research.train", weight=2),
            a_leaf("research.dev"),
            a_leaf("prod"),
        )
    )
    for queue in ("prod", "research.dev", "research.train"):
        ask(world, queue, 8)
    world.cycle()
    assert [held(world, q) for q in ("research.train", "research.dev", "prod")] == [4, 2, 2]


def test_the_users_of_a_leaf_deep_down_share_it() -> None:
    leaf = a_leaf("research.train", share=ShareBy.MAX_MIN)
    world = World(a_lab(inner("research", ShareBy.DRF), leaf, a_leaf("prod"), devices=4))
    for who in (ALICE, BOB):
        for _ in range(4):
            world.do(c.SubmitJob(a_job().of("lab", "research.train").gpus(1).spec()), who)
    world.cycle()
    users = [job.owner.user for job in world.state.jobs.values() if job.attempt is not None]
    assert sorted(users) == ["alice", "alice", "bob", "bob"]


def test_a_rule_deep_down_makes_nobody_come_later_where_none_is_above() -> None:
    # Between the tenants, and between `prod` and `research`, it counts who came first.
    lab = Tenant(
        "lab",
        queues=(
            inner("research", ShareBy.MAX_MIN),
            a_leaf("research.train"),
            a_leaf("research.dev"),
            a_leaf("prod"),
        ),
    )
    world = World(a_config(lab, Tenant("else", queues=(a_leaf("default"),)), devices=4))
    ask(world, "research.train", 2)
    ask(world, "research.dev")
    ask(world, "prod", 4)
    ask(world, "default", 4, tenant="else")
    world.cycle()
    assert [held(world, q) for q in ("research", "prod", "default")] == [3, 1, 0]


def test_a_queue_that_holds_all_devices_starves_no_queue_beside_it() -> None:
    # SoCC '13, 3.2: n2 has all devices, and half of the CPUs all the same.
    n2 = Tenant("n2", queues=(a_leaf("gpu"), a_leaf("cpu")), share=ShareBy.DRF)
    node = msgspec.structs.replace(a_config(devices=10).nodes[0], cpu_milli=20_000)
    tenants = (Tenant("n1", queues=(a_leaf("default"),)), n2)
    world = World(Config((node,), tenants, share=ShareBy.DRF))
    for tenant, queue, gpus, cpus in (
        ("n2", "gpu", 1, 1),
        ("n1", "default", 0, 1),
        ("n2", "cpu", 0, 1),
    ):
        job = a_job().of(tenant, queue).gpus(gpus).cpus(cpus).spec()
        for _ in range(30):
            world.do(c.SubmitJob(job), ALICE)
        world.cycle()  # So n1 comes to have all CPUs that are left.
    assert [held_in(world, *where) for where in PLACES] == [10, 10, 0]
    for _ in range(40):
        end_oldest(world)
        world.cycle()
    assert [held_in(world, *where) for where in PLACES] in ([10, 3, 7], [10, 4, 6])


PLACES = ("n1", "default"), ("n2", "gpu"), ("n2", "cpu")


def held_in(world: World, tenant: str, queue: str) -> int:
    """Count the jobs of a queue that have a place."""
    jobs = [job for job in world.state.jobs.values() if job.attempt is not None]
    return sum((job.spec.tenant, job.spec.queue) == (tenant, queue) for job in jobs)


def end_oldest(world: World) -> None:
    """End the job that has had its place for longest, and let its like come in its stead."""
    job = world.job(next(iter(world.state.cluster.gangs)))
    world.do(c.SubmitJob(job.spec), ALICE)
    world.runs(job.id)
    world.ends(job.id)


def test_what_an_inner_queue_used_is_known_after_a_restart() -> None:
    world = World(
        a_lab(
            inner("research", ShareBy.FAIR_SHARE),
            a_leaf("research.train"),
            a_leaf("research.dev"),
            a_leaf("prod"),
            share=ShareBy.FAIR_SHARE,
            devices=1,
        )
    )
    ask(world, "research.train")
    world.cycle()
    world.wait(10 * HOUR)
    job = next(iter(world.state.jobs))
    world.runs(job)
    world.ends(job)
    image = world.state.image()
    assert {each.path for each in image.spent} == {
        ("lab", "research"),
        ("lab", "research", "research.train"),
    }
    world.engine.state = State.from_image(image, POLICIES)
    for queue in ("research.train", "research.dev", "prod"):
        ask(world, queue)
    world.cycle()
    assert held(world, "prod") == 1
    # Of the two inside, who had nothing of it comes before who had all.
    line = world.state.cluster.pending
    claimants = world.state.cluster.claimants
    assert claimants is not None
    assert len(line) == 2
    train, dev = (
        claimants.place(("lab", "research", f"research.{name}"), world.now)
        for name in ("train", "dev")
    )
    assert dev < train


# ── what the parts of a claimant count for ──────────────────────────────────────────────

FINE = 1 << 64
PARTS = [("q", str(number)) for number in range(4)]


def added_up(parts: dict[tuple[str, str], tuple[int, Shares]], least: int) -> Shares:
    """Add up anew: a part ahead of the least counts for what would bring it level with that."""
    even, ahead = [0] * 5, [0] * 5
    for level, shares in parts.values():
        for at, share in enumerate(shares):
            if level > least:
                ahead[at] += share * FINE // level
            elif level:
                even[at] += share
    return tuple(e + a * least // FINE for e, a in zip(even, ahead, strict=True))


@given(
    steps=st.lists(
        st.tuples(
            st.sampled_from(PARTS), st.integers(0, 6), st.integers(0, 9), st.sampled_from(PARTS)
        ),
        max_size=25,
    )
)
def test_what_parts_count_for_is_what_adding_up_anew_says(
    steps: list[tuple[tuple[str, str], int, int, tuple[str, str]]],
) -> None:
    counted, parts, least = Rescaled(), dict[tuple[str, str], tuple[int, Shares]](), 0
    for part, level, share, first in steps:
        shares = (level, share, 0, 0, 0) if level else (0,) * 5
        counted.put(part, level, shares)
        parts[part] = (level, shares)
        assert counted.shares() == added_up(parts, least)
        counted.rise_to(first)
        least = parts[first][0] if first in parts else 0
        assert counted.shares() == added_up(parts, least)
