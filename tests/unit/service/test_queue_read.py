"""The tree of queues, as `allot queues` shows it."""

import pytest
from msgspec.structs import replace

from allotment.model import commands as c
from allotment.model.amounts import amounts
from allotment.model.errors import Code, Rejected
from allotment.model.ids import Actor
from allotment.model.quantity import GIB
from allotment.model.tenancy import Config, Queue, QueueState, Tenant, Terms
from allotment.service.queue_read import queue_trees
from allotment.service.queue_view import QueueStand, QueueView, TenantQueues
from tests.support.builders import a_config, a_job, gpus
from tests.support.world import World

BOB = Actor("bob", 1002, ("vision",))


def own(count: int) -> Terms:
    return Terms(guaranteed=amounts({"gpu": count * 1000}))


def a_lab(*queues: Queue, guaranteed: float = 8) -> Config:
    return a_config(Tenant("vision", gpus(guaranteed), queues))


@pytest.fixture
def tree() -> Config:
    """Eight devices: of the lab's, six are research's, four of these train's; two dev's."""
    return a_lab(
        Queue("research", terms=own(6)),
        Queue("research.train", parent="research", terms=own(4)),
        Queue("research.eval", parent="research"),
        Queue("dev", terms=own(2)),
    )


def seen(world: World) -> dict[str, QueueView]:
    found: dict[str, QueueView] = {}

    def add(queues: tuple[QueueView, ...]) -> None:
        for queue in queues:
            found[queue.name] = queue
            add(queue.queues)

    add(only(world).queues)
    return found


def only(world: World) -> TenantQueues:
    (tenant,) = queue_trees(world.state, world.now)
    return tenant


def runs(world: World, devices: int, queue: str) -> None:
    job = world.submit(a_job().gpus(devices).of("vision", queue))
    world.cycle()
    world.runs(job)


def test_queues_lie_in_one_another(tree: Config) -> None:
    top = only(World(tree)).queues
    assert [queue.name for queue in top] == ["research", "dev"]
    assert [queue.name for queue in top[0].queues] == ["research.train", "research.eval"]
    assert top[0].guaranteed == {"gpu": 6000}
    assert {queue.stands for queue in seen(World(tree)).values()} == {QueueStand.WITHIN}


def test_what_is_held_adds_up_and_says_the_types(tree: Config) -> None:
    world = World(tree)
    runs(world, 3, "research.train")
    runs(world, 1, "dev")
    found = seen(world)
    assert found["research.train"].used == {
        "gpu": 3000, "gpu:A100": 3000, "cpu": 1000, "memory": GIB,
    }  # fmt: skip
    assert found["research"].used == found["research.train"].used
    assert only(world).used["gpu"] == 4000
    assert (found["research"].running, found["dev"].running, only(world).running) == (1, 1, 2)


def test_what_goes_beyond_is_borrowed_from_those_who_lend(tree: Config) -> None:
    world = World(tree)
    runs(world, 7, "research.eval")
    found = seen(world)
    assert found["research.eval"].borrowed == {"gpu": 7000}
    assert found["research"].borrowed == {"gpu": 1000}
    assert found["research.train"].lent == {"gpu": 4000}
    assert found["dev"].lent == {"gpu": 1000}
    assert (found["research"].lent, found["dev"].borrowed) == ({}, {})
    assert found["research"].stands is found["research.eval"].stands is QueueStand.BEYOND
    assert found["dev"].stands is QueueStand.WITHIN


def test_what_belongs_to_no_queue_is_used_before_anybody_lends() -> None:
    world = World(a_lab(Queue("a", terms=own(2)), Queue("b", terms=own(2))))
    runs(world, 5, "a")
    assert seen(world)["a"].borrowed == {"gpu": 3000}
    assert seen(world)["b"].lent == {}
    runs(world, 2, "a")
    assert seen(world)["b"].lent == {"gpu": 1000}


def test_what_other_tenants_lend_is_borrowed_too_and_no_queue_lends_it() -> None:
    config = a_config(
        Tenant("vision", gpus(4), (Queue("a"), Queue("b"))), Tenant("nlp", gpus(4))
    )
    world = World(config)
    for queue in "aab":
        runs(world, 2, queue)
    (vision, _) = queue_trees(world.state, world.now)
    assert (vision.used["gpu"], vision.borrowed["gpu"]) == (6000, 2000)
    a, b = vision.queues
    assert (a.borrowed, a.stands) == ({}, QueueStand.WITHIN)
    assert (b.borrowed["gpu"], b.stands, b.lent) == (2000, QueueStand.BEYOND, {})


def test_it_is_at_its_limit_by_devices_jobs_or_what_it_may_not_borrow() -> None:
    no_more = Terms(guaranteed=amounts({"gpu": 1000}), borrow=False)
    world = World(
        a_lab(
            Queue("a", limit=amounts({"gpu": 2000})),
            Queue("b", max_jobs=1),
            Queue("c", terms=no_more),
            Queue("d", limit=amounts({"gpu:A100": 2000})),
        )
    )
    for queue in "abcd":
        runs(world, 1, queue)
    stands = {name: queue.stands for name, queue in seen(world).items()}
    assert stands == {
        "a": QueueStand.BEYOND,
        "b": QueueStand.AT_LIMIT,
        "c": QueueStand.AT_LIMIT,
        "d": QueueStand.BEYOND,
    }
    runs(world, 1, "a")
    assert seen(world)["a"].stands is QueueStand.AT_LIMIT
    assert seen(world)["a"].limit == {"gpu": 2000}
    assert seen(world)["b"].max_jobs == 1


def test_who_waits_and_the_oldest_of_those_in_line(tree: Config) -> None:
    world = World(tree)
    runs(world, 8, "research.train")
    held = world.submit(a_job().gpus(1).of("vision", "research.train"), held=True)
    world.wait(1000)
    first = world.submit(a_job().gpus(7).of("vision", "research.eval"))
    world.wait(60_000)
    world.submit(a_job().gpus(7).of("vision", "research.eval"))
    world.wait(1000)
    found = seen(world)
    assert (found["research"].waiting, found["research"].eligible) == (3, 2)
    assert (found["research"].oldest_job, found["research"].oldest_ms) == (first, 61_000)
    assert (found["research.train"].waiting, found["research.train"].oldest_job) == (1, None)
    world.do(c.CancelJob(held))
    assert seen(world)["research.train"].waiting == 0


def test_a_reserved_place_counts_until_it_is_given(tree: Config) -> None:
    world = World(tree)
    for devices in (6, 2):
        runs(world, devices, "research.eval")
    world.submit(a_job().gpus(2).of("vision", "dev"))
    world.cycle()
    dev = seen(world)["dev"]
    assert (dev.reserved["gpu"], dev.used, dev.waiting, dev.running) == (2000, {}, 1, 0)


def test_tasks_that_an_elastic_gang_gives_up_count_until_they_are_gone() -> None:
    config = a_config(Tenant("vision", gpus(8), (Queue("a"),)), Tenant("nlp"))
    world = World(config)
    elastic = a_job().gpus(1).between(2, 8, elastic=True).of("nlp")
    job = world.submit(elastic)
    world.cycle()
    world.runs(job)
    world.submit(a_job().gpus(4).of("vision", "a"))
    world.cycle()
    assert world.state.cluster.placed.parting
    (_, nlp) = queue_trees(world.state, world.now)
    assert (nlp.used["gpu"], nlp.borrowed["gpu"], nlp.running) == (8000, 8000, 1)
    assert nlp.used["gpu"] == world.state.cluster.queues.tenants["nlp"].total().gpu_milli


def test_who_holds_something_capped() -> None:
    queue = Queue("a", per_user=amounts({"gpu": 2000}))
    config = a_lab(queue)
    config = replace(config, tenants=(replace(config.tenants[0], per_user=gpus(4)),))
    world = World(config)
    assert only(world).capped == ()
    runs(world, 2, "a")
    world.do(c.SubmitJob(a_job().gpus(1).of("vision", "a").spec()), BOB)
    world.cycle()
    alice, bob = seen(world)["a"].capped
    assert (alice.user, alice.held, alice.cap, alice.full) == (
        "alice", {"gpu": 2000}, {"gpu": 2000}, True,
    )  # fmt: skip
    assert (bob.user, bob.held, bob.full) == ("bob", {"gpu": 1000}, False)
    assert seen(world)["a"].per_user == {"gpu": 2000}
    assert only(world).per_user["gpu"] == 4000
    assert [(who.user, who.held["gpu"]) for who in only(world).capped] == [
        ("alice", 2000),
        ("bob", 1000),
    ]


def test_the_strictest_state_around_a_queue_is_in_effect() -> None:
    world = World(
        a_lab(
            Queue("a", state=QueueState.STOPPED),
            Queue("a.b", parent="a", state=QueueState.CLOSED),
            Queue("c"),
        )
    )
    found = seen(world)
    assert (found["a.b"].state, found["a.b"].in_effect) == (
        QueueState.CLOSED,
        QueueState.STOPPED,
    )
    assert found["c"].in_effect is QueueState.OPEN


def test_one_tenant_or_none_of_that_name(tree: Config) -> None:
    world = World(tree)
    assert [each.tenant for each in queue_trees(world.state, world.now, "vision")] == ["vision"]
    with pytest.raises(Rejected) as error:
        queue_trees(world.state, world.now, "nobody")
    assert error.value.code is Code.NO_SUCH_TENANT
    assert "vision" in error.value.hint
