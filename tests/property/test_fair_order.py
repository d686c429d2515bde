"""What the scheduler gives out under DRF is what progressive filling in whole tasks gives."""

from collections.abc import Iterator
from random import Random

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from allotment.core.claimant import Past, worth
from allotment.explain.claims import Claim, Quantities
from allotment.explain.fair_shares import fluid
from allotment.model import commands as c
from allotment.model.quantity import GIB, Instant
from allotment.model.spec import JobSpec
from allotment.model.tenancy import Config, Queue, QueueOrder, ShareBy, Tenant
from tests.support.builders import ALICE, a_job, a_node
from tests.support.whole_shares import whole
from tests.support.world import World

NEED = st.tuples(st.integers(0, 2), st.integers(1, 4), st.integers(1, 6))
"""Devices, CPUs, GiB of one task."""
CLAIM = st.tuples(NEED, st.integers(0, 9), st.integers(1, 3))
"""Need, jobs in line, weight."""


def machine(devices: int, cpus: int, memory: int) -> Config:
    node = msgspec.structs.replace(
        a_node(devices=devices), cpu_milli=cpus * 1000, memory=memory * GIB
    )
    return Config((node,), (), share=ShareBy.DRF)


@given(
    size=st.tuples(st.integers(1, 8), st.integers(4, 24), st.integers(4, 30)),
    claims=st.lists(st.lists(CLAIM, min_size=1, max_size=3), min_size=1, max_size=3),
)
def test_two_levels_of_drf(
    size: tuple[int, int, int], claims: list[list[tuple[tuple[int, int, int], int, int]]]
) -> None:
    tenants: list[Tenant] = []
    twins: list[Claim] = []
    for number, parts in enumerate(claims):
        queues = tuple(
            Queue(f"q{at}", QueueOrder.SKIP, weight_milli=weight * 1000)
            for at, (_, _, weight) in enumerate(parts)
        )
        tenants.append(Tenant(f"t{number}", queues=queues, share=ShareBy.DRF))
        leaves = tuple(
            Claim(
                f"t{number}/q{at}",
                need=(need[0] * 1000, need[1] * 1000, need[2] * GIB),
                most=count,
                weight=weight,
            )
            for at, (need, count, weight) in enumerate(parts)
        )
        twins.append(Claim(f"t{number}", parts=leaves))
    world = World(msgspec.structs.replace(machine(*size), tenants=tuple(tenants)))
    for number, parts in enumerate(claims):
        for at, ((devices, cpus, memory), count, _) in enumerate(parts):
            job = a_job().of(f"t{number}", f"q{at}")
            job.gpus(devices).cpus(cpus).memory(memory * GIB)
            fits = devices <= size[0] and cpus <= size[1] and memory <= size[2]
            for _ in range(count if fits else 0):
                world.do(c.SubmitJob(job.spec()), ALICE)
    world.cycle()
    given_out = {leaf.name: 0 for twin in twins for leaf in twin.parts}
    for job in world.state.jobs.values():
        given_out[f"{job.spec.tenant}/{job.spec.queue}"] += job.attempt is not None
    capacity = (size[0] * 1000, size[1] * 1000, size[2] * GIB)
    twin = whole(capacity, Claim("", parts=tuple(twins)))
    assert given_out == {name: int(twin[name].tasks) for name in given_out}


Tree = tuple[int, "Part"]
"""Weight, and what is inside: queues, or what one task of a leaf needs and how many wait."""
Part = list[Tree] | tuple[tuple[int, int, int], int]

LEAF = st.tuples(NEED, st.integers(0, 6))
BELOW = st.lists(st.tuples(st.integers(1, 3), LEAF), min_size=1, max_size=3)
QUEUES = st.lists(st.tuples(st.integers(1, 3), LEAF | BELOW), min_size=1, max_size=3)
"""Leaves, and queues of leaves: so leaves are not all equally deep."""


def queues_of(inside: list[Tree], parent: str) -> Iterator[Queue]:
    for at, (weight, part) in enumerate(inside):
        name = f"{parent}.q{at}" if parent else f"q{at}"
        share = ShareBy.DRF if isinstance(part, list) else ShareBy.FIRST_COME
        yield Queue(
            name, QueueOrder.SKIP, share=share, weight_milli=weight * 1000, parent=parent
        )
        if isinstance(part, list):
            yield from queues_of(part, name)


def claim_of(name: str, weight: int, part: Part) -> Claim:
    if isinstance(part, list):
        inside = (claim_of(f"{name}.q{at}", *each) for at, each in enumerate(part))
        return Claim(name, parts=tuple(inside), weight=weight)
    (devices, cpus, memory), count = part
    return Claim(name, (devices * 1000, cpus * 1000, memory * GIB), count, weight=weight)


def leaves_of(claim: Claim) -> Iterator[Claim]:
    for part in claim.parts:
        yield from leaves_of(part)
    if not claim.parts:
        yield claim


@given(
    size=st.tuples(st.integers(1, 8), st.integers(4, 24), st.integers(4, 30)),
    trees=st.lists(st.tuples(st.integers(1, 3), QUEUES), min_size=1, max_size=3),
)
def test_drf_in_trees(size: tuple[int, int, int], trees: list[tuple[int, list[Tree]]]) -> None:
    twins = tuple(claim_of(f"t{at}", *tree) for at, tree in enumerate(trees))
    leaves = [leaf for twin in twins for leaf in leaves_of(twin)]
    world = World(msgspec.structs.replace(machine(*size), tenants=tenants_of(trees)))
    capacity = capacity_of(size)
    for leaf in leaves:
        fits = all(need <= most for need, most in zip(leaf.need, capacity, strict=True))
        for _ in range((leaf.most or 0) if fits else 0):
            world.do(c.SubmitJob(spec_of(leaf)), ALICE)
    world.cycle()
    twin = whole(capacity, Claim("", parts=twins))
    given_out = placed(world, leaves)
    assert given_out == {name: int(twin[name].tasks) for name in given_out}


def tenants_of(trees: list[tuple[int, list[Tree]]]) -> tuple[Tenant, ...]:
    return tuple(
        Tenant(
            f"t{at}",
            queues=tuple(queues_of(inside, "")),
            share=ShareBy.DRF,
            weight_milli=weight * 1000,
        )
        for at, (weight, inside) in enumerate(trees)
    )


def capacity_of(size: tuple[int, int, int]) -> Quantities:
    return (size[0] * 1000, size[1] * 1000, size[2] * GIB)


def spec_of(leaf: Claim) -> JobSpec:
    tenant, _, queue = leaf.name.partition(".")
    devices, cpus, memory = leaf.need
    job = a_job().of(tenant, queue).cpus(cpus // 1000).memory(memory)
    return job.gpus(devices // 1000).spec()


def placed(world: World, leaves: list[Claim]) -> dict[str, int]:
    """Count the jobs of each leaf that have a place."""
    count = {leaf.name: 0 for leaf in leaves}
    for job in world.state.jobs.values():
        count[f"{job.spec.tenant}.{job.spec.queue}"] += job.attempt is not None
    return count


ONE_OF = st.sampled_from([(1, 0, 0), (0, 1, 0), (0, 0, 1)])
"""A device, a CPU or a GiB: whatever comes free suffices for a task that asks for any of it."""
ONES = st.tuples(st.integers(1, 3), st.tuples(ONE_OF, st.just(12)))
INSIDE = st.lists(ONES, min_size=1, max_size=3)
LINES = st.lists(ONES | st.tuples(st.integers(1, 3), INSIDE), min_size=1, max_size=3)


class Unaudited(World):
    """A world in which much happens fast."""

    def collect(self) -> None:
        records, effects = self.engine.take()
        self.log += records
        self.effects += effects


@given(
    size=st.tuples(*[st.integers(4, 12)] * 3),
    trees=st.lists(st.tuples(st.integers(1, 3), LINES), min_size=2, max_size=3),
    first=st.randoms(use_true_random=False),
)
def test_drf_in_trees_whatever_was(
    size: tuple[int, int, int], trees: list[tuple[int, list[Tree]]], first: Random
) -> None:
    """The first that come take all; as jobs end it comes to what is fair, up to two tasks.

    Two, as whole tasks alone may be one away from what would be exact, on either side.
    """
    world = Unaudited(msgspec.structs.replace(machine(*size), tenants=tenants_of(trees)))
    twins = tuple(claim_of(f"t{at}", *tree) for at, tree in enumerate(trees))
    leaves = [leaf for twin in twins for leaf in leaves_of(twin)]
    first.shuffle(leaves)
    for leaf in leaves:
        for _ in range(leaf.most or 0):
            world.do(c.SubmitJob(spec_of(leaf)), ALICE)
        world.cycle()
    for _ in range(2 * sum(size)):
        oldest = world.job(next(iter(world.state.cluster.gangs)))
        world.do(c.SubmitJob(oldest.spec), ALICE)
        world.runs(oldest.id)
        world.ends(oldest.id)
        world.cycle()
    fair = [divide(capacity_of(size), Claim("", parts=twins)) for divide in (whole, fluid)]
    for name, count in placed(world, leaves).items():
        assert any(abs(count - each[name].tasks) <= 2 for each in fair), name


@given(
    changes=st.lists(st.tuples(st.integers(0, 500), st.integers(0, 1000)), max_size=20),
    asked=st.lists(st.integers(0, 5000), max_size=10),
    step_ms=st.integers(1, 100),
)
def test_use_does_not_depend_on_how_often_it_is_asked(
    changes: list[tuple[int, int]], asked: list[int], step_ms: int
) -> None:
    """`changes` are waits, and the rate from then on; `asked` when somebody looked."""
    seldom, often = Past(), Past()
    now, rate = 0, 0
    for wait, following in changes:
        for look in sorted(asked):
            if now < look < now + wait:
                often.settle(Instant(look), rate, step_ms)
        now += wait
        seldom.settle(Instant(now), rate, step_ms)
        often.settle(Instant(now), rate, step_ms)
        rate = following
    assert seldom == often


@given(value=st.integers(0, 10**15), step_ms=st.integers(1, 10**6))
def test_half_is_forgotten_in_a_half_life(value: int, step_ms: int) -> None:
    left = worth(Past(value, Instant(0)), Instant(64 * step_ms), 0, step_ms)
    assert abs(left - value / 2) <= 64 + value * 1e-9
